//! C1: validity windows of one lock never overlap.

use super::{Call, History, Violation};

/// Checks that no two validity windows of a lock overlap.
///
/// A window begins with the known grant, and ends with the first of release, end of validity, loss
/// signal and death of the process. The promise ends when the server loses its data: a hold whose
/// lease was requested before the end of that has no window after its beginning.
///
/// A hold that was silent has one window before that and, if it came back, one after it, with the same token. Nobody else
/// may have had one in between.
pub fn c1(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in history.locks() {
        let holds: Vec<&Call> = history.holds().filter(|hold| hold.lock == lock).collect();
        let mut windows: Vec<(u64, u64, &Call)> = Vec::new();
        for &hold in &holds {
            windows
                .extend(promised(history, hold).into_iter().map(|(begin, end)| (begin, end, hold)));
        }
        windows.sort_by_key(|(begin, ..)| *begin);
        let mut latest: Option<(u64, u64, &Call)> = None;
        for &window in &windows {
            if let Some(before) = latest.filter(|before| before.1 > window.0) {
                found.push(Violation::new("C1", overlap(before, window)));
            }
            if latest.is_none_or(|before| before.1 < window.1) {
                latest = Some(window);
            }
        }
        for hold in holds {
            for (from, to) in hold.returns().filter(|(_, to)| *to < cut(history, hold)) {
                let between = |(begin, end, other): &&(u64, u64, &Call)| {
                    *begin < to && from < *end && other.who != hold.who
                };
                if let Some((begin, end, other)) = windows.iter().find(between) {
                    let (shown, other) = (hold.shown(), other.shown());
                    let text = format!(
                        "{shown} was silent from {from} and came back at {to}, although {other} has {begin}..{end}"
                    );
                    found.push(Violation::new("C1", text));
                }
            }
        }
    }
    found
}

/// The parts of a hold's windows in which the promise excludes all others.
pub(crate) fn promised(history: &History, hold: &Call) -> Vec<(u64, u64)> {
    let cut = cut(history, hold);
    let windows = hold.windows().into_iter().map(|(begin, end)| (begin, end.min(cut)));
    windows.filter(|(begin, end)| begin < end).collect()
}

/// From when on nothing is promised for a hold, at the latest.
fn cut(history: &History, hold: &Call) -> u64 {
    let ends = [history.killed(hold.who.0), history.forgotten(hold)];
    ends.into_iter().flatten().min().unwrap_or(u64::MAX)
}

fn overlap(one: (u64, u64, &Call), two: (u64, u64, &Call)) -> String {
    let micros = (one.1.min(two.1) - two.0) / 1000;
    let (first, second) = (one.2.shown(), two.2.shown());
    format!(
        "windows overlap by {micros} µs: {first} has {}..{}, {second} has {}..{}",
        one.0, one.1, two.0, two.1
    )
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{MS, clean, event, history, hold};
    use super::super::event::What;
    use super::*;

    fn overlapping() -> Vec<super::super::Event> {
        let mut events = clean();
        events.extend(hold(45, 3, 1, 500));
        events
    }

    #[test]
    fn a_grant_within_the_window_of_another_is_found() {
        assert_eq!(c1(&history(clean())), []);
        let found = c1(&history(overlapping()));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("token 500"), "{found:?}");
    }

    #[test]
    fn a_long_window_is_compared_with_all_that_follow() {
        let mut events = clean();
        // The release of the first hold begins only after the third.
        for event in &mut events {
            if event.call == 0 && matches!(event.what, What::Releasing { .. }) {
                event.at = 75 * MS;
            }
        }
        assert_eq!(c1(&history(events)).len(), 2);
    }

    #[test]
    fn no_window_goes_beyond_validity_loss_or_death() {
        let replace = |with: &dyn Fn(&mut Vec<super::super::Event>)| {
            let mut events = overlapping();
            with(&mut events);
            c1(&history(events)).len()
        };
        assert_eq!(replace(&|_| ()), 1);
        let invalid = |events: &mut Vec<super::super::Event>| {
            for event in events.iter_mut().filter(|event| event.call == 1 && event.process == 2) {
                match &mut event.what {
                    What::Granted { valid_until, .. } => *valid_until = 43 * MS,
                    What::Releasing { valid, .. } => *valid = false,
                    _ => {}
                }
            }
        };
        assert_eq!(replace(&invalid), 0);
        assert_eq!(replace(&|events| events.push(event(44, 2, 1, What::Lost { token: 101 }))), 0);
        assert_eq!(replace(&|events| events.push(event(44, 2, 0, What::Killed))), 0);
    }

    #[test]
    fn hold_that_comes_back_has_two_windows_and_nobody_had_one_between() {
        // Valid until 40, silent, and valid again from 70 until its release at 90.
        let silent = |come_back: bool| {
            let on = |at, what| event(at, 1, 1, what);
            let mut events = vec![
                on(10, What::Invoked { budget: 50 * MS, waits: true }),
                on(20, What::Granted { token: 7, valid_until: 40 * MS }),
                on(45, What::Silent),
            ];
            if come_back {
                events.push(on(70, What::Valid { until: 120 * MS }));
                events.push(on(90, What::Releasing { valid: true, budget: 50 * MS }));
            } else {
                events.push(on(80, What::Lost { token: 7 }));
                events.push(on(90, What::Releasing { valid: false, budget: 50 * MS }));
            }
            events
        };
        let windows = |come_back| {
            let history = history(silent(come_back));
            let windows = history.holds().map(Call::windows).next().unwrap();
            windows.iter().map(|(begin, end)| (begin / MS, end / MS)).collect::<Vec<_>>()
        };
        assert_eq!((windows(false), windows(true)), (vec![(20, 40)], vec![(20, 40), (70, 90)]));
        // Another has it for 10 ms, from this moment on.
        let beside = |come_back, at| {
            let mut events = silent(come_back);
            events.extend(hold(at, 2, 2, 8));
            c1(&history(events)).len()
        };
        assert_eq!((beside(false, 39), beside(false, 40), beside(false, 75)), (1, 0, 0));
        assert_eq!((beside(true, 35), beside(true, 50), beside(true, 90)), (2, 1, 0));
        assert_eq!((beside(true, 65), beside(true, 70)), (2, 1));
        let mut events = silent(true);
        events.extend(hold(50, 2, 2, 8));
        // The server had lost its data by then.
        events.push(event(45, 0, 0, What::Amnesia { until: 48 * MS, lease: 0 }));
        assert_eq!(c1(&history(events)), []);
    }

    #[test]
    fn restart_without_data_ends_only_earlier_windows() {
        let mut events = overlapping();
        let amnesia =
            |at, until| event(at, 0, 0, What::Amnesia { until: until * MS, lease: 100 * MS });
        events.push(amnesia(44, 44));
        assert_eq!(c1(&history(events)), []);
        let mut events = overlapping();
        // Both were requested afterwards, but one has a lease that may be from before.
        events.push(amnesia(15, 16));
        assert_eq!(c1(&history(events.clone())).len(), 1);
        for event in events.iter_mut().filter(|event| event.call == 1 && event.process == 2) {
            if let What::Granted { valid_until, .. } = &mut event.what {
                *valid_until = 110 * MS;
            }
        }
        assert_eq!(c1(&history(events)), []);
    }
}

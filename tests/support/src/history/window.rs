//! C1: validity windows of one lock never overlap.

use super::{Call, History, Violation};

/// Checks that no two validity windows of a lock overlap.
///
/// A window goes from the grant known to the first of release, end of validity, loss signal and
/// death of the process. Where the server forgot everything the promise ends: a hold on a lease
/// that was asked for before that was over has no window after it began.
pub fn c1(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in history.locks() {
        let mut windows: Vec<(u64, u64, &Call)> = history
            .holds()
            .filter(|hold| hold.lock == lock)
            .filter_map(|hold| promised(history, hold).map(|(begin, end)| (begin, end, hold)))
            .collect();
        windows.sort_by_key(|(begin, ..)| *begin);
        let mut latest: Option<(u64, u64, &Call)> = None;
        for window in windows {
            if let Some(before) = latest.filter(|before| before.1 > window.0) {
                found.push(Violation::new("C1", overlap(before, window)));
            }
            if latest.is_none_or(|before| before.1 < window.1) {
                latest = Some(window);
            }
        }
    }
    found
}

/// The part of a hold's window for which it was promised that nobody else has one.
pub(crate) fn promised(history: &History, hold: &Call) -> Option<(u64, u64)> {
    let (begin, mut end) = hold.window()?;
    if let Some(killed) = history.killed(hold.who.0) {
        end = end.min(killed);
    }
    if let Some(from) = history.forgotten(hold) {
        end = end.min(from);
    }
    (begin < end).then_some((begin, end))
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
    fn restart_without_data_ends_only_earlier_windows() {
        let mut events = overlapping();
        let amnesia =
            |at, until| event(at, 0, 0, What::Amnesia { until: until * MS, lease: 100 * MS });
        events.push(amnesia(44, 44));
        assert_eq!(c1(&history(events)), []);
        let mut events = overlapping();
        // Both were asked for afterwards, but one stands on a lease that may be from before.
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

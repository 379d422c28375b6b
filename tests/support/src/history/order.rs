//! C6: of live waiters nobody is overtaken.

use std::collections::BTreeMap;

use super::call::Call;
use super::event::{Snapshot, What};
use super::{History, Violation};

/// How much earlier a thread must have asked to have surely been in line, in ns.
const SURELY: u64 = 100_000_000;

/// Checks the order of the queue, where the server was looked at, and among the threads of a
/// process, which stand in line at their own:
///
/// - who has been seen behind another in the queue is not seen to own the lock while that one still
///   waits, and has been alive at every look;
/// - a thread that asks well after another of its process, and waits like it, is not granted the
///   lock before that one, which goes on waiting.
pub fn c6(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in history.locks() {
        let looks = history.events().iter().filter(|event| event.lock == lock);
        let looks = looks.filter_map(|event| match &event.what {
            What::Saw(snapshot) => Some((event.at, snapshot)),
            _ => None,
        });
        in_queue(lock, looks, &mut found);
    }
    in_process(history, &mut found);
    found
}

fn in_queue<'a>(
    lock: u32,
    looks: impl Iterator<Item = (u64, &'a Snapshot)>,
    found: &mut Vec<Violation>,
) {
    // Who was seen before and behind whom, and until when the one before counts as alive, as he was
    // seen last: he has been alive all the time.
    let mut behind: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (at, Snapshot { owner, queue, micros }) in looks {
        let death = |name: &str| {
            let waiter = queue.iter().find(|(waiter, death)| waiter == name && death > micros);
            waiter.map(|(_, death)| *death)
        };
        behind.retain(|(before, _), until| {
            let (known, news) = (*until, death(before));
            *until = news.unwrap_or(0);
            known > *micros && news.is_some()
        });
        if let Some(owner) = owner
            && let Some(((before, _), _)) = behind.iter().find(|((_, after), _)| after == owner)
        {
            let text = format!("lock {lock}: {owner} has it at {at}, and {before} waits before it");
            found.push(Violation::new("C6", text));
        }
        for (place, (before, death)) in queue.iter().enumerate() {
            if death > micros {
                let after = queue[place + 1..].iter();
                behind.extend(after.map(|(after, _)| ((before.as_str(), after.as_str()), *death)));
            }
        }
    }
}

fn in_process(history: &History, found: &mut Vec<Violation>) {
    let stops: Vec<(u32, u64, u64)> = history
        .events()
        .iter()
        .filter_map(|event| match event.what {
            What::Stopped { until } => Some((event.process, event.at, until)),
            _ => None,
        })
        .collect();
    let paused = |call: &Call, until: u64| {
        stops.iter().any(|(process, from, to)| {
            *process == call.who.0 && *from < until && *to > call.invoked
        })
    };
    let waiting: Vec<&Call> = history.calls().iter().filter(|call| call.waits).collect();
    for (place, before) in waiting.iter().enumerate() {
        let Some(until) = before.returned else { continue };
        let later = waiting[place + 1..].iter().take_while(|call| call.invoked < until);
        for after in later.filter(|after| after.who.0 == before.who.0 && after.lock == before.lock)
        {
            let overtaken = after.token.is_some()
                && after.invoked > before.invoked + SURELY
                && after.returned.is_some_and(|returned| returned + SURELY < until);
            if overtaken && !paused(before, until) {
                let text = format!("{} came after, and before {}", after.shown(), before.shown());
                found.push(Violation::new("C6", text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{MS, clean, event, history};
    use super::super::event::{Event, Outcome};
    use super::*;

    fn saw(at: u64, owner: &str, queue: &[(&str, u64)]) -> Event {
        let queue = queue.iter().map(|(name, death)| ((*name).to_owned(), *death)).collect();
        event(at, 0, 0, What::Saw(Snapshot { owner: Some(owner.to_owned()), queue, micros: at }))
    }

    fn check(extra: Vec<Event>) -> usize {
        let mut events = clean();
        events.extend(extra);
        c6(&history(events)).len()
    }

    #[test]
    fn overtaking_in_the_queue_is_found() {
        let line = || saw(10, "a", &[("b", 99), ("c", 99)]);
        assert_eq!(check(vec![line(), saw(20, "b", &[("c", 99)])]), 0);
        assert_eq!(check(vec![line(), saw(20, "c", &[("b", 99)])]), 1);
        assert_eq!(check(vec![line(), saw(20, "b", &[]), saw(30, "c", &[("b", 99)])]), 0);
    }

    #[test]
    fn passing_a_dead_waiter_is_no_overtaking() {
        let line = || saw(10, "a", &[("b", 15), ("c", 99)]);
        assert_eq!(check(vec![line(), saw(20, "c", &[("b", 15)])]), 0);
        // Dead between two looks, and heard of again.
        assert_eq!(check(vec![line(), saw(20, "c", &[("b", 99)])]), 0);
        // Dead at a look, and heard of again.
        let between = saw(20, "a", &[("b", 15), ("c", 99)]);
        assert_eq!(check(vec![line(), between, saw(30, "c", &[("b", 99)])]), 0);
    }

    #[test]
    fn overtaking_by_a_thread_of_one_process_is_found() {
        let call = |thread, begin, end, token| {
            let on = |at, what| Event { thread, ..event(at, 7, u64::from(thread), what) };
            let verdict = match token {
                Some(token) => What::Granted { token, valid_until: 9999 * MS },
                None => What::Failed(Outcome::Unknown),
            };
            vec![on(begin, What::Invoked { budget: 900 * MS, waits: true }), on(end, verdict)]
        };
        let pair = |end| [call(1, 1000, 1900, Some(7)), call(2, 1300, end, Some(8))].concat();
        assert_eq!(check(pair(1950)), 0);
        assert_eq!(check(pair(1500)), 1);
        let mut stopped = pair(1500);
        stopped.push(event(1400, 7, 0, What::Stopped { until: 1450 * MS }));
        assert_eq!(check(stopped), 0);
        let failed = [call(1, 1000, 1900, Some(7)), call(2, 1300, 1500, None)].concat();
        assert_eq!(check(failed), 0);
    }
}

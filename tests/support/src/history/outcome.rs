//! C4: nothing is reported as done, as not done or as busy that was not so.

use std::collections::BTreeSet;

use super::call::{Call, Ended};
use super::event::{Outcome, What};
use super::{History, Violation};

/// A process may keep the lock for a moment after its last release, in ns.
const LINGER: u64 = 100_000_000;

/// Checks the outcomes that calls reported:
///
/// - a release of a hold that was not valid any more is not "done", unless it was in its tail;
/// - a transaction that reported "done" is in the lock's list, one that reported "not done" is not,
///   none is there twice, and they are there in the order of their tokens;
/// - "busy" is reported only while another call for the lock was going on, or may have been.
pub fn c4(history: &History) -> Vec<Violation> {
    let mut found = c4_but_busy(history);
    for call in history.calls().iter().filter(|call| call.ended == Some(Ended::Busy)) {
        if !history.calls().iter().any(|other| excuses(history, other, call)) {
            let text = format!("{}: busy, it says, and nobody was there", call.shown());
            found.push(Violation::new("C4", text));
        }
    }
    found
}

/// Checks as [`c4`] does, but not what was reported as busy. Over several servers that may be for
/// what an attempt that failed has left on some of them.
pub fn c4_but_busy(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for hold in history.holds() {
        // One that is silent may be released in its tail, if nobody else had it meanwhile (C1).
        let in_tail = |at| hold.returns().any(|(_, to)| to == at);
        if let (Some((at, false, _)), Some((_, Outcome::Done))) = (hold.releasing, hold.released)
            && !in_tail(at)
        {
            let text = format!("{}: released, it says, but was not valid", hold.shown());
            found.push(Violation::new("C4", text));
        }
    }
    for event in history.events() {
        if let What::Listed(entries) = &event.what {
            listed(history, event.lock, entries, &mut found);
        }
    }
    found
}

fn listed(history: &History, lock: u32, entries: &[(u64, u64)], found: &mut Vec<Violation>) {
    let mut report =
        |text: String| found.push(Violation::new("C4", format!("lock {lock}: {text}")));
    let mut ids = BTreeSet::new();
    for (_, id) in entries {
        if !ids.insert(*id) {
            report(format!("transaction {id} was applied twice"));
        }
    }
    for pair in entries.windows(2).filter(|pair| pair[1].0 < pair[0].0) {
        report(format!("transaction of token {} applied after {}", pair[1].0, pair[0].0));
    }
    let forgot = history.amnesias().map(|event| match event.what {
        What::Amnesia { until, .. } => until,
        _ => 0,
    });
    let forgot = forgot.max();
    for hold in history.holds().filter(|hold| hold.lock == lock) {
        let Some((at, id, outcome)) = hold.transacted else { continue };
        match outcome {
            // Writes from before the server lost its data are gone. The beginning of a write is not
            // recorded, only that it was after the grant.
            Outcome::Done if !ids.contains(&id) && forgot < hold.returned => {
                report(format!("transaction {id} was done, it says at {at}, and is not there"));
            }
            Outcome::NotDone if ids.contains(&id) => {
                report(format!("transaction {id} was not done, it says at {at}, and is there"));
            }
            _ => {}
        }
    }
}

/// Whether `other` may be the holder because of which `call` reported "busy".
fn excuses(history: &History, other: &Call, call: &Call) -> bool {
    let clean = matches!(other.released, Some((_, Outcome::Done)))
        || matches!(other.ended, Some(Ended::Busy | Ended::Failed(Outcome::NotDone)));
    // A hold without a proper end may stay until its lease ends.
    let over = match (other.over, clean && history.killed(other.who.0).is_none()) {
        (Some(over), true) => over + LINGER,
        _ => u64::MAX,
    };
    other.who != call.who
        && other.lock == call.lock
        && call.returned.is_some_and(|returned| other.invoked < returned)
        && over > call.invoked
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{MS, clean, event, history};
    use super::super::event::Event;
    use super::*;

    fn transacted(call: u64, outcome: Outcome) -> Event {
        event(
            20 * call + 25,
            1 + u32::from(call % 2 == 1),
            call,
            What::Transacted { id: call, outcome },
        )
    }

    fn check(extra: Vec<Event>) -> usize {
        let mut events = clean();
        events.extend(extra);
        c4(&history(events)).len()
    }

    #[test]
    fn a_release_that_is_done_after_the_end_of_validity_is_found() {
        assert_eq!(check(vec![]), 0);
        let mut events = clean();
        for event in events.iter_mut().filter(|event| event.call == 5) {
            if let What::Releasing { valid, .. } = &mut event.what {
                *valid = false;
            }
        }
        assert_eq!(c4(&history(events)).len(), 1);
    }

    #[test]
    fn transaction_that_contradicts_its_outcome_is_found() {
        let list = |entries: &[(u64, u64)]| event(800, 0, 0, What::Listed(entries.to_vec()));
        let (done, not, unknown) = (Outcome::Done, Outcome::NotDone, Outcome::Unknown);
        let transactions = || vec![transacted(1, done), transacted(2, not), transacted(3, unknown)];
        let with = |entries: &[(u64, u64)]| {
            let mut events = transactions();
            events.push(list(entries));
            check(events)
        };
        assert_eq!(with(&[(101, 1)]), 0);
        assert_eq!(with(&[(101, 1), (103, 3)]), 0);
        assert_eq!(with(&[]), 1);
        assert_eq!(with(&[(101, 1), (102, 2)]), 1);
        assert_eq!(with(&[(101, 1), (103, 3), (103, 3)]), 1);
        assert_eq!(with(&[(103, 3), (101, 1)]), 1);
        let forgot = event(700, 0, 0, What::Amnesia { until: 710 * MS, lease: 0 });
        let mut events = transactions();
        events.extend([list(&[]), forgot]);
        assert_eq!(check(events), 0);
    }

    #[test]
    fn busy_without_a_holder_is_found() {
        let busy = |at| {
            let invoked = What::Invoked { budget: MS, waits: false };
            vec![event(at, 3, 1, invoked), event(at + 1, 3, 1, What::Busy)]
        };
        assert_eq!(check(busy(45)), 0);
        assert_eq!(check(busy(250)), 0);
        assert_eq!(check(busy(320)), 1);
        // A release of which nothing is known may not have been done yet.
        let mut events = busy(320);
        events.push(event(212, 2, 9, What::Released(Outcome::Unknown)));
        assert_eq!(check(events), 0);
    }
}

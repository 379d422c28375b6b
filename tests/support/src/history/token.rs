//! C2: tokens grow in real time.

use super::event::What;
use super::window::promised;
use super::{History, Violation};

/// Checks the order of tokens of each lock, across every fault:
///
/// - a hold that was requested after another was granted has the higher token;
/// - no two holds share one;
/// - the resource accepted none that is lower than one before;
/// - and refused no holder within its validity window.
pub fn c2(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in history.locks() {
        in_real_time(history, lock, &mut found);
    }
    for event in history.events() {
        let What::Accepted(touches) = &event.what else { continue };
        for pair in touches.windows(2).filter(|pair| pair[1].token < pair[0].token) {
            let (before, after) = (pair[0].token, pair[1].token);
            let text = format!("lock {}: resource took {after} after {before}", event.lock);
            found.push(Violation::new("C2", text));
        }
    }
    for hold in history.holds() {
        let refusals = [hold.entered, hold.wrote].into_iter().flatten();
        let refused = refusals.filter(|(_, accepted)| !accepted).map(|(at, _)| at).next();
        let Some(at) = refused else { continue };
        let mut windows = promised(history, hold).into_iter();
        if let Some((_, end)) = windows.find(|(begin, end)| *begin <= at && at < *end) {
            let text = format!("{} was refused at {at}, valid until {end}", hold.shown());
            found.push(Violation::new("C2", text));
        }
    }
    found
}

fn in_real_time(history: &History, lock: u32, found: &mut Vec<Violation>) {
    let holds: Vec<_> = history.holds().filter(|hold| hold.lock == lock).collect();
    let mut granted: Vec<_> =
        holds.iter().filter_map(|hold| hold.returned.zip(hold.token)).collect();
    granted.sort_unstable();
    // The highest token of those that were granted up to this place.
    let highest: Vec<u64> = granted
        .iter()
        .scan(0, |highest, (_, token)| {
            *highest = (*token).max(*highest);
            Some(*highest)
        })
        .collect();
    for hold in &holds {
        // A lease that the server forgot is passed on with tokens from before, which are to be
        // refused.
        let end = hold.invoked.min(history.inherited(hold).unwrap_or(u64::MAX));
        let before = granted.partition_point(|(at, _)| *at < end);
        let Some(before) = before.checked_sub(1).map(|place| highest[place]) else { continue };
        if hold.token <= Some(before) {
            let text = format!("{} although {before} was granted before", hold.shown());
            found.push(Violation::new("C2", text));
        }
    }
    let mut tokens: Vec<_> = holds.iter().filter_map(|hold| hold.token).collect();
    tokens.sort_unstable();
    for pair in tokens.windows(2).filter(|pair| pair[0] == pair[1]) {
        let text = format!("lock {lock}: two holds have token {}", pair[0]);
        found.push(Violation::new("C2", text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{clean, event, history, hold};
    use super::super::event::Event;
    use super::*;

    fn with_token(call: u64, new: u64) -> Vec<Event> {
        let mut events = clean();
        for event in events.iter_mut().filter(|event| event.call == call) {
            if let What::Granted { token, .. } = &mut event.what {
                *token = new;
            }
        }
        events
    }

    #[test]
    fn a_lower_token_after_a_higher_one_is_found() {
        assert_eq!(c2(&history(clean())), []);
        assert_eq!(c2(&history(with_token(4, 99))).len(), 1);
        // All that come after it are lower.
        assert_eq!(c2(&history(with_token(4, 999))).len(), 5);
    }

    #[test]
    fn forgotten_lease_may_be_passed_on_with_its_own_tokens() {
        let amnesia = |lease| event(105, 0, 0, What::Amnesia { until: 105_000_000, lease });
        let mut events = with_token(6, 105);
        assert_eq!(c2(&history(events.clone())).len(), 2);
        // It was requested afterwards, and is valid for too long to be from before.
        events.push(amnesia(50_000_000));
        assert_eq!(c2(&history(events.clone())).len(), 2);
        events.push(amnesia(150_000_000));
        let found = c2(&history(events));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("two holds"), "{found:?}");
    }

    #[test]
    fn a_token_given_twice_is_found() {
        // The next one is requested before this one is granted: only that the tokens are equal
        // counts.
        let mut events: Vec<Event> = hold(20, 1, 1, 7);
        events.extend(hold(25, 2, 2, 7));
        let found = c2(&history(events));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("two holds"), "{found:?}");
    }

    #[test]
    fn a_resource_that_takes_a_lower_token_is_found() {
        let mut events = clean();
        for event in &mut events {
            if let What::Accepted(touches) = &mut event.what {
                touches[7].token = 1;
            }
        }
        assert_eq!(c2(&history(events)).len(), 1);
    }

    #[test]
    fn refused_valid_holder_is_found_and_a_late_one_is_not() {
        let refused = |at| {
            let mut events = clean();
            for event in events.iter_mut().filter(|event| event.call == 3) {
                if let What::Wrote { accepted, .. } = &mut event.what {
                    (*accepted, event.at) = (false, event.at + at);
                }
            }
            events
        };
        assert_eq!(c2(&history(refused(0))).len(), 1);
        assert_eq!(c2(&history(refused(50_000_000))), []);
        let mut events = refused(0);
        events.push(event(85, 0, 0, What::Amnesia { until: 85_000_000, lease: 0 }));
        assert_eq!(c2(&history(events)), []);
    }
}

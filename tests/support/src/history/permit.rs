//! Permits of a semaphore: their sum, their slots, and their tokens (rule 45).

use super::Violation;

/// The hold of some permits. All moments are those of the one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitHold {
    /// Its slots, as many as it has permits.
    pub slots: Vec<u32>,
    /// Its token.
    pub token: u64,
    /// When it was asked for: Redis granted it later.
    pub invoked: u64,
    /// When the grant was known: the window begins.
    pub begin: u64,
    /// When the window ended: by release, end of validity, loss or death.
    pub end: u64,
}

/// A change of the limit, which came into force at some moment of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// When the call began.
    pub from: u64,
    /// When it returned.
    pub until: u64,
    /// The new limit.
    pub limit: u32,
}

/// Checks the holds of one semaphore:
///
/// - at each moment the permits inside their windows are no more than the limit in force at the latest grant among
///   them, by the time of the grant: the tokens of different slots say nothing about it;
/// - no slot has two of them;
/// - a hold that was asked for after another of its slot was granted has the higher token.
///
/// Resizes come one after the other. Where a call leaves open when something happened, the checker assumes what
/// is right.
pub fn check_permits(holds: &[PermitHold], limit: u32, resizes: &[Resize]) -> Vec<Violation> {
    let mut found = Vec::new();
    // A process that was stopped as its permit came has a window without any moment.
    for hold in holds.iter().filter(|hold| hold.begin < hold.end) {
        // Of all sets of windows that meet, the largest ones have one that has just begun.
        let inside: Vec<&PermitHold> = holds
            .iter()
            .filter(|other| other.begin <= hold.begin && hold.begin < other.end)
            .collect();
        if inside.is_empty() {
            continue;
        }
        let used: usize = inside.iter().map(|other| other.slots.len()).sum();
        let last_invoked = inside.iter().map(|other| other.invoked).max().unwrap_or(0);
        let may_be_last = inside.iter().filter(|other| other.begin >= last_invoked);
        let allowed = may_be_last.map(|it| highest(limit, resizes, it.invoked, it.begin)).max();
        if allowed.is_some_and(|allowed| used > allowed as usize) {
            let text = format!("{used} permits at {}, where {allowed:?} are in force", hold.begin);
            found.push(Violation::new("C7", text));
        }
        let shares =
            |other: &&&PermitHold| other.slots.iter().any(|slot| hold.slots.contains(slot));
        for other in inside.iter().filter(|other| **other != hold).filter(shares) {
            found.push(Violation::new("C7", format!("a slot is shared: {hold:?}, {other:?}")));
        }
    }
    for slot in
        holds.iter().flat_map(|hold| hold.slots.iter().max()).max().map_or(0..0, |top| 0..top + 1)
    {
        let mut of_slot: Vec<&PermitHold> =
            holds.iter().filter(|hold| hold.slots.contains(&slot)).collect();
        of_slot.sort_by_key(|hold| hold.begin);
        for (place, before) in of_slot.iter().enumerate() {
            let later = of_slot[place + 1..].iter().filter(|later| later.invoked >= before.begin);
            for later in later.filter(|later| later.token <= before.token).take(1) {
                found
                    .push(Violation::new("C7", format!("slot {slot}: {later:?} after {before:?}")));
            }
        }
    }
    found
}

/// The highest limit that may have been in force at some moment from `from` to `until`.
fn highest(limit: u32, resizes: &[Resize], from: u64, until: u64) -> u32 {
    let before = resizes.iter().rfind(|resize| resize.until < from).map_or(limit, |it| it.limit);
    let during = resizes.iter().filter(|resize| resize.until >= from && resize.from <= until);
    during.map(|resize| resize.limit).chain([before]).max().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(slot: u32, token: u64, begin: u64, end: u64) -> PermitHold {
        PermitHold { slots: vec![slot], token, invoked: begin - 1, begin, end }
    }

    #[test]
    fn more_permits_than_the_limit_are_found() {
        let holds = [hold(0, 1, 10, 40), hold(1, 2, 20, 30), hold(2, 3, 30, 50)];
        assert_eq!(check_permits(&holds, 2, &[]), []);
        let holds = [hold(0, 1, 10, 40), hold(1, 2, 20, 31), hold(2, 3, 30, 50)];
        assert_eq!(check_permits(&holds, 2, &[]).len(), 1);
        let both = PermitHold { slots: vec![2, 3], ..hold(2, 3, 30, 50) };
        assert_eq!(check_permits(&[hold(0, 1, 10, 40), both], 2, &[]).len(), 1);
    }

    #[test]
    fn shared_slot_and_falling_token_are_found() {
        let shared = [hold(0, 1, 10, 40), hold(0, 2, 20, 30)];
        assert_eq!(check_permits(&shared, 2, &[]).len(), 1);
        let empty = [hold(0, 1, 30, 30), hold(0, 2, 20, 40)];
        assert_eq!(check_permits(&empty, 2, &[]), []);
        let falls = [hold(0, 9, 10, 20), hold(1, 3, 12, 20), hold(0, 8, 30, 40)];
        assert_eq!(check_permits(&falls, 2, &[]).len(), 1);
        let grows = [hold(0, 9, 10, 20), hold(1, 3, 12, 20), hold(0, 10, 30, 40)];
        assert_eq!(check_permits(&grows, 2, &[]), []);
    }

    #[test]
    fn limit_is_that_of_the_latest_grant_by_time() {
        let shrink = Resize { from: 21, until: 22, limit: 1 };
        // Those who hold stay. The next grant must fit.
        let holds = [hold(0, 5, 10, 40), hold(1, 6, 20, 40)];
        assert_eq!(check_permits(&holds, 2, &[shrink]), []);
        // Its token is lower than those of other slots, and it is the latest all the same.
        let late = hold(0, 3, 30, 50);
        assert_eq!(check_permits(&[hold(1, 6, 20, 40), late.clone()], 2, &[shrink]).len(), 1);
        assert_eq!(check_permits(&[hold(1, 6, 20, 29), late.clone()], 2, &[shrink]), []);
        // While the call is under way either limit may be in force.
        let slow = Resize { until: 35, ..shrink };
        assert_eq!(check_permits(&[hold(1, 6, 20, 40), late], 2, &[slow]), []);
    }
}

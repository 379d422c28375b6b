//! The votes of single servers, and how they are counted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::protocol::reply::Ownership;
use crate::protocol::reply::{numbers, unexpected};
use crate::wire::Value;
use crate::wire::failure::Failure;

/// The owner that has a server's vote: the time that its lease has left (`None`: it has no end),
/// and a hash of the owner's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHolder {
    pub(super) ttl: Option<Duration>,
    pub(super) owner: u64,
}

/// One server's reply to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    Accepted,
    /// Another owner has the lock.
    Busy(NodeHolder),
    /// The request arrived after its deadline.
    Late,
    /// The token is not above this one.
    Low(u64),
}

/// Reads a vote for a token, and the server's time in microseconds.
pub(super) fn vote(value: &Value, token: u64) -> Result<(Vote, u64), Failure> {
    let odd = || unexpected(value);
    let number = |number: i64| u64::try_from(number).map_err(|_| odd());
    if let Value::Array(parts) = value
        && let [Value::Int(0), Value::Int(ttl), Value::Int(now), Value::BulkString(owner)] =
            parts.as_slice()
    {
        // Only whether two servers report the same owner matters. The values come from other
        // processes, so that their length is not bounded here.
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let ttl = u64::try_from(*ttl).ok().map(Duration::from_millis);
        return Ok((Vote::Busy(NodeHolder { ttl, owner: hasher.finish() }), number(*now)?));
    }
    match *numbers(value)?.as_slice() {
        // The token proves that the reply belongs to this proposal. A connection that is out of
        // step could deliver the acceptance of an earlier round, whose token may not grow.
        [1, accepted, now] if number(accepted)? == token => Ok((Vote::Accepted, number(now)?)),
        [2, now] => Ok((Vote::Late, number(now)?)),
        [4, last, now] => Ok((Vote::Low(number(last)?), number(now)?)),
        _ => Err(odd()),
    }
}

/// How many servers replied what about an owner's claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) done: usize,
    pub(super) gone: usize,
    pub(super) taken: usize,
}

impl Tally {
    pub(super) fn count(&mut self, ownership: Ownership) {
        match ownership {
            Ownership::Owned => self.done += 1,
            Ownership::Gone => self.gone += 1,
            Ownership::Taken => self.taken += 1,
        }
    }

    /// The ownership that `need` of `all` servers agree on: the owner has the lock, or too few
    /// servers are left that could confirm it. `None` while the missing replies could decide either
    /// way.
    pub(super) fn ownership(&self, need: usize, all: usize) -> Option<Ownership> {
        if self.done >= need {
            Some(Ownership::Owned)
        // `all - need` servers may be without the vote and still leave a majority: one more
        // excludes it, without waiting for the rest. This is no majority of denials, and with an
        // even number of servers it takes fewer.
        } else if self.gone + self.taken > all - need {
            Some(if self.taken > self.gone { Ownership::Taken } else { Ownership::Gone })
        } else {
            None
        }
    }
}

/// How long it takes until enough of the holders' leases have ended, if `missing` more servers are
/// needed.
pub(super) fn free_after(holders: &mut [NodeHolder], missing: usize) -> Option<Duration> {
    // The leases of the servers differ: each began when its server accepted, and one may never end.
    // The lock is free when the `missing`-th of them ends, not the first and not the last.
    holders.sort_unstable_by_key(|holder| holder.ttl.unwrap_or(Duration::MAX));
    holders.get(missing.checked_sub(1)?)?.ttl
}

/// How many votes the holder with the most votes has.
pub(super) fn most_votes(holders: &[NodeHolder]) -> usize {
    let votes = |of: &NodeHolder| holders.iter().filter(|other| other.owner == of.owner).count();
    holders.iter().map(votes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(numbers: &[i64]) -> Result<(Vote, u64), Failure> {
        vote(&Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect()), 7)
    }

    fn busy(ttl: i64, owner: &[u8]) -> Option<(NodeHolder, u64)> {
        let parts = [Value::Int(0), Value::Int(ttl), Value::Int(99)];
        let owner = Value::BulkString(owner.to_vec());
        match vote(&Value::Array(parts.into_iter().chain([owner]).collect()), 7) {
            Ok((Vote::Busy(holder), now)) => Some((holder, now)),
            _ => None,
        }
    }

    #[test]
    fn votes_of_one_holder_are_counted_together() {
        let holders = [1, 2, 1, 3, 1].map(|owner| NodeHolder { ttl: None, owner });
        assert_eq!((most_votes(&holders), most_votes(&holders[..2]), most_votes(&[])), (3, 1, 0));
    }

    #[test]
    fn votes_are_parsed_or_rejected() {
        assert_eq!(read(&[1, 7, 99]).unwrap(), (Vote::Accepted, 99));
        assert_eq!(busy(30, b"a").unwrap().0.ttl, Some(Duration::from_millis(30)));
        assert_eq!(busy(-1, b"a").unwrap(), busy(-1, b"a").unwrap());
        assert_ne!(busy(-1, b"a").unwrap().0.owner, busy(-1, b"b").unwrap().0.owner);
        assert_eq!(read(&[2, 99]).unwrap(), (Vote::Late, 99));
        assert_eq!(read(&[4, 8, 99]).unwrap(), (Vote::Low(8), 99));
        // `[1, 8, 99]` accepts another token.
        for odd in [&[][..], &[1], &[1, 7], &[0, 30, 99], &[3, 99], &[1, 8, 99], &[1, -7, 99]] {
            assert!(read(odd).unwrap_err().is_unknown(), "{odd:?}");
        }
    }

    #[test]
    fn majority_is_of_all_servers_not_of_those_that_replied() {
        let tally = |done, gone, taken| Tally { done, gone, taken }.ownership(3, 5);
        assert_eq!(tally(3, 0, 2), Some(Ownership::Owned));
        assert_eq!(tally(2, 0, 0), None);
        assert_eq!(tally(2, 2, 0), None);
        assert_eq!(tally(2, 3, 0), Some(Ownership::Gone));
        assert_eq!(tally(0, 1, 2), Some(Ownership::Taken));
        assert_eq!(tally(0, 0, 0), None);
        assert_eq!(Tally { done: 1, gone: 1, taken: 0 }.ownership(2, 2), Some(Ownership::Gone));
    }

    #[test]
    fn waiter_waits_until_enough_leases_end_for_a_majority() {
        let ttl = |millis| Some(Duration::from_millis(millis));
        let mut holders = [ttl(30), None, ttl(10), ttl(20)].map(|ttl| NodeHolder { ttl, owner: 1 });
        assert_eq!(free_after(&mut holders, 2), ttl(20));
        assert_eq!(free_after(&mut holders, 4), None);
        assert_eq!(free_after(&mut holders, 0), None);
    }
}

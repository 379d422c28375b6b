//! The votes of single servers, and how they are counted.

use std::time::Duration;

use crate::base::inspection::HeldPart;
use crate::protocol::holder::{ReportedHolder, known};
use crate::protocol::reply::Ownership;
use crate::protocol::reply::{numbers, unexpected};
use crate::wire::Value;
use crate::wire::failure::Failure;

/// One server's reply to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    Accepted,
    /// Another owner has the lock.
    Busy(ReportedHolder),
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
        && let [Value::Int(0), ttl, Value::Int(now), Value::BulkString(owner), last] =
            parts.as_slice()
    {
        let (Some(ttl), Some(last_token)) = (known(ttl), known(last)) else { return Err(odd()) };
        let (owner, ttl) = (owner.as_slice().into(), ttl.map(Duration::from_millis));
        let micros = number(*now)?;
        return Ok((
            Vote::Busy(ReportedHolder {
                owner,
                ttl,
                overdue: None,
                last_token,
                micros,
                part: HeldPart::Whole,
            }),
            micros,
        ));
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

/// How many servers returned each ownership.
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
pub(super) fn free_after(holders: &mut [ReportedHolder], missing: usize) -> Option<Duration> {
    // The leases of the servers differ: each began when its server accepted, and one may never end.
    // The lock is free when the `missing`-th of them ends, not the first and not the last.
    holders.sort_unstable_by_key(|holder| holder.ttl.unwrap_or(Duration::MAX));
    holders.get(missing.checked_sub(1)?)?.ttl
}

/// Who has most votes, and how many.
pub(crate) fn most_votes<'a>(
    holders: impl Iterator<Item = &'a ReportedHolder> + Clone,
) -> Option<(&'a ReportedHolder, usize)> {
    let votes = |of: &ReportedHolder| holders.clone().filter(|it| it.owner == of.owner).count();
    holders.clone().map(|holder| (holder, votes(holder))).max_by_key(|(_, votes)| *votes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(numbers: &[i64]) -> Result<(Vote, u64), Failure> {
        vote(&Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect()), 7)
    }

    fn busy(ttl: i64, owner: &[u8]) -> Option<(ReportedHolder, u64)> {
        let parts = [Value::Int(0), Value::Int(ttl), Value::Int(99)];
        let rest = [Value::BulkString(owner.to_vec()), Value::Int(40)];
        match vote(&Value::Array(parts.into_iter().chain(rest).collect()), 7) {
            Ok((Vote::Busy(holder), now)) => Some((holder, now)),
            _ => None,
        }
    }

    fn holder(owner: u8, ttl: Option<Duration>) -> ReportedHolder {
        ReportedHolder {
            overdue: None,
            owner: [owner].into(),
            ttl,
            last_token: None,
            micros: 99,
            part: HeldPart::Whole,
        }
    }

    #[test]
    fn votes_of_one_holder_are_counted_together() {
        let holders = [1, 2, 1, 3, 1].map(|owner| holder(owner, None));
        let most = |count: usize| most_votes(holders[..count].iter());
        assert_eq!(most(5), Some((&holders[0], 3)));
        assert_eq!((most(2).map(|(_, votes)| votes), most(0)), (Some(1), None));
    }

    #[test]
    fn votes_are_parsed_or_rejected() {
        assert_eq!(read(&[1, 7, 99]).unwrap(), (Vote::Accepted, 99));
        let holder = busy(30, b"a").unwrap().0;
        assert_eq!((holder.ttl, holder.last_token), (Some(Duration::from_millis(30)), Some(40)));
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
        let mut holders = [ttl(30), None, ttl(10), ttl(20)].map(|ttl| holder(1, ttl));
        assert_eq!(free_after(&mut holders, 2), ttl(20));
        assert_eq!(free_after(&mut holders, 4), None);
        assert_eq!(free_after(&mut holders, 0), None);
    }
}

//! What several servers answer, and what that comes to.

use std::time::Duration;

use redis::Value;

use crate::protocol::Verdict;
use crate::protocol::answer::{numbers, unexpected};
use crate::wire::failure::Failure;

/// One server's answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    Accepted,
    /// Another has it, for so long; `None`: without an end.
    Busy(Option<Duration>),
    /// The request came after its deadline.
    Late,
    /// The token is not above this one.
    Low(u64),
}

/// Reads a vote for a token, and the server's time in microseconds.
pub(super) fn vote(value: &Value, token: u64) -> Result<(Vote, u64), Failure> {
    let odd = || unexpected(value);
    let number = |number: i64| u64::try_from(number).map_err(|_| odd());
    match *numbers(value)?.as_slice() {
        // The token is the proof that the answer belongs to this question.
        [1, accepted, now] if number(accepted)? == token => Ok((Vote::Accepted, number(now)?)),
        [0, ttl, now] => {
            let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
            Ok((Vote::Busy(ttl), number(now)?))
        }
        [2, now] => Ok((Vote::Late, number(now)?)),
        [4, last, now] => Ok((Vote::Low(number(last)?), number(now)?)),
        _ => Err(odd()),
    }
}

/// How many said what about an owner's claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) done: usize,
    pub(super) gone: usize,
    pub(super) taken: usize,
}

impl Tally {
    pub(super) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Done => self.done += 1,
            Verdict::Gone => self.gone += 1,
            Verdict::Taken => self.taken += 1,
        }
    }

    /// What `need` of `all` servers agree on: that it was the owner's, or that too few can say so
    /// for it to have been. `None` while those that did not answer could decide either way.
    pub(super) fn verdict(&self, need: usize, all: usize) -> Option<Verdict> {
        if self.done >= need {
            Some(Verdict::Done)
        } else if self.gone + self.taken > all - need {
            Some(if self.taken > self.gone { Verdict::Taken } else { Verdict::Gone })
        } else {
            None
        }
    }
}

/// After how long enough of the holders' leases are over, where so many servers more are needed.
pub(super) fn free_after(holders: &mut [Option<Duration>], missing: usize) -> Option<Duration> {
    holders.sort_unstable_by_key(|ttl| ttl.unwrap_or(Duration::MAX));
    holders.get(missing.checked_sub(1)?).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(numbers: &[i64]) -> Result<(Vote, u64), Failure> {
        vote(&Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect()), 7)
    }

    #[test]
    fn votes_are_read_or_refused() {
        assert_eq!(read(&[1, 7, 99]).unwrap(), (Vote::Accepted, 99));
        assert_eq!(read(&[0, 30, 99]).unwrap(), (Vote::Busy(Some(Duration::from_millis(30))), 99));
        assert_eq!(read(&[0, -1, 99]).unwrap(), (Vote::Busy(None), 99));
        assert_eq!(read(&[2, 99]).unwrap(), (Vote::Late, 99));
        assert_eq!(read(&[4, 8, 99]).unwrap(), (Vote::Low(8), 99));
        // The last but one answers another proposal.
        for odd in [&[][..], &[1], &[1, 7], &[3, 99], &[1, 8, 99], &[1, -7, 99]] {
            assert!(read(odd).unwrap_err().is_unknown(), "{odd:?}");
        }
    }

    #[test]
    fn a_majority_of_all_decides_and_not_of_those_that_answered() {
        let tally = |done, gone, taken| Tally { done, gone, taken }.verdict(3, 5);
        assert_eq!(tally(3, 0, 2), Some(Verdict::Done));
        assert_eq!(tally(2, 0, 0), None);
        assert_eq!(tally(2, 2, 0), None);
        assert_eq!(tally(2, 3, 0), Some(Verdict::Gone));
        assert_eq!(tally(0, 1, 2), Some(Verdict::Taken));
        assert_eq!(tally(0, 0, 0), None);
        assert_eq!(Tally { done: 1, gone: 1, taken: 0 }.verdict(2, 2), Some(Verdict::Gone));
    }

    #[test]
    fn a_waiter_waits_for_as_many_leases_as_it_needs() {
        let ttl = |millis| Some(Duration::from_millis(millis));
        let mut holders = [ttl(30), None, ttl(10), ttl(20)];
        assert_eq!(free_after(&mut holders, 2), ttl(20));
        assert_eq!(free_after(&mut holders, 4), None);
        assert_eq!(free_after(&mut holders, 0), None);
    }
}

//! Pauses between attempts, and for how long a server is left alone that refuses the user.

use std::time::Duration;

use crate::base::time::Moment;

/// For how long a server that refused the user is left alone. Each attempt is noted there, and the refusal
/// is mended by hand.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// Pauses between attempts that nobody asked for. They double each time, and each is shortened by up to a
/// half at random, so that many clients do not all try at once.
#[derive(Debug)]
pub(crate) struct RetryBackoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl RetryBackoff {
    pub(crate) fn between(first: Duration, longest: Duration) -> RetryBackoff {
        RetryBackoff { first, longest, next: first }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(self.longest);
        pause
    }

    /// The next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Since when a server is left alone that refuses the user who listens. It is listened to again when a
/// connection was tried for a caller, or after [`REFUSED`]: while the callers' connections are healthy,
/// nothing tells that the refusal is mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    tried: u64,
    since: Moment,
}

impl Refusal {
    /// Both are read before the attempt that is refused. A caller whose attempt comes after the refusal may
    /// have found it mended, and its attempt must not be taken for an earlier one.
    pub(crate) fn before(tried: u64, now: Moment) -> Refusal {
        Refusal { tried, since: now }
    }

    /// Whether the server may be listened to again.
    pub(crate) fn is_over(self, tried: u64, now: Moment) -> bool {
        tried != self.tried || now.since(self.since) >= REFUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_double_up_to_their_bound() {
        let mut pauses = RetryBackoff::between(FIRST, LONGEST);
        for power in 0..12 {
            let longest = (FIRST * (1 << power)).min(LONGEST);
            let pause = pauses.next();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
        }
        pauses.reset();
        assert!(pauses.next() <= FIRST);
    }
}

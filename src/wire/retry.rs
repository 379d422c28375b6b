//! Pauses between attempts, and how long to leave a server alone that refuses the user.

use std::time::Duration;

use crate::base::time::Moment;

/// How long to leave a server alone after it refused the user. It logs each attempt, and people
/// have to mend the refusal.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// Pauses between attempts that no caller asked for. They double each time, and each is shortened
/// by up to half at random, so that many clients do not try at the same moment.
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
        // Doubled from the bound and not from the random pause, or a run of short ones would keep a
        // failing server under fire.
        self.next = (self.next * 2).min(self.longest);
        pause
    }

    /// The next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// The time during which a server is left alone that refused a subscription to the user. It ends
/// with the next connection attempt for a caller, or after [`REFUSED`]: while the callers'
/// connections are healthy, nothing else shows that the refusal is mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectRefusal {
    tried: u64,
    since: Moment,
}

impl ConnectRefusal {
    /// To be made before the attempt that may be refused, with the number of attempts for callers
    /// until then.
    pub(crate) fn before(tried: u64, now: Moment) -> ConnectRefusal {
        // Read after the refusal, `tried` could count an attempt of a caller that came later and
        // was successful. Then this server would be left alone for a minute although it is mended.
        ConnectRefusal { tried, since: now }
    }

    /// Whether to subscribe at the server again.
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

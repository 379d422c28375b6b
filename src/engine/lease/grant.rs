//! What Redis granted to an owner's value.

use std::time::Duration;

use crate::base::option::RequestOptions;
use crate::base::share::PermitNumbers;
use crate::base::time::{Clock, Moment, drift_allowance};

/// A thread waits for the server's clock to reach its token if no more than this many microseconds are
/// missing.
const MICROS_WORTH_WAITING: u64 = 4;
/// How many times it reads its own clock meanwhile, at most. That takes about as long as a request.
const LOOKS: u32 = 1_000;

/// What Redis granted to an owner's value.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The token that Redis minted with it.
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// When the request was sent by which it was granted, or a moment before the grant. `ttl` counts from it.
    pub(crate) sent: Moment,
    /// A time of the server in microseconds, and a moment at which it was surely reached. Tokens of holds
    /// that Redis does not see never run ahead of the server's clock (rule 19).
    pub(crate) server_time: (u64, Moment),
    /// The numbers of its permits.
    pub(crate) permits: PermitNumbers,
}

/// Until when a holder with these options may rely on a time to live that was requested at `sent`.
pub(crate) fn validity(sent: Moment, ttl: Duration, options: &RequestOptions) -> Moment {
    // Counted from before the sending: the server may have begun to count at any moment after that, and
    // can only end the lease later. The allowance covers a server's clock that runs faster than this one.
    // Another server, to which the lock comes by a fail-over or with its slot, ends the lease at the same
    // time of its own clock, which may be ahead (rule 54).
    sent.after(ttl).before(margin(ttl, options))
}

/// By how much the validity is less than the lease. A tail is not made shorter (rule 53).
pub(super) fn margin(ttl: Duration, options: &RequestOptions) -> Duration {
    drift_allowance(ttl) + options.clock_skew(ttl)
}

impl Grant {
    /// A grant for a test, of a lock of one owner.
    #[cfg(test)]
    pub(crate) fn test(ttl: Duration, sent: Moment) -> Grant {
        Grant { token: 1, ttl, sent, server_time: (1_000_000, sent), permits: None }
    }

    /// The token after `last`, if the server's clock has surely reached it.
    pub(super) fn token_after(&self, last: u64, now: Moment) -> Option<u64> {
        let next = last.checked_add(1)?;
        (next <= self.least_server_time(now)).then_some(next)
    }

    /// Waits until the server's clock has surely reached the token after `last`, if it is about to. A few
    /// microseconds are worth the wait, because a request takes many.
    pub(super) fn wait_for_token_after(&self, last: u64, clock: &dyn Clock) {
        // Bounded: in microseconds, and in readings of a clock that may stand still.
        for _ in 0..LOOKS {
            let missing =
                last.saturating_add(1).saturating_sub(self.least_server_time(clock.now()));
            if missing == 0 || missing > MICROS_WORTH_WAITING {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// The time in microseconds that the server's clock has surely reached by now (rule 10).
    fn least_server_time(&self, now: Moment) -> u64 {
        let (micros, at) = self.server_time;
        let passed = now.since(at);
        // Less than has passed here, for a server's clock that runs slower. A token ahead of that clock
        // could be minted again for another holder, after the counter is lost.
        let sure = u64::try_from((passed - passed / 100).as_micros()).unwrap_or(0);
        micros.saturating_add(sure)
    }
}

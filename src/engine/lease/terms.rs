//! What stays as it is for as long as a hold lasts.

use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::base::time::{Clock, Moment, drift_allowance};
use crate::base::token::FencingToken;
use crate::protocol::target::Target;

/// A lease is renewed after this share of its time to live…
pub(super) const RENEWALS_PER_LEASE: u32 = 3;
/// …rounded down to a tick of this share of that period.
const TICKS_PER_PERIOD: u32 = 16;

/// A thread waits for the server's clock to come up to its token if no more than so many microseconds
/// are missing…
const MICROS_WORTH_WAITING: u64 = 4;
/// …and looks at its own clock no more often than this, which takes about as long as a request.
const LOOKS: u32 = 1_000;

/// What an attempt was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// From when `ttl` counts.
    pub(crate) sent: Moment,
    /// The server's time in microseconds that was surely reached at a moment.
    pub(crate) server_time: (u64, Moment),
    /// When the last request without an answer is surely dead.
    pub(crate) settled: Moment,
}

/// What stays as it is for as long as a hold lasts.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerms {
    pub(crate) target: Arc<Target>,
    pub(super) clock: Arc<dyn Clock>,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: FencingToken,
    /// Whether the token is the one that Redis minted with the lease.
    minted: bool,
    /// The server's time in microseconds that was surely reached at a moment: tokens of holds that
    /// Redis does not hear of never run ahead of it (rule 19).
    server_time: (u64, Moment),
    pub(crate) options: LockOptions,
    /// How long it was granted for: a claim, until it is renewed.
    pub(super) whole: Duration,
    /// When `max_hold` ends it.
    pub(super) limit: Moment,
    /// A request for this attempt that brought no answer may still run until then.
    pub(crate) settled: Moment,
}

/// Until when a time to live may be relied on that was asked for at `sent`.
pub(crate) fn validity(sent: Moment, ttl: Duration) -> Moment {
    sent.after(ttl).before(drift_allowance(ttl))
}

impl LeaseTerms {
    pub(super) fn new(
        target: Arc<Target>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: LockOptions,
    ) -> LeaseTerms {
        let most = options.longest_hold();
        LeaseTerms {
            target,
            clock,
            owner: grant.owner,
            token: FencingToken::new(grant.token),
            minted: true,
            server_time: grant.server_time,
            options,
            // A claim is shorter than the lease, and the first renewal makes it whole (rule 9).
            whole: grant.ttl.min(options.lease.ttl()),
            limit: most.map_or(Moment::FAR, |span| grant.sent.after(span)),
            settled: grant.settled,
        }
    }

    /// Those of the next hold of the same lease, by a thread with these options; `None` where no token
    /// can be given to it.
    pub(super) fn successor(&self, options: &LockOptions, now: Moment) -> Option<LeaseTerms> {
        let token = FencingToken::new(self.next_token()?);
        let limit = options.longest_hold().map_or(Moment::FAR, |span| now.after(span));
        Some(LeaseTerms { token, minted: false, options: *options, limit, ..self.clone() })
    }

    /// The time to live that it was asked for with, and is renewed to.
    pub(crate) fn ttl(&self) -> Duration {
        self.options.lease.ttl()
    }

    /// When a lease that was last asked for at `sent` is to be renewed, after so many renewals.
    pub(super) fn renewal_after(&self, sent: Moment, ttl: Duration, renewals: u32) -> Moment {
        if !self.options.lease.is_renewed() || self.are_used_up(renewals) {
            return Moment::FAR;
        }
        let period = ttl / RENEWALS_PER_LEASE;
        sent.after(period).rounded_down(period / TICKS_PER_PERIOD)
    }

    /// Whether it would be renewed once more, did `max_renewals` allow that.
    pub(super) fn are_used_up(&self, renewals: u32) -> bool {
        let is_renewed = self.options.lease.is_renewed();
        is_renewed && self.options.max_renewals.is_some_and(|most| renewals >= most)
    }

    /// The token after this one, if the server's clock has surely come so far, or is about to: a
    /// microsecond is worth the wait, as a request takes many.
    fn next_token(&self) -> Option<u64> {
        let next = self.token.get().checked_add(1)?;
        // Bounded by looks too, for a clock that stands still.
        for _ in 0..LOOKS {
            let sure = self.least_server_time(self.clock.now());
            if next <= sure {
                return Some(next);
            }
            if next - sure > MICROS_WORTH_WAITING {
                return None;
            }
            std::hint::spin_loop();
        }
        None
    }

    /// What the server's clock surely shows by now, in microseconds (rule 10).
    fn least_server_time(&self, now: Moment) -> u64 {
        let (micros, at) = self.server_time;
        let passed = now.since(at);
        let sure = u64::try_from((passed - passed / 100).as_micros()).unwrap_or(0);
        micros.saturating_add(sure)
    }

    /// The last token used, where that is not the one that Redis minted.
    pub(crate) fn last_token(&self) -> Option<u64> {
        (!self.minted).then_some(self.token.get())
    }
}

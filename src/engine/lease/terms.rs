//! The part of a lease that does not change while a hold lasts.

use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::share::Slots;
use crate::base::sync::Arc;
use crate::base::time::{Clock, Moment, drift_allowance};
use crate::base::token::FencingToken;
use crate::protocol::target::Target;

/// A lease is renewed after its time to live divided by this.
pub(super) const RENEWALS_PER_LEASE: u32 = 3;
/// The due time is rounded down to a tick of that period divided by this.
const TICKS_PER_PERIOD: u32 = 16;

/// A thread waits for the server's clock to reach its token if no more than this many microseconds are
/// missing.
const MICROS_WORTH_WAITING: u64 = 4;
/// How many times it reads its own clock meanwhile, at most. That takes about as long as a request.
const LOOKS: u32 = 1_000;

/// What Redis granted to an attempt.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// The moment from which `ttl` counts.
    pub(crate) sent: Moment,
    /// A time of the server in microseconds, and a moment at which it was surely reached.
    pub(crate) server_time: (u64, Moment),
    /// The moment after which no unanswered request of the attempt can run any more.
    pub(crate) settled: Moment,
    pub(crate) slots: Slots,
}

/// The part of a lease that does not change while a hold lasts.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerms {
    pub(crate) target: Arc<Target>,
    pub(super) clock: Arc<dyn Clock>,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: FencingToken,
    /// Whether the token is the one that Redis minted with the lease.
    minted: bool,
    /// When the request was sent by which it was granted, or a moment before the grant.
    pub(crate) sent: Moment,
    /// A time of the server in microseconds, and a moment at which it was surely reached. Tokens of holds
    /// that Redis does not see never run ahead of the server's clock (rule 19).
    server_time: (u64, Moment),
    pub(crate) options: LockOptions,
    /// How long it was granted for: after a hand-over a claim, which is shorter than the lease until it
    /// is renewed.
    pub(super) whole: Duration,
    /// When `max_hold` ends the hold.
    pub(super) limit: Moment,
    /// The moment after which no unanswered request of the attempt can run any more.
    pub(crate) settled: Moment,
    /// The numbers of its permits.
    pub(crate) slots: Slots,
}

/// Until when a holder with these options may rely on a time to live that was requested at `sent`.
pub(crate) fn validity(sent: Moment, ttl: Duration, options: &LockOptions) -> Moment {
    // Counted from before the sending: the server may have begun to count at any moment after that, and
    // can only end the lease later. The allowance covers a server's clock that runs faster than this one.
    // Another server, to which the lock comes by a fail-over or with its slot, ends the lease at the same
    // time of its own clock, which may be ahead (rule 54).
    sent.after(ttl).before(drift_allowance(ttl) + options.clock_skew(ttl))
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
            sent: grant.sent,
            server_time: grant.server_time,
            options,
            // A claim is shorter than the lease, and the first renewal makes it whole (rule 9).
            whole: grant.ttl.min(options.lease.ttl()),
            // From before the sending as well: Redis may have had the lock for this holder since then.
            limit: most.map_or(Moment::FAR, |span| grant.sent.after(span)),
            settled: grant.settled,
            slots: grant.slots,
        }
    }

    /// The terms of a reader's hold of the same entry, by a thread with these options.
    pub(super) fn sibling(&self, options: &LockOptions, now: Moment) -> LeaseTerms {
        // With the same token: those of readers say nothing about each other (rule 32).
        let limit = options.longest_hold().map_or(Moment::FAR, |span| now.after(span));
        LeaseTerms { options: *options, limit, ..self.clone() }
    }

    /// The terms of the next hold of the same lease, by a thread with these options; `None` if there is
    /// no token for it.
    pub(super) fn successor(&self, options: &LockOptions, now: Moment) -> Option<LeaseTerms> {
        let token = FencingToken::new(self.next_token()?);
        // Counted for each hold (rule 17), so from its own start.
        let limit = options.longest_hold().map_or(Moment::FAR, |span| now.after(span));
        Some(LeaseTerms { token, minted: false, options: *options, limit, ..self.clone() })
    }

    /// The time to live for which it is requested and to which it is renewed.
    pub(crate) fn ttl(&self) -> Duration {
        self.options.lease.ttl()
    }

    /// When a lease that was last requested at `sent` is due for a renewal, after this many renewals.
    pub(super) fn renewal_after(&self, sent: Moment, ttl: Duration, renewals: u32) -> Moment {
        if !self.options.lease.is_renewed() || self.are_used_up(renewals) {
            return Moment::FAR;
        }
        let period = ttl / RENEWALS_PER_LEASE;
        // Rounded so that leases that were acquired about the same time are renewed in one pipeline;
        // down, so that the renewal never comes later than it should.
        sent.after(period).rounded_down(period / TICKS_PER_PERIOD)
    }

    /// Whether `max_renewals` allows no further renewal.
    pub(super) fn are_used_up(&self, renewals: u32) -> bool {
        let is_renewed = self.options.lease.is_renewed();
        is_renewed && self.options.max_renewals.is_some_and(|most| renewals >= most)
    }

    /// The token after this one, if the server's clock has surely reached it, or is about to. A few
    /// microseconds are worth the wait, because a request takes many.
    fn next_token(&self) -> Option<u64> {
        let next = self.token.get().checked_add(1)?;
        // This spins while the slot is locked, so it is bounded: in microseconds, and in readings of a
        // clock that may stand still.
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

    /// The time in microseconds that the server's clock has surely reached by now (rule 10).
    fn least_server_time(&self, now: Moment) -> u64 {
        let (micros, at) = self.server_time;
        let passed = now.since(at);
        // Less than has passed here, for a server's clock that runs slower. A token ahead of that clock
        // could be minted again for another holder, after the counter is lost.
        let sure = u64::try_from((passed - passed / 100).as_micros()).unwrap_or(0);
        micros.saturating_add(sure)
    }

    /// The last token used, if that is not the one that Redis minted.
    pub(crate) fn last_token(&self) -> Option<u64> {
        // Redis has stored what it minted. Sent along, it would cost every release the longer way of the
        // script.
        (!self.minted).then_some(self.token.get())
    }
}

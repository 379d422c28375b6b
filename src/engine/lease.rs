//! The lease of one hold.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | granted; valid until a moment, which renewals move | releasing, lost |
//! | releasing | being given back; no longer valid, no longer renewed | ended, lost |
//! | lost | ended before it was given back, for a cause | |
//! | ended | given back, or left to the worker to give back | |

use std::time::Duration;

use crate::base::loss::{Loss, LossCause};
use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::time::{Moment, drift_allowance};
use crate::base::token::FencingToken;
use crate::engine::slot::Slot;

#[derive(Debug)]
enum Phase {
    Live,
    Releasing,
    Lost(Loss),
    Ended,
}

/// What Redis granted to one attempt of this process, held by one thread.
#[derive(Debug)]
pub(crate) struct LiveLease {
    slot: Arc<Slot>,
    owner: Vec<u8>,
    token: FencingToken,
    options: LockOptions,
    /// When `max_hold` ends it.
    limit: Moment,
    /// A request for this attempt that brought no answer may still run until then.
    settled: Moment,
    phase: Mutex<Phase>,
    /// In nanoseconds; changed only under `phase`, and the past unless live.
    valid_until: AtomicU64,
    /// When it is to be renewed next, in nanoseconds.
    renew_at: AtomicU64,
    renewals: AtomicU32,
    /// Whether the last renewal failed, so that running out means that Redis was unreachable.
    failing: AtomicBool,
    count: AtomicU32,
}

/// What an attempt was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Vec<u8>,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// When the request that was granted was sent.
    pub(crate) sent: Moment,
    /// When the last request without an answer is surely dead.
    pub(crate) settled: Moment,
}

/// Until when a time to live may be relied on that was asked for at `sent`.
pub(crate) fn validity(sent: Moment, ttl: Duration) -> Moment {
    sent.after(ttl).before(drift_allowance(ttl))
}

/// A lease is renewed after this share of its time to live…
const RENEWALS_PER_LEASE: u32 = 3;
/// …rounded down to a tick of this share of that period.
const TICKS_PER_PERIOD: u32 = 16;

/// When a lease that was last asked for at `sent` is to be renewed.
fn renewal_after(sent: Moment, options: &LockOptions, renewals: u32) -> Moment {
    let lease = options.lease_option();
    if !lease.is_renewed() || options.max_renewals_option().is_some_and(|most| renewals >= most) {
        return Moment::FAR;
    }
    let period = lease.ttl() / RENEWALS_PER_LEASE;
    sent.after(period).rounded_down(period / TICKS_PER_PERIOD)
}

impl LiveLease {
    pub(crate) fn new(slot: Arc<Slot>, grant: Grant, options: LockOptions) -> Arc<LiveLease> {
        let limit = options.max_hold_option().map_or(Moment::FAR, |span| grant.sent.after(span));
        let valid_until = validity(grant.sent, grant.ttl).min(limit);
        Arc::new(LiveLease {
            slot,
            owner: grant.owner,
            token: FencingToken::new(grant.token),
            options,
            limit,
            settled: grant.settled,
            phase: Mutex::new(Phase::Live),
            valid_until: AtomicU64::new(valid_until.as_nanos()),
            renew_at: AtomicU64::new(renewal_after(grant.sent, &options, 0).as_nanos()),
            renewals: AtomicU32::new(0),
            failing: AtomicBool::new(false),
            count: AtomicU32::new(1),
        })
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub(crate) fn owner(&self) -> &[u8] {
        &self.owner
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// The time to live that it was asked for with, and is renewed to.
    pub(crate) fn ttl(&self) -> Duration {
        self.options.lease_option().ttl()
    }

    /// When it is to be renewed; [`Moment::FAR`] if never again.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment::from_nanos(self.renew_at.load(Ordering::Relaxed))
    }

    /// When the worker should look at it again.
    pub(crate) fn next_look(&self) -> Moment {
        self.renew_at().min(self.valid_until())
    }

    pub(crate) fn settled(&self) -> Moment {
        self.settled
    }

    /// The end of validity; the past once it is not live.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn is_valid_at(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Live)
    }

    pub(crate) fn hold_count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes how many times its thread holds it.
    pub(crate) fn set_hold_count(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// Notes that Redis lets it live for `ttl` from `sent` on. Never shortens it (rule 14).
    pub(crate) fn lengthen(&self, sent: Moment, ttl: Duration) {
        let phase = self.phase.lock();
        if matches!(*phase, Phase::Live) {
            let until = validity(sent, ttl).min(self.limit).max(self.valid_until());
            self.valid_until.store(until.as_nanos(), Ordering::Release);
            self.failing.store(false, Ordering::Relaxed);
        }
    }

    /// Notes a renewal that was sent then and confirmed.
    pub(crate) fn renewed(&self, sent: Moment) {
        let renewals = self.renewals.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let next = renewal_after(sent, &self.options, renewals);
        self.renew_at.store(next.as_nanos(), Ordering::Relaxed);
        self.lengthen(sent, self.ttl());
    }

    /// Notes that a renewal failed.
    pub(crate) fn renewal_failed(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Ends it as lost if it is live and its validity is over. Answers the loss if this call
    /// found it; then [`lost`](crate::engine::release::lost) is owed.
    pub(crate) fn expire(&self, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) || self.is_valid_at(now) {
            return None;
        }
        Some(self.lose_inner(&mut phase, self.natural_cause(now)))
    }

    /// Ends it as lost if it is live. Answers the loss if this call found it; then
    /// [`lost`](crate::engine::release::lost) is owed.
    pub(crate) fn lose(&self, cause: LossCause, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) {
            return None;
        }
        // What Redis says about a lease that ran out is only the consequence.
        let cause = if self.is_valid_at(now) { cause } else { self.natural_cause(now) };
        Some(self.lose_inner(&mut phase, cause))
    }

    /// Ends its release as lost: Redis says that it was no longer its owner's.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Loss {
        self.lose_inner(&mut self.phase.lock(), cause)
    }

    fn natural_cause(&self, now: Moment) -> LossCause {
        if now >= self.limit {
            LossCause::MaxHold
        } else if self.failing.load(Ordering::Relaxed) {
            LossCause::Unreachable
        } else {
            LossCause::Expired
        }
    }

    fn lose_inner(&self, phase: &mut Phase, cause: LossCause) -> Loss {
        let loss = Loss::new(self.slot.target().name(), self.token, cause);
        self.valid_until.store(Moment::PAST.as_nanos(), Ordering::Release);
        *phase = Phase::Lost(loss.clone());
        loss
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match &*self.phase.lock() {
            Phase::Lost(loss) => Some(loss.clone()),
            _ => None,
        }
    }

    /// Begins its release: from now on it is not valid (rule 15). Answers until when it would have
    /// been, or nothing if it is not live.
    pub(crate) fn begin_release(&self) -> Option<Moment> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) {
            return None;
        }
        *phase = Phase::Releasing;
        Some(Moment::from_nanos(self.valid_until.swap(Moment::PAST.as_nanos(), Ordering::AcqRel)))
    }

    /// Ends its release.
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Releasing) {
            *phase = Phase::Ended;
        }
    }
}

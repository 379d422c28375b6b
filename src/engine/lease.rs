//! The lease of one hold.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | granted; valid until a moment, which renewals move | releasing, lost |
//! | releasing | being given back; no longer valid, no longer renewed | ended, lost |
//! | lost | ended before it was given back, for a cause | |
//! | ended | given back, or left to the worker to give back | |

mod hold_count;
mod terms;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::loss::{Loss, LossCause};
use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{LossHook, LossHooks};
use crate::protocol::target::Target;

use hold_count::HoldCount;
pub(crate) use terms::{Grant, validity};
use terms::{LeaseTerms, RENEWALS_PER_LEASE};

#[derive(Debug)]
enum Phase {
    Live,
    Releasing,
    Lost(Loss),
    Ended,
}

/// What Redis granted to one attempt of this process, held by one thread.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) terms: LeaseTerms,
    phase: Mutex<Phase>,
    /// In nanoseconds; changed only under `phase`, and the past unless live.
    valid_until: AtomicU64,
    /// The same without `max_hold`, and also when it is not live any longer.
    leased_until: AtomicU64,
    /// The latest end that Redis may have for it and that its holder must not rely on: a renewal or an
    /// extension was never answered, or was confirmed too late. The past if there is none.
    perhaps_until: AtomicU64,
    /// When it is to be renewed next, in nanoseconds.
    renew_at: AtomicU64,
    renewals: AtomicU32,
    /// Whether the last renewal failed, so that running out means that Redis was unreachable.
    failing: AtomicBool,
    /// When it was last said to be another's, in nanoseconds; 0 if never, or if Redis has denied it since.
    doubted_at: AtomicU64,
    /// Commands under way or never answered: with any, it must not become another thread's
    /// (rule 17).
    under_way: AtomicU32,
    pub(crate) hold_count: HoldCount,
    /// What is called when it is lost; grows only under `phase`.
    hooks: LossHooks,
}

impl HeldLease {
    pub(crate) fn new(
        target: Arc<Target>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: LockOptions,
    ) -> Arc<HeldLease> {
        let (sent, leased_until) = (grant.sent, validity(grant.sent, grant.ttl));
        let terms = LeaseTerms::new(target, clock, grant, options);
        let renew_at = terms.renewal_after(sent, terms.whole, 0);
        HeldLease::begin(terms, leased_until, renew_at, 1)
    }

    /// The next hold of the same lease, by a thread with these options; `None` if it cannot be
    /// passed on.
    pub(crate) fn successor(&self, options: &LockOptions, now: Moment) -> Option<Arc<HeldLease>> {
        // What is left would be all that a hold without renewals ever has (rule 9).
        if !self.terms.options.requests_same_as(options)
            || !options.is_renewed()
            || !self.may_last(now)
        {
            return None;
        }
        let terms = self.terms.successor(options, now)?;
        let leased_until = self.leased_until();
        let renew_at = match self.renew_at() {
            // The renewals of the hold before were used up, and this one has its own.
            Moment::FAR => now.after(leased_until.since(now) / RENEWALS_PER_LEASE),
            renew_at => renew_at,
        };
        // The count of the hold before, which nobody shows any more.
        let next = HeldLease::begin(terms, leased_until, renew_at, self.hold_count.shown());
        next.may_last_until(self.perhaps_until());
        Some(next)
    }

    /// A hold that begins now, while this count is shown.
    fn begin(
        terms: LeaseTerms,
        leased_until: Moment,
        renew_at: Moment,
        shown: u32,
    ) -> Arc<HeldLease> {
        Arc::new(HeldLease {
            phase: Mutex::new(Phase::Live),
            valid_until: AtomicU64::new(leased_until.min(terms.limit).as_nanos()),
            leased_until: AtomicU64::new(leased_until.as_nanos()),
            perhaps_until: AtomicU64::new(Moment::PAST.as_nanos()),
            renew_at: AtomicU64::new(renew_at.as_nanos()),
            renewals: AtomicU32::new(0),
            failing: AtomicBool::new(false),
            doubted_at: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            hold_count: HoldCount::new(shown),
            hooks: LossHooks::default(),
            terms,
        })
    }

    /// Whether it is good enough for another hold: renewed, nothing under way or unsettled
    /// (rule 17), not said to be another's, and not near its end.
    pub(crate) fn may_last(&self, now: Moment) -> bool {
        self.terms.options.lease.is_renewed()
            && !self.is_under_way()
            && !self.failing.load(Ordering::Relaxed)
            && !self.is_doubted()
            && self.terms.settled <= now
            && self.leased_until().since(now) > self.terms.whole / (RENEWALS_PER_LEASE + 1)
    }

    /// The end of what Redis granted, whatever became of the hold.
    pub(crate) fn leased_until(&self) -> Moment {
        Moment::from_nanos(self.leased_until.load(Ordering::Acquire))
    }

    /// The end that Redis may have for it and that its holder must not rely on; the past if there is none.
    pub(crate) fn perhaps_until(&self) -> Moment {
        Moment::from_nanos(self.perhaps_until.load(Ordering::Acquire))
    }

    /// Notes that Redis may keep it until then, and that its holder must not rely on that.
    pub(crate) fn may_last_until(&self, moment: Moment) {
        self.perhaps_until.fetch_max(moment.as_nanos(), Ordering::AcqRel);
    }

    /// Counts a command about it that is under way, until the answer is dropped.
    pub(crate) fn command(self: &Arc<HeldLease>) -> CommandGuard {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        CommandGuard(Arc::clone(self))
    }

    /// Whether a command about it is under way, or was never answered.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    /// When it is to be renewed; [`Moment::FAR`] if never again.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment::from_nanos(self.renew_at.load(Ordering::Relaxed))
    }

    /// When the worker should look at it again.
    pub(crate) fn next_check(&self) -> Moment {
        self.renew_at().min(self.valid_until())
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

    /// Notes that Redis lets it live for `ttl` from `sent` on. Never shortens it (rule 14), and changes
    /// nothing where the hold is over (rule 30).
    pub(crate) fn lengthen(&self, sent: Moment, ttl: Duration) {
        self.lengthen_inner(&self.phase.lock(), sent, ttl);
    }

    /// Notes a renewal that was sent then and confirmed. It changes all of a lease or nothing: the next
    /// hold of the same lease takes over when it ends and when it is renewed, and the two must agree.
    pub(crate) fn renewed(&self, sent: Moment) {
        let phase = self.phase.lock();
        if self.lengthen_inner(&phase, sent, self.terms.ttl()) {
            let renewals = self.renewals.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            let next = self.terms.renewal_after(sent, self.terms.ttl(), renewals);
            self.renew_at.store(next.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Lengthens it if the hold is not over. Returns whether it did.
    ///
    /// A hold whose validity is over is lost, also where nobody has noticed yet: another may have had the
    /// lock since, and a late request of this attempt may have got it back (rule 30).
    fn lengthen_inner(&self, phase: &Phase, sent: Moment, ttl: Duration) -> bool {
        let now = self.terms.clock.now();
        if !matches!(phase, Phase::Live) || !self.is_valid_at(now) {
            // Redis keeps it for so long all the same.
            self.may_last_until(now.after(ttl));
            return false;
        }
        let leased = validity(sent, ttl).max(self.leased_until());
        self.leased_until.store(leased.as_nanos(), Ordering::Release);
        self.valid_until.store(leased.min(self.terms.limit).as_nanos(), Ordering::Release);
        self.failing.store(false, Ordering::Relaxed);
        true
    }

    /// Notes that it is said to be another's. Redis is to be asked.
    pub(crate) fn doubt(&self, now: Moment) {
        self.doubted_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Whether Redis is to be asked whose it is.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_at.load(Ordering::SeqCst) != 0
    }

    /// Notes that Redis was asked then, and says that it is its owner's.
    pub(crate) fn confirmed(&self, sent: Moment) {
        let doubted_at = self.doubted_at.load(Ordering::SeqCst);
        if doubted_at != 0 && doubted_at <= sent.as_nanos() {
            // What is said meanwhile is to be asked about anew.
            let _ =
                self.doubted_at.compare_exchange(doubted_at, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that a renewal failed.
    pub(crate) fn renewal_failed(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Ends it as lost if it is live and its validity is over. Returns the loss if this call found it; then
    /// the slot and the user are yet to be told.
    pub(crate) fn expire(&self, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) || self.is_valid_at(now) {
            return None;
        }
        Some(self.lose_inner(&mut phase, self.natural_cause(now)))
    }

    /// Ends it as lost if it is live. Returns the loss if this call found it; then the slot and the user are
    /// yet to be told.
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
        if now >= self.terms.limit {
            LossCause::MaxHold
        } else if self.failing.load(Ordering::Relaxed) {
            LossCause::Unreachable
        } else if self.terms.are_used_up(self.renewals.load(Ordering::Relaxed)) {
            LossCause::RenewalsUsedUp
        } else {
            LossCause::Expired
        }
    }

    fn lose_inner(&self, phase: &mut Phase, cause: LossCause) -> Loss {
        let is_renewed = self.terms.options.lease.is_renewed();
        let name = self.terms.target.name();
        let loss = Loss::new(name.clone(), self.terms.token, cause, is_renewed);
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

    /// Ends its release. [`forget_hooks`](Self::forget_hooks) is owed.
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Releasing) {
            *phase = Phase::Ended;
        }
    }

    /// Drops what would have been called at a loss, once it is given back. What the user moved into it
    /// may panic when it is dropped, or want the lock.
    pub(crate) fn forget_hooks(&self) {
        if matches!(*self.phase.lock(), Phase::Ended) {
            drop(self.hooks.take());
        }
    }

    /// Keeps what is to be called when it is lost; that ends with the hold. Gives it back, with
    /// the loss, if it is lost already.
    pub(crate) fn on_loss(&self, hook: LossHook) -> Option<(Loss, LossHook)> {
        let phase = self.phase.lock();
        let loss = match &*phase {
            Phase::Live | Phase::Releasing => {
                self.hooks.add(hook);
                return None;
            }
            Phase::Lost(loss) => Some(loss.clone()),
            Phase::Ended => None,
        };
        drop(phase);
        loss.map(|loss| (loss, hook))
    }

    /// Takes out what is to be called now that it is lost.
    pub(crate) fn take_hooks(&self) -> LossHooks {
        self.hooks.take()
    }
}

/// A command about a lease that is under way.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<HeldLease>);

impl CommandGuard {
    /// Notes that it was never answered, and may be carried out at any time.
    pub(crate) fn keep_pending(self) {
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
    }
}

impl std::ops::Deref for CommandGuard {
    type Target = Arc<HeldLease>;

    fn deref(&self) -> &Arc<HeldLease> {
        &self.0
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

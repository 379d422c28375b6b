//! The lease of one hold: its validity, its renewals, its loss.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | granted; valid until a moment, which renewals move | releasing, lost |
//! | releasing | being released; no longer valid, no longer renewed | ended, lost |
//! | lost | ended before its release, for a cause | |
//! | ended | released, passed on, or left to the worker to release | |
//!
//! The ends of the validity and of the lease are atomics, so that `is_valid` of a guard takes no lock.
//! They are written under the lock of the phase. A reader decides by one of them alone, so no order
//! between the two matters.

mod change;
mod hold_count;
mod terms;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::loss::{Loss, LossCause};
use crate::base::option::LockOptions;
use crate::base::share::Access;
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::time::{Clock, Moment};
use crate::base::token::FencingToken;
use crate::engine::callback::{LossHook, LossHooks};
use crate::protocol::target::Target;

pub(crate) use change::Change;
use change::Changes;
use hold_count::HoldCount;
pub(crate) use terms::{Grant, validity};
use terms::{LeaseTerms, RENEWALS_PER_LEASE};

#[derive(Debug)]
enum LeasePhase {
    Live,
    Releasing,
    Lost(Loss),
    Ended,
}

/// What Redis granted to one attempt of this process, as one thread holds it.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) terms: LeaseTerms,
    phase: Mutex<LeasePhase>,
    /// In nanoseconds. Changed only under `phase`; the past unless the phase is live.
    valid_until: AtomicU64,
    /// The same without `max_hold`. It is kept when the lease is no longer live.
    leased_until: AtomicU64,
    /// The latest end that Redis may have for it, after a renewal or an extension that had no reply or a
    /// late one. Its holder must not rely on it. The past if there is none.
    perhaps_until: AtomicU64,
    /// Redis keeps the lock until then, even if the hold ends earlier. The past unless the user asked for it.
    kept_until: AtomicU64,
    /// When the hold began: no earlier than Redis granted it.
    began: Moment,
    /// Whether the first renewal is yet to make it a whole lease (rule 9).
    is_claim: AtomicBool,
    /// When the next renewal is due, in nanoseconds.
    renew_at: AtomicU64,
    renewals: AtomicU32,
    /// Whether the last renewal failed. A lease that runs out then is lost because Redis was unreachable.
    failing: AtomicBool,
    /// When a message last reported its eviction, in nanoseconds; 0 if none did, or if Redis has denied
    /// it since.
    doubted_at: AtomicU64,
    /// How many commands are under way or had no reply. With any, the lease must not go to another thread
    /// (rule 17).
    under_way: AtomicU32,
    pub(crate) hold_count: HoldCount,
    /// How a read-write lock is held.
    changes: Changes,
    /// The token of an upgrade; 0 if there was none.
    upgraded: AtomicU64,
    /// The callbacks of this hold. Added to only under `phase`.
    hooks: LossHooks,
    /// The number that observers know the hold by; 0 if they know of none, or of its end too.
    number: AtomicU64,
}

impl HeldLease {
    pub(crate) fn new(
        target: Arc<Target>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: LockOptions,
    ) -> Arc<HeldLease> {
        let (sent, leased_until) = (grant.sent, validity(grant.sent, grant.ttl, &options));
        let is_claim = grant.ttl < options.lease.ttl();
        let terms = LeaseTerms::new(target, clock, grant, options);
        let renew_at = terms.renewal_after(sent, terms.whole, 0);
        HeldLease::begin(terms, leased_until, renew_at, is_claim, 1)
    }

    /// The next hold of the same lease, by a thread with these options; `None` if it cannot be passed on.
    pub(crate) fn successor(&self, options: &LockOptions, now: Moment) -> Option<Arc<HeldLease>> {
        // Without renewals the next hold would only have what is left of the lease (rule 9).
        if !self.terms.options.requests_same_as(options)
            || !options.is_renewed()
            || !self.may_last(now)
        {
            return None;
        }

        let terms = self.terms.successor(options, now)?;
        // This hold is over: its phase is no longer live, so no reply moves the end or the next renewal
        // between these two reads. The next hold must get both from the same renewal, or it might end
        // before it is renewed.
        let leased_until = self.leased_until();
        let renew_at = match self.renew_at() {
            // The previous hold had used up its renewals. This one has its own, the first of them after a
            // third of what is left.
            Moment::FAR => now.after(leased_until.since(now) / RENEWALS_PER_LEASE),
            renew_at => renew_at,
        };
        // Redis shows the count of the previous hold until the worker shows the new one.
        let shown = self.hold_count.shown();
        let next = HeldLease::begin(terms, leased_until, renew_at, self.is_claim(), shown);
        // An unanswered renewal of the previous hold is about the same key: if the next hold is lost, its
        // release must reach as far.
        next.may_last_until(self.perhaps_until());
        Some(next)
    }

    /// One more hold of the entry of a reader, by a thread with these options, beside this one; `None` if it cannot be
    /// shared. Another one is renewed for it.
    pub(crate) fn sibling(&self, options: &LockOptions, now: Moment) -> Option<Arc<HeldLease>> {
        // Each hold would count its renewals for itself, and there is one renewal for all.
        let counts = options.max_renewals.or(self.terms.options.max_renewals).is_some();
        if counts || !self.terms.options.requests_same_as(options) || !self.may_be_shared(now) {
            return None;
        }
        let terms = self.terms.sibling(options, now);
        let shown = self.hold_count.shown();
        let leased_until = self.leased_until();
        Some(HeldLease::begin(terms, leased_until, Moment::FAR, self.is_claim(), shown))
    }

    /// Another hold of the same entry ends: what is to be done for the entry is this one's from now on.
    pub(crate) fn take_over(&self, other: &HeldLease) {
        self.renew_by(other.renew_at());
        self.may_last_until(other.perhaps_until());
        // Whatever the phase: a release that has begun looks at it when it is the last.
        self.kept_until.fetch_max(other.kept_until.load(Ordering::SeqCst), Ordering::SeqCst);
        self.doubted_at.fetch_max(other.doubted_at.load(Ordering::SeqCst), Ordering::SeqCst);
        if other.failing.load(Ordering::Relaxed) {
            self.renewal_failed();
        }
        if other.is_under_way() {
            // It may be carried out for as long as the entry is there, so none may follow on this one (rule 17).
            self.under_way.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Makes it the one of its entry that is renewed, at this moment or earlier.
    pub(crate) fn renew_by(&self, moment: Moment) {
        self.renew_at.fetch_min(moment.as_nanos(), Ordering::Relaxed);
    }

    /// A hold that begins now, while Redis shows this count.
    fn begin(
        terms: LeaseTerms,
        leased_until: Moment,
        renew_at: Moment,
        is_claim: bool,
        shown: u32,
    ) -> Arc<HeldLease> {
        Arc::new(HeldLease {
            phase: Mutex::new(LeasePhase::Live),
            valid_until: AtomicU64::new(leased_until.min(terms.limit).as_nanos()),
            leased_until: AtomicU64::new(leased_until.as_nanos()),
            perhaps_until: AtomicU64::new(Moment::PAST.as_nanos()),
            kept_until: AtomicU64::new(Moment::PAST.as_nanos()),
            began: terms.clock.now(),
            is_claim: AtomicBool::new(is_claim),
            renew_at: AtomicU64::new(renew_at.as_nanos()),
            renewals: AtomicU32::new(0),
            failing: AtomicBool::new(false),
            doubted_at: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            hold_count: HoldCount::new(shown),
            changes: Changes::new(terms.options.share.access()),
            upgraded: AtomicU64::new(0),
            hooks: LossHooks::default(),
            number: AtomicU64::new(0),
            terms,
        })
    }

    /// Whether another hold may follow: the lease is renewed, its weight was not changed, nothing is under way or unsettled (rule
    /// 17), no eviction was reported, Redis is not to keep the lock from everybody, and the end is not near.
    pub(crate) fn may_last(&self, now: Moment) -> bool {
        // A command of this hold that runs later would run for the next holder: its transaction would
        // apply, with another thread's lease to guard it.
        !self.is_under_way() && self.may_be_shared(now)
    }

    /// The same for a hold beside this one. What is under way for one reader may run beside another.
    fn may_be_shared(&self, now: Moment) -> bool {
        self.terms.options.lease.is_renewed()
            // The next hold would take itself for what this one began as.
            && self.changes.last().number == 0
            && !self.failing.load(Ordering::Relaxed)
            && !self.is_doubted()
            && !self.is_kept(now)
            // Until then a request of this attempt may run, and acquire the lock again after a loss. The
            // next hold has the same owner's value, and would take that key for its own.
            && self.terms.settled <= now
            // A renewal is due when two thirds are left. With less than a quarter left the renewals do
            // not get through, and the next hold would begin just before its loss.
            && self.leased_until().since(now) > self.terms.whole / (RENEWALS_PER_LEASE + 1)
    }

    /// As what its holder has a read-write lock.
    pub(crate) fn access(&self) -> Option<Access> {
        self.terms.options.share.access()?;
        Some(self.changes.last().access)
    }

    /// Begins a change by which it is held with this access, from now on. Returns its number (rules 35, 36).
    pub(crate) fn begin_change(&self, access: Access) -> u64 {
        self.changes.begin(access)
    }

    /// The change of this number had no reply: the worker sends it until it has one.
    pub(crate) fn leave_change(&self, number: u64) {
        self.changes.update(number, self.changes.last().access, true);
    }

    /// The change that the worker is to send, if there is one.
    pub(crate) fn open_change(&self) -> Option<Change> {
        Some(self.changes.last()).filter(|change| change.is_open)
    }

    /// Redis has replied to a change.
    pub(crate) fn change_settled(&self, change: Change) {
        self.changes.update(change.number, change.access, false);
    }

    /// The change of this number has made it the writer, with this token.
    pub(crate) fn upgraded(&self, number: u64, token: u64) {
        // The token first: whoever finds the writer finds its token too.
        self.upgraded.store(token, Ordering::SeqCst);
        self.changes.update(number, Access::Write, false);
    }

    /// Its token, which an upgrade replaces by a greater one (rule 32).
    pub(crate) fn token(&self) -> FencingToken {
        match self.upgraded.load(Ordering::SeqCst) {
            0 => self.terms.token,
            token => FencingToken::new(token),
        }
    }

    /// The end of what Redis granted, whatever happened to the hold.
    pub(crate) fn leased_until(&self) -> Moment {
        Moment::from_nanos(self.leased_until.load(Ordering::Acquire))
    }

    /// The latest end that Redis may have for it, on which its holder must not rely; the past if there is
    /// none.
    pub(crate) fn perhaps_until(&self) -> Moment {
        Moment::from_nanos(self.perhaps_until.load(Ordering::Acquire))
    }

    /// Notes that Redis may keep it until that moment, on which its holder must not rely.
    pub(crate) fn may_last_until(&self, moment: Moment) {
        self.perhaps_until.fetch_max(moment.as_nanos(), Ordering::AcqRel);
    }

    /// Notes that Redis is to keep the lock until then, if the hold is not over. Returns whether it did.
    pub(crate) fn keep_until(&self, moment: Moment) -> bool {
        // Under the phase: whoever ends the hold then releases it with this moment, or ended it before. A lock
        // of which the caller learns that it is lost must not be kept from others.
        let phase = self.phase.lock();
        let may_be_kept =
            matches!(*phase, LeasePhase::Live) && self.is_valid_at(self.terms.clock.now());
        if may_be_kept {
            self.kept_until.fetch_max(moment.as_nanos(), Ordering::AcqRel);
        }
        may_be_kept
    }

    /// Until when Redis keeps the lock even if the hold ends earlier; the past if the user did not ask for it.
    pub(crate) fn kept_until(&self) -> Moment {
        Moment::from_nanos(self.kept_until.load(Ordering::Acquire))
    }

    /// Whether the lock must not be released yet.
    pub(crate) fn is_kept(&self, now: Moment) -> bool {
        now < self.kept_until()
    }

    /// When the hold began.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// Whether the first renewal is yet to make it a whole lease.
    pub(crate) fn is_claim(&self) -> bool {
        self.is_claim.load(Ordering::Relaxed)
    }

    /// Counts a command about it that is under way, until the returned guard is dropped.
    pub(crate) fn command(self: &Arc<HeldLease>) -> CommandGuard {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        CommandGuard(Arc::clone(self))
    }

    /// Whether a command about it is under way, or had no reply.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    /// When the next renewal is due; [`Moment::FAR`] if there is none.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment::from_nanos(self.renew_at.load(Ordering::Relaxed))
    }

    /// When the worker should check it again.
    pub(crate) fn next_check(&self) -> Moment {
        if self.open_change().is_some() || self.is_doubted() {
            return Moment::PAST;
        }
        self.renew_at().min(self.valid_until())
    }

    /// The end of validity; the past once it is not live any more.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn is_valid_at(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(*self.phase.lock(), LeasePhase::Live)
    }

    /// Notes that it lasts in Redis for `ttl` from `sent` on. Never shortens it (rule 14), and changes
    /// nothing if the hold is over (rule 30).
    pub(crate) fn lengthen(&self, sent: Moment, ttl: Duration) {
        self.lengthen_inner(&self.phase.lock(), sent, ttl);
    }

    /// Notes a renewal that was sent at `sent` and confirmed. It changes the end and the next renewal of
    /// the lease, or neither: the next hold of the same lease takes over both, and they must agree.
    pub(crate) fn renewed(&self, sent: Moment) {
        // Held over both writes: a release that begins in between would pass on a lease whose end was
        // moved and whose renewal was not.
        let phase = self.phase.lock();
        if self.lengthen_inner(&phase, sent, self.terms.ttl()) {
            let renewals = self.renewals.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            let next = self.terms.renewal_after(sent, self.terms.ttl(), renewals);
            self.renew_at.store(next.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Lengthens it if the hold is not over. Returns whether it did.
    fn lengthen_inner(&self, phase: &LeasePhase, sent: Moment, ttl: Duration) -> bool {
        let now = self.terms.clock.now();
        if !matches!(phase, LeasePhase::Live) || !self.is_valid_at(now) {
            // The reply is right, and comes too late. Between the end of the validity and now another may
            // have had the lock, and a late request of this attempt may have acquired it again: to go on
            // would be to hold it twice (rule 30). Redis counts from a moment before now, so it keeps the
            // lease until then at most.
            self.may_last_until(now.after(ttl));
            return false;
        }
        // Replies may be noted out of order, and an extension may be longer than a renewal that is sent
        // after it.
        let leased = validity(sent, ttl, &self.terms.options).max(self.leased_until());
        self.leased_until.store(leased.as_nanos(), Ordering::Release);
        self.valid_until.store(leased.min(self.terms.limit).as_nanos(), Ordering::Release);
        self.failing.store(false, Ordering::Relaxed);
        if ttl >= self.terms.ttl() {
            self.is_claim.store(false, Ordering::Relaxed);
        }
        true
    }

    /// Notes that a message reported its eviction. Redis must be asked.
    pub(crate) fn doubt(&self, now: Moment) {
        // At least 1, because 0 means that there is no doubt.
        self.doubted_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Whether Redis must be asked who has the lock.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_at.load(Ordering::SeqCst) != 0
    }

    /// Notes that Redis confirmed the owner in reply to a request that was sent at `sent`.
    pub(crate) fn confirmed(&self, sent: Moment) {
        // A reply to a request that was sent before the message came says nothing about what the message
        // reports.
        let doubted_at = self.doubted_at.load(Ordering::SeqCst);
        if doubted_at != 0 && doubted_at <= sent.as_nanos() {
            // Exchanged and not stored: a message that comes between the two lines is a new doubt, and
            // stays.
            let _ =
                self.doubted_at.compare_exchange(doubted_at, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that a renewal failed.
    pub(crate) fn renewal_failed(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Ends it as lost if it is live and its validity is over. Returns the loss to the one caller that
    /// found it, who must free the slot and notify the user.
    pub(crate) fn expire(&self, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, LeasePhase::Live) || self.is_valid_at(now) {
            return None;
        }
        Some(self.lose_inner(&mut phase, self.natural_cause()))
    }

    /// Ends it as lost if it is live. Returns the loss to the one caller that found it, who must free the
    /// slot and notify the user.
    pub(crate) fn lose(&self, cause: LossCause, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, LeasePhase::Live) {
            return None;
        }
        // A lease that ran out is gone or taken in Redis too, as a consequence. The user needs the cause.
        let cause = if self.is_valid_at(now) { cause } else { self.natural_cause() };
        Some(self.lose_inner(&mut phase, cause))
    }

    /// Ends its release as lost, because Redis replied that the owner did not have the lock any more.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Loss {
        self.lose_inner(&mut self.phase.lock(), cause)
    }

    /// Why a lease ran out by itself.
    fn natural_cause(&self) -> LossCause {
        // By the order of the two ends, and not by the present: after a suspend both may have passed.
        if self.terms.limit <= self.leased_until() {
            LossCause::MaxHold
        } else if self.failing.load(Ordering::Relaxed) {
            LossCause::Unreachable
        } else if self.terms.are_used_up(self.renewals.load(Ordering::Relaxed)) {
            LossCause::RenewalsUsedUp
        } else {
            LossCause::Expired
        }
    }

    fn lose_inner(&self, phase: &mut LeasePhase, cause: LossCause) -> Loss {
        let is_renewed = self.terms.options.lease.is_renewed();
        let name = self.terms.target.name();
        let loss = Loss::new(name.clone(), self.token(), cause, is_renewed);
        // Before anybody learns of the loss: the callback of a loss may ask a guard, which must find
        // itself invalid.
        self.valid_until.store(Moment::PAST.as_nanos(), Ordering::Release);
        *phase = LeasePhase::Lost(loss.clone());
        loss
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match &*self.phase.lock() {
            LeasePhase::Lost(loss) => Some(loss.clone()),
            _ => None,
        }
    }

    /// Begins its release: from now on it is not valid (rule 15). Returns when its validity would have
    /// ended, or `None` if it is not live.
    pub(crate) fn begin_release(&self) -> Option<Moment> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, LeasePhase::Live) {
            return None;
        }
        *phase = LeasePhase::Releasing;
        // Swapped in the same step: a guard in another thread must not pass its check once the release is
        // sent. Until the moment that this returns nobody else can have got the lock, which decides what
        // a repeated release means.
        Some(Moment::from_nanos(self.valid_until.swap(Moment::PAST.as_nanos(), Ordering::AcqRel)))
    }

    /// Ends its release. The caller then calls [`forget_hooks`](Self::forget_hooks).
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock();
        // The reply to the release may have made it a loss, which must stay one.
        if matches!(*phase, LeasePhase::Releasing) {
            *phase = LeasePhase::Ended;
        }
    }

    /// Drops the callbacks of a hold that was released. The caller has nothing locked, and the slot is
    /// free: what the user moved into a callback may panic when it is dropped, or ask for this lock. Returns
    /// whether it was released.
    pub(crate) fn forget_hooks(&self) -> bool {
        // No `match` or `if let`, which would keep the phase locked for their whole body.
        let is_ended = matches!(*self.phase.lock(), LeasePhase::Ended);
        // After a loss the callbacks stay: they are about to be called.
        if is_ended {
            drop(self.hooks.take());
        }
        is_ended
    }

    /// Observers know the hold by this number. Returns the loss if it was lost before: then they have yet to be
    /// told of that.
    pub(crate) fn observe(&self, number: u64) -> Option<Loss> {
        // Under the phase: whoever ends the hold later finds the number, or ended it before.
        match &*self.phase.lock() {
            LeasePhase::Lost(loss) => Some(loss.clone()),
            _ => {
                self.number.store(number, Ordering::SeqCst);
                None
            }
        }
    }

    /// The number of a hold that observers know.
    pub(crate) fn number(&self) -> Option<u64> {
        Some(self.number.load(Ordering::SeqCst)).filter(|&number| number != 0)
    }

    /// The same for the one caller that tells them of its end.
    pub(crate) fn take_number(&self) -> Option<u64> {
        Some(self.number.swap(0, Ordering::SeqCst)).filter(|&number| number != 0)
    }

    /// Keeps a callback for a loss of this hold. If the hold is lost already, returns it with the loss.
    pub(crate) fn on_loss(&self, hook: LossHook) -> Option<(Loss, LossHook)> {
        let phase = self.phase.lock();
        let loss = match &*phase {
            // Under the phase, so that a loss either finds the callback or is found here. A release may
            // still end as a loss.
            LeasePhase::Live | LeasePhase::Releasing => {
                self.hooks.add(hook);
                return None;
            }
            LeasePhase::Lost(loss) => Some(loss.clone()),
            LeasePhase::Ended => None,
        };
        // A callback that is returned to nobody is dropped below, and its destructor may need this lease.
        drop(phase);
        loss.map(|loss| (loss, hook))
    }

    /// Takes out the callbacks, after a loss.
    pub(crate) fn take_hooks(&self) -> LossHooks {
        self.hooks.take()
    }
}

/// A command about a lease, counted while it is under way.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<HeldLease>);

impl CommandGuard {
    /// Keeps it counted for good: it had no reply, and may be carried out at any time.
    pub(crate) fn keep_pending(self) {
        // One more, because `drop` takes one away. The count never comes back to zero: this hold is the
        // last of its lease in this process, and ends by a release.
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

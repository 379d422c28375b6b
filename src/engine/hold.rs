//! One thread's hold of a lock, or nobody's that is passed from hand to hand.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | valid while its lease is, but not beyond `max_hold` | releasing, lost |
//! | releasing | given back; no longer valid | ended, lost |
//! | lost | ended before its release, for a cause | |
//! | ended | released, passed on, or left to the worker to release | |
//!
//! The validity is computed from atomics, so that `is_valid` of a guard takes no lock: neither a renewal nor the loss of
//! the lease has to find the hold.

use crate::base::error::Error;
use crate::base::loss::{Loss, LossCause};
use crate::base::option::{HoldOptions, LockOptions};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use crate::base::time::{AtomicMoment, Clock, Moment};
use crate::base::token::FencingToken;
use crate::engine::callback::{LossHook, LossHooks};
use crate::engine::lease::{Grant, Lease};
use crate::engine::owner_value::OwnerValue;

#[derive(Debug)]
enum HoldPhase {
    Live,
    Releasing,
    /// In a box: it is larger than all the other phases, and most holds are never lost.
    Lost(Box<Loss>),
    Ended,
}

/// One thread's hold of a lock.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The lease of its owner's value. Other holds may share it, or have had it before.
    pub(crate) lease: Arc<Lease>,
    pub(crate) options: HoldOptions,
    token: FencingToken,
    /// When `max_hold` ends it, by its own options.
    own_limit: Moment,
    /// The same with the calls inside it. Written under `phase`.
    limit: AtomicMoment,
    /// When it began: no earlier than Redis granted its lease.
    began: Moment,
    phase: Mutex<HoldPhase>,
    /// Whether the phase is no longer live. Written under `phase`.
    is_over: AtomicBool,
    /// The callbacks of this hold. Added to only under `phase`.
    hooks: LossHooks,
    /// The number by which observers know the hold; 0 if they do not know it, or know of its end.
    number: AtomicU64,
}

impl Hold {
    /// The first hold of a lease that was just granted, with these options: the thread that asked for it under this value may
    /// have been another, with other limits.
    pub(crate) fn first(
        value: Arc<OwnerValue>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: &LockOptions,
    ) -> Arc<Hold> {
        // The hold begins before the request was sent: Redis may have granted the lock at any moment since then.
        let limit = options.longest_hold().map_or(Moment::FAR, |span| grant.sent.after(span));
        let token = FencingToken::new(grant.token);
        let lease = Lease::new(value, clock, grant, options);
        lease.join(limit);
        Hold::begin(lease, options.of_hold(), token, limit)
    }

    /// The next hold of a lease that no other thread has any more, with these options; `None` if it cannot be passed on.
    pub(crate) fn next(
        lease: &Arc<Lease>,
        options: &LockOptions,
        now: Moment,
    ) -> Option<Arc<Hold>> {
        if !lease.may_go_to(options, now) {
            return None;
        }
        let token = lease.next_token()?;
        // `max_hold` counts from the start of each hold (rule 17).
        let limit = options.longest_hold().map_or(Moment::FAR, |span| now.after(span));
        lease.begin_hold(options, limit, now);
        Some(Hold::begin(Arc::clone(lease), options.of_hold(), token, limit))
    }

    /// A reader's hold with these options, beside those that the lease has; `None` if it cannot be shared.
    pub(crate) fn beside(
        lease: &Arc<Lease>,
        options: &LockOptions,
        now: Moment,
    ) -> Option<Arc<Hold>> {
        // Each hold would count its renewals for itself, and there is one renewal for all.
        let counts = options.max_renewals.is_some() || lease.counts_renewals();
        if counts || !lease.value.options.requests_same_as(options) || !lease.may_be_shared(now) {
            return None;
        }
        let limit = options.longest_hold().map_or(Moment::FAR, |span| now.after(span));
        if lease.is_held() {
            lease.join(limit);
        } else {
            lease.begin_hold(options, limit, now);
        }
        // The hold shares the token of the lease: the order of readers' tokens means nothing (rule 32).
        Some(Hold::begin(Arc::clone(lease), options.of_hold(), lease.token(), limit))
    }

    fn begin(
        lease: Arc<Lease>,
        options: HoldOptions,
        token: FencingToken,
        limit: Moment,
    ) -> Arc<Hold> {
        Arc::new(Hold {
            began: lease.now(),
            lease,
            options,
            token,
            own_limit: limit,
            limit: AtomicMoment::new(limit),
            phase: Mutex::new(HoldPhase::Live),
            is_over: AtomicBool::new(false),
            hooks: LossHooks::default(),
            number: AtomicU64::new(0),
        })
    }

    /// Its token, which an upgrade replaces by a greater one (rule 32).
    pub(crate) fn token(&self) -> FencingToken {
        self.lease.upgraded_token().unwrap_or(self.token)
    }

    /// When the hold began.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// When `max_hold` ends it.
    pub(crate) fn limit(&self) -> Moment {
        self.limit.get()
    }

    /// The same by its own options alone.
    pub(super) fn own_limit(&self) -> Moment {
        self.own_limit
    }

    /// The first of the calls inside it ends it at this moment; [`Moment::FAR`] if none does.
    pub(super) fn limit_inside(&self, first: Moment) {
        // Under the phase, and not once a limit is reached: that ends it, whatever the calls inside do then.
        let phase = self.phase.lock();
        if matches!(*phase, HoldPhase::Live) && self.lease.now() < self.limit() {
            self.limit.set(first.min(self.own_limit));
        }
    }

    /// The end of validity; the past once it is not live any more.
    pub(crate) fn valid_until(&self) -> Moment {
        if self.is_over.load(Ordering::SeqCst) {
            return Moment::PAST;
        }
        self.lease.valid_until().min(self.limit())
    }

    /// The end of its validity, or of the time in which it may be valid again; the past once it is not live any more.
    pub(crate) fn lost_at(&self) -> Moment {
        if self.is_over.load(Ordering::SeqCst) {
            return Moment::PAST;
        }
        self.lease.lost_at().min(self.limit())
    }

    pub(crate) fn is_valid_at(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    /// Whether it was neither given back nor found lost.
    pub(crate) fn is_live(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Notes that Redis must keep the lock until this moment. Returns false, and notes nothing, if the hold is over.
    pub(crate) fn keep_until(&self, moment: Moment) -> bool {
        // Written under the phase: the end of the hold comes either before this, or after it and with this moment.
        // If the caller learns that the lock is lost, others must be able to get it.
        let phase = self.phase.lock();
        let may_be_kept = matches!(*phase, HoldPhase::Live) && self.is_valid_at(self.lease.now());
        if may_be_kept {
            self.lease.keep_until(moment);
        }
        may_be_kept
    }

    /// Ends it as lost if it is live and its validity is over, because that of its lease is, or by `max_hold`. Returns the
    /// loss to the one caller that found it, who must free the slot and notify the user.
    pub(crate) fn expire(&self, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, HoldPhase::Live) || self.is_valid_at(now) {
            return None;
        }
        let cause = self.natural_cause(now)?;
        Some(self.lose_inner(&mut phase, cause))
    }

    /// Ends it as lost if it is live. Returns the loss to the one caller that found it, who must free the
    /// slot and notify the user.
    pub(crate) fn lose(&self, cause: LossCause, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, HoldPhase::Live) {
            return None;
        }
        // One that ran out before has another cause.
        let ran_out = if self.is_valid_at(now) { None } else { self.natural_cause(now) };
        Some(self.lose_inner(&mut phase, ran_out.unwrap_or(cause)))
    }

    /// Ends its release as lost, because Redis replied that the owner did not have the lock any more.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Loss {
        self.lose_inner(&mut self.phase.lock(), cause)
    }

    /// The error of a release whose first request had no reply, and whose next one found this.
    ///
    /// Either the first one has released the lock, or it was lost before: by `DEL`, a forced release, a flush, a fail-over.
    /// Redis has no trace of a release that would tell the two apart, as its usual way is one `DEL`.
    pub(crate) fn perhaps_lost_error(&self, cause: LossCause) -> Error {
        let OwnerValue { target, .. } = &*self.lease.value;
        let loss = Loss::new(target.name().clone(), self.token(), cause, self.lease.is_renewed());
        let found = match cause {
            LossCause::Taken => "found that another got it",
            _ => "did not find it",
        };
        Error::unknown_outcome(format!(
            "the first request to release it had no reply, and the next one {found}: it was released, or had been lost before"
        ))
        .with_source(Error::lost(&loss))
    }

    /// The cause if `max_hold` or the lease ran out; `None` if a renewal has come in time after all.
    fn natural_cause(&self, now: Moment) -> Option<LossCause> {
        // The earlier end is the cause: after a suspend both may have passed.
        let first = self.lease.leased_until().max(self.lease.lost_at());
        if self.limit() <= now && self.limit() <= first {
            return Some(LossCause::MaxHold);
        }
        self.lease.expire(now)
    }

    fn lose_inner(&self, phase: &mut HoldPhase, cause: LossCause) -> Loss {
        let OwnerValue { target, options, .. } = &*self.lease.value;
        let failure = match cause {
            LossCause::Unreachable | LossCause::Refused => self.lease.failure(),
            _ => None,
        };
        let loss = Loss::new(target.name().clone(), self.token(), cause, self.lease.is_renewed());
        // Only where the silence let another take it: else it was taken from a holder that was heard of.
        let unheard = self.lease.unheard(self.lease.now());
        let was_silent = !options.lease.tail().is_zero() && unheard >= options.lease.ttl();
        let loss = match cause {
            LossCause::Taken if was_silent => loss.unheard(unheard),
            _ => loss,
        };
        let loss = match failure {
            Some(failure) => loss.with_source(Arc::new(Error::from(failure))),
            None => loss,
        };
        // The flag is set before anybody learns of the loss: the callback of a loss may ask a guard, which must
        // find itself invalid.
        self.is_over.store(true, Ordering::SeqCst);
        *phase = HoldPhase::Lost(Box::new(loss.clone()));
        loss
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match &*self.phase.lock() {
            HoldPhase::Lost(loss) => Some(Loss::clone(loss)),
            _ => None,
        }
    }

    /// Begins its release: from now on it is not valid (rule 15). Returns whether it was live.
    pub(crate) fn begin_release(&self) -> bool {
        let mut phase = self.phase.lock();
        if !matches!(*phase, HoldPhase::Live) {
            return false;
        }
        *phase = HoldPhase::Releasing;
        // The validity ends in the same step: no guard in another thread may pass its check once the release is sent.
        self.is_over.store(true, Ordering::SeqCst);
        true
    }

    /// Ends its release. The caller then calls [`forget_hooks`](Self::forget_hooks).
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock();
        // The reply to the release may have made it a loss, which must stay one.
        if matches!(*phase, HoldPhase::Releasing) {
            *phase = HoldPhase::Ended;
        }
    }

    /// Drops the callbacks of a hold that was released. The caller has nothing locked, and the slot is
    /// free: what the user moved into a callback may panic when it is dropped, or ask for this lock. Returns
    /// whether it was released.
    pub(crate) fn forget_hooks(&self) -> bool {
        // No `match` or `if let`, which would keep the phase locked for their whole body.
        let is_ended = matches!(*self.phase.lock(), HoldPhase::Ended);
        // After a loss the callbacks stay: they are about to be called.
        if is_ended {
            drop(self.hooks.take());
        }
        is_ended
    }

    /// Gives the hold the number by which observers know it. Returns the loss if it was lost before: observers have
    /// yet to be told of that.
    pub(crate) fn observe(&self, number: u64) -> Option<Loss> {
        // Written under the phase: the end of the hold comes either before this, or after it and finds the number.
        match &*self.phase.lock() {
            HoldPhase::Lost(loss) => Some(Loss::clone(loss)),
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

    /// Takes the number of a hold that observers know, for the one caller that tells them of its end.
    pub(crate) fn take_number(&self) -> Option<u64> {
        Some(self.number.swap(0, Ordering::SeqCst)).filter(|&number| number != 0)
    }

    /// Keeps a callback for a loss of this hold. If the hold is lost already, returns it with the loss.
    pub(crate) fn on_loss(&self, hook: LossHook) -> Option<(Loss, LossHook)> {
        let phase = self.phase.lock();
        let loss = match &*phase {
            // Added under the phase, so that a loss either finds the callback or is found here. A release may
            // still end as a loss.
            HoldPhase::Live | HoldPhase::Releasing => {
                self.hooks.add(hook);
                return None;
            }
            HoldPhase::Lost(loss) => Some(Loss::clone(loss)),
            HoldPhase::Ended => None,
        };
        // A callback that is returned to nobody is dropped below, and its destructor may need this hold.
        drop(phase);
        loss.map(|loss| (loss, hook))
    }

    /// Takes out the callbacks, after a loss.
    pub(crate) fn take_hooks(&self) -> LossHooks {
        self.hooks.take()
    }
}

//! How a process keeps a lease that its thread gives up: for the next thread, or for a while without any.

use std::time::Duration;

use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::{Arc, MutexGuard, Ordering};
use crate::base::time::Moment;
use crate::engine::lease::LiveLease;
use crate::engine::slot::courtesy::PASSED_ON_WHILE_LISTENED;
use crate::engine::slot::patience::Patience;
use crate::engine::slot::waiter::Turn;
use crate::engine::slot::{Inner, Slot, State};

/// How long a lease is passed on from thread to thread while another process waits.
const PASSED_ON_WHILE_WANTED: Duration = Duration::from_millis(50);
/// The same while none is known to: those that do not queue cannot make themselves known.
const PASSED_ON: Duration = Duration::from_secs(1);
/// Where a turn took no longer than this, who comes after the next is woken ahead of its own: to wake a
/// thread takes longer than such a hold.
const BRISK: Duration = Duration::from_micros(50);

/// What becomes of a lease that its thread gives up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PassedOn {
    /// Another thread has it.
    ToThread,
    /// Nobody has it, and the worker ends that.
    Lingering,
    /// It goes back to Redis; [`Slot::vacate`] is owed afterwards.
    No,
}

impl Slot {
    /// Passes a lease that its thread gives up on to the next thread, or keeps it for a while, if
    /// that may be.
    pub(crate) fn pass_on(self: &Arc<Slot>, lease: &Arc<LiveLease>) -> PassedOn {
        let mut inner = self.inner.lock();
        let now = self.context.now();
        let next = inner.queue.front().filter(|_| self.may_pass(&inner, lease, now));
        if let Some(successor) = next.and_then(|next| lease.successor(&next.options, now))
            && let Some(next) = inner.queue.pop_front()
        {
            inner.passed = inner.passed.saturating_add(1);
            inner.state = State::Held(Arc::downgrade(&successor));
            let brisk = now.since(std::mem::replace(&mut inner.passed_at, now)) <= BRISK;
            let after = inner.queue.front().filter(|_| brisk).map(Arc::clone);
            let wake = self.watch(&mut inner, &successor);
            next.assign(Turn::Held(successor));
            drop(inner);
            next.woken.notify_one();
            if let Some(after) = after {
                after.soon.store(true, Ordering::Relaxed);
                after.woken.notify_one();
            }
            self.context.worker.wake_if(wake);
            self.context.listen_for_waiters(&lease.terms.options);
            return PassedOn::ToThread;
        }
        if let Some(until) = self.may_linger(&inner, lease, now) {
            inner.state = State::Lingering(Arc::clone(lease), Arc::clone(self));
            inner.linger_until = until;
            let wake = self.look_by(&mut inner, until);
            drop(inner);
            self.context.worker.wake_if(wake);
            return PassedOn::Lingering;
        }
        self.unwatch(&mut inner);
        inner.state = State::Releasing;
        inner.asked_at = Some(now);
        inner.courtesy.begin_release();
        PassedOn::No
    }

    /// Bounded in number and time while another process waits, in time alone while none is known
    /// to. Where nothing could be heard of one, it is taken for granted.
    fn may_pass(&self, inner: &Inner, lease: &LiveLease, now: Moment) -> bool {
        let held = now.since(inner.granted_at);
        let queues = lease.terms.options.wait_kind() == WaitKind::Queue;
        let heard = queues && self.context.listener.is_live();
        if mutated!("hand-off-bound-ignored") {
            return true;
        }
        if inner.wanted || !heard {
            let most = if inner.courtesy.is_listened_to(now) {
                PASSED_ON_WHILE_LISTENED
            } else {
                PASSED_ON_WHILE_WANTED
            };
            let brief = held < most || mutated!("hand-off-time-ignored");
            inner.passed < lease.terms.options.local_handoffs_option() && brief
        } else {
            lease.terms.options.local_handoffs_option() > 0 && held < PASSED_ON
        }
    }

    /// Gives a lingering lease to this thread, if its options allow it, or back.
    pub(super) fn end_linger_for(
        self: &Arc<Slot>,
        mut inner: MutexGuard<'_, Inner>,
        options: &LockOptions,
        patience: Patience,
    ) -> Turn {
        let State::Lingering(lease, _) = std::mem::replace(&mut inner.state, State::Free) else {
            unreachable!("called only while lingering");
        };
        if let Some(next) = lease.successor(options, self.context.now()) {
            inner.state = State::Held(Arc::downgrade(&next));
            let wake = self.watch(&mut inner, &next);
            if mutated!("live-thrown-away") {
                self.unwatch(&mut inner);
            }
            drop(inner);
            self.context.worker.wake_if(wake);
            return Turn::Held(next);
        }
        self.unwatch(&mut inner);
        inner.state = State::Trying { told_busy: false };
        inner.number = None;
        let seen = inner.cancellations;
        drop(inner);
        let deadline = self.context.exchange_deadline();
        self.give_back_now(&lease, deadline.min(patience.end().unwrap_or(Moment::FAR)));
        Turn::Delegate(None, seen)
    }

    /// Until when a lease that its thread gives up may linger, if it may.
    pub(super) fn may_linger(
        &self,
        inner: &Inner,
        lease: &LiveLease,
        now: Moment,
    ) -> Option<Moment> {
        if self.context.is_shut_down() {
            return None;
        }
        let options = &lease.terms.options;
        let linger = options.linger_option().min(lease.leased_until().since(now) / 2);
        let revocable = options.wait_kind() == WaitKind::Queue && self.context.listener.is_live();
        let wanted = inner.wanted && !mutated!("linger-with-waiters");
        // Who locks again has the same options as a rule, and those without renewals cannot use it.
        let useful = options.is_renewed() && lease.may_last(now);
        let allowed = revocable && inner.queue.is_empty() && !wanted && useful;
        (allowed && !linger.is_zero()).then(|| now.after(linger))
    }

    /// Ends a linger. Returns the lease that is to be given back.
    pub(crate) fn end_linger(&self) -> Option<Ending> {
        self.end(&mut self.inner.lock())
    }

    /// The same while the slot is locked.
    pub(super) fn end(&self, inner: &mut Inner) -> Option<Ending> {
        let State::Lingering(lease, slot) = &inner.state else { return None };
        let ending = Ending { slot: Arc::clone(slot), lease: Arc::clone(lease), returned: false };
        self.unwatch(inner);
        let overlooked = mutated!("shutdown-overlooks-a-linger");
        inner.state = if overlooked { State::Free } else { State::Releasing };
        inner.number = None;
        inner.asked_at = Some(self.context.now());
        Some(ending)
    }

    /// Gives back a lease that lingers: at once and here, since another thread would take longer to wake
    /// than this takes.
    pub(super) fn revoke_linger(&self) {
        if let Some(ending) = self.end_linger() {
            ending.give_back_now(self.context.exchange_deadline());
        }
    }
}

/// A lease that lingers no longer. Its slot is releasing until this is dropped, which leaves to the
/// worker what was not given back.
#[derive(Debug)]
pub(crate) struct Ending {
    slot: Arc<Slot>,
    lease: Arc<LiveLease>,
    returned: bool,
}

impl Ending {
    /// Gives it back; what cannot be done until `deadline` is left to the worker.
    pub(crate) fn give_back_now(mut self, deadline: Moment) {
        self.slot.give_back_now(&self.lease, deadline);
        self.returned = true;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.returned {
            self.slot.give_back(&self.lease);
        }
        self.slot.vacate(None);
    }
}

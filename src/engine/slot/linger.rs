//! A lease that no thread has, kept for the next of this process.

use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::{Arc, MutexGuard};
use crate::base::time::Moment;
use crate::engine::lease::LiveLease;
use crate::engine::slot::patience::Patience;
use crate::engine::slot::waiter::Turn;
use crate::engine::slot::{Inner, Slot, State};

impl Slot {
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
        let deadline = match patience {
            Patience::Once => deadline,
            Patience::Until(end) => deadline.min(end),
        };
        self.give_back_now(&lease, deadline);
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
        let options = lease.options();
        let linger = options.linger_option().min(lease.leased_until().since(now) / 2);
        let revocable = options.wait_kind() == WaitKind::Queue && self.context.hub.is_live();
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

    /// Gives back a lease that lingers: at once and here, since another thread would take longer to wake
    /// than this takes.
    pub(super) fn revoke_linger(&self) {
        if let Some(ending) = self.end_linger() {
            ending.give_back_now(self.context.exchange_deadline());
        }
    }

    /// The same for one who has the slot.
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

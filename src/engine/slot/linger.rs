//! A lease that no thread has, kept for the next of this process.

use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::{Arc, MutexGuard};
use crate::base::time::Moment;
use crate::engine::lease::LiveLease;
use crate::engine::release::{give_back, give_back_now};
use crate::engine::slot::{Inner, Patience, Slot, State, Turn};

impl Slot {
    /// Gives a lingering lease to this thread, if its options allow it, or back.
    pub(super) fn end_linger_for(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        options: &LockOptions,
        patience: Patience,
    ) -> Turn {
        let State::Lingering(lease) = std::mem::replace(&mut inner.state, State::Free) else {
            unreachable!("called only while lingering");
        };
        if let Some(next) = lease.successor(options, self.engine.now()) {
            inner.state = State::Held(Arc::downgrade(&next));
            let wake = self.watch(&mut inner, &next);
            if mutated!("live-thrown-away") {
                self.unwatch(&mut inner);
            }
            drop(inner);
            if wake {
                self.engine.worker().wake();
            }
            return Turn::Held(next);
        }
        self.unwatch(&mut inner);
        inner.state = State::Trying { told_busy: false };
        inner.number = None;
        let seen = inner.cancellations;
        drop(inner);
        let deadline = self.engine.exchange_deadline();
        give_back_now(
            &lease,
            match patience {
                Patience::Once => deadline,
                Patience::Until(end) => deadline.min(end),
            },
        );
        Turn::Delegate(None, seen)
    }

    /// Until when a lease that its thread gives up may linger, if it may.
    pub(super) fn may_linger(
        &self,
        inner: &Inner,
        lease: &LiveLease,
        now: Moment,
    ) -> Option<Moment> {
        if self.engine.is_shut_down() {
            return None;
        }
        let options = lease.options();
        let linger = options.linger_option().min(lease.leased_until().since(now) / 2);
        let revocable = options.wait_kind() == WaitKind::Queue && self.engine.hub().is_live();
        let wanted = inner.wanted && !mutated!("linger-with-waiters");
        // Who locks again has the same options as a rule, and those without renewals cannot use it.
        let useful = options.is_renewed() && lease.may_last(now);
        let allowed = revocable && inner.queue.is_empty() && !wanted && useful;
        (allowed && !linger.is_zero()).then(|| now.after(linger))
    }

    /// Ends a linger. Answers the lease that is to be given back.
    pub(crate) fn end_linger(&self) -> Option<Ending> {
        self.end(&mut self.inner.lock())
    }

    /// The same for one who has the slot.
    pub(super) fn end(&self, inner: &mut Inner) -> Option<Ending> {
        let State::Lingering(lease) = &inner.state else { return None };
        let ending = Ending { lease: Arc::clone(lease), returned: false };
        self.unwatch(inner);
        let overlooked = mutated!("shutdown-overlooks-a-linger");
        inner.state = if overlooked { State::Free } else { State::Releasing };
        inner.number = None;
        inner.asked_at = Some(self.engine.now());
        Some(ending)
    }
}

/// A lease that lingers no longer. Its slot is releasing until this is dropped, which leaves to the
/// worker what was not given back.
#[derive(Debug)]
pub(crate) struct Ending {
    lease: Arc<LiveLease>,
    returned: bool,
}

impl Ending {
    /// Gives it back; what cannot be done until `deadline` is left to the worker.
    pub(crate) fn give_back_now(mut self, deadline: Moment) {
        give_back_now(&self.lease, deadline);
        self.returned = true;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.returned {
            give_back(&self.lease);
        }
        self.lease.slot().vacate(None);
    }
}

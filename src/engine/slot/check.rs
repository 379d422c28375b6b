//! When the worker is to look at a slot, and what it finds.
//!
//! The slot knows by when the worker looks, and asks for an earlier look only where that is too late.
//! A lease that is passed on inside the process, or taken again while it lingers, needs none: the
//! entry of the hold before serves the next. What the worker finds when it looks is what counts.

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::HeldLease;
use crate::engine::slot::Slot;
use crate::engine::slot::holder::SlotHolder;
use crate::engine::worker::RenewableSlot;

impl Slot {
    /// Makes the worker show the hold count of a lease soon.
    pub(crate) fn show_hold_count(self: &Arc<Slot>, lease: &HeldLease) {
        self.transition(|state, step| state.schedule_check(lease, step));
    }

    /// Ends a linger of which this is true. Returns the lease that is to be given back.
    pub(super) fn end_linger(
        self: &Arc<Slot>,
        which: impl Fn(&SlotHolder) -> bool,
    ) -> Option<EndedLinger> {
        let lease = self.transition(|state, step| state.end_linger(which, step))?;
        Some(EndedLinger { slot: Arc::clone(self), lease, is_released: false })
    }

    /// Ends all lingers whose time is over. Returns the leases that are to be given back.
    pub(crate) fn end_lingers(self: &Arc<Slot>, now: Moment) -> Vec<EndedLinger> {
        let is_over =
            |holder: &SlotHolder| holder.lingers_until().is_some_and(|until| until <= now);
        std::iter::from_fn(|| self.end_linger(is_over)).collect()
    }

    /// Tells the user of a loss.
    pub(crate) fn report_loss(&self, lease: &HeldLease, loss: Loss) {
        self.context.worker.notify(Notification::Lost(loss, Arc::new(lease.take_hooks())));
    }
}

impl RenewableSlot for Slot {
    fn leases_to_check(self: Arc<Self>, now: Moment) -> Vec<Arc<HeldLease>> {
        // What lingered comes in as a task to release, once this is dropped.
        drop(self.end_lingers(now));
        self.transition(|state, step| state.check(step))
    }

    /// Makes the worker look again then, or when a lease ends, so that its end is told as soon as the
    /// worker is free. Where there is none any more, nothing is to be looked at.
    fn check_again(self: Arc<Self>, due: Moment) {
        // Dropped once the slot is unlocked: ours may be the last references.
        drop(self.transition(|state, step| state.check_again(due, step)));
    }

    /// What is owed when a lease was found lost: the slot is free for the next, and the user is told.
    /// What is left of it in Redis ends by itself, and not before, as its thread may still be at work. Only
    /// its attempt must not come back.
    fn lost(self: Arc<Self>, lease: &Arc<HeldLease>, loss: Loss) {
        self.release_later(lease, loss.cause());
        self.remove(lease);
        self.report_loss(lease, loss);
    }
}

/// A lease that lingers no longer. Its slot is releasing until this is dropped, which leaves to the
/// worker what was not given back.
#[derive(Debug)]
pub(crate) struct EndedLinger {
    slot: Arc<Slot>,
    lease: Arc<HeldLease>,
    is_released: bool,
}

impl EndedLinger {
    /// Gives it back; what cannot be done until `deadline` is left to the worker.
    pub(crate) fn release_now(mut self, deadline: Moment) {
        self.slot.release_now(&self.lease, deadline);
        self.is_released = true;
    }
}

impl Drop for EndedLinger {
    fn drop(&mut self) {
        if !self.is_released {
            self.slot.release_in_background(&self.lease);
        }
        self.slot.remove(&self.lease);
    }
}

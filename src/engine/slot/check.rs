//! How the worker checks a slot. When it does is in `state::check`.

use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::share::Access;
use crate::base::sync::{Arc, MutexGuard, Ordering};
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::HeldLease;
use crate::engine::slot::Slot;
use crate::engine::slot::holder::SlotHolder;
use crate::engine::slot::state::SlotState;
use crate::engine::worker::{RenewableSlot, SHORTEST_RETRY};
use crate::observe::Lost;
use crate::protocol::target::Target;

/// A thread that has locked a slot and has a processor unlocks it within this time.
const LOCK_TIME: Duration = Duration::from_millis(1);
/// Otherwise the worker comes back to the slot after this time,
const BUSY_RETRY: Duration = Duration::from_millis(5);
/// and after that many times in a row it waits.
const MAX_BUSY: u32 = 100;

impl Slot {
    /// Makes the worker show the hold count of a lease in Redis soon.
    pub(crate) fn show_hold_count(self: &Arc<Slot>, lease: &HeldLease) {
        self.transition(|state, step| state.schedule_check(lease, step));
    }

    /// Makes the worker send a change of a lease that had no reply.
    pub(crate) fn change_soon(self: &Arc<Slot>) {
        self.transition(|state, step| state.check_by(step.now.after(SHORTEST_RETRY), step));
    }

    /// Ends all lingers whose time is over. Returns their leases, which the caller releases or drops.
    pub(crate) fn end_lingers(self: &Arc<Slot>, now: Moment) -> Vec<EndedLinger> {
        let is_over =
            |holder: &SlotHolder| holder.lingers_until().is_some_and(|until| until <= now);
        let end = || self.transition(|state, step| state.end_linger(is_over, step));
        std::iter::from_fn(end).map(|lease| self.ended_linger(lease)).collect()
    }

    /// The lease of a linger that was ended. The caller releases or drops it.
    pub(super) fn ended_linger(self: &Arc<Slot>, lease: Arc<HeldLease>) -> EndedLinger {
        EndedLinger { slot: Arc::clone(self), lease, is_released: false }
    }

    /// Locks the state for the worker, or makes it check the slot a moment later. A thread that has locked it may
    /// have no processor for long, and the leases of other slots must not wait for that.
    fn lock_or_check_later(self: &Arc<Slot>) -> Option<MutexGuard<'_, SlotState>> {
        let state = match self.state.try_lock_for(LOCK_TIME) {
            // Threads that lock it all the time must not keep its own leases from being checked.
            None if self.busy.fetch_add(1, Ordering::Relaxed) >= MAX_BUSY => self.state.lock(),
            None => {
                // Whether to wake the worker is not asked: this is the worker, and it is awake.
                _ = self.context.worker.check_at(self, self.context.now().after(BUSY_RETRY));
                return None;
            }
            Some(state) => state,
        };
        self.busy.store(0, Ordering::Relaxed);
        Some(state)
    }

    /// Notifies the user of a loss.
    pub(crate) fn report_loss(&self, lease: &HeldLease, loss: Loss) {
        // By the worker and never from here: this may be any thread of the user, with any lock of the
        // user held. The hooks move along, so that they are dropped on the thread that calls them.
        let hooks = lease.take_hooks();
        if let (Some(observers), Some(hold)) =
            (self.context.observers.of_an_end(), lease.take_number())
        {
            let kind = self.target.kind().name();
            let held = self.context.now().since(lease.began());
            let observers = Arc::clone(observers);
            hooks.add(Box::new(move |loss| {
                observers.tell(|observer| observer.lost(&Lost { hold, kind, held, loss }));
            }));
        }
        self.context.worker.notify(Notification::Lost(loss, Arc::new(hooks)));
    }
}

impl RenewableSlot for Slot {
    fn check(
        self: Arc<Self>,
        now: Moment,
        announced_again: Duration,
    ) -> (Vec<Arc<HeldLease>>, Option<Arc<Target>>) {
        let Some(state) = self.lock_or_check_later() else { return (Vec::new(), None) };
        let checked =
            self.transition_of(state, |state, step| state.check(now, announced_again, step));
        if checked.linger_is_over {
            // Dropped and not released: this is the worker's thread, which does no I/O for one slot alone.
            // The releases go into its queue, and travel with the others in the next pipeline.
            drop(self.end_lingers(now));
        }
        (checked.leases, checked.is_announced.then(|| Arc::clone(&self.target)))
    }

    /// Schedules the next check for `due`, or for the end of a lease, so that the worker reports a loss
    /// as soon as it can. Without a lease there is no check.
    fn check_again(self: Arc<Self>, due: Moment) {
        let Some(state) = self.lock_or_check_later() else { return };
        // Dropped once the slot is unlocked: these may be the last references.
        drop(self.transition_of(state, |state, step| state.check_again(due, step)));
    }

    fn renewed(self: Arc<Self>, lease: &Arc<HeldLease>, sent: Moment, waiters: Option<u32>) {
        let is_shared = lease.access() == Some(Access::Read);
        if let Some(waiters) = waiters.filter(|&waiters| is_shared || waiters > 0) {
            self.note_waiters(lease, sent, waiters);
        }
        for sibling in self.siblings(lease) {
            sibling.lengthen(sent, lease.terms.ttl());
        }
    }

    fn not_renewed(self: Arc<Self>, lease: &Arc<HeldLease>) {
        for sibling in self.siblings(lease) {
            sibling.renewal_failed();
            // This one may have left the entry before the reply was due.
            sibling.may_last_until(lease.perhaps_until());
        }
    }

    /// Deals with a lease that was found lost: frees the slot for the next thread, and notifies the user.
    /// What is left of the lease in Redis ends by itself, and not before, because the thread may still be
    /// at work. But the attempt must not come back.
    fn lost(self: Arc<Self>, lease: &Arc<HeldLease>, loss: Loss) {
        // Recorded with the worker before the slot is free: a shutdown that looks in between finds the
        // one or the other. The user is notified last, when the slot shows what the notification says.
        let cause = loss.cause();
        if !self.leave_entry(lease) {
            self.release_later(lease, cause);
            self.remove(lease);
        }
        self.report_loss(lease, loss);
        self.lose_siblings(lease, cause);
    }
}

/// A lease that lingers no longer. Its slot stays releasing until this is dropped. If it was not released
/// by then, the worker releases it.
#[derive(Debug)]
pub(crate) struct EndedLinger {
    slot: Arc<Slot>,
    lease: Arc<HeldLease>,
    is_released: bool,
}

impl EndedLinger {
    /// Releases it now. The worker goes on after `deadline`.
    pub(crate) fn release_now(mut self, deadline: Moment) {
        self.slot.release_now(&self.lease, deadline);
        self.is_released = true;
    }
}

impl Drop for EndedLinger {
    fn drop(&mut self) {
        // In this order for the same reason as in `lost`. In `drop`, so that a panic in between, say of a
        // logger, does not leave the slot releasing for ever.
        if !self.is_released {
            self.slot.release_in_background(&self.lease);
        }
        self.slot.remove(&self.lease);
    }
}

//! What the worker does to a slot: it ends what is over, and asks whether the slot is announced.
//!
//! It renews leases without their slots. Here it needs the lock of the slot, and comes back later if a thread has it: that
//! thread may have no processor for long.

use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::Slot;
use crate::engine::slot::entry::Entry;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::engine::worker::{SHORTEST_RETRY, WatchedSlot};
use crate::observe::Lost;
use crate::protocol::target::Target;

impl Slot {
    /// A thread has changed a lease: the worker comes to it when it needs that.
    pub(crate) fn watch(self: &Arc<Slot>, lease: &Arc<Lease>) {
        self.watch_by(lease, lease.next_due(self.context.now()));
    }

    /// Makes the worker send a change of a lease that had no reply.
    pub(crate) fn change_soon(self: &Arc<Slot>, lease: &Arc<Lease>) {
        self.watch_by(lease, self.context.now().after(SHORTEST_RETRY));
    }

    fn watch_by(self: &Arc<Slot>, lease: &Arc<Lease>, due: Moment) {
        if due < lease.due() {
            let wakes_worker = self.context.worker.watch(lease, self, due);
            self.context.worker.wake_if(wakes_worker);
        }
    }

    /// Runs this while a thread has the slot locked.
    #[cfg(test)]
    pub(crate) fn while_locked(&self, run: impl FnOnce()) {
        let locked = self.state.lock();
        run();
        drop(locked);
    }

    /// Ends all lingers whose time is over. Returns their leases, which the caller releases or drops.
    pub(crate) fn end_lingers(self: &Arc<Slot>, now: Moment) -> Vec<EndedLinger> {
        let is_over = |_: &Entry, lease: &Lease| lease.has_lingered(now);
        let ended = self.transition(|state, step| state.end_lingers(is_over, step));
        ended.into_iter().map(|lease| self.ended_linger(lease)).collect()
    }

    /// The lease of a linger that was ended. The caller releases or drops it.
    pub(super) fn ended_linger(self: &Arc<Slot>, lease: Arc<Lease>) -> EndedLinger {
        EndedLinger { slot: Arc::clone(self), lease, is_released: false }
    }

    /// Deals with a hold that its thread found lost, and with a lease that was found lost: ends all holds whose time is
    /// over, and frees the slot for the next thread. Notifies the user of each. Returns the losses of the others.
    ///
    /// What is left of the lease in Redis ends by itself, and not before, because the thread may still be at work. But
    /// the attempt must not come back.
    pub(crate) fn end_holds(
        self: &Arc<Slot>,
        lease: &Arc<Lease>,
        found: Option<(Arc<Hold>, Loss)>,
    ) -> Vec<Loss> {
        let finder = found.as_ref().map(|(hold, _)| hold);
        let others = self.transition(|state, step| self.end_over_in(state, lease, finder, step));
        // The user is notified last, when the slot shows what the notification says.
        let losses = others.iter().map(|(_, loss)| loss.clone()).collect();
        for (hold, loss) in found.into_iter().chain(others) {
            self.report_loss(&hold, loss);
        }
        losses
    }

    /// Ends the holds that are over, except that of the finder, which is lost already.
    fn end_over_in(
        &self,
        state: &mut SlotState,
        lease: &Arc<Lease>,
        finder: Option<&Arc<Hold>>,
        step: &mut Step,
    ) -> Vec<(Arc<Hold>, Loss)> {
        let (lost, is_all) = state.end_over(lease, finder, step);
        if is_all {
            // Recorded with the worker before the slot is free: a shutdown that looks in between finds the
            // one or the other.
            self.release_lost(lease);
            state.remove(lease, step);
        }
        lost
    }

    /// Notifies the user of a loss.
    pub(crate) fn report_loss(&self, hold: &Hold, loss: Loss) {
        // The worker calls the callbacks, never this thread: it may be any thread of the user, with any lock of
        // the user held. The hooks move along, so that they are dropped on the thread that calls them.
        let hooks = hold.take_hooks();
        if let (Some(observers), Some(number)) =
            (self.context.observers.of_an_end(), hold.take_number())
        {
            let kind = self.target.kind().name();
            let held = self.context.now().since(hold.began());
            let observers = Arc::clone(observers);
            hooks.add(Box::new(move |loss| {
                let lost = Lost { hold: number, kind, held, loss };
                observers.tell(|observer| observer.lost(&lost));
            }));
        }
        self.context.worker.notify(Notification::Lost(loss, Arc::new(hooks)));
    }
}

impl WatchedSlot for Slot {
    fn end_over(self: Arc<Self>, lease: &Arc<Lease>) -> Option<Vec<Loss>> {
        let state = self.state.try_lock()?;
        let lost = self.transition_of(state, |state, step| {
            let now = step.now;
            let is_over = |_: &Entry, lease: &Lease| lease.has_lingered(now);
            for lease in state.end_lingers(is_over, step) {
                // The worker releases them, and does no I/O for one slot alone: the releases travel with the others in the
                // next pipeline.
                self.release_in_background(&lease);
                state.remove(&lease, step);
            }
            self.end_over_in(state, lease, None, step)
        });
        let report = |(hold, loss): (Arc<Hold>, Loss)| {
            self.report_loss(&hold, loss.clone());
            loss
        };
        Some(lost.into_iter().map(report).collect())
    }

    fn announce(self: Arc<Self>, now: Moment, again: Duration) -> Option<Option<Arc<Target>>> {
        let state = self.state.try_lock()?;
        let is_announced =
            self.transition_of(state, |state, step| state.announce(now, again, step));
        Some(is_announced.then(|| Arc::clone(&self.target)))
    }
}

/// A lease that lingers no longer. Its slot stays releasing until this is dropped. If it was not released
/// by then, the worker releases it.
#[derive(Debug)]
pub(crate) struct EndedLinger {
    slot: Arc<Slot>,
    lease: Arc<Lease>,
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
        // The order has the same reason as in `end_over_in`. `drop` does it, so that a panic in between, say of a
        // logger, does not leave the slot releasing for ever.
        if !self.is_released {
            self.slot.release_in_background(&self.lease);
        }
        self.slot.remove(&self.lease);
    }
}

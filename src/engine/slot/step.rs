//! One step of a slot's state machine: its inputs and its effects.

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::few::Few;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::waiter::{Admission, Waiter};

/// What an event may know besides the state, and the effects that the slot carries out afterwards.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) now: Moment,
    /// Whether the client listens, so that it would receive messages about waiters elsewhere.
    pub(super) hears: bool,
    /// Whether the client grants no lock any more.
    pub(super) closing: bool,
    /// Whether nobody is left who could take a lease again.
    pub(super) is_left: bool,
    /// Whether the client announces what lasts.
    pub(super) announces: bool,
    /// The threads to wake.
    woken: Few<Arc<Waiter>>,
    /// Whether to wake the acquirer from its pause, so that it looks at the state again.
    pub(super) wakes_acquirer: bool,
    /// The leases that the worker has to come to earlier than it would, and when.
    pub(super) watched: Few<(Arc<Lease>, Moment)>,
    /// The leases that it need not come to any more.
    pub(super) forgotten: Few<Arc<Lease>>,
    /// When the worker has to come to the slot, in which threads only wait; [`Moment::FAR`] if it need not;
    /// `None` if that is as before.
    pub(super) announced_at: Option<Moment>,
    /// Dropped once the slot is unlocked: each may be the last reference.
    pub(super) holds: Vec<Arc<Hold>>,
}

impl Step {
    pub(super) fn new(now: Moment, hears: bool, closing: bool) -> Step {
        Step {
            now,
            hears,
            closing,
            is_left: false,
            announces: false,
            woken: Few::new(),
            wakes_acquirer: false,
            watched: Few::new(),
            forgotten: Few::new(),
            announced_at: None,
            holds: Vec::new(),
        }
    }

    /// Admits a waiting thread, which is woken once the slot is unlocked.
    pub(super) fn admit(&mut self, waiter: &Arc<Waiter>, admission: Admission) {
        waiter.assign(admission);
        self.woken.push(Arc::clone(waiter));
    }

    /// A thread has changed this lease: the worker comes to it when it needs that.
    pub(super) fn watch(&mut self, lease: &Arc<Lease>) {
        let due = lease.next_due(self.now);
        // Only ever earlier. A look that comes too early finds nothing due and is repeated; each one that is not
        // moved spares the lock of the task queue, and perhaps a wake-up, on the path of a lock.
        if due < lease.due() {
            self.watched.push((Arc::clone(lease), due));
        }
    }

    /// Nobody needs this lease any more.
    pub(super) fn forget(&mut self, lease: &Arc<Lease>) {
        lease.release();
        // Without a timer there is nothing to remove, and the lock of the task queue is not taken.
        if lease.due() != Moment::FAR {
            self.forgotten.push(Arc::clone(lease));
        }
    }

    /// Wakes the threads that were admitted.
    pub(super) fn wake(&self) {
        self.woken.iter().for_each(|waiter| {
            waiter.woken.notify_one();
        });
    }
}

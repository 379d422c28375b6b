//! One step of a slot's state machine: its inputs and its effects.

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::holder::HoldState;
use crate::engine::slot::waiter::{Admission, Waiter};

/// What an event may know besides the state, and the effects that the slot carries out afterwards.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) now: Moment,
    /// Whether the client listens, so that it would receive messages about waiters elsewhere.
    pub(super) hears: bool,
    /// Whether the client grants no lock any more.
    pub(super) closing: bool,
    /// Whether the client announces what lasts.
    pub(super) announces: bool,
    /// The threads to wake. Most events wake at most one, so the first needs no allocation.
    first: Option<Arc<Waiter>>,
    more: Vec<Arc<Waiter>>,
    /// Whether to wake the acquirer from its pause, so that it looks at the state again.
    pub(super) wakes_acquirer: bool,
    pub(super) next_check: NextCheck,
    /// Dropped once the slot is unlocked: it may have the last reference to the lease or to the slot.
    pub(super) dropped: Option<HoldState>,
    /// The same of leases.
    pub(super) leases: Vec<Arc<HeldLease>>,
}

/// When the worker has to check the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    /// As scheduled before.
    Unchanged,
    By(Moment),
    /// Instead of the moment that was scheduled before.
    At(Moment),
    Never,
}

impl Step {
    pub(super) fn new(now: Moment, hears: bool, closing: bool) -> Step {
        Step {
            now,
            hears,
            closing,
            announces: false,
            first: None,
            more: Vec::new(),
            wakes_acquirer: false,
            next_check: NextCheck::Unchanged,
            dropped: None,
            leases: Vec::new(),
        }
    }

    /// Admits a waiting thread, which is woken once the slot is unlocked.
    pub(super) fn admit(&mut self, waiter: &Arc<Waiter>, admission: Admission) {
        waiter.assign(admission);
        let waiter = Arc::clone(waiter);
        match &self.first {
            None => self.first = Some(waiter),
            Some(_) => self.more.push(waiter),
        }
    }

    /// Wakes the threads that were admitted.
    pub(super) fn wake(&self) {
        self.first.iter().chain(&self.more).for_each(|waiter| {
            waiter.woken.notify_one();
        });
    }
}

//! One step of a slot's state machine: what it may know, and what follows from it.

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::slot::holder::HoldState;
use crate::engine::slot::waiter::{Admission, Waiter};

/// What is known outside of the slot when an event comes, and what the slot does once that has changed its
/// state.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) now: Moment,
    /// Whether waiters elsewhere would be heard.
    pub(super) hears: bool,
    pub(super) shut_down: bool,
    /// Threads that were told something, which are to be woken. Most events wake one.
    first: Option<Arc<Waiter>>,
    more: Vec<Arc<Waiter>>,
    pub(super) wakes_acquirer: bool,
    pub(super) next_check: NextCheck,
    /// Dropped once the slot is unlocked: it may be the last reference to the lease or to the slot.
    pub(super) dropped: Option<HoldState>,
}

/// When the worker is to look at the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCheck {
    /// When it was going to.
    Unchanged,
    By(Moment),
    Never,
}

impl Step {
    pub(super) fn new(now: Moment, hears: bool, shut_down: bool) -> Step {
        Step {
            now,
            hears,
            shut_down,
            first: None,
            more: Vec::new(),
            wakes_acquirer: false,
            next_check: NextCheck::Unchanged,
            dropped: None,
        }
    }

    /// Tells a thread that waits.
    pub(super) fn admit(&mut self, waiter: &Arc<Waiter>, admission: Admission) {
        waiter.assign(admission);
        let waiter = Arc::clone(waiter);
        match &self.first {
            None => self.first = Some(waiter),
            Some(_) => self.more.push(waiter),
        }
    }

    /// Wakes the threads that were told something.
    pub(super) fn wake(&self) {
        self.first.iter().chain(&self.more).for_each(|waiter| {
            waiter.woken.notify_one();
        });
    }
}

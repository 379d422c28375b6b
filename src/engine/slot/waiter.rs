//! The threads that wait at a slot.

use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::lease::HeldLease;
use crate::engine::slot::attempt::Attempt;
use crate::engine::slot::wait_limit::WaitLimit;

/// What a thread is told at the slot.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is the acquirer now, with an attempt of this number. It must call [`Slot::granted`] or
    /// [`Slot::stop_acquiring`]. If it waits by notification, it leaves the lock to others until that moment.
    ///
    /// [`Slot::granted`]: crate::engine::slot::Slot::granted
    /// [`Slot::stop_acquiring`]: crate::engine::slot::Slot::stop_acquiring
    Acquire { number: u64, yield_until: Option<Moment> },
    /// The same, with the attempt of the acquirer before.
    TakeOver(Attempt),
    /// It has the lease.
    Held(Arc<HeldLease>),
    /// Somebody has the lock, and the thread will not wait longer.
    Busy(Option<Blocker>),
    /// The thread will not wait longer, and for so long Redis has not answered the acquirer.
    NoReply(Duration),
    /// The wait was called off.
    Cancelled,
}

/// What a thread wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnterRequest {
    pub(super) options: LockOptions,
    pub(super) wait_limit: WaitLimit,
    /// Of its attempt, should it make one.
    pub(super) number: u64,
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: EnterRequest,
    pub(super) woken: Condvar,
    /// Written once, under the slot's lock.
    admission: Mutex<Option<Admission>>,
}

impl Waiter {
    pub(super) fn new(request: EnterRequest) -> Waiter {
        Waiter { request, woken: Condvar::new(), admission: Mutex::new(None) }
    }

    /// What it was told, once.
    pub(super) fn take(&self) -> Option<Admission> {
        self.admission.lock().take()
    }

    pub(super) fn assign(&self, admission: Admission) {
        *self.admission.lock() = Some(admission);
    }
}

//! The threads that wait at a slot.

use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::hold::Hold;
use crate::engine::slot::attempt::Attempt;
use crate::engine::slot::wait_limit::WaitLimit;

/// What a slot tells a thread.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is the acquirer now, with an attempt of this number. It must call [`Slot::granted`] or
    /// [`Slot::stop_acquiring`]. If it waits by notification, it does not ask before `yield_until`.
    ///
    /// [`Slot::granted`]: crate::engine::slot::Slot::granted
    /// [`Slot::stop_acquiring`]: crate::engine::slot::Slot::stop_acquiring
    Acquire { number: u64, yield_until: Option<Moment> },
    /// The same, with the attempt of the previous acquirer. It asks after a pause.
    TakeOver(Attempt, Duration),
    /// It holds the lock.
    Held(Arc<Hold>),
    /// The same: Redis has granted a request that travelled with that of the acquirer.
    Granted(Arc<Hold>),
    /// It has a hold of an entry that threads share, and is the acquirer: it asks whether somebody waits. If so, it
    /// gives the hold back and acquires with an attempt of this number.
    Ask(Arc<Hold>, u64),
    /// Somebody has the lock, and the thread does not wait any longer.
    Busy(Option<Blocker>),
    /// As many threads wait here as the options of this one allow, so it does not. With the holder, if one is known.
    Crowded(Option<Blocker>),
    /// The thread does not wait any longer, and Redis has not replied to the acquirer for this long.
    NoReply(Duration),
    /// The same, and that is no silence: Redis has replied to other threads meanwhile, or this one was held up.
    NoTurn,
    /// The wait was cancelled.
    Cancelled,
}

/// What a thread asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnterRequest {
    pub(super) options: LockOptions,
    pub(super) wait_limit: WaitLimit,
    /// The number of its attempt, if it makes one.
    pub(super) number: u64,
}

/// A thread that waits for its admission.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: EnterRequest,
    /// One for each thread: a shared one would wake all waiters of the slot for each that is admitted.
    pub(super) woken: Condvar,
    /// Written once, and only accessed while the slot is locked. The mutex is never contended; it is
    /// there because the waiter is shared by its thread and the queue.
    admission: Mutex<Option<Admission>>,
}

impl Waiter {
    pub(super) fn new(request: EnterRequest) -> Waiter {
        Waiter { request, woken: Condvar::new(), admission: Mutex::new(None) }
    }

    /// Takes the admission, if there is one.
    pub(super) fn take(&self) -> Option<Admission> {
        self.admission.lock().take()
    }

    pub(super) fn assign(&self, admission: Admission) {
        *self.admission.lock() = Some(admission);
    }
}

//! The threads that wait at a slot.

use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::lease::LiveLease;
use crate::engine::slot::bid::Bid;
use crate::engine::slot::patience::Patience;

/// What a thread is told at the slot.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is the acquirer now, with an attempt of this number. It must call [`Slot::granted`] or
    /// [`Slot::stop_acquiring`]. If it waits by notification, it leaves the lock to others until that moment.
    ///
    /// [`Slot::granted`]: crate::engine::slot::Slot::granted
    /// [`Slot::stop_acquiring`]: crate::engine::slot::Slot::stop_acquiring
    Acquire { number: u64, left_until: Option<Moment> },
    /// The same, with the attempt of the acquirer before.
    TakeOver(Bid),
    /// It has the lease.
    Held(Arc<LiveLease>),
    /// Somebody has the lock, and the thread will not wait longer.
    Busy(Option<Blocker>),
    /// The thread will not wait longer, and for so long Redis has not answered the acquirer.
    Unanswered(Duration),
    /// The wait was called off.
    Cancelled,
}

/// What a thread wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) options: LockOptions,
    pub(super) patience: Patience,
    /// Of its attempt, should it make one.
    pub(super) number: u64,
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: Request,
    pub(super) woken: Condvar,
    /// Written once, under the slot's lock.
    turn: Mutex<Option<Turn>>,
}

impl Waiter {
    pub(super) fn new(request: Request) -> Waiter {
        Waiter { request, woken: Condvar::new(), turn: Mutex::new(None) }
    }

    /// What it was told, once.
    pub(super) fn take(&self) -> Option<Turn> {
        self.turn.lock().take()
    }

    pub(super) fn assign(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
    }
}

//! The threads that wait at a slot.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{self, Arc, AtomicBool, Condvar, Mutex, Ordering};
use crate::engine::lease::LiveLease;
use crate::engine::slot::bid::Bid;
use crate::engine::slot::patience::Patience;

/// How often it looks for its turn before it sleeps again.
const LOOKS: u32 = 32;

/// What a thread was told at the slot.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is the delegate now, perhaps with the place of the one before, and must call
    /// [`Slot::granted`] or [`Slot::vacate`]. With it comes how many cancellations there had been
    /// when it came.
    ///
    /// [`Slot::granted`]: crate::engine::slot::Slot::granted
    /// [`Slot::vacate`]: crate::engine::slot::Slot::vacate
    Delegate(Option<Bid>, u64),
    /// It has the lease.
    Held(Arc<LiveLease>),
    /// Somebody has the lock, and the thread will not wait longer.
    Busy,
    /// The thread will not wait longer, and for so long Redis has not answered the delegate.
    Unanswered(Duration),
    /// The wait was called off.
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) patience: Patience,
    pub(super) options: LockOptions,
    /// How many cancellations there had been when it came.
    pub(super) cancellations: u64,
    pub(super) woken: Condvar,
    /// Written once, under the slot's lock.
    pub(super) turn: Mutex<Option<Turn>>,
    /// Whether `turn` has been written.
    pub(super) told: AtomicBool,
    /// Whether its turn is about to come.
    pub(super) soon: AtomicBool,
}

impl Waiter {
    pub(super) fn assign(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
        self.told.store(true, Ordering::Release);
    }

    /// Looks for its turn for a moment.
    pub(super) fn look_out(&self) {
        for _ in 0..LOOKS {
            if self.told.load(Ordering::Acquire) {
                break;
            }
            sync::yield_now();
        }
    }

    pub(super) fn tell(&self, turn: Turn) {
        self.assign(turn);
        self.woken.notify_one();
    }
}

pub(super) fn refuse_the_hasty(queue: &mut VecDeque<Arc<Waiter>>) {
    queue.retain(|waiter| {
        let hasty = waiter.patience == Patience::Once;
        if hasty {
            waiter.tell(Turn::Busy);
        }
        !hasty
    });
}

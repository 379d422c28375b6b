//! One name in one process: whose turn it is among its threads.
//!
//! | state | meaning | goes to |
//! | --- | --- | --- |
//! | free | nobody here has it or wants it | trying |
//! | trying | one thread, the delegate, asks Redis | held, free |
//! | held | a thread has the lease | releasing, free (lost) |
//! | releasing | a thread gives it back | free |
//!
//! Where others wait, *free* is left at once: the first of them becomes the delegate. They wait in
//! the order in which they came. A thread that wants only one attempt waits for no holder, but it
//! waits for the delegate's answer or for a release under way: before those it could not tell
//! "somebody has it" from "Redis is down".

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::protocol::Target;

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One attempt.
    Once,
    /// Until a moment; [`Moment::FAR`] is without end.
    Until(Moment),
}

/// What a thread was told at the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the delegate now, and must call [`Slot::granted`] or [`Slot::leave`].
    Delegate,
    /// Somebody has the lock, and the thread will not wait longer.
    Busy,
    /// The wait was called off.
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Trying { told_busy: bool },
    Held,
    Releasing,
}

#[derive(Debug)]
struct Waiter {
    once: bool,
    woken: Condvar,
    /// Written once, under the slot's lock.
    turn: Mutex<Option<Turn>>,
}

impl Waiter {
    fn tell(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
        self.woken.notify_one();
    }
}

#[derive(Debug)]
struct Inner {
    state: State,
    queue: VecDeque<Arc<Waiter>>,
    /// Grows with every cancellation, so that a delegate sees one that came during its pause.
    cancellations: u64,
}

/// One name, one kind, one client.
#[derive(Debug)]
pub(crate) struct Slot {
    engine: Arc<Engine>,
    target: Arc<Target>,
    inner: Mutex<Inner>,
    /// Where the delegate pauses.
    pause: Condvar,
}

impl Slot {
    pub(crate) fn new(engine: Arc<Engine>, target: Arc<Target>) -> Slot {
        let inner = Inner { state: State::Free, queue: VecDeque::new(), cancellations: 0 };
        Slot { engine, target, inner: Mutex::new(inner), pause: Condvar::new() }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Waits for this thread's turn to ask Redis.
    pub(crate) fn enter(&self, patience: Patience) -> Turn {
        let mut inner = self.inner.lock();
        match inner.state {
            State::Free => {
                inner.state = State::Trying { told_busy: false };
                return Turn::Delegate;
            }
            State::Held | State::Trying { told_busy: true } if patience == Patience::Once => {
                return Turn::Busy;
            }
            _ => {}
        }
        let waiter = Arc::new(Waiter {
            once: patience == Patience::Once,
            woken: Condvar::new(),
            turn: Mutex::new(None),
        });
        inner.queue.push_back(Arc::clone(&waiter));
        let deadline = match patience {
            // What it waits for is bounded by the exchange under way.
            Patience::Once => Moment::FAR,
            Patience::Until(deadline) => deadline,
        };
        self.wait(inner, &waiter, deadline)
    }

    fn wait(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        waiter: &Arc<Waiter>,
        deadline: Moment,
    ) -> Turn {
        loop {
            if let Some(turn) = *waiter.turn.lock() {
                return turn;
            }
            if deadline == Moment::FAR {
                waiter.woken.wait(&mut inner);
                continue;
            }
            let left = deadline.since(self.engine.now());
            if left.is_zero() {
                inner.queue.retain(|other| !Arc::ptr_eq(other, waiter));
                return Turn::Busy;
            }
            waiter.woken.wait_for(&mut inner, left);
        }
    }

    /// The delegate was told that another process has the lock: who wants one attempt only has
    /// had it.
    pub(crate) fn told_busy(&self) {
        let mut inner = self.inner.lock();
        inner.state = State::Trying { told_busy: true };
        refuse_the_hasty(&mut inner.queue);
    }

    /// The delegate pauses. Answers whether it was called off meanwhile.
    pub(crate) fn pause(&self, span: Duration, seen: &mut u64) -> bool {
        let mut inner = self.inner.lock();
        if inner.cancellations == *seen {
            self.pause.wait_for(&mut inner, span);
        }
        let called_off = inner.cancellations != *seen;
        *seen = inner.cancellations;
        called_off
    }

    /// How many cancellations there were so far.
    pub(crate) fn cancellations(&self) -> u64 {
        self.inner.lock().cancellations
    }

    /// The delegate has the lease now.
    pub(crate) fn granted(&self) {
        let mut inner = self.inner.lock();
        inner.state = State::Held;
        refuse_the_hasty(&mut inner.queue);
    }

    /// The delegate goes without the lease, or the lease has ended: the next thread has its turn.
    pub(crate) fn vacate(&self) {
        let mut inner = self.inner.lock();
        inner.state = match inner.queue.pop_front() {
            Some(next) => {
                next.tell(Turn::Delegate);
                State::Trying { told_busy: false }
            }
            None => State::Free,
        };
    }

    /// The holder gives the lease back.
    pub(crate) fn releasing(&self) {
        self.inner.lock().state = State::Releasing;
    }

    /// Calls off all waits of this process for this name. Answers how many there were.
    pub(crate) fn cancel(&self) -> usize {
        let mut inner = self.inner.lock();
        let waiting = inner.queue.drain(..).map(|waiter| waiter.tell(Turn::Cancelled)).count();
        inner.cancellations += 1;
        let paused = self.pause.notify_all();
        waiting + usize::from(paused > 0)
    }
}

fn refuse_the_hasty(queue: &mut VecDeque<Arc<Waiter>>) {
    queue.retain(|waiter| {
        if waiter.once {
            waiter.tell(Turn::Busy);
        }
        !waiter.once
    });
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.engine.forget(&self.target);
    }
}

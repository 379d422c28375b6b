//! The time of the model.
//!
//! Time stands still while threads run, except for a microsecond at each reading. When no thread
//! can run, it moves to the next moment for which a thread waits. In a scenario with hurried time
//! it may also move earlier: then a wait ends although its event is about to come.
//!
//! The first thread of an execution keeps the time. The scheduler lets it run only when time is to
//! move.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

use crate::base::time::{Clock, Moment};

/// The first moment of an execution.
const START: u64 = 1_000_000_000_000;
/// The time that passes with each reading of the clock. Without it, a loop that waits for a moment
/// by reading the clock would never end.
const POLL_INTERVAL: u64 = 1_000;
/// Moments that are no further apart come together, so that their threads race.
const TOGETHER: u64 = 2_000_000;

// All threads of an execution share one real thread, so this is theirs.
std::thread_local! {
    static TIME: RefCell<Time> = const { RefCell::new(Time::new()) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
    static MOVING: Cell<bool> = const { Cell::new(false) };
}

struct Time {
    now: u64,
    /// The waiting threads by moment, and then by order of arrival.
    sleepers: BTreeMap<(u64, u64), Arc<Event>>,
    came: u64,
}

impl Time {
    const fn new() -> Time {
        Time { now: START, sleepers: BTreeMap::new(), came: 0 }
    }

    /// Moves to the next moment for which a thread waits. Returns the waits that are over.
    fn advance(&mut self) -> Vec<Arc<Event>> {
        let mut over = Vec::new();
        let mut end = u64::MAX;
        while let Some(sleeper) = self.sleepers.first_entry()
            && sleeper.key().0 <= end
        {
            let ((moment, _), event) = sleeper.remove_entry();
            // A wait that was notified before keeps its entry here; it must not move the time.
            if event.end(TIMED_OUT) {
                self.now = self.now.max(moment);
                end = end.min(moment.saturating_add(TOGETHER));
                over.push(event);
            }
        }
        over
    }
}

const WAITING: u8 = 0;
const NOTIFIED: u8 = 1;
const TIMED_OUT: u8 = 2;

/// A single wait of one thread.
#[derive(Debug)]
pub(super) struct Event {
    state: AtomicU8,
    over: BatchSemaphore,
}

impl Event {
    pub(super) fn new() -> Arc<Event> {
        let over = BatchSemaphore::new(0, Fairness::StrictlyFair);
        Arc::new(Event { state: AtomicU8::new(WAITING), over })
    }

    fn is_waiting(&self) -> bool {
        // Relaxed, and a load and a store instead of a swap below: all modelled threads share one
        // real thread, and the checker cannot switch between the two.
        self.state.load(Ordering::Relaxed) == WAITING
    }

    fn end(&self, how: u8) -> bool {
        let ends = self.is_waiting();
        if ends {
            self.state.store(how, Ordering::Relaxed);
        }
        ends
    }

    /// Ends the wait. Returns whether it was not over before.
    pub(super) fn notify(&self) -> bool {
        let notified = self.end(NOTIFIED);
        if notified {
            self.over.release(1);
        }
        notified
    }

    /// Waits for the notification. Returns false if the time was over first.
    pub(super) fn wait(&self) -> bool {
        let _ = self.over.acquire_blocking(1);
        self.state.load(Ordering::Relaxed) == NOTIFIED
    }
}

/// Ends a wait when this span is over. A wait that is too long for the clock never ends.
pub(super) fn limit(event: &Arc<Event>, span: Duration) {
    TIME.with_borrow_mut(|time| {
        let end = Moment::from_nanos(time.now).after(span);
        if end != Moment::FAR {
            time.came += 1;
            time.sleepers.insert((end.as_nanos(), time.came), Arc::clone(event));
        }
    });
}

/// Lets the checker switch to another thread.
pub(super) fn switch() {
    shuttle::thread::sleep(Duration::ZERO);
}

pub(super) fn sleep(span: Duration) {
    if span.is_zero() {
        return switch();
    }
    let event = Event::new();
    limit(&event, span);
    event.wait();
}

/// The clock of the model.
#[derive(Debug)]
pub(crate) struct ModelClock;

impl Clock for ModelClock {
    fn now(&self) -> Moment {
        TIME.with_borrow_mut(|time| {
            time.now += POLL_INTERVAL;
            Moment::from_nanos(time.now)
        })
    }
}

/// How long this execution has lasted in its own time.
pub(crate) fn passed() -> Duration {
    TIME.with_borrow(|time| Duration::from_nanos(time.now - START))
}

/// Begins the time of an execution.
pub(crate) fn begin() {
    // Dropped outside the borrow: the events of a failed execution may take the time again.
    let _old = TIME.replace(Time::new());
    MOVING.set(false);
}

/// Whether a thread waits for a moment within this span.
pub(crate) fn is_awaited(within: Duration) -> bool {
    TIME.with_borrow_mut(|time| {
        let end = Moment::from_nanos(time.now).after(within).as_nanos();
        while let Some(sleeper) = time.sleepers.first_entry() {
            if sleeper.get().is_waiting() {
                return sleeper.key().0 <= end;
            }
            sleeper.remove();
        }
        false
    })
}

/// Set by the scheduler: whether only the thread that keeps the time can run.
pub(crate) fn set_alone(alone: bool) {
    ALONE.set(alone);
}

/// Whether waits are being ended, which is one step for the scheduler.
pub(crate) fn is_moving() -> bool {
    MOVING.get()
}

/// Keeps the time until no thread runs or waits for a moment, up to `most`.
pub(crate) fn keep(most: Duration) {
    loop {
        switch();
        let over = TIME.with_borrow_mut(Time::advance);
        if over.is_empty() && ALONE.get() {
            return;
        }
        // Without a switch in between, so that all of these threads can run next, in any order.
        MOVING.set(true);
        for event in over {
            event.over.release(1);
        }
        MOVING.set(false);
        assert!(passed() < most, "the scenario has not ended after {most:?} of its time");
    }
}

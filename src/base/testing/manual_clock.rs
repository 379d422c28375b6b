//! A clock that tests drive. It stands still or runs by itself, and a test can put it forward.
//!
//! A thread that waits on it sleeps for a real millisecond at a time, and then checks the clock
//! again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::{BootClock, Clock, Moment};

/// How often a waiting thread checks the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A clock that tests drive.
pub(crate) struct ManualClock(Mutex<State>);

struct State {
    shown: Moment,
    /// When it showed that moment; only for a clock that runs by itself.
    since: Option<Moment>,
    /// The moments for which threads wait.
    waiting: BTreeMap<u64, Moment>,
    last: u64,
}

impl State {
    fn now(&self) -> Moment {
        match self.since {
            Some(since) => self.shown.after(BootClock.now().since(since)),
            None => self.shown,
        }
    }
}

impl ManualClock {
    /// The first moment that it shows: far enough from zero that no subtraction saturates.
    pub(crate) const START: Moment = Moment::from_nanos(1_000_000_000_000_000);

    /// A clock that runs by itself, or one that stands still.
    pub(crate) fn new(goes: bool) -> ManualClock {
        let since = goes.then(|| BootClock.now());
        ManualClock(Mutex::new(State {
            shown: ManualClock::START,
            since,
            waiting: BTreeMap::new(),
            last: 0,
        }))
    }

    /// Puts the clock forward to a moment. It never goes back.
    pub(crate) fn put_forward(&self, moment: Moment) {
        let mut state = self.0.lock();
        if state.now() < moment {
            state.shown = moment;
            state.since = state.since.map(|_| BootClock.now());
        }
    }

    /// The next moment for which a thread waits.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.0.lock().waiting.values().min().copied()
    }

    /// How many threads wait, and how many of them for a moment that has come.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = self.0.lock();
        let now = state.now();
        (state.waiting.len(), state.waiting.values().filter(|until| **until <= now).count())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.0.lock().now()
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        let mut state = self.0.lock();
        let left = until.since(state.now());
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, until);
        // Not held during the wait, in which other threads read the clock. The entry is removed by
        // a destructor, since `wait` may panic in a test, and a forgotten entry would stop time for
        // all.
        drop(state);
        let _dozer = ClockWaiter { clock: self, number };
        // Short real sleeps instead of a condition variable: `wait` releases a mutex of the caller,
        // so that the clock has nothing that it could notify.
        wait(left.min(POLL_INTERVAL));
    }
}

/// A thread while it waits.
struct ClockWaiter<'a> {
    clock: &'a ManualClock,
    number: u64,
}

impl Drop for ClockWaiter<'_> {
    fn drop(&mut self) {
        self.clock.0.lock().waiting.remove(&self.number);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DrivenClock({:?})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn standing_clock_moves_only_when_put_forward() {
        let clock = ManualClock::new(false);
        let first = clock.now();
        std::thread::sleep(POLL_INTERVAL);
        assert_eq!(clock.now(), first);
        clock.put_forward(first.after(HOUR));
        assert_eq!(clock.now(), first.after(HOUR));
        clock.put_forward(first);
        assert_eq!(clock.now(), first.after(HOUR), "never back");
    }

    #[test]
    fn running_clock_can_be_put_forward() {
        let clock = ManualClock::new(true);
        let first = clock.now();
        clock.put_forward(first.after(HOUR));
        let then = clock.now();
        std::thread::sleep(POLL_INTERVAL);
        assert!(then >= first.after(HOUR) && clock.now() > then);
    }

    #[test]
    fn waiting_thread_is_counted_and_wakes_when_due() {
        let clock = ManualClock::new(false);
        let until = clock.now().after(HOUR);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while clock.now() < until {
                    clock.wait_until(until, &mut std::thread::sleep);
                }
            });
            while clock.next_due() != Some(until) {
                std::thread::yield_now();
            }
            clock.put_forward(until);
            sleeper.join().unwrap();
        });
        assert_eq!((clock.next_due(), clock.waiting()), (None, (0, 0)));
    }
}

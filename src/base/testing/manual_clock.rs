//! A clock that tests drive. It stands still or runs by itself, and a test can put it forward.
//!
//! A thread that waits on it sleeps for a real millisecond at a time, and then checks the clock
//! again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::{BootClock, Clock, Moment};

/// How often a waiting thread checks the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A call takes less of a processor than this from one look at the clock to the next.
const TURN: Duration = Duration::from_millis(10);

/// A clock that tests drive.
pub(crate) struct ManualClock(Mutex<State>);

struct State {
    shown: Moment,
    /// When it showed that moment; only for a clock that runs by itself.
    since: Option<Moment>,
    /// The threads that wait, and for which moments.
    waiting: BTreeMap<u64, (Moment, Option<processor::Thread>)>,
    last: u64,
    /// The threads that read it, and the processor time that each had when it was first seen to run since then.
    readers: HashMap<processor::Thread, Option<Duration>>,
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
            readers: HashMap::new(),
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
        self.0.lock().waiting.values().map(|(until, _)| *until).min()
    }

    /// Whether a thread waits for this moment.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self, moment: Moment) -> bool {
        self.0.lock().waiting.values().any(|(until, _)| *until == moment)
    }

    /// How many threads wait, and how many of them for a moment that has come.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let state = self.0.lock();
        let now = state.now();
        (state.waiting.len(), state.waiting.values().filter(|(until, _)| *until <= now).count())
    }

    /// The number of the last look of a thread that waits.
    pub(crate) fn last_look(&self) -> u64 {
        self.0.lock().last
    }

    /// Whether each thread that waits has looked at the clock since that look, and so at all that it waits for besides.
    pub(crate) fn have_all_looked_since(&self, look: u64) -> bool {
        self.0.lock().waiting.keys().next().is_none_or(|first| *first > look)
    }

    /// Whether a thread that has read it runs, or waits for a processor, and so has more to do before time may pass.
    ///
    /// One that has had a processor for [`TURN`] since it read the clock does something else by now.
    pub(crate) fn has_running_reader(&self) -> bool {
        let this = processor::this_thread();
        let readers: Vec<_> = {
            let State { readers, waiting, .. } = &*self.0.lock();
            // A thread that waits runs now and then to look at the clock.
            let rest: BTreeSet<_> =
                waiting.values().filter_map(|(_, thread)| *thread).chain(this).collect();
            readers.keys().filter(|thread| !rest.contains(thread)).copied().collect()
        };
        // Without the lock: a thread that reads the clock meanwhile would wait for it, and look like one that sleeps.
        let states: Vec<_> = readers.into_iter().map(|it| (it, processor::state(it))).collect();
        let readers = &mut self.0.lock().readers;
        let mut runs = false;
        for (thread, state) in states {
            match state {
                None => _ = readers.remove(&thread),
                Some(processor::State::Sleeps) => {}
                Some(processor::State::Runs(had)) => {
                    let first = *readers.entry(thread).or_default().get_or_insert(had);
                    runs |= had.saturating_sub(first) < TURN;
                }
            }
        }
        runs
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        let mut state = self.0.lock();
        if let Some(thread) = processor::this_thread() {
            state.readers.insert(thread, None);
        }
        state.now()
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        let mut state = self.0.lock();
        let left = until.since(state.now());
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, (until, processor::this_thread()));
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

/// What the system says of the threads of this process.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod processor {
    use std::fs;
    use std::time::Duration;

    /// Its number.
    pub(super) type Thread = i32;

    pub(super) enum State {
        Sleeps,
        /// It runs or waits for a processor, and has had one for so long in all.
        Runs(Duration),
    }

    pub(super) fn this_thread() -> Option<Thread> {
        Some(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Returns `None` for a thread that has ended.
    pub(super) fn state(thread: Thread) -> Option<State> {
        let read = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
        // The name of a thread is in parentheses and may have more of them.
        let stat = read("stat")?;
        // `D` waits for memory or a disk, and runs again by itself.
        if !stat.rsplit(')').next()?.trim_start().starts_with(['R', 'D']) {
            return Some(State::Sleeps);
        }
        let had = read("schedstat").and_then(|text| text.split(' ').next()?.parse().ok());
        // A system that does not tell how long leaves it to the looks.
        Some(had.map_or(State::Sleeps, |nanos| State::Runs(Duration::from_nanos(nanos))))
    }
}

/// Other systems say nothing.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod processor {
    use std::time::Duration;

    pub(super) type Thread = i32;

    #[allow(dead_code, reason = "nothing says so here")]
    pub(super) enum State {
        Sleeps,
        Runs(Duration),
    }

    pub(super) fn this_thread() -> Option<Thread> {
        None
    }

    pub(super) fn state(_thread: Thread) -> Option<State> {
        None
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_reader_that_runs_is_waited_for_until_it_has_had_its_turn() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let (clock, stage) = (ManualClock::new(false), AtomicU32::new(0));
        let wait_for = |number| {
            while stage.load(Ordering::SeqCst) < number {
                std::thread::sleep(POLL_INTERVAL);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(1);
                clock.now();
                stage.store(2, Ordering::SeqCst);
                while stage.load(Ordering::SeqCst) < 3 {}
                wait_for(4);
            });
            assert!(!clock.has_running_reader(), "it has not read it");
            stage.store(1, Ordering::SeqCst);
            wait_for(2);
            assert!(clock.has_running_reader(), "it has just read it");
            while clock.has_running_reader() {
                std::thread::sleep(POLL_INTERVAL);
            }
            clock.now();
            assert!(!clock.has_running_reader(), "a thread does not wait for itself");
            stage.store(3, Ordering::SeqCst);
            stage.store(4, Ordering::SeqCst);
        });
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

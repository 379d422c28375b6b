//! Waits for what must come, and turns for tests that need the whole machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::lag::{self, Spent};
use crate::watchdog;

/// The longest that a test waits for what must come, besides the time that its machine does not run at all.
const SOON: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Polls until it is so.
///
/// # Panics
///
/// If it is not so within a minute, besides the time that the machine did not run at all.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    within(SOON, what, condition);
}

/// Polls until it is so, and returns how long that took, less what the machine took.
///
/// # Panics
///
/// If it is not so within the limit, besides the time that the machine did not run at all.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    lag::watch();
    let begin = Instant::now();
    while !condition() {
        let late = begin.elapsed() >= limit && begin.spent() >= limit;
        assert!(!late, "not within {limit:?}: {what}");
        thread::sleep(POLL);
    }
    begin.spent()
}

/// The turn of a test that takes the whole machine for a while: thousands of locks or waiters, a hundred thousand keys,
/// many threads or processes.
///
/// Such tests run one at a time, as two of them would starve each other and all that run beside them.
pub fn heavy() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    watchdog::watch();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

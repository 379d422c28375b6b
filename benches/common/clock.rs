//! A clock that all processes of the machine share.

use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, in ns.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until that moment.
pub(crate) fn sleep_until(moment: u64) {
    thread::sleep(Duration::from_nanos(moment.saturating_sub(now())));
}

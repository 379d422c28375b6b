//! How long the machine kept threads from a processor, for bounds on the time that something takes.

use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const PAUSE: Duration = Duration::from_millis(5);
/// Who is woken later than this was kept waiting.
const LATE: Duration = Duration::from_millis(2);

/// The times in which some processor was not to be had, in no order.
static LAGS: Mutex<Vec<(Instant, Instant)>> = Mutex::new(Vec::new());

/// Begins to watch the processors that this process may use, for as long as it lives; once is enough.
///
/// A thread on each of them asks for little and often, so that it is late only if all are.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        for number in (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)) {
            thread::spawn(move || watch_processor(number));
        }
    });
}

/// Time spent, as a bound on it is to count it: less what the machine took.
pub trait Spent {
    /// Returns how long it is since then.
    fn spent(self) -> Duration;

    /// Returns how long it was from then until this.
    fn spent_since(self, begin: Instant) -> Duration;
}

impl Spent for Instant {
    fn spent(self) -> Duration {
        Instant::now().spent_since(self)
    }

    fn spent_since(self, begin: Instant) -> Duration {
        self.saturating_duration_since(begin).saturating_sub(between(begin, self))
    }
}

/// Returns how much of the time between these two was lost, on any processor, since [`watch`].
fn between(begin: Instant, end: Instant) -> Duration {
    let mut lags = LAGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    lags.retain(|lag| lag.1 > begin && lag.0 < end);
    sum(lags, begin, end)
}

/// What several saw counts once.
fn sum(mut lags: Vec<(Instant, Instant)>, begin: Instant, end: Instant) -> Duration {
    lags.sort_unstable();
    let (mut sum, mut counted) = (Duration::ZERO, begin);
    for (from, to) in lags {
        let (from, to) = (from.max(counted), to.min(end));
        sum += to.saturating_duration_since(from);
        counted = counted.max(to);
    }
    sum
}

fn watch_processor(number: usize) {
    let mut only = CpuSet::new();
    only.set(number);
    // Where that is not allowed it watches whatever it runs on.
    let _ = sched_setaffinity(None, &only);
    loop {
        let due = Instant::now() + PAUSE;
        thread::sleep(PAUSE);
        let at = Instant::now();
        if at > due + LATE {
            LAGS.lock().unwrap_or_else(PoisonError::into_inner).push((due, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_saw_counts_once_and_only_within_the_time_asked_for() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let lags = vec![(at(30), at(50)), (at(0), at(20)), (at(40), at(45)), (at(10), at(35))];
        assert_eq!(sum(lags.clone(), at(0), at(100)), Duration::from_millis(50));
        assert_eq!(sum(lags.clone(), at(5), at(32)), Duration::from_millis(27));
        assert_eq!(sum(lags, at(60), at(70)), Duration::ZERO);
        assert_eq!(sum(Vec::new(), at(0), at(9)), Duration::ZERO);
    }
}

//! How long the machine kept threads from a processor, for bounds on the time that something takes.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::processor;

const PAUSE: Duration = Duration::from_millis(5);
/// A thread that is woken later than this had to wait for a processor.
const LATE: Duration = Duration::from_millis(2);

/// The observations of the watching threads.
static SEEN: Mutex<Seen> = Mutex::new(Seen { lags: Vec::new(), due: Vec::new() });

struct Seen {
    /// The times in which some processor was withheld, in no order.
    lags: Vec<(Instant, Instant)>,
    /// When each watching thread is due next. A late one may not have reported its lateness yet.
    due: Vec<Instant>,
}

impl Seen {
    /// Includes delays that last until now.
    fn lags(&self, now: Instant) -> Vec<(Instant, Instant)> {
        let late = self.due.iter().filter(|due| now > **due + LATE).map(|due| (*due, now));
        self.lags.iter().copied().chain(late).collect()
    }
}

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch the processors that this process may use, for as long as it lives; once is
/// enough.
///
/// A thread on each of them asks for little and often, so that it is late only if all are.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        for number in processor::allowed() {
            let mut seen = seen();
            seen.due.push(Instant::now() + PAUSE);
            let index = seen.due.len() - 1;
            thread::spawn(move || watch_processor(number, index));
        }
    });
}

/// Time spent, without the time in which the machine withheld processors: the time that a bound
/// counts.
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

/// Returns the longest time since then for which some processor was not to be had.
pub fn worst_since(begin: Instant) -> Duration {
    let lags = seen().lags(Instant::now());
    let recent = lags.into_iter().filter(|(_, to)| *to > begin);
    recent.map(|(from, to)| to.saturating_duration_since(from)).max().unwrap_or_default()
}

/// Returns the longest time for which some processor was not to be had, of those that began before `end` and were over
/// after `begin`: a machine may stand still through the end of what is measured, with all who would notice.
pub fn worst_between(begin: Instant, end: Instant) -> Duration {
    worst_of(seen().lags(Instant::now()), begin, end)
}

fn worst_of(lags: Vec<(Instant, Instant)>, begin: Instant, end: Instant) -> Duration {
    let between = lags.into_iter().filter(|(from, to)| *to > begin && *from < end);
    between.map(|(from, to)| to.saturating_duration_since(from)).max().unwrap_or_default()
}

/// Returns how much of the time between these two was lost, on any processor, since [`watch`].
fn between(begin: Instant, end: Instant) -> Duration {
    let mut lags = seen().lags(Instant::now());
    lags.retain(|lag| lag.1 > begin && lag.0 < end);
    sum(lags, begin, end)
}

/// Overlapping times count once.
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

fn watch_processor(number: usize, index: usize) {
    // Without that permission it watches the processor that it happens to run on.
    let _ = processor::pin(&[number]);
    let mut due = seen().due[index];
    loop {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut seen = seen();
        let at = Instant::now();
        if at > due + LATE {
            seen.lags.push((due, at));
        }
        due = at + PAUSE;
        seen.due[index] = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_thread_counts_before_it_reports() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let seen = Seen { lags: vec![(at(1), at(4))], due: vec![at(10), at(29)] };
        assert_eq!(seen.lags(at(30)), [(at(1), at(4)), (at(10), at(30))]);
        assert_eq!(seen.lags(at(11)), [(at(1), at(4))]);
    }

    #[test]
    fn lag_counts_that_began_before_the_end() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let lags = vec![(at(0), at(9)), (at(20), at(60)), (at(70), at(200))];
        assert_eq!(worst_of(lags.clone(), at(10), at(30)), Duration::from_millis(40));
        assert_eq!(worst_of(lags.clone(), at(10), at(20)), Duration::ZERO);
        assert_eq!(worst_of(lags, at(5), at(71)), Duration::from_millis(130));
    }

    #[test]
    fn overlapping_lags_count_once_within_the_time_asked_for() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        let lags = vec![(at(30), at(50)), (at(0), at(20)), (at(40), at(45)), (at(10), at(35))];
        assert_eq!(sum(lags.clone(), at(0), at(100)), Duration::from_millis(50));
        assert_eq!(sum(lags.clone(), at(5), at(32)), Duration::from_millis(27));
        assert_eq!(sum(lags, at(60), at(70)), Duration::ZERO);
        assert_eq!(sum(Vec::new(), at(0), at(9)), Duration::ZERO);
    }
}

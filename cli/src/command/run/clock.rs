//! Moments on a clock that counts through suspend, and waits that end on it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// No wait is longer, so that each waiting thread looks at the clock now and then.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A point in time that all processes of this machine agree on, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The present, on a clock that does not stand still while the machine sleeps: the lease in Redis does not
    /// either.
    pub(crate) fn now() -> Moment {
        #[cfg(target_os = "linux")]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn after(self, span: Duration) -> Moment {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    pub(crate) fn before(self, span: Duration) -> Moment {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_sub(nanos))
    }

    /// The span from `earlier` to this moment; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Waits for input on any of these, or until the moment. It may return earlier.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Ends a wait on time even if the machine slept meanwhile: the time-out of `poll` stands still then.
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Waiter {
    pub(crate) fn new() -> std::io::Result<Waiter> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Waiter { timer: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    pub(crate) fn wait(&self, inputs: &[BorrowedFd<'_>], until: Moment) -> std::io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
        use std::os::fd::AsFd as _;
        // A moment of zero would stop the timer.
        let value = timespec(Duration::from_nanos(until.as_nanos().max(1)));
        let none = timespec(Duration::ZERO);
        let value = Itimerspec { it_interval: none, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)?;
        let timer = [self.timer.as_fd()];
        wait_for(inputs.iter().chain(&timer), LONGEST_WAIT)
    }
}

#[cfg(not(target_os = "linux"))]
impl Waiter {
    pub(crate) fn new() -> std::io::Result<Waiter> {
        Ok(Waiter {})
    }

    pub(crate) fn wait(&self, inputs: &[BorrowedFd<'_>], until: Moment) -> std::io::Result<()> {
        // Signals and children are no inputs here: they are looked for this often.
        const TICK: Duration = Duration::from_millis(10);
        wait_for(inputs.iter(), until.since(Moment::now()).min(TICK).min(LONGEST_WAIT))
    }
}

fn wait_for<'a>(
    inputs: impl Iterator<Item = &'a BorrowedFd<'a>>,
    longest: Duration,
) -> std::io::Result<()> {
    let mut inputs: Vec<_> = inputs.map(|input| PollFd::new(input, PollFlags::IN)).collect();
    match poll(&mut inputs, Some(&timespec(longest))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether there is input, or its end. It does not wait.
pub(crate) fn is_ready(input: BorrowedFd<'_>) -> bool {
    let mut inputs = [PollFd::new(&input, PollFlags::IN)];
    poll(&mut inputs, Some(&timespec(Duration::ZERO))).is_ok_and(|ready| ready > 0)
}

fn timespec(span: Duration) -> Timespec {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: span.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_at_the_moment_or_before() {
        let waiter = Waiter::new().expect("a timer");
        let begin = Moment::now();
        for until in [Moment::from_nanos(0), begin, begin.after(Duration::from_millis(20))] {
            waiter.wait(&[], until).expect("a wait");
        }
        assert!(Moment::now().since(begin) < LONGEST_WAIT, "the timer ended it");
    }

    #[test]
    fn far_moments_saturate() {
        let now = Moment::now();
        assert_eq!(now.after(Duration::MAX), Moment::from_nanos(u64::MAX));
        assert_eq!(now.before(Duration::MAX), Moment::from_nanos(0));
        assert_eq!(now.since(now.after(Duration::MAX)), Duration::ZERO);
    }
}

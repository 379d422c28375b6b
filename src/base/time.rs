//! Time on the holder's own clock: one that only goes forward and counts through suspend.
//!
//! Wall clocks are never used: they can be set. All arithmetic saturates: a moment too far away is
//! [`Moment::FAR`], which no clock reaches.

mod atomic_moment;

use std::fmt;
use std::time::{Duration, Instant};

pub(crate) use atomic_moment::AtomicMoment;

/// The clocks of two machines may drift apart by this fraction of the measured time…
const DRIFT_FRACTION: u32 = 100;
/// …and this is the precision of expiry at the server.
const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// The part of a span that must not be relied on: 1 % + 2 ms.
pub(crate) fn drift_allowance(span: Duration) -> Duration {
    // A fraction and a floor: a fraction alone would allow almost nothing for a short lease, whose expiry
    // Redis still checks by whole milliseconds.
    span / DRIFT_FRACTION + DRIFT_FLOOR
}

/// A point on the [`Clock`], in nanoseconds; by default [`PAST`](Moment::PAST).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before all moments: a deadline that has passed.
    pub(crate) const PAST: Moment = Moment(0);
    /// After all moments: no deadline.
    pub(crate) const FAR: Moment = Moment(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment plus a span; [`Moment::FAR`] if that is too far for the clock.
    pub(crate) fn after(self, span: Duration) -> Moment {
        // Saturates instead of panicking: a caller may pass `Duration::MAX` for "forever".
        u64::try_from(span.as_nanos())
            .map_or(Moment::FAR, |nanos| Moment(self.0.saturating_add(nanos)))
    }

    /// This moment less a span, never before [`Moment::PAST`].
    pub(crate) fn before(self, span: Duration) -> Moment {
        u64::try_from(span.as_nanos())
            .map_or(Moment::PAST, |nanos| Moment(self.0.saturating_sub(nanos)))
    }

    /// The last tick of this length at or before this moment.
    pub(crate) fn rounded_down(self, tick: Duration) -> Moment {
        let tick = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1);
        Moment(self.0 - self.0 % tick)
    }

    /// The first moment from this one on that is a multiple of `tick`.
    pub(crate) fn rounded_up(self, tick: Duration) -> Moment {
        let down = self.rounded_down(tick);
        if down == self { self } else { down.after(tick) }
    }

    /// The span from `earlier` to this moment; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Moment::FAR => f.write_str("never"),
            Moment(nanos) => write!(f, "{:?}", Duration::from_nanos(nanos)),
        }
    }
}

/// The source of the time. Tests replace it by a clock that they drive.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Moment;

    /// Calls `wait` with the time until a moment at most. It may return earlier, so callers check
    /// the clock in a loop.
    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        wait(until.since(self.now()));
    }
}

/// The longest single wait. The clock of the system's waits stands still in suspend, and this
/// library's does not: a lease may be long over when the machine wakes. No thread then sleeps on
/// for longer than this before it checks the clock.
const LONGEST_WAIT_SLICE: Duration = Duration::from_secs(1);

/// The machine's monotonic clock. On Linux and Android it includes the time in suspend. No clock includes the time for which
/// a host has paused the machine: the first reply that tells the server's time shows that (rule 57).
#[derive(Debug, Default)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        // Not `Instant`, which is `CLOCK_MONOTONIC` on Linux and stops in suspend: a laptop would
        // wake with a lease that looks valid and is long over in Redis. So does a virtual machine
        // that its host has paused, in which this clock stops too.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Moment {
        use crate::base::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        // One nanosecond ahead: the first moment must not be `PAST`, which is a deadline that has
        // passed.
        Moment(1).after(START.get_or_init(Instant::now).elapsed())
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        wait(until.since(self.now()).min(LONGEST_WAIT_SLICE));
    }
}

/// The moment of a caller's `Instant`, as `now` stands on our clock.
pub(crate) fn moment_of(deadline: Instant, now: Moment) -> Moment {
    // By the difference to the present, because the two clocks have different zeros. If the machine
    // is suspended during the wait, the deadline on our clock is the earlier one.
    now.after(deadline.saturating_duration_since(Instant::now()))
}

/// Whole milliseconds of a span, for a time to live; at least 1, so that it never means "delete".
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_too_long_for_the_clock_never_ends() {
        assert_eq!(Moment(5).after(Duration::MAX), Moment::FAR);
        assert_eq!(Moment::FAR.after(Duration::from_secs(1)), Moment::FAR);
        assert_eq!(Moment(5).before(Duration::MAX), Moment::PAST);
    }

    #[test]
    fn the_clock_moves_forward() {
        let first = BootClock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(BootClock.now() > first);
    }

    #[test]
    fn sleep_ends_soon_after_a_suspend() {
        let mut spans = Vec::new();
        let until = BootClock.now().after(Duration::from_secs(3600));
        BootClock.wait_until(until, &mut |span| spans.push(span));
        BootClock.wait_until(Moment::PAST, &mut |span| spans.push(span));
        assert_eq!(spans, [LONGEST_WAIT_SLICE, Duration::ZERO]);
    }

    #[test]
    fn the_drift_allowance_is_one_percent_and_two_milliseconds() {
        assert_eq!(drift_allowance(Duration::from_secs(10)), Duration::from_millis(102));
    }

    #[test]
    fn a_time_to_live_is_never_zero() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}

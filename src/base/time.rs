//! Time on the holder's own clock: one that only goes forward and counts through suspend.
//!
//! Wall clocks are never used. All arithmetic saturates: a moment too far away is [`Moment::FAR`],
//! which no clock reaches.

use std::fmt;
use std::time::{Duration, Instant};

/// Clocks of two machines may drift apart by this share of the time measured…
const DRIFT_SHARE: u32 = 100;
/// …and expiry on the server is exact to this.
const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// The part of a span that must not be relied on: 1 % + 2 ms.
pub(crate) fn drift_allowance(span: Duration) -> Duration {
    span / DRIFT_SHARE + DRIFT_FLOOR
}

/// A point on the [`Clock`], in nanoseconds; by default [`PAST`](Moment::PAST).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before everything: a deadline that has passed.
    pub(crate) const PAST: Moment = Moment(0);
    /// Beyond everything: no deadline.
    pub(crate) const FAR: Moment = Moment(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment plus a span; too far for the clock means [`Moment::FAR`].
    pub(crate) fn after(self, span: Duration) -> Moment {
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

    /// The span from `earlier` to this moment; zero if it is not earlier.
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

/// Where the library reads the time. Tests put a clock here that they drive themselves.
pub(crate) trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Moment;

    /// Waits by means of `wait`, which is told for how long: until a moment at the longest. It may
    /// end earlier.
    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        wait(until.since(self.now()));
    }
}

/// What the system waits with may stand still in suspend. After it, nobody sleeps on for longer than
/// this.
const LONGEST_WAIT_SLICE: Duration = Duration::from_secs(1);

/// The machine's monotonic clock, including the time it was suspended where the system tells.
#[derive(Debug, Default)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Moment {
        use crate::base::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        // One nanosecond ahead, so that the first moment is not the past.
        Moment(1).after(START.get_or_init(Instant::now).elapsed())
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        wait(until.since(self.now()).min(LONGEST_WAIT_SLICE));
    }
}

/// A caller's `Instant`, seen from `now` on our clock.
pub(crate) fn moment_of(deadline: Instant, now: Moment) -> Moment {
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
        let mut told = Vec::new();
        let until = BootClock.now().after(Duration::from_secs(3600));
        BootClock.wait_until(until, &mut |span| told.push(span));
        BootClock.wait_until(Moment::PAST, &mut |span| told.push(span));
        assert_eq!(told, [LONGEST_WAIT_SLICE, Duration::ZERO]);
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

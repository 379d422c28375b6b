//! The periods of a job, and what becomes of those that were missed.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::error::{Error, Result};
use crate::base::text::Span;

const DAY: Duration = Duration::from_secs(86_400);
const SHORTEST: Duration = Duration::from_millis(1);
pub(super) const LONGEST: Duration = Duration::from_secs(86_400 * 3_660);
/// What is older is never caught up.
pub(super) const FURTHEST: Duration = Duration::from_secs(86_400 * 36_600);

/// How often a job is to run: at most one successful run in each period.
///
/// Periods begin at multiples of their length since the epoch, UTC, plus an offset. So those of a day begin at midnight
/// UTC, and those of a week on Thursdays. Leap seconds and daylight saving time are not known to them: a
/// job whose day begins at midnight in local time needs another offset in summer.
///
/// ```
/// use leasehold::Period;
/// use std::time::Duration;
///
/// const HOUR: Duration = Duration::from_secs(3_600);
/// // Days that begin at 03:00 UTC.
/// let daily = Period::every(24 * HOUR).offset(3 * HOUR);
/// # let _ = daily;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    every: Duration,
    offset: Duration,
}

impl Period {
    /// Periods of this length, in whole microseconds. It is allowed from 1 ms to 3,660 days.
    ///
    /// ```
    /// # use leasehold::Period;
    /// # use std::time::Duration;
    /// let hourly = Period::every(Duration::from_secs(3_600));
    /// # let _ = hourly;
    /// ```
    #[must_use]
    pub const fn every(every: Duration) -> Period {
        Period { every, offset: Duration::ZERO }
    }

    /// How much later than at the multiples of its length each period begins; by default 0. It is allowed from 0 to
    /// 3,660 days, and only its remainder by the length counts.
    ///
    /// ```
    /// # use leasehold::Period;
    /// # use std::time::Duration;
    /// // Weeks that begin on Mondays: the epoch was a Thursday.
    /// const DAY: Duration = Duration::from_secs(86_400);
    /// let weekly = Period::every(7 * DAY).offset(4 * DAY);
    /// # let _ = weekly;
    /// ```
    #[must_use]
    pub const fn offset(self, offset: Duration) -> Period {
        Period { offset, ..self }
    }

    /// The schedule, if it is allowed.
    pub(super) fn schedule(self) -> Result<Schedule> {
        let refused =
            |field, wrong, least| Err(Error::config(field, Span(wrong), allowed_from(least)));
        if self.every < SHORTEST || self.every > LONGEST {
            return refused("period", self.every, SHORTEST);
        }
        if self.offset > LONGEST {
            return refused("period offset", self.offset, Duration::ZERO);
        }
        let (every, offset) = (micros(self.every), micros(self.offset));
        Ok(Schedule { every, offset: offset % every })
    }
}

/// What becomes of periods in which no run succeeded.
///
/// ```
/// use leasehold::{LockClient, Missed, Period, Result};
/// use std::time::Duration;
///
/// # fn demo(client: &LockClient) -> Result<()> {
/// // Each hour is billed once. After an outage the bills of a day are still written, and older ones are not.
/// let hourly = Period::every(Duration::from_secs(3_600));
/// let bill = client.once("bill", hourly)?.missed(Missed::CatchUp { at_most: 24 });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// They are passed over: a call runs the job for the present period or not at all.
    #[default]
    Skip,
    /// A call runs the job for the oldest period that was missed, so calls go on until one is skipped. A period whose job
    /// fails is tried again before later ones. Redis does not know what was missed before the first run, so that run is for the
    /// present period. Redis keeps the record for at least 400 days after the last run: after a longer outage it is the
    /// first run again.
    CatchUp {
        /// How many periods before the present one are caught up at most. Older ones are passed over.
        at_most: u32,
    },
}

impl Missed {
    pub(super) fn at_most(self) -> u32 {
        match self {
            Missed::Skip => 0,
            Missed::CatchUp { at_most } => at_most,
        }
    }
}

/// A period as numbers, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) every: i64,
    pub(super) offset: i64,
}

impl Schedule {
    /// The number of the period that a time is in.
    pub(super) fn number(self, micros: i64) -> i64 {
        micros.saturating_sub(self.offset).div_euclid(self.every)
    }

    /// The oldest period that may run in the present one.
    pub(super) fn oldest(self, current: i64, missed: Missed) -> i64 {
        let most = micros(FURTHEST) / self.every;
        current - i64::from(missed.at_most()).min(most)
    }

    /// When the period of this number begins and ends, unless that is too far for a clock.
    pub(super) fn range(self, number: i64) -> Option<Range<SystemTime>> {
        let start = number.checked_mul(self.every)?.checked_add(self.offset)?;
        Some(time(start)?..time(start.checked_add(self.every)?)?)
    }

    /// When the period of this number begins.
    pub(super) fn start(self, number: i64) -> i64 {
        number.saturating_mul(self.every).saturating_add(self.offset)
    }
}

/// The spans that are allowed: from this one to the longest.
pub(super) fn allowed_from(least: Duration) -> String {
    format!("from {} to {} days", Span(least), LONGEST.as_secs() / DAY.as_secs())
}

/// The time this many microseconds after the epoch, unless the clock cannot hold it.
pub(super) fn time(micros: i64) -> Option<SystemTime> {
    let span = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) }
}

/// Whole microseconds of a span.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

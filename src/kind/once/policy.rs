//! What the callers of a job have agreed on besides its period: missed periods and retries.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::text::Span;
use crate::kind::once::period::{FURTHEST, LONGEST, Missed, Schedule, allowed_from, micros};

/// Stands in a record where there is no limit, or nothing to catch up.
const NONE: &str = "-";
/// How long a record outlives its last period, for people to read.
const KEPT_FOR: Duration = Duration::from_secs(86_400 * 7);
/// How long a record of a job that catches up outlives its last run: longer than an outage of the whole fleet.
const KEPT_TO_CATCH_UP: Duration = Duration::from_secs(86_400 * 400);

/// What becomes of missed periods, and when a job that failed is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) missed: Missed,
    /// The least time from the end of a failed run to the next one.
    pub(super) retry_after: Duration,
    /// How many runs may fail in a period; `None` is without limit.
    pub(super) max_tries: Option<u32>,
}

impl Policy {
    /// Refuses what is not allowed.
    pub(super) fn check(self) -> Result<()> {
        if self.retry_after > LONGEST {
            let allowed = allowed_from(Duration::ZERO);
            return Err(Error::config("retry_after", Span(self.retry_after), allowed));
        }
        match self.max_tries {
            Some(0) => Err(Error::config("max_tries", 0, "at least 1")),
            _ => Ok(()),
        }
    }

    /// How long a record is kept after a write.
    pub(super) fn keep(self, schedule: Schedule) -> Duration {
        // The period of the record, those to catch up, and one more for a clock that is set back.
        let every = Duration::from_micros(schedule.every.unsigned_abs());
        let periods = every.checked_mul(self.missed.at_most().saturating_add(2));
        let periods = periods.unwrap_or(FURTHEST).min(FURTHEST);
        let keep = periods.max(self.retry_after) + KEPT_FOR;
        match self.missed {
            Missed::Skip => keep,
            Missed::CatchUp { .. } => keep.max(KEPT_TO_CATCH_UP),
        }
    }

    /// As it stands in a record.
    pub(super) fn text(self) -> String {
        let number = |number: Option<u32>| number.map_or(NONE.to_owned(), |it| it.to_string());
        let at_most = match self.missed {
            Missed::Skip => None,
            Missed::CatchUp { at_most } => Some(at_most),
        };
        format!("{} {} {}", micros(self.retry_after), number(self.max_tries), number(at_most))
    }

    pub(super) fn read(text: &[u8]) -> Option<Policy> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let retry_after = words.next()?.parse().ok().map(Duration::from_micros)?;
        let mut number = || match words.next()? {
            NONE => Some(None),
            word => word.parse().ok().map(Some),
        };
        let (max_tries, at_most) = (number()?, number()?);
        let missed = at_most.map_or(Missed::Skip, |at_most| Missed::CatchUp { at_most });
        let policy = Policy { missed, retry_after, max_tries };
        (words.next().is_none() && policy.check().is_ok()).then_some(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_read_as_it_was_written() {
        for missed in [Missed::Skip, Missed::CatchUp { at_most: 0 }, Missed::CatchUp { at_most: 7 }]
        {
            for max_tries in [None, Some(1), Some(u32::MAX)] {
                let policy = Policy { missed, retry_after: Duration::from_millis(90), max_tries };
                assert_eq!(Policy::read(policy.text().as_bytes()), Some(policy));
            }
        }
        assert_eq!(Policy::default().text(), "0 - -");
        for odd in ["", "0", "0 -", "0 - - -", "-1 - -", "0 0 -", "0 -1 -", "9999999999999999 - -"]
        {
            assert_eq!(Policy::read(odd.as_bytes()), None, "{odd}");
        }
    }
}

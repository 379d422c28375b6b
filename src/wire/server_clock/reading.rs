//! One reading of a server's clock, and what it lets expect of another.

use std::fmt;
use std::time::Duration;

use crate::base::text::Span;
use crate::base::time::{Moment, drift_allowance};

/// The server's time by a reply (rule 10): it was `micros` at some moment between `sent` and `received`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The epoch of the connection.
    pub(crate) epoch: u64,
    pub(crate) micros: u64,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
}

/// By how much a clock is wrong, as another reading lets expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deviation {
    Ahead(Duration),
    Behind(Duration),
}

impl Reading {
    /// By how much the time of `other` lies outside of what this one lets expect, if by more than `bound`.
    pub(super) fn deviation(&self, other: &Reading, bound: Duration) -> Option<Deviation> {
        let nanos = |moment: Moment| i128::from(moment.as_nanos());
        // The two requests may have been under way at the same time, so that the least is below zero.
        let least = nanos(other.sent) - nanos(self.received);
        let most = nanos(other.received) - nanos(self.sent);
        let ran = (i128::from(other.micros) - i128::from(self.micros)) * 1_000;
        let span = least.unsigned_abs().max(most.unsigned_abs());
        let drift = signed(drift_allowance(Duration::from_nanos(saturated(span))));
        let [ahead, behind] = [ran - most - drift, least - drift - ran];
        let exceeds = |by: i128| by > signed(bound);
        let span = |by: i128| Duration::from_nanos(saturated(by.unsigned_abs()));
        if exceeds(ahead) {
            Some(Deviation::Ahead(span(ahead)))
        } else if exceeds(behind) {
            Some(Deviation::Behind(span(behind)))
        } else {
            None
        }
    }
}

fn signed(span: Duration) -> i128 {
    i128::try_from(span.as_nanos()).unwrap_or(i128::MAX)
}

fn saturated(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (span, word) = match *self {
            Deviation::Ahead(span) => (span, "ahead"),
            Deviation::Behind(span) => (span, "behind"),
        };
        // Whole milliseconds: how long a request takes is not known any better.
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        write!(f, "{} {word}", Span(Duration::from_millis(millis)))
    }
}

//! What the model and the system have in common.

use std::time::Duration;

pub(crate) const CLIENTS: usize = 3;
/// How many names there are.
pub(crate) const NAMES: usize = 3;

/// Which client's leases live how long, in milliseconds, and whether they are renewed.
pub(crate) const LEASES: [(u64, bool); CLIENTS] = [(30_000, true), (5_000, false), (3_000, true)];

/// What a step should answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Any,
    Granted,
    Busy,
    Done,
    Lost,
    /// It may have been done.
    Unknown,
    /// Lost, or not known: its worker may or may not have found out.
    NotDone,
    /// A thread would wait for itself.
    Refused,
    Was(bool),
    /// Which names were claimed.
    Claimed([bool; NAMES]),
}

impl Expected {
    pub(crate) fn allows(self, answer: Expected) -> bool {
        match self {
            Expected::Any => true,
            Expected::NotDone => matches!(answer, Expected::Lost | Expected::Unknown),
            expected => answer == expected,
        }
    }
}

pub(crate) const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

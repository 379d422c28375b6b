//! How long a caller waits.

use crate::base::time::Moment;

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One attempt.
    Once,
    /// Until a moment; [`Moment::FAR`] is without end.
    Until(Moment),
}

impl Patience {
    /// Until when the caller waits, if it does.
    pub(crate) fn end(self) -> Option<Moment> {
        match self {
            Patience::Once => None,
            Patience::Until(end) => Some(end),
        }
    }
}

//! How long a caller waits.

use crate::base::time::Moment;

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// One attempt.
    TryOnce,
    /// Until a moment; [`Moment::FAR`] is without end.
    Until(Moment),
}

impl WaitLimit {
    pub(crate) const FOR_EVER: WaitLimit = WaitLimit::Until(Moment::FAR);

    /// Until when the caller waits; `None` if it makes one attempt.
    pub(crate) fn end(self) -> Option<Moment> {
        match self {
            WaitLimit::TryOnce => None,
            WaitLimit::Until(end) => Some(end),
        }
    }
}

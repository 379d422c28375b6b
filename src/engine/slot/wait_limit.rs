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

    /// For a caller that waits until a deadline, and comes now.
    pub(crate) fn until(deadline: Moment, now: Moment) -> WaitLimit {
        // One attempt, and not none: a free lock is taken even with a deadline in the past. And as
        // a `try` it does not join the queue, which it would have to leave at once.
        if deadline <= now { WaitLimit::TryOnce } else { WaitLimit::Until(deadline) }
    }

    /// Until when the caller waits; `None` if it makes one attempt.
    pub(crate) fn end(self) -> Option<Moment> {
        match self {
            WaitLimit::TryOnce => None,
            WaitLimit::Until(end) => Some(end),
        }
    }
}

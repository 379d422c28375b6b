//! How long a caller waits.

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;

/// How long the last request may outlast the caller's wait: however short the wait is, one request gets
/// the time that a reply usually takes. With the slack of sockets and of batches a call stays below 50 ms
/// beyond its wait.
pub(crate) const REPLY_GRACE: Duration = Duration::from_millis(25);

/// For how long a reply that found a holder says that somebody has the lock. A wait that ends later, without another
/// reply, ends with an error. A waiter asks once a heartbeat, so its last reply may be that old when its time is over, and
/// a little older when the request after it fails.
pub(crate) const HELD_FOR: Duration = Duration::from_nanos(2 * HEARTBEAT.as_nanos() as u64);

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

    /// Whether the caller waits for no holder any more, but for a reply at most.
    pub(crate) fn is_over(self, now: Moment) -> bool {
        match self {
            WaitLimit::TryOnce => true,
            WaitLimit::Until(end) => end <= now,
        }
    }

    /// Until when the caller waits; `None` if it makes one attempt.
    pub(crate) fn end(self) -> Option<Moment> {
        match self {
            WaitLimit::TryOnce => None,
            WaitLimit::Until(end) => Some(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_over_at_its_end_and_not_before() {
        let [before, end] = [1, 2].map(Moment::from_nanos);
        assert_eq!(WaitLimit::until(end, before), WaitLimit::Until(end));
        assert_eq!(WaitLimit::until(end, end), WaitLimit::TryOnce);
        assert!(!WaitLimit::Until(end).is_over(before) && WaitLimit::Until(end).is_over(end));
    }
}

//! The intervals of the heartbeat.

use std::time::Duration;

/// A waiter in the queue sends a heartbeat this often (rule 8).
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Without a heartbeat for this long a waiter counts as dead. The scripts compare it with the server's
/// clock.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(3);
/// A reply makes a waiter ask no sooner than after this, whatever it says of the holder's lease.
const SOONEST: Duration = Duration::from_millis(10);

/// How long a waiter pauses at most without a message, after a reply by which the holder's lease ends in `left`.
pub(crate) fn pause_until_free(left: Option<Duration>) -> Duration {
    // Redis rounds the rest of the lease down to a millisecond. Without one more the waiter would ask just before
    // the end, and find the lock held.
    let ends = left.map_or(Duration::MAX, |left| left + Duration::from_millis(1));
    // If no time is left, each reply would make the waiter ask again at once: about a thousand requests a second.
    ends.max(SOONEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_makes_a_waiter_ask_after_ten_milliseconds_at_the_soonest() {
        let ms = Duration::from_millis;
        for (left, pause) in [
            (Some(Duration::ZERO), SOONEST),
            (Some(ms(5)), SOONEST),
            (Some(ms(9)), SOONEST),
            (Some(ms(10)), ms(11)),
            (Some(ms(30_000)), ms(30_001)),
            (None, Duration::MAX),
        ] {
            assert_eq!(pause_until_free(left), pause, "{left:?}");
        }
    }
}

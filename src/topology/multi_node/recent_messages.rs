//! The messages that several servers publish, each of them passed on once.

use std::collections::HashSet;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Moment;

/// A message that arrives again within this time is a repetition. It may be dropped for up to twice
/// as long. That loses nothing: the slot that the first one woke has not yet finished its request
/// or forgotten that somebody waits.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

/// The messages of the last one to two windows.
///
/// Two generations instead of one time stamp for each message: memory is bounded by two windows,
/// and no sweep is needed.
#[derive(Debug, Default)]
pub(crate) struct RecentMessages(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    current: HashSet<Vec<u8>>,
    before: HashSet<Vec<u8>>,
    /// When `current` becomes `before`.
    over: Moment,
}

impl RecentMessages {
    /// Whether this message arrives for the first time.
    pub(crate) fn is_first(&self, payload: &[u8], now: Moment) -> bool {
        let recent = &mut *self.0.lock();
        if recent.over <= now {
            recent.before = std::mem::take(&mut recent.current);
            recent.over = recent.over.after(DUPLICATE_WINDOW);
            // Nothing arrived for more than a whole window, so `before` is older than two. The
            // window also starts anew here, or it would lag behind the clock by the idle time.
            if recent.over <= now {
                recent.before.clear();
                recent.over = now.after(DUPLICATE_WINDOW);
            }
        }
        // Not inserted into `current` if it is in `before`: a message that arrives again and again
        // must not be dropped for longer than two windows.
        !recent.before.contains(payload) && recent.current.insert(payload.to_vec())
    }

    /// Whether this message has arrived lately: within the last two windows at most.
    pub(crate) fn has(&self, payload: &[u8], now: Moment) -> bool {
        let recent = &*self.0.lock();
        now < recent.over && (recent.current.contains(payload) || recent.before.contains(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_message_is_dropped_for_a_while() {
        let (recent_messages, begin) =
            (RecentMessages::default(), Moment::PAST.after(Duration::from_secs(100)));
        let at = |seconds: f64| begin.after(Duration::from_secs_f64(seconds));
        assert!(recent_messages.is_first(b"a", at(0.0)));
        assert!(recent_messages.is_first(b"b", at(0.9)));
        assert!(!recent_messages.is_first(b"a", at(0.9)));
        assert!(!recent_messages.is_first(b"b", at(1.8)));
        assert!(
            recent_messages.is_first(b"a", at(2.0)),
            "over twice as long as a repetition is expected"
        );
        assert!(recent_messages.is_first(b"b", at(3.1)));
        assert!(!recent_messages.is_first(b"a", at(3.2)));
        assert!(recent_messages.is_first(b"a", at(4.1)));
        assert!(recent_messages.is_first(b"a", at(9.0)));
    }
}

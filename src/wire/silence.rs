//! Which connections to a server are likely dead because one of them is silent.
//!
//! A NAT or a balancer may drop what was idle for some minutes and tell neither side. Then all connections
//! that were idle for as long are dead, and each would cost a caller a time-out and an unknown outcome. So the
//! first request that gets no reply in time decides for all:
//!
//! | the last reply on a connection came | the connection is |
//! | --- | --- |
//! | before that request was sent | not used again |
//! | since | used: the server replies there |

use std::time::Duration;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Moment;

/// A caller that waits for less time than this may have met a network that is slow, not one that is dead.
const MEANINGFUL: Duration = Duration::from_millis(200);

/// When the last request was sent that got no reply in time, for all connections of a client to a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence(Arc<AtomicU64>);

impl Silence {
    /// Notes that a request got no reply until now, of the time that one may take.
    pub(crate) fn note(&self, sent: Moment, now: Moment, patience: Duration) {
        if now.since(sent) >= MEANINGFUL.min(patience / 2) {
            let since = if mutated!("silence-outdates-what-replied-since") { now } else { sent };
            self.0.fetch_max(since.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Whether a connection whose last reply came then is likely dead.
    pub(crate) fn covers(&self, replied: Moment) -> bool {
        replied.as_nanos() < self.0.load(Ordering::SeqCst) && !mutated!("silence-outdates-nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_covers_what_replied_before_its_request() {
        let silence = Silence::default();
        let second = Duration::from_secs(1);
        let sent = Moment::PAST.after(second * 10);
        silence.note(sent, sent.after(second), second);
        assert!(silence.covers(sent.before(second)));
        assert!(!silence.covers(sent.after(second / 2)));
        // An older request that ends later says nothing new.
        silence.note(sent.before(second * 2), sent.after(second * 2), second);
        assert!(silence.covers(sent.before(second)));
    }

    #[test]
    fn short_silence_covers_nothing() {
        let silence = Silence::default();
        let second = Duration::from_secs(1);
        let sent = Moment::PAST.after(second * 10);
        silence.note(sent, sent.after(second / 10), second);
        assert!(!silence.covers(sent.before(second)));
        // Where a reply may take no longer, it is as long as any.
        silence.note(sent, sent.after(second / 10), second / 10);
        assert!(silence.covers(sent.before(second)));
    }
}

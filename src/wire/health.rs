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
//!
//! A server that hangs up on one connection has likely hung up on all, so that none made before is used again.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::time::Moment;
use crate::wire::error_context::Limit;

/// A caller that waits for less time than this may have met a network that is slow, not one that is dead.
const MEANINGFUL: Duration = Duration::from_millis(200);

/// What the connections of a manager have in common.
#[derive(Debug)]
pub(crate) struct ConnectionHealth {
    /// The longest wait for a reply, and the setting that says so.
    pub(crate) limit: Limit,
    /// When a reply was last received on any of them, in nanoseconds.
    replied: AtomicU64,
    /// When the last request was sent that got no reply in time.
    unanswered: AtomicU64,
    /// How often all connections made so far were outdated.
    generation: AtomicU64,
    /// How many commands run that may keep the server silent.
    excused: AtomicU64,
}

impl ConnectionHealth {
    pub(crate) fn new(span: Duration, setting: &'static str) -> ConnectionHealth {
        let zero = || AtomicU64::new(0);
        let limit = Limit { span, setting: Some(setting) };
        ConnectionHealth {
            limit,
            replied: zero(),
            unanswered: zero(),
            generation: zero(),
            excused: zero(),
        }
    }

    /// To which generation a connection belongs that is made now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Outdates the connections of this generation, if that was not done before.
    pub(crate) fn outdate(&self, generation: u64) {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.generation.compare_exchange(generation, generation + 1, success, failure);
    }

    /// One plain store: each exchange pays for it.
    pub(crate) fn note_reply(&self, at: Moment) {
        self.replied.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a command begins or ends which may keep the server silent.
    pub(crate) fn excuse(&self, begins: bool) {
        if begins {
            self.excused.fetch_add(1, Ordering::Relaxed);
        } else {
            self.excused.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that a request got no reply until now, of the time that one may take.
    pub(crate) fn note_silence(&self, sent: Moment, now: Moment) {
        if now.since(sent) >= MEANINGFUL.min(self.limit.span / 2) {
            self.unanswered.fetch_max(sent.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Whether a connection whose last reply came then is likely dead.
    pub(crate) fn covers(&self, replied: Moment) -> bool {
        let unanswered = self.unanswered.load(Ordering::SeqCst);
        replied.as_nanos() < unanswered
    }

    /// For how long no reply was received, without a reason.
    pub(crate) fn silence(&self, now: Moment) -> Duration {
        let is_excused = self.excused.load(Ordering::Relaxed) > 0;
        let replied = Moment::from_nanos(self.replied.load(Ordering::Relaxed));
        if is_excused { Duration::ZERO } else { now.since(replied) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_marks_connections_idle_since_before_it() {
        let second = Duration::from_secs(1);
        let silence = ConnectionHealth::new(second, "command_timeout");
        let sent = Moment::PAST.after(second * 10);
        silence.note_silence(sent, sent.after(second));
        assert!(silence.covers(sent.before(second)));
        assert!(!silence.covers(sent.after(second / 2)));
        // An older request that ends later says nothing new.
        silence.note_silence(sent.before(second * 2), sent.after(second * 2));
        assert!(silence.covers(sent.before(second)));
    }

    #[test]
    fn short_silence_marks_no_connection() {
        let second = Duration::from_secs(1);
        let silence = ConnectionHealth::new(second, "command_timeout");
        let sent = Moment::PAST.after(second * 10);
        silence.note_silence(sent, sent.after(second / 10));
        assert!(!silence.covers(sent.before(second)));
        // Where a reply may take no longer, it is as long as any.
        let silence = ConnectionHealth::new(second / 10, "command_timeout");
        silence.note_silence(sent, sent.after(second / 10));
        assert!(silence.covers(sent.before(second)));
    }
}

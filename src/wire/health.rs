//! Which pooled connections are likely dead because another one is silent.
//!
//! A NAT or a balancer may drop connections that were idle for some minutes, without a sign to
//! either side. Then all connections that were idle for as long are dead, and each would cost a
//! caller a time-out and an unknown outcome. So the first request without a reply in time decides
//! for all:
//!
//! | the last reply on a connection came | the connection is |
//! | --- | --- |
//! | before that request was sent | not used again |
//! | since | used: the server replies there |
//!
//! A server that closes one connection has likely closed all of them, so none that was made before
//! is used again.

use std::time::Duration;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Moment;
use crate::wire::error_context::Limit;

/// A caller that waits for less than this may have met a slow network, and not a dead connection.
const MEANINGFUL: Duration = Duration::from_millis(200);

/// The state that all connections of a manager share.
#[derive(Debug)]
pub(crate) struct ConnectionHealth {
    /// The longest wait for a reply, and the setting it comes from.
    pub(crate) limit: Limit,
    /// When a reply was last received on any of them, in nanoseconds.
    replied: AtomicU64,
    /// When the last request without a reply in time was sent.
    unanswered: AtomicU64,
    /// How many times all connections were outdated.
    generation: AtomicU64,
    /// How many commands are running during which the server may be silent.
    excused: AtomicU64,
}

/// How many times connections broke, and when one was last silent.
pub(crate) type Incidents = (u64, Moment);

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

    /// The generation of a connection that is made now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Outdates the connections of this generation, unless that was done before. Returns whether it did.
    pub(crate) fn outdate(&self, generation: u64) -> bool {
        // Not `fetch_add`: when a server restarts, each of its connections reports that it was
        // closed, one after the other. Only the first may begin a generation. The second would
        // outdate connections that were made since, and a busy pool would throw healthy ones away.
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        self.generation.compare_exchange(generation, generation + 1, success, failure).is_ok()
    }

    /// What has happened to connections until now.
    pub(crate) fn incidents(&self) -> Incidents {
        (self.generation(), Moment::from_nanos(self.unanswered.load(Ordering::SeqCst)))
    }

    /// Notes that a reply was received.
    pub(crate) fn note_reply(&self, at: Moment) {
        // One plain store, because each exchange pays for it. Two threads may store in the wrong
        // order, so this may go back by the time between a clock reading and its store. The one
        // reader (`silence`) compares it with spans that are thousands of times longer.
        self.replied.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a command runs during which the server may be silent, until what this returns is dropped.
    pub(crate) fn excuse(self: &Arc<Self>) -> Excuse {
        self.excused.fetch_add(1, Ordering::Relaxed);
        Excuse(Arc::clone(self))
    }

    /// Notes that a request has had no reply until now.
    pub(crate) fn note_silence(&self, sent: Moment, now: Moment) {
        // A `try_lock_for` of a few milliseconds proves nothing by its end. Half of a short
        // time-out does: no request of that client ever waits longer than the whole. What is noted
        // is the time of sending and not the present: a connection with a reply since then is
        // alive. `fetch_max`, because a request that was sent earlier may time out later.
        if now.since(sent) >= MEANINGFUL.min(self.limit.span / 2) {
            self.unanswered.fetch_max(sent.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Whether no reply has come on any connection since the last request was sent that had none in time.
    pub(crate) fn is_silent(&self) -> bool {
        self.covers(Moment::from_nanos(self.replied.load(Ordering::Relaxed)))
    }

    /// Whether a connection is likely dead whose last reply came at `replied`.
    pub(crate) fn covers(&self, replied: Moment) -> bool {
        let unanswered = self.unanswered.load(Ordering::SeqCst);
        replied.as_nanos() < unanswered
    }

    /// How long there has been no reply on any connection; zero while a command runs that excuses
    /// it.
    pub(crate) fn silence(&self, now: Moment) -> Duration {
        // A `WAIT` may be the only command under way, and then no other could have had a reply. To
        // call that a silent server would turn an exhausted pool into an outage.
        let is_excused = self.excused.load(Ordering::Relaxed) > 0;
        let replied = Moment::from_nanos(self.replied.load(Ordering::Relaxed));
        if is_excused { Duration::ZERO } else { now.since(replied) }
    }
}

/// Excuses a silence until it is dropped, also when the call panics: an excuse without an end would
/// make every later outage look like a pool that is too small.
pub(crate) struct Excuse(Arc<ConnectionHealth>);

impl Drop for Excuse {
    fn drop(&mut self) {
        self.0.excused.fetch_sub(1, Ordering::Relaxed);
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
        assert!(silence.is_silent());
        silence.note_reply(sent.after(second / 2));
        assert!(!silence.is_silent());
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

    #[test]
    fn excuse_ends_with_a_call_that_panics() {
        let health = Arc::new(ConnectionHealth::new(Duration::from_secs(1), "command_timeout"));
        let now = Moment::PAST.after(Duration::from_secs(10));
        let caught = crate::base::panic::catch_panic("a call that panics", || {
            let _excuse = health.excuse();
            assert_eq!(health.silence(now), Duration::ZERO);
            panic!("a clock of the user panics");
        });
        assert!(caught.is_none());
        assert!(health.silence(now) > Duration::ZERO);
    }
}

//! How a process yields to the clients that listen for the release of its lock.
//!
//! A process that releases a lock can have it again within a round trip. A listener needs the message, a
//! thread that wakes, and a request: with other libraries a millisecond and more. So without fairness the
//! listener always comes too late. And a message does not reach all listeners at once: Redis sends it to
//! them in the order of their subscriptions. So of those that ask at the message, the same few would be
//! the first again and again.
//!
//! - After a release that others received, this process asks for the lock again once as many releases by
//!   others have been heard as others received it: then each of them can have had its turn. Of processes
//!   that want the lock again and again, one at a time has its turn, the one that has waited the longest,
//!   and only that one asks at the message.
//! - A turn counts from the release, and it is lost with a pause: where nobody has released the lock for
//!   the length of a pause, this process asks. So it does once it has paused for a while in all.
//! - No thread of the process asks before. After a release that nobody else received there is no pause. Nor
//!   is there a turn for a thread that comes only when the pause is over: it has left the lock to others.
//! - A process that must wait longer for its turn pauses a little longer, so that of several that pause the
//!   one asks first whose turn comes first.
//! - While others have listened lately, a lease is passed on between threads of this process only for a
//!   short time, whatever their number.
//! - A listener need not want the lock. When nobody else took it in several pauses in a row, there is a
//!   rest that doubles each time. Until it is over, the turn comes after as many releases as were heard
//!   before the last such pause ended. If these are none, there is no pause, and a lease is passed on for as
//!   long as without listeners. A pause only counts if this client would have received the release of
//!   another.
//! - A pause ends with the time of the caller. A thread behind it that has less time than the pause ends
//!   it at once.
//!
//! This client may receive its own releases too, some of them late. Messages come in order, and all are
//! alike. So it counts those that are due, and only a message beyond these is a release by another
//! client.
//!
//! `PUBLISH` returns how many clients received the release. It counts this client too if it listens, and
//! it misses listeners at a replica: the count is a hint, and decides on nothing but the pause. Where this
//! client does not hear each release, as in a cluster with Redisson, the turn comes with the first.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;

/// The pause, besides two round trips.
pub(super) const YIELD_TIME: Duration = Duration::from_millis(5);
/// The most that a round trip counts for: a longer one says that Redis was slow, and not that the network
/// is.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(50);
/// How much longer the pause is for each turn that comes before that of this process, and the most of them that count.
pub(super) const YIELD_STEP: Duration = Duration::from_micros(500);
const MAX_YIELD_STEPS: u32 = 40;
/// For how long a thread pauses at most before it asks, if its first pause is not longer. Threads behind it
/// must hear of a holder now and then.
pub(super) const LONGEST_YIELD: Duration = Duration::from_millis(100);
/// A lease is passed on for no longer than this while others listen.
pub(super) const PASS_ON_WHILE_LISTENED: Duration = Duration::from_millis(1);
/// After this many pauses in a row in which nobody took the lock there is a rest.
const MAX_UNUSED_PAUSES: u32 = 4;
/// How many times the rest doubles.
const DOUBLINGS: u32 = 8;

/// How many clients received a release, as Redis reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerCount {
    pub(crate) listeners: u32,
    /// Whether this client listened before the release was sent.
    pub(crate) listens: bool,
    /// Whether a message of this release comes to this client, if it listens. The listener of a quorum
    /// drops it.
    pub(crate) hears_own: bool,
    /// Whether this client receives the releases of all others, if it listens.
    pub(crate) hears_all: bool,
    /// How long the release took.
    pub(crate) round_trip: Duration,
}

/// What one slot knows about listeners of other clients.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// When others last received a release of this process.
    listened_at: Moment,
    /// Until when this process leaves the lock to others, if its turn does not come before.
    pub(super) until: Moment,
    /// The pause, but for the steps.
    pause: Duration,
    /// How many releases by others come before the turn of this process. They count from its own release on.
    turn: u32,
    /// Whether these are fewer than listened, because of a rest.
    is_short: bool,
    /// How many releases were received since this process last sent one.
    pub(super) releases_heard: u32,
    /// How many of them are its own: that one, and earlier ones that were late.
    own_releases_due: u32,
    /// Whether this client has listened since before that release.
    pub(super) listens: bool,
    /// Whether the acquirer pauses now.
    pub(super) is_pausing: bool,
    /// `Some` if the acquirer paused before the request that it makes now: whether that pause counts,
    /// because it went to its end and the client would have received the release of another.
    pub(super) paused: Option<bool>,
    /// How many pauses in a row passed in which nobody else took the lock.
    unused_pauses: u32,
    /// How long the rest is, and how many releases by others come before the turn of this process until then.
    rest_until: Moment,
    rest_turn: u32,
}

impl Fairness {
    /// Whether others have listened lately, and probably want the lock.
    pub(super) fn has_listeners(&self, now: Moment) -> bool {
        // Lately and not at the last release: between two waits a listener leaves the channel for a
        // moment.
        let want_it = self.unused_pauses < MAX_UNUSED_PAUSES || self.rest_turn > 0;
        now.since(self.listened_at) <= HEARTBEAT && want_it
    }

    /// Whether this process leaves the lock to others at that moment.
    pub(super) fn yields_at(&self, now: Moment) -> bool {
        now < self.until && !self.is_turn()
    }

    /// Whether those that listened to the last release of this process can have had their turns since.
    pub(super) fn is_turn(&self) -> bool {
        self.heard_elsewhere() >= self.turn
    }

    /// How many releases by other clients were received since this process last sent one.
    fn heard_elsewhere(&self) -> u32 {
        self.releases_heard.saturating_sub(self.own_releases_due)
    }

    /// When a pause ends that begins now.
    fn pause_end(&self, now: Moment) -> Moment {
        let before = self.turn.saturating_sub(self.heard_elsewhere()).saturating_sub(1);
        now.after(self.pause + YIELD_STEP * before.min(MAX_YIELD_STEPS))
    }

    /// A thread comes that no other of its process has waited with. If the pause is over, it waits for no turn.
    pub(super) fn come(&mut self, now: Moment) {
        if !self.yields_at(now) {
            self.turn = 0;
        }
    }

    /// A release is about to be sent.
    pub(super) fn begin_release(&mut self) {
        // Messages come in order, so those that were received by now are the oldest of those due. The
        // rest may still come, and must not be taken for another client's then.
        self.own_releases_due = self.own_releases_due.saturating_sub(self.releases_heard);
        self.releases_heard = 0;
        self.listens = false;
        self.until = Moment::PAST;
        self.turn = 0;
    }

    /// Redis has replied to the release.
    pub(super) fn released(&mut self, listener_count: ListenerCount, now: Moment) {
        let ListenerCount { listeners, listens, hears_own, hears_all, round_trip } = listener_count;
        // This client was counted too, if it had subscribed before the release was sent.
        let others = listeners.saturating_sub(u32::from(listens));
        self.listens = listens;
        let is_due = listens && hears_own;
        self.own_releases_due = self.own_releases_due.saturating_add(u32::from(is_due));
        if others == 0 {
            return;
        }
        self.listened_at = now;
        let turn = if hears_all { others } else { 1 };
        self.turn = if now < self.rest_until { turn.min(self.rest_turn) } else { turn };
        self.is_short = self.turn < turn;
        // A listener answers over the same network: its message and its request take a round trip each.
        self.pause = YIELD_TIME + round_trip.min(MAX_ROUND_TRIP) * 2;
        if self.turn > 0 {
            self.until = self.pause_end(now);
        }
    }

    /// A message reports a release of the lock, by this client or by another. `waits` says whether a thread waits here.
    /// Returns whether it is to look at the state.
    pub(super) fn on_release(&mut self, waits: bool, now: Moment) -> bool {
        self.releases_heard = self.releases_heard.saturating_add(1);
        if self.is_turn() {
            return true;
        }
        // The lock goes to another, and the pause begins anew. That moves the end of a pause that has begun, at which
        // its thread looks at it.
        if waits && self.heard_elsewhere() > 0 {
            self.until = self.pause_end(now);
        }
        !self.is_pausing
    }

    /// The client has subscribed again: messages of earlier releases do not come any more.
    pub(super) fn on_resubscribe(&mut self) {
        self.turn = self.turn.saturating_sub(self.heard_elsewhere());
        // Otherwise the lost messages would stay due for ever, and the next releases of others would be
        // taken for them.
        self.releases_heard = 0;
        self.own_releases_due = 0;
        self.listens = false;
    }

    /// The acquirer sends no request after its pause, so the pause proves nothing.
    pub(super) fn forget_pause(&mut self) {
        self.paused = None;
    }

    /// The request after a pause has found the lock taken by another client (`taken`), or has got it.
    pub(super) fn end(&mut self, taken: bool, now: Moment) {
        let Some(counts) = self.paused.take() else { return };
        if taken {
            // Others want it, and more of them than a rest expects.
            self.unused_pauses = 0;
            self.rest_until = Moment::PAST;
        } else if self.is_turn() {
            // Of a rest that proves nothing: those for which it does not wait may still listen in vain.
            if !self.is_short {
                self.unused_pauses = 0;
            }
        } else if counts {
            // A pause is only in vain if it went to its end, and if this client would have received the
            // release of a listener that used it.
            self.unused_pauses = self.unused_pauses.saturating_add(1);
            if let Some(doublings) = self.unused_pauses.checked_sub(MAX_UNUSED_PAUSES) {
                self.rest_until = now.after(YIELD_TIME * (1 << doublings.min(DOUBLINGS)));
                self.rest_turn = self.heard_elsewhere();
            }
        }
    }
}

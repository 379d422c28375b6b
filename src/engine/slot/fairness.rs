//! How a process yields to the clients that listen for the release of its lock.
//!
//! A process that releases a lock can have it again within a round trip. A listener needs the message, a
//! thread that wakes, and a request: with other libraries a millisecond and more. So without fairness the
//! listener always comes too late.
//!
//! - After a release that others received, this process asks for the lock again only after another
//!   release, or after a pause. No thread of the process asks before. After a release that nobody else
//!   received there is no pause.
//! - While others have listened lately, a lease is passed on between threads of this process only for a
//!   short time, whatever their number.
//! - A listener need not want the lock. When nobody else took it in several pauses in a row, the next
//!   pause comes after a rest that doubles each time, and a lease is passed on for as long as without
//!   listeners. A pause only counts if this client would have received the release of another.
//! - A pause ends with the time of the caller. A thread behind it that has less time than the pause ends
//!   it at once.
//!
//! This client may receive its own releases too, some of them late. Messages come in order, and all are
//! alike. So it counts those that are due, and only a message beyond these is a release by another
//! client.
//!
//! `PUBLISH` returns how many clients received the release. It counts this client too if it listens, and
//! it misses listeners at a replica: the count is a hint, and decides on nothing but the pause.

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
    /// How long the release took.
    pub(crate) round_trip: Duration,
}

/// What one slot knows about listeners of other clients.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// When others last received a release of this process.
    listened_at: Moment,
    /// Until when this process leaves the lock to others.
    pub(super) until: Moment,
    /// How many releases were received since this process last sent one.
    pub(super) releases_heard: u32,
    /// How many of them are its own: that one, and earlier ones that were late.
    own_releases_due: u32,
    /// Whether this client has listened since before that release.
    pub(super) listens: bool,
    /// `Some` if the acquirer paused before the request that it makes now: whether that pause counts,
    /// because it went to its end and the client would have received the release of another.
    pub(super) paused: Option<bool>,
    /// How many pauses in a row passed in which nobody else took the lock.
    unused_pauses: u32,
    /// Until when there is no pause.
    rest_until: Moment,
}

impl Fairness {
    /// Whether others have listened lately, and probably want the lock.
    pub(super) fn has_listeners(&self, now: Moment) -> bool {
        // Lately and not at the last release: between two waits a listener leaves the channel for a
        // moment.
        now.since(self.listened_at) <= HEARTBEAT && self.unused_pauses < MAX_UNUSED_PAUSES
    }

    /// Whether this process leaves the lock to others at that moment.
    pub(super) fn yields_at(&self, now: Moment) -> bool {
        now < self.until
    }

    /// A release is about to be sent.
    pub(super) fn begin_release(&mut self) {
        // Messages come in order, so those that were received by now are the oldest of those due. The
        // rest may still come, and must not be taken for another client's then.
        self.own_releases_due = self.own_releases_due.saturating_sub(self.releases_heard);
        self.releases_heard = 0;
        self.listens = false;
        self.until = Moment::PAST;
    }

    /// Redis has replied to the release.
    pub(super) fn released(&mut self, listener_count: ListenerCount, now: Moment) {
        let ListenerCount { listeners, listens, hears_own, round_trip } = listener_count;
        // This client was counted too, if it had subscribed before the release was sent.
        let others = listeners > u32::from(listens);
        self.listens = listens;
        let is_due = listens && hears_own;
        self.own_releases_due = self.own_releases_due.saturating_add(u32::from(is_due));
        if !others {
            return;
        }
        self.listened_at = now;
        // A listener answers over the same network: its message and its request take a round trip each.
        if self.rest_until <= now {
            self.until = now.after(YIELD_TIME + round_trip.min(MAX_ROUND_TRIP) * 2);
        }
    }

    /// A message reports a release of the lock, by this client or by another.
    pub(super) fn on_release(&mut self) {
        self.releases_heard = self.releases_heard.saturating_add(1);
    }

    /// The client has subscribed again: messages of earlier releases do not come any more.
    pub(super) fn on_resubscribe(&mut self) {
        // Otherwise the lost messages would stay due for ever, and the next releases of others would be
        // taken for them.
        self.releases_heard = 0;
        self.own_releases_due = 0;
        self.listens = false;
    }

    /// Whether another client has had the lock since this process released it.
    pub(super) fn was_released_elsewhere(&self) -> bool {
        self.releases_heard > self.own_releases_due
    }

    /// The acquirer sends no request after its pause, so the pause proves nothing.
    pub(super) fn forget_pause(&mut self) {
        self.paused = None;
    }

    /// The request after a pause has found the lock taken by another client (`taken`), or has got it.
    pub(super) fn end(&mut self, taken: bool, now: Moment) {
        if taken {
            self.until = Moment::PAST;
        }
        let Some(counts) = self.paused.take() else { return };
        if taken || self.was_released_elsewhere() {
            self.unused_pauses = 0;
        }
        // A pause is only in vain if it went to its end, and if this client would have received the
        // release of a listener that used it.
        if taken || self.was_released_elsewhere() || !counts {
            return;
        }
        self.unused_pauses = self.unused_pauses.saturating_add(1);
        if let Some(doublings) = self.unused_pauses.checked_sub(MAX_UNUSED_PAUSES) {
            self.rest_until = now.after(YIELD_TIME * (1 << doublings.min(DOUBLINGS)));
        }
    }
}

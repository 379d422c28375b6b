//! How a process lets those go first who listen for the release of its lock.
//!
//! A process that releases a lock knows of it at once, and can have it again within a round trip. A
//! listener needs the message, a thread that wakes, and a request: with other libraries a millisecond and
//! more. So without fairness the listener always comes too late.
//!
//! - After a release that others heard, this process asks for the lock again only when it has heard another
//!   release, or after a pause. No thread of the process asks before. A release that nobody else heard has
//!   no pause after it.
//! - While others have listened lately, a lease is passed on between threads of this process only for a
//!   short time, whatever their number.
//! - A listener need not want the lock. Where nobody else took it in several pauses in a row, the next
//!   pause comes after a rest that doubles each time, and a lease is passed on for as long as without
//!   listeners. Only a pause counts in which this client would have heard the other's release.
//! - A pause ends with the time of the caller. A thread that waits behind it and has less time than the
//!   pause ends it at once.
//!
//! This client may hear its own releases too, some of them late. Messages come in order, and all are alike.
//! So it counts those that are due, and only a message beyond these is another's.
//!
//! The count of `PUBLISH` tells how many heard the release. It counts this client too where that listens, and
//! it misses those at a replica: it is a hint, and decides on nothing but the pause.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;

/// The pause, besides two round trips.
pub(super) const YIELD_TIME: Duration = Duration::from_millis(5);
/// No round trip counts for more: then Redis was slow, and the way to it is not.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(50);
/// A lease is passed on for no longer than this while others listen.
pub(super) const PASS_ON_WHILE_LISTENED: Duration = Duration::from_millis(1);
/// So many pauses in a row may be in vain before there is a rest…
const MAX_UNUSED_PAUSES: u32 = 4;
/// …which doubles so often.
const DOUBLINGS: u32 = 8;

/// How many heard a release, as Redis says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerCount {
    pub(crate) listeners: u32,
    /// Whether this client listened before the release was sent.
    pub(crate) listens: bool,
    /// How long the release took.
    pub(crate) round_trip: Duration,
}

/// What one slot knows of those who listen.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// When a release of this process was last heard by others.
    listened_at: Moment,
    /// Until when the lock is left to others.
    pub(super) until: Moment,
    /// How many releases were heard since the last one of this process was sent…
    releases_heard: u32,
    /// …and how many of its own this client was to hear since then: that one, and earlier ones that are
    /// late.
    own_releases_due: u32,
    /// Whether this client has listened since before that release.
    pub(super) listens: bool,
    /// Whether the acquirer has paused before the attempt that it makes now; then whether it paused to the
    /// end and would have heard the release of another.
    pub(super) paused: Option<bool>,
    /// In how many pauses in a row nobody else took the lock.
    unused_pauses: u32,
    /// Until when there is no other pause.
    rest_until: Moment,
}

impl Fairness {
    /// Whether others have listened lately, and want the lock as far as is known. Between two waits they may
    /// not listen for a moment.
    pub(super) fn has_listeners(&self, now: Moment) -> bool {
        now.since(self.listened_at) <= HEARTBEAT && self.unused_pauses < MAX_UNUSED_PAUSES
    }

    /// Whether the lock is left to others then.
    pub(super) fn yields_at(&self, now: Moment) -> bool {
        now < self.until
    }

    /// A release is about to be sent.
    pub(super) fn begin_release(&mut self) {
        self.own_releases_due = self.own_releases_due.saturating_sub(self.releases_heard);
        self.releases_heard = 0;
        self.listens = false;
        self.until = Moment::PAST;
    }

    /// Redis has replied to the release.
    pub(super) fn released(&mut self, listener_count: ListenerCount, now: Moment) {
        let ListenerCount { listeners, listens, round_trip } = listener_count;
        let others = listeners > u32::from(listens);
        self.listens = listens;
        self.own_releases_due = self.own_releases_due.saturating_add(u32::from(listens));
        if !others {
            return;
        }
        self.listened_at = now;
        if self.rest_until <= now {
            self.until = now.after(YIELD_TIME + round_trip.min(MAX_ROUND_TRIP) * 2);
        }
    }

    /// Somebody released the lock.
    pub(super) fn on_release(&mut self) {
        self.releases_heard = self.releases_heard.saturating_add(1);
    }

    /// The client listens anew: what was said before does not come any more.
    pub(super) fn on_resubscribe(&mut self) {
        self.releases_heard = 0;
        self.own_releases_due = 0;
        self.listens = false;
    }

    /// Whether another had the lock since this process released it.
    pub(super) fn was_released_elsewhere(&self) -> bool {
        self.releases_heard > self.own_releases_due
    }

    /// The acquirer makes no attempt after its pause.
    pub(super) fn forget_pause(&mut self) {
        self.paused = None;
    }

    /// The attempt after a pause found that somebody has taken the lock, or took it itself.
    pub(super) fn end(&mut self, taken: bool, now: Moment) {
        if taken {
            self.until = Moment::PAST;
        }
        let Some(counts) = self.paused.take() else { return };
        if taken || self.was_released_elsewhere() {
            self.unused_pauses = 0;
        }
        if taken || self.was_released_elsewhere() || !counts {
            return;
        }
        self.unused_pauses = self.unused_pauses.saturating_add(1);
        if let Some(doublings) = self.unused_pauses.checked_sub(MAX_UNUSED_PAUSES) {
            self.rest_until = now.after(YIELD_TIME * (1 << doublings.min(DOUBLINGS)));
        }
    }
}

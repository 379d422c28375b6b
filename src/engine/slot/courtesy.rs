//! How a process lets those go first who listen for the release of its lock.
//!
//! A process that releases a lock knows of it at once, and can have it again within a round trip. A
//! listener needs the message, a thread that wakes, and a request: with other libraries a millisecond and
//! more. So without any courtesy the listener always comes too late.
//!
//! - After a release that others heard, this process asks for the lock again only when it has heard another
//!   release, or after a pause. No thread of the process asks before. A release that nobody else heard has
//!   no pause after it.
//! - While others have listened lately, a lease is passed on between threads of this process only for a
//!   short time, whatever their number.
//! - A listener need not want the lock. Where nobody else took it in several pauses in a row, the next
//!   pause comes after a rest that doubles each time.
//!
//! The count of `PUBLISH` tells how many heard the release. It counts this client too where that listens, and
//! it misses those at a replica: it is a hint, and decides on nothing but the pause.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::sync::{Arc, MutexGuard};
use crate::base::time::Moment;
use crate::engine::HEARTBEAT;
use crate::engine::slot::{Inner, Paused, Slot};
use crate::protocol::Released;

/// The pause, besides two round trips.
const TURN: Duration = Duration::from_millis(5);
/// No round trip counts for more: then Redis was slow, and the way to it is not.
const LONGEST_TRIP: Duration = Duration::from_millis(50);
/// A lease is passed on for no longer than this while others listen.
pub(super) const PASSED_ON_WHILE_LISTENED: Duration = Duration::from_millis(1);
/// So many pauses in a row may be in vain before there is a rest…
const VAIN: u32 = 4;
/// …which doubles so often.
const DOUBLINGS: u32 = 8;

/// What one slot knows of those who listen.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// When a release of this process was last heard by others.
    listened_at: Moment,
    /// Until when the lock is left to others.
    until: Moment,
    /// How many releases were heard since the last one of this process was sent, and how many of those are
    /// its own.
    heard: u32,
    own: u32,
    /// Whether the delegate has paused before the attempt that it makes now.
    paused: bool,
    /// In how many pauses in a row nobody else took the lock.
    vain: u32,
    /// Until when there is no other pause.
    rest_until: Moment,
}

impl Courtesy {
    pub(super) fn new() -> Courtesy {
        Courtesy {
            listened_at: Moment::PAST,
            until: Moment::PAST,
            heard: 0,
            own: 0,
            paused: false,
            vain: 0,
            rest_until: Moment::PAST,
        }
    }

    /// Whether others have listened lately. Between two waits they may not for a moment.
    pub(super) fn is_listened_to(&self, now: Moment) -> bool {
        now.since(self.listened_at) <= HEARTBEAT
    }

    /// A release is about to be sent.
    pub(super) fn begin_release(&mut self) {
        self.heard = 0;
        self.own = 0;
    }

    /// Others heard the release, which took so long. Of all that heard it, so many were this client.
    fn released(&mut self, own: u32, trip: Duration, now: Moment) {
        self.own = own;
        self.listened_at = now;
        if self.rest_until <= now {
            self.until = now.after(TURN + trip.min(LONGEST_TRIP) * 2);
        }
    }

    /// Somebody released the lock.
    pub(super) fn hear_release(&mut self) {
        self.heard = self.heard.saturating_add(1);
    }

    /// Whether another had the lock since this process released it.
    fn is_over(&self) -> bool {
        self.heard > self.own
    }

    /// The attempt after a pause found that somebody has taken the lock, or took it itself.
    pub(super) fn end(&mut self, taken: bool, now: Moment) {
        if !std::mem::take(&mut self.paused) {
            return;
        }
        if taken || self.is_over() {
            self.vain = 0;
            return;
        }
        self.vain = self.vain.saturating_add(1);
        if let Some(doublings) = self.vain.checked_sub(VAIN) {
            self.rest_until = now.after(TURN * (1 << doublings.min(DOUBLINGS)));
        }
    }
}

impl Slot {
    /// Notes how many heard the release, which took so long, and whether this client was one of them.
    pub(crate) fn released(&self, released: Released, listens: bool, trip: Duration) {
        let own = u32::from(listens);
        if released.listeners > own && !mutated!("no-pause-for-listeners") {
            self.inner.lock().courtesy.released(own, trip, self.engine.now());
        }
    }

    /// Until when this process leaves the lock to those who listen, if it does.
    pub(crate) fn is_left_until(&self) -> Option<Moment> {
        let until = self.inner.lock().courtesy.until;
        (until > self.engine.now()).then_some(until)
    }

    /// The delegate leaves the lock to others until then, or until one of them has had it.
    pub(crate) fn leave_to_others(&self, until: Moment, seen: &mut u64) -> Paused {
        let mut inner = self.inner.lock();
        inner.courtesy.paused = true;
        let waits = |inner: &MutexGuard<'_, Inner>, seen: u64| {
            inner.cancellations == seen && !inner.courtesy.is_over()
        };
        while waits(&inner, *seen) && self.engine.now() < until {
            self.engine.doze(until, &mut |left| {
                self.pause.wait_for(&mut inner, left);
            });
        }
        inner.courtesy.until = Moment::PAST;
        // What was heard meanwhile is no reason for another attempt after the next.
        inner.nudged = false;
        let called_off = inner.cancellations != *seen;
        *seen = inner.cancellations;
        if called_off { Paused::CalledOff } else { Paused::Over }
    }

    /// Somebody released the lock, perhaps this process.
    pub(crate) fn hear_release(self: &Arc<Slot>) {
        self.inner.lock().courtesy.hear_release();
        self.nudge();
    }
}

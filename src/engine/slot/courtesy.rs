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

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::HEARTBEAT;
use crate::engine::slot::{Inner, Patience, Paused, Slot};
use crate::protocol::answer::{Released, Verdict};

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
    /// How many releases were heard since the last one of this process was sent…
    heard: u32,
    /// …and how many of its own this client was to hear since then: that one, and earlier ones that are
    /// late.
    due: u32,
    /// Whether this client has listened since before that release.
    listens: bool,
    /// Whether the delegate has paused before the attempt that it makes now; then whether it paused to the
    /// end and would have heard the release of another.
    paused: Option<bool>,
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
            due: 0,
            listens: false,
            paused: None,
            vain: 0,
            rest_until: Moment::PAST,
        }
    }

    /// Whether others have listened lately, and want the lock as far as is known. Between two waits they may
    /// not listen for a moment.
    pub(super) fn is_listened_to(&self, now: Moment) -> bool {
        now.since(self.listened_at) <= HEARTBEAT && self.vain < VAIN
    }

    /// Whether the lock is left to others then.
    pub(super) fn is_left_at(&self, now: Moment) -> bool {
        now < self.until
    }

    /// A release is about to be sent.
    pub(super) fn begin_release(&mut self) {
        self.due = self.due.saturating_sub(self.heard);
        self.heard = 0;
        self.listens = false;
        self.until = Moment::PAST;
    }

    /// The release took so long. Whether this client listened before it was sent, and whether others heard
    /// it.
    fn released(&mut self, listens: bool, others: bool, trip: Duration, now: Moment) {
        self.listens = listens;
        self.due = self.due.saturating_add(u32::from(listens));
        if !others {
            return;
        }
        self.listened_at = now;
        if self.rest_until <= now {
            self.until = now.after(TURN + trip.min(LONGEST_TRIP) * 2);
        }
    }

    /// Somebody released the lock.
    pub(super) fn hear_release(&mut self) {
        self.heard = self.heard.saturating_add(1);
    }

    /// The client listens anew: what was said before does not come any more.
    fn listen_anew(&mut self) {
        self.heard = 0;
        self.due = 0;
        self.listens = false;
    }

    /// Whether another had the lock since this process released it.
    fn is_over(&self) -> bool {
        self.heard > self.due
    }

    /// The delegate makes no attempt after its pause.
    pub(super) fn forget_pause(&mut self) {
        self.paused = None;
    }

    /// The attempt after a pause found that somebody has taken the lock, or took it itself.
    pub(super) fn end(&mut self, taken: bool, now: Moment) {
        if taken {
            self.until = Moment::PAST;
        }
        let Some(counts) = self.paused.take() else { return };
        if taken || self.is_over() {
            self.vain = 0;
        }
        if taken || self.is_over() || !counts {
            return;
        }
        self.vain = self.vain.saturating_add(1);
        if let Some(doublings) = self.vain.checked_sub(VAIN) {
            self.rest_until = now.after(TURN * (1 << doublings.min(DOUBLINGS)));
        }
    }
}

impl Inner {
    /// Whether a thread waits that has no more time than until then, and would not be told of the lock.
    fn is_short_of_time(&self, until: Moment) -> bool {
        let is_short = |patience| matches!(patience, Patience::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.patience))
    }
}

impl Slot {
    /// Notes how many heard the release, which took so long, and whether this client was one of them.
    pub(crate) fn released(&self, released: Released, listens: bool, trip: Duration) {
        if released.verdict != Verdict::Done {
            return;
        }
        let others = released.listeners > u32::from(listens) && !mutated!("no-pause-for-listeners");
        self.inner.lock().courtesy.released(listens, others, trip, self.engine.now());
    }

    /// Until when this process leaves the lock to those who listen, if it does.
    pub(crate) fn is_left_until(&self) -> Option<Moment> {
        let inner = self.inner.lock();
        inner.courtesy.is_left_at(self.engine.now()).then_some(inner.courtesy.until)
    }

    /// The delegate leaves the lock to others until then, or until one of them has had it, or for as long as
    /// its caller and those behind it have time.
    pub(crate) fn leave_to_others(&self, until: Moment, last: Moment, seen: &mut u64) -> Paused {
        let mut inner = self.inner.lock();
        let waits = |inner: &Inner, seen: u64| {
            inner.cancellations == seen
                && !inner.courtesy.is_over()
                && !inner.is_short_of_time(until)
        };
        while waits(&inner, *seen) && self.engine.now() < until.min(last) {
            self.engine.doze(until.min(last), &mut |left| {
                self.pause.wait_for(&mut inner, left);
            });
        }
        // What was heard meanwhile is no reason for another attempt after the next.
        inner.nudged = false;
        if self.is_called_off(&inner, seen) {
            return Paused::CalledOff;
        }
        let to_the_end = until <= self.engine.now();
        if to_the_end || inner.courtesy.is_over() {
            inner.courtesy.until = Moment::PAST;
        }
        let listens = inner.courtesy.listens;
        // The listener looks at slots while it has what the next question needs.
        drop(inner);
        let counts = to_the_end && listens && self.hears_others();
        self.inner.lock().courtesy.paused = Some(counts);
        Paused::Over
    }

    /// Whether this client hears the releases of all others.
    fn hears_others(&self) -> bool {
        let channel = self.target.channel().filter(|_| self.target.is_heard_everywhere());
        channel.is_some_and(|channel| self.engine.hub().hears(channel))
    }

    /// Somebody released the lock, perhaps this process.
    pub(crate) fn hear_release(self: &Arc<Slot>) {
        self.inner.lock().courtesy.hear_release();
        self.nudge();
    }

    /// The client listens for releases anew.
    pub(crate) fn listen_anew(&self) {
        self.inner.lock().courtesy.listen_anew();
    }
}

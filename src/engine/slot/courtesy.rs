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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::base::driven::DrivenClock;
    use crate::base::id::Identity;
    use crate::base::name::Name;
    use crate::base::option::{LockOptions, Wait};
    use crate::base::time::Clock;
    use crate::engine::acquire::acquire;
    use crate::engine::lease::LiveLease;
    use crate::engine::release::release;
    use crate::engine::slot::Patience;
    use crate::engine::{Bounds, Callbacks, Engine};
    use crate::protocol::memory::client::Memory;
    use crate::protocol::memory::server::{Ear, Server};
    use crate::protocol::reentrant::ReentrantKind;

    const SECOND: Duration = Duration::from_secs(1);
    const ALWAYS: Patience = Patience::Until(Moment::FAR);

    /// A server with two clients and somebody who listens, and a clock that stands still.
    struct Bench {
        clock: Arc<DrivenClock>,
        server: Arc<Server>,
        slot: Arc<Slot>,
        other: Arc<Slot>,
    }

    impl Bench {
        fn new() -> Bench {
            let clock = Arc::new(DrivenClock::new(false));
            let server = Server::new(Arc::clone(&clock) as Arc<dyn Clock>);
            let [slot, other] = [(); 2].map(|()| {
                let memory = Memory::new(Arc::clone(&server), Arc::new(Identity::new("")));
                let engine = Engine::new(
                    Arc::new(memory),
                    Arc::clone(&clock) as Arc<dyn Clock>,
                    Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND },
                    Callbacks::default(),
                );
                engine.slot(&ReentrantKind, Name::new(b"", b"x").unwrap())
            });
            Bench { clock, server, slot, other }
        }

        fn listener(&self) -> Ear {
            self.server.listen(&Arc::default(), self.slot.target().channel().unwrap())
        }

        fn put_forward(&self, span: Duration) {
            self.clock.put_forward(self.clock.now().after(span));
        }

        /// The other client has the lock once, which must be free.
        fn other_has_it(&self) -> Arc<LiveLease> {
            take(&self.other, Patience::Once).expect("it is free")
        }

        /// Waits until a thread pauses until then, or has the lock.
        fn until_paused(&self, until: Moment, thread: &thread::ScopedJoinHandle<'_, ()>) {
            while self.clock.next_due() != Some(until) && !thread.is_finished() {
                thread::yield_now();
            }
        }
    }

    fn take(slot: &Arc<Slot>, patience: Patience) -> Option<Arc<LiveLease>> {
        acquire(slot, &LockOptions::new().wait(Wait::notify()), patience).expect("no trouble")
    }

    fn have_once(slot: &Arc<Slot>) {
        release(&take(slot, ALWAYS).expect("nobody has it")).expect("still ours");
    }

    #[test]
    fn released_lock_is_left_to_a_listener_for_a_while() {
        let bench = Bench::new();
        let _listener = bench.listener();
        have_once(&bench.slot);
        let until = bench.clock.now().after(TURN);
        thread::scope(|scope| {
            let again = scope.spawn(|| have_once(&bench.slot));
            bench.until_paused(until, &again);
            assert!(!again.is_finished(), "it took the lock before the listener could");
            let lease = bench.other_has_it();
            bench.clock.put_forward(until);
            release(&lease).unwrap();
        });
    }

    #[test]
    fn pause_ends_once_another_has_had_the_lock() {
        let bench = Bench::new();
        let _listener = bench.listener();
        let held = bench.other_has_it();
        thread::scope(|scope| {
            // A wait makes the client listen.
            let first = scope.spawn(|| take(&bench.slot, ALWAYS).expect("in the end"));
            while !bench.slot.engine().hub().hears(bench.slot.target().channel().unwrap()) {
                thread::yield_now();
            }
            release(&held).unwrap();
            let lease = first.join().unwrap();
            // The other client has just released it, and would pause too.
            bench.put_forward(TURN);
            release(&lease).unwrap();
            let until = bench.clock.now().after(TURN);
            let again = scope.spawn(|| have_once(&bench.slot));
            bench.until_paused(until, &again);
            assert!(!again.is_finished(), "its own release ended the pause");
            // The clock still stands.
            release(&bench.other_has_it()).unwrap();
        });
    }

    #[test]
    fn release_that_nobody_heard_has_no_pause_after_it() {
        let bench = Bench::new();
        (0..3).for_each(|_| have_once(&bench.slot));
        let held = bench.other_has_it();
        thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| have_once(&bench.slot)));
            while !bench.slot.engine().hub().hears(bench.slot.target().channel().unwrap()) {
                thread::yield_now();
            }
            // From here on the client itself hears its releases, and nobody else does.
            release(&held).unwrap();
        });
        assert_eq!(bench.slot.is_left_until(), None);
    }

    #[test]
    fn lease_is_passed_on_only_briefly_while_others_listen() {
        for (listened, held, passed_on) in [
            (false, PASSED_ON_WHILE_LISTENED, true),
            (true, PASSED_ON_WHILE_LISTENED / 2, true),
            (true, PASSED_ON_WHILE_LISTENED, false),
        ] {
            let bench = Bench::new();
            let _listener = listened.then(|| bench.listener());
            have_once(&bench.slot);
            bench.put_forward(TURN);
            let lease = take(&bench.slot, ALWAYS).unwrap();
            thread::scope(|scope| {
                let next = scope.spawn(|| drop(take(&bench.slot, ALWAYS)));
                while bench.slot.waiters() == 0 {
                    thread::yield_now();
                }
                bench.put_forward(held);
                release(&lease).unwrap();
                let other = take(&bench.other, Patience::Once);
                assert_eq!(other.is_none(), passed_on, "listened: {listened}, for {held:?}");
                if let Some(lease) = other {
                    release(&lease).unwrap();
                    bench.put_forward(TURN);
                }
                next.join().unwrap();
            });
        }
    }

    /// Somebody may listen who never takes the lock.
    #[test]
    fn pauses_in_vain_become_rare_until_somebody_takes_the_lock() {
        let mut courtesy = Courtesy::new();
        let begin = DrivenClock::START;
        let mut now = begin;
        let mut paused = |courtesy: &mut Courtesy, taken: bool| {
            now = now.after(Duration::from_micros(100));
            courtesy.begin_release();
            courtesy.released(0, Duration::ZERO, now);
            let pauses = courtesy.until > now;
            courtesy.paused = pauses;
            now = now.max(courtesy.until);
            courtesy.end(taken, now);
            (pauses, now.since(begin))
        };
        let first: Vec<bool> = (0..8).map(|_| paused(&mut courtesy, false).0).collect();
        assert_eq!(first, [true, true, true, true, false, false, false, false]);
        let mut pauses = 0;
        let span = loop {
            let (pauses_now, span) = paused(&mut courtesy, false);
            pauses += u32::from(pauses_now);
            if span > Duration::from_secs(60) {
                break span;
            }
        };
        assert!(TURN * pauses < span / 100, "{pauses} pauses in {span:?}");
        while !paused(&mut courtesy, true).0 {}
        assert!((0..100).all(|_| paused(&mut courtesy, true).0), "a rest without a reason");
    }
}

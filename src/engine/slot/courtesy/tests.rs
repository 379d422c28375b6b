//! The pause after a release that others heard, on a clock that stands still.

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

//! The pause after a release that others received, on a clock that stands still.

use std::thread;
use std::time::Instant;

use leasehold_support::lag::{self, Spent as _};

use super::*;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::{LockOptions, Wait};
use crate::base::sync::Arc;
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::Clock;
use crate::engine::acquire::acquire;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::holding::Holding;
use crate::engine::listener::ReleaseListener;
use crate::engine::shutdown::close;
use crate::engine::slot::WaitLimit;
use crate::engine::slot::fairness::{
    ListenerCount, PASS_ON_WHILE_LISTENED, YIELD_STEP, YIELD_TIME,
};
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::reentrant::ReentrantKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::link::FaultyLink;
use crate::topology::memory::server::{MemoryServer, MemorySubscriber};

const SECOND: Duration = Duration::from_secs(1);
const ALWAYS: WaitLimit = WaitLimit::Until(Moment::FAR);

/// A server with two clients, and a clock that stands still.
struct Bench {
    clock: Arc<ManualClock>,
    server: Arc<MemoryServer>,
    engine: Arc<Engine>,
    slot: Arc<Slot>,
    other: Arc<Slot>,
    /// The link of the first client.
    link: Arc<FaultyLink>,
}

impl Bench {
    fn new() -> Bench {
        let clock = Arc::new(ManualClock::new(false));
        let server = MemoryServer::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let memories =
            [(); 2].map(|()| MemoryBackend::new(Arc::clone(&server), Arc::new(Identity::new(""))));
        let link = Arc::clone(memories[0].link());
        let [engine, another] = memories.map(|memory| {
            Engine::new(
                Arc::new(ScriptProtocol::new(memory)),
                Arc::clone(&clock) as Arc<dyn Clock>,
                Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None },
                Callbacks::default(),
            )
        });
        let slot = |engine: &Engine| engine.slot(&ReentrantKind, Name::new(b"", b"x").unwrap());
        Bench { clock, server, slot: slot(&engine), other: slot(&another), engine, link }
    }

    fn listener(&self) -> MemorySubscriber {
        self.server.listen(&Arc::default(), self.slot.target().channel().unwrap())
    }

    /// Until when the first client yields, if it does.
    fn is_left_until(&self) -> Option<Moment> {
        let state = self.slot.state.lock();
        state.fairness.yields_at(self.clock.now()).then_some(state.fairness.until)
    }

    fn put_forward(&self, span: Duration) {
        self.clock.put_forward(self.clock.now().after(span));
    }

    /// The other client acquires the lock, which must be free.
    fn other_has_it(&self) -> Holding {
        take(&self.other, WaitLimit::TryOnce).expect("it is free")
    }

    /// Waits until a thread pauses until that moment, or has ended.
    fn until_paused<T>(&self, until: Moment, thread: &thread::ScopedJoinHandle<'_, T>) {
        while self.clock.next_due() != Some(until) && !thread.is_finished() {
            thread::yield_now();
        }
    }

    /// Whether a thread waits until that moment. If not, it ends.
    fn waits_until<T>(&self, until: Moment, thread: &thread::ScopedJoinHandle<'_, T>) -> bool {
        loop {
            match (self.clock.is_awaited(until), thread.is_finished()) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => thread::yield_now(),
            }
        }
    }

    /// Makes the client of a slot subscribe.
    fn listens(&self, slot: &Arc<Slot>) {
        let channel = slot.target().channel().unwrap();
        slot.context().listener.listen_to(channel, slot, Moment::FAR).unwrap();
    }

    /// Waits until the first client has received so many releases since its own.
    fn until_heard(&self, releases: u32) {
        while !self.has_heard(releases) {
            thread::yield_now();
        }
    }

    /// Whether the first client has received so many releases since its own.
    fn has_heard(&self, releases: u32) -> bool {
        self.slot.state.lock().fairness.releases_heard >= releases
    }

    /// A client that only listens has had the lock.
    fn publish_release(&self) {
        let channel = self.slot.target().channel().unwrap();
        self.server.call(&[b"PUBLISH", channel, b"0"]).unwrap();
    }

    /// Until when a thread pauses, or waits for something else.
    fn pause<T>(&self, thread: &thread::ScopedJoinHandle<'_, T>) -> Option<Moment> {
        let latest = self.clock.now().after(SECOND);
        loop {
            match self.clock.next_due() {
                Some(due) if due <= latest => return Some(due),
                _ if thread.is_finished() => return None,
                _ => thread::yield_now(),
            }
        }
    }

    /// A release that others received, and the pause after it, in which nobody takes the lock. Returns
    /// whether there is a pause.
    fn pause_in_vain(&self, listens: bool) -> bool {
        let slot = &self.slot;
        let listener_count = ListenerCount {
            listeners: 2,
            listens,
            hears_own: true,
            hears_all: true,
            round_trip: Duration::ZERO,
        };
        slot.state.lock().fairness.begin_release();
        slot.state.lock().fairness.released(listener_count, self.clock.now());
        if listens {
            slot.on_release();
        }
        let until = self.is_left_until();
        if let Some(until) = until {
            self.clock.put_forward(until);
            assert_eq!(slot.yield_to_others(Moment::FAR), Paused::Over);
        }
        slot.state.lock().fairness.end(false, self.clock.now());
        until.is_some()
    }
}

/// Whether a thread ends while the clock stands still.
fn ends<T>(thread: &thread::ScopedJoinHandle<'_, T>) -> bool {
    lag::watch();
    let begin = Instant::now();
    while !thread.is_finished() && (begin.elapsed() < SECOND * 10 || begin.spent() < SECOND * 10) {
        thread::yield_now();
    }
    thread.is_finished()
}

fn take(slot: &Arc<Slot>, wait_limit: WaitLimit) -> Option<Holding> {
    acquire(slot, &LockOptions::new().wait(Wait::notify()), wait_limit, |it| it)
        .expect("no trouble")
}

fn have_once(slot: &Arc<Slot>) {
    take(slot, ALWAYS).expect("nobody has it").release().expect("still ours");
}

#[test]
fn released_lock_is_left_to_listeners_for_a_pause() {
    let bench = Bench::new();
    let _listener = bench.listener();
    have_once(&bench.slot);
    let until = bench.clock.now().after(YIELD_TIME);
    thread::scope(|scope| {
        let again = scope.spawn(|| have_once(&bench.slot));
        bench.until_paused(until, &again);
        assert!(!again.is_finished(), "it took the lock before the listener could");
        let lease = bench.other_has_it();
        bench.clock.put_forward(until);
        lease.release().unwrap();
    });
}

#[test]
fn pause_ends_once_another_process_had_the_lock() {
    let bench = Bench::new();
    let _listener = bench.listener();
    let held = bench.other_has_it();
    thread::scope(|scope| {
        // Its wait makes the client subscribe.
        let first = scope.spawn(|| take(&bench.slot, ALWAYS).expect("in the end"));
        while !bench.slot.context().listener.is_subscribed(bench.slot.target().channel().unwrap()) {
            thread::yield_now();
        }
        held.release().unwrap();
        // The first request after the subscription may get the lock before this message comes. A message
        // that came after the next release would end the pause.
        bench.until_heard(1);
        let lease = first.join().unwrap();
        // The other client has just released the lock, and would pause too.
        bench.put_forward(YIELD_TIME * 2);
        lease.release().unwrap();
        let until = bench.clock.now().after(YIELD_TIME);
        let again = scope.spawn(|| have_once(&bench.slot));
        bench.until_paused(until, &again);
        assert!(!again.is_finished(), "its own release ended the pause");
        // The clock has not moved.
        bench.other_has_it().release().unwrap();
    });
}

/// Others listen, and the other client is the first of them.
#[test]
fn pause_goes_on_until_all_that_listen_have_had_the_lock() {
    let bench = Bench::new();
    let _listener = bench.listener();
    bench.listens(&bench.slot);
    bench.listens(&bench.other);
    have_once(&bench.slot);
    let until = bench.clock.now().after(YIELD_TIME + YIELD_STEP);
    thread::scope(|scope| {
        let again = scope.spawn(|| have_once(&bench.slot));
        bench.until_paused(until, &again);
        bench.put_forward(SECOND / 1000);
        let next = bench.clock.now().after(YIELD_TIME);
        bench.other_has_it().release().unwrap();
        while !bench.has_heard(2) && !again.is_finished() {
            thread::yield_now();
        }
        // The pause looks at its end.
        bench.clock.put_forward(until);
        assert!(bench.waits_until(next, &again), "it asked before its turn");
        // The other that listens has the lock, too.
        bench.publish_release();
        again.join().unwrap();
    });
}

/// A process whose pause is over asks, and finds the lock taken. At the release it still leaves it to those that come
/// before it.
#[test]
fn waiter_whose_pause_was_too_short_pauses_again_at_the_release() {
    let bench = Bench::new();
    let _listener = bench.listener();
    bench.listens(&bench.slot);
    bench.listens(&bench.other);
    have_once(&bench.slot);
    // A message of its own release that comes later has it ask, too.
    bench.until_heard(1);
    let until = bench.clock.now().after(YIELD_TIME + YIELD_STEP);
    thread::scope(|scope| {
        let again = scope.spawn(|| have_once(&bench.slot));
        bench.until_paused(until, &again);
        let held = bench.other_has_it();
        bench.clock.put_forward(until);
        // It asks, and waits for a heartbeat.
        assert!(bench.waits_until(until.after(HEARTBEAT), &again));
        bench.put_forward(SECOND / 1000);
        held.release().unwrap();
        let next = bench.clock.now().after(YIELD_TIME);
        assert!(bench.waits_until(next, &again), "it asked before its turn");
        bench.publish_release();
        again.join().unwrap();
    });
}

#[test]
fn release_without_listeners_causes_no_pause() {
    let bench = Bench::new();
    (0..3).for_each(|_| have_once(&bench.slot));
    let held = bench.other_has_it();
    thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| have_once(&bench.slot)));
        while !bench.slot.context().listener.is_subscribed(bench.slot.target().channel().unwrap()) {
            thread::yield_now();
        }
        // From here on only the client itself receives its releases.
        held.release().unwrap();
    });
    assert_eq!(bench.is_left_until(), None);
}

#[test]
fn lease_is_passed_on_only_briefly_while_others_listen() {
    for (listened, held, passed_on) in [
        (false, PASS_ON_WHILE_LISTENED, true),
        (true, PASS_ON_WHILE_LISTENED / 2, true),
        (true, PASS_ON_WHILE_LISTENED, false),
    ] {
        let bench = Bench::new();
        let _listener = listened.then(|| bench.listener());
        have_once(&bench.slot);
        bench.put_forward(YIELD_TIME);
        let lease = take(&bench.slot, ALWAYS).unwrap();
        thread::scope(|scope| {
            let next = scope.spawn(|| drop(take(&bench.slot, ALWAYS)));
            while bench.slot.waiters() == 0 {
                thread::yield_now();
            }
            bench.put_forward(held);
            lease.release().unwrap();
            let other = take(&bench.other, WaitLimit::TryOnce);
            assert_eq!(other.is_none(), passed_on, "listened: {listened}, for {held:?}");
            if let Some(lease) = other {
                lease.release().unwrap();
                bench.put_forward(YIELD_TIME);
            }
            next.join().unwrap();
        });
    }
}

#[test]
fn pause_does_not_wait_for_its_subscription() {
    let bench = Bench::new();
    let _listener = bench.listener();
    bench.slot.context().listener.ready(Moment::FAR).unwrap();
    have_once(&bench.slot);
    // The message that makes the client's listener subscribe is lost.
    bench.link.lose_messages(u64::MAX);
    let until = bench.clock.now().after(YIELD_TIME);
    thread::scope(|scope| {
        let again = scope.spawn(|| have_once(&bench.slot));
        let due = bench.pause(&again);
        bench.put_forward(SECOND);
        assert_eq!(due, Some(until));
    });
}

#[test]
fn pause_ends_at_the_callers_deadline() {
    let bench = Bench::new();
    let _listener = bench.listener();
    have_once(&bench.slot);
    let deadline = bench.clock.now().after(YIELD_TIME / 2);
    thread::scope(|scope| {
        let again = scope.spawn(|| take(&bench.slot, WaitLimit::Until(deadline)));
        let due = bench.pause(&again);
        bench.put_forward(YIELD_TIME / 2);
        let outcome = ends(&again);
        bench.put_forward(SECOND);
        assert_eq!((due, outcome), (Some(deadline), true));
        assert!(again.join().unwrap().is_some(), "it did not ask");
    });
}

/// Otherwise it would return *busy*, although nobody has asked Redis.
#[test]
fn waiter_with_less_time_ends_the_acquirers_pause() {
    let bench = Bench::new();
    let _listener = bench.listener();
    have_once(&bench.slot);
    let until = bench.clock.now().after(YIELD_TIME);
    let deadline = bench.clock.now().after(YIELD_TIME / 2);
    thread::scope(|scope| {
        let delegate = scope.spawn(|| have_once(&bench.slot));
        bench.until_paused(until, &delegate);
        let next = scope.spawn(|| take(&bench.slot, WaitLimit::Until(deadline)));
        let asked = ends(&delegate);
        bench.put_forward(YIELD_TIME / 2);
        let outcome = next.join().unwrap();
        bench.put_forward(SECOND);
        assert!(asked, "it pauses on");
        assert!(outcome.is_some(), "nobody has it");
    });
}

#[test]
fn cancel_does_not_end_a_single_attempt_in_its_pause() {
    for shut in [false, true] {
        let bench = Bench::new();
        let _listener = bench.listener();
        have_once(&bench.slot);
        let until = bench.clock.now().after(YIELD_TIME);
        thread::scope(|scope| {
            let again = scope.spawn(|| {
                acquire(
                    &bench.slot,
                    &LockOptions::new().wait(Wait::notify()),
                    WaitLimit::TryOnce,
                    |it| it,
                )
            });
            bench.until_paused(until, &again);
            if shut {
                let _ = close(&bench.engine, Duration::ZERO, Duration::ZERO);
            } else {
                assert_eq!(bench.slot.cancel(), 0);
                bench.put_forward(YIELD_TIME);
            }
            let outcome = again.join().unwrap();
            let called_off = outcome.as_ref().is_err_and(|error| error.is_cancelled());
            assert_eq!(called_off, shut, "{outcome:?}");
        });
    }
}

#[test]
fn cancelled_wait_leaves_its_pause_due() {
    let bench = Bench::new();
    let _listener = bench.listener();
    have_once(&bench.slot);
    let until = bench.clock.now().after(YIELD_TIME);
    thread::scope(|scope| {
        let again = scope.spawn(|| {
            acquire(&bench.slot, &LockOptions::new().wait(Wait::notify()), ALWAYS, |it| it)
        });
        bench.until_paused(until, &again);
        bench.slot.cancel();
        assert!(again.join().unwrap().is_err_and(|error| error.is_cancelled()));
    });
    assert_eq!(bench.is_left_until(), Some(until));
    assert_eq!(bench.slot.state.lock().fairness.paused, None);
}

/// A client that does not listen receives no release: in a cluster, or without the right to.
#[test]
fn unused_pause_counts_only_while_subscribed() {
    for listens in [false, true] {
        let bench = Bench::new();
        if listens {
            bench.listens(&bench.slot);
        }
        let pauses = (0..10).filter(|_| bench.pause_in_vain(listens)).count();
        assert_eq!(pauses, if listens { 4 } else { 10 }, "listens: {listens}");
        let now = bench.clock.now();
        assert_eq!(bench.slot.state.lock().fairness.has_listeners(now), !listens);
    }
}

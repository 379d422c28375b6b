//! Observers that panic, and observers that use locks of their client.

use std::time::Duration;

use super::super::double::{at_once, patient, until};
use super::{SECOND, aside, stage};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, Weak};
use crate::client::LockClient;
use crate::engine::Engine;
use crate::kind::Guard;
use crate::observe::{Acquired, Exchange, Lost, NotAcquired, Observer, Released, Renewed, Waiting};
use crate::testing::Server;

/// Panics whenever it is called.
struct Panics(Arc<AtomicU32>);

/// What all methods of an observer do alike.
macro_rules! each {
    ($observer:ty, $do:ident) => {
        impl Observer for $observer {
            fn waiting(&self, _: &Waiting<'_>) {
                self.$do();
            }
            fn acquired(&self, _: &Acquired<'_>) {
                self.$do();
            }
            fn not_acquired(&self, _: &NotAcquired<'_>) {
                self.$do();
            }
            fn released(&self, _: &Released<'_>) {
                self.$do();
            }
            fn lost(&self, _: &Lost<'_>) {
                self.$do();
            }
            fn renewed(&self, _: &Renewed) {
                self.$do();
            }
            fn exchange(&self, _: &Exchange) {
                self.$do();
            }
        }
    };
}

impl Panics {
    fn panic(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("an observer of a test");
    }
}

each!(Panics, panic);

#[test]
fn panic_of_an_observer_leaves_locks_and_others_as_they_are() {
    let (server, recorder, _) = stage();
    let count = Arc::new(AtomicU32::new(0));
    let settings = LockClient::builder("redis://memory")
        .observer(Panics(Arc::clone(&count)))
        .observer(recorder.clone());
    let client = server.connect(settings).unwrap();
    let lock = client.mutex("a").unwrap();
    let guard = lock.lock().unwrap();
    let waiter = { aside(move || lock.lock().and_then(Guard::release)) };
    until(|| guard.waiters() == 1);
    server.advance(SECOND * 11);
    guard.release().unwrap();
    waiter.recv().unwrap().unwrap();
    let lost = client.mutex("a").unwrap().lock().unwrap();
    server.delete("a");
    assert!(lost.check().is_err());
    recorder.settle();
    // Three for each of three calls and holds, besides exchanges and renewals.
    assert!(count.load(Ordering::SeqCst) > 9);
}

/// Takes the lock of the test and gives it back, in each event. It does not own the client.
#[derive(Clone, Default)]
struct Locks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    engine: Mutex<Weak<Engine>>,
    name: Mutex<&'static str>,
    /// Whether it waits for no longer than a moment.
    is_brief: AtomicBool,
    /// How often it had the lock, and how often somebody else.
    counts: [AtomicU32; 2],
}

impl Locks {
    fn lock(&self) {
        let Some(engine) = self.0.engine.lock().upgrade() else { return };
        let name = *self.0.name.lock();
        let client = LockClient::new(engine, Vec::new(), String::new(), Duration::ZERO);
        let lock = client.mutex(name).unwrap();
        let brief = self.0.is_brief.load(Ordering::SeqCst);
        let wait = if brief { Duration::from_millis(1) } else { SECOND * 200 };
        let guard = lock.try_lock_for(wait).unwrap();
        self.0.counts[usize::from(guard.is_none())].fetch_add(1, Ordering::SeqCst);
    }

    fn counts(&self) -> [u32; 2] {
        self.0.counts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

each!(Locks, lock);

/// A client whose observer takes the lock of this name in each event.
fn locking(server: &Server, name: &'static str) -> (LockClient, Locks) {
    let locks = Locks::default();
    let settings = patient().observer(locks.clone());
    let client = server.connect(settings).unwrap();
    *locks.0.name.lock() = name;
    *locks.0.engine.lock() = Arc::downgrade(client.engine());
    (client, locks)
}

#[test]
fn observer_that_takes_the_lock_of_the_event_ends() {
    let server = Server::standing_still();
    let (client, locks) = locking(&server, "a");
    at_once(move || {
        let lock = client.mutex("a").unwrap();
        for _ in 0..3 {
            lock.lock().unwrap().release().unwrap();
        }
        let all = ["a", "b"].map(|name| client.mutex(name).unwrap());
        client.lock_all(&all).unwrap().release().unwrap();
        lock.inspect().unwrap();
    });
    // Two exchanges and three others for each of three locks.
    let [had, busy] = locks.counts();
    assert!(had >= 15 && busy == 0, "{had} {busy}");
}

#[test]
fn observer_that_tries_a_held_lock_ends_in_each_thread() {
    // It is chance whether another has the lock during an event.
    until(|| {
        let server = Server::new();
        let (client, locks) = locking(&server, "a");
        locks.0.is_brief.store(true, Ordering::SeqCst);
        at_once(move || {
            let lock = client.mutex("a").unwrap();
            let guard = lock.lock().unwrap();
            let (next, other) = (lock.clone(), server.client().mutex("a").unwrap());
            let near = aside(move || next.lock().and_then(Guard::release));
            let far = aside(move || other.lock().and_then(Guard::release));
            until(|| guard.waiters() == 2);
            guard.release().unwrap();
            near.recv().unwrap().unwrap();
            far.recv().unwrap().unwrap();
            let guard = lock.lock().unwrap();
            server.delete("a");
            assert!(guard.check().is_err());
        });
        locks.counts().iter().all(|&count| count > 0)
    });
}

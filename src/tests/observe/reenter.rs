//! Observers that panic, and observers that use locks of their client.

use std::time::Duration;

use super::super::double::until;
use super::{SECOND, SOON, aside, stage};
use crate::base::sync::{Arc, AtomicU32, Mutex, OnceLock, Ordering, Weak};
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
    waiter.recv_timeout(SOON).unwrap().unwrap();
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
    engine: OnceLock<Weak<Engine>>,
    name: Mutex<&'static str>,
    /// How often it had the lock, and how often somebody else.
    counts: [AtomicU32; 2],
}

impl Locks {
    fn lock(&self) {
        let Some(engine) = self.0.engine.get().and_then(Weak::upgrade) else { return };
        let name = *self.0.name.lock();
        let client = LockClient::new(engine, Vec::new(), String::new());
        let lock = client.mutex(name).unwrap();
        let guard = lock.try_lock_for(Duration::from_millis(1)).unwrap();
        self.0.counts[usize::from(guard.is_none())].fetch_add(1, Ordering::SeqCst);
    }
}

each!(Locks, lock);

/// A client whose observer takes the lock of this name in each event.
fn locking(server: &Server, name: &'static str) -> (LockClient, Locks) {
    let locks = Locks::default();
    let settings = LockClient::builder("redis://memory").observer(locks.clone());
    let client = server.connect(settings).unwrap();
    *locks.0.name.lock() = name;
    assert!(locks.0.engine.set(Arc::downgrade(client.engine())).is_ok());
    (client, locks)
}

/// In real time: a wait that never ends must not look like a clock that stands still.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    aside(work).recv_timeout(SOON).expect("an observer waits for its own thread")
}

#[test]
fn observer_that_takes_the_lock_of_the_event_ends() {
    let server = Server::new();
    let (client, locks) = locking(&server, "a");
    let (here, other) = (client.clone(), server.client());
    within(move || {
        let lock = here.mutex("a").unwrap();
        for _ in 0..3 {
            lock.lock().unwrap().release().unwrap();
        }
        let all = ["a", "b"].map(|name| here.mutex(name).unwrap());
        here.lock_all(&all).unwrap().release().unwrap();
        // Held elsewhere.
        let held = other.mutex("a").unwrap().lock().unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        held.release().unwrap();
    });
    let [had, busy] = [0, 1].map(|of| locks.0.counts[of].load(Ordering::SeqCst));
    assert!(had > 10 && busy > 0, "{had} {busy}");
}

#[test]
fn observer_that_takes_another_lock_ends_in_each_thread() {
    let server = Server::new();
    let (client, locks) = locking(&server, "c");
    let (here, memory) = (client.clone(), server.clone());
    within(move || {
        let lock = here.mutex("a").unwrap();
        let guard = lock.lock().unwrap();
        let (next, other) = (lock.clone(), memory.client().mutex("a").unwrap());
        let near = aside(move || next.lock().and_then(Guard::release));
        let far = aside(move || other.lock().and_then(Guard::release));
        until(|| guard.waiters() == 2);
        guard.release().unwrap();
        near.recv_timeout(SOON).unwrap().unwrap();
        far.recv_timeout(SOON).unwrap().unwrap();
        let guard = lock.lock().unwrap();
        memory.delete("a");
        assert!(guard.check().is_err());
    });
    until(|| locks.0.counts[0].load(Ordering::SeqCst) > 8);
}

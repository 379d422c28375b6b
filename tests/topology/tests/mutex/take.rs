//! Taking a lock: who gets it, and who does not.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Mutex;
use leasehold_topology_test::scene::{SOON, Scene, ms};
use leasehold_topology_test::{Client, Topology};

pub(crate) fn one_holder_at_a_time<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let guard = lock.lock().unwrap();
    guard.check().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    guard.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn names_are_independent<T: Topology>(scene: &Scene<'_, T>) {
    let (client, other) = (scene.client(), scene.client());
    let _a = client.mutex(&scene.name("a")).unwrap().lock().unwrap();
    let _b = other.mutex(&scene.name("b")).unwrap().try_lock().unwrap().expect("free");
    let tagged = [b"{", &scene.name("a")[..], b"}"].concat();
    let _tagged = other.mutex(&tagged).unwrap().try_lock().unwrap().expect("free");
}

/// Whether the holder is a thread of this client, or another client.
pub(crate) fn try_lock_of_a_held_lock_returns_none<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let guard = lock.lock().unwrap();
    let refused = |lock: &Mutex| {
        assert!(lock.try_lock().unwrap().is_none());
        assert!(lock.try_lock_for(Duration::ZERO).unwrap().is_none());
        assert!(lock.try_lock_until(Instant::now() - ms(1)).unwrap().is_none());
    };
    thread::scope(|scope| {
        scope.spawn(|| refused(&lock));
        scope.spawn(|| refused(&elsewhere));
    });
    guard.release().unwrap();
    assert!(elsewhere.try_lock_for(Duration::ZERO).unwrap().is_some());
    assert!(elsewhere.try_lock_until(Instant::now() - ms(1)).unwrap().is_some());
}

pub(crate) fn timed_wait_returns_none_at_its_end<T: Topology>(scene: &Scene<'_, T>) {
    const WAIT: Duration = ms(500);
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let guard = lock.lock().unwrap();
    let waits = |lock: &Mutex| {
        let begin = Instant::now();
        assert!(lock.try_lock_for(WAIT).unwrap().is_none());
        assert!(begin.elapsed() >= WAIT, "{:?}", begin.elapsed());
        let begin = Instant::now();
        assert!(lock.try_lock_until(begin + WAIT).unwrap().is_none());
        assert!(begin.elapsed() >= WAIT && begin.elapsed() < SOON, "{:?}", begin.elapsed());
    };
    thread::scope(|scope| {
        scope.spawn(|| waits(&lock));
        scope.spawn(|| waits(&elsewhere));
    });
    guard.check().unwrap();
}

pub(crate) fn threads_exclude_each_other<T: Topology>(scene: &Scene<'_, T>) {
    const THREADS: u64 = 8;
    const HOLDS: u64 = 25;
    let lock = scene.lock();
    let shared = Shared::default();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..HOLDS).for_each(|_| shared.hold(&lock)));
        }
    });
    assert_eq!(shared.number.into_inner(), THREADS * HOLDS);
}

pub(crate) fn clients_exclude_each_other<T: Topology>(scene: &Scene<'_, T>) {
    const CLIENTS: u64 = 4;
    const HOLDS: u64 = 15;
    let shared = Shared::default();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let lock = scene.lock();
            let shared = &shared;
            scope.spawn(move || (0..HOLDS).for_each(|_| shared.hold(&lock)));
        }
    });
    assert_eq!(shared.number.into_inner(), CLIENTS * HOLDS);
}

/// What only one thread at a time may touch.
#[derive(Default)]
struct Shared {
    busy: AtomicBool,
    number: AtomicU64,
    last_token: AtomicU64,
}

impl Shared {
    fn hold(&self, lock: &Mutex) {
        let guard = lock.lock().unwrap();
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two holders");
        let number = self.number.load(Ordering::SeqCst);
        let token = guard.fencing_token().get();
        let last = self.last_token.swap(token, Ordering::SeqCst);
        assert!(last < token, "{token} after {last}");
        thread::yield_now();
        self.number.store(number + 1, Ordering::SeqCst);
        self.busy.store(false, Ordering::SeqCst);
        guard.release().unwrap();
    }
}

/// The value comes back only if the lock was held to the end.
pub(crate) fn with_releases_and_reports_a_loss_of_the_hold<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let token = lock.with(|guard| {
        assert!(elsewhere.try_lock().unwrap().is_none());
        guard.fencing_token()
    });
    assert!(elsewhere.try_lock().unwrap().expect("free").fencing_token() > token.unwrap());
    let lost = lock.with(|_| assert!(elsewhere.force_release().unwrap()));
    assert!(lost.unwrap_err().is_lost());
}

pub(crate) fn repeated_attempts_do_not_break_a_short_hold<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let refused = AtomicU32::new(0);
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert!(elsewhere.try_lock().unwrap().is_none());
                    refused.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 40);
    guard.release().unwrap();
    // Nothing of those attempts is left.
    assert!(elsewhere.try_lock().unwrap().is_some());
}

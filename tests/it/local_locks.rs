//! Locks by key inside one process: the contract of the trait, which a client over a server and one over the server
//! in memory fulfil as well, and threads that contend.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{SOON, ms, names, open, server, until};
use leasehold::{DistributedLock, ErrorKind, Lease, LocalLocks};

const NOW: Duration = Duration::ZERO;

fn lease() -> Lease {
    Lease::fixed(ms(20_000))
}

/// What code that knows only the trait may rely on.
fn keep_the_contract<L: DistributedLock + Sync>(locks: &L) {
    let elsewhere = |wait: Duration| {
        thread::scope(|scope| {
            scope.spawn(|| locks.try_lock("x", wait, lease()).unwrap()).join().unwrap()
        })
    };
    // A hold is one thread's. That thread may take it again, and unlocks it as often.
    assert!(!locks.is_held("x"));
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    assert!(locks.try_lock("x", SOON, Lease::default()).unwrap());
    assert!(!elsewhere(NOW));
    locks.unlock("x").unwrap();
    assert!(locks.is_held("x") && !elsewhere(ms(150)));
    locks.unlock("x").unwrap();
    assert!(!locks.is_held("x"));
    let error = locks.unlock("x").unwrap_err();
    assert!(error.is_not_held() && !error.is_lost() && !error.is_transient(), "{error}");
    assert!(error.to_string().starts_with("lock \"x\": not held by this thread"), "{error}");

    // A thread that ends releases what it holds.
    assert!(elsewhere(NOW));
    assert!(locks.try_lock("x", SOON, lease()).unwrap());
    locks.unlock("x").unwrap();

    // A fixed lease ends.
    assert!(locks.try_lock("x", NOW, Lease::fixed(ms(1_500))).unwrap());
    until("the lease is over", || !locks.is_held("x"));
    let error = locks.try_lock("x", NOW, lease()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(locks.unlock("x").unwrap_err().is_lost());
    assert!(locks.try_lock("x", SOON, lease()).unwrap());
    locks.unlock("x").unwrap();

    // A renewed lease with a limit ends with that.
    let limited = Lease::renewed(ms(20_000)).at_most(ms(1_500));
    assert!(locks.try_lock("limited", NOW, limited).unwrap());
    until("the limit is over", || !locks.is_held("limited"));
    assert!(locks.unlock("limited").unwrap_err().is_lost());

    // What is not allowed is found at once.
    let limited = limited.at_most(NOW);
    names(
        &locks.try_lock("x", NOW, limited).unwrap_err(),
        ["limit of the lease", "0s", "1ms to 30 days"],
    );
    names(&locks.try_lock("", NOW, lease()).unwrap_err(), ["name", "empty", "at least one byte"]);
    names(
        &locks.try_lock("x", NOW, Lease::fixed(NOW)).unwrap_err(),
        ["lease", "0s", "1ms to 30 days"],
    );
    assert!(locks.try_lock("{x}:fence", NOW, lease()).unwrap_err().is_config());
    assert!(locks.unlock("").unwrap_err().is_config() && !locks.is_held(""));

    // Work under a lock, which ends in any way.
    let locks: &(dyn DistributedLock + Sync) = locks;
    assert!(locks.with_lock("x", NOW, lease(), || locks.is_held("x")).unwrap());
    let panics = || locks.with_lock("x", NOW, lease(), || panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(!locks.is_held("x"));
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    thread::scope(|scope| {
        let busy = scope.spawn(|| locks.with_lock("x", ms(50), lease(), || ()).unwrap_err());
        let error = busy.join().unwrap();
        assert!(error.is_timeout() && error.is_transient(), "{error}");
    });
    locks.unlock("x").unwrap();
}

#[test]
fn client_over_a_real_server_keeps_the_contract() {
    keep_the_contract(&open(&server()));
}

#[cfg(feature = "testing")]
#[test]
fn client_over_the_server_in_memory_keeps_the_contract() {
    keep_the_contract(&leasehold::testing::Server::new().client());
}

#[test]
fn local_locks_keep_the_contract() {
    keep_the_contract(&LocalLocks::new());
}

#[test]
fn threads_exclude_each_other_and_tokens_grow() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 500;
    let locks = LocalLocks::new();
    // Changed by reading and writing apart, so that an overlap loses an update.
    let (sold, highest) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (locks, sold, highest) = (locks.clone(), &sold, &highest);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let work = || {
                        let token = locks.fencing_token("stock").unwrap().get();
                        assert!(highest.swap(token, Ordering::Relaxed) < token);
                        let before = sold.load(Ordering::Relaxed);
                        thread::yield_now();
                        sold.store(before + 1, Ordering::Relaxed);
                    };
                    locks.with_lock("stock", SOON, Lease::default(), work).unwrap();
                }
            });
        }
    });
    assert_eq!(sold.into_inner(), THREADS * ROUNDS);
}

#[test]
fn token_is_at_least_the_time_of_this_machine() {
    let locks = LocalLocks::new();
    let micros = || {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(now.as_micros()).unwrap()
    };
    let before = micros();
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    let token = locks.fencing_token("x").unwrap().get();
    assert!((before..=micros()).contains(&token), "{token}");
    assert_eq!(locks.fencing_token("y"), None);
}

#[test]
fn keys_and_local_lock_objects_are_independent() {
    let (locks, others) = (LocalLocks::new(), LocalLocks::default());
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(locks.try_lock("y", NOW, lease()).unwrap());
            assert!(others.try_lock("x", NOW, lease()).unwrap());
        });
    });
    assert!(!others.is_held("x") && locks.clone().is_held("x"));
}

#[test]
fn wait_ends_with_the_release_of_the_holder() {
    let locks = LocalLocks::new();
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.try_lock("x", Duration::MAX, Lease::default()));
        // Nothing shows that it waits.
        thread::sleep(ms(200));
        locks.unlock("x").unwrap();
        assert!(waiting.join().unwrap().unwrap());
    });
}

#[test]
fn hold_lost_during_the_work_is_reported() {
    let locks = LocalLocks::new();
    let held = Cell::new(true);
    let error = locks
        .with_lock("x", NOW, Lease::fixed(ms(20)), || {
            thread::sleep(ms(40));
            held.set(locks.is_held("x"));
        })
        .unwrap_err();
    assert!(error.is_lost() && !held.get(), "{error}");
}

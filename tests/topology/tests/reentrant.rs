//! The reentrant lock over all topologies that have it: all but a quorum.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use leasehold::{LockOptions, LossCause, ReentrantLock, Wait};
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed, until};
use leasehold_topology_test::{Single, suite};

suite! {
    holds_are_counted_and_the_last_one_releases
    server_shows_the_hold_count
    release_lets_a_waiter_in
    clients_exclude_each_other_and_tokens_grow
    lease_is_renewed_and_its_loss_reported
    key_of_another_type_is_an_error_and_not_touched
    hash_of_data_is_an_error_and_not_touched
    one_owner_of_several_is_evicted
}

/// The test's lock, with a client of its own.
fn lock<T: Single>(scene: &Scene<'_, T>, options: LockOptions) -> ReentrantLock {
    scene.client().reentrant_with(scene.name("x"), options).expect("a lock")
}

fn by(wait: Wait) -> LockOptions {
    LockOptions::new().wait(wait)
}

fn holds_are_counted_and_the_last_one_releases<T: Single>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (lock(scene, LockOptions::new()), lock(scene, LockOptions::new()));
    let (outer, inner) = (lock.lock().unwrap(), lock.try_lock().unwrap().expect("ours"));
    assert_eq!((lock.hold_count(), outer.fencing_token()), (2, inner.fencing_token()));
    outer.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none() && elsewhere.is_locked().unwrap());
    inner.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

/// As Redisson's `getHoldCount` sees it.
fn server_shows_the_hold_count<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let lock = lock(scene, LockOptions::new());
    let counts = || scene.ask::<Vec<u32>>(&name, &[b"HVALS", &name]).concat();
    let outer = lock.lock().unwrap();
    assert_eq!(counts(), [1]);
    let inner = lock.lock().unwrap();
    until("the count is shown", || counts() == [2]);
    inner.release().unwrap();
    until("the count is shown", || counts() == [1]);
    outer.release().unwrap();
    assert_eq!(counts(), [0; 0]);
}

/// Long before the lease of 30 s is over.
fn release_lets_a_waiter_in<T: Single>(scene: &Scene<'_, T>) {
    for wait in [Wait::notify(), Wait::spin()] {
        let (lock, elsewhere) = (lock(scene, by(wait)), lock(scene, by(wait)));
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = elsewhere.lock().unwrap();
                let token = guard.fencing_token();
                guard.release().unwrap();
                (Instant::now(), token)
            });
            thread::sleep(ms(200));
            assert!(!waiter.is_finished(), "{wait:?}");
            let (token, released) = (guard.fencing_token(), Instant::now());
            guard.release().unwrap();
            let (got, later) = waiter.join().unwrap();
            assert!(later > token && got - released < SOON, "{wait:?}: {:?}", got - released);
        });
    }
}

fn clients_exclude_each_other_and_tokens_grow<T: Single>(scene: &Scene<'_, T>) {
    let (busy, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let locks = [(); 4].map(|()| lock(scene, LockOptions::new()));
    thread::scope(|scope| {
        for lock in locks {
            let (busy, last) = (&busy, &last);
            scope.spawn(move || {
                for _ in 0..15 {
                    let guard = lock.lock().unwrap();
                    assert!(!busy.swap(true, Ordering::SeqCst), "two holders");
                    let token = guard.fencing_token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "tokens must grow");
                    thread::yield_now();
                    busy.store(false, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
}

fn lease_is_renewed_and_its_loss_reported<T: Single>(scene: &Scene<'_, T>) {
    let (name, elsewhere) = (scene.name("x"), lock(scene, LockOptions::new()));
    let guard = lock(scene, renewed(2_400)).lock().unwrap();
    let end = Instant::now() + ms(4_000);
    while Instant::now() < end {
        assert!(guard.is_valid() && elsewhere.try_lock().unwrap().is_none(), "{:?}", guard.loss());
        thread::sleep(ms(20));
    }
    guard.check().unwrap();
    scene.delete(&name);
    until("it is told", || guard.loss().is_some());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
    assert!(guard.release().unwrap_err().is_lost());
}

fn key_of_another_type_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    // What a mutex would be.
    scene.ask::<()>(&name, &[b"SET", &name, b"somebody"]);
    let lock = lock(scene, LockOptions::new());
    assert!(lock.try_lock().unwrap_err().is_wrong_type());
    assert!(lock.is_locked().unwrap_err().is_wrong_type());
    assert!(lock.force_release().unwrap_err().is_wrong_type());
    assert_eq!(scene.ask::<String>(&name, &[b"GET", &name]), ["somebody"]);
}

fn hash_of_data_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    scene.ask::<()>(&name, &[b"HSET", &name, b"email", b"a@b.example"]);
    let lock = lock(scene, LockOptions::new());
    assert!(lock.try_lock().unwrap_err().is_wrong_type());
    assert!(lock.is_locked().unwrap_err().is_wrong_type());
    assert!(lock.force_release().unwrap_err().is_wrong_type());
    assert!(scene.client().locks_named(&name).unwrap_err().is_wrong_type());
    assert_eq!(scene.ask::<String>(&name, &[b"HGET", &name, b"email"]), ["a@b.example"]);
}

/// Redisson's read-write lock.
fn one_owner_of_several_is_evicted<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let readers: [&[u8]; 2] =
        [b"285475da-9152-4c83-822a-67ee2f116a79:52", b"285475da-9152-4c83-822a-67ee2f116a79:53"];
    for reader in readers {
        scene.ask::<()>(&name, &[b"HSET", &name, b"mode", b"read", reader, b"1"]);
    }
    let lock = lock(scene, LockOptions::new());
    assert!(lock.force_release().unwrap_err().is_wrong_type(), "nobody is named");
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders().len(), 2);
    assert!(lock.force_release_of(&seen.holders()[0]).unwrap());
    let left: Vec<_> =
        lock.inspect().unwrap().holders().iter().map(|it| it.owner().to_vec()).collect();
    assert_eq!(left, [seen.holders()[1].owner().to_vec()]);
    assert!(lock.force_release().unwrap());
    assert!(lock.try_lock().unwrap().is_some());
}

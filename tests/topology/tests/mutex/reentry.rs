//! A thread that holds a lock, and takes it again.

use std::thread;

use leasehold_topology_test::scene::{Scene, ms, until};
use leasehold_topology_test::{Client, Topology};

pub(crate) fn thread_reenters_its_own_hold<T: Topology>(scene: &Scene<'_, T>) {
    let (client, elsewhere) = (scene.client(), scene.lock());
    let lock = client.mutex(&scene.name("x")).unwrap();
    let outer = lock.lock().unwrap();
    let inner = client.mutex(&scene.name("x")).unwrap().try_lock().unwrap().expect("ours");
    let innermost = lock.try_lock_for(ms(10)).unwrap().expect("ours");
    assert_eq!((lock.hold_count(), outer.hold_count()), (3, 3));
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert!(lock.is_held_by_current_thread() && !elsewhere.is_held_by_current_thread());
    // The last of them gives it back, whichever that is.
    drop(outer);
    innermost.release().unwrap();
    assert_eq!(lock.hold_count(), 1);
    assert!(elsewhere.try_lock().unwrap().is_none());
    inner.release().unwrap();
    assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn a_hold_belongs_to_its_thread<T: Topology>(scene: &Scene<'_, T>) {
    let lock = scene.lock();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
            assert!(lock.try_lock().unwrap().is_none());
        });
    });
    assert_eq!(guard.hold_count(), 1);
}

pub(crate) fn owned_lease_is_sent_to_another_thread<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let (first, second) = (lock.lock().unwrap(), lock.lock().unwrap());
    // Held twice it stays where it is.
    let second = second.into_owned().unwrap_err();
    second.release().unwrap();
    let token = first.fencing_token();
    let owned = first.into_owned().expect("held once");
    assert!(!lock.is_held_by_current_thread());
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(owned.is_valid());
            let guard = owned.into_guard();
            assert_eq!((lock.hold_count(), guard.fencing_token()), (1, token));
            guard.check().unwrap();
            assert!(elsewhere.try_lock().unwrap().is_none());
            guard.release().unwrap();
        });
    });
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn ending_thread_releases_its_holds<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(lock.lock().unwrap()));
    });
    // Long before its lease of 30 s is over.
    until("it is given back", || elsewhere.try_lock().unwrap().is_some());
}

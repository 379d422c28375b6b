//! Giving back: by release, by drop, by force.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_topology_test::scene::{Scene, until};
use leasehold_topology_test::{Client, Topology};

pub(crate) fn a_release_leaves_no_lock_behind<T: Topology>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let guard = scene.lock().lock().unwrap();
    assert!(scene.found(&name) > 0);
    guard.release().unwrap();
    until("it is gone everywhere", || scene.found(&name) == 0);
}

pub(crate) fn dropped_guard_releases<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    {
        let _guard = lock.lock().unwrap();
        assert!(elsewhere.try_lock().unwrap().is_none());
    }
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn panic_releases_and_poisons_nothing<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.lock().unwrap();
        // Without the message that a panic prints.
        std::panic::resume_unwind(Box::new("the work failed"));
    }));
    assert!(outcome.is_err());
    drop(elsewhere.try_lock().unwrap().expect("free"));
    assert!(lock.try_lock().unwrap().is_some());
}

pub(crate) fn a_guard_outlives_its_lock_and_its_client<T: Topology>(scene: &Scene<'_, T>) {
    let elsewhere = scene.lock();
    let guard = {
        let client = scene.client();
        client.mutex(&scene.name("x")).unwrap().lock().unwrap()
    };
    guard.check().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    guard.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn release_of_a_lost_lock_reports_the_loss<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let guard = lock.lock().unwrap();
    scene.delete(&scene.name("x"));
    let next = elsewhere.try_lock().unwrap().expect("free");
    let error = guard.release().unwrap_err();
    assert!(error.is_lost() && error.is_not_held(), "{error:?}");
    let name = scene.name("x");
    assert!(error.to_string().contains(&*String::from_utf8_lossy(&name)), "{error}");
    // The other's was not touched.
    next.check().unwrap();
    next.release().unwrap();
}

pub(crate) fn forced_release_frees_the_lock_and_its_holder_loses_it<T: Topology>(
    scene: &Scene<'_, T>,
) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    assert!(!lock.force_release().unwrap());
    let guard = lock.lock().unwrap();
    assert!(elsewhere.force_release().unwrap());
    assert!(!elsewhere.force_release().unwrap());
    let next = elsewhere.try_lock().unwrap().expect("free");
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.check().unwrap_err().is_lost());
    assert!(!guard.is_valid() && !lock.is_held_by_current_thread());
    // It does not nest deeper in what it has lost.
    assert!(lock.lock().unwrap_err().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
    next.check().unwrap();
}

//! Clients: locks by key, and the end of a client.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::{DistributedLock, Lease, LossCause};
use leasehold_topology_test::scene::{SOON, Scene, ms};
use leasehold_topology_test::{Client, Topology};

pub(crate) fn locks_by_key_are_mutexes<T: Topology>(scene: &Scene<'_, T>) {
    let (client, other) = (scene.client(), scene.client());
    let key = String::from_utf8(scene.name("x")).unwrap();
    let (locks, lease): (&dyn DistributedLock, _) = (&client, Lease::default());
    assert!(!locks.is_held(&key) && locks.unlock(&key).unwrap_err().is_not_held());
    assert!(locks.try_lock(&key, Duration::ZERO, lease).unwrap());
    assert!(locks.try_lock(&key, Duration::ZERO, lease).unwrap());
    assert!(locks.is_held(&key) && !other.is_held(&key));
    assert_eq!(client.mutex(key.as_bytes()).unwrap().hold_count(), 2);
    assert!(!other.try_lock(&key, ms(900), lease).unwrap());
    assert!(other.with_lock(&key, ms(900), lease, || ()).unwrap_err().is_timeout());
    locks.unlock(&key).unwrap();
    assert!(locks.is_held(&key));
    locks.unlock(&key).unwrap();
    assert!(!locks.is_held(&key) && locks.unlock(&key).unwrap_err().is_not_held());
    let (value, held) = other.with_lock(&key, SOON, lease, || (42, other.is_held(&key))).unwrap();
    assert_eq!((value, held, other.is_held(&key)), (42, true, false));
    assert_eq!(locks.with_lock(&key, SOON, lease, || 6 * 7).unwrap(), 42);
}

pub(crate) fn shutdown_releases_holds_and_cancels_waits<T: Topology>(scene: &Scene<'_, T>) {
    let (client, other) = (scene.client(), scene.client());
    let (held, wanted) = (scene.name("held"), scene.name("wanted"));
    let guard = client.mutex(&held).unwrap().lock().unwrap();
    let theirs = other.mutex(&wanted).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.mutex(&wanted).unwrap().lock().map(drop).unwrap_err());
        thread::sleep(ms(150));
        assert!(!waiter.is_finished());
        let begin = Instant::now();
        client.shutdown(SOON).unwrap();
        assert!(begin.elapsed() < SOON + ms(2_000));
        let error = waiter.join().unwrap();
        assert!(error.is_cancelled(), "{error:?}");
    });
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::ShutDown);
    assert!(other.mutex(&held).unwrap().try_lock().unwrap().is_some());
    drop(guard);
    assert!(client.mutex(&held).unwrap().try_lock().unwrap_err().is_cancelled());
    theirs.check().unwrap();
}

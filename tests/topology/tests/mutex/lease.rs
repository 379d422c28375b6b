//! Leases: renewed, fixed, made longer, and ended.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::LossCause;
use leasehold_topology_test::Topology;
use leasehold_topology_test::scene::{SOON, Scene, fixed, ms, renewed, until};

/// More than twice as long as without renewal.
pub(crate) fn a_lease_is_renewed_beyond_its_time_to_live<T: Topology>(scene: &Scene<'_, T>) {
    // Longer than a machine stands still.
    const TTL: u64 = 2_400;
    let elsewhere = scene.lock();
    let guard = scene.lock_with(renewed(TTL)).lock().unwrap();
    let end = Instant::now() + ms(TTL * 2 + 200);
    while Instant::now() < end {
        assert!(elsewhere.try_lock().unwrap().is_none());
        assert!(guard.is_valid(), "{:?}", guard.loss());
        thread::sleep(ms(20));
    }
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

pub(crate) fn validity_is_never_longer_than_the_lease<T: Topology>(scene: &Scene<'_, T>) {
    for ttl in [2_000, 10_000, 30_000] {
        let begin = Instant::now();
        let guard = scene.lock_with(fixed(ttl)).lock().unwrap();
        let left = guard.remaining();
        assert!(guard.is_valid() && left > Duration::ZERO);
        // What two clocks may differ by is not relied on: 1 % and 2 ms.
        assert!(left <= ms(ttl - ttl / 100 - 2), "{left:?} of {ttl}");
        assert!(left + begin.elapsed() + ms(1_000) > ms(ttl - ttl / 100 - 2), "{left:?}");
        let pttl = scene.ask::<i64>(&scene.name("x"), &[b"PTTL", &scene.name("x")]);
        let ttl = i64::try_from(ttl).unwrap();
        assert!(pttl.iter().all(|left| (0..=ttl).contains(left)), "{pttl:?}");
        guard.release().unwrap();
    }
}

pub(crate) fn expired_fixed_lease_is_reported_to_its_holder<T: Topology>(scene: &Scene<'_, T>) {
    let lock = scene.lock_with(fixed(1_500));
    let guard = lock.lock().unwrap();
    let begin = Instant::now();
    until("it is over", || !guard.is_valid());
    assert!(begin.elapsed() < SOON);
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Expired);
    assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    assert!(guard.check().unwrap_err().is_lost());
    assert!(lock.try_lock().unwrap_err().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
    until("others get it", || scene.lock().try_lock().unwrap().is_some());
}

pub(crate) fn a_lease_is_made_longer_and_never_shorter<T: Topology>(scene: &Scene<'_, T>) {
    let elsewhere = scene.lock();
    let guard = scene.lock_with(fixed(2_500)).lock().unwrap();
    guard.extend(ms(20_000)).unwrap();
    assert!(guard.remaining() > ms(10_000), "{:?}", guard.remaining());
    guard.extend(ms(50)).unwrap();
    assert!(guard.remaining() > ms(10_000), "{:?}", guard.remaining());
    thread::sleep(ms(2_600));
    assert!(elsewhere.try_lock().unwrap().is_none());
    guard.check().unwrap();
    assert!(guard.extend(Duration::ZERO).unwrap_err().is_config());
    guard.release().unwrap();
    // What is over is not made longer.
    let guard = scene.lock_with(fixed(1_500)).lock().unwrap();
    until("it is over", || !guard.is_valid());
    assert!(guard.extend(ms(1_000)).unwrap_err().is_lost());
}

pub(crate) fn renewals_end_at_max_hold<T: Topology>(scene: &Scene<'_, T>) {
    let lock = scene.lock_with(renewed(2_400).max_hold(ms(3_600)));
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    until("it is over", || guard.loss().is_some());
    let took = begin.elapsed();
    // A lease that is not renewed is over before.
    assert!(took > ms(3_000) && took < SOON, "{took:?}");
    assert_eq!(guard.loss().unwrap().cause(), LossCause::MaxHold);
    assert!(!guard.is_valid());
    until("others get it", || scene.lock().try_lock().unwrap().is_some());
    assert!(guard.release().unwrap_err().is_lost());
}

pub(crate) fn renewals_end_after_max_renewals<T: Topology>(scene: &Scene<'_, T>) {
    let lock = scene.lock_with(renewed(2_400).max_renewals(1));
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    until("it is over", || guard.loss().is_some());
    let took = begin.elapsed();
    // The only renewal is made at about a third of the first lease.
    assert!(took > ms(2_600) && took < SOON, "{took:?}");
    assert_eq!(guard.loss().unwrap().cause(), LossCause::RenewalsUsedUp);
    until("others get it", || scene.lock().try_lock().unwrap().is_some());
}

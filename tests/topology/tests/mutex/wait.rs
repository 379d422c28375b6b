//! Waiting for a lock that another has.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockOptions, Mutex, Wait};
use leasehold_topology_test::scene::{SOON, Scene, fixed, ms, until};
use leasehold_topology_test::{Client, Topology};

fn by(wait: Wait) -> LockOptions {
    LockOptions::new().wait(wait)
}

/// Long before the lease of 30 s is over, and with a higher token.
pub(crate) fn release_lets_a_waiter_in<T: Topology>(scene: &Scene<'_, T>) {
    for &wait in T::WAITS {
        let (lock, elsewhere) = (scene.lock_with(by(wait)), scene.lock_with(by(wait)));
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
            assert!(later > token, "{wait:?}");
            assert!(got - released < SOON, "{wait:?}: {:?}", got - released);
        });
    }
}

/// Clients are served as they came where they queue, and all of them where they are notified or spin,
/// which promises no order. What cannot be is said to who asks for it.
pub(crate) fn clients_are_served_in_the_order_their_wait_promises<T: Topology>(
    scene: &Scene<'_, T>,
) {
    const CLIENTS: usize = 4;
    let name = scene.name("x");
    for wait in [Wait::queue(), Wait::notify(), Wait::spin()] {
        if !T::WAITS.contains(&wait) {
            let error = scene.client().mutex_with(&name, by(wait)).unwrap_err();
            assert!(error.is_config(), "{error:?}");
            continue;
        }
        let guard = scene.lock_with(by(wait)).lock().unwrap();
        let (sender, served) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                waits_its_turn(scope, scene.lock_with(by(wait)), number, sender.clone());
                if wait == Wait::queue() {
                    until("it queues", || scene.queueing(&name) == number as u64 + 1);
                }
            }
            drop(guard);
        });
        drop(sender);
        let mut served: Vec<usize> = served.iter().collect();
        if wait != Wait::queue() {
            served.sort_unstable();
        }
        assert_eq!(served, (0..CLIENTS).collect::<Vec<_>>(), "{wait:?}");
    }
}

pub(crate) fn threads_of_one_client_are_served_in_order<T: Topology>(scene: &Scene<'_, T>) {
    const THREADS: usize = 6;
    for &wait in T::WAITS {
        let lock = scene.lock_with(by(wait));
        let guard = lock.lock().unwrap();
        let (sender, served) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..THREADS {
                waits_its_turn(scope, lock.clone(), number, sender.clone());
                until("it waits in line", || guard.waiters() == number + 1);
            }
            assert!(guard.is_contended());
            drop(guard);
        });
        drop(sender);
        assert_eq!(served.iter().collect::<Vec<_>>(), (0..THREADS).collect::<Vec<_>>(), "{wait:?}");
    }
}

/// Says which waiter got the lock while it has it.
fn waits_its_turn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    lock: Mutex,
    number: usize,
    served: mpsc::Sender<usize>,
) {
    scope.spawn(move || {
        let guard = lock.try_lock_for(SOON * 2).unwrap().expect("its turn");
        served.send(number).unwrap();
        guard.release().unwrap();
    });
}

pub(crate) fn a_wait_too_long_for_the_clock_has_no_end<T: Topology>(scene: &Scene<'_, T>) {
    let (lock, elsewhere) = (scene.lock(), scene.lock());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| elsewhere.try_lock_for(Duration::MAX).unwrap().is_some());
        thread::sleep(ms(150));
        assert!(!waiter.is_finished());
        guard.release().unwrap();
        assert!(waiter.join().unwrap());
    });
}

pub(crate) fn waiter_that_gave_up_delays_no_other<T: Topology>(scene: &Scene<'_, T>) {
    for &wait in T::WAITS {
        let guard = scene.lock_with(by(wait)).lock().unwrap();
        let (lock, last) = (scene.lock_with(by(wait)), scene.lock_with(by(wait)));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(!matches!(lock.try_lock_for(ms(400)), Ok(Some(_)))));
            }
        });
        thread::scope(|scope| {
            let waiter = scope.spawn(|| last.try_lock_for(SOON).unwrap().is_some());
            thread::sleep(ms(50));
            drop(guard);
            assert!(waiter.join().unwrap(), "{wait:?}");
        });
    }
}

/// Those of this client, and no other's.
pub(crate) fn waits_are_cancelled_from_another_thread<T: Topology>(scene: &Scene<'_, T>) {
    for &wait in T::WAITS {
        let guard = scene.lock_with(by(wait)).lock().unwrap();
        let (lock, other) = (scene.lock_with(by(wait)), scene.lock_with(by(wait)));
        assert_eq!(lock.cancel_waits(), 0);
        let cancelled = AtomicU32::new(0);
        thread::scope(|scope| {
            let stays = scope.spawn(|| other.lock().unwrap().release().unwrap());
            for _ in 0..3 {
                scope.spawn(|| {
                    let error = lock.lock().unwrap_err();
                    assert!(error.is_cancelled(), "{error:?}");
                    cancelled.fetch_add(1, Ordering::SeqCst);
                });
            }
            // Who comes to wait only after a call is not called off by it.
            until("all waits are called off", || {
                lock.cancel_waits();
                cancelled.load(Ordering::SeqCst) == 3
            });
            guard.check().unwrap();
            assert!(!stays.is_finished());
            drop(guard);
        });
        // What was called off holds up nobody.
        assert!(lock.try_lock_for(SOON).unwrap().is_some(), "{wait:?}");
    }
}

pub(crate) fn expired_lease_lets_a_waiter_in_and_not_earlier<T: Topology>(scene: &Scene<'_, T>) {
    for &wait in T::WAITS {
        let begin = Instant::now();
        let guard = scene.lock_with(fixed(1_500).wait(wait)).lock().unwrap();
        let next = scene.lock_with(by(wait)).try_lock_for(SOON).unwrap().expect("it ran out");
        assert!(begin.elapsed() >= ms(1_500), "{wait:?}: {:?}", begin.elapsed());
        assert!(!guard.is_valid());
        assert!(next.fencing_token() > guard.fencing_token());
        assert!(guard.release().unwrap_err().is_lost());
        next.check().unwrap();
    }
}

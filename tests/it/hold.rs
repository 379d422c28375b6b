//! The holds of a thread: reentry, guards, threads that end, leases that change threads.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::common::{all_renewed, ask, exists, fixed, ms, open, pttl, renewed, server, until};
use leasehold::{
    DistributedLock, Guard, Lease, LeaseWatch, LockClient, LossCause, Mutex, OwnedLease,
    ReentrantLock,
};

/// Resolves only where `$type` is not `Send`; where it were, the call would be ambiguous.
macro_rules! assert_not_send {
    ($type:ty) => {{
        trait AmbiguousIfSend<Marker> {
            fn call() {}
        }
        impl<T: ?Sized> AmbiguousIfSend<()> for T {}
        struct Sendable;
        impl<T: ?Sized + Send> AmbiguousIfSend<Sendable> for T {}
        <$type as AmbiguousIfSend<_>>::call();
    }};
}

#[test]
fn guard_is_not_send_and_the_other_types_are() {
    fn travels<T: Send + Sync>() {}
    assert_not_send!(Guard);
    travels::<LockClient>();
    travels::<Mutex>();
    travels::<ReentrantLock>();
    travels::<OwnedLease>();
    travels::<LeaseWatch>();
    travels::<leasehold::Error>();
    travels::<leasehold::Loss>();
}

#[test]
fn watch_follows_its_hold_on_any_thread() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    let watch = guard.lease_watch();
    let token = guard.fencing_token();
    let other = watch.clone();
    thread::spawn(move || {
        assert!(other.is_valid() && other.remaining() > ms(1_000) && other.loss().is_none());
        assert_eq!((other.fencing_token(), other.token()), (token, token));
    })
    .join()
    .unwrap();
    let owned = guard.into_owned().unwrap();
    assert!(owned.lease_watch().is_valid() && watch.is_valid());
    drop(owned);
    assert!(!watch.is_valid() && watch.remaining().is_zero() && watch.loss().is_none());
    // The next hold is another one.
    let guard = lock.lock().unwrap();
    assert!(!watch.is_valid());
    let watch = guard.lease_watch();
    assert!(lock.force_release().unwrap());
    until("the loss is noticed", || {
        watch.loss().is_some_and(|loss| loss.fencing_token() == guard.fencing_token())
    });
    assert!(!watch.is_valid());
}

#[test]
fn limit_of_a_lease_and_of_a_hold_count_whichever_is_shorter() {
    let server = server();
    let client = open(&server);
    for (limit, most) in [(1_500, 60_000), (60_000, 1_500)] {
        let lease = Lease::renewed(ms(3_000)).at_most(ms(limit));
        let options = leasehold::LockOptions::new().lease(lease).max_hold(ms(most));
        let guard = client.mutex_with(format!("x{limit}"), options).unwrap().lock().unwrap();
        until("it is over", || guard.loss().is_some());
        assert_eq!(guard.loss().unwrap().cause(), LossCause::MaxHold);
    }
}

#[test]
fn last_guard_dropped_releases_in_any_order() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let first = lock.lock().unwrap();
    let second = lock.lock().unwrap();
    let third = client.mutex("x").unwrap().lock().unwrap();
    assert_eq!(lock.hold_count(), 3);
    drop(first);
    drop(third);
    assert!(exists(&server, "x") && second.is_valid());
    assert_eq!(second.hold_count(), 1);
    drop(second);
    assert!(!exists(&server, "x"));
}

#[test]
fn handles_with_other_options_reenter_the_same_hold() {
    let server = server();
    let client = open(&server);
    let outer = client.mutex_with("x", fixed(20_000)).unwrap().lock().unwrap();
    let inner = client.mutex_with("x", renewed(500)).unwrap().lock().unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert!(pttl(&server, "x") > 15_000);
}

#[test]
fn another_thread_does_not_reenter() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let _guard = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!lock.is_held_by_current_thread());
            assert_eq!(lock.hold_count(), 0);
            assert!(lock.try_lock().unwrap().is_none());
        });
    });
    assert!(lock.is_held_by_current_thread());
}

/// Whatever was dropped before.
#[test]
fn every_release_of_a_lost_lease_reports_the_loss() {
    let server = server();
    let lock = open(&server).mutex_with("x", fixed(2_000)).unwrap();
    let outer = lock.lock().unwrap();
    let (inner, dropped) = (lock.lock().unwrap(), lock.lock().unwrap());
    lock.lock().unwrap().release().unwrap();
    until("it is over", || !outer.is_valid());
    drop(dropped);
    assert!(inner.release().unwrap_err().is_lost());
    assert!(outer.release().unwrap_err().is_lost());
}

/// Reentry must not count on what is not held any more.
#[test]
fn reentry_after_a_loss_is_an_error() {
    let server = server();
    let lock = open(&server).mutex_with("x", fixed(1_500)).unwrap();
    let guard = lock.lock().unwrap();
    until("it is over", || !guard.is_valid());
    for again in [lock.lock(), lock.try_lock().map(|it| it.expect("a guard"))] {
        assert!(again.unwrap_err().is_lost());
    }
    assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    assert!(guard.release().unwrap_err().is_lost());
    assert!(lock.try_lock_for(crate::common::SOON).unwrap().is_some());
}

#[test]
fn a_guard_outlives_its_lock_and_its_client() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(6_000)).unwrap();
    let guard = lock.lock().unwrap();
    drop((lock, client));
    (0..2).for_each(|_| all_renewed([&guard]));
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn a_panic_while_holding_releases_once_and_poisons_nothing() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _outer = lock.lock().unwrap();
        let _inner = lock.lock().unwrap();
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert!(!exists(&server, "x") && lock.hold_count() == 0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        lock.with(|_| -> () { panic!("on purpose") }).unwrap();
    }));
    assert!(result.is_err());
    assert!(!exists(&server, "x"));
    assert!(thread::scope(|s| s.spawn(|| lock.try_lock().unwrap().is_some()).join().unwrap()));
}

/// A drop during a panic, with Redis out of reach, must not panic again, which would abort.
#[test]
fn panic_while_holding_is_no_double_panic_in_an_outage() {
    let server = server();
    let client = crate::common::hasty(&server.url());
    let lock = client.mutex("x").unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.lock().unwrap();
        server.kill();
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert_eq!(lock.hold_count(), 0);
}

/// Regression, redisson#3521 and #6198: the lock of a dead thread was renewed for ever.
#[test]
fn ending_thread_releases_what_it_holds() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("forgotten", renewed(3_000)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            std::mem::forget(lock.lock().unwrap());
            std::mem::forget(lock.lock().unwrap());
            assert!(client.try_lock("kept", ms(0), Lease::default()).unwrap());
        });
    });
    until("both are given back", || !exists(&server, "forgotten") && !exists(&server, "kept"));
    // Another thread of the process is not kept out by the dead one.
    assert!(lock.try_lock_for(crate::common::SOON).unwrap().is_some());
    // Nor does a renewal bring anything back.
    thread::sleep(ms(1_200));
    assert!(!exists(&server, "forgotten"));
}

#[test]
fn guard_in_a_thread_local_is_released_at_thread_end() {
    thread_local! {
        static KEPT: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
    }
    let server = server();
    let client = open(&server);
    // Destructors run in some order: once the library's table was first used before ours, and
    // once after.
    for ours_first in [false, true] {
        let lock = client.mutex_with("x", renewed(3_000)).unwrap();
        thread::scope(|scope| {
            let ended = scope.spawn(|| {
                if ours_first {
                    KEPT.with_borrow_mut(Vec::clear);
                }
                let guards = [lock.lock().unwrap(), lock.lock().unwrap()];
                KEPT.with_borrow_mut(|kept| kept.extend(guards));
            });
            ended.join().unwrap();
        });
        until("it is given back", || !exists(&server, "x"));
        assert!(lock.try_lock_for(crate::common::SOON).unwrap().is_some());
    }
}

#[test]
fn owned_lease_becomes_the_hold_of_another_thread() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(2_000)).unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    let owned = guard.into_owned().expect("held once");
    assert_eq!((owned.fencing_token(), owned.is_valid(), lock.hold_count()), (token, true, 0));
    // No thread's hold now, and nobody else's either.
    assert!(lock.try_lock().unwrap().is_none());
    thread::sleep(ms(3_000));
    assert!(owned.is_valid() && owned.loss().is_none(), "it is renewed on its way");
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = owned.into_guard();
            assert_eq!((guard.fencing_token(), lock.hold_count()), (token, 1));
            drop(lock.lock().unwrap());
            guard.check().unwrap();
            guard.release().unwrap();
        });
    });
    assert!(!exists(&server, "x"));
}

#[test]
fn lock_held_twice_does_not_become_an_owned_lease() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let outer = lock.lock().unwrap();
    let inner = lock.lock().unwrap();
    let inner = inner.into_owned().expect_err("held twice");
    assert_eq!(lock.hold_count(), 2);
    drop(inner);
    drop(outer.into_owned().expect("held once"));
    assert!(!exists(&server, "x"));
}

#[test]
fn owned_lease_is_released_by_drop_and_reports_a_loss() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", fixed(20_000)).unwrap();
    let own = || lock.lock().unwrap().into_owned().expect("held once");
    drop(own());
    assert!(!exists(&server, "x"));
    own().release().unwrap();
    assert!(!exists(&server, "x"));
    let owned = own();
    ask::<()>(&server, &["SET", "x", "other"]);
    assert!(owned.release().unwrap_err().is_lost());
    assert!(exists(&server, "x"));
}

/// `mem::forget` is safe Rust, so it must not hold a lock for ever.
#[test]
fn a_forgotten_guard_ends_with_max_hold() {
    let server = server();
    let client = open(&server);
    let options = renewed(2_000).max_hold(ms(4_500));
    let lock = client.mutex_with("x", options).unwrap();
    std::mem::forget(lock.lock().unwrap());
    thread::sleep(ms(2_500));
    assert!(exists(&server, "x"), "it is renewed until then");
    until("it has ended", || !exists(&server, "x"));
    assert!(!lock.is_held_by_current_thread());
    assert!(open(&server).mutex("x").unwrap().try_lock().unwrap().is_some());
}

/// A release that has nothing to release must not look like one that had.
#[test]
fn guard_of_a_hold_unlocked_by_key_reports_not_held() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    client.unlock("x").unwrap();
    assert!(!exists(&server, "x") && !guard.is_valid());
    let next = open(&server).mutex("x").unwrap().lock().unwrap();
    assert!(guard.extend(ms(10)).unwrap_err().is_not_held());
    let again = guard.release();
    next.check().unwrap();
    assert!(again.is_err_and(|error| error.is_not_held()), "it released nothing and said Ok");
}

/// The thread had got another lease of that lock since, and that one is its hold.
#[test]
fn lost_lease_as_a_guard_does_not_replace_the_live_hold() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(1_500)).unwrap();
    for by_key in [false, true] {
        let lost = lock.lock().unwrap().into_owned().expect("held once");
        ask::<()>(&server, &["DEL", "x"]);
        until("the loss is found", || lost.loss().is_some());
        let live = (!by_key).then(|| lock.lock().unwrap());
        if by_key {
            assert!(client.try_lock("x", ms(0), Lease::default()).unwrap());
        }
        let dead = lost.into_guard();
        assert_eq!(lock.hold_count(), 1);
        drop(lock.lock().expect("reentry"));
        assert!(dead.release().unwrap_err().is_lost());
        assert_eq!(lock.hold_count(), 1);
        match live {
            Some(live) => live.release().unwrap(),
            None => client.unlock("x").unwrap(),
        }
        assert!(!exists(&server, "x"));
    }
}

/// A thread that ends keeps no holds any more. What it took by key then nobody could give back.
#[test]
fn lock_by_key_is_refused_during_thread_exit() {
    struct AtTheEnd(LockClient);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let kept = self.0.try_lock("x", crate::common::SOON, Lease::fixed(ms(60_000)));
            assert!(kept.unwrap_err().is_refused());
            let done = self.0.with_lock("y", crate::common::SOON, Lease::default(), || ());
            assert!(done.unwrap_err().is_refused());
        }
    }
    thread_local! {
        static LAST: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let (first, second) = (lock.lock().unwrap(), client.clone());
    let ends = thread::spawn(move || {
        // Before the library's own, and so it is dropped after that.
        LAST.set(Some(AtTheEnd(second.clone())));
        assert!(second.try_lock("y", ms(0), Lease::default()).unwrap());
    });
    crate::common::until("it waits", || first.waiters() == 1);
    thread::scope(|scope| {
        // Who waits behind it is woken by nobody else.
        let next = scope.spawn(|| lock.try_lock_for(crate::common::SOON).unwrap().is_some());
        crate::common::until("another waits", || first.waiters() == 2);
        first.release().unwrap();
        assert!(next.join().unwrap());
    });
    ends.join().unwrap();
    crate::common::until("it is given back", || !exists(&server, "x"));
}

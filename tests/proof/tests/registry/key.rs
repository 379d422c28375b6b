//! Events that happen to the keys of a lock, and calls at the wrong time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use leasehold::{DistributedLock, Lease, LossCause};
use leasehold_support::fault::Injector;
use leasehold_support::fault::command::{
    DELETED, EXPIRED, Evicted, FLUSHED, PERSISTED, RETYPED, STOLEN,
};
use leasehold_support::lag::Spent as _;

use crate::common::{SLACK, SOON, ask, exists, fixed, ms, pttl, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial, wait};

kinds! {
    flushed_at_hold "flushed@hold" "S,L" = lost_by(&FLUSHED, LossCause::Deleted);
    deleted_at_hold "deleted@hold" "S,L" = lost_by(&DELETED, LossCause::Deleted);
    expired_at_hold "expired@hold" "S,L" = lost_by(&EXPIRED, LossCause::Deleted);
    evicted_at_hold "evicted@hold" "S,L" = lost_by(&Evicted, LossCause::Deleted);
    stolen_at_hold "stolen@hold" "S,L" = lost_by(&STOLEN, LossCause::Taken);
    persisted_at_hold "persisted@hold" "S,L";
    retyped_at_acquire "retyped@acquire" "E";
    flushed_at_wait "flushed@wait" "S,L" = waited(&FLUSHED, 0);
    stolen_at_wait "stolen@wait" "S,L" = waited(&STOLEN, 2_000);
    deleted_at_release "deleted@release" "S" = released_too_late(&DELETED);
    stolen_at_release "stolen@release" "S" = released_too_late(&STOLEN);
    expired_at_release "expired@release" "S";
    expired_at_reentry "expired@reentry" "S";
    forced_at_hold "forced@hold" "S,L";
    twice_at_unlock "twice@unlock" "E,S";
}

/// The key is not the holder's any more: the loss is reported within one renewal tick, after the
/// guard is invalid, and the present key is not touched.
fn loss_found(trial: &Trial, cause: LossCause, happens: impl FnOnce()) {
    let reported = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reported);
    let client = trial.builder().on_loss(move |loss| {
        counted.store(loss.fencing_token().get(), Ordering::SeqCst);
    });
    let client = client.build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    happens();
    let begin = Instant::now();
    until("it is found", || !guard.is_valid());
    assert!(begin.spent() < ms(LEASE / 3) + COMMAND + SLACK, "{:?}", begin.spent());
    until("it is told", || reported.load(Ordering::SeqCst) == guard.fencing_token().get());
    assert_eq!(guard.loss().expect("a loss").cause(), cause);
    let there: Option<String> = ask(&trial.server, &["GET", KEY]);
    assert!(trial.timed(COMMAND, || guard.release()).unwrap_err().is_lost());
    assert_eq!(ask::<Option<String>>(&trial.server, &["GET", KEY]), there, "it was touched");
    if there.is_none() {
        trial.stays_away();
        trial.granted(&lock.try_lock().unwrap().expect("free"));
    } else {
        assert!(lock.try_lock().unwrap().is_none());
        trial.litters(ms(2_000));
    }
}

fn lost_by(trial: &Trial, injector: &dyn Injector, cause: LossCause) {
    loss_found(trial, cause, || {
        let active = trial.inject(injector);
        trial.prove(&active);
    });
}

fn forced_at_hold(trial: &Trial) {
    let rival = trial.rival();
    loss_found(trial, LossCause::Deleted, || {
        let held = rival.force_release().unwrap();
        trial.witnessed(u64::from(held), u64::from(!exists(&trial.server, KEY)), "EXISTS");
    });
}

/// A client removed the expiry of the key: the next renewal gives it another.
fn persisted_at_hold(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&PERSISTED);
    trial.prove(&active);
    until("it has an end again", || pttl(&trial.server, KEY) > 0);
    guard.check().unwrap();
    trial.timed(COMMAND, || guard.release()).unwrap();
    trial.stays_away();
}

/// A key of another type is an error, never "busy".
fn retyped_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&RETYPED);
    trial.prove(&active);
    for error in [
        trial.timed(COMMAND, || lock.try_lock()).unwrap_err(),
        trial.timed(COMMAND, || lock.lock()).unwrap_err(),
    ] {
        assert!(error.is_wrong_type(), "{error:?}");
    }
    assert_eq!(ask::<u64>(&trial.server, &["LLEN", KEY]), 1);
    ask::<()>(&trial.server, &["DEL", KEY]);
}

/// Somebody waits when it happens: he has the lock when it is free, by this bound.
fn waited(trial: &Trial, injector: &dyn Injector, free_after: u64) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        until("it waits", || trial.waiting() == 1);
        let before = Instant::now();
        let active = trial.inject(injector);
        let begin = Instant::now();
        trial.prove(&active);
        let at = waiter.join().unwrap();
        let took = at.spent_since(begin);
        // A heartbeat passes until it asks again; the stranger's value does not hand over.
        assert!(took < ms(free_after + 1_300) + SLACK, "{took:?}");
        let took = at.duration_since(before);
        assert!(took + ms(1) >= ms(free_after), "{took:?}");
    });
    assert!(held.release().is_err());
}

/// The release finds that it is too late, and touches nothing.
fn released_too_late(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(injector);
    trial.prove(&active);
    let there: Option<String> = ask(&trial.server, &["GET", KEY]);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_lost() && error.is_not_held(), "{error:?}");
    assert_eq!(ask::<Option<String>>(&trial.server, &["GET", KEY]), there, "it was touched");
    trial.litters(ms(2_000));
}

/// A fixed lease ends, the next one has the lock, and only then comes the release.
fn expired_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, fixed(300)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let next = trial.rival().try_lock_for(SOON).unwrap().expect("free");
    trial.granted(&next);
    trial.witnessed(1, u64::from(!guard.is_valid()), "the next grant");
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Expired);
    assert!(trial.timed(COMMAND, || guard.release()).unwrap_err().is_lost());
    next.check().unwrap();
    next.release().unwrap();
}

/// A thread whose lock is lost must not go on as if it had only nested deeper.
fn expired_at_reentry(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&EXPIRED);
    trial.prove(&active);
    until("it is found", || !guard.is_valid());
    for error in [lock.lock().unwrap_err(), lock.try_lock().unwrap_err()] {
        assert!(error.is_lost(), "{error:?}");
    }
    assert_eq!(lock.hold_count(), 0);
    assert!(guard.release().unwrap_err().is_lost());
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

/// The second unlock is an error, and the next one's lock is untouched.
fn twice_at_unlock(trial: &Trial) {
    let client = trial.client();
    assert!(client.try_lock(KEY, COMMAND, Lease::renewed(ms(LEASE))).unwrap());
    client.unlock(KEY).unwrap();
    let next = trial.rival().try_lock().unwrap().expect("free");
    trial.granted(&next);
    let before = trial.server.command_calls(&["eval", "evalsha"]);
    let error = trial.timed(COMMAND, || client.unlock(KEY)).unwrap_err();
    assert!(error.is_not_held() && !error.is_lost(), "{error:?}");
    assert_eq!(trial.server.command_calls(&["eval", "evalsha"]), before);
    next.check().unwrap();
    trial.witnessed(1, u64::from(error.is_not_held()), "the error");
}

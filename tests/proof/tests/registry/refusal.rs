//! Refusals of a server: without memory, as a replica, to a user.

use std::thread;
use std::time::Instant;

use leasehold::{LockClient, Release, Wait};
use leasehold_support::CommandStats;
use leasehold_support::fault::network::{AtOperation, SILENCE};
use leasehold_support::fault::server::DiskFailure;
use leasehold_support::fault::setting::{
    MASTER_DOWN, NO_INDEX, NO_PERMISSION, NO_PUBLISH, NO_REPLICAS, NoPassword, OUT_OF_MEMORY,
    READ_ONLY, WRONG_PASSWORD,
};
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::lag::Spent as _;

use crate::acquire::outage;
use crate::common::{SLACK, SOON, exists, ms, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial, wait};

kinds! {
    oom_at_acquire "out-of-memory@acquire" "E";
    oom_at_join "out-of-memory@join" "E";
    oom_at_renew "out-of-memory@renew" "S";
    oom_at_announce "out-of-memory@announce" "S" = hold_unharmed(&OUT_OF_MEMORY);
    silent_at_announce "silent@announce" "S";
    oom_at_release "out-of-memory@release" "S,L";
    oom_at_hand_over "out-of-memory@hand-over" "S,L";
    oom_at_watch_release "out-of-memory@watch-release" "S,L";
    oom_at_reentrant_release "out-of-memory@reentrant-release" "S,L";
    read_only_at_acquire "read-only@acquire" "E,L" = outage(&READ_ONLY);
    read_only_at_renew "read-only@renew" "S";
    read_only_at_release "read-only@release" "E,A";
    master_down_at_acquire "master-down@acquire" "E,L" = outage(&MASTER_DOWN);
    no_replicas_at_acquire "no-replicas@acquire" "E,L" = outage(&NO_REPLICAS);
    disk_failure_at_acquire "disk-failure@acquire" "E";
    disk_failure_at_release "disk-failure@release" "E,A";
    no_password_at_connect "no-password@connect" "E";
    wrong_password_at_connect "wrong-password@connect" "E";
    no_permission_at_acquire "no-permission@acquire" "E";
    no_permission_at_release "no-permission@release" "E,A";
    no_permission_at_announce "no-index@announce" "S" = hold_unharmed(&NO_INDEX);
    no_publish_at_hand_over "no-publish@hand-over" "L";
}

/// The memory is full: a bare write is refused, which is what the server's count proves.
#[track_caller]
fn is_full(trial: &Trial) {
    let refused = trial.server.error_count("OOM");
    let answer = redis::cmd("SET").arg("probe").arg(1).query::<()>(&mut trial.server.connection());
    assert!(answer.is_err_and(|error| error.code() == Some("OOM")));
    assert_eq!(trial.server.error_count("OOM"), refused + 1);
}

/// The commands that the server ran while its memory was full, and how many writes it refused.
fn while_full<T>(trial: &Trial, work: impl FnOnce() -> T) -> (T, CommandStats, u64) {
    is_full(trial);
    let (before, refused) = (trial.server.commands(), trial.server.error_count("OOM"));
    let done = work();
    let ran = trial.server.commands().since(&before);
    let refused = trial.server.error_count("OOM") - refused;
    is_full(trial);
    (done, ran, refused)
}

/// The path: its first write is refused, so nothing was written at all.
fn oom_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&OUT_OF_MEMORY);
    let (error, _, refused) =
        while_full(trial, || trial.timed(COMMAND, || lock.try_lock()).unwrap_err());
    assert!(error.is_refused() && error.to_string().contains("OOM"), "{error:?}");
    assert_eq!(refused, 1);
    assert!(!exists(&trial.server, KEY) && !exists(&trial.server, "{k}:fence"));
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

/// A waiter that cannot join the queue gets an error, and does not wait outside it.
fn oom_at_join(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = trial.inject(&OUT_OF_MEMORY);
    let begin = Instant::now();
    let error = lock.try_lock_for(SOON).map(drop).unwrap_err();
    assert!(error.is_refused() && begin.spent() < COMMAND * 2 + SLACK, "{error:?}");
    trial.prove(&active);
    assert_eq!(trial.waiting(), 0);
    drop(active);
    held.release().unwrap();
}

/// The path: `PEXPIRE` alone, which is never refused.
fn oom_at_renew(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&OUT_OF_MEMORY);
    let ((), ran, refused) = while_full(trial, || thread::sleep(ms(LEASE + 200)));
    assert!(guard.is_valid(), "{:?}", guard.loss());
    assert!(ran.calls("pexpire") >= 2 && refused == 0, "{ran:?}, {refused} refused");
    trial.prove(&active);
    guard.check().unwrap();
    guard.release().unwrap();
}

/// An announcement fails, which costs the holder nothing: the lease is renewed.
fn hold_unharmed(trial: &Trial, fault: &dyn Injector) {
    let client = trial.builder().announce(true).build().unwrap();
    let guard = client.mutex_with(KEY, renewed(LEASE)).unwrap().lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(fault);
    trial.prove(&active);
    thread::sleep(ms(LEASE));
    assert!(guard.is_valid(), "{:?}", guard.loss());
    guard.check().unwrap();
    guard.release().unwrap();
}

/// An announcement without a reply.
fn silent_at_announce(trial: &Trial) {
    hold_unharmed(trial, &AtOperation::request("", Operation::Announce, SILENCE));
}

/// The path with nobody in the queue: `DEL`, which is never refused.
fn oom_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&OUT_OF_MEMORY);
    let (answer, ran, refused) = while_full(trial, || trial.timed(COMMAND, || guard.release()));
    answer.unwrap();
    assert_eq!((ran.calls("del"), ran.calls("set"), refused), (1, 0, 0), "{ran:?}");
    assert!(!exists(&trial.server, KEY));
    trial.prove(&active);
}

/// The path with a waiter in the queue (rule 16): `ZREM` first, then `SET` although memory is full.
fn oom_at_hand_over(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
            let granted = Instant::now();
            trial.granted(&guard);
            (granted, guard.into_owned().expect("held once"))
        });
        until("it waits", || trial.waiting() == 1);
        let active = trial.inject(&OUT_OF_MEMORY);
        // Its beats are refused, and it keeps its place (rule 11).
        thread::sleep(ms(1_200));
        assert_eq!(trial.waiting(), 1);
        let begin = Instant::now();
        let (answer, ran, refused) = while_full(trial, || {
            let answer = trial.timed(COMMAND, || held.release());
            (answer, waiter.join().unwrap())
        });
        let (answer, (granted, owned)) = answer;
        answer.unwrap();
        assert!(granted.spent_since(begin) < SLACK);
        assert!(ran.calls("zrem") >= 1, "{ran:?}");
        assert_eq!((ran.calls("set"), ran.calls("del"), refused), (2, 0, 0), "{ran:?}");
        trial.prove(&active);
        owned.into_guard().release().unwrap();
    });
}

/// The path: `DEL` in a transaction or, where the server takes none, in a script.
fn oom_at_watch_release(trial: &Trial) {
    let options = renewed(LEASE).wait(Wait::spin()).release(Release::watch());
    let lock = trial.client().mutex_with(KEY, options).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&OUT_OF_MEMORY);
    let (answer, ran, _) = while_full(trial, || trial.timed(COMMAND, || guard.release()));
    answer.unwrap();
    assert!(ran.calls("watch") == 1 && ran.calls("del") == 1, "{ran:?}");
    assert!(!exists(&trial.server, KEY));
    trial.prove(&active);
}

/// The path: `DEL`, whatever the hold count (rule 22).
fn oom_at_reentrant_release(trial: &Trial) {
    let lock = trial.client().reentrant_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&OUT_OF_MEMORY);
    drop(lock.lock().unwrap());
    let (answer, ran, _) = while_full(trial, || trial.timed(COMMAND, || guard.release()));
    answer.unwrap();
    assert_eq!(ran.calls("del"), 1, "{ran:?}");
    assert!(!exists(&trial.server, KEY));
    trial.prove(&active);
}

/// It refuses renewals for half a lease, and is a master again.
fn read_only_at_renew(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let mut active = trial.inject(&READ_ONLY);
    trial.prove(&active);
    thread::sleep(ms(LEASE / 2).saturating_sub(begin.elapsed()));
    active.heal();
    while begin.elapsed() < ms(LEASE + 200) {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        thread::sleep(ms(5));
    }
    guard.check().unwrap();
    guard.release().unwrap();
}

fn read_only_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&READ_ONLY);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.given_back();
}

fn disk_failure_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&DiskFailure);
    // It is an outage: a caller with time left waits for its end.
    for error in [
        trial.timed(COMMAND, || lock.try_lock()).unwrap_err(),
        lock.try_lock_for(COMMAND).unwrap_err(),
    ] {
        assert!(error.is_unreachable() && error.to_string().contains("MISCONF"), "{error:?}");
    }
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

fn disk_failure_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&DiskFailure);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.given_back();
}

/// A wrong password stays wrong: it is reported at once, without a wait.
/// The server wants a password, and none is given.
fn no_password_at_connect(trial: &Trial) {
    let active = trial.inject(&NoPassword);
    let builder = trial.builder().connect_now(false);
    let lock = builder.build().unwrap().mutex_with(KEY, renewed(LEASE)).unwrap();
    for error in [
        trial.timed(COMMAND, || trial.builder().build()).map(drop).unwrap_err(),
        trial.timed(COMMAND, || lock.lock()).map(drop).unwrap_err(),
    ] {
        assert!(error.is_denied(), "{error:?}");
    }
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

fn wrong_password_at_connect(trial: &Trial) {
    let active = trial.inject(&WRONG_PASSWORD);
    let url = trial.proxy.url().replace("redis://", "redis://worker:old@");
    let builder = LockClient::builder(&url).command_timeout(COMMAND).connect_timeout(COMMAND);
    let lock = builder.build().unwrap().mutex_with(KEY, renewed(LEASE)).unwrap();
    for error in [
        trial.timed(COMMAND, || LockClient::open(&url)).map(drop).unwrap_err(),
        trial.timed(COMMAND, || lock.lock()).map(drop).unwrap_err(),
    ] {
        assert!(error.is_denied() && !error.to_string().contains("old"), "{error:?}");
    }
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

/// A missing permission is reported at once, however long the call may wait.
fn no_permission_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&NO_PERMISSION);
    let error = trial.timed(COMMAND, || lock.lock()).unwrap_err();
    assert!(error.is_denied(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

fn no_permission_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&NO_PERMISSION);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_denied(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.given_back();
}

/// Publishing is denied: the lock is handed over all the same, or left for the next request.
fn no_publish_at_hand_over(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        until("it waits", || trial.waiting() == 1);
        let active = trial.inject(&NO_PUBLISH);
        let begin = Instant::now();
        trial.timed(COMMAND, || held.release()).unwrap();
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < ms(1_300) + SLACK, "{took:?}");
        active
    });
    trial.prove(&active);
    drop(active);
    trial.given_back();
}

//! A bound on the threads that wait for a lock, over the server in memory.

use std::time::Duration;

use super::double::{at_once, listen, until};
use crate::base::error::{Error, Result};
use crate::base::option::LockOptions;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::{Arc, spawn};
use crate::client::LockClient;
use crate::kind::mutex::MutexKind;
use crate::kind::{Mutex, UpgradableReadGuard};
use crate::protocol::lock_kind::LockKind as _;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

fn at_most(most: u32) -> LockOptions {
    LockOptions::new().max_waiters(most)
}

/// A thread that makes this call, and sends whether it got the lock. Whatever it got it gives back.
fn caller<T: 'static>(
    call: impl FnOnce() -> Result<Option<T>> + Send + 'static,
) -> Receiver<Result<bool>> {
    let (sender, receiver) = unbounded();
    spawn("caller", move || _ = sender.send(call().map(|held| held.is_some()))).unwrap();
    receiver
}

/// A thread that waits without an end.
fn waiter(lock: &Mutex) -> Receiver<Result<bool>> {
    let lock = lock.clone();
    caller(move || lock.lock().map(Some))
}

/// How many threads of this client wait for the mutex.
fn waiting(client: &LockClient, name: &str) -> usize {
    let slots = client.engine().table().of_name(name.as_bytes());
    let of_mutex = slots.iter().filter(|it| it.target().kind().name() == MutexKind.name());
    of_mutex.map(|slot| slot.waiters()).sum()
}

fn outcome(receiver: &Receiver<Result<bool>>) -> Result<bool> {
    receiver.recv().unwrap()
}

/// The call ends at once, and tells of this holder.
fn assert_crowded(lock: &Mutex, token: crate::FencingToken) {
    let lock = lock.clone();
    at_once(move || {
        assert!(lock.try_lock_for(SECOND * 60).unwrap().is_none());
        assert_eq!(lock.last_blocker().unwrap().token(), Some(token));
        let error: Error = lock.lock().unwrap_err();
        assert!(error.is_crowded() && error.is_transient(), "{error:?}");
        let holder = lock.last_blocker().unwrap();
        assert_eq!(holder.token(), Some(token));
        let text = error.to_string();
        assert!(text.contains(&format!("held by {holder}")), "{text}");
    });
}

/// The error of this call, which does not wait.
fn refused<T: 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Error {
    at_once(move || call().map(drop).unwrap_err())
}

#[test]
fn one_more_than_allowed_is_told_at_once_who_has_the_lock_elsewhere() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    listen(&client);
    let held = other.mutex("a").unwrap().lock().unwrap();
    let lock = client.mutex_with("a", at_most(2)).unwrap();
    let first = waiter(&lock);
    until(|| server.is_queued_for("a"));
    let second = waiter(&lock);
    until(|| waiting(&client, "a") == 2);
    let before = server.link(&client).exchanges();
    assert_crowded(&lock, held.fencing_token());
    assert_eq!((waiting(&client, "a"), server.link(&client).exchanges()), (2, before));
    // Another handle has its own bound, and all who wait count.
    let wider = client.mutex_with("a", at_most(3)).unwrap();
    let third = waiter(&wider);
    until(|| waiting(&client, "a") == 3);
    assert_crowded(&wider, held.fencing_token());
    // And one without a bound has none.
    let unbounded = waiter(&client.mutex("a").unwrap());
    until(|| waiting(&client, "a") == 4);
    held.release().unwrap();
    for waiter in [first, second, third, unbounded] {
        assert!(outcome(&waiter).unwrap());
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn one_more_than_allowed_is_told_at_once_which_thread_has_the_lock() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex_with("a", at_most(1)).unwrap();
    let held = lock.lock_owned().unwrap();
    let first = waiter(&lock);
    until(|| waiting(&client, "a") == 1);
    assert_crowded(&lock, held.fencing_token());
    // As each other way to wait.
    let (one, all, other) = (lock.clone(), lock.clone(), client.clone());
    assert!(refused(move || one.lock_owned()).is_crowded());
    assert!(refused(move || other.lock_all([&all])).is_crowded());
    assert!(client.try_lock_all_for([&lock], SECOND).unwrap().is_none());
    // Single attempts are not bounded, and do not count.
    assert!(lock.try_lock().unwrap().is_none());
    held.release().unwrap();
    assert!(outcome(&first).unwrap());
    lock.lock().unwrap().release().unwrap();
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn those_that_wait_no_more_make_room() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex_with("a", at_most(1)).unwrap();
    let held = lock.lock_owned().unwrap();
    let waiting_lock = lock.clone();
    let brief = caller(move || waiting_lock.try_lock_for(SECOND));
    until(|| waiting(&client, "a") == 1);
    let another = lock.clone();
    assert!(refused(move || another.lock()).is_crowded());
    until(|| server.has_sleeper());
    server.advance(SECOND * 2);
    assert!(!outcome(&brief).unwrap());
    let next = waiter(&lock);
    until(|| waiting(&client, "a") == 1);
    assert_eq!(lock.cancel_waits(), 1);
    assert!(outcome(&next).unwrap_err().is_cancelled());
    let last = waiter(&lock);
    until(|| waiting(&client, "a") == 1);
    held.release().unwrap();
    assert!(outcome(&last).unwrap());
}

/// The first reply may yet say that the lock is free, and nobody is named.
#[test]
fn bound_holds_while_the_first_reply_is_awaited() {
    let server = Server::standing_still();
    let client = Arc::new(server.client());
    listen(&client);
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    let link = server.link(&client);
    let lock = client.mutex_with("a", at_most(1)).unwrap();
    link.delay_requests(1, SECOND / 2);
    let first = waiter(&lock);
    until(|| waiting(&client, "a") == 1 && server.has_sleeper());
    assert_refused_without_a_holder(&client, &lock);
    server.advance(SECOND);
    assert!(outcome(&first).unwrap());
}

/// No call says that somebody has the lock.
fn assert_refused_without_a_holder(client: &Arc<LockClient>, lock: &Mutex) {
    let (one, other) = (lock.clone(), lock.clone());
    let (all, client) = (lock.clone(), Arc::clone(client));
    for error in [
        refused(move || one.lock()),
        refused(move || other.try_lock_for(SECOND)),
        refused(move || client.try_lock_all_for([&all], SECOND)),
    ] {
        let text = error.to_string();
        assert!(error.is_crowded() && text.contains("no holder is known"), "{text}");
    }
    assert!(lock.last_blocker().is_none());
}

#[test]
fn holder_of_before_an_outage_is_not_named() {
    let server = Server::standing_still();
    let (client, other) = (Arc::new(server.client()), server.client());
    listen(&client);
    let held = other.mutex("a").unwrap().lock().unwrap();
    let lock = client.mutex_with("a", at_most(1)).unwrap();
    let first = waiter(&lock);
    until(|| server.is_queued_for("a"));
    assert_crowded(&lock, held.fencing_token());
    server.link(&client).cut();
    server.advance(SECOND * 3);
    assert_refused_without_a_holder(&client, &lock);
    server.link(&client).restore();
    held.release().unwrap();
    server.advance(SECOND * 5);
    assert!(outcome(&first).unwrap());
}

#[test]
fn single_attempts_that_wait_for_a_reply_do_not_count() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    let link = server.link(&client);
    let lock = client.mutex_with("a", at_most(2)).unwrap();
    link.delay_requests(1, SECOND / 2);
    let first = waiter(&lock);
    until(|| waiting(&client, "a") == 1 && server.has_sleeper());
    let attempts: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            caller(move || lock.try_lock())
        })
        .collect();
    until(|| waiting(&client, "a") == 4);
    let second = waiter(&lock);
    until(|| waiting(&client, "a") == 5);
    assert!(refused(move || lock.lock()).is_crowded());
    server.advance(SECOND);
    for waiter in [first, second] {
        assert!(outcome(&waiter).unwrap());
    }
    attempts.iter().for_each(|attempt| _ = outcome(attempt).unwrap());
}

#[test]
fn upgrade_counts_and_is_not_refused() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.rw_lock_with("a", at_most(1)).unwrap();
    let reader = lock.read_owned().unwrap();
    let upgrading = lock.clone();
    let (sender, is_in) = unbounded();
    let upgrade = caller(move || {
        let guard = upgrading.upgradable_read()?;
        sender.send(()).unwrap();
        UpgradableReadGuard::upgrade(guard).map(Some)
    });
    is_in.recv().unwrap();
    // No thread acquires any more. Its own process may count the upgrade once more, by its message.
    let slot = || client.engine().table().of_name(b"a").iter().next().cloned().unwrap();
    until(|| slot().waiters() >= 1);
    let another = lock.clone();
    assert!(refused(move || another.write()).is_crowded());
    reader.release().unwrap();
    assert!(outcome(&upgrade).unwrap());
    lock.write().unwrap().release().unwrap();
}

#[test]
fn permits_have_the_bound_too() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    listen(&client);
    let theirs = other.semaphore("a", 2).unwrap().acquire_many(2).unwrap();
    let ours = client.semaphore_with("a", 2, at_most(2)).unwrap();
    let take = |permits| {
        let ours = ours.clone();
        caller(move || ours.acquire_many(permits).map(Some))
    };
    let slot = || client.engine().table().of_name(b"a").iter().next().cloned().unwrap();
    let first = take(1);
    until(|| slot().waiters() == 1 && server.has_sleeper());
    let second = take(2);
    until(|| slot().waiters() == 2);
    let another = ours.clone();
    let error = refused(move || another.acquire());
    assert!(error.is_crowded() && error.to_string().contains("held by"), "{error}");
    assert!(ours.try_acquire_for(SECOND * 60).unwrap().is_none());
    assert!(ours.last_blocker().is_some());
    theirs.release().unwrap();
    assert!(outcome(&first).unwrap() && outcome(&second).unwrap());
}

#[test]
fn bound_of_none_is_refused() {
    let server = Server::standing_still();
    let client = server.client();
    let error = client.mutex_with("a", at_most(0)).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("max_waiters: 0"), "{error}");
}

/// Sixty-four threads at once: at no moment more than eight wait.
#[test]
fn crowd_is_turned_away_and_the_others_are_served() {
    const MOST: u32 = 8;
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex_with("a", at_most(MOST)).unwrap();
    let held = lock.lock_owned().unwrap();
    let (sender, receiver) = unbounded();
    let client = Arc::new(client);
    for _ in 0..64 {
        let (lock, sender) = (lock.clone(), sender.clone());
        spawn("one of a crowd", move || {
            let outcome = lock.lock().map(drop);
            _ = sender.send((outcome, lock.last_blocker().map(|holder| holder.token())));
        })
        .unwrap();
    }
    for _ in 0..64 - MOST {
        let (outcome, blocker) = receiver.recv().unwrap();
        assert!(outcome.unwrap_err().is_crowded());
        assert_eq!(blocker, Some(Some(held.fencing_token())));
        assert!(waiting(&client, "a") <= MOST as usize);
    }
    assert_eq!(waiting(&client, "a"), MOST as usize);
    held.release().unwrap();
    for _ in 0..MOST {
        receiver.recv().unwrap().0.unwrap();
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
}

//! Holds that belong to no thread, over the server in memory.

use std::any::Any;
use std::time::{Duration, Instant};

use super::double::{at_once, until};
use crate::base::error::Result;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::unbounded;
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::kind::OwnedLease;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A guard of any type.
type Held = Box<dyn Any>;

/// One way to hold a lock alone, for no thread.
struct Way {
    wait: Box<dyn Fn() -> Result<OwnedLease> + Send>,
    once: Box<dyn Fn() -> Result<Option<OwnedLease>>>,
    span: Box<dyn Fn(Duration) -> Result<Option<OwnedLease>>>,
    until: Box<dyn Fn(Instant) -> Result<Option<OwnedLease>>>,
    /// By a guard of the thread.
    thread: Box<dyn Fn() -> Result<Option<Held>>>,
}

macro_rules! way {
    ($lock:expr, $wait:ident, $once:ident, $span:ident, $until:ident, $thread:ident) => {{
        let lock = $lock.unwrap();
        let [one, two, three, four, five] = std::array::from_fn(|_| lock.clone());
        Way {
            wait: Box::new(move || one.$wait()),
            once: Box::new(move || two.$once()),
            span: Box::new(move |wait| three.$span(wait)),
            until: Box::new(move |deadline| four.$until(deadline)),
            thread: Box::new(move || Ok(five.$thread()?.map(|guard| Box::new(guard) as _))),
        }
    }};
}

/// Every kind that a thread may enter twice.
fn ways(client: &LockClient) -> [Way; 3] {
    [
        way!(
            client.mutex("mutex"),
            lock_owned,
            try_lock_owned,
            try_lock_owned_for,
            try_lock_owned_until,
            try_lock
        ),
        way!(
            client.reentrant("reentrant"),
            lock_owned,
            try_lock_owned,
            try_lock_owned_for,
            try_lock_owned_until,
            try_lock
        ),
        way!(
            client.rw_lock("rw"),
            write_owned,
            try_write_owned,
            try_write_owned_for,
            try_write_owned_until,
            try_write
        ),
    ]
}

#[test]
fn owned_lease_is_entered_by_no_call_of_its_thread() {
    let server = Server::standing_still();
    let client = server.client();
    for Way { wait, once, until: by, thread, .. } in ways(&client) {
        let lease = wait().unwrap();
        assert!(lease.is_valid());
        assert!(once().unwrap().is_none() && thread().unwrap().is_none());
        assert!(by(Instant::now()).unwrap().is_none());
        let token = lease.fencing_token();
        // From another thread.
        let (sender, receiver) = unbounded();
        spawn("releaser", move || _ = sender.send(lease.release())).unwrap();
        receiver.recv().unwrap().unwrap();
        let next = once().unwrap().expect("it is free");
        assert!(next.fencing_token() > token);
        drop(next);
        assert!(thread().unwrap().is_some());
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn call_waits_for_the_owned_lease_of_its_own_thread() {
    let server = Server::standing_still();
    let client = server.client();
    for Way { wait, .. } in ways(&client) {
        let (sender, receiver) = unbounded();
        spawn("holder", move || {
            let lease = wait().unwrap();
            let first = lease.fencing_token();
            spawn("giver", move || {
                until(|| lease.waiters() == 1);
                drop(lease);
            })
            .unwrap();
            _ = sender.send((first, wait().map(|lease| lease.fencing_token())));
        })
        .unwrap();
        let (first, second) = receiver.recv().unwrap();
        assert!(first < second.unwrap());
    }
}

#[test]
fn guard_of_the_thread_is_in_the_way_at_once() {
    at_once(own_beside_a_guard);
}

fn own_beside_a_guard() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    for Way { wait, once, span, thread, .. } in ways(&client) {
        let guard = thread().unwrap().unwrap();
        let before = link.exchanges();
        assert!(once().unwrap().is_none() && span(SECOND * 60).unwrap().is_none());
        let error = wait().map(drop).unwrap_err();
        assert!(
            error.is_config() && error.to_string().contains("would wait for itself"),
            "{error}"
        );
        assert_eq!((link.exchanges(), server.elapsed()), (before, Duration::ZERO));
        drop(guard);
        drop(wait().unwrap());
    }
    let lock = client.mutex("mutex").unwrap();
    let guard = lock.lock().unwrap();
    assert!(lock.try_lock_owned().unwrap().is_none());
    assert_eq!(lock.last_blocker().unwrap().token(), Some(guard.fencing_token()));
}

#[test]
fn lost_guard_is_in_nobodys_way() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::fixed(SECOND));
    let lock = client.mutex_with("a", options).unwrap();
    let lost = lock.lock().unwrap();
    server.advance(SECOND * 2);
    let lease = lock.lock_owned().unwrap();
    assert!(lease.is_valid() && !lost.is_valid());
    assert!(lost.release().unwrap_err().is_lost());
    lease.release().unwrap();
}

#[test]
fn readers_own_leases_beside_each_other() {
    at_once(own_beside_readers);
}

fn own_beside_readers() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.rw_lock("a").unwrap();
    let leases = [lock.read_owned().unwrap(), lock.try_read_owned().unwrap().unwrap()];
    assert!(lock.try_write_owned().unwrap().is_none() && lock.try_write().unwrap().is_none());
    let guard = lock.read().unwrap();
    // It may share the lock with the guard of this thread, but could wait for it behind a writer.
    drop(lock.try_read_owned_for(SECOND).unwrap().unwrap());
    assert!(lock.read_owned().map(drop).unwrap_err().is_config());
    guard.release().unwrap();
    client.release_all(leases).unwrap();
    let writer = lock.write_owned().unwrap();
    assert!(lock.try_read_owned().unwrap().is_none() && lock.try_read().unwrap().is_none());
    writer.release().unwrap();
    let guard = lock.upgradable_read().unwrap();
    drop(lock.try_read_owned().unwrap().unwrap());
    assert!(lock.try_write_owned_for(SECOND * 60).unwrap().is_none());
    guard.release().unwrap();
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn owned_lease_becomes_the_hold_of_a_thread() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex("a").unwrap();
    let lease = lock.lock_owned().unwrap();
    assert_eq!(lease.name(), b"a");
    assert!(!lock.is_held_by_current_thread());
    let guard = lease.into_guard();
    let again = lock.lock().unwrap();
    assert_eq!((guard.hold_count(), again.fencing_token()), (2, guard.fencing_token()));
}

#[test]
fn wait_for_an_owned_lease_ends_with_its_time() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let held = other.mutex("a").unwrap().lock_owned().unwrap();
    let (sender, receiver) = unbounded();
    let lock = client.mutex("a").unwrap();
    let waiting = lock.clone();
    spawn("waiter", move || _ = sender.send(waiting.try_lock_owned_for(SECOND * 5))).unwrap();
    until(|| server.is_queued_for("a"));
    server.advance(SECOND * 6);
    assert!(receiver.recv().unwrap().unwrap().is_none());
    held.release().unwrap();
    drop(lock.try_lock_owned_for(SECOND).unwrap().unwrap());
}

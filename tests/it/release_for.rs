//! A process gives back what another one held that has died: by the owner's value, and nobody else loses anything.

use std::sync::mpsc;
use std::thread;

use crate::common::kind::KINDS;
use crate::common::several::{self, direct, servers};
use crate::common::{exists, fixed, open, server};

/// Far longer than a test waits for anything.
const LONG: u64 = 600_000;

#[test]
fn lock_of_a_dead_owner_goes_to_the_next_waiter() {
    for kind in KINDS {
        let server = server();
        let (dead, next, other) = (open(&server), open(&server), open(&server));
        let guard = kind.with(&dead, "x", fixed(LONG)).lock().unwrap();
        let (owner, token) = (guard.lease_watch().owner().to_vec(), guard.fencing_token());
        let lock = kind.open(&other, "x");
        assert_eq!(lock.holder().unwrap().expect("held").owner(), owner, "{}", kind.name);
        assert!(!lock.release_for(b"somebody").unwrap(), "it held nothing");
        assert!(!kind.open(&other, "y").release_for(&owner).unwrap(), "nor another lock");
        let waiting = kind.with(&next, "x", fixed(LONG));
        let (send, found_busy) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let busy = waiting.try_lock().map(|guard| guard.is_none());
                send.send(busy.unwrap()).unwrap();
                let later = waiting.lock().unwrap();
                assert!(later.fencing_token() > token);
                // The value of the dead one is never another's.
                assert!(!kind.open(&other, "x").release_for(&owner).unwrap());
                later.check().unwrap();
                later.release().unwrap();
            });
            assert!(found_busy.recv().unwrap());
            assert!(lock.release_for(&owner).unwrap(), "{}", kind.name);
            waiter.join().expect("no panic");
        });
        assert!(guard.release().unwrap_err().is_lost());
        assert!(!exists(&server, "x"));
    }
}

#[test]
fn permits_of_a_dead_owner_come_back_and_others_stay() {
    let server = server();
    let (dead, living, other) = (open(&server), open(&server), open(&server));
    let semaphore = |client: &leasehold::LockClient| {
        client.semaphore_with("x", 3, fixed(LONG)).expect("a semaphore")
    };
    let lost = semaphore(&dead).acquire_many(2).unwrap();
    let kept = semaphore(&living).acquire().unwrap();
    let owner = lost.lease_watch().owner().to_vec();
    let asked = semaphore(&other);
    assert!(asked.holders().unwrap().iter().any(|holder| holder.owner() == owner));
    assert!(!asked.release_for(b"somebody").unwrap());
    assert!(asked.try_acquire().unwrap().is_none(), "all are taken");
    assert!(asked.release_for(&owner).unwrap());
    assert!(!asked.release_for(&owner).unwrap(), "once");
    assert_eq!(asked.available().unwrap(), 2);
    kept.check().unwrap();
    kept.release().unwrap();
    assert!(lost.release().unwrap_err().is_lost());
}

#[test]
fn share_of_a_dead_reader_or_writer_comes_back_and_others_stay() {
    let server = server();
    let (dead, living, other) = (open(&server), open(&server), open(&server));
    let lock = |client: &leasehold::LockClient| client.rw_lock_with("x", fixed(LONG)).expect("it");
    let (lost, kept) = (lock(&dead), lock(&living));
    let (lost, kept) = (lost.read().unwrap(), kept.read().unwrap());
    let asked = lock(&other);
    let owner = lost.lease_watch().owner().to_vec();
    assert!(asked.release_for(&owner).unwrap());
    assert!(!asked.release_for(&owner).unwrap(), "once");
    assert!(asked.try_write().unwrap().is_none(), "the other reads on");
    kept.check().unwrap();
    kept.release().unwrap();
    assert!(lost.release().unwrap_err().is_lost());

    let writing = lock(&dead);
    let lost = writing.write().unwrap();
    let owner = lost.lease_watch().owner().to_vec();
    assert!(asked.release_for(&owner).unwrap());
    asked.try_write().unwrap().expect("it is free").release().unwrap();
    assert!(lost.release().unwrap_err().is_lost());
}

#[test]
fn lock_of_a_dead_owner_comes_back_over_several_servers() {
    let servers = servers(3);
    let (dead, other) = (several::open(direct(&servers)), several::open(direct(&servers)));
    let lock = dead.mutex_with("x", fixed(25_000)).expect("a lock");
    let guard = lock.lock().unwrap();
    let owner = guard.lease_watch().owner().to_vec();
    let asked = other.mutex("x").expect("a lock");
    assert!(!asked.release_for(b"somebody").unwrap());
    assert!(asked.release_for(&owner).unwrap());
    asked.try_lock().unwrap().expect("it is free").release().unwrap();
    assert!(guard.release().unwrap_err().is_lost());
}

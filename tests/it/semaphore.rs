//! Semaphores on a real server: limits, slots, order, resize.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, LockOptions, Permit};

use crate::common::open;
use leasehold_support::Server;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn permits_have_the_lowest_free_slots() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 3).unwrap();
    let permits: Vec<Permit> = (0..3).map(|_| gpus.acquire().unwrap()).collect();
    assert_eq!(permits.iter().map(Permit::slot).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(gpus.try_acquire().unwrap().is_none());
    assert_eq!(gpus.last_blocker().unwrap().pid(), Some(std::process::id()));
    assert_eq!((gpus.available().unwrap(), gpus.limit().unwrap()), (0, 3));
    let mut permits = permits.into_iter();
    let (_first, second, _third) = (permits.next(), permits.next().unwrap(), permits.next());
    second.release().unwrap();
    assert_eq!(gpus.try_acquire().unwrap().unwrap().slot(), 1);
}

#[test]
fn waiter_gets_the_permit_of_a_released_one() {
    let server = Server::start().unwrap();
    let (here, there) = (open(&server), open(&server));
    let held = here.semaphore("gpu", 1).unwrap().acquire().unwrap();
    let waits = thread::spawn(move || {
        let permit = there.semaphore("gpu", 1).unwrap().acquire().unwrap();
        (permit.slot(), permit.fencing_token())
    });
    let gpus = here.semaphore("gpu", 1).unwrap();
    while gpus.inspect().unwrap().waiting() != Some(1) {
        thread::yield_now();
    }
    let token = held.fencing_token();
    held.release().unwrap();
    let (slot, later) = waits.join().unwrap();
    assert!(slot == 0 && later > token);
}

#[test]
fn another_limit_is_an_error_that_names_both() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let _held = client.semaphore("gpu", 4).unwrap().acquire().unwrap();
    let other = client.semaphore("gpu", 3).unwrap();
    let error = other.try_acquire().unwrap_err();
    assert!(error.is_config(), "{error}");
    let text = error.to_string();
    assert!(text.contains("4 permits") && text.contains("3 permits"), "{text}");
    assert!(other.resize(9).unwrap_err().is_config());
}

#[test]
fn resize_grants_waiters_and_refuses_those_above_it() {
    let server = Server::start().unwrap();
    let (client, other) = (open(&server), open(&server));
    let gpus = client.semaphore("gpu", 4).unwrap();
    let held: Vec<Permit> = (0..4).map(|_| gpus.acquire().unwrap()).collect();
    let (sender, outcomes) = mpsc::channel();
    let wait = thread::spawn(move || {
        let gpus = other.semaphore("gpu", 4).unwrap();
        sender.send(gpus.acquire_many(3).map(|permit| permit.slots().to_vec())).unwrap();
    });
    while gpus.inspect().unwrap().waiting() != Some(1) {
        thread::yield_now();
    }
    gpus.resize(2).unwrap();
    let error = outcomes.recv_timeout(5 * SECOND).unwrap().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("limit in force"), "{error}");
    wait.join().unwrap();
    assert_eq!((gpus.limit().unwrap(), gpus.available().unwrap()), (2, 0));
    gpus.resize(5).unwrap();
    assert_eq!(gpus.try_acquire().unwrap().unwrap().slot(), 4);
    drop(held);
}

#[test]
fn permits_pass_between_threads_without_commands() {
    let server = Server::start().unwrap();
    let client = LockClient::builder(server.url()).build().unwrap();
    let gpus = client.semaphore("gpu", 1).unwrap();
    let options = LockOptions::new().local_handoffs(1_000_000);
    let held = client.semaphore_with("gpu", 1, options).unwrap();
    let first = held.acquire().unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let gpus = held.clone();
            thread::spawn(move || gpus.acquire().unwrap().fencing_token())
        })
        .collect();
    while first.waiters() < 3 {
        thread::yield_now();
    }
    let token = first.fencing_token();
    first.release().unwrap();
    let tokens: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    assert!(tokens.iter().all(|later| *later > token), "{tokens:?}");
    assert_eq!(gpus.available().unwrap(), 1);
}

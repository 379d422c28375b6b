//! Permits that pass between threads of a process, and what all that costs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use leasehold::{LockClient, LockOptions, Semaphore};
use leasehold_support::Server;

use super::take;
use crate::common::queue::listens;
use crate::common::{ms, open, server, until};

const SCRIPTS: &[&str] = &["evalsha", "eval"];

/// A semaphore of a client that listens, on a server that knows its scripts, and passes permits on for a second.
fn listener(server: &Server, permits: u32) -> (LockClient, Semaphore) {
    let client = open(server);
    let options = LockOptions::new().local_handoffs(1_000_000);
    let gpus = client.semaphore_with("gpu", permits, options).unwrap();
    gpus.acquire().unwrap().release().unwrap();
    listens(server, &client);
    (client, gpus)
}

#[test]
fn uncontended_pair_is_two_commands() {
    let server = server();
    let (_client, gpus) = listener(&server, 4);
    let _held = gpus.acquire().unwrap();
    server.reset_stats();
    for _ in 0..10 {
        gpus.acquire().unwrap().release().unwrap();
    }
    assert_eq!(server.command_calls(SCRIPTS), 20);
    // What the scripts run: 10 for a pair, as the sketch of the contract does.
    let inner = ["time", "zmscore", "exists", "zadd", "pexpire", "set", "zrem", "zrange", "pttl"];
    assert!(server.command_calls(&inner) <= 130, "{:?}", server.commands());
}

#[test]
fn passed_permit_costs_no_command_and_keeps_its_slot() {
    let server = server();
    let (_client, gpus) = listener(&server, 2);
    let mut held = take(&gpus, 2);
    thread::scope(|scope| {
        let waits = scope.spawn(|| gpus.acquire().unwrap());
        super::in_line(&gpus, 1);
        // Its subscription and its place are there.
        server.reset_stats();
        let first = held.pop().unwrap();
        let token = first.fencing_token();
        first.release().unwrap();
        let next = waits.join().unwrap();
        assert_eq!(next.slot(), 1, "the slot of the one before");
        assert!(next.fencing_token() > token);
        // It has left the line, for which nobody else of its process waits.
        assert!(server.command_calls(SCRIPTS) <= 1, "{:?}", server.commands());
    });
}

/// Each permit of eight threads is passed to the next thread, whose place in the line the one after it takes.
#[test]
fn many_threads_share_permits_with_few_commands() {
    let server = server();
    let (_client, gpus) = listener(&server, 2);
    let rounds = AtomicU32::new(0);
    server.reset_stats();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let permit = gpus.acquire().unwrap();
                    // So that the others wait for it.
                    thread::sleep(ms(1));
                    permit.release().unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (rounds, commands) = (rounds.into_inner(), server.command_calls(SCRIPTS));
    assert!(commands <= u64::from(rounds), "{commands} commands for {rounds} permits");
    assert_eq!(gpus.available().unwrap(), 2);
}

/// The contract's bound: 2.1 commands for each permit, an acquire and a release, and a heartbeat now and then.
#[test]
fn contended_permit_costs_two_commands() {
    let server = server();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = open(&server);
            listens(&server, &client);
            client.semaphore("gpu", 2).unwrap()
        })
        .collect();
    clients[0].acquire().unwrap().release().unwrap();
    let rounds = 150;
    server.reset_stats();
    thread::scope(|scope| {
        for gpus in &clients {
            scope.spawn(move || {
                for _ in 0..rounds {
                    gpus.acquire().unwrap().release().unwrap();
                }
            });
        }
    });
    let permits = rounds * clients.len() as u64;
    // The commands for the listing of locks in use are not the permits'.
    let commands = server.command_calls(SCRIPTS);
    assert!(commands * 10 <= permits * 21, "{commands} commands for {permits} permits");
}

/// Past those who wait elsewhere nothing is passed on.
#[test]
fn waiter_elsewhere_gets_the_next_permit() {
    let server = server();
    let (_client, gpus) = listener(&server, 2);
    let theirs = open(&server).semaphore("gpu", 2).unwrap();
    let mut held = take(&gpus, 2);
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| theirs.acquire().unwrap());
        super::in_line(&gpus, 1);
        let here = scope.spawn(|| gpus.acquire().unwrap());
        super::in_line(&gpus, 2);
        // The count is that of all permits of the process: it shows the message to the one whose lease ends first.
        until("a holder is told", || held[0].waiters() >= 2);
        held.remove(0).release().unwrap();
        assert_eq!(elsewhere.join().unwrap().slot(), 0, "it came first");
        held.pop().unwrap().release().unwrap();
        drop(here.join().unwrap());
    });
}

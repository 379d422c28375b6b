//! Very many threads, clients and names.

#[path = "../../it/common/mod.rs"]
mod common;

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::process::in_own_process;
use common::queue::waiting;
use common::{SLACK, SOON, ask, exists, ms, open, renewed, server, until, within};
use leasehold::{Error, LockClient, Mutex};
use leasehold_support::Server;
use leasehold_support::lag::Spent as _;

/// As much as a waiting thread needs, without optimisation.
const STACK: usize = 128 * 1024;
const THREADS: usize = 5_000;
/// This many threads take long on a shared machine.
const LATEST: Duration = Duration::from_secs(60);

fn connections(server: &Server) -> usize {
    // Less the one that asks.
    ask::<String>(server, &["CLIENT", "LIST"]).lines().count() - 1
}

fn small(name: String) -> thread::Builder {
    thread::Builder::new().name(name).stack_size(STACK)
}

/// Spins, because five thousand naps would take too long.
#[track_caller]
fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.spent() < SOON, "not within {SOON:?}: {what}");
        thread::yield_now();
    }
}

/// Catalogue: 5,000 waiters: bounded connections, every one gets its verdict. Checker C6.
#[test]
fn five_thousand_threads_are_served_in_order() {
    const POOL: u32 = 4;
    let server = server();
    let client = LockClient::builder(server.url()).max_size(POOL).build().unwrap();
    let lock = client.mutex("x").unwrap();
    let (served, inside) = (Shared::new(Vec::with_capacity(THREADS)), AtomicU32::new(0));
    let most = AtomicUsize::new(0);
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (lock, served, inside) = (&lock, &served, &inside);
            let body = move || {
                let guard = lock.lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                served.lock().unwrap().push((number, guard.fencing_token()));
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().unwrap();
            };
            small(format!("waiter {number}")).spawn_scoped(scope, body).unwrap();
            soon("it waits", || guard.waiters() == number + 1);
        }
        most.fetch_max(connections(&server), Ordering::SeqCst);
        guard.release().unwrap();
        within(LATEST, "they are served", || {
            most.fetch_max(connections(&server), Ordering::SeqCst);
            served.lock().unwrap().len() == THREADS
        });
    });
    let served = served.into_inner().unwrap();
    assert!(served.iter().map(|(number, _)| *number).eq(0..THREADS), "out of order");
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens must grow");
    let most = most.into_inner();
    assert!(most <= POOL as usize + 2, "{most} connections");
    until("it is free", || !exists(&server, "x"));
}

/// Ends all waits of a client, also those that begin later, if the test has failed.
struct Ends<'a>(&'a LockClient);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.shutdown(SOON);
        }
    }
}

/// Every one has its verdict: the lock, "not in that time", or "called off".
#[test]
fn five_thousand_threads_each_get_an_outcome() {
    const POOL: u32 = 4;
    let server = server();
    let client = LockClient::builder(server.url()).max_size(POOL).connect_now(true);
    let client = client.build().unwrap();
    let lock = client.mutex("x").unwrap();
    let foreign = open(&server).mutex("x").unwrap().lock().unwrap();
    let (some, none, off) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (lock, some, none, off) = (&lock, &some, &none, &off);
            let body = move || {
                let outcome = match number % 3 {
                    0 => lock.try_lock_for(ms(10 + number as u64 % 700)),
                    1 => lock.lock().map(Some),
                    _ => lock.try_lock_for(Duration::MAX),
                };
                match outcome {
                    Ok(Some(guard)) => guard.release().map(|()| some),
                    Ok(None) => Ok(none),
                    Err(error) if error.is_cancelled() => Ok(off),
                    Err(error) => Err(error),
                }
                .unwrap_or_else(|error: Error| panic!("{number}: {error:?}"))
                .fetch_add(1, Ordering::SeqCst);
            };
            small(format!("waiter {number}")).spawn_scoped(scope, body).unwrap();
        }
        // A check that fails must not leave the others waiting: the scope joins them before it panics.
        let _ends = Ends(&client);
        assert!(connections(&server) <= POOL as usize + 2 + 3, "{}", connections(&server));
        let hurried = THREADS.div_ceil(3) as u32;
        within(LATEST, "the hurried ones give up", || none.load(Ordering::SeqCst) == hurried);
        // Some may have been started, and not wait yet. Each wait is called off once.
        let (rest, mut called_off) = (THREADS - hurried as usize, 0);
        within(LATEST, "all were called off", || {
            called_off += lock.cancel_waits();
            off.load(Ordering::SeqCst) == rest as u32
        });
        assert_eq!(called_off, rest);
        assert_eq!(some.load(Ordering::SeqCst), 0);
    });
    until("nothing waits in Redis", || waiting(&server, "x") == 0);
    foreign.check().unwrap();
    foreign.release().unwrap();
    drop(lock.try_lock().unwrap().expect("free"));
}

#[test]
fn two_hundred_clients_are_served_in_order() {
    const CLIENTS: usize = 200;
    let server = server();
    // What waits for a second is announced, over the worker's connection.
    let client = || LockClient::builder(server.url()).announce(false).connect_now(true).build();
    let clients: Vec<LockClient> = (0..CLIENTS).map(|_| client().unwrap()).collect();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let served = Shared::new(Vec::new());
    let inside = AtomicU32::new(0);
    let mut watch = server.connection();
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let (served, inside) = (&served, &inside);
            let body = move || {
                let guard = client.mutex("x").unwrap().lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                served.lock().unwrap().push((number, guard.fencing_token()));
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().unwrap();
            };
            small(format!("client {number}")).spawn_scoped(scope, body).unwrap();
            soon("it waits", || {
                let count = redis::cmd("ZCARD").arg("{x}:queue").query::<usize>(&mut watch);
                count.unwrap() == number + 1
            });
        }
        // Each has a connection for requests and one for messages; the first also has one for
        // renewals.
        assert!(connections(&server) <= CLIENTS * 2 + 4, "{}", connections(&server));
        let begin = Instant::now();
        guard.release().unwrap();
        within(LATEST, "all were served", || served.lock().unwrap().len() == CLIENTS);
        assert!(begin.spent() < ms(3_000) + SLACK, "{:?}", begin.spent());
    });
    let served = served.into_inner().unwrap();
    assert!(served.iter().map(|(number, _)| *number).eq(0..CLIENTS), "{served:?}");
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens must grow");
    assert!(!exists(&server, "x") && waiting(&server, "x") == 0);
    // Their subscriptions end with them.
    drop(clients);
    until("their connections are closed", || connections(&server) <= 4);
}

/// An unused name costs no memory.
#[cfg(target_os = "linux")]
#[test]
fn a_million_names_leave_nothing_in_memory() {
    in_own_process!();
    let server = server();
    let client = open(&server);
    let names = |from: usize, count: usize| {
        for number in from..from + count {
            drop(client.mutex(format!("a name of some length, number {number}")).unwrap());
        }
    };
    let work = |from: usize, count: usize| {
        for number in from..from + count {
            let lock = client.mutex_with(format!("w{number}"), renewed(20_000).linger(ms(1)));
            let lock: Mutex = lock.unwrap();
            drop(lock.lock().unwrap());
        }
    };
    names(0, 20_000);
    work(0, 1_000);
    thread::sleep(ms(100));
    let before = common::resident();
    names(20_000, 1_000_000);
    let named = common::resident().saturating_sub(before);
    assert!(named < 4 << 20, "{} KiB for a million names that nobody has", named >> 10);
    work(1_000, 2_000);
    thread::sleep(ms(100));
    let worked = common::resident().saturating_sub(before);
    assert!(worked < 8 << 20, "{} KiB for 2,000 locks that were given back", worked >> 10);
    // All at once, and then none: what they had is had by as many others. No allocator gives all
    // back.
    let many = |letter: char| -> usize {
        let names = (0..100_000).map(|number| format!("{letter}{number}"));
        let locks: Vec<Mutex> = names.map(|name| client.mutex(name).unwrap()).collect();
        let peak = common::resident();
        drop(locks);
        peak
    };
    let (first, second) = (many('m'), many('n'));
    assert!(first > before + (10 << 20), "the test measures nothing");
    let kept = second.saturating_sub(first);
    assert!(kept < 8 << 20, "{} KiB are kept of 100,000 names", kept >> 10);
}

/// Waits that come and go leave no channel, no queue and no key.
#[test]
fn many_contended_names_leave_nothing_in_redis() {
    const NAMES: usize = 100;
    let server = server();
    let (holder, client) = (open(&server), open(&server));
    for number in 0..NAMES {
        let name = format!("x{number}");
        let guard = holder.mutex_with(&name, renewed(3_000)).unwrap().lock().unwrap();
        let lock = client.mutex_with(&name, renewed(3_000)).unwrap();
        thread::scope(|scope| {
            let hurried = scope.spawn(|| lock.try_lock_for(ms(5)).is_ok_and(|g| g.is_some()));
            if number % 2 == 0 {
                hurried.join().unwrap();
                guard.release().unwrap();
            } else {
                guard.release().unwrap();
                hurried.join().unwrap();
            }
        });
    }
    until("all locks are free", || !server.keys().iter().any(|key| key.starts_with(b"x")));
    until("nothing is left", || server.keys().is_empty());
    let channels: Vec<String> = ask(&server, &["PUBSUB", "CHANNELS"]);
    assert!(channels.len() <= 2, "{channels:?}");
}

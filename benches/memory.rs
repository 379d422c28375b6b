//! What locks and waits cost in memory, as a counting allocator sees it.
//!
//! `cargo bench --package leasehold-benches --bench memory`
//!
//! | row | what |
//! | --- | --- |
//! | `held` | bytes of heap for each lock that is held, of 10,000 |
//! | `lock` | allocations of a lock and its release, without an observer and with one, and with options: it fails if they differ |
//! | `waiting` | bytes of heap for each thread that waits for a lock, of 5,000, its stack and its start apart |

#![allow(clippy::print_stdout, reason = "a bench tells people its figures")]

use std::alloc::System;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use leasehold::observe::{Acquired, Released};
use leasehold::{LockClient, LockOptions, Mutex, Observer, OwnedLease};
use leasehold_support::Server;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HELD: usize = 10_000;
const WAITING: usize = 5_000;
const LOCKS: usize = 1_000;
/// The stack of a thread that waits.
const STACK: usize = 64 * 1024;

fn main() {
    let server = Server::start().expect("a server to measure with");
    let client =
        LockClient::builder(server.unix_url()).connect_now(true).build().expect("our server");
    // What the first lock makes for all is not counted.
    drop(client.mutex("warm").and_then(|lock| lock.lock()).expect("nobody contends"));
    println!("held: {} bytes a lock", held(&client));
    let observed = LockClient::builder(server.unix_url()).observer(Counting::default());
    let observed = observed.connect_now(true).build().expect("our server");
    let allocations = [&client, &observed].map(allocations);
    println!("lock: {allocations:?} allocations without an observer and with one");
    assert_eq!(allocations[0], allocations[1], "an observer allocates");
    // Nor does an option that a plain lock does not have.
    let options = LockOptions::new().reentrant(false).max_waiters(8);
    let with_options = allocations_of(&client.mutex_with("options", options).expect("valid"));
    println!("lock: {with_options} allocations with reentrant(false) and max_waiters(8)");
    assert_eq!(allocations[0], with_options, "an option allocates");
    println!("waiting: {} bytes a thread", waiting(&client));
}

/// Counts calls and ends of holds.
#[derive(Default)]
struct Counting([AtomicU64; 2]);

impl Observer for Counting {
    fn acquired(&self, _: &Acquired<'_>) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn released(&self, _: &Released<'_>) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

/// Allocations of a lock and its release: the least of several counts, as the client's threads have work of their own.
fn allocations(client: &LockClient) -> usize {
    allocations_of(&client.mutex("counted").expect("a valid name"))
}

fn allocations_of(lock: &Mutex) -> usize {
    let count = |_| {
        let before = HEAP.stats().allocations;
        for _ in 0..LOCKS {
            drop(lock.lock().expect("nobody contends"));
        }
        (HEAP.stats().allocations - before) / LOCKS
    };
    (0..10).map(count).min().unwrap_or_default()
}

fn in_use() -> isize {
    let stats = HEAP.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}

fn held(client: &LockClient) -> isize {
    let mut leases: Vec<OwnedLease> = Vec::with_capacity(HELD);
    let before = in_use();
    for number in 0..HELD {
        let guard = client.mutex(format!("held:{number:05}")).and_then(|lock| lock.lock());
        leases.push(guard.expect("nobody contends").into_owned().expect("held once"));
    }
    let bytes = in_use() - before;
    drop(leases);
    bytes / HELD as isize
}

fn waiting(client: &LockClient) -> isize {
    let lock = client.mutex("waited-for").expect("a valid name");
    let guard = lock.lock().expect("nobody contends");
    let (started, go) = (Arc::new(Barrier::new(WAITING + 1)), Arc::new(Barrier::new(WAITING + 1)));
    let threads: Vec<_> = (0..WAITING)
        .map(|_| {
            let (lock, started, go) = (lock.clone(), Arc::clone(&started), Arc::clone(&go));
            let body = move || {
                started.wait();
                go.wait();
                drop(lock.try_lock_for(Duration::from_secs(120)));
            };
            thread::Builder::new().stack_size(STACK).spawn(body).expect("a thread")
        })
        .collect();
    started.wait();
    let before = in_use();
    go.wait();
    while guard.waiters() < WAITING {
        thread::sleep(Duration::from_millis(10));
    }
    let bytes = in_use() - before;
    lock.cancel_waits();
    drop(guard);
    threads.into_iter().for_each(|thread| thread.join().expect("it only waits"));
    bytes / WAITING as isize
}

//! A catalogue that many read and one rebuilds, under a read-write lock.
//!
//! ```sh
//! cargo run --bin catalogue
//! ```
//!
//! The catalogue is a hash in Redis. A rebuild writes its entries one by one, so a reader that came between would see
//! some of the old edition and some of the new. [`read`] and [`rebuild`] are the part to copy: readers go in together,
//! also those of different clients, and the one that finds the edition too old becomes the writer. It does so by an
//! upgrade, so that what it has read is still true when it writes, and by a downgrade it reads its own edition before the
//! next one rebuilds it.
//!
//! It uses a private server, and fails if anybody reads a mixture.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::collections::HashSet;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, RwLock, UpgradableReadGuard, WriteGuard};
use leasehold_support::Server;
use redis::{Client, Commands, Connection};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const KEY: &str = "catalogue";
const LOCK: &str = "catalogue:lock";
const ENTRIES: u64 = 50;
const EDITIONS: u64 = 20;
const CLIENTS: usize = 2;
const READERS: usize = 3;

/// The edition of the catalogue. An error if its entries are not all of one.
fn edition(redis: &mut Connection) -> Result<u64> {
    let entries: Vec<u64> = redis.hvals(KEY)?;
    let editions: HashSet<u64> = entries.into_iter().collect();
    match editions.len() {
        0 => Ok(0),
        1 => Ok(editions.into_iter().next().unwrap_or_default()),
        _ => Err(format!("a mixture of the editions {editions:?}").into()),
    }
}

/// Reads the catalogue, beside others.
fn read(lock: &RwLock, redis: &mut Connection) -> Result<u64> {
    let guard = lock.read()?;
    let edition = edition(redis)?;
    guard.release()?;
    Ok(edition)
}

/// Makes the next edition.
fn rebuild(lock: &RwLock, redis: &mut Connection) -> Result<u64> {
    let guard = lock.upgradable_read()?;
    // Readers are still in, and nobody else can become the writer.
    let next = edition(redis)? + 1;
    let guard = UpgradableReadGuard::upgrade(guard)?;
    for entry in 0..ENTRIES {
        // Each write only while the lock is held.
        guard.transaction(|pipe| {
            pipe.hset(KEY, entry, next);
        })?;
    }
    // Readers come in again, and no other writer before this one has looked at its work.
    let guard = WriteGuard::downgrade(guard)?;
    let made = edition(redis)?;
    guard.release()?;
    Ok(made)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let clients: Vec<LockClient> = (0..CLIENTS)
        .map(|_| LockClient::open(server.url()))
        .collect::<std::result::Result<_, _>>()?;
    let (reads, current) = (AtomicU64::new(0), AtomicU64::new(0));
    let open = || Client::open(server.url())?.get_connection();
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for client in &clients {
            for _ in 0..READERS {
                readers.push(scope.spawn(|| -> Result<()> {
                    let (lock, mut redis) = (client.rw_lock(LOCK)?, open()?);
                    while current.load(Ordering::Relaxed) < EDITIONS {
                        read(&lock, &mut redis)?;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }));
            }
        }
        let writer = scope.spawn(|| -> Result<()> {
            let (lock, mut redis) = (clients[0].rw_lock(LOCK)?, open()?);
            while current.load(Ordering::Relaxed) < EDITIONS {
                let made = rebuild(&lock, &mut redis)?;
                current.store(made, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        let outcome = writer.join().expect("no panic");
        // The readers would go on for ever.
        current.store(EDITIONS, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .chain([outcome])
            .collect::<Result<()>>()
    })?;
    println!(
        "{EDITIONS} editions, {} reads by {} threads of {CLIENTS} clients: none saw a mixture",
        reads.load(Ordering::Relaxed),
        CLIENTS * READERS
    );
    Ok(())
}

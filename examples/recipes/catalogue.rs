//! Read by many, rebuilt by one: readers come in together, and the first that finds the data old rebuilds it.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin catalogue
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use leasehold::{LockClient, RwLock, UpgradableReadGuard};
use leasehold_recipes::{Result, Server};

/// The catalogue: the edition that is published, and the one that is wanted. Elsewhere it would be a file or a table.
#[derive(Default)]
struct Catalogue {
    published: AtomicU32,
    wanted: AtomicU32,
    rebuilds: AtomicU32,
}

/// Reads the catalogue, and rebuilds it first if it is old. Returns the edition that was read.
fn read(lock: &RwLock, catalogue: &Catalogue) -> leasehold::Result<u32> {
    let wanted = catalogue.wanted.load(Ordering::Relaxed);
    let edition = lock.read().map(|_guard| catalogue.published.load(Ordering::Relaxed))?;
    if edition >= wanted {
        return Ok(edition);
    }
    // One reader at a time may become the writer. Others go on reading until it does.
    let guard = lock.upgradable_read()?;
    if catalogue.published.load(Ordering::Relaxed) < wanted {
        let _guard = UpgradableReadGuard::upgrade(guard)?;
        catalogue.published.store(wanted, Ordering::Relaxed);
        catalogue.rebuilds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(wanted)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let clients = [LockClient::open(server.url())?, LockClient::open(server.url())?];
    let locks = [clients[0].rw_lock("catalogue")?, clients[1].rw_lock("catalogue")?];
    let catalogue = &Catalogue::default();
    for edition in 1..=5 {
        catalogue.wanted.store(edition, Ordering::Relaxed);
        thread::scope(|scope| -> Result<()> {
            let readers = locks.iter().cycle().take(16);
            let readers: Vec<_> =
                readers.map(|lock| scope.spawn(move || read(lock, catalogue))).collect();
            readers
                .into_iter()
                .try_for_each(|it| Ok(it.join().map_err(|_| "a panic")?.map(drop)?))
        })?;
    }
    let rebuilds = catalogue.rebuilds.load(Ordering::Relaxed);
    println!("80 reads of 5 editions, {rebuilds} rebuilds");
    if rebuilds == 5 { Ok(()) } else { Err("an edition was built twice".into()) }
}

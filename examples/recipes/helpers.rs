//! Helper threads work under one hold, and stop when it is lost.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin helpers
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::thread;
use std::time::Duration;

use leasehold::{Lease, LeaseWatch, LockClient, LockOptions};
use leasehold_recipes::{Result, Server};

/// Converts pictures while the lock is held. Returns how many it converted.
fn convert(watch: &LeaseWatch) -> u32 {
    let mut converted = 0;
    while watch.is_valid() {
        thread::sleep(Duration::from_millis(2)); // one picture
        converted += 1;
    }
    converted
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let client = LockClient::open(server.url())?;
    // Renewed once a second, which is also when a loss shows.
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(3)));
    let guard = client.mutex_with("album", options)?.lock()?;
    let helpers: Vec<_> = (0..4)
        .map(|_| {
            // The guard stays on its thread. A watch of its lease goes anywhere.
            let watch = guard.lease_watch();
            thread::spawn(move || convert(&watch))
        })
        .collect();

    // Somebody takes the lock away, as an operator would from another machine.
    thread::sleep(Duration::from_millis(100));
    LockClient::open(server.url())?.mutex("album")?.force_release()?;

    for helper in helpers {
        let converted = helper.join().map_err(|_| "a helper panicked")?;
        println!("a helper converted {converted} pictures, and stopped");
    }
    // The pictures are of use only if the lock was held for all of them.
    let lost = guard.release().expect_err("the lock was taken away");
    println!("{lost}");
    if lost.is_lost() { Ok(()) } else { Err(lost.into()) }
}

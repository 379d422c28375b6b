//! A test of one's own code on the server in memory: no server, and no waiting for time to pass.
//!
//! ```sh
//! cargo test --package leasehold-recipes --bin double
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use leasehold::testing::Server;
use leasehold::{Guard, LockClient, Result};

/// The code to test: it copies items, and stops when it no longer has the lock. Returns how many it copied.
fn copy(client: &LockClient, items: u32, mut copy_one: impl FnMut(u32, &Guard)) -> Result<u32> {
    let guard = client.mutex("copy")?.lock()?;
    let mut copied = 0;
    while copied < items && guard.is_valid() {
        copy_one(copied, &guard);
        copied += 1;
    }
    guard.release()?;
    Ok(copied)
}

fn main() -> Result<()> {
    let server = Server::new();
    println!("copied {} items", copy(&server.client(), 3, |_, _| ())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn all_items_are_copied_while_the_lock_is_held() {
        let server = Server::new();
        assert_eq!(copy(&server.client(), 3, |_, _| ()).unwrap(), 3);
        assert!(server.client().mutex("copy").unwrap().try_lock().unwrap().is_some());
    }

    #[test]
    fn copying_stops_when_the_machine_slept_too_long() {
        let server = Server::new();
        let mut copied = Vec::new();
        let error = copy(&server.client(), 9, |item, _| {
            copied.push(item);
            if item == 1 {
                server.suspend(Duration::from_secs(31)); // longer than the lease
            }
        });
        assert!(error.unwrap_err().is_lost());
        assert_eq!(copied, [0, 1]);
    }
}

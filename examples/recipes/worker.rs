//! A worker that stops gracefully: SIGTERM ends its waits at once, and its present piece of work is finished.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin worker
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::thread;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_recipes::{Result, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Does one piece of work after the other, until the client is closed. Returns how many were finished.
fn work(client: &LockClient) -> leasehold::Result<u32> {
    let lock = client.mutex("orders:42")?;
    for finished in 0.. {
        match lock.with(|_guard| thread::sleep(Duration::from_millis(20))) {
            Err(error) if error.is_cancelled() && client.is_closed() => return Ok(finished),
            outcome => outcome?,
        }
    }
    Ok(u32::MAX)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let client = LockClient::open(server.url())?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| work(&client))).collect();
        // As Kubernetes or systemd would.
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            signal_hook::low_level::raise(SIGTERM)
        });
        signals.forever().next();
        // Kubernetes kills a process 30 s after SIGTERM: 25 s for the work, and 2 s to release what is left.
        let report = client.close(Duration::from_secs(25), Duration::from_secs(2));
        println!("{report}");
        if !report.taken().is_empty() {
            return Err("a piece of work was not finished".into());
        }
        for worker in workers {
            let finished = worker.join().map_err(|_| "a worker panicked")??;
            println!("a worker finished {finished} pieces of work");
        }
        Ok(())
    })
}

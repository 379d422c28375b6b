//! A job that runs once a night on a fleet of machines, also if the first of them fails.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin nightly
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, Period, RunOutcome};
use leasehold_recipes::{Result, Server};

const HOUR: Duration = Duration::from_secs(3_600);

/// What a machine does when its cron thinks that it is time. Returns whether this machine did the job.
fn nightly(client: &LockClient, tries: &AtomicU32) -> leasehold::Result<bool> {
    // Days that begin at 02:00 UTC.
    let night = Period::every(24 * HOUR).offset(2 * HOUR);
    let report = |_guard: &leasehold::Guard| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => Err("the disk is full"),
        _ => Ok(()),
    };
    match client.once("nightly-report", night)?.run(report)? {
        RunOutcome::Ran(()) => return Ok(true),
        RunOutcome::Failed(error) => println!("the next call tries it again: {error}"),
        other => println!("{other}"),
    }
    Ok(false)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let url = server.url();
    let tries = &AtomicU32::new(0);
    let fleet = (0..6).map(|_| LockClient::open(&url)).collect::<leasehold::Result<Vec<_>>>()?;
    let mut succeeded = 0;
    thread::scope(|scope| -> Result<()> {
        let calls: Vec<_> =
            fleet.iter().map(|client| scope.spawn(move || nightly(client, tries))).collect();
        for call in calls {
            succeeded += u32::from(call.join().map_err(|_| "a machine panicked")??);
        }
        Ok(())
    })?;
    let last = fleet[0].once("nightly-report", Period::every(24 * HOUR).offset(2 * HOUR))?;
    println!(
        "{} runs began; the last: {}",
        tries.load(Ordering::Relaxed),
        last.last_run()?.ok_or("?")?
    );
    if succeeded == 1 { Ok(()) } else { Err(format!("{succeeded} machines did it").into()) }
}

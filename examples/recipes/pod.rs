//! A process that stops as Kubernetes does it: SIGTERM, a grace, and then SIGKILL. After the first the lock is free at once.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin pod
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::process::Command;
use std::thread;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_recipes::{Child, Result, Server, child};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

const SOON: Duration = Duration::from_secs(60);

/// Does one piece of work after the other, until the client is closed.
fn work(client: &LockClient) -> leasehold::Result<()> {
    let lock = client.mutex("orders")?;
    loop {
        match lock.with(|_guard| thread::sleep(Duration::from_millis(50))) {
            Err(error) if error.is_cancelled() && client.is_closed() => return Ok(()),
            outcome => outcome?,
        }
        child::tell("finished a piece of work");
    }
}

/// The process in the pod.
fn serve(url: &str) -> Result<()> {
    // From here on SIGTERM ends nothing by itself.
    let mut signals = Signals::new([SIGTERM])?;
    let client = LockClient::open(url)?;
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&client));
        signals.forever().next();
        // The grace period of a pod is 30 s by default, and a preStop hook of 5 s is part of it: 20 s are for the work,
        // and 2 s to release what is left.
        let report = client.close(Duration::from_secs(20), Duration::from_secs(2));
        worker.join().map_err(|_| "the worker panicked")??;
        if report.taken().is_empty() { Ok(()) } else { Err(report.to_string().into()) }
    })
}

fn start(server: &Server) -> Result<Child> {
    let mut pod = Child::role("pod").env("RECIPE_URL", server.url()).start()?;
    pod.expect_line("finished", SOON);
    Ok(pod)
}

fn main() -> Result<()> {
    if child::role().is_some() {
        return serve(&std::env::var("RECIPE_URL")?);
    }
    let server = Server::start()?;
    let lock = LockClient::open(server.url())?.mutex("orders")?;
    let mut pod = start(&server)?;
    Command::new("kill").arg(pod.pid().to_string()).status()?;
    let status = pod.wait();
    let is_free = lock.try_lock()?.is_some();
    println!("SIGTERM: {status}, the lock is free: {is_free}");

    // A pod that is killed in the midst of a piece of work keeps the lock until its lease ends.
    let mut pod = start(&server)?;
    thread::sleep(Duration::from_millis(25));
    pod.kill9();
    println!("SIGKILL: {}", lock.inspect()?.to_string().lines().next().unwrap_or_default());
    if status.success() && is_free { Ok(()) } else { Err("it did not stop as it should".into()) }
}

//! A lock in an asynchronous program: a thread that may block waits for it, and no longer than the caller does.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin blocking
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{LockClient, Mutex, OwnedLease};
use leasehold_recipes::{Result, Server};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

const WAIT: Duration = Duration::from_secs(10);

/// An asynchronous section. A thread that may block releases it, also when its future is dropped half-way.
struct Section(Option<OwnedLease>);

impl Section {
    /// `None`: somebody else has the lock. If the caller gives up, the lease that comes later is dropped, and so released.
    async fn enter(lock: Mutex, wait: Duration) -> Result<Option<Section>> {
        let lease = spawn_blocking(move || lock.try_lock_owned_for(wait)).await??;
        Ok(lease.map(|lease| Section(Some(lease))))
    }

    /// An error if the lock was lost. Without I/O.
    fn check(&self) -> Result<()> {
        let loss = self.0.as_ref().and_then(OwnedLease::loss);
        loss.map_or(Ok(()), |loss| Err(loss.to_string().into()))
    }

    async fn leave(mut self) -> Result<()> {
        let Some(lease) = self.0.take() else { return Ok(()) };
        Ok(spawn_blocking(move || lease.release()).await??)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let lease = self.0.take();
        drop(spawn_blocking(move || drop(lease)));
    }
}

/// Writes a report under the lock, or returns false if the lock is not free in time.
async fn report(client: &LockClient, wait: Duration, pages: &AtomicU32) -> Result<bool> {
    let Some(section) = Section::enter(client.mutex("report")?, wait).await? else {
        return Ok(false);
    };
    for _page in 0..3 {
        section.check()?;
        pages.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(100)).await;
    }
    section.leave().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::start()?;
    let url = server.url();
    let client = spawn_blocking(move || LockClient::open(url)).await??;
    let pages = &AtomicU32::new(0);
    let brief = Duration::from_millis(100);

    let other = Section::enter(client.mutex("report")?, WAIT).await?.ok_or("it is free")?;
    println!("while another task has the lock: {}", report(&client, brief * 10, pages).await?);
    let given_up = timeout(brief, report(&client, WAIT, pages)).await.is_err();
    other.leave().await?;
    // The lease that comes for the caller that gave up goes back, and nothing is written.
    let next = Section::enter(client.mutex("report")?, WAIT).await?.ok_or("it stayed locked")?;
    next.leave().await?;
    let written = pages.load(Ordering::Relaxed);
    println!("the caller gave up while it waited: {given_up}, pages: {written}");

    let given_up = given_up && timeout(brief * 2, report(&client, WAIT, pages)).await.is_err();
    println!("the caller gave up half-way: {given_up}, pages: {}", pages.load(Ordering::Relaxed));
    // The section of the caller that gave up has ended, too.
    let done = report(&client, WAIT, pages).await?;
    println!("a report: {done}");
    if given_up && written == 0 && done { Ok(()) } else { Err("not as it should be".into()) }
}

//! A lock inside an asynchronous program: it is waited for on a thread where blocking is allowed.
//!
//! ```sh
//! cargo run --bin blocking
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use leasehold::LockClient;
use leasehold_recipes::{Result, Server};
use tokio::task::{spawn_blocking, yield_now};

/// A whole section on the blocking thread.
async fn count(client: LockClient) -> Result<u64> {
    let section = move || client.mutex("counter")?.with(|guard| guard.fencing_token().get());
    Ok(spawn_blocking(section).await??)
}

/// An asynchronous section. Its hold belongs to no thread, so it goes from one to the other as the task does.
async fn report(client: LockClient) -> Result<u64> {
    let lease = spawn_blocking(move || client.mutex("report")?.lock_owned()).await??;
    for page in 1..=3 {
        // A lost lock shows here, without I/O.
        lease.loss().map_or(Ok(()), |loss| Err(loss.to_string()))?;
        println!("page {page}");
        yield_now().await;
    }
    let token = lease.fencing_token().get();
    // To release takes a command, and to drop does too.
    spawn_blocking(move || lease.release()).await??;
    Ok(token)
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::start()?;
    let url = server.url();
    let client = spawn_blocking(move || LockClient::open(url)).await??;
    let sections: Vec<_> = (0..8).map(|_| tokio::spawn(count(client.clone()))).collect();
    let mut tokens = Vec::new();
    for section in sections {
        tokens.push(section.await??);
    }
    tokens.sort_unstable();
    tokens.dedup();
    println!("8 sections one after the other, with tokens {tokens:?}");
    println!("a report under token {}", report(client).await?);
    if tokens.len() == 8 { Ok(()) } else { Err("two sections had one token".into()) }
}

//! A request handler with a deadline. It tells a lock that is taken (409), a Redis that is away (503), and a lock that was
//! lost (500) apart.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin handler     # against a server
//! cargo test --package leasehold-recipes --bin handler    # the same without a server, and without waiting
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use leasehold::{Guard, LockClient};
use leasehold_recipes::{Result, Server};

/// Handles a request for an order: the status and the text of the response.
fn handle(client: &LockClient, order: u64, work: impl FnOnce(&Guard)) -> (u16, String) {
    match section(client, order, work) {
        Ok(response) => response,
        // Another process may have worked at the same time: somebody has to look.
        Err(error) if error.is_lost() => (500, error.to_string()),
        // Redis is away, slow or busy. The same request may succeed later.
        Err(error) if error.is_transient() => (503, error.to_string()),
        Err(error) => (500, error.to_string()),
    }
}

fn section(
    client: &LockClient,
    order: u64,
    work: impl FnOnce(&Guard),
) -> leasehold::Result<(u16, String)> {
    let lock = client.mutex(format!("orders:{order}"))?;
    // The deadline of the request, less the time that the work takes.
    let Some(guard) = lock.try_lock_for(Duration::from_secs(1))? else {
        let holder = lock.last_blocker().map_or("another request".to_owned(), |it| it.to_string());
        return Ok((409, format!("{holder} has it")));
    };
    work(&guard);
    // The response says that all went well only if the lock was held throughout.
    guard.release()?;
    Ok((200, "done".to_owned()))
}

fn main() -> Result<()> {
    let server = Server::start()?;
    // A server that does not reply costs a request no more than this.
    let client = LockClient::builder(server.url())
        .command_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_millis(500))
        .build()?;
    let other = LockClient::builder(server.url()).label("billing").build()?;
    let mut responses = vec![handle(&client, 42, |_guard| ())];
    let taken = other.mutex("orders:42")?.lock()?;
    responses.push(handle(&client, 42, |_guard| ()));
    taken.release()?;
    responses.push(handle(&client, 42, |_guard| {
        _ = other.mutex("orders:42").and_then(|lock| lock.force_release());
    }));
    server.kill();
    responses.push(handle(&client, 42, |_guard| ()));
    for (status, text) in &responses {
        println!("{status} {text}");
    }
    let statuses: Vec<u16> = responses.iter().map(|(status, _)| *status).collect();
    if statuses == [200, 409, 500, 503] { Ok(()) } else { Err("other statuses".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::testing::Server;

    #[test]
    fn each_failure_has_a_status_of_its_own() {
        let server = Server::new();
        let (client, other) = (server.client(), server.client());
        assert_eq!(handle(&client, 42, |_guard| ()).0, 200);
        let taken = other.mutex("orders:42").unwrap().lock().unwrap();
        assert_eq!(handle(&client, 42, |_guard| ()).0, 409);
        taken.release().unwrap();
        // The machine sleeps for longer than the lease.
        assert_eq!(handle(&client, 42, |_guard| server.suspend(Duration::from_secs(31))).0, 500);
        server.link(&client).cut();
        assert_eq!(handle(&client, 42, |_guard| ()).0, 503);
    }
}

//! One of three schedulers leads, the others stand by, and a gateway always knows where the leader is.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin leader
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, Observed};
use leasehold_recipes::{Result, Server};

/// Leads once, until it is told to step down.
fn scheduler(url: &str, address: &str, stop: &Receiver<()>) -> Result<u64> {
    let election = LockClient::open(url)?.election("scheduler")?;
    let leadership = election.campaign()?;
    leadership.proclaim(address)?;
    // Elsewhere: until SIGTERM comes.
    while leadership.is_valid() && stop.recv_timeout(Duration::from_millis(10)).is_err() {
        // One step of a leader's work, with the term in each of its writes.
    }
    let term = leadership.term().get();
    // The next one leads at once, and not when the lease is over.
    leadership.resign()?;
    Ok(term)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let (client, url) = (LockClient::open(server.url())?, &server.url());
    let mut observation = client.election("scheduler")?.observe()?;
    let addresses = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];
    let (stops, stopped): (Vec<_>, Vec<_>) = addresses.iter().map(|_| channel()).unzip();
    let mut routed = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let start = |(address, stop)| scope.spawn(move || scheduler(url, address, &stop));
        let running: Vec<_> = addresses.into_iter().zip(stopped).map(start).collect();
        while routed.len() < addresses.len() {
            if let Observed::Leader(leader) = observation.next()?
                && let Some(place) =
                    addresses.iter().position(|it| leader.value() == Some(it.as_bytes()))
            {
                println!("{leader}");
                routed.push(leader.term().map_or(0, |term| term.get()));
                stops[place].send(())?;
            }
        }
        let led = running.into_iter().map(|it| it.join().map_err(|_| "a scheduler panicked")?);
        let mut led = led.collect::<Result<Vec<u64>>>()?;
        led.sort_unstable();
        if led == routed { Ok(()) } else { Err("the gateway missed a term, or saw none".into()) }
    })
}

//! How long nobody leads: next to nothing after the leader resigns, and the rest of its lease after it is killed.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin takeover
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Election, Lease, LockClient, LockOptions};
use leasehold_recipes::{Child, Result, Server, child};

/// An election whose dead leader is replaced after 3 s at most. A server that is silent for less than 2 s costs no lead.
fn election(url: &str) -> Result<Election> {
    // A lease of ten command time-outs or more can be renewed again where a reply was lost.
    let client = LockClient::builder(url).command_timeout(Duration::from_millis(300)).build()?;
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(3)));
    Ok(client.election_with("scheduler", options)?)
}

/// A process that leads until its parent says that it should resign.
fn lead(url: &str) -> Result<()> {
    let leadership = election(url)?.campaign()?;
    child::tell(&format!("term {}", leadership.term()));
    child::hear();
    Ok(leadership.resign()?)
}

/// Ends a leader in this way. Returns how long it takes until the next one leads.
fn take_over(url: &str, end: impl FnOnce(&mut Child)) -> Result<Duration> {
    let mut leader = Child::role("leader").env("RECIPE_URL", url).start()?;
    let term: u64 = leader.expect_line("term ", Duration::from_secs(60)).parse()?;
    let (election, observer) = (election(url)?, election(url)?);
    thread::scope(|scope| {
        let next =
            scope.spawn(|| election.campaign().map(|next| (next.term().get(), Instant::now())));
        while observer.candidates()?.is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
        let begin = Instant::now();
        end(&mut leader);
        let (next_term, led) = next.join().map_err(|_| "the candidate panicked")??;
        if next_term > term { Ok(led - begin) } else { Err("the terms do not grow".into()) }
    })
}

fn main() -> Result<()> {
    if child::role().is_some() {
        return lead(&std::env::var("RECIPE_URL")?);
    }
    let server = Server::start()?;
    let resigned = take_over(&server.url(), |leader| leader.say("resign"))?;
    println!("the leader resigned: the next one led after {resigned:.1?}");
    let killed = take_over(&server.url(), Child::kill9)?;
    println!("the leader was killed: the next one led after {killed:.1?}");
    if resigned < killed { Ok(()) } else { Err("the lease was waited for".into()) }
}

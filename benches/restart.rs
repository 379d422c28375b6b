//! What a server costs its clients that closes all connections, and may come back without its memory.
//!
//! `cargo bench --package leasehold-benches --bench restart [-- overlap | reconnect | kill]`
//!
//! | table | what |
//! | --- | --- |
//! | `overlap` | for how long two processes held one lock after the server was killed and came back empty, in ms, of three rounds each: by how the holder could notice, and by how long the server was away |
//! | `reconnect` | the commands of a client whose connections were all closed, and the time until it had asked about its last lease, by the number of its leases |
//! | `kill` | the same of 50 clients in one process, with 20 leases each; it fails if one is lost or asked about twice |

#![allow(clippy::print_stdout, reason = "a bench tells people its figures")]

use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold::{Lease, LockClient, LockOptions, OwnedLease};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server, until};

const URL: &str = "LEASEHOLD_URL";
const HOLDER: &str = "LEASEHOLD_HOLDER";
const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// From the grant to the end of the server. The first renewal comes seven seconds later.
const AGE: Duration = Duration::from_secs(3);
/// Clients look through their leases once in a second at most, so this is long enough for all that they ask.
const QUIET: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

fn main() {
    if role().is_some() {
        return hold();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    if is_wanted("overlap") {
        println!("overlap: the holder | away | for how long two held it, ms");
        for holder in ["listens", "asks", "is quiet"] {
            for away in [0, 1, 5] {
                let rounds = [(); ROUNDS].map(|()| overlap(holder, SECOND * away).as_millis());
                println!("{holder} | {away} s | {rounds:?}");
            }
        }
    }
    if is_wanted("reconnect") {
        println!("reconnect: leases | scripts | other commands | connections | ms");
        for leases in [0, 1, 1_000, 100_000] {
            reconnect(1, leases);
        }
    }
    if is_wanted("kill") {
        println!("kill: leases | scripts | other commands | connections | ms");
        reconnect(50, 20);
    }
}

/// A process that holds the lock, and tells when it finds that it does not.
fn hold() {
    let variable = |name| std::env::var(name).expect("the parent sets it");
    let (url, holder) = (variable(URL), variable(HOLDER));
    let builder = LockClient::builder(url);
    let client = match holder.as_str() {
        // Such a client listens from its first lock on.
        "listens" => builder.on_release_request(|_| {}),
        _ => builder,
    };
    let client = client.build().expect("our server");
    let guard = client.mutex("x").and_then(|lock| lock.lock()).expect("it is free");
    tell("held");
    let another = client.mutex("another").expect("a valid name");
    let mut asked = Instant::now();
    while guard.is_valid() {
        sleep(MILLI);
        if holder == "asks" && asked.elapsed() > SECOND / 10 {
            // It fails while the server is away.
            _ = another.try_lock();
            asked = Instant::now();
        }
    }
    tell("lost");
    _ = hear();
}

/// For how long two processes hold the lock, of which one had it before the server lost its memory.
fn overlap(holder: &str, away: Duration) -> Duration {
    let server = Server::start().expect("a server to measure with");
    let mut child = Child::role("holder")
        .env(URL, server.url())
        .env(HOLDER, holder)
        .start()
        .expect("this program");
    child.expect_line("held", SECOND * 60);
    sleep(AGE);
    server.kill();
    sleep(away);
    server.restart();
    let client = LockClient::open(server.url()).expect("our server");
    let guard = client.mutex("x").and_then(|lock| lock.lock()).expect("the server is empty");
    let begin = Instant::now();
    child.expect_line("lost", SECOND * 60);
    let both = begin.elapsed();
    drop(guard);
    both
}

/// Closes all connections of so many clients, with so many leases each, and counts what they do then.
fn reconnect(clients: usize, leases: usize) {
    let server = Server::start().expect("a server to measure with");
    let options = LockOptions::new().lease(Lease::fixed(SECOND * 3_600));
    let held: Vec<(LockClient, Vec<OwnedLease>)> = (0..clients)
        .map(|client| {
            let builder = LockClient::builder(server.url()).on_release_request(|_| {});
            let connected = builder.announce(false).build().expect("our server");
            let hold = |number| {
                let name = format!("{client}:{number}");
                let lock = connected.mutex_with(name, options).expect("a valid name");
                lock.lock().expect("it is free").into_owned().expect("held once")
            };
            let held = (0..leases).map(hold).collect();
            // It begins to listen with its first lock, and the server knows the script that asks.
            let first = connected.mutex_with(client.to_string(), options);
            let first = first.and_then(|lock| lock.lock()).expect("it is free");
            first.extend(SECOND * 3_600).and_then(|()| first.release()).expect("it is ours");
            (connected, held)
        })
        .collect();
    until("all listen", || channels(&server) == clients);
    sleep(SECOND * 2);
    let (all, is_all) = (clients * leases, |done: u64| done >= (clients * leases) as u64);
    let before = server.commands();
    let begin = Instant::now();
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "USER", "default", "SKIPME", "yes"]);
    kill.exec(&mut server.connection()).expect("a reply");
    let asked = || server.commands().since(&before).client_commands(&[]);
    until("all are asked about", || is_all(asked()));
    let took = begin.elapsed();
    until("all listen again", || channels(&server) == clients);
    sleep(QUIET);
    let since = server.commands().since(&before);
    let scripts = since.client_commands(&[]);
    // What looked here, and what scripts call.
    let own = |name: &str| {
        ["info", "client|kill", "pubsub|numpat", "pubsub|channels"].contains(&name)
            || ["eval", "evalsha"].contains(&name)
    };
    let others: Vec<_> = since.calls.iter().filter(|(name, _)| !own(name)).collect();
    let now = connections(&server);
    println!("{clients} × {leases} | {scripts} | {others:?} | {now} | {}", took.as_millis());
    let lost = held.iter().flat_map(|(_, held)| held).filter(|lease| !lease.is_valid()).count();
    assert_eq!((lost, scripts), (0, all as u64), "lost, and asked about");
}

/// How many channels have a subscriber.
fn channels(server: &Server) -> usize {
    let mut list = redis::cmd("PUBSUB");
    list.arg(&["CHANNELS", "leasehold:*"]);
    list.query::<Vec<String>>(&mut server.connection()).expect("a reply").len()
}

/// How many connections the clients have.
fn connections(server: &Server) -> usize {
    let clients = redis::cmd("CLIENT").arg("LIST").query::<String>(&mut server.connection());
    let clients = clients.expect("a reply");
    clients.lines().filter(|line| line.contains("name=leasehold")).count()
}

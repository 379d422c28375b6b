//! How clients that want one lock of a quorum again and again share it.

#[path = "../../it/common/mod.rs"]
mod common;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::ms;
use common::several::{direct, open, servers};
use leasehold::QuorumClient;

const HOLD: Duration = ms(20);
const RUN: Duration = Duration::from_secs(60);
/// As fair as this: 1 is an equal share for each, and one n-th is all for one of n.
const FAIR: f64 = 0.9;

/// How often a client had the lock, and its longest wait.
struct Share {
    grants: u32,
    longest: Duration,
}

/// Takes the lock again as soon as it has released it, until the time is over.
fn contend(
    client: &QuorumClient,
    hold: Duration,
    is_over: &AtomicBool,
    grants: &AtomicU32,
) -> Share {
    let lock = client.mutex("shared").expect("a lock");
    let mut share = Share { grants: 0, longest: Duration::ZERO };
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let guard = lock.lock().expect("a wait without trouble");
        share.longest = share.longest.max(begin.elapsed());
        share.grants += 1;
        grants.fetch_add(1, Ordering::Relaxed);
        thread::sleep(hold);
        guard.release().expect("still ours");
    }
    share
}

/// Jain's index.
fn jain(shares: &[Share]) -> f64 {
    let of = |share: &Share| f64::from(share.grants);
    let sum: f64 = shares.iter().map(of).sum();
    let squares: f64 = shares.iter().map(|share| of(share).powi(2)).sum();
    sum * sum / (squares * shares.len() as f64)
}

/// Lets so many clients contend, and ends once that is so.
fn shares(
    clients: usize,
    servers_count: usize,
    hold: Duration,
    ends: impl Fn(u32) -> bool,
) -> Vec<Share> {
    let servers = servers(servers_count);
    let clients: Vec<_> = (0..clients).map(|_| open(direct(&servers))).collect();
    let (is_over, grants) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let begin = |client| {
            let (is_over, grants) = (&is_over, &grants);
            scope.spawn(move || contend(client, hold, is_over, grants))
        };
        let threads: Vec<_> = clients.iter().map(begin).collect();
        while !ends(grants.load(Ordering::Relaxed)) {
            thread::sleep(ms(5));
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Before a process left the lock to those that listen, it had nearly all of it.
#[test]
fn no_client_of_a_quorum_has_all_the_turns() {
    const CLIENTS: usize = 4;
    let shares = shares(CLIENTS, 3, ms(5), |grants| grants >= 400);
    let grants: Vec<u32> = shares.iter().map(|share| share.grants).collect();
    assert!(grants.iter().all(|&count| count >= 20), "an equal share is 100: {grants:?}");
}

/// The long round: prints the index and the longest wait of each row.
#[test]
#[ignore = "takes six minutes"]
fn large_clients_share_a_lock_of_a_quorum() {
    let mut unfair = Vec::new();
    for servers in [3, 5] {
        for clients in [2, 4, 8] {
            let begin = Instant::now();
            let shares = shares(clients, servers, HOLD, |_| begin.elapsed() >= RUN);
            let index = jain(&shares);
            let grants: Vec<u32> = shares.iter().map(|share| share.grants).collect();
            let longest = shares.iter().map(|share| share.longest).max().unwrap_or_default();
            let row = format!(
                "{clients} clients, {servers} servers: Jain {index:.3}, longest wait {longest:.1?}, \
                 grants {grants:?}"
            );
            writeln!(std::io::stderr(), "{row}").expect("stderr");
            if index < FAIR {
                unfair.push(row);
            }
        }
    }
    assert!(unfair.is_empty(), "{unfair:#?}");
}

//! Random faults on several servers, any number of them at a time, while clients contend: no two
//! holders at once, and tokens in the order of the holds.

#[path = "../../it/common/mod.rs"]
mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{fixed, ms, until};
use leasehold::{Lease, LockOptions, QuorumClient};
use leasehold_support::{Proxy, Server};

const SERVERS: usize = 5;
const CLIENTS: usize = 4;
const LEASE: Duration = ms(400);
const LONGEST: Duration = ms(1_000);

/// One hold, as its holder saw it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Instant,
    to: Instant,
    token: u64,
}

/// The faults of the servers, by kind.
#[derive(Debug, Default)]
struct Faults([AtomicU64; 6]);

impl Faults {
    fn inject(&self, kind: usize, server: &Server, proxy: &Proxy, span: Duration) {
        self.0[kind].fetch_add(1, Ordering::SeqCst);
        match kind {
            0 => {
                server.kill();
                thread::sleep(span);
                server.restart();
            }
            1 => server.restart(),
            2 => {
                server.pause();
                thread::sleep(span);
                server.resume();
            }
            3 => {
                proxy.black_hole();
                thread::sleep(span);
                proxy.heal();
            }
            4 => {
                proxy.refuse();
                proxy.cut();
                thread::sleep(span);
                proxy.heal();
            }
            _ => proxy.cut(),
        }
    }
}

fn contend(client: &QuorumClient, number: usize, over: &AtomicBool, holds: &Mutex<Vec<Hold>>) {
    // One of them holds on past the end of its lease, now and then.
    let lease = if number == 0 { Lease::fixed(LEASE) } else { Lease::renewed(LEASE) };
    let lock = client.mutex_with("x", LockOptions::new().lease(lease)).unwrap();
    while !over.load(Ordering::SeqCst) {
        let Ok(Some(guard)) = lock.try_lock_for(ms(500)) else { continue };
        let begin = Instant::now();
        let end = begin + guard.remaining();
        let token = guard.fencing_token().get();
        thread::sleep(ms(fastrand::u64(0..8)));
        if number == 0 && fastrand::u32(0..50) == 0 {
            thread::sleep(LEASE * 2);
        }
        // A renewed lease lasts at least as long as it did at first, unless it was lost.
        let to = Instant::now().min(end);
        holds.lock().unwrap().push(Hold { from: begin, to, token });
        drop(guard);
    }
}

#[test]
fn no_two_holds_overlap_and_tokens_grow_under_random_faults() {
    let seconds = std::env::var("LEASEHOLD_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(8));
    let servers: Vec<_> = (0..SERVERS).map(|_| Server::start().unwrap()).collect();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server).unwrap()).collect();
    let build = || {
        QuorumClient::builder(proxies.iter().map(Proxy::url))
            .node_timeout(ms(60))
            .max_lease(LONGEST)
            .build()
            .unwrap()
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| build()).collect();
    let first = clients[0].mutex_with("warm", fixed(300)).unwrap();
    until("all servers count", || first.try_lock().is_ok());
    let (over, holds, faults) = (AtomicBool::new(false), Mutex::new(Vec::new()), Faults::default());
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let (over, holds) = (&over, &holds);
            scope.spawn(move || contend(client, number, over, holds));
        }
        let (over, faults) = (&over, &faults);
        for (server, proxy) in servers.iter().zip(&proxies) {
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    // Long enough between them for a restarted server to count again, mostly.
                    thread::sleep(ms(fastrand::u64(500..4_000)));
                    let kind = fastrand::usize(0..6);
                    faults.inject(kind, server, proxy, ms(fastrand::u64(20..700)));
                }
            });
        }
        thread::sleep(seconds);
        over.store(true, Ordering::SeqCst);
    });
    let mut holds = holds.into_inner().unwrap();
    holds.sort_by_key(|hold| hold.from);
    let overlaps = holds.windows(2).filter(|pair| pair[0].to > pair[1].from).count();
    let inversions = holds.windows(2).filter(|pair| pair[0].token >= pair[1].token).count();
    let summary =
        format!("{} holds, {faults:?}, {overlaps} overlaps, {inversions} inversions", holds.len());
    assert!(overlaps == 0 && inversions == 0, "{summary}");
    assert!(holds.len() > 100, "{summary}");
    assert!(
        faults.0.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>() > 5,
        "{summary}"
    );
    if seconds > ms(8_000) {
        use std::io::Write;
        writeln!(std::io::stdout(), "{summary}").unwrap();
    }
    until("nothing is left", || servers.iter().all(|server| !common::exists(server, "x")));
}

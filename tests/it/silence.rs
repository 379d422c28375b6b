//! Connections that died while they were idle, and nobody was told.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{AtLast, SOON, ask, behind_proxy, exists, ms, open_at, patient, until};
use leasehold::{LockClient, redis};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

/// What the system has to do for each open connection to a port: the kind of its timer, and when it ends.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<(String, u64)> {
    let remote = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&remote) && row[3] == "01")
        .map(|row| {
            let (kind, ticks) = row[5].split_once(':').unwrap();
            (kind.to_owned(), u64::from_str_radix(ticks, 16).unwrap())
        })
        .collect()
}

#[cfg(target_os = "linux")]
#[test]
fn every_connection_is_kept_alive_while_idle() {
    // Hundredths of a second, in which the system counts here.
    const MINUTE: u64 = 60 * 100;
    let server = Server::builder().tcp().start().unwrap();
    let client = open_at(server.tcp_url());
    let guard = client.mutex_with("x", crate::common::renewed(3_000)).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let lock = client.mutex("y").unwrap();
        let other = crate::common::open(&server);
        let held = other.mutex("y").unwrap().lock().unwrap();
        let waiting = scope.spawn(move || lock.lock().unwrap().release().unwrap());
        until("it listens", || {
            ask::<String>(&server, &["CLIENT", "LIST", "TYPE", "PUBSUB"]).lines().count() > 0
        });
        held.release().unwrap();
        waiting.join().unwrap();
    });
    // One of the pool, the one for renewals, and the one that listens. Between two messages all are idle.
    let port = server.addr().port();
    until("all are kept alive", || {
        let timers = timers(port);
        timers.len() >= 3
            && timers.iter().all(|(kind, ticks)| kind == "02" && (1..=MINUTE).contains(ticks))
    });
    // Whether it still has its lease is not what this is about.
    drop(guard);
}

/// How long a silent connection is waited for: longer than a machine stands still.
const TIMEOUT: Duration = ms(5_000);

fn timed(proxy: &Proxy) -> LockClient {
    patient(LockClient::builder(proxy.url())).command_timeout(TIMEOUT).build().unwrap()
}

/// How many connections a client of these tests has.
const IDLE: u32 = 4;

/// A client with a full pool of idle connections, each of which was used.
///
/// A connection in the making could count as one that replied later than the test's first request.
fn with_idle_connections(server: &Server, proxy: &Proxy) -> LockClient {
    let client = patient(LockClient::builder(proxy.url())).max_size(IDLE).command_timeout(TIMEOUT);
    let client = client.build().unwrap();
    proxy.delay(ms(20));
    let over = AtomicBool::new(false);
    let mut line = server.connection();
    let mut used = || -> usize {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut line).unwrap();
        list.matches(" cmd=evalsha ").count()
    };
    thread::scope(|scope| {
        let _over = AtLast(&over);
        for number in 0..6 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    lock.lock().unwrap().release().unwrap();
                }
            });
        }
        until("each was used", || used() == IDLE as usize);
    });
    proxy.heal();
    client
}

#[test]
fn dead_idle_connections_cost_one_timeout_in_all() {
    let (server, proxy) = behind_proxy();
    let client = with_idle_connections(&server, &proxy);
    proxy.forget();
    let lock = client.mutex("x").unwrap();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    let begin = Instant::now();
    for number in 0..8 {
        let other = client.mutex(format!("y{number}")).unwrap();
        other.try_lock().unwrap().expect("its own").release().unwrap();
    }
    assert!(begin.spent() < TIMEOUT / 2, "{:?}", begin.spent());
    assert!(!exists(&server, "x"));
}

#[test]
fn release_on_a_dead_idle_connection_succeeds() {
    let (server, proxy) = behind_proxy();
    let client = with_idle_connections(&server, &proxy);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    proxy.forget();
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn connection_that_replied_since_stays_in_use() {
    let (server, proxy) = behind_proxy();
    let mut line = server.connection();
    let mut ids = || -> Vec<String> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut line).unwrap();
        list.lines().filter_map(|it| it.split(' ').next()).map(str::to_owned).collect()
    };
    let client = timed(&proxy);
    let lock = client.mutex("x").unwrap();
    let works = || lock.try_lock().unwrap().expect("its own").release().unwrap();
    works();
    let before = ids();
    let stuck = proxy.add(Fault::request("stuck", Action::Hold));
    thread::scope(|scope| {
        let held_up = client.mutex("stuck").unwrap();
        let other = scope.spawn(move || held_up.try_lock().map(drop));
        assert!(stuck.wait_fired(SOON));
        works();
        let another: Vec<_> = ids().into_iter().filter(|id| !before.contains(id)).collect();
        assert!(!another.is_empty(), "it works on another connection");
        assert!(other.join().unwrap().unwrap_err().is_unknown_outcome());
        for _ in 0..4 {
            works();
        }
        // A pool that a busy machine held up has made more than it needed.
        let left = ids();
        let is_left = another.iter().any(|id| left.contains(id));
        assert!(is_left, "an outdated one would have been closed");
    });
}

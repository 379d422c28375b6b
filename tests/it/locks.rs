//! The list of locks in use, and what its index costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::common::log::texts;
use crate::common::queue::waiting;
use crate::common::{SOON, ask, behind_proxy, heavy, ms, open, patient, server, until, within};
use leasehold::{Inspection, Lease, LockClient, LockOptions, Locks, OwnedLease};
use leasehold_support::fault::Operation;
use leasehold_support::fault::network::SILENCE;
use leasehold_support::{Action, Cluster, CommandStats, Direction, Fault, Group, Proxy, Server};

/// An owner of Redisson.
const SERVICE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";

fn listed(locks: Locks) -> Vec<String> {
    let shown = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let mut all: Vec<String> = locks
        .map(|lock| lock.map(|lock| format!("{} {}", lock.kind(), shown(lock.name()))).unwrap())
        .collect();
    all.sort();
    all
}

fn entries(server: &Server) -> usize {
    ask(server, &["ZCARD", "leasehold:index"])
}

/// How many announcements there were: each drops entries that are too old, and those of a clock that was set back.
fn announcements(ran: &CommandStats) -> u64 {
    ran.calls("zremrangebyscore") / 2
}

/// Locks with these names, held.
fn hold(client: &LockClient, names: impl Iterator<Item = String>) -> Vec<OwnedLease> {
    let options = LockOptions::new().lease(Lease::renewed(SOON * 60));
    let lock = |name| client.mutex_with(name, options).unwrap().lock().unwrap();
    names.map(|name| lock(name).into_owned().unwrap()).collect()
}

/// The processor time of the server, in seconds.
fn processor(server: &Server) -> f64 {
    let info: String = ask(server, &["INFO", "cpu"]);
    let value = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    value("used_cpu_user:") + value("used_cpu_sys:")
}

/// 1,000 locks and 200 waiters are listed in two round trips beside 100,000 other keys, and the index costs a
/// few commands a minute.
#[test]
#[allow(clippy::print_stdout, reason = "the figures are there to be read")]
fn thousand_locks_are_listed_in_two_round_trips() {
    let _turn = heavy();
    let server = server();
    let fill = "for i = 1, 100000 do redis.call('SET', 'other:' .. i, i) end";
    ask::<()>(&server, &["EVAL", fill, "0"]);
    let (holder, waiter) = (open(&server), open(&server));
    let held = hold(&holder, (0..1_000).map(|number| format!("lock:{number}")));
    thread::scope(|scope| {
        for number in 0..200 {
            let lock = waiter.mutex(format!("lock:{number}")).unwrap();
            scope.spawn(move || _ = lock.lock().unwrap_err());
        }
        until("all are announced", || entries(&server) == 1_000);
        until("all wait", || {
            (0..200).all(|number| waiting(&server, &format!("lock:{number}")) == 1)
        });

        let proxy = Proxy::start(&server).unwrap();
        let client = patient(LockClient::builder(proxy.url())).announce(false).build().unwrap();
        assert_eq!(listed(client.locks("lock:*").unwrap()).len(), 1_000);
        let requests = |operation| proxy.tally(Direction::Request, operation).seen;
        let before = requests(Operation::Other);
        let start = Instant::now();
        let locks = client.locks("lock:*").unwrap();
        assert_eq!(requests(Operation::Other) - before, 1, "the index is one request");
        let first = start.elapsed();
        // No request waits for a reply to another one: the first reply is held until all were sent.
        let held_up = proxy.add(Fault::reply("", Action::Hold).at(Operation::Inspect));
        let before = requests(Operation::Inspect);
        let start = Instant::now();
        let inspects = scope.spawn(move || {
            let locks: Vec<_> = locks.map(Result::unwrap).collect();
            let waiters: usize =
                locks.iter().map(|lock| lock.inspection().waiting().unwrap_or(0)).sum();
            (locks.len(), waiters)
        });
        until("all are asked for", || requests(Operation::Inspect) - before == 1_000);
        held_up.release();
        assert_eq!(inspects.join().unwrap(), (1_000, 200));
        println!(
            "1,000 locks and 200 waiters beside 100,000 keys: 2 round trips, {} requests, {first:?} for the \
             index and {:?} for the locks",
            requests(Operation::Inspect) - before + 1,
            start.elapsed()
        );

        // About 20 seconds are once around: each lock is announced again once.
        server.reset_stats();
        let (begin, used) = (Instant::now(), processor(&server));
        until("all are announced again", || server.command_calls(&["zadd"]) >= 1_000);
        let (span, used, ran) = (begin.elapsed(), processor(&server) - used, server.commands());
        let announced = announcements(&ran);
        println!(
            "the index of 1,000 locks and 200 waiters, two clients: {announced} commands in {span:?}; the \
             server's processor time for these and 200 heartbeats a second: {:.2} %",
            used / span.as_secs_f64() * 100.0
        );
        // One of each client a second.
        assert!(announced <= 2 * (1 + span.as_secs()), "{ran:?}");
        for number in 0..200 {
            waiter.mutex(format!("lock:{number}")).unwrap().cancel_waits();
        }
    });
    drop(held);
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are there to be read")]
fn index_alone_costs_few_commands_and_little_time() {
    let _turn = heavy();
    let server = server();
    let client = open(&server);
    let begin = Instant::now();
    let _held = hold(&client, (0..1_000).map(|number| format!("lock:{number}")));
    // How many ticks of a second there were in which some of them began.
    let ticks = 1 + begin.elapsed().as_secs();
    until("all are announced", || entries(&server) == 1_000);
    server.reset_stats();
    let (begin, used) = (Instant::now(), processor(&server));
    until("all are announced again", || server.command_calls(&["zadd"]) >= 1_000);
    let (span, used, ran) = (begin.elapsed(), processor(&server) - used, server.commands());
    println!(
        "1,000 lasting locks: {} announcements in {span:?}, {:.3} % of the server's processor",
        announcements(&ran),
        used / span.as_secs_f64() * 100.0
    );
    // One a tick in which some are due, and a few for those that a late tick left to the next.
    assert!(announcements(&ran) <= ticks + 9, "{ran:?}");
}

#[test]
fn short_holds_and_short_waits_announce_nothing() {
    let server = server();
    let clients = [open(&server), open(&server)];
    let (end, long) = (Instant::now() + ms(4_000), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in &clients {
            let long = &long;
            scope.spawn(move || {
                let lock = client.mutex("x").unwrap();
                while Instant::now() < end {
                    let begin = Instant::now();
                    drop(lock.lock().unwrap());
                    // What begins in one second and ends in the next may be announced.
                    long.fetch_add(u64::from(begin.elapsed() > ms(500)), Ordering::SeqCst);
                    thread::sleep(ms(1));
                }
            });
        }
    });
    // A machine that stands still makes a wait long, and the hold that it waits for.
    let (ran, long) = (server.commands(), 2 * long.into_inner());
    assert!(announcements(&ran) <= long, "{long}: {ran:?}");
}

#[test]
fn foreign_locks_are_found_by_a_scan_only() {
    let server = server();
    let client = open(&server);
    ask::<()>(&server, &["SET", "shop:plain", "me", "PX", "60000"]);
    ask::<()>(&server, &["HSET", "shop:service", SERVICE, "1"]);
    ask::<()>(&server, &["HSET", "shop:data", "field", "1"]);
    ask::<()>(&server, &["SADD", "shop:set", "1"]);
    ask::<()>(&server, &["SET", "other", "1"]);
    let _guard = client.mutex("shop:[1]").unwrap().lock().unwrap();
    assert_eq!(listed(client.locks("*").unwrap()), [""; 0]);
    let found = listed(client.locks("shop:*").unwrap().with_scan());
    assert_eq!(found, ["mutex shop:[1]", "mutex shop:plain", "reentrant lock shop:service"]);
    assert_eq!(listed(client.locks("shop:[1]").unwrap().with_scan()), ["mutex shop:[1]"]);
    assert_eq!(server.commands().calls("keys"), 0);
}

/// Each step takes a part of that time, so that the scan is not over within it.
#[test]
fn scan_that_finds_nothing_returns_in_the_time_of_a_command() {
    let _turn = heavy();
    let (server, proxy) = behind_proxy();
    let fill = "for i = 1, 60000 do redis.call('SET', 'other:' .. i, i) end";
    ask::<()>(&server, &["EVAL", fill, "0"]);
    let builder = patient(LockClient::builder(proxy.url()));
    let client = builder.command_timeout(ms(3_000)).build().unwrap();
    let mut locks = client.locks("lock:*").unwrap().with_scan();
    let slow = proxy.add(Fault::reply("", Action::Delay(ms(600))).at(Operation::Other).sticky());
    let error = locks.next().unwrap().unwrap_err();
    assert!(error.is_timeout() && slow.fired() < 60, "{error}, {}", slow.fired());
    slow.remove();
    ask::<()>(&server, &["SET", "lock:late", "me", "PX", "60000"]);
    ask::<()>(&server, &["HSET", "lock:hash", SERVICE, "1"]);
    let found: Vec<_> = locks.filter_map(Result::ok).collect();
    assert!(found.iter().any(|lock| lock.name() == b"lock:hash"), "it did not go on: {found:?}");
}

#[test]
fn foreign_values_are_read_within_bounds() {
    let server = server();
    let client = open(&server);
    ask::<()>(&server, &["EVAL", "redis.call('SET', 'big', string.rep('x', 1000000))", "0"]);
    let fill = "for i = 1, 2000 do redis.call('HSET', 'hash', i, i) end";
    ask::<()>(&server, &["EVAL", fill, "0"]);
    let owner = |inspection: &Inspection| inspection.holders()[0].owner().len();
    assert_eq!(owner(&client.mutex("big").unwrap().inspect().unwrap()), 16 * 1024);
    let hash = client.reentrant("hash").unwrap();
    assert!(hash.inspect().unwrap_err().is_wrong_type());
    assert!(hash.try_lock().unwrap_err().is_wrong_type());
    // A read-write lock of Redisson may have so many readers.
    ask::<()>(&server, &["HSET", "hash", "mode", "read"]);
    ask::<()>(&server, &["PEXPIRE", "hash", "600000"]);
    let inspection = hash.inspect().unwrap();
    assert_eq!((inspection.holders().len(), owner(&inspection)), (1, 0));
    assert!(hash.try_lock().unwrap().is_none());
    let read = server.command_calls(&["hkeys", "hgetall"]);
    assert_eq!(read, 0, "all its fields are read");
}

/// The worker's connection is given up, and the one that is idle meanwhile is not.
#[test]
fn announcement_without_reply_costs_callers_no_connection() {
    let (_server, proxy) = behind_proxy();
    let silent = proxy.add(Fault::request("", SILENCE).at(Operation::Announce));
    let client = LockClient::builder(proxy.url()).command_timeout(ms(3_000)).build().unwrap();
    let options = LockOptions::new().lease(Lease::renewed(SOON * 60));
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    until("it is sent", || silent.fired() == 1);
    until("it is given up", || proxy.connections() == 1);
    let accepted = proxy.accepted();
    guard.check().unwrap();
    assert_eq!(proxy.accepted(), accepted, "another connection was needed");
}

#[test]
fn denied_announcement_is_warned_about_once() {
    let server = server();
    texts(&[]);
    let url = format!("{}?user=quiet&pass=secret", server.unix_url());
    let rule = ["ACL", "SETUSER", "quiet", "on", ">secret", "~*", "&*", "+@all", "-zadd"];
    ask::<()>(&server, &rule);
    let client = patient(LockClient::builder(url)).label("denied").build().unwrap();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    // Other tests are warned about their servers.
    let address = server.socket().display().to_string();
    let warnings = || texts(&["locks in use are not announced any more", &address]);
    until("it is told", || !warnings().is_empty());
    println_all(&warnings());
    let others = hold(&client, (0..3).map(|number| format!("b:{number}")));
    thread::sleep(ms(3_000));
    assert_eq!(warnings().len(), 1, "{:?}", warnings());
    guard.check().unwrap();
    drop(others);
}

#[allow(clippy::print_stdout, reason = "the texts are there to be read")]
fn println_all(texts: &[String]) {
    texts.iter().for_each(|text| println!("{text}"));
}

#[test]
fn full_memory_is_no_reason_for_a_warning() {
    let server = server();
    texts(&[]);
    let client = open(&server);
    let guard = client.mutex("full").unwrap().lock().unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    until("it is refused", || server.error_count("OOM") > 0);
    // It is not repeated each second.
    thread::sleep(ms(2_500));
    assert_eq!((entries(&server), server.error_count("OOM")), (0, 1));
    guard.check().unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    within(SOON * 4, "it is announced later", || entries(&server) == 1);
}

#[test]
fn locks_of_a_cluster_are_listed_from_all_its_nodes() {
    let cluster = Cluster::start(3, 0).unwrap();
    let urls = cluster.urls();
    let client = || patient(LockClient::builder(&urls[0]).cluster(&urls[1..])).build().unwrap();
    let (client, other) = (client(), client());
    let names = [0, 1, 2].map(|master| cluster.name_at(master, "lock"));
    let _held = hold(&client, names.iter().cloned());
    let mut expected: Vec<String> = names.iter().map(|name| format!("mutex {name}")).collect();
    expected.sort();
    until("all are announced", || other.locks("*").unwrap().count() == 3);
    assert_eq!(listed(other.locks("*").unwrap()), expected);
    let home = cluster.home("leasehold:index");
    for (number, node) in cluster.masters().iter().enumerate() {
        if number == home {
            assert_eq!(entries(node), 3, "the index is in one slot");
        }
    }
    ask::<()>(&cluster.masters()[home], &["DEL", "leasehold:index"]);
    assert_eq!(listed(other.locks("*").unwrap()), [""; 0]);
    assert_eq!(listed(other.locks("*").unwrap().with_scan()), expected);
}

#[test]
fn locks_behind_sentinels_are_listed() {
    let group = Group::start(1, SOON * 6).unwrap();
    let url = format!("redis://{}", Group::MASTER);
    let client =
        patient(LockClient::builder(url).sentinels(group.sentinel_urls())).build().unwrap();
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    until("it is announced", || client.locks("*").unwrap().count() == 1);
}

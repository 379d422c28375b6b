//! Renewals while no new connection can be made: they use the connections that the client has.

use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use crate::common::process::in_own_process;
use crate::common::queue::waiting;
use crate::common::several::{direct, servers};
use crate::common::{
    HASTE, SOON, all_renewed, ask, behind_proxy, exists, ms, open, patient, renewed, server, until,
    warm,
};
use leasehold::{Guard, LockClient, LockClientBuilder, ReadGuard};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Cluster, Fault, Group, NoDescriptors, Proxy, Server};

/// No lease is longer, and so a hold that was renewed so often has outlived it.
const LEASE: u64 = 9_000;
const RENEWALS: u32 = 4;

/// A client whose worker has no connection until something is renewed.
fn quiet(builder: LockClientBuilder) -> LockClient {
    builder.announce(false).build().expect("a client")
}

/// Lets a client wait for a mutex and have it handed over by another client after the fault. Then it
/// reads too, and keeps both for longer than their leases. The names are of one server.
fn keeps(
    [client, holder]: [&LockClient; 2],
    server: &Server,
    [mutex, board]: [&str; 2],
    fault: impl FnOnce(),
) {
    let renewed = |guard: &Guard, reader: &ReadGuard| {
        for _ in 0..RENEWALS {
            all_renewed([guard]);
        }
        assert!(reader.is_valid(), "{:?}", reader.loss());
    };
    keeps_while([client, holder], server, [mutex, board], fault, (|| {}, renewed));
}

/// The same, with what to do at its beginning, and until its end.
fn keeps_while(
    [client, holder]: [&LockClient; 2],
    server: &Server,
    [mutex, board]: [&str; 2],
    fault: impl FnOnce(),
    (first, last): (impl FnOnce() + Send, impl FnOnce(&Guard, &ReadGuard) + Send),
) {
    let held = holder.mutex(mutex).unwrap().lock().unwrap();
    let lock = client.mutex_with(mutex, renewed(LEASE)).unwrap();
    let board = client.rw_lock_with(board, renewed(LEASE)).unwrap();
    let other = client.mutex(format!("{{{mutex}}}other")).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let guard = lock.lock().unwrap();
            let reader = board.read().unwrap();
            first();
            last(&guard, &reader);
            guard.check().unwrap();
            reader.check().unwrap();
            other.lock().unwrap().release().unwrap();
            guard.release().unwrap();
            reader.release().unwrap();
        });
        // By the wait itself: one that ends in between may leave something to the worker, which connects for it.
        until("it waits", || waiting(server, mutex) == 1);
        until("it hears", || is_heard(server, server, mutex));
        fault();
        held.release().unwrap();
        waiter.join().unwrap();
    });
}

/// Whether the client that waits for this mutex of a server listens there, too.
fn is_heard(at: &Server, server: &Server, mutex: &str) -> bool {
    let attempts: Vec<String> = ask(server, &["ZRANGE", &format!("{{{mutex}}}:queue"), "0", "0"]);
    let client = attempts.first().and_then(|attempt| attempt.split(':').nth(1)).expect("it waits");
    ask::<(String, u64)>(at, &["PUBSUB", "NUMSUB", &format!("leasehold:{client}")]).1 > 0
}

/// A connection to each server that is open before the fault, for a look at what it did.
fn rejected(line: &mut redis::Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(line).expect("a reply");
    let line = info.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
    line.and_then(|count| count.trim().parse().ok()).expect("a number")
}

/// Lets a server take no more clients.
fn fill(line: &mut redis::Connection) {
    redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).exec(line).expect("a reply");
}

#[test]
fn leases_survive_a_full_server() {
    let server = server();
    let (client, holder) = (quiet(patient(LockClient::builder(server.url()))), open(&server));
    let mut line = server.connection();
    keeps([&client, &holder], &server, ["x", "board"], || fill(&mut line));
    assert!(rejected(&mut line) > 0);
}

#[test]
fn leases_survive_a_rotated_password() {
    let server = server();
    let user = |words: &[&str]| {
        ask::<()>(&server, &[&["ACL", "SETUSER", "locks", "on"], words].concat());
    };
    user(&[">old", "~*", "&*", "+@all"]);
    warm(&server);
    let proxy = Proxy::start(&server).unwrap();
    let url = proxy.url().replace("redis://", "redis://locks:old@");
    let (client, holder) = (quiet(patient(LockClient::builder(url))), open(&server));
    let rotate = || user(&["resetpass", ">new"]);
    keeps([&client, &holder], &server, ["x", "board"], rotate);
    let refused = server.error_count("WRONGPASS");
    // The server logs each of them. One that has another connection seldom asks for a new one.
    assert!((1..=3).contains(&refused), "{refused} attempts");
}

#[test]
fn leases_survive_the_end_of_descriptors() {
    in_own_process!();
    let server = server();
    let (client, holder) = (quiet(patient(LockClient::builder(server.url()))), open(&server));
    let (sender, receiver) = mpsc::channel();
    let take = move || sender.send(NoDescriptors::take().unwrap()).unwrap();
    keeps([&client, &holder], &server, ["x", "board"], take);
    assert!(receiver.recv().unwrap().is_in_force());
}

#[test]
fn leases_survive_the_loss_of_all_sentinels() {
    let Group { servers, sentinels } = Group::start(1, SOON).unwrap();
    let urls = sentinels.iter().map(Server::tcp_url);
    let client = quiet(LockClient::builder("redis://mymaster").sentinels(urls));
    let holder = open(&servers[0]);
    let kill = || sentinels.iter().for_each(Server::kill);
    keeps([&client, &holder], &servers[0], ["x", "board"], kill);
}

#[test]
fn leases_survive_full_nodes_of_a_cluster() {
    let cluster = Cluster::start(3, 0).unwrap();
    let urls = cluster.urls();
    let builder = || LockClient::builder(&urls[0]).cluster(&urls[1..]).command_timeout(SOON);
    let (client, holder) = (quiet(builder()), builder().build().unwrap());
    let [lock, board] = ["x", "board"].map(|word| cluster.name_at(0, word));
    let node = &cluster.masters()[0];
    let mut lines: Vec<_> = cluster.masters().iter().map(Server::connection).collect();
    // One that just began to listen connects to the other nodes for that.
    let fill_all = || {
        until("it hears everywhere", || {
            cluster.masters().iter().all(|it| is_heard(it, node, &lock))
        });
        lines.iter_mut().for_each(fill);
    };
    keeps([&client, &holder], node, [&lock, &board], fill_all);
    assert!(rejected(&mut lines[0]) > 0);
}

#[test]
fn lease_of_a_quorum_survives_full_servers() {
    let servers = servers(3);
    let client = direct(&servers).build().unwrap();
    let lock = client.mutex_with("x", renewed(LEASE)).unwrap();
    // A server that is late to be connected to is not waited for.
    until("all are connected", || {
        lock.with(|_| servers.iter().all(|server| exists(server, "x"))).unwrap()
    });
    let mut lines: Vec<_> = servers.iter().map(Server::connection).collect();
    lines.iter_mut().for_each(fill);
    let guard = lock.lock().unwrap();
    (0..RENEWALS).for_each(|_| all_renewed([&guard]));
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(lines.iter_mut().all(|line| rejected(line) > 0));
}

/// The client looks every 30 s whether a connection is too old. Nothing is closed then before there
/// is another.
#[test]
fn leases_survive_an_old_connection_that_has_no_successor() {
    let (server, proxy) = behind_proxy();
    let builder = patient(LockClient::builder(proxy.url())).max_lifetime(Some(ms(1_000)));
    let (client, holder) = (quiet(builder), open(&server));
    let connected = OnceLock::new();
    let count = || connected.set(proxy.connections()).expect("once");
    let refuse = || {
        until("its own is there", || Some(&proxy.connections()) > connected.get());
        proxy.refuse();
    };
    let names = ["x", "board"];
    let heal = |guard: &Guard, reader: &ReadGuard| {
        // For longer than the client takes between two looks.
        let begin = Instant::now();
        while begin.elapsed() < ms(45_000) {
            all_renewed([guard]);
            assert!(reader.is_valid(), "{:?}", reader.loss());
        }
        // A call connects anew, since an idle connection of callers is closed without a successor.
        proxy.heal();
    };
    keeps_while([&client, &holder], &server, names, count, (refuse, heal));
}

/// Neither by the first of many locks, nor by one that is released before it needs a renewal.
#[test]
fn workers_connection_is_made_between_the_lock_and_its_first_renewal() {
    let (server, proxy) = behind_proxy();
    let client = quiet(patient(LockClient::builder(proxy.url())));
    let lock = client.mutex_with("x", renewed(60_000)).unwrap();
    for _ in 0..100 {
        lock.lock().unwrap().release().unwrap();
    }
    assert_eq!(proxy.accepted(), 1);
    server.reset_stats();
    let guard = lock.lock().unwrap();
    until("it is there", || proxy.connections() == 2);
    // A renewal is due after a third of the lease. One that was due when the connection came may not have been sent yet.
    assert!(guard.remaining() > ms(60_000) * 2 / 3, "it came with the first renewal");
    assert_eq!(server.command_calls(&["eval", "evalsha"]), 1, "renewed before");
    guard.release().unwrap();
}

/// A reply that does not come on one of the callers' connections makes all suspect that were idle
/// for as long. While no other can be made, they are used all the same.
#[test]
fn silent_connection_of_callers_costs_one_try() {
    let (server, proxy) = behind_proxy();
    let builder = patient(LockClient::builder(proxy.url())).min_idle(2).command_timeout(HASTE);
    let client = quiet(builder);
    let lock = client.mutex_with("x", renewed(LEASE)).unwrap();
    lock.lock().unwrap().release().unwrap();
    until("two are there", || proxy.connections() >= 2);
    proxy.refuse();
    let guard = lock.lock().unwrap();
    let lost = proxy.add(Fault::reply("", Action::Hold).at(Operation::Renew));
    (0..RENEWALS).for_each(|_| all_renewed([&guard]));
    assert_eq!(lost.fired(), 1);
    guard.check().unwrap();
    proxy.heal();
    assert!(exists(&server, "x"));
}

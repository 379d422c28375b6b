//! What connections are called at the server.

use std::thread;

use crate::common::{SOON, ask, ms, open, server, until};
use leasehold::{LockClient, QuorumClient};
use leasehold_support::{Cluster, Group, Server};

/// How many connections of a client are there, and how many of them have this name.
fn named(server: &Server, name: &str) -> (usize, usize) {
    let list: String = ask(server, &["CLIENT", "LIST"]);
    let ours = |line: &&str| !line.contains("cmd=client|list") && !line.contains("flags=S");
    let lines: Vec<&str> = list.lines().filter(ours).collect();
    let named = lines.iter().filter(|line| line.contains(&format!(" name={name} "))).count();
    (lines.len(), named)
}

#[test]
fn every_connection_of_a_client_has_its_name() {
    for protocol in ["resp2", "resp3"] {
        let server = server();
        let url = format!("{}?protocol={protocol}", server.unix_url());
        let client = LockClient::builder(url).label("night shift ü\n").build().unwrap();
        let lock = client.mutex("x").unwrap();
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            // One that waits in the queue makes its client listen; the worker renews.
            let waiter = scope.spawn(|| {
                let other = LockClient::builder(server.unix_url()).label("night shift ü\n");
                other.build().unwrap().mutex("x").unwrap().lock().map(drop)
            });
            guard.extend(ms(40_000)).unwrap();
            let name = "leasehold:night_shift___";
            until("all are named", || {
                let (all, named) = named(&server, name);
                all == named && named >= 3
            });
            guard.release().unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
}

/// Or each connection would take a round trip more.
#[test]
fn name_is_sent_without_waiting_for_its_reply() {
    let server = Server::builder().tcp().start().unwrap();
    let proxy = leasehold_support::Proxy::start(&server).unwrap();
    let client = LockClient::builder(proxy.url()).label("x").build().unwrap();
    server.reset_stats();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    assert_eq!(server.command_calls(&["client|setname"]), 1);
    assert_eq!(named(&server, "leasehold:x").1, 1);
}

#[test]
fn refused_name_leaves_the_connection_usable() {
    let server = server();
    let user = ["ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-client|setname"];
    ask::<()>(&server, &user);
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?user=locks&pass=secret&protocol={protocol}", server.unix_url());
        let client = LockClient::builder(url).label("x").connect_now(true).build().unwrap();
        let lock = client.mutex("x").unwrap();
        let guard = lock.lock().unwrap();
        assert!(open(&server).mutex("x").unwrap().try_lock().unwrap().is_none());
        guard.extend(ms(35_000)).unwrap();
        guard.release().unwrap();
        assert_eq!(named(&server, "leasehold:x").1, 0);
    }
    // A server that does not know the command.
    let renamed = Server::builder().arg("--rename-command").arg("CLIENT").arg("").start().unwrap();
    let client = LockClient::builder(renamed.unix_url()).connect_now(true).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn nodes_sentinels_and_the_servers_of_a_quorum_see_the_name() {
    let cluster = Cluster::start(3, 0).unwrap();
    let nodes = cluster.nodes();
    let url = |server: &Server| format!("redis://{}", server.addr());
    let client = LockClient::builder(url(&nodes[0])).cluster([""; 0]).label("c").build().unwrap();
    let locks: Vec<_> = (0..12).map(|n| client.mutex(format!("x{n}")).unwrap()).collect();
    locks.iter().for_each(|lock| lock.lock().unwrap().release().unwrap());
    assert!(nodes.iter().all(|node| named(node, "leasehold:c").1 > 0), "every master");

    let group = Group::start(1, SOON * 6).unwrap();
    let builder = LockClient::builder("redis://mymaster/0").sentinels(group.sentinel_urls());
    let client = builder.label("s").build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    until("one sentinel is listened to", || {
        group.sentinels.iter().any(|sentinel| named(sentinel, "leasehold:s").1 > 0)
    });
    assert!(group.servers.iter().any(|server| named(server, "leasehold:s").1 > 0));

    let servers: Vec<Server> = (0..3).map(|_| server()).collect();
    let builder = QuorumClient::builder(servers.iter().map(Server::unix_url)).keeps_data(true);
    let client = builder.node_timeout(SOON).label("q").build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    until("all see it", || servers.iter().all(|server| named(server, "leasehold:q").1 > 0));
}

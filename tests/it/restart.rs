//! A server that closes all connections, and may come back without its memory.

use leasehold::{Guard, LockClient, LockClientBuilder, LossCause};
use leasehold_support::{Cluster, Server};

use crate::common::{SOON, ask, fixed, open, patient, renewed, server, until, warm};

/// From now on a client that is told of requests to let go listens.
fn listening(builder: LockClientBuilder) -> LockClient {
    // It announces no lock, so that its scripts can be counted.
    let builder = patient(builder).on_release_request(|_| {}).announce(false);
    builder.give_up_after(SOON * 3).build().expect("a client")
}

fn hold(client: &LockClient, name: &str) -> Guard {
    client.mutex_with(name, fixed(3_600_000)).expect("a lock").lock().expect("a guard")
}

fn until_heard(server: &Server) {
    until("it listens", || {
        !ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
    });
}

/// Waits for the loss, which nobody else would find for an hour.
fn until_lost(guard: &Guard) {
    until("the loss is known", || !guard.is_valid());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Deleted);
}

#[test]
fn listening_client_learns_of_an_empty_restart() {
    let server = server();
    let guard = hold(&listening(LockClient::builder(server.url())), "x");
    until_heard(&server);
    server.restart();
    until_lost(&guard);
}

#[test]
fn client_that_does_not_listen_learns_of_it_by_another_lock() {
    let server = server();
    let client = open(&server);
    let guard = hold(&client, "x");
    server.restart();
    // The first may find that its connection has ended.
    until("it is back", || client.mutex("another").expect("a lock").try_lock().is_ok());
    until_lost(&guard);
}

/// Each of its connections is closed after its use.
#[test]
fn client_without_a_connection_learns_of_it_when_it_makes_one() {
    let server = server();
    let builder = patient(LockClient::builder(server.url())).max_idle(0);
    let client = builder.build().expect("a client");
    let guard = hold(&client, "x");
    until("none is left", || {
        let list: String = ask(&server, &["CLIENT", "LIST"]);
        !list.contains("name=leasehold")
    });
    server.restart();
    assert!(client.mutex("another").expect("a lock").try_lock().expect("an answer").is_some());
    until_lost(&guard);
}

/// The connection of the worker is idle, and looked at when a renewal is due.
#[test]
fn client_that_does_nothing_learns_of_it_by_a_renewal() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("renewed", renewed(3_000)).expect("a lock");
    let renewed = lock.lock().expect("a guard");
    let guard = hold(&client, "x");
    server.restart();
    until_lost(&guard);
    until("so is this", || !renewed.is_valid());
}

#[test]
fn closed_connections_cost_no_lock_and_one_command_for_each() {
    let server = server();
    warm(&server);
    let client = listening(LockClient::builder(server.url()));
    let guards: Vec<Guard> = (0..20).map(|name| hold(&client, &name.to_string())).collect();
    until_heard(&server);
    let before = server.commands();
    ask::<u64>(&server, &["CLIENT", "KILL", "USER", "default", "SKIPME", "yes"]);
    let asked = || server.commands().since(&before).client_commands(&[]);
    until("all are asked about", || asked() >= 20);
    until_heard(&server);
    // They know by now.
    for guard in &guards {
        assert!(guard.is_valid(), "{:?}", guard.loss());
    }
    assert_eq!(asked(), 20);
    guards.into_iter().for_each(|guard| guard.release().expect("it is ours"));
}

/// Only the leases of that node.
#[test]
fn node_of_a_cluster_that_comes_back_empty_is_noticed() {
    let cluster = Cluster::start(2, 0).expect("a cluster");
    let urls = cluster.urls();
    let client = listening(LockClient::builder(&urls[0]).cluster(&urls[1..]));
    let [here, there] = [0, 1].map(|home| hold(&client, &cluster.name_at(home, "x")));
    cluster.masters().iter().for_each(until_heard);
    let before = cluster.masters()[1].commands();
    cluster.masters()[0].restart();
    until_lost(&here);
    let asked = cluster.masters()[1].commands().since(&before).client_commands(&[]);
    assert_eq!((there.is_valid(), asked), (true, 0));
}

//! Five independent servers.

use std::thread::sleep;
use std::time::Duration;

use leasehold::QuorumClient;
use leasehold_support::{Host, Network, Server, lag};

use crate::lab::{Node, in_lab, until};
use crate::work::{LEASE, TURNS, Verdict, Work, options};

const SERVERS: usize = 5;
/// How long each fault lasts.
const WHILE: Duration = Duration::from_millis(800);

struct Stage {
    network: Network,
    nodes: Vec<Node>,
    work: Work,
}

fn stage() -> Stage {
    lag::watch();
    let network = Network::start().expect("a network");
    let nodes: Vec<Node> = (0..SERVERS).map(|_| Node::start(&network, Server::builder())).collect();
    let client = || {
        let builder = QuorumClient::builder(nodes.iter().map(Node::url)).max_lease(LEASE);
        builder.node_timeout(Duration::from_millis(300)).build().expect("a client")
    };
    let (one, other) = (client(), client());
    let work = Work::start_with(
        |name| one.mutex_with(name, options()),
        |name| other.mutex_with(name, options()),
    );
    Stage { network, nodes, work }
}

#[test]
#[ignore = "long"]
fn any_two_servers_cut_off() {
    in_lab!();
    let Stage { network, nodes, work } = stage();
    for first in 0..SERVERS {
        let two = [first, (first + 1) % SERVERS];
        for number in two {
            network.cut(Host::OWN, nodes[number].host);
        }
        let before = work.grants(TURNS);
        sleep(WHILE);
        until("locks are granted without them", || work.grants(TURNS) > before + 3);
        for number in two {
            network.heal(Host::OWN, nodes[number].host);
        }
        // Those that come back have what they had.
        sleep(WHILE);
    }
    work.end("quorum: any two of five cut off, in turns", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn majority_cut_off() {
    in_lab!();
    let Stage { network, nodes, work } = stage();
    for node in &nodes[..3] {
        network.cut(Host::OWN, node.host);
    }
    // What was under way is over, and every lease.
    sleep(LEASE);
    let before = work.grants(TURNS);
    sleep(WHILE);
    assert_eq!(work.grants(TURNS), before, "two of five grant nothing");
    for node in &nodes[..3] {
        network.heal(Host::OWN, node.host);
    }
    work.end("quorum: three of five cut off", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn two_servers_killed_and_restarted() {
    in_lab!();
    let Stage { network, mut nodes, work } = stage();
    for node in &mut nodes[..2] {
        node.server.kill();
        let before = work.grants(TURNS);
        until("locks are granted without it", || work.grants(TURNS) > before + 3);
        node.server.restart();
        network.join_again(&node.server, &mut node.host).expect("its place");
        // It has no vote for as long as a lease may last.
        sleep(LEASE * 2);
    }
    work.end("quorum: two of five killed and restarted, one after the other", Verdict::Always);
}

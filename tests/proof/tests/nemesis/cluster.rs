//! A cluster: three masters with a replica each.

use std::thread::sleep;
use std::time::Duration;

use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::{Cluster, Network, Server, lag, skip};
use redis::{FromRedisValue, RedisResult};

use crate::lab::{DEAD, Node, in_lab, patient, until};
use crate::work::{TURNS, Verdict, Work};

/// For how long a fault lasts once it has shown.
const WHILE: Duration = Duration::from_secs(4);
/// How often a slot goes to and fro, or a replica takes over.
const TIMES: usize = 5;
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

fn clients(urls: &[String]) -> LockClientBuilder {
    patient(LockClient::builder(&urls[0]).cluster(&urls[1..]))
}

fn work(urls: &[String]) -> Work {
    let [one, other] = [(); 2].map(|()| clients(urls).build().expect("a client"));
    Work::start(&one, &other)
}

fn tell<T: FromRedisValue>(server: &Server, words: &[&str]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(*word));
    command.query(&mut server.connection())
}

/// Whether a node has the slot of the work, and serves it as a master.
fn serves(server: &Server) -> bool {
    server.serves(TURNS)
}

/// A cluster in a network of its own.
#[derive(Debug)]
struct Nodes {
    network: Network,
    /// The masters first, and then their replicas.
    nodes: Vec<Node>,
}

impl Nodes {
    fn start() -> Nodes {
        lag::watch();
        let network = Network::start().expect("a network");
        let node = || {
            let node = Server::builder().cluster().arg("--cluster-node-timeout");
            let node = node.arg(DEAD.to_string()).arg("--cluster-replica-validity-factor").arg("0");
            Node::start(&network, node.arg("--repl-diskless-sync-delay").arg("0"))
        };
        let nodes: Vec<Node> = (0..2 * MASTERS).map(|_| node()).collect();
        for (number, node) in nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if number < MASTERS {
                let first = (number * SLOTS / MASTERS).to_string();
                let last = ((number + 1) * SLOTS / MASTERS - 1).to_string();
                node.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
            for other in &nodes[..number] {
                let (port, bus) = (other.port().to_string(), other.server.bus().to_string());
                node.ask::<()>(&["CLUSTER", "MEET", &other.host.ip(), &port, &bus]);
            }
        }
        for (master, replica) in nodes.iter().zip(&nodes[MASTERS..]) {
            let id: String = master.ask(&["CLUSTER", "MYID"]);
            until("a node knows its master", || {
                replica.try_ask::<()>(&["CLUSTER", "REPLICATE", &id]).is_ok()
            });
        }
        let nodes = Nodes { network, nodes };
        nodes.is_whole();
        nodes
    }

    /// Waits until all serve, and each master has a replica.
    fn is_whole(&self) {
        for node in &self.nodes {
            until("all nodes know each other, and serve", || {
                let all = node.try_ask::<String>(&["CLUSTER", "NODES"]).unwrap_or_default();
                let info = node.try_ask::<String>(&["CLUSTER", "INFO"]).unwrap_or_default();
                let count = |word: &str| all.lines().filter(|line| line.contains(word)).count();
                info.contains("cluster_state:ok")
                    && count(" connected") == self.nodes.len()
                    && count("slave") == MASTERS
                    && count("fail") + count("handshake") == 0
                    && (node.is_master() || node.follows())
            });
        }
    }

    fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// The node with the locks of the work.
    fn home(&self) -> usize {
        let home = self.nodes.iter().position(|node| serves(&node.server));
        home.expect("a node has the slot")
    }

    fn others(&self, than: usize) -> impl Iterator<Item = &Node> {
        self.nodes.iter().enumerate().filter(move |(number, _)| *number != than).map(|(_, it)| it)
    }

    fn is_taken_over(&self, from: usize) -> bool {
        self.others(from).any(|node| serves(&node.server))
    }
}

#[test]
fn bus_of_a_master_cut() {
    in_lab!();
    let cluster = Nodes::start();
    let work = work(&cluster.urls());
    let home = cluster.home();
    let bus = |node: &Node| (node.host, node.server.bus());
    let own = bus(&cluster.nodes[home]);
    cluster.others(home).for_each(|other| cluster.network.cut_ports(own, bus(other)));
    until("a replica takes its place", || cluster.is_taken_over(home));
    until("it knows that it is alone", || {
        let info = cluster.nodes[home].try_ask::<String>(&["CLUSTER", "INFO"]);
        info.is_ok_and(|info| info.contains("cluster_state:fail"))
    });
    sleep(WHILE);
    cluster.others(home).for_each(|other| cluster.network.heal_ports(own, bus(other)));
    cluster.is_whole();
    work.end("cluster: bus of a master cut", Verdict::TheToken);
}

#[test]
#[ignore = "long"]
fn master_cut_off_from_all_nodes() {
    in_lab!();
    let cluster = Nodes::start();
    let work = work(&cluster.urls());
    let home = cluster.home();
    let own = cluster.nodes[home].host;
    cluster.others(home).for_each(|other| cluster.network.cut(own, other.host));
    until("a replica takes its place", || cluster.is_taken_over(home));
    sleep(WHILE);
    cluster.others(home).for_each(|other| cluster.network.heal(own, other.host));
    cluster.is_whole();
    work.end("cluster: master cut off from all nodes", Verdict::TheToken);
}

#[test]
#[ignore = "long"]
fn replica_cut_off_from_all_nodes() {
    in_lab!();
    let cluster = Nodes::start();
    let work = work(&cluster.urls());
    let home = cluster.home();
    let replica = home + MASTERS;
    let own = cluster.nodes[replica].host;
    cluster.others(replica).for_each(|other| cluster.network.cut(own, other.host));
    until("the others take it for dead", || {
        let all = cluster.nodes[home].try_ask::<String>(&["CLUSTER", "NODES"]).unwrap_or_default();
        all.lines().any(|line| line.contains("slave,fail "))
    });
    sleep(WHILE);
    cluster.others(replica).for_each(|other| cluster.network.heal(own, other.host));
    cluster.is_whole();
    work.end("cluster: replica cut off from all nodes", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn host_of_a_master_and_of_another_ones_replica_dies() {
    in_lab!();
    let mut cluster = Nodes::start();
    let work = work(&cluster.urls());
    let home = cluster.home();
    let both: [usize; 2] = [home, MASTERS + (home + 1) % MASTERS];
    for number in both {
        cluster.nodes[number].server.kill();
    }
    until("a replica takes its place", || {
        let mut living = (0..2 * MASTERS).filter(|number| !both.contains(number));
        living.any(|number| serves(&cluster.nodes[number].server))
    });
    sleep(WHILE);
    let Nodes { network, nodes } = &mut cluster;
    for number in both {
        let node = &mut nodes[number];
        node.server.restart();
        network.join_again(&node.server, &mut node.host).expect("its place");
    }
    cluster.is_whole();
    work.end("cluster: host of a master and of another's replica dies", Verdict::TheToken);
}

/// Both masters of a slot that goes to and fro.
fn ends(cluster: &Cluster) -> (usize, usize, usize) {
    let home = cluster.home(TURNS);
    (cluster.slot(TURNS), home, (home + 1) % MASTERS)
}

#[test]
#[ignore = "long"]
fn slot_goes_to_and_fro_key_by_key() {
    let cluster = Cluster::start(MASTERS, 1).expect("a cluster");
    let work = work(&cluster.urls());
    let (slot, home, other) = ends(&cluster);
    for _ in 0..TIMES {
        for (from, to) in [(home, other), (other, home)] {
            let before = work.grants(TURNS);
            cluster.migrate(slot, from, to);
            until("the other node serves it", || serves(&cluster.nodes()[to]));
            until("locks are granted there", || work.grants(TURNS) > before + 3);
        }
    }
    work.end("cluster: a slot goes to and fro, key by key", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn slot_goes_to_and_fro_as_a_whole() {
    let cluster = Cluster::start(MASTERS, 1).expect("a cluster");
    let help: Vec<String> = tell(&cluster.nodes()[0], &["CLUSTER", "HELP"]).expect("a reply");
    let can = |line: &String| line.contains("MIGRATESLOTS") || line.starts_with("MIGRATION");
    if !help.iter().any(can) {
        return skip("this server has no atomic migration of slots");
    }
    let work = work(&cluster.urls());
    let (slot, home, other) = ends(&cluster);
    let slot = slot.to_string();
    for _ in 0..TIMES {
        for (from, to) in [(home, other), (other, home)] {
            let before = work.grants(TURNS);
            let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
            let id = cluster.id(to);
            let valkey = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &id];
            let redis = ["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot];
            until("a migration is begun", || {
                tell::<()>(source, &valkey).is_ok() || tell::<redis::Value>(target, &redis).is_ok()
            });
            until("the other node serves it", || serves(target) && !serves(source));
            until("locks are granted there", || work.grants(TURNS) > before + 3);
        }
    }
    work.end("cluster: a slot goes to and fro, atomically", Verdict::Always);
}

/// The master of the work and its replica change places.
fn change_places(how: &[&str], what: &str, verdict: Verdict) {
    let cluster = Cluster::start(MASTERS, 1).expect("a cluster");
    let work = work(&cluster.urls());
    let home = cluster.home(TURNS);
    for turn in 0..TIMES {
        let pair = [home, MASTERS + home];
        let (old, new) = (pair[turn % 2], pair[1 - turn % 2]);
        until("the replica follows", || cluster.nodes()[new].follows());
        cluster.fail_over(old, new, how);
        assert!(serves(&cluster.nodes()[new]));
        let before = work.grants(TURNS);
        until("locks are granted there", || work.grants(TURNS) > before + 3);
    }
    work.end(what, verdict);
}

#[test]
#[ignore = "long"]
fn failover_by_command() {
    change_places(&[], "cluster: CLUSTER FAILOVER, five times", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn failover_by_force() {
    let what = "cluster: CLUSTER FAILOVER TAKEOVER, five times";
    change_places(&["TAKEOVER"], what, Verdict::TheToken);
}

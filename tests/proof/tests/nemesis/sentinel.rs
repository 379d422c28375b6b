//! A master, its replicas, and the sentinels that watch it.

use std::thread::sleep;
use std::time::Duration;

use leasehold_support::Host;

use crate::lab::{Group, MASTER, Node, in_lab, until};
use crate::work::{LEASE, Verdict, Work};

/// For how long a fault lasts once it has shown.
const WHILE: Duration = Duration::from_secs(4);

fn hosts(nodes: &[Node]) -> Vec<Host> {
    nodes.iter().map(|node| node.host).collect()
}

fn work(group: &Group) -> Work {
    let [one, other] = [(); 2].map(|()| group.client().build().expect("a client"));
    Work::start(&one, &other)
}

/// Whether another server than the first has become the master.
fn is_promoted(group: &Group) -> bool {
    group.servers[1..].iter().any(Node::is_master)
}

#[test]
fn replicas_cut_off_from_their_master() {
    in_lab!();
    let group = Group::start(&[]);
    let work = work(&group);
    let (master, replicas) = ([group.servers[0].host], hosts(&group.servers[1..]));
    group.part(&master, &replicas);
    until("the replicas miss their master", || !group.servers[1..].iter().any(Node::follows));
    sleep(WHILE);
    group.heal(&master, &replicas);
    group.is_whole();
    assert!(group.servers[0].is_master());
    work.end("Sentinel: replicas cut off from the master", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn sentinels_cut_off_from_each_other() {
    in_lab!();
    let group = Group::start(&[]);
    let work = work(&group);
    let sentinels = hosts(&group.sentinels);
    let pairs = [(0, 1), (0, 2), (1, 2)];
    for (one, other) in pairs {
        group.network.cut(sentinels[one], sentinels[other]);
    }
    for sentinel in &group.sentinels {
        until("it misses the others", || {
            sentinel.try_ask::<String>(&["SENTINEL", "CKQUORUM", MASTER]).is_err()
        });
    }
    sleep(WHILE);
    for (one, other) in pairs {
        group.network.heal(sentinels[one], sentinels[other]);
    }
    group.is_whole();
    assert!(group.servers[0].is_master());
    work.end("Sentinel: sentinels cut off from each other", Verdict::Always);
}

#[test]
#[ignore = "long"]
fn sentinels_cut_off_from_the_master() {
    in_lab!();
    let group = Group::start(&[]);
    let work = work(&group);
    let (master, sentinels) = ([group.servers[0].host], hosts(&group.sentinels));
    group.part(&master, &sentinels);
    until("another is the master", || is_promoted(&group));
    sleep(WHILE);
    assert!(group.servers[0].is_master(), "nobody can tell it");
    group.heal(&master, &sentinels);
    group.is_whole();
    work.end("Sentinel: sentinels cut off from the master", Verdict::TheToken);
}

#[test]
#[ignore = "long"]
fn master_cut_off_from_all_but_clients() {
    in_lab!();
    let group = Group::start(&[]);
    let work = work(&group);
    let master = [group.servers[0].host];
    let others: Vec<Host> = group.hosts().filter(|host| *host != master[0]).collect();
    group.part(&master, &others);
    until("another is the master", || is_promoted(&group));
    sleep(WHILE);
    assert!(group.servers[0].is_master(), "nobody can tell it");
    group.heal(&master, &others);
    group.is_whole();
    work.end("Sentinel: master cut off from all but clients", Verdict::TheToken);
}

/// One client with the master and a sentinel on one side, all others on the other.
fn split(arguments: &[&str], what: &str) -> Duration {
    let group = Group::start(arguments);
    // The one knows only the sentinel of its own side.
    let one = group.client_of(&group.sentinels[..1]).build().expect("a client");
    let other = group.client_of(&group.sentinels[1..]).build().expect("a client");
    let work = Work::start(&one, &other);
    let minority = [group.servers[0].host, group.sentinels[0].host];
    let others: Vec<Host> = group.hosts().filter(|host| !minority.contains(host)).collect();
    group.part(&minority, &others);
    until("another is the master", || is_promoted(&group));
    // The lease that replication took there has ended by then.
    sleep(LEASE + WHILE);
    group.heal(&minority, &others);
    group.is_whole();
    until("its holder learns of the loss", || work.lost() > 0);
    let row = work.end(what, Verdict::TheToken);
    assert!(row.refused > 0 || row.overlaps == 0, "the resource sees that another writes: {row:?}");
    row.longest
}

#[test]
#[ignore = "long"]
fn client_and_master_cut_off_from_all_others() {
    in_lab!();
    let longest = split(&[], "Sentinel: client and master cut off from all others");
    assert!(longest > LEASE, "beyond the promise, and the test would see it: {longest:?}");
}

#[test]
#[ignore = "long"]
fn client_and_master_that_wants_a_replica_cut_off() {
    in_lab!();
    let arguments = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    let longest = split(&arguments, "Sentinel: the same, min-replicas-to-write 1");
    // The master refuses after two seconds at most, and what it took until then, replicas did not see.
    assert!(longest <= LEASE + Duration::from_secs(1), "{longest:?}");
}

#[test]
#[ignore = "long"]
fn failover_by_command() {
    in_lab!();
    let group = Group::start(&[]);
    let work = work(&group);
    for _ in 0..3 {
        let before = group.master().port();
        until("a fail-over is begun", || {
            group.sentinels[0].try_ask::<()>(&["SENTINEL", "FAILOVER", MASTER]).is_ok()
        });
        until("another is the master", || {
            group.servers.iter().any(|server| server.is_master() && server.port() != before)
        });
        group.is_whole();
    }
    work.end("Sentinel: fail-over by command, three times", Verdict::TheToken);
}

#[test]
#[ignore = "long"]
fn host_of_the_master_and_a_sentinel_dies() {
    in_lab!();
    let mut group = Group::start(&[]);
    let work = work(&group);
    group.servers[0].server.kill();
    group.sentinels[0].server.kill();
    until("another is the master", || is_promoted(&group));
    sleep(WHILE);
    let Group { network, servers, sentinels } = &mut group;
    for node in [&mut servers[0], &mut sentinels[0]] {
        node.server.restart();
        network.join_again(&node.server, &mut node.host).expect("its place");
    }
    until("the host takes part again", || group.servers[0].follows());
    work.end("Sentinel: host of master and sentinel dies", Verdict::TheToken);
}

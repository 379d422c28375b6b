//! What goes wrong between servers. Each strike ends when all of them are as before, and returns whether it was seen at
//! the servers.

use std::collections::HashMap;

use fastrand::Rng;
use leasehold_proof::trial::until;
use leasehold_support::fault::server;
use leasehold_support::{Cluster, Group, Server};

use crate::strike::{Field, lasts};
use crate::topology::{Place, await_vote};

/// How many masters a cluster has. The replica of each comes so many numbers later.
fn half(cluster: &Cluster) -> usize {
    cluster.nodes().len() / 2
}

/// A node and its replica, or a replica and its node.
fn partner(cluster: &Cluster, node: usize) -> usize {
    (node + half(cluster)) % cluster.nodes().len()
}

impl Field<'_> {
    fn cluster(&self) -> &Cluster {
        match self.place {
            Place::Cluster(cluster) => cluster,
            place => panic!("no cluster: {place:?}"),
        }
    }

    /// Kills a replica of the master of a lock.
    pub(crate) fn kill_replica(&self, rng: &mut Rng) -> bool {
        let servers = self.place.servers();
        let home = self.place.home(&self.lock(rng));
        let replica = match self.place {
            Place::Cluster(cluster) => partner(cluster, home),
            _ => (home + 1 + rng.usize(..servers.len() - 1)) % servers.len(),
        };
        let (master, replica_server) = (&servers[home], &servers[replica]);
        let before = master.replicas();
        let mut active = self.inject(&server::Killed, replica);
        until("the master misses its replica", || master.replicas() < before);
        lasts(rng, 0.5, 2.0);
        let fired = active.fired();
        active.heal();
        until("the replica follows again", || {
            replica_server.follows() && master.replicas() == before
        });
        fired.is_proven()
    }

    /// Kills the master of a lock, whose place a replica takes.
    pub(crate) fn kill_master(&self, rng: &mut Rng) -> bool {
        let servers = self.place.servers();
        let old = self.place.home(&self.lock(rng));
        let mut active = self.inject(&server::Killed, old);
        let mut new = None;
        until("a replica takes its place", || {
            new = match self.place {
                Place::Cluster(cluster) => Some(partner(cluster, old)),
                Place::Sentinel(group) => agreed(group).filter(|&new| new != old),
                place => panic!("it has no replicas: {place:?}"),
            };
            new.is_some_and(|new| servers[new].is_master())
        });
        let fired = active.fired();
        lasts(rng, 0.5, 1.5);
        active.heal();
        if let Place::Sentinel(_) = self.place {
            // It is empty. Sentinels would make it follow after a while: their fail-over is complete.
            follow(&servers[old], &servers[new.expect("it was found")]);
        }
        self.is_whole();
        fired.is_proven()
    }

    /// Tells sentinels to make a replica the master.
    pub(crate) fn promote(&self) -> bool {
        let Place::Sentinel(group) = self.place else { panic!("no group: {:?}", self.place) };
        let servers = &group.servers;
        let old = servers.iter().position(Server::is_master).expect("a master");
        until("a fail-over is begun", || {
            let mut order = redis::cmd("SENTINEL");
            order.arg("FAILOVER").arg(Group::MASTER);
            order.query::<()>(&mut group.sentinels[0].connection()).is_ok()
        });
        let is_promoted =
            || servers.iter().enumerate().any(|(number, it)| number != old && it.is_master());
        until("a replica is the master", is_promoted);
        self.is_whole();
        !servers[old].is_master()
    }

    /// Lets the replica of a lock's master take its place.
    pub(crate) fn take_over(&self, rng: &mut Rng) -> bool {
        let (cluster, lock) = (self.cluster(), self.lock(rng));
        let old = self.place.home(&lock);
        let new = partner(cluster, old);
        until("the replica follows", || cluster.nodes()[new].follows());
        cluster.fail_over(old, new, &[]);
        let is_seen = cluster.nodes()[new].serves(&lock);
        self.is_whole();
        is_seen
    }

    /// Moves the slot of a lock to another master, key by key.
    pub(crate) fn move_slot(&self, rng: &mut Rng) -> bool {
        let (cluster, lock) = (self.cluster(), self.lock(rng));
        let from = self.place.home(&lock);
        let to = (from + 1) % half(cluster);
        cluster.migrate(cluster.slot(&lock), from, to);
        cluster.nodes()[to].serves(&lock) && !cluster.nodes()[from].serves(&lock)
    }

    /// Kills so many servers of a quorum, which come back empty.
    pub(crate) fn kill_voters(&self, count: usize, rng: &mut Rng) -> bool {
        let servers = self.place.servers();
        let first = rng.usize(..servers.len());
        let dead = (0..count).map(|more| (first + more) % servers.len());
        let mut actives: Vec<_> =
            dead.clone().map(|number| self.inject(&server::Killed, number)).collect();
        if count > 1 {
            lasts(rng, 0.5, 2.0);
        }
        let is_proven = actives.iter().all(|active| active.fired().is_proven());
        actives.iter_mut().for_each(|active| active.heal());
        dead.for_each(|number| await_vote(&servers[number]));
        is_proven
    }

    /// Waits until each master that there was at the start has a replacement, all others follow, and sentinels know it.
    fn is_whole(&self) {
        let servers = self.place.servers();
        let masters = match self.place {
            Place::Cluster(cluster) => half(cluster),
            _ => 1,
        };
        until("there are as many masters as before, and the others follow", || {
            let following = servers.iter().filter(|server| server.follows()).count();
            let leading = servers.iter().filter(|server| server.is_master()).count();
            let is_known = match self.place {
                Place::Sentinel(group) => {
                    agreed(group).is_some_and(|master| servers[master].is_master())
                }
                _ => true,
            };
            leading == masters && following == servers.len() - masters && is_known
        });
    }
}

/// The number of the server that all sentinels take for the master, in good order and no longer amid a fail-over. If it
/// died before, they would go on to watch the master before it, and would find no replica that had heard that one recently
/// enough.
fn agreed(group: &Group) -> Option<usize> {
    let mut masters = group.sentinels.iter().map(|sentinel| {
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTER").arg(Group::MASTER);
        let fields: HashMap<String, String> =
            question.query(&mut sentinel.connection()).expect("a sentinel replies");
        let is_there = |server: &Server| fields["port"] == server.addr().port().to_string();
        group.servers.iter().position(is_there).filter(|_| fields["flags"] == "master")
    });
    let first = masters.next()??;
    masters.all(|master| master == Some(first)).then_some(first)
}

/// Makes a server the replica of another.
fn follow(server: &Server, master: &Server) {
    let mut order = redis::cmd("REPLICAOF");
    order.arg("127.0.0.1").arg(master.addr().port());
    order.exec(&mut server.connection()).expect("it follows");
}

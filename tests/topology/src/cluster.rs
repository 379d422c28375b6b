//! A cluster: each name on the master that has its slot.

use leasehold::{LockClient, LockClientBuilder, Wait, redis};
use leasehold_support::Cluster as Nodes;

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// Three masters with a replica each. They stay the masters: fail-overs have tests of their own.
#[derive(Debug)]
pub struct Cluster(Nodes);

/// In milliseconds, longer than any test stops the servers.
const DEAD_AFTER: &str = "60000";

impl Topology for Cluster {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    /// Not all keys of the lock would be in one slot.
    const STRAY_BRACES: bool = false;

    fn start() -> Cluster {
        let arguments = ["--cluster-node-timeout", DEAD_AFTER];
        Cluster(Nodes::start_with(3, 1, &arguments).expect("a cluster"))
    }

    fn address(&self) -> String {
        self.0.urls().join(" ")
    }

    fn builder(address: &str) -> LockClientBuilder {
        let (first, others) = address.split_once(' ').expect("several URLs");
        LockClient::builder(first).cluster(others.split(' '))
    }

    fn servers(&self) -> Vec<&Server> {
        self.0.nodes().iter().collect()
    }

    fn keepers(&self, name: &[u8]) -> Vec<&Server> {
        // The others say where it has moved to.
        let keeps = |server: &&Server| {
            redis::cmd("EXISTS").arg(name).query::<bool>(&mut server.connection()).is_ok()
        };
        let keepers: Vec<_> = self.0.masters().iter().filter(keeps).collect();
        assert_eq!(keepers.len(), 1, "one master has the slot");
        keepers
    }
}

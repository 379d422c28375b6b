//! The master of a group, as sentinels tell of it.

use std::time::Duration;

use leasehold::{LockClient, LockClientBuilder, Wait};
use leasehold_support::Group;

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// A master with two replicas, and three sentinels. It stays the master: fail-overs have tests of their
/// own.
#[derive(Debug)]
pub struct Sentinel(Group);

/// Longer than any test stops the servers.
const DEAD_AFTER: Duration = Duration::from_secs(60);

impl Topology for Sentinel {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    fn start() -> Sentinel {
        Sentinel(Group::start(2, DEAD_AFTER).expect("a group"))
    }

    fn address(&self) -> String {
        self.0.sentinel_urls().join(" ")
    }

    fn builder(address: &str) -> LockClientBuilder {
        let master = format!("redis://{}", Group::MASTER);
        LockClient::builder(master).sentinels(address.split(' '))
    }

    fn servers(&self) -> Vec<&Server> {
        self.0.servers.iter().chain(&self.0.sentinels).collect()
    }

    fn keepers(&self, _name: &[u8]) -> Vec<&Server> {
        vec![&self.0.servers[0]]
    }
}

//! The client of a process, over any topology.

use std::time::Duration;

use leasehold::{LockClient, LockOptions, Mutex, QuorumClient, Result};
use leasehold_support::Group;

use crate::topology::{Address, Topology};
use crate::worker::LEASE;

/// How long a command may take.
const COMMAND: Duration = Duration::from_millis(300);
/// How long one of several servers may take.
const VOTE: Duration = Duration::from_millis(150);

pub(crate) enum Client {
    /// A lock is on one server at a time.
    One(LockClient),
    /// It is on several, of which a majority decides, and has mutexes alone.
    Several(QuorumClient),
}

impl Client {
    /// It connects when it first needs to: a server may be about to come back.
    ///
    /// # Panics
    ///
    /// If the address is none.
    pub(crate) fn of(address: &Address, threads: u32) -> Client {
        let urls = &address.urls;
        let builder = match address.topology {
            Topology::Server => LockClient::builder(&urls[0]),
            Topology::Sentinel => {
                LockClient::builder(format!("redis://{}", Group::MASTER)).sentinels(urls)
            }
            Topology::Cluster => LockClient::builder(&urls[0]).cluster(&urls[1..]),
            Topology::Quorum => {
                let builder = QuorumClient::builder(urls).max_size(threads);
                let builder = builder.node_timeout(VOTE).max_lease(LEASE);
                return Client::Several(builder.build().expect("valid settings"));
            }
        };
        let builder = builder.max_size(threads).command_timeout(COMMAND).connect_timeout(COMMAND);
        Client::One(builder.max_wait(COMMAND).build().expect("valid settings"))
    }

    pub(crate) fn mutex_with(&self, name: &str, options: LockOptions) -> Result<Mutex> {
        match self {
            Client::One(client) => client.mutex_with(name, options),
            Client::Several(client) => client.mutex_with(name, options),
        }
    }

    /// The client of all kinds of lock.
    ///
    /// # Panics
    ///
    /// If it has mutexes alone.
    pub(crate) fn locks(&self) -> &LockClient {
        match self {
            Client::One(client) => client,
            Client::Several(_) => panic!("a quorum has mutexes alone"),
        }
    }
}

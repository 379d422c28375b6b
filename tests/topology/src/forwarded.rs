//! Servers that announce addresses which lead nowhere for clients, as behind a NAT: clients map them.

use std::time::Duration;

use leasehold::{LockClient, LockClientBuilder, Wait};
use leasehold_support::{Cluster as Nodes, Group, Proxy};

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// Longer than any test stops the servers.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// A master with a replica, which clients reach by ports that are forwarded, and three sentinels, which name
/// their own.
#[derive(Debug)]
pub struct ForwardedSentinel {
    group: Group,
    /// One for each server.
    forwards: Vec<Proxy>,
}

impl Topology for ForwardedSentinel {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    fn start() -> ForwardedSentinel {
        let group = Group::start(1, DEAD_AFTER).expect("a group");
        let forward = |server: &Server| Proxy::to_addr(server.addr()).expect("a port");
        let forwards = group.servers.iter().map(forward).collect();
        ForwardedSentinel { group, forwards }
    }

    /// The sentinels, and each announced port with the one that leads there.
    fn address(&self) -> String {
        let pair = |(server, forward): (&Server, &Proxy)| {
            format!("{}={}", server.addr().port(), forward.addr().port())
        };
        let ports = self.group.servers.iter().zip(&self.forwards).map(pair);
        self.group.sentinel_urls().into_iter().chain(ports).collect::<Vec<_>>().join(" ")
    }

    fn builder(address: &str) -> LockClientBuilder {
        let (sentinels, ports): (Vec<&str>, Vec<&str>) =
            address.split(' ').partition(|part| part.starts_with("redis://"));
        let port = |port: &str| port.parse::<u16>().expect("a port");
        let ports: Vec<(u16, u16)> = ports
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(announced, forwarded)| (port(announced), port(forwarded)))
            .collect();
        let map = move |host: &str, port: u16| {
            let (_, forwarded) =
                ports.iter().find(|(announced, _)| *announced == port).expect("an announced port");
            (host.to_owned(), *forwarded)
        };
        let master = format!("redis://{}", Group::MASTER);
        LockClient::builder(master).sentinels(sentinels).map_address(map)
    }

    fn servers(&self) -> Vec<&Server> {
        self.group.servers.iter().chain(&self.group.sentinels).collect()
    }

    fn keepers(&self, _name: &[u8]) -> Vec<&Server> {
        vec![&self.group.servers[0]]
    }
}

/// Three masters with a replica each, which announce a name that clients cannot look up.
#[derive(Debug)]
pub struct ForwardedCluster(Nodes);

const ANNOUNCED: &str = "node.invalid";

impl Topology for ForwardedCluster {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    /// Not all keys of the lock would be in one slot.
    const STRAY_BRACES: bool = false;

    fn start() -> ForwardedCluster {
        let arguments = [
            ["--cluster-node-timeout", "60000"],
            ["--cluster-announce-hostname", ANNOUNCED],
            ["--cluster-preferred-endpoint-type", "hostname"],
        ];
        ForwardedCluster(Nodes::start_with(3, 1, arguments.as_flattened()).expect("a cluster"))
    }

    fn address(&self) -> String {
        self.0.urls().join(" ")
    }

    fn builder(address: &str) -> LockClientBuilder {
        let (first, others) = address.split_once(' ').expect("several URLs");
        let map = |host: &str, port: u16| {
            let is_mapped = host == ANNOUNCED;
            (if is_mapped { "127.0.0.1" } else { host }.to_owned(), port)
        };
        LockClient::builder(first).cluster(others.split(' ')).map_address(map)
    }

    fn servers(&self) -> Vec<&Server> {
        self.0.nodes().iter().collect()
    }

    fn keepers(&self, name: &[u8]) -> Vec<&Server> {
        // The others say where it has moved to.
        let keeps = |server: &&Server| {
            leasehold::redis::cmd("EXISTS")
                .arg(name)
                .query::<bool>(&mut server.connection())
                .is_ok()
        };
        let keepers: Vec<_> = self.0.masters().iter().filter(keeps).collect();
        assert_eq!(keepers.len(), 1, "one master has the slot");
        keepers
    }
}

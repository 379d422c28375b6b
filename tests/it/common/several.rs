//! Several servers, and clients that ask all of them.

use std::thread;
use std::time::Duration;

use leasehold::{QuorumClient, QuorumClientBuilder};
use leasehold_support::{Proxy, Server};

use crate::common::{ms, until};

/// How long one server may take in these tests.
pub(crate) const TIMEOUT: Duration = ms(600);

pub(crate) fn servers(count: usize) -> Vec<Server> {
    let start = || Server::start().expect("a server");
    thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|server| server.join().expect("a server")).collect()
    })
}

pub(crate) fn proxies(servers: &[Server]) -> Vec<Proxy> {
    servers.iter().map(|server| Proxy::start(server).expect("a proxy")).collect()
}

pub(crate) fn direct(servers: &[Server]) -> QuorumClientBuilder {
    let builder = QuorumClient::builder(servers.iter().map(Server::unix_url)).keeps_data(true);
    // So that none is left out because the machine stood still.
    builder.node_timeout(ms(2_000))
}

pub(crate) fn through(proxies: &[Proxy]) -> QuorumClientBuilder {
    QuorumClient::builder(proxies.iter().map(Proxy::url)).keeps_data(true).node_timeout(TIMEOUT)
}

pub(crate) fn open(builder: QuorumClientBuilder) -> QuorumClient {
    let client = builder.build().expect("a client");
    let lock = client.mutex("connected").expect("a lock");
    // That may take longer than is meant for what follows.
    until("a majority is connected", || lock.is_locked().is_ok());
    client
}

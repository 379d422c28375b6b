//! One server, over TCP.

use leasehold::{LockClient, LockClientBuilder, Wait};

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// One server, over TCP.
#[derive(Debug)]
pub struct OneServer(Server);

impl Topology for OneServer {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    fn start() -> OneServer {
        OneServer(Server::builder().tcp().start().expect("a server"))
    }

    fn address(&self) -> String {
        self.0.tcp_url()
    }

    fn builder(address: &str) -> LockClientBuilder {
        LockClient::builder(address)
    }

    fn servers(&self) -> Vec<&Server> {
        vec![&self.0]
    }

    fn keepers(&self, _name: &[u8]) -> Vec<&Server> {
        vec![&self.0]
    }
}

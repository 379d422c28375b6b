//! One server, over its socket.

use leasehold::{LockClient, LockClientBuilder, Wait};

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// One server, over its Unix socket. It has no port.
#[derive(Debug)]
pub struct UnixSocket(Server);

impl Topology for UnixSocket {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    fn start() -> UnixSocket {
        UnixSocket(Server::start().expect("a server"))
    }

    fn address(&self) -> String {
        self.0.unix_url()
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

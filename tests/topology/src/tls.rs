//! One server, over TLS.

use leasehold::{LockClient, LockClientBuilder, Wait};
use leasehold_tls_test::{Authority, Terminator};

use crate::{QUEUE_AND_SPIN, Server, Topology};

/// One server behind a terminator, with a certificate made for the occasion. Nothing else leads there
/// for clients.
#[derive(Debug)]
pub struct Tls {
    server: Server,
    terminator: Terminator,
    authority: Authority,
}

impl Topology for Tls {
    type Builder = LockClientBuilder;

    const WAITS: &'static [Wait] = QUEUE_AND_SPIN;

    fn start() -> Tls {
        let (server, authority) = (Server::start().expect("a server"), Authority::new("ours"));
        let certificate = authority.sign("127.0.0.1");
        let terminator = Terminator::start(server.socket(), &certificate, None).expect("a port");
        Tls { server, terminator, authority }
    }

    /// The URL, and whom to trust.
    fn address(&self) -> String {
        let pem = self.authority.pem().replace('\n', ",");
        format!("rediss://{} {pem}", self.terminator.address())
    }

    fn builder(address: &str) -> LockClientBuilder {
        let (url, pem) = address.split_once(' ').expect("a URL and a certificate");
        LockClient::builder(url).ca_certificate(pem.replace(',', "\n"))
    }

    fn servers(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    fn keepers(&self, _name: &[u8]) -> Vec<&Server> {
        vec![&self.server]
    }
}

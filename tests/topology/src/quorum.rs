//! Several servers, a majority of which decides.

use std::thread;

use leasehold::{QuorumClient, QuorumClientBuilder, Wait};

use crate::{Server, Topology};

/// Five servers that know nothing of each other.
#[derive(Debug)]
pub struct Quorum(Vec<Server>);

impl Topology for Quorum {
    type Builder = QuorumClientBuilder;

    /// Several queues would split a majority between them.
    const WAITS: &'static [Wait] = &[Wait::notify(), Wait::spin()];

    /// The votes would be free one after the other.
    const TAILS: bool = false;

    fn start() -> Quorum {
        let start = || Server::builder().tcp().start().expect("a server");
        Quorum(thread::scope(|scope| {
            let starting = [(); 5].map(|()| scope.spawn(start));
            starting.into_iter().map(|server| server.join().expect("a server")).collect()
        }))
    }

    fn address(&self) -> String {
        self.0.iter().map(Server::tcp_url).collect::<Vec<_>>().join(" ")
    }

    fn builder(address: &str) -> QuorumClientBuilder {
        // Nobody restarts them.
        QuorumClient::builder(address.split(' ')).keeps_data(true)
    }

    fn servers(&self) -> Vec<&Server> {
        self.0.iter().collect()
    }

    fn keepers(&self, _name: &[u8]) -> Vec<&Server> {
        self.servers()
    }
}

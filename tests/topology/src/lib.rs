//! The topologies over which one suite of tests of the mutex runs, each with clients of its own kind. One server over TCP,
//! or over its socket, is where the tests of the library run.
//!
//! | module | what clients connect to |
//! | --- | --- |
//! | `tls` | one server, over TLS |
//! | `sentinel` | the master of a group with replicas, that sentinels tell of |
//! | `forwarded` | the same, and a cluster, where announced addresses must be mapped |
//! | `cluster` | three masters with replicas, each with a part of the names |
//! | `quorum` | five servers, a majority of which decides |
//!
//! `client` has what clients of all kinds have in common, `scene` what tests do there, and `suite` the list of
//! tests of a kind that a quorum does not have.

mod client;
mod cluster;
mod forwarded;
mod quorum;
pub mod scene;
mod sentinel;
mod suite;
mod tls;

pub use client::{Builder, Client};
pub use cluster::Cluster;
pub use forwarded::{ForwardedCluster, ForwardedSentinel};
pub use leasehold_support::Server;
pub use quorum::Quorum;
pub use sentinel::Sentinel;
pub use tls::Tls;

use leasehold::{LockClientBuilder, Wait};

/// Servers, and how clients reach them.
pub trait Topology: Sized + Send + Sync + 'static {
    /// What makes the clients.
    type Builder: Builder;

    /// The ways in which a mutex waits there, the usual one first.
    const WAITS: &'static [Wait];

    /// Whether a name may have braces that are no tag.
    const STRAY_BRACES: bool = true;

    /// Whether a lease of a mutex may have a tail.
    const TAILS: bool = true;

    /// Starts the servers, and waits until they serve.
    fn start() -> Self;

    /// How clients reach it: one line of text, which can be given to another process.
    fn address(&self) -> String;

    /// A builder of clients for an address.
    ///
    /// # Panics
    ///
    /// If it is none.
    fn builder(address: &str) -> Self::Builder;

    /// All processes of it.
    fn servers(&self) -> Vec<&Server>;

    /// The servers that keep the lock of this name, and take commands that write to it.
    fn keepers(&self, name: &[u8]) -> Vec<&Server>;
}

/// A topology in which a lock is on one server at a time.
pub trait Single: Topology<Builder = LockClientBuilder> {}

impl<T: Topology<Builder = LockClientBuilder>> Single for T {}

/// The ways in which a mutex waits on one server, or on one at a time.
const QUEUE_AND_SPIN: &[Wait] = &[Wait::queue(), Wait::spin()];

//! The client: how it is built, what it makes, and the interface of the articles on top of it.

mod builder;
mod servers;
#[macro_use]
mod distributed;
mod local_locks;
mod lock_client;
mod quorum_builder;
mod quorum_client;
mod setter;
mod settings;

pub use builder::LockClientBuilder;
pub use distributed::DistributedLock;
pub use local_locks::LocalLocks;
pub use lock_client::LockClient;
pub use quorum_builder::QuorumClientBuilder;
pub use quorum_client::QuorumClient;

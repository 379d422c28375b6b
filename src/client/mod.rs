//! The clients and their builders, and locking by key on top of them.

#[cfg(feature = "serde")]
mod address_map;
mod builder;
mod claim;
#[cfg(feature = "serde")]
mod client_settings;
mod close;
#[cfg(feature = "serde")]
mod environment;
mod servers;
#[macro_use]
mod distributed;
mod local_locks;
mod lock_client;
mod locks;
mod multi;
mod once;
mod query;
mod quorum_builder;
mod quorum_client;
mod setter;
mod settings;

pub use builder::LockClientBuilder;
#[cfg(feature = "serde")]
pub use client_settings::ClientSettings;
pub use distributed::DistributedLock;
pub use local_locks::LocalLocks;
pub use lock_client::LockClient;
pub use locks::{ListedLock, Locks};
pub use quorum_builder::QuorumClientBuilder;
pub use quorum_client::QuorumClient;

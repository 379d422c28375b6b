//! The client: how it is built, what it makes, and the interface of the articles on top of it.

mod builder;
mod distributed;
mod lock_client;

pub use builder::LockClientBuilder;
pub use distributed::DistributedLock;
pub use lock_client::LockClient;

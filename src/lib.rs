//! Distributed locks on Redis for threads.
//!
//! # The promise
#![cfg_attr(docsrs, feature(doc_cfg))]

mod base;
mod client;
mod engine;
mod lock;
mod protocol;
mod wire;

pub use base::error::{Error, Result};
pub use base::id::Holder;
pub use base::loss::{Loss, LossCause};
pub use base::option::{Lease, LockOptions, Release, Wait};
pub use base::token::FencingToken;
pub use client::{DistributedLock, LockClient, LockClientBuilder};
pub use lock::{Guard, Mutex, OwnedLease, ReentrantLock};
pub use redis;

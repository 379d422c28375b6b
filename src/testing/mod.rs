//! A server in memory, for tests of code that locks. With the feature `testing`.
//!
//! The [`LockClient`]s of a [`Server`] are real ones: slots, queue, renewal, loss and release are
//! the code that runs in production. Only the network, and what Redis keeps, are played. So a test
//! can let things go wrong that hardly ever do: lose an answer, cut a client off, delete a key,
//! and let an hour pass.
//!
//! ```toml
//! [dev-dependencies]
//! leasehold = { version = "0.1", features = ["testing"] }
//! ```
//!
//! | what goes wrong | how |
//! | --- | --- |
//! | a client is cut off, or hears nothing | [`Link::cut`], [`Link::silence`], [`Link::restore`] |
//! | a request, its answer, or a wake-up is lost | [`Link::lose_requests`], [`Link::lose_answers`], [`Link::lose_messages`] |
//! | a client listens at a replica of the server | [`Link::listen_at_replica`] |
//! | a request is not sent in time | [`Link::keep_requests`] |
//! | a request or its answer is late | [`Link::delay_requests`], [`Link::delay_answers`] |
//! | time passes; the process or its machine sleeps | [`Server::advance`], [`Server::suspend`] |
//! | a key is deleted, or another's; the server restarts | [`Server::delete`], [`Server::steal`], [`Server::flush`], [`Server::restart`] |
//!
//! # A test that work stops when the lock is lost
//!
//! ```
//! use leasehold::testing::Server;
//! use leasehold::{LossCause, Mutex, Result};
//! use std::time::Duration;
//!
//! // The code under test: it must not write once the lock may be another's.
//! fn work(lock: &Mutex, mut step: impl FnMut()) -> Result<u32> {
//!     let guard = lock.lock()?;
//!     let mut done = 0;
//!     while done < 10 && guard.is_valid() {
//!         step();
//!         done += 1;
//!     }
//!     guard.release()?; // an error if it was lost
//!     Ok(done)
//! }
//!
//! # fn main() -> Result<()> {
//! let server = Server::new();
//! let client = server.client();
//! let lock = client.mutex("report")?;
//!
//! // All is well, however long it takes: the lease is renewed.
//! assert_eq!(work(&lock, || server.advance(Duration::from_secs(60)))?, 10);
//!
//! // The network goes in the third step. The lease ends, and so does the work.
//! let mut steps = 0;
//! let outcome = work(&lock, || {
//!     steps += 1;
//!     if steps == 3 {
//!         server.link(&client).cut();
//!     }
//!     server.advance(Duration::from_secs(20));
//! });
//! assert!(outcome.unwrap_err().is_lost());
//! assert!(steps < 6, "it went on for {steps} steps");
//! # Ok(())
//! # }
//! ```
//!
//! # What it is not
//!
//! It is one server that does not fail over, and it knows no commands but those of the locks:
//! [`Guard::transaction`](crate::Guard::transaction) is refused, with an error that says so. Time-outs
//! of the pool do not happen, as there is none. How long things take can not be told from it.

#[cfg(test)]
mod agenda;
mod link;
#[cfg(test)]
mod proof;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod renewal;
#[cfg(test)]
mod scenario;
mod server;
#[cfg(test)]
mod shared_channel;
#[cfg(test)]
mod shutdown;

pub use link::Link;
pub use server::Server;

#[allow(unused_imports, reason = "named in the documentation")]
use crate::client::LockClient;

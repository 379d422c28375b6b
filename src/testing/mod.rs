//! A server in memory, for tests of code that locks. With the feature `testing`.
//!
//! The [`LockClient`]s of a [`Server`] are real ones: slots, queue, renewal, loss and release are the code that
//! runs in production, and so are the scripts, which the server runs in Lua. Only the network, and what Redis keeps,
//! are played. A test makes things go wrong on a [`Link`], or at the [`Server`], and decides how time passes.
//! [Testing](crate::guide::testing) in the guide has a table of the faults, a whole test, and the limits.
//!
//! Lua is built from its source. If the build of `mlua-sys` fails with `failed to find tool`, install a C compiler.
//!
//! ```
//! use leasehold::testing::Server;
//! use std::time::Duration;
//!
//! # fn main() -> leasehold::Result<()> {
//! let server = Server::new();
//! let client = server.client();
//! let guard = client.mutex("report")?.lock()?;
//!
//! // All is well, however long it takes: the lease is renewed.
//! server.advance(Duration::from_secs(600));
//! assert!(guard.is_valid());
//!
//! // The network fails, and the lease ends.
//! server.link(&client).cut();
//! server.advance(Duration::from_secs(31));
//! assert!(guard.release().unwrap_err().is_lost());
//! # Ok(())
//! # }
//! ```

mod link;
mod server;

pub use link::Link;
pub use server::Server;

#[allow(unused_imports, reason = "named in the documentation")]
use crate::client::LockClient;

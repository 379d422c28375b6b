//! A server in memory, behind the same backend trait as the real one. The same engine runs over it,
//! with the same commands, scripts and replies. Only the network and the data of Redis are
//! simulated.
//!
//! | module | what it has |
//! | --- | --- |
//! | `redis` | keys, commands, scripts and transactions, without a network, a clock or threads |
//! | `server` | the server that several clients share, with a clock and a network |
//! | `state` | its state: the store, its connections, and requests on their way |
//! | `link` | the faults between one client and the server |
//! | `connection` | one connection of a client |
//! | `backend` | the backend of one client |
//!
//! Nothing here knows a kind of lock. A test runs the same commands and scripts here and on a real
//! server, and compares the replies (`tests::parity`).

pub(crate) mod backend;
mod connection;
pub(crate) mod link;
mod redis;
pub(crate) mod server;
mod state;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use redis::{Store, call};

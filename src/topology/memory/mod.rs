//! A server in memory, behind the same backend trait as the real one. The same engine runs over it, with the same
//! commands, the same scripts and the same replies; only what travels, and what Redis keeps, are played.
//!
//! | module | what it has |
//! | --- | --- |
//! | `redis` | keys, commands, scripts and transactions, without a network, a clock or threads |
//! | `server` | that for several clients, with a clock and a network |
//! | `state` | what it keeps: the store, its connections, and what is on its way |
//! | `link` | what goes wrong between one client and the server |
//! | `connection` | one connection of a client |
//! | `backend` | the protocol of one client |
//!
//! Nothing here knows a kind of lock. That commands and scripts do what they do on a real server is tested
//! by running both with the same words (`tests::parity`).

pub(crate) mod backend;
mod connection;
pub(crate) mod link;
mod redis;
pub(crate) mod server;
mod state;
#[cfg(test)]
mod tests;

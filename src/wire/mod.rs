//! Connections to Redis, and nothing about locks. But for a few named files (`tests/it/layer.rs`) the only layer
//! that names `redis`.
//!
//! | module | what it has |
//! | --- | --- |
//! | `endpoint` | the address, checked |
//! | `socket` | a socket over TCP or on this machine, and a deadline for all that is done on it |
//! | `stream` | the bytes of a connection, in plain text or over TLS |
//! | `raw_connection` | the commands that open a connection, then packed commands out and replies in |
//! | `epoch` | where the server is, as far as a client can tell |
//! | `manager` | makes connections |
//! | `connect_attempts` | how many could be made, why the last one could not, and when another may be |
//! | `retry` | pauses between attempts |
//! | `pool` | how many connections, for how long, what to do with a spoilt one; r2d2 is beneath (`adapter`) |
//! | `batcher` | commands of many threads travel together |
//! | `connection` | commands out, replies in, each by its deadline, and whether it may still be used |
//! | `script` | scripts by digest, and the commands that run them |
//! | `fork_guard` | whether this process made the first client, or was forked from the one that did |
//! | `error_conversion` | the public error for a failure, with what to do |
//! | `failure` | what became of a command that brought no reply |
//! | `error_context` | the driver's errors in words, with the server's address |
//! | `locator` | where connections lead, and what a new one has to show |
//! | `subscription` | a connection that listens |
//! | `health` | which connections are likely dead because one is silent |
//! | `server_clock` | the server's time, seen from ours |
//! | `tls` | certificates for a `rediss://` address, sessions, and telling TLS faults from others |
//! | `token_args` | a fencing token as an argument of a command |
//! | `transport` | all of it as one: a pool for callers, a connection for the worker |

/// The driver's types that appear above: what a user's commands and their replies are made of.
pub(crate) use redis::{Arg, Pipeline, Value};

pub(crate) mod batcher;
pub(crate) mod connect_attempts;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod epoch;
pub(crate) mod error_context;
mod error_conversion;
pub(crate) mod failure;
pub(crate) mod fork_guard;
pub(crate) mod health;
pub(crate) mod locator;
pub(crate) mod manager;
pub(crate) mod pool;
pub(crate) mod raw_connection;
pub(crate) mod retry;
pub(crate) mod script;
pub(crate) mod server_clock;
mod socket;
mod stream;
pub(crate) mod subscription;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod token_args;
pub(crate) mod transport;

//! Connections to Redis, and nothing about locks. Except for a few files, which `tests/it/layer.rs`
//! names, it is the only layer that uses the crate `redis`.
//!
//! | module | what it has |
//! | --- | --- |
//! | `endpoint` | the address, checked |
//! | `socket` | a TCP or Unix socket, and one deadline for several reads and writes |
//! | `stream` | the bytes of a connection, in plain text or over TLS |
//! | `race` | a socket to the first of several addresses that accepts |
//! | `raw_connection` | the commands that open a connection, then packed commands out and replies in |
//! | `epoch` | periods during which a server stays in one place |
//! | `manager` | makes connections |
//! | `connect_attempts` | how many attempts to connect succeeded, why the last one failed, and when the next may begin |
//! | `retry` | pauses between attempts |
//! | `pool` | how long callers wait for a connection, and which ones may be used again; r2d2 is beneath (`adapter`) |
//! | `batcher` | sends commands of many threads in one write |
//! | `connection` | commands out, replies in, each with its deadline; whether the connection may be used again |
//! | `script` | scripts by digest, and the commands that run them |
//! | `fork_guard` | whether this process made the first client, or was forked from the one that did |
//! | `error_conversion` | the public error for a failure, with advice |
//! | `failure` | why a command has no reply |
//! | `error_context` | the driver's errors in words, with the server's address |
//! | `locator` | where connections lead, and what is checked on a new one |
//! | `subscription` | a connection that is subscribed to channels |
//! | `health` | which connections are likely dead because one is silent |
//! | `server_version` | whether the server is new enough |
//! | `server_clock` | the server's time, computed from the holder's clock |
//! | `tls` | certificates, sessions, and the recognition of TLS faults |
//! | `token_args` | a fencing token as an argument of a command |
//! | `worker_connection` | the connection of the worker, and its successor |
//! | `lane` | the connections that a request uses, and those that the worker falls back on |
//! | `transport` | one server: a pool for callers, a connection for the worker |

/// The driver's types that appear above: what a user's commands and their replies are made of.
pub(crate) use redis::{Arg, Cmd, Pipeline, Value};

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
pub(crate) mod lane;
pub(crate) mod locator;
pub(crate) mod manager;
mod packed_command;
pub(crate) mod pool;
mod race;
pub(crate) mod raw_connection;
pub(crate) mod retry;
pub(crate) mod script;
pub(crate) mod server_clock;
mod server_version;
mod socket;
mod stream;
pub(crate) mod subscription;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod token_args;
pub(crate) mod transport;
mod worker_connection;

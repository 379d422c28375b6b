//! A small Redis: its keys, its commands, its scripts and its transactions, without a network, a
//! clock or threads. The server's time comes with every run.
//!
//! | module | what it has |
//! | --- | --- |
//! | `store` | keys that expire, and listeners: a value that can be compared and hashed |
//! | `command` | one command by its words: the keys it changes, and its reply |
//! | `call` | running a command or, as `EVAL`, a script |
//! | `lua` | scripts, over the same commands |
//! | `connection_state` | one connection's `WATCH`, `MULTI` and `EXEC` |
//! | `number` | how Redis reads and prints numbers |
//! | `reply` | error replies, with the codes and texts of Redis |
//!
//! Nothing here is about locks, and no path leads out of this folder, because another crate
//! includes it by path. `tests::parity`, beside this folder, compares it with a real server.

mod call;
mod command;
mod connection_state;
mod lua;
mod number;
mod reply;
mod store;

pub(crate) use call::call;
#[cfg(test)]
pub(crate) use command::{Access, all};
pub(crate) use connection_state::ConnectionState;
pub(crate) use reply::ErrorReply;
pub(crate) use store::{Published, Store};

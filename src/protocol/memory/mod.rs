//! A server in memory, behind the same seam as the real one. It is the same engine that runs over
//! it, with the same requests and answers; only what travels, and the scripts, are not Redis's.
//!
//! | module | what it has |
//! | --- | --- |
//! | `store` | keys that expire, and who listens: a value, without clock or threads |
//! | `request` | what a script is asked, as a value |
//! | `token`, `mutex`, `reentrant` | the scripts, line by line |
//! | `server` | a store for several clients, with a clock, and with what is on its way to it |
//! | `link` | what goes wrong between one client and the server |
//! | `client` | the protocol of one client |
//!
//! That the scripts are the same is tested by running both with the same requests (`likeness`).

pub(crate) mod client;
#[cfg(test)]
mod likeness;
pub(crate) mod link;
pub(crate) mod mutex;
pub(crate) mod reentrant;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod store;
mod token;

pub(crate) use request::Scripts;

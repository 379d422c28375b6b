//! Faults: the injectors, their places, and the proof that they fired.
//!
//! | module | what it has |
//! | --- | --- |
//! | `message` | the actions of a proxy on a message, and their triggers |
//! | `operation` | the operation of a message; a script is known by its digest |
//! | `injector` | the face of all injectors: begin, prove, heal |
//! | [`network`] | faults of the proxy, each at a named operation |
//! | [`server`] | faults of the server's process and of its connections |
//! | [`setting`] | settings with which a server refuses commands |
//! | [`command`] | commands of an operator on the keys |
//! | [`process`] | faults of a process that holds a lock or waits for it |

pub mod command;
mod injector;
mod message;
pub mod network;
mod operation;
pub mod process;
pub mod server;
pub mod setting;

pub use injector::{Active, Fired, Injector, Site};
pub use message::{Action, Direction, Fault, Injection, Trigger};
pub(crate) use operation::names;
pub use operation::{Operation, PLANTED, UnknownScript, digest, scripts};

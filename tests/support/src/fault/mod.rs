//! Faults: what goes wrong, where, and the proof that it did.
//!
//! | module | what it has |
//! | --- | --- |
//! | `message` | what a proxy does to a message, and which message sets it off |
//! | `operation` | what a message is for, told by its shape |
//! | `injector` | the face of all injectors: begin, prove, heal |
//! | [`network`] | faults of the proxy, each at a named operation |
//! | [`server`] | faults of the server's process and of its connections |
//! | [`setting`] | settings with which a server refuses commands |
//! | [`command`] | what an operator may do to the keys |
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
pub use operation::Operation;

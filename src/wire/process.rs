//! Whether this is the process that made a client.

use crate::wire::failure::{Failure, Hindrance};

/// The process to which connections belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that this runs in.
    pub(crate) fn here() -> Process {
        Process(std::process::id())
    }

    /// A fork shares its parent's sockets; what it sent would be mixed into the parent's stream.
    pub(crate) fn check(self) -> Result<(), Failure> {
        if std::process::id() == self.0 { Ok(()) } else { Err(Failure::NotSent(Hindrance::Forked)) }
    }
}

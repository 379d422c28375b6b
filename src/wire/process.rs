//! Whether this is the process that made a client.

use crate::base::sync::{AtomicU32, Ordering};
use crate::wire::failure::{Failure, NotSentReason};

/// The process in which the first client was made; 0 before that.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// The process to which connections belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that this runs in.
    pub(crate) fn here() -> Process {
        Process(std::process::id())
    }

    /// Makes sure that clients can be made here: not in a fork of a process that had one.
    ///
    /// Such a fork lacks the client's threads, but has a copy of what they wait for in `parking_lot`'s
    /// table. Threads that it starts come to lie at the same addresses, and then miss wake-ups.
    pub(crate) fn settle() -> Result<(), Failure> {
        let here = std::process::id();
        match FIRST.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if first != here => Err(Failure::NotSent(NotSentReason::Forked)),
            _ => Ok(()),
        }
    }

    /// A fork shares its parent's sockets; what it sent would be mixed into the parent's stream.
    pub(crate) fn check(self) -> Result<(), Failure> {
        if std::process::id() == self.0 {
            Ok(())
        } else {
            Err(Failure::NotSent(NotSentReason::Forked))
        }
    }
}

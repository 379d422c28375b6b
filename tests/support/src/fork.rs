//! A process that forks, as servers with worker processes do.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

/// A fork of this process.
#[derive(Debug)]
pub struct Forked(i32);

/// Forks this process. The fork does the work, which is given all that this process had in memory
/// and its one thread, and ends: with 0, or with 1 if it panicked.
///
/// # Errors
///
/// If the system cannot.
pub fn fork(work: impl FnOnce()) -> io::Result<Forked> {
    match fork::fork()? {
        fork::Fork::Parent(process) => Ok(Forked(process)),
        fork::Fork::Child => {
            let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
            // Destructors are the parent's business.
            std::process::exit(i32::from(panicked));
        }
    }
}

impl Forked {
    /// Returns the fork's process id.
    pub fn pid(&self) -> u32 {
        self.0.unsigned_abs()
    }

    /// Waits for the end of the fork.
    ///
    /// # Errors
    ///
    /// If the system cannot.
    pub fn wait(self) -> io::Result<ExitStatus> {
        fork::waitpid(self.0).map(ExitStatus::from_raw)
    }
}

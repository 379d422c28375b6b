//! A process that may open no more files and sockets.

use std::fs::File;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit on descriptors meanwhile: more than a test has open.
const LIMIT: u64 = 512;

/// All descriptors of this process are taken until this is dropped.
#[derive(Debug)]
pub struct NoDescriptors {
    before: Rlimit,
    taken: Vec<File>,
}

impl NoDescriptors {
    /// Takes all that are left.
    ///
    /// # Errors
    ///
    /// If the system does not allow to set the limit.
    pub fn take() -> io::Result<NoDescriptors> {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..before })?;
        let taken = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        Ok(NoDescriptors { before, taken })
    }

    /// Returns whether none is left.
    pub fn is_in_force(&self) -> bool {
        !self.taken.is_empty() && File::open("/dev/null").is_err()
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        // Lowered as anybody may, so that it may be raised again.
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

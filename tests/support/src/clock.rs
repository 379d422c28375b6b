//! A wall clock of a process's own, which a test can set.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::directory::Directory;
use crate::preload;

/// The wall clock of the processes that were started with its variables; all other clocks are the
/// system's. Linux only, and it needs a C compiler.
#[derive(Debug)]
pub struct WallClock(Directory);

impl WallClock {
    /// Makes one that is right.
    ///
    /// # Errors
    ///
    /// If there is no C compiler (`cc`), or it cannot compile.
    pub fn new() -> io::Result<Self> {
        let clock = Self(Directory::create()?);
        clock.set(0)?;
        preload::compile(clock.0.path(), "clock", include_str!("clock.c"))?;
        Ok(clock)
    }

    /// Sets the lead over the system's clock, in microseconds.
    ///
    /// # Errors
    ///
    /// If its file cannot be written.
    pub fn set(&self, micros: i64) -> io::Result<()> {
        use std::io::Write;
        // In place: processes with this clock have the file mapped.
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        options.open(self.ahead())?.write_all(&micros.to_ne_bytes())
    }

    /// Returns the environment variables of a process with this clock.
    pub fn variables(&self) -> [(OsString, OsString); 2] {
        preload::variables(self.0.path(), "clock", ("LEASEHOLD_CLOCK", self.ahead().as_path()))
    }

    fn ahead(&self) -> PathBuf {
        self.0.path().join("ahead")
    }
}

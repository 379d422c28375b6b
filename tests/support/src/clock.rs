//! A wall clock of a process's own, which a test can set.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::directory::Directory;

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
        let (source, library) = (clock.path("clock.c"), clock.path("clock.so"));
        std::fs::write(&source, include_str!("clock.c"))?;
        clock.set(0)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source);
        let output = compiler.output()?;
        if output.status.success() {
            Ok(clock)
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
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
        options.open(self.path("ahead"))?.write_all(&micros.to_ne_bytes())
    }

    /// Returns the environment variables of a process with this clock.
    pub fn variables(&self) -> [(OsString, OsString); 2] {
        let variable = |name: &str, file: &str| (name.into(), self.path(file).into_os_string());
        [variable("LD_PRELOAD", "clock.so"), variable("LEASEHOLD_CLOCK", "ahead")]
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }
}

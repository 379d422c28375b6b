//! The clock that all processes share, and the file that one of them records to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use super::event::{Event, What, line, parse};

/// `CLOCK_MONOTONIC`, in ns: the same for all processes of the machine.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// The record of a process. Each event is written at once, so that at most the last line is missing
/// if the process is killed.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    process: u32,
}

impl Recorder {
    /// Appends to a file, which is made if need be.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file, process: std::process::id() })
    }

    /// Records an event of this process, at this moment.
    ///
    /// # Panics
    ///
    /// If it cannot be written: a history with a hole proves nothing.
    pub fn note(&self, at: u64, thread: u32, call: u64, lock: u32, what: What) {
        let line = line(&Event { at, process: self.process, thread, call, lock, what });
        // One write, so that lines of several threads do not mix.
        let written = (&self.file).write_all(line.as_bytes());
        written.expect("the record is written");
    }
}

/// Reads the recorded events, without an incomplete last line.
///
/// # Errors
///
/// If it cannot be read, or another line is not whole.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let broken = |line: &str| io::Error::other(format!("no event: {line:?}"));
    let lines = whole.lines();
    lines.map(|line| parse(line).ok_or_else(|| broken(line))).collect()
}

//! Tests that cannot run here, and report that.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// The file, if any, that gets a line for each test that was skipped.
const FILE: &str = "LEASEHOLD_SKIPS";

/// Says that this thread's test cannot run here, and why: `SKIPPED: <test>: <why>`, on standard
/// error, past what captures the output of tests that pass, and in the file that `LEASEHOLD_SKIPS`
/// names.
///
/// The test returns right after it. No test returns early without it.
pub fn skip(why: impl Display) {
    let thread = std::thread::current();
    // The harness names the thread of a test after it.
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(FILE).filter(|path| !path.is_empty()) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        // One write, as other programs write to it too.
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file of skipped tests");
    }
}

/// Returns what was started, or says that this thread's test is [skipped](skip) where there is no
/// program for it.
///
/// # Panics
///
/// If there is one that did not start.
pub fn or_skip<T>(started: io::Result<T>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            skip(error);
            None
        }
        Err(error) => panic!("the test server does not start: {error}"),
    }
}

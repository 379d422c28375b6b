//! Signals to other processes.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};

pub(crate) use rustix::process::Signal;

/// Sends a signal, and sees to it that a stopped process has stopped.
///
/// # Panics
///
/// If there is no such process.
pub(crate) fn send(process: u32, signal: Signal) {
    if let Err(error) = try_send(process, signal) {
        panic!("cannot send {signal:?} to process {process}: {error}");
    }
    if signal == Signal::STOP {
        await_stopped(process);
    }
}

pub(crate) fn try_send(process: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// `kill` returns before the process has stopped; if the system reports its state, wait for that.
fn await_stopped(process: u32) {
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        if matches!(state(process), None | Some('T' | 'Z')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the letter for a process's state, such as `T` for a stopped one; `None` if there is no
/// such process.
pub(crate) fn state(process: u32) -> Option<char> {
    if let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) {
        return text.rsplit(") ").next()?.chars().next();
    }
    if std::path::Path::new("/proc/self/stat").exists() {
        return None;
    }
    // Systems without that folder.
    let output = Command::new("ps").args(["-o", "state=", "-p", &process.to_string()]).output();
    String::from_utf8(output.ok()?.stdout).ok()?.trim().chars().next()
}

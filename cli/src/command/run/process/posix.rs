//! What POSIX has: the table that `ps` prints.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::{Found, Process, below};

/// What is below this process, and not below those.
pub(super) fn search(except: &HashSet<i32>) -> Found {
    let own = getpid().as_raw_pid();
    let mut all = all();
    all.retain(|process| !except.contains(&process.pid));
    let (children, others): (Vec<_>, Vec<_>) =
        below(own, &all).into_iter().partition(|process| process.parent == own);
    Found { children: children.into_iter().map(|child| child.pid).collect(), others }
}

/// How many processes are below this one, about.
pub(super) fn count() -> usize {
    below(getpid().as_raw_pid(), &all()).len()
}

/// There are no control groups.
pub(super) fn send_while(_process: i32, _is_there: impl Fn() -> bool, _signals: &[Signal]) {}

/// The children of this process, by number.
pub(super) fn children() -> Option<Vec<i32>> {
    let own = getpid().as_raw_pid();
    let all = all();
    let children = all.iter().filter(|process| process.parent == own);
    (!all.is_empty()).then(|| children.map(|child| child.pid).collect())
}

pub(super) fn can_look() -> bool {
    let own = getpid().as_raw_pid();
    all().iter().any(|process| process.pid == own)
}

fn all() -> Vec<Process> {
    let output = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Process { pid, parent, is_zombie: words.next()?.starts_with('Z'), born: 0 })
    });
    lines.collect()
}

pub(super) fn send(process: Process, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.pid) {
        let _ = kill_process(pid, signal);
    }
}

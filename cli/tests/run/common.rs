//! The program under test, and what is seen of it.

use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_support::Server;
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that has no time of its own.
pub(crate) const LONG: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);

/// `leasehold run`, against this URL.
pub(crate) fn run(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("run").env("REDIS_URL", url).env_remove("LEASEHOLD_URL");
    command
}

/// Waits until it is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        sleep(PAUSE);
    }
}

/// Waits for the end of a child.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the end of the program", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    status.expect("its status")
}

pub(crate) fn send(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("a living process");
}

/// The children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let processes =
        processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |process: &u32| {
        // The name in it need not be UTF-8.
        let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let parents = stat.rsplit_once(") ").and_then(|(_, tail)| tail.split(' ').nth(1));
        parents == Some(parent.to_string().as_str())
    };
    processes.filter(is_child).collect()
}

/// Asks the server.
pub(crate) fn ask<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(&mut server.connection()).expect("a reply")
}

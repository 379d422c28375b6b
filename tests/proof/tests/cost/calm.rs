//! Watches a process that cannot be traced.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::gauge::Gauge;
use crate::observer::PATIENCE;

/// How often to look.
const POLL: Duration = Duration::from_micros(200);

/// Whether a thread sleeps until something happens; an error if it is gone.
pub(crate) fn sleeps(process: Pid, thread: Pid) -> std::io::Result<bool> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"))?;
    // After the name of the program, which may have anything in it.
    let state = text.rsplit_once(") ").map(|(_, rest)| rest.starts_with('S'));
    Ok(state.unwrap_or(false))
}

/// Looks at the threads of a process from outside.
pub(crate) struct Watcher {
    process: Pid,
    /// The thread of the operation.
    main: Pid,
    /// Threads of the harness, which were there before.
    others: Vec<Pid>,
}

impl Watcher {
    pub(crate) fn new(process: Pid, main: Pid) -> Watcher {
        let mut watcher = Watcher { process, main, others: Vec::new() };
        watcher.others = watcher.threads();
        watcher.others.retain(|thread| *thread != main);
        watcher
    }

    /// Waits until all threads sleep, and that of the operation waits for an order.
    pub(crate) fn until_calm(&mut self, gauge: &mut Gauge<'_>) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let before = self.switches();
            gauge.settle();
            if before.is_some() && before == self.switches() && self.waits_for_an_order() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err("it does not come to rest".to_owned())
    }

    /// How often each thread has slept, if all sleep now.
    fn switches(&self) -> Option<Vec<(Pid, String)>> {
        let threads = self.threads().into_iter().filter(|thread| !self.others.contains(thread));
        threads
            .map(|thread| {
                let path = format!("/proc/{}/task/{thread}/status", self.process);
                let status = fs::read_to_string(path).ok()?;
                let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
                let is_asleep = sleeps(self.process, thread).is_ok_and(|sleeps| sleeps);
                is_asleep.then(|| (thread, lines.collect()))
            })
            .collect()
    }

    /// The thread of the operation sleeps at its standard input, which has nothing more.
    fn waits_for_an_order(&self) -> bool {
        let path = format!("/proc/{}/task/{}/wchan", self.process, self.main);
        // Not each system tells where a thread sleeps.
        fs::read_to_string(path)
            .map_or(true, |place| place.is_empty() || place == "0" || place.contains("pipe"))
    }

    fn threads(&self) -> Vec<Pid> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.process));
        let names = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok().map(Pid::from_raw)).collect()
    }
}

//! The processes that descend from one, and how they are ended.
//!
//! A job may fork while it is looked at. So a look is repeated until it finds nothing new, and all that was found
//! is stopped before the first of it is killed: nobody can react to the death of another.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::failure::Failure;
use crate::status;

/// The rank before all others.
const FIRST: i32 = -20;

/// A process, as one look at the system showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pid: i32,
    parent: i32,
    /// Whether all its threads have ended.
    is_zombie: bool,
    /// When it began. The system gives a number of a dead process to a new one sooner or later.
    born: u64,
}

/// How often a job is looked at for more processes to stop. One that forks faster is killed while it does.
const FREEZES: usize = 8;

/// All living processes below `root` in the tree of processes, parents before their children.
fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let (mut found, mut next) = (Vec::new(), children.remove(&root).unwrap_or_default());
    while let Some(process) = next.pop() {
        // Taken out of the map, so that a circle, which two looks in one may show, has an end.
        next.extend(children.remove(&process.pid).unwrap_or_default());
        found.push(process);
    }
    found.retain(|process| !process.is_zombie && process.pid != root);
    found
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

    use super::*;

    fn parse(stat: &str) -> Option<Process> {
        // The name, in parentheses, may have any letter.
        let (head, tail) = stat.rsplit_once(") ")?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let mut fields = tail.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads: u64 = fields.nth(15)?.parse().ok()?;
        // The state is that of the first thread. It may have ended alone, and is counted until the last one ends.
        let is_zombie = matches!(state, "Z" | "X") && threads <= 1;
        let born = fields.nth(1)?.parse().ok()?;
        Some(Process { pid, parent, is_zombie, born })
    }

    fn look(pid: &str) -> Option<Process> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The living descendants, parents before their children. It reads a few files for each, where the kernel lists
    /// the children of a process: on a busy machine that is the shortest time until the last of them is stopped.
    pub(super) fn descendants(root: i32) -> Vec<Process> {
        let own = rustix::process::getpid().as_raw_nonzero();
        if !std::path::Path::new(&format!("/proc/self/task/{own}/children")).exists() {
            return below(root, &all());
        }
        let (mut found, mut next) = (Vec::new(), children(root));
        while let Some(process) = next.pop() {
            next.extend(children(process.pid));
            found.push(process);
        }
        found.retain(|process| !process.is_zombie);
        found
    }

    /// Whether this process finds itself where it looks for the processes of a job.
    pub(super) fn can_look() -> bool {
        look("self").is_some_and(|own| own.pid == rustix::process::getpid().as_raw_pid())
    }

    /// Of all its threads.
    fn children(parent: i32) -> Vec<Process> {
        let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
        let lists = threads.filter_map(|thread| {
            std::fs::read_to_string(thread.ok()?.path().join("children")).ok()
        });
        let found: Vec<_> = lists
            .flat_map(|list| list.split_whitespace().filter_map(look).collect::<Vec<_>>())
            // The number may have a new owner, which is nobody of the job.
            .filter(|process| process.parent == parent)
            .collect();
        found
    }

    fn all() -> Vec<Process> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = names.filter(|name| name.starts_with(|letter: char| letter.is_ascii_digit()));
        pids.filter_map(|pid| look(&pid)).collect()
    }

    pub(super) fn send(process: Process, pid: Pid, signal: Signal) {
        // The descriptor stands for the process that has the number now. If that began when ours did, it is ours, and stays.
        let descriptor = pidfd_open(pid, PidfdFlags::empty());
        let now = look(&process.pid.to_string());
        if now.is_none_or(|now| now.born != process.born) {
            return;
        }
        let sent = descriptor.and_then(|descriptor| pidfd_send_signal(descriptor, signal));
        // Before Linux 5.3, where a filter forbids it, or where no descriptor is free: by the number alone.
        if sent.is_err_and(|error| error != Errno::SRCH) {
            let _ = kill_process(pid, signal);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn stat_of_a_strangely_named_process_is_read() {
            let stat = "71 (a) b (c) S 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 999 1 1";
            let expected = Process { pid: 71, parent: 7, is_zombie: false, born: 999 };
            assert_eq!(parse(stat), Some(expected));
            let zombie = |threads: u8| {
                let stat = format!("71 (a) Z 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 {threads} 0 999 1");
                parse(&stat).expect("a process").is_zombie
            };
            assert!(zombie(1) && !zombie(2), "others of its threads run");
            for torn in ["", "71 (a", "71 (a) S", "71 (a) S 7 1 1"] {
                assert_eq!(parse(torn), None, "{torn:?}");
            }
        }
    }
}

/// What POSIX has: the table that `ps` prints.
#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::process::kill_process;

    use super::*;

    pub(super) fn descendants(root: i32) -> Vec<Process> {
        below(root, &all())
    }

    pub(super) fn can_look() -> bool {
        let own = rustix::process::getpid().as_raw_pid();
        all().iter().any(|process| process.pid == own)
    }

    fn all() -> Vec<Process> {
        let output =
            std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Process { pid, parent, is_zombie: words.next()?.starts_with('Z'), born: 0 })
        });
        lines.collect()
    }

    pub(super) fn send(_process: Process, pid: Pid, signal: Signal) {
        let _ = kill_process(pid, signal);
    }
}

/// Fails where the processes of a job could not be found, and so not be killed.
pub(crate) fn check() -> Result<(), Failure> {
    if system::can_look() {
        return Ok(());
    }
    let text = "the processes of a job could not be ended: /proc, or ps(1), does not show this one";
    Err(Failure::new(status::INTERNAL, text))
}

fn descendants(root: Pid) -> Vec<Process> {
    system::descendants(root.as_raw_nonzero().get())
}

fn send(process: Process, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.pid) {
        system::send(process, pid, signal);
    }
}

/// Asks all processes below `root` to end. A stopped one has to go on to be able to.
pub(crate) fn terminate_below(root: Pid) {
    for process in descendants(root) {
        send(process, Signal::TERM);
        send(process, Signal::CONT);
    }
}

/// Kills all processes below `root` that it finds. Call it again until [`reap`] says that none is left: what was
/// forked meanwhile is found by the next call.
pub(crate) fn kill_below(root: Pid) {
    let mut stopped = HashSet::new();
    let mut found = descendants(root);
    for _ in 0..FREEZES {
        let new: Vec<_> = found.iter().filter(|process| stopped.insert(process.pid)).collect();
        if new.is_empty() {
            break;
        }
        new.into_iter().for_each(|process| send(*process, Signal::STOP));
        found = descendants(root);
    }
    found.into_iter().for_each(|process| send(process, Signal::KILL));
}

/// Lets this process run before all others, where it may. Returns the rank that it had, for the job.
pub(crate) fn go_first() -> i32 {
    let usual = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, FIRST);
    usual
}

/// Gives up the first place.
pub(crate) fn go_with(usual: i32) {
    let _ = rustix::process::setpriority_process(None, usual);
}

/// What happened to a child.
#[derive(Debug)]
pub(crate) enum Reaped {
    Changed(Pid, WaitStatus),
    /// There are children, and none has news.
    Nothing,
    /// There is no child, and so, where orphans come to this process, no descendant.
    NoChild,
}

pub(crate) fn reap() -> Reaped {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    match rustix::process::wait(options) {
        Ok(Some((pid, status))) => Reaped::Changed(pid, status),
        Err(rustix::io::Errno::CHILD) => Reaped::NoChild,
        Ok(None) | Err(_) => Reaped::Nothing,
    }
}

/// Makes the orphans below this process its children, where the system can do that.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, is_zombie: false, born: 0 }
    }

    #[test]
    fn descendants_are_found_below_dead_parents_too() {
        let zombie = Process { is_zombie: true, ..process(12, 10) };
        let all = [
            process(1, 0),
            process(10, 1),
            zombie,
            process(13, 12),
            process(14, 13),
            process(20, 1),
        ];
        assert_eq!(below(10, &all), [process(13, 12), process(14, 13)]);
        assert_eq!(below(14, &all), []);
    }

    #[test]
    fn parents_come_before_their_children() {
        let all = [process(5, 3), process(3, 2), process(4, 3), process(2, 1)];
        let found = below(1, &all);
        let place = |pid| found.iter().position(|process| process.pid == pid);
        assert!(place(2) < place(3) && place(3) < place(4) && place(3) < place(5));
    }

    #[test]
    fn circle_of_parents_has_an_end() {
        let all = [process(2, 3), process(3, 2), process(1, 3)];
        assert_eq!(below(1, &all), []);
        assert_eq!(below(2, &all).len(), 2);
    }
}

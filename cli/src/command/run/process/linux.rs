//! Linux: the files of `/proc`.

use std::collections::HashSet;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

use super::{Found, Process, below};

/// A tree of files as `/proc` is.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    fn system() -> Files {
        Files(PathBuf::from("/proc"))
    }

    fn look(&self, pid: &str) -> Option<Process> {
        parse(&std::fs::read(self.0.join(pid).join("stat")).ok()?)
    }

    /// The numbers of the children of all threads of a process, those that nobody has waited for included. None where
    /// the kernel does not list them, or hides the process.
    fn listed(&self, parent: &str) -> Option<Vec<i32>> {
        let mut numbers = None;
        for thread in std::fs::read_dir(self.0.join(parent).join("task")).ok()?.flatten() {
            // It may have ended.
            let Ok(list) = std::fs::read_to_string(thread.path().join("children")) else {
                continue;
            };
            let numbers = numbers.get_or_insert_with(Vec::new);
            numbers.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        numbers
    }

    /// What is below this process, `own`, and not below those. It reads a few files for each, where the kernel lists
    /// the children of a process: on a busy machine that is the shortest time until the last of them is stopped.
    fn search(&self, own: i32, except: &HashSet<i32>) -> Found {
        let Some(mut children) = self.listed("self") else {
            return self.search_all(own, except);
        };
        children.retain(|child| !except.contains(child));
        let mut next: Vec<_> = children.iter().flat_map(|child| self.children(*child)).collect();
        let mut others = Vec::new();
        while let Some(process) = next.pop() {
            next.extend(self.children(process.pid));
            others.push(process);
        }
        others.retain(|process| !process.is_zombie);
        Found { children, others }
    }

    fn search_all(&self, own: i32, except: &HashSet<i32>) -> Found {
        let mut all = self.all();
        all.retain(|process| !except.contains(&process.pid));
        let (children, others): (Vec<_>, Vec<_>) =
            below(own, &all).into_iter().partition(|process| process.parent == own);
        Found { children: children.into_iter().map(|child| child.pid).collect(), others }
    }

    /// How many processes are below this one, `own`, without a look at each.
    fn count(&self, own: i32) -> usize {
        let Some(mut next) = self.listed("self") else { return below(own, &self.all()).len() };
        let mut found = HashSet::new();
        while let Some(process) = next.pop() {
            // A number that was given to another meanwhile may close a circle.
            if found.insert(process) {
                next.extend(self.listed(&process.to_string()).unwrap_or_default());
            }
        }
        found.len()
    }

    fn children(&self, parent: i32) -> Vec<Process> {
        let listed = self.listed(&parent.to_string()).unwrap_or_default();
        let looked = listed.into_iter().filter_map(|pid| self.look(&pid.to_string()));
        // The number may have a new owner, which is nobody of the job.
        looked.filter(|process| process.parent == parent).collect()
    }

    fn all(&self) -> Vec<Process> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = names.filter(|name| name.starts_with(|letter: char| letter.is_ascii_digit()));
        pids.filter_map(|pid| self.look(&pid)).collect()
    }
}

/// Reads bytes: the name of a process, in parentheses, may have any, and is cut in the midst of a letter.
fn parse(stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let pid = stat.split(|byte| *byte == b' ').next()?;
    let pid = std::str::from_utf8(pid).ok()?.parse().ok()?;
    let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u64 = fields.nth(15)?.parse().ok()?;
    // The state is that of the first thread. It may have ended alone, and is counted until the last one ends.
    let is_zombie = matches!(state, "Z" | "X") && threads <= 1;
    let born = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, is_zombie, born })
}

fn own() -> i32 {
    getpid().as_raw_pid()
}

/// What is below this process, and not below those.
pub(super) fn search(except: &HashSet<i32>) -> Found {
    Files::system().search(own(), except)
}

/// How many processes are below this one, about.
pub(super) fn count() -> usize {
    Files::system().count(own())
}

/// The children of this process, by number. None where the kernel does not list them.
pub(super) fn children() -> Option<Vec<i32>> {
    Files::system().listed("self")
}

/// Whether this process finds itself where it looks for the processes of a job.
pub(super) fn can_look() -> bool {
    Files::system().look("self").is_some_and(|found| found.pid == own())
}

/// Sends them to the process that has this number, if it is there after a descriptor stands for it.
pub(super) fn send_while(process: i32, is_there: impl Fn() -> bool, signals: &[Signal]) {
    let descriptor = Pid::from_raw(process).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let Some(Ok(descriptor)) = descriptor
        && is_there()
    {
        for signal in signals {
            let _ = pidfd_send_signal(&descriptor, *signal);
        }
    }
}

pub(super) fn send(process: Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    // The descriptor stands for the process that has the number now. If that began when ours did, it is ours, and stays.
    let descriptor = pidfd_open(pid, PidfdFlags::empty());
    let now = Files::system().look(&process.pid.to_string());
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
        let expected = Process { pid: 71, parent: 7, is_zombie: false, born: 999 };
        for name in [&b"a) b (c"[..], b"sauvegarde-\xc3", b"\xff) \xfe", b""] {
            let rest = b") S 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 999 1 1\n";
            let stat = [b"71 (", name, rest].concat();
            assert_eq!(parse(&stat), Some(expected), "{name:?}");
        }
        let zombie = |threads: u8| {
            let stat = format!("71 (a) Z 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 {threads} 0 999 1");
            parse(stat.as_bytes()).expect("a process").is_zombie
        };
        assert!(zombie(1) && !zombie(2), "others of its threads run");
        for torn in ["", "71 (a", "71 (a) S", "71 (a) S 7 1 1"] {
            assert_eq!(parse(torn.as_bytes()), None, "{torn:?}");
        }
    }

    /// A tree of files that is deleted at its end.
    struct Tree(Files);

    impl Tree {
        fn new(name: &str) -> Tree {
            let folder = std::env::temp_dir().join(format!("lh-proc-{}-{name}", own()));
            Tree(Files(folder))
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("it");
            std::fs::write(path, text).expect("a file");
        }

        fn stat(&self, pid: i32, parent: i32) {
            let text = format!("{pid} (x) S {parent} 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 {pid} 1");
            self.write(&format!("{pid}/stat"), &text);
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.0);
        }
    }

    /// The numbers of a search, in order.
    fn numbers(found: &Found) -> (Vec<i32>, Vec<i32>) {
        let (mut children, mut others) = (found.children.clone(), Vec::new());
        others.extend(found.others.iter().map(|process| process.pid));
        children.sort_unstable();
        others.sort_unstable();
        (children, others)
    }

    #[test]
    fn children_are_found_that_proc_hides() {
        let tree = Tree::new("hidden");
        // Of two threads. 11 and 12 are hidden, and so is what is below them.
        tree.write("self/task/10/children", "11 12 ");
        tree.write("self/task/19/children", "13 ");
        tree.stat(13, 10);
        tree.write("13/task/13/children", "14 15 ");
        tree.stat(14, 13);
        // A number that was a child's, and is another's now.
        tree.stat(15, 1);
        let found = tree.0.search(10, &HashSet::new());
        assert_eq!(numbers(&found), (vec![11, 12, 13], vec![14]));
        assert_eq!(tree.0.count(10), 5);
        let found = tree.0.search(10, &HashSet::from([13, 12]));
        assert_eq!(numbers(&found), (vec![11], vec![]), "what is below a stranger is strange too");
    }

    #[test]
    fn all_processes_are_looked_at_where_the_kernel_lists_no_children() {
        let tree = Tree::new("unlisted");
        tree.write("self/task/10/stat", "");
        for (pid, parent) in [(10, 1), (11, 10), (12, 11), (13, 10), (14, 13)] {
            tree.stat(pid, parent);
        }
        assert_eq!((tree.0.listed("self"), tree.0.count(10)), (None, 4));
        let found = tree.0.search(10, &HashSet::from([13]));
        assert_eq!(numbers(&found), (vec![11], vec![12]));
        assert_eq!(Tree::new("absent").0.search(10, &HashSet::new()), Found::default());
    }
}

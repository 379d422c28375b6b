//! The processes that descend from this one, and how they are ended.
//!
//! | way of finding them | what it finds |
//! | --- | --- |
//! | `/proc/self/task/*/children` | the children of this process, whatever else `/proc` hides. They are unreaped, so their numbers are theirs, and each is signalled by its number without a look at it |
//! | the same of these, and so on | the whole tree, as far as it can be seen. A number counts once a look at the process has confirmed its parent |
//! | `/proc/*/stat` | both, where the kernel lists no children |
//! | a control group of the job (cgroup v2) | all processes of the job but those that have left it, also where they are in another PID namespace and their parent is dead |
//!
//! A process that is not found is the child of one that is. When that one is dead, it becomes a child of this process,
//! which is a subreaper, and is found by the next call.
//!
//! A job may fork while it is looked at. So a look is repeated until it finds nothing new, and all that was found
//! is stopped before the first of it is killed: nobody can react to the death of another.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::group::Group;
use crate::failure::Failure;
use crate::status;

mod reap;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "posix.rs")]
mod system;

use reap::is_running;
pub(crate) use reap::{Reaped, adopt_orphans, group, reap};

/// The rank before all others.
const FIRST: i32 = -20;

/// How often a job is looked at for more processes to stop. One that forks faster is killed while it does.
const FREEZES: usize = 8;

/// A search takes long for a crowd, and keeps the processor from those that die. So while a control group has
/// processes, one search goes with so many kills of it.
const KILLS_PER_SEARCH: u32 = 8;

/// Up to this many processes are killed faster one by one than together.
const FEW: usize = 200;

/// How long the death of each process takes, where all are killed in one call, on a busy machine.
const KILLED_TOGETHER: Duration = Duration::from_micros(300);
/// The same where each is found and killed alone.
const KILLED_ALONE: Duration = Duration::from_micros(500);

/// A process, as one look at the system showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    parent: i32,
    /// Whether all its threads have ended.
    is_zombie: bool,
    /// When it began. The system gives a number of a dead process to a new one sooner or later.
    born: u64,
}

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

/// What one search found below this process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// The children, by number.
    children: Vec<i32>,
    /// The living ones below them.
    others: Vec<Process>,
}

impl Found {
    fn len(&self) -> usize {
        self.children.len() + self.others.len()
    }

    /// Sends the signal to those whose numbers are not in the set yet, and adds them. Returns whether there were any.
    fn send_new(&self, signal: Signal, sent: &mut HashSet<i32>) -> bool {
        let before = sent.len();
        for child in self.children.iter().filter(|child| sent.insert(**child)) {
            send_to_child(*child, signal);
        }
        for process in self.others.iter().filter(|process| sent.insert(process.pid)) {
            system::send(*process, signal);
        }
        sent.len() > before
    }
}

fn send_to_child(child: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child) {
        let _ = kill_process(pid, signal);
    }
}

/// The processes below this one that a run has to end.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// A child that is known without a search, until it is reaped.
    known: Option<i32>,
    /// Children that have nothing to do with the job: this process has them from its caller, or adopted them.
    strangers: HashSet<i32>,
    /// The control group of the job.
    control: Option<Rc<Group>>,
    /// How often it was killed.
    kills: u32,
}

impl Family {
    /// One with this child, which nobody has waited for.
    pub(crate) fn of(child: Pid, control: Option<Rc<Group>>) -> Family {
        Family { known: Some(child.as_raw_pid()), control, ..Family::default() }
    }

    /// Before this process makes a child for the job: those that it has come from its caller.
    pub(crate) fn before_fork(control: Option<Rc<Group>>) -> Family {
        let strangers = system::children().unwrap_or_default().into_iter().collect();
        Family { strangers, control, ..Family::default() }
    }

    /// Whether the control group of the job has processes. They need not be below this one in the tree.
    pub(crate) fn has_members(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.is_populated())
    }

    /// How many processes there are about, and how long it takes for each until it is dead.
    pub(crate) fn size(&self) -> (usize, Duration) {
        match &self.control {
            Some(control) => (control.processes().len(), KILLED_TOGETHER),
            None => (system::count(), KILLED_ALONE),
        }
    }

    /// This child belongs to the job.
    pub(crate) fn expect(&mut self, child: Pid) {
        self.known = Some(child.as_raw_pid());
    }

    /// Someone waited for the child, so that its number may be another's now.
    pub(crate) fn forget(&mut self, child: Pid) {
        self.known.take_if(|known| *known == child.as_raw_pid());
        self.strangers.remove(&child.as_raw_pid());
    }

    /// While the known child lives, the orphans below it come to it, where it is a subreaper. So whatever other children
    /// there are now have nothing to do with the job.
    pub(crate) fn note_strangers(&mut self) {
        let Some(known) = self.known.filter(|_| cfg!(target_os = "linux")) else { return };
        let children = system::children().unwrap_or_default();
        // It lives after they were listed, and so it did before.
        if is_running(known) {
            self.strangers.extend(children.into_iter().filter(|child| *child != known));
        }
    }

    /// Whether all children that there are have nothing to do with the job.
    pub(crate) fn has_only_strangers(&self) -> bool {
        !self.strangers.is_empty()
            && system::children()
                .is_some_and(|children| children.iter().all(|child| self.strangers.contains(child)))
    }

    fn search(&self) -> Found {
        let mut found = system::search(&self.strangers);
        found.children.extend(self.known.filter(|known| !found.children.contains(known)));
        found
    }

    /// Asks all processes to end. A stopped one has to go on to be able to.
    pub(crate) fn terminate(&self) {
        let found = self.search();
        let mut sent = HashSet::new();
        found.send_new(Signal::TERM, &mut sent);
        found.send_new(Signal::CONT, &mut HashSet::new());
        // Those whose parent died in another PID namespace.
        let Some(control) = &self.control else { return };
        for process in control.processes().into_iter().filter(|process| !sent.contains(process)) {
            let is_there = || control.processes().contains(&process);
            system::send_while(process, is_there, &[Signal::TERM, Signal::CONT]);
        }
    }

    /// Kills all processes that it finds, and returns how many these were. Call it again until [`reap`] says that none
    /// is left: what was forked meanwhile is found by the next call.
    pub(crate) fn kill(&mut self) -> usize {
        self.kills += 1;
        let Some(control) = self.control.as_ref().filter(|control| control.is_populated()) else {
            return self.kill_found();
        };
        // The kernel kills a group when no other group of the machine is being changed, which may take a while. A few
        // processes are found sooner. Later, some may not die, and others may have left the group.
        let is_first = self.kills == 1 && control.processes().len() <= FEW;
        let found = if is_first || self.kills.is_multiple_of(KILLS_PER_SEARCH) {
            self.kill_found()
        } else {
            0
        };
        control.kill();
        found.max(1)
    }

    fn kill_found(&self) -> usize {
        let mut stopped = HashSet::new();
        let mut found = self.search();
        for _ in 0..FREEZES {
            if !found.send_new(Signal::STOP, &mut stopped) {
                break;
            }
            found = self.search();
        }
        found.send_new(Signal::KILL, &mut HashSet::new());
        found.len()
    }

    /// Kills the children, which takes no search. Among them are the orphans of those that have just died. Those of a
    /// control group are dead or dying.
    pub(crate) fn kill_children(&self) {
        if self.has_members() {
            return;
        }
        let children = system::children().unwrap_or_default();
        for child in children.iter().filter(|child| !self.strangers.contains(child)) {
            send_to_child(*child, Signal::KILL);
        }
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

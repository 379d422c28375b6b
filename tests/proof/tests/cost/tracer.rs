//! Traces a process, and lets one of its threads run at a time.
//!
//! A thread stops at the begin and at the end of each system call, and the tracer lets it go on. Only the *current*
//! thread goes on at once. Another one that wakes is held at the end of its call until the current thread sleeps. So
//! a thread that wakes another one first does what it has to do besides, however many processors there are, and the
//! two never meet at a mutex that one is about to unlock.
//!
//! | a thread is | it | then it is |
//! | --- | --- | --- |
//! | starting | has been made, and has not stopped yet | held |
//! | held | stands still, and has something to do | running, when it becomes the current one |
//! | running | is the current one, outside of system calls | entering, if it is about to receive; else inside |
//! | entering | stands still until the server has sent all that it has | inside |
//! | inside | is in a system call, where it may sleep | running if it is the current one, else held |

use std::collections::{BTreeMap, VecDeque};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::calm::sleeps;
use crate::gauge::Gauge;
use crate::observer::PATIENCE;
use crate::{register, system_call};

/// How long to leave a thread to itself.
const PAUSE: Duration = Duration::from_micros(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Held,
    Running,
    Entering(i64),
    Inside(i64),
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    pub(crate) system_calls: BTreeMap<i64, u64>,
    pub(crate) wake_ups: u64,
}

/// One traced process.
#[derive(Debug)]
pub(crate) struct Tracer {
    process: Pid,
    /// The thread of the operation. What it reads and writes to speak with the observer does not count.
    main: Pid,
    threads: BTreeMap<Pid, Phase>,
    /// None while all that have something to do are held.
    current: Option<Pid>,
    /// The threads that are held, in the order in which they woke.
    held: VecDeque<Pid>,
    /// Whether the thread of the operation has an order, and has not woken for it yet.
    is_ordered: bool,
    traced: Traced,
}

impl Tracer {
    /// Traces a thread that waits for an order, and all threads that it makes from now on. Those of the harness are not
    /// traced. An error says why the system does not allow it.
    pub(crate) fn seize(process: Pid, main: Pid) -> Result<Tracer, String> {
        let options = Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(main, options).map_err(|error| error.to_string())?;
        ptrace::interrupt(main).map_err(|error| error.to_string())?;
        let threads = BTreeMap::from([(main, Phase::Starting)]);
        let (held, traced) = (VecDeque::new(), Traced::default());
        Ok(Tracer { process, main, threads, current: None, held, is_ordered: false, traced })
    }

    /// The thread of the operation has an order. It wakes for that, which is no wake-up of the operation.
    pub(crate) fn begin(&mut self) {
        self.current = Some(self.main);
        self.is_ordered = true;
        self.traced = Traced::default();
    }

    /// Takes the counts since the last order.
    pub(crate) fn take(&mut self) -> Traced {
        std::mem::take(&mut self.traced)
    }

    /// Lets the threads run until all of them sleep, and the server has nothing to say to them.
    pub(crate) fn until_calm(&mut self, gauge: &mut Gauge<'_>) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.collect()?;
            if self.is_ordered || !self.has_current_stopped(gauge)? {
                sleep(PAUSE);
                continue;
            }
            self.current = self.held.pop_front();
            if let Some(next) = self.current {
                self.traced.wake_ups += 1;
                self.let_run(next)?;
                continue;
            }
            gauge.settle();
            if !self.collect()? && self.held.is_empty() && self.do_all_sleep() {
                return Ok(());
            }
            sleep(PAUSE);
        }
        Err(format!("it does not come to rest: {self:?}"))
    }

    /// Whether there is no current thread, or it sleeps until something happens that it cannot bring about.
    fn has_current_stopped(&mut self, gauge: &mut Gauge<'_>) -> Result<bool, String> {
        let Some(current) = self.current else { return Ok(true) };
        let number = match self.threads.get(&current) {
            None => return Ok(true),
            Some(&Phase::Entering(number)) => {
                gauge.settle_all();
                self.enter(current, number)?;
                return Ok(false);
            }
            Some(&Phase::Inside(number)) => number,
            Some(_) => return Ok(false),
        };
        if !self.is_asleep(current) {
            return Ok(false);
        }
        if system_call::needs_a_thread(number) {
            return Ok(true);
        }
        // It may wait for a reply that is on its way.
        gauge.settle();
        Ok(!self.collect()? && self.is_asleep(current))
    }

    fn do_all_sleep(&self) -> bool {
        self.threads
            .iter()
            .all(|(thread, phase)| matches!(phase, Phase::Inside(_)) && self.is_asleep(*thread))
    }

    fn is_asleep(&self, thread: Pid) -> bool {
        sleeps(self.process, thread).is_ok_and(|sleeps| sleeps)
    }

    fn let_run(&mut self, thread: Pid) -> Result<(), String> {
        self.threads.insert(thread, Phase::Running);
        resume(thread, None)
    }

    fn enter(&mut self, thread: Pid, number: i64) -> Result<(), String> {
        self.threads.insert(thread, Phase::Inside(number));
        resume(thread, None)
    }

    /// Notes what has happened to the threads. Returns whether anything has.
    fn collect(&mut self) -> Result<bool, String> {
        let mut has_happened = false;
        let mut again = true;
        while again {
            again = false;
            let threads: Vec<Pid> = self.threads.keys().copied().collect();
            for thread in threads {
                match waitpid(thread, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
                    Ok(WaitStatus::StillAlive) => continue,
                    Ok(status) => self.note(thread, status)?,
                    Err(Errno::ECHILD) => self.forget(thread)?,
                    Err(error) => return Err(format!("no word of {thread}: {error}")),
                }
                (has_happened, again) = (true, true);
            }
        }
        Ok(has_happened)
    }

    fn note(&mut self, thread: Pid, status: WaitStatus) -> Result<(), String> {
        let phase = self.threads[&thread];
        match (status, phase) {
            (WaitStatus::PtraceSyscall(_), Phase::Running) => {
                let (number, first) = register::call(thread).map_err(|error| error.to_string())?;
                self.count(thread, number, first);
                if system_call::receives(number) {
                    self.threads.insert(thread, Phase::Entering(number));
                    return Ok(());
                }
                self.enter(thread, number)
            }
            (WaitStatus::PtraceSyscall(_), Phase::Inside(_)) if Some(thread) == self.current => {
                self.is_ordered &= thread != self.main;
                self.let_run(thread)
            }
            (WaitStatus::PtraceSyscall(_), Phase::Inside(_))
            | (WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..), Phase::Starting) => {
                self.threads.insert(thread, Phase::Held);
                self.held.push_back(thread);
                Ok(())
            }
            (WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_CLONE), _) => {
                let made = ptrace::getevent(thread).map_err(|error| error.to_string())?;
                let made = i32::try_from(made).map_err(|error| error.to_string())?;
                self.threads.entry(Pid::from_raw(made)).or_insert(Phase::Starting);
                resume(thread, None)
            }
            (WaitStatus::PtraceEvent(..), _) => resume(thread, None),
            (WaitStatus::Stopped(_, signal), _) => resume(thread, Some(signal)),
            (WaitStatus::Exited(..) | WaitStatus::Signaled(..), _) => self.forget(thread),
            (status, phase) => Err(format!("{status:?} while {phase:?}")),
        }
    }

    fn forget(&mut self, thread: Pid) -> Result<(), String> {
        self.threads.remove(&thread);
        self.held.retain(|held| *held != thread);
        if thread == self.main { Err("its process has ended".to_owned()) } else { Ok(()) }
    }

    fn count(&mut self, thread: Pid, number: i64, first: u64) {
        let speaks = thread == self.main
            && matches!((number, first), (libc::SYS_read, 0) | (libc::SYS_write, 1));
        if system_call::is_counted(number) && !speaks {
            *self.traced.system_calls.entry(number).or_default() += 1;
        }
    }
}

fn resume(thread: Pid, signal: Option<Signal>) -> Result<(), String> {
    match ptrace::syscall(thread, signal) {
        // It was killed meanwhile; its end comes next.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(format!("{thread} does not go on: {error}")),
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = kill(self.process, Signal::SIGKILL);
        // The process is not over before its tracer knows that its threads are. Its first thread is left to the parent.
        for &thread in self.threads.keys().filter(|thread| **thread != self.process) {
            while let Ok(status) = waitpid(thread, Some(WaitPidFlag::__WALL)) {
                if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                    break;
                }
            }
        }
    }
}

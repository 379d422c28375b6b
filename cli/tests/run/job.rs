//! A job whose processes note every 5 ms that they are alive: this program, started again with a role.
//!
//! Each entry is a process and the time on the clock that all processes share. So the last entry says when the last
//! process of a job was still alive.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

const ROLE: &str = "LEASEHOLD_TEST_JOB";
const PAUSE: Duration = Duration::from_millis(5);
/// A process that nobody ends is over by itself then.
const LONGEST: Duration = Duration::from_secs(60);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Its main process, a child, and an orphan in a session of its own that has closed everything.
    Tree,
    /// The same, and none of them heeds SIGTERM.
    DeafTree,
    /// Its main process ends as soon as the orphan runs, which does not heed SIGTERM.
    Daemon,
    /// Its main process ends at once.
    AtOnce,
    /// The first thread of a child of its main process has ended, and another writes. It takes Python.
    DeadLeader,
}

/// Writes as [`note`] does. There is no way to end the first thread alone without unsafe code.
const DEAD_LEADER: &str = r#"
import ctypes, os, sys, threading, time
def write():
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if open("/proc/self/stat").read().rsplit(") ")[1].startswith("Z"):
            os.write(journal, b"%d %d\n" % (os.getpid(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
        time.sleep(0.005)
threading.Thread(target=write).start()
ctypes.CDLL(None).pthread_exit(None)
"#;

impl Shape {
    /// How many processes write.
    pub(crate) fn writers(self) -> usize {
        match self {
            Shape::Tree | Shape::DeafTree => 3,
            Shape::Daemon | Shape::AtOnce | Shape::DeadLeader => 1,
        }
    }

    fn role(self) -> &'static str {
        match self {
            Shape::Tree | Shape::DeafTree => "tree",
            Shape::Daemon => "daemon",
            Shape::AtOnce | Shape::DeadLeader => "at-once",
        }
    }

    /// Adds the job to a command line that ends before it.
    pub(crate) fn add_to(self, command: &mut Command, journal: &Journal) {
        if self == Shape::DeadLeader {
            // Not the main process, which the kernel kills with its guardian.
            command.args(["sh", "-c", "\"$@\"; exit", "sh", "python3", "-c", DEAD_LEADER]);
            command.arg(&journal.0);
            return;
        }
        if self == Shape::DeafTree || self == Shape::Daemon {
            command.args(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]);
        }
        command.arg(program()).args(arguments(&journal.0)).env(ROLE, self.role());
    }
}

fn program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// The path is in the arguments, so that the processes of a journal can be found.
fn arguments(journal: &Path) -> Vec<String> {
    let journal = journal.display().to_string();
    ["--exact", "job::job_of_a_test", "--nocapture", "--skip", &journal].map(str::to_owned).into()
}

fn play(role: &str, journal: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(arguments(journal)).env(ROLE, role);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// No test: the processes of jobs.
#[test]
#[expect(clippy::zombie_processes, reason = "the guardian of the job waits for them")]
fn job_of_a_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let journal = PathBuf::from(std::env::args().next_back().expect("a journal"));
    match role.as_str() {
        "tree" => {
            // Kept until this process ends, which is before it could be waited for.
            let _child = play("leaf", &journal).spawn().expect("a child");
            play("orphan", &journal).status().expect("an orphan");
        }
        "daemon" => {
            play("orphan", &journal).status().expect("an orphan");
            let end = Instant::now() + LONGEST;
            while entries(&journal).is_empty() && Instant::now() < end {
                sleep(PAUSE);
            }
            return;
        }
        "orphan" => {
            rustix::process::setsid().expect("a session");
            play("leaf", &journal).spawn().expect("a grandchild");
            return;
        }
        _ => {}
    }
    let mut file = OpenOptions::new().append(true).create(true).open(&journal).expect("a journal");
    let end = Instant::now() + LONGEST;
    loop {
        note(&mut file);
        if role == "at-once" || Instant::now() >= end {
            return;
        }
        sleep(PAUSE);
    }
}

fn note(file: &mut File) {
    // One write, as all processes append to one file.
    let entry = format!("{} {}\n", std::process::id(), boot_time());
    file.write_all(entry.as_bytes()).expect("room on the disk");
}

/// The clock on which leases are valid, in nanoseconds.
pub(crate) fn boot_time() -> u64 {
    nanos(ClockId::Boottime)
}

/// A time of the server's clock, which is that of this machine, on the other clock.
pub(crate) fn boot_time_of(unix: Duration) -> u64 {
    let offset = nanos(ClockId::Realtime) - boot_time();
    u64::try_from(unix.as_nanos()).expect("a time") - offset
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let number = |part: i64| u64::try_from(part).expect("a time");
    number(time.tv_sec) * 1_000_000_000 + number(time.tv_nsec)
}

/// What a job's processes have noted.
#[derive(Debug)]
pub(crate) struct Journal(PathBuf);

fn entries(path: &Path) -> Vec<(u32, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        let (process, time) = line.split_once(' ')?;
        Some((process.parse().ok()?, time.parse().ok()?))
    };
    // The last line may be half there.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(entry).collect()
}

impl Journal {
    pub(crate) fn new(folder: &Path, name: &str) -> Journal {
        Journal(folder.join(name))
    }

    /// How many processes have written.
    pub(crate) fn writers(&self) -> usize {
        let mut processes: Vec<u32> = entries(&self.0).into_iter().map(|entry| entry.0).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.len()
    }

    /// When the last of them was alive.
    pub(crate) fn last(&self) -> Option<u64> {
        entries(&self.0).into_iter().map(|entry| entry.1).max()
    }

    /// The processes of the job that there are, zombies included.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let path = self.0.display().to_string();
        let is_ours = |process: &u32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            let is_wrapper = words.get(1) == Some(&&b"run"[..]);
            !is_wrapper && words.contains(&path.as_bytes())
        };
        processes.filter(is_ours).collect()
    }
}

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
/// Set for the processes of a job with an odd name.
const ODDLY: &str = "LEASEHOLD_TEST_ODD_NAME";
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
    /// A tree of which each process has a name that the kernel has cut inside a letter.
    OddlyNamedTree,
    /// The daemon, with such a name.
    OddlyNamedDaemon,
    /// An orphan that is not dumpable and does not heed SIGTERM, as its main process. It takes Python.
    Undumpable,
    /// The same, and its main process ends as soon as the orphan runs.
    UndumpableDaemon,
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

/// Writes as [`note`] does. Where `/proc` hides what is others', it hides this, and it must not be traced.
const UNDUMPABLE: &str = r#"
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(4, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    time.sleep(0 if sys.argv[2] == "UndumpableDaemon" else 60)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
# It is there, and another user's.
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(journal, b"%d %d\n" % (os.getpid(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
    os.write(writer, b"x")
    time.sleep(0.005)
"#;

/// `sauvegarde-été`, as the kernel cuts it: to 15 bytes in the midst of its last letter, if it was longer.
const ODD_NAME: &[u8] = b"sauvegarde-\xc3";

impl Shape {
    /// How many processes write.
    pub(crate) fn writers(self) -> usize {
        match self {
            Shape::Tree | Shape::DeafTree | Shape::OddlyNamedTree => 3,
            _ => 1,
        }
    }

    fn role(self) -> &'static str {
        match self {
            Shape::Tree | Shape::DeafTree | Shape::OddlyNamedTree => "tree",
            Shape::Daemon | Shape::OddlyNamedDaemon => "daemon",
            _ => "at-once",
        }
    }

    /// The program that it takes besides this one.
    pub(crate) fn needs(self) -> Option<&'static str> {
        matches!(self, Shape::DeadLeader | Shape::Undumpable | Shape::UndumpableDaemon)
            .then_some("python3")
    }

    fn is_oddly_named(self) -> bool {
        matches!(self, Shape::OddlyNamedTree | Shape::OddlyNamedDaemon)
    }

    /// Adds the job to a command line that ends before it.
    pub(crate) fn add_to(self, command: &mut Command, journal: &Journal) {
        if matches!(self, Shape::Undumpable | Shape::UndumpableDaemon) {
            command.args(["python3", "-c", UNDUMPABLE]).arg(&journal.0).arg(format!("{self:?}"));
            return;
        }
        if self == Shape::DeadLeader {
            // Not the main process, which the kernel kills with its guardian.
            command.args(["sh", "-c", "\"$@\"; exit", "sh", "python3", "-c", DEAD_LEADER]);
            command.arg(&journal.0);
            return;
        }
        if !matches!(self, Shape::Tree | Shape::OddlyNamedTree | Shape::AtOnce) {
            command.args(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]);
        }
        command.arg(program()).args(arguments(&journal.0)).env(ROLE, self.role());
        if self.is_oddly_named() {
            command.env(ODDLY, "yes");
        }
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
    if std::env::var_os(ODDLY).is_some() {
        std::fs::write("/proc/self/comm", ODD_NAME).expect("a name");
    }
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
    /// A file that any user may write to.
    pub(crate) fn new(path: PathBuf) -> Journal {
        use std::os::unix::fs::PermissionsExt as _;
        let file = File::create(&path).expect("a journal");
        file.set_permissions(std::fs::Permissions::from_mode(0o666)).expect("a file of ours");
        Journal(path)
    }

    /// Deletes it: its folder may be everybody's.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
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

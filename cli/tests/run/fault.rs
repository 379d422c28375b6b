//! No process of a job is alive when its lease ends on the server, whatever goes wrong.
//!
//! `LEASEHOLD_RUNS` of each fault, 6 by default, in each way to kill the processes that there is, and `LEASEHOLD_AT_ONCE` of them at a time, 8 by default, on one
//! machine. A run in which a thread got its processor later than half the margin after it was due shows nothing about
//! time: it is void, and repeated.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_support::{Direction, Monitor, Proxy, Server, fault::Operation, lag, skip};
use rustix::process::Signal;

use crate::common::{LONG, ask, children, send, wait, wait_until};
use crate::host::Host;
use crate::job::{Journal, Shape, boot_time, boot_time_of};

const LEASE: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_millis(500);
const TIME_OUT: Duration = Duration::from_millis(500);
/// A twentieth of the lease.
const MARGIN: Duration = Duration::from_millis(150);
/// So many void runs for each that counts, before the machine is too busy for this test.
const VOIDS_PER_RUN: usize = 2;
/// The status of a run that lost its lock.
const LOST: i32 = 76;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    WrapperKilled,
    GuardianKilled,
    /// And nobody reads what the wrapper says.
    GuardianKilledUnheard,
    WrapperStopped,
    /// And the wrapper has to do its work.
    GuardianStopped,
    RedisGone,
    KeyDeleted,
    /// The wrapper has to notice that nobody ends the job.
    GuardianStoppedKeyDeleted,
    /// As by `killall -9 leasehold`.
    NamedKilled,
    /// As by `killall -STOP leasehold`.
    NamedStopped,
    /// The main process ends by itself.
    Nothing,
}

impl Fault {
    /// The time that is left for the killing; none where the order counts, and not the time.
    fn margin(self) -> Option<Duration> {
        match self {
            Fault::GuardianKilled | Fault::GuardianKilledUnheard | Fault::Nothing => None,
            // The wrapper waits for its guardian for half of the time.
            Fault::GuardianStopped => Some(MARGIN / 2),
            _ => Some(MARGIN),
        }
    }
}

/// One run, from its start to its end.
struct Run<'a> {
    server: &'a Server,
    monitor: &'a Monitor,
    proxy: Proxy,
    /// When the last reply to an acquire or a renewal reached the run.
    confirmed: Arc<Mutex<u64>>,
    name: String,
    journal: Journal,
    wrapper: Child,
}

/// What a run showed.
struct Finding {
    /// How long before the end of its lease the last process wrote for the last time; negative if after it.
    slack: i64,
    /// How long a processor was withheld at most, from the fault to the end of the lease.
    lagged: Duration,
    /// Whether the machine stood still before the fault, for so long that the lease was lost.
    is_void: bool,
    wrong: Vec<String>,
}

impl Finding {
    /// Of a run that ended before its fault. On a machine that ran it is wrong.
    fn early(start: Instant) -> Finding {
        let lagged = lag::worst_since(start);
        let is_void = lagged > MARGIN;
        let text = format!(
            "it ended before its fault, and no processor was withheld for longer than {lagged:?}"
        );
        Finding { slack: 0, lagged, is_void, wrong: vec![text] }
    }
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Bounds the runs of all tests of this file.
struct Places(Mutex<usize>, Condvar);

static PLACES: Places = Places(Mutex::new(0), Condvar::new());

struct Place;

impl Place {
    fn take() -> Place {
        let most = setting("LEASEHOLD_AT_ONCE", 8).max(1);
        let taken = PLACES.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = PLACES.1.wait_while(taken, |taken| *taken >= most);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *PLACES.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        PLACES.1.notify_one();
    }
}

/// A proxy before the server, and when it last passed on the reply to a grant or a renewal.
fn watched(server: &Server) -> (Proxy, Arc<Mutex<u64>>) {
    let proxy = Proxy::start(server).expect("a proxy");
    let confirmed = Arc::new(Mutex::new(0));
    let noted = Arc::clone(&confirmed);
    proxy.watch(move |seen| {
        let counts = matches!(seen.operation, Operation::Acquire | Operation::Renew);
        if seen.direction == Direction::Reply && counts && !seen.is_lost {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = boot_time();
        }
    });
    (proxy, confirmed)
}

impl<'a> Run<'a> {
    fn start(
        server: &'a Server,
        monitor: &'a Monitor,
        number: usize,
        (shape, host): (Shape, Host),
    ) -> Run<'a> {
        let (proxy, confirmed) = watched(server);
        let name = format!("job-{number}");
        let journal = Journal::new(host.path(server, &format!("journal-{number}")));
        let mut command = host.run(&proxy.url());
        command.args(["--timeout", &format!("{}ms", TIME_OUT.as_millis())]);
        command.args(["--lease", &format!("{}ms", LEASE.as_millis())]);
        command.args(["--grace", &format!("{}ms", GRACE.as_millis()), &name, "--"]);
        shape.add_to(&mut command, &journal);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let wrapper = command.spawn().expect("the program");
        Run { server, monitor, proxy, confirmed, name, journal, wrapper }
    }

    fn guardian(&self) -> u32 {
        let mut found = Vec::new();
        wait_until("one child of the wrapper", || {
            found = children(self.wrapper.id());
            found.len() == 1
        });
        found[0]
    }

    /// As killall(1) does, but to this run alone: to the wrapper and the guardian, so far as their names have it.
    fn send_to_named(&self, signal: Signal) {
        for process in [self.wrapper.id(), self.guardian()] {
            let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
            if String::from_utf8_lossy(&name).contains("leasehold") {
                send(process, signal);
            }
        }
    }

    /// When the key ends by itself, if it is there.
    fn key_end(&self) -> Option<u64> {
        let millis: i64 = ask(self.server, &["PEXPIRETIME", &self.name]);
        u64::try_from(millis).ok().map(|millis| boot_time_of(Duration::from_millis(millis)))
    }

    /// When the key of a run that has ended was given back. The reader of the monitor may be late.
    fn once_given_back(&self) -> Option<u64> {
        let begin = Instant::now();
        loop {
            let end = self.given_back();
            if end.is_some() || begin.elapsed() > Duration::from_secs(10) {
                return end;
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// When the key was given back, by the server's clock, as far as the monitor has read.
    fn given_back(&self) -> Option<u64> {
        let quoted = format!("\"{}\"", self.name);
        let lines = self.monitor.lines(&quoted);
        let mut ends = lines.iter().filter(|line| {
            let text = line.text.to_lowercase();
            text.contains("lua]") && (text.contains("\"del\"") || text.contains("\"unlink\""))
        });
        let text = &ends.next_back()?.text;
        // `+1339518083.107412 [0 lua] "del" "job-1"`
        let seconds: f64 = text.trim_start_matches('+').split(' ').next()?.parse().ok()?;
        Some(boot_time_of(Duration::from_secs_f64(seconds)))
    }

    fn inject(&mut self, fault: Fault, number: usize) -> u64 {
        match fault {
            Fault::WrapperKilled => send(self.wrapper.id(), Signal::KILL),
            Fault::GuardianKilled => send(self.guardian(), Signal::KILL),
            Fault::GuardianKilledUnheard => {
                drop(self.wrapper.stderr.take());
                send(self.guardian(), Signal::KILL);
            }
            Fault::WrapperStopped => send(self.wrapper.id(), Signal::STOP),
            Fault::NamedKilled => self.send_to_named(Signal::KILL),
            Fault::NamedStopped => self.send_to_named(Signal::STOP),
            Fault::GuardianStoppedKeyDeleted => {
                send(self.guardian(), Signal::STOP);
                let deleted: u32 = ask(self.server, &["DEL", &self.name]);
                assert_eq!(deleted, 1, "it was held");
            }
            Fault::GuardianStopped => {
                send(self.guardian(), Signal::STOP);
                self.proxy.black_hole();
            }
            Fault::RedisGone if number.is_multiple_of(2) => self.proxy.black_hole(),
            Fault::RedisGone => {
                self.proxy.refuse();
                self.proxy.cut();
            }
            Fault::KeyDeleted => {
                let deleted: u32 = ask(self.server, &["DEL", &self.name]);
                assert_eq!(deleted, 1, "it was held");
            }
            Fault::Nothing => {}
        }
        boot_time()
    }

    /// Runs it to its end under the fault.
    fn finish(mut self, fault: Fault, shape: Shape, number: usize) -> Finding {
        let mut wrong = Vec::new();
        let mut injected = None;
        let start = Instant::now();
        let mut begin = start;
        if fault != Fault::Nothing {
            let mut has_ended = false;
            wait_until("all processes of the job write", || {
                has_ended = self.wrapper.try_wait().expect("a child").is_some();
                has_ended || self.journal.writers() >= shape.writers()
            });
            if has_ended {
                return Finding::early(start);
            }
            // The faults of different runs come at different times of the lease.
            sleep(LEASE / 3 * u32::try_from(number % 7).expect("small") / 7);
            if self.key_end().is_none() {
                return Finding::early(start);
            }
            begin = Instant::now();
            injected = Some(self.inject(fault, number));
        }
        let mut key_end = self.key_end();
        let is_kept = matches!(
            fault,
            Fault::RedisGone | Fault::GuardianStopped | Fault::WrapperStopped | Fault::NamedStopped
        );
        if is_kept && key_end.is_none() {
            // It had ended just before.
            return Finding::early(start);
        }
        // The job ends by the promise, and not by this test.
        let deadline = Instant::now() + LONG;
        while self.has_ended(fault).is_none() && Instant::now() < deadline {
            key_end = self.key_end().max(key_end);
            sleep(Duration::from_millis(20));
        }
        // What begins later is no excuse.
        let late = key_end.map_or(0, |end| boot_time().saturating_sub(end));
        let lagged = Instant::now()
            .checked_sub(Duration::from_nanos(late))
            .map_or_else(|| lag::worst_since(begin), |end| lag::worst_between(begin, end));
        let expected = match fault {
            Fault::WrapperKilled | Fault::NamedKilled => None,
            Fault::Nothing => Some(0),
            _ => Some(LOST),
        };
        if matches!(fault, Fault::WrapperStopped | Fault::NamedStopped) {
            // It finds its job dead.
            send(self.wrapper.id(), Signal::CONT);
        }
        let status = wait(&mut self.wrapper);
        if status.code() != expected {
            let mut text = String::new();
            if let Some(mut stderr) = self.wrapper.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
            }
            wrong.push(format!("status {status} instead of {expected:?}: {text}"));
        }
        let alive = self.journal.alive();
        if !alive.is_empty() {
            wrong.push(format!("still there: {alive:?}"));
        }
        let last = self.journal.last().expect("an entry");
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = u64::try_from(LEASE.as_nanos()).expect("small");
        let end = match (fault, injected) {
            (Fault::KeyDeleted, Some(injected)) => {
                injected + u64::try_from((LEASE / 3 + GRACE + TIME_OUT).as_nanos()).expect("small")
            }
            (Fault::GuardianStoppedKeyDeleted, Some(injected)) => {
                let wait = LEASE / 3 + MARGIN + GRACE + MARGIN + TIME_OUT;
                injected + u64::try_from(wait.as_nanos()).expect("small")
            }
            (Fault::RedisGone | Fault::GuardianStopped, _) => {
                key_end.expect("it was held").min(confirmed + lease)
            }
            // At once, and not because no news comes. The guardian gives it back after the last of them.
            (Fault::WrapperKilled | Fault::NamedKilled, Some(injected)) => {
                let given_back = self.once_given_back();
                if given_back.is_none() {
                    wrong.push("not given back".to_owned());
                }
                given_back.or(key_end).expect("it was held").min(injected + lease / 10)
            }
            (Fault::WrapperStopped | Fault::NamedStopped, _) => key_end.expect("it was held"),
            // Given back: after the last of them is reaped.
            _ => self.once_given_back().unwrap_or_else(|| {
                wrong.push("not given back".to_owned());
                0
            }),
        };
        let slack = i64::try_from(i128::from(end) - i128::from(last)).expect("small");
        if slack <= 0 {
            wrong.push(format!(
                "alive {:?} after the end",
                Duration::from_nanos(slack.unsigned_abs())
            ));
        }
        Finding { slack, lagged, is_void: false, wrong }
    }

    /// Whether the job has ended, or the run has.
    fn has_ended(&mut self, fault: Fault) -> Option<()> {
        match fault {
            Fault::WrapperKilled
            | Fault::WrapperStopped
            | Fault::NamedKilled
            | Fault::NamedStopped => self.journal.alive().is_empty().then_some(()),
            _ => self.wrapper.try_wait().expect("a child").map(drop),
        }
    }
}

/// A run that a failed test leaves behind ends with it.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
        self.journal.remove();
    }
}

fn survive(fault: Fault, shape: Shape) {
    for host in Host::ways() {
        survive_on(host, fault, shape);
    }
}

#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn survive_on(host: Host, fault: Fault, shape: Shape) {
    let is_there = |name: &str| std::process::Command::new(name).arg("--version").output().is_ok();
    if let Some(name) = shape.needs().filter(|name| !is_there(name)) {
        return skip(format!("{name} is not installed"));
    }
    if !host.is_there() {
        return;
    }
    lag::watch();
    let runs = setting("LEASEHOLD_RUNS", 6);
    let server = Server::start().expect("a server");
    let monitor = Monitor::start(&server);
    let counts = Mutex::new((0, 0, Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for worker in 0..runs.min(setting("LEASEHOLD_AT_ONCE", 8)) {
            let (server, monitor, counts) = (&server, &monitor, &counts);
            scope.spawn(move || {
                for attempt in 0.. {
                    let mut guard = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    let (begun, voids, ..) = &mut *guard;
                    if *begun >= runs + *voids || *voids > runs * VOIDS_PER_RUN {
                        return;
                    }
                    *begun += 1;
                    drop(guard);
                    let place = Place::take();
                    let number = worker * 10_000 + attempt;
                    let finding = Run::start(server, monitor, number, (shape, host))
                        .finish(fault, shape, number);
                    drop(place);
                    let mut guard = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    let (_, voids, slacks, wrong) = &mut *guard;
                    let is_late = |margin| finding.lagged > margin / 2;
                    if finding.is_void || fault.margin().is_some_and(is_late) {
                        *voids += 1;
                    } else {
                        slacks.push(finding.slack);
                        wrong.extend(finding.wrong);
                    }
                }
            });
        }
    });
    let (_, voids, mut slacks, wrong) = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    slacks.sort_unstable();
    let millis = |slack: Option<&i64>| slack.map_or(f64::NAN, |slack| *slack as f64 / 1e6);
    println!(
        "{fault:?} of {shape:?} on {host:?}: {} runs, {voids} void, {} wrong; before the end: least {:.1} ms, median {:.1} ms",
        slacks.len(),
        wrong.len(),
        millis(slacks.first()),
        millis(slacks.get(slacks.len() / 2)),
    );
    assert!(wrong.is_empty(), "{fault:?} of {shape:?} on {host:?}: {wrong:#?}");
    if slacks.len() < runs {
        skip(format!("{voids} runs were void: this machine is too busy"));
    }
}

#[test]
fn killed_wrapper_takes_its_job_along() {
    survive(Fault::WrapperKilled, Shape::Tree);
}

#[test]
fn killed_guardian_takes_its_job_along() {
    survive(Fault::GuardianKilled, Shape::Tree);
}

#[test]
fn job_of_a_killed_guardian_dies_if_nobody_reads_stderr() {
    survive(Fault::GuardianKilledUnheard, Shape::Tree);
}

#[test]
fn stopped_wrapper_loses_its_job_before_the_lease() {
    survive(Fault::WrapperStopped, Shape::Tree);
}

#[test]
fn stopped_guardian_is_replaced_by_the_wrapper() {
    survive(Fault::GuardianStopped, Shape::Tree);
}

#[test]
fn job_is_gone_before_the_lease_without_redis() {
    survive(Fault::RedisGone, Shape::Tree);
}

#[test]
fn job_is_ended_soon_after_its_key_is_deleted() {
    survive(Fault::KeyDeleted, Shape::Tree);
}

#[test]
fn job_that_ignores_sigterm_is_killed_before_the_lease() {
    survive(Fault::RedisGone, Shape::DeafTree);
}

/// Its state is that of a zombie.
#[test]
fn process_whose_first_thread_has_ended_is_killed() {
    survive(Fault::RedisGone, Shape::DeadLeader);
}

#[test]
fn orphan_in_its_own_session_is_gone_before_the_release() {
    survive(Fault::Nothing, Shape::Daemon);
}

#[test]
fn orphan_in_its_own_session_dies_with_the_wrapper() {
    survive(Fault::WrapperKilled, Shape::DeafTree);
}

#[test]
fn job_that_ends_at_once_gives_its_lock_back() {
    survive(Fault::Nothing, Shape::AtOnce);
}

/// A crowd that heeds no SIGTERM: the time that its killing takes is left of the lease.
#[test]
#[ignore = "starts 6,000 processes at a time, which holds up all others"]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn crowd_is_gone_before_the_lease() {
    lag::watch();
    let server = Server::start().expect("a server");
    for host in Host::ways() {
        for _ in 0..setting("LEASEHOLD_RUNS", 2) {
            let (slack, lagged) = crowd(host, &server);
            println!("{CROWD} processes on {host:?}: {slack} ms before the end, lagged {lagged:?}");
            assert!(slack > 0, "{host:?}");
        }
    }
}

const CROWD: usize = 6_000;

/// How many milliseconds before the end of the lease the last of them is dead, and for how long a processor was withheld
/// at most: by the crowd itself, which dies on all of them. So no run is void.
fn crowd(host: Host, server: &Server) -> (i64, Duration) {
    const LEASE: Duration = Duration::from_secs(10);
    const SCRIPT: &str = "import os, signal, sys, time\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        fifo = os.open(sys.argv[1], os.O_WRONLY)\n\
        for turn in range(int(sys.argv[2])):\n\
        \x20   if not os.fork():\n\
        \x20       while True: time.sleep(1000)\n\
        os.write(fifo, b'x')\n\
        time.sleep(1000)\n";
    let (proxy, confirmed) = watched(server);
    // All of them have it open, so its reader sees its end when the last of them is dead.
    let fifo = server.directory().join("crowd");
    let _ = std::fs::remove_file(&fifo);
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let mut command = host.run(&proxy.url());
    command.args(["--lease", "10s", "--grace", "500ms", "--timeout", "500ms", "x", "--"]);
    command.args(["python3", "-c", SCRIPT]).arg(&fifo).arg(CROWD.to_string());
    let mut wrapper = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    let mut pipe = File::open(&fifo).expect("a pipe");
    let mut byte = [0];
    pipe.read_exact(&mut byte).expect("all of them");
    // They are counted after a renewal.
    sleep(LEASE / 3);
    proxy.black_hole();
    let begin = Instant::now();
    let lease = u64::try_from(LEASE.as_nanos()).expect("small");
    let end = *confirmed.lock().unwrap_or_else(PoisonError::into_inner) + lease;
    let rest = pipe.read(&mut byte).expect("its end");
    let last = boot_time();
    assert_eq!(rest, 0);
    assert_eq!(wait(&mut wrapper).code(), Some(LOST));
    let slack = (i128::from(end) - i128::from(last)) / 1_000_000;
    (i64::try_from(slack).expect("small"), lag::worst_since(begin))
}

/// The kernel cuts the name of a process to 15 bytes.
#[test]
fn process_whose_name_is_cut_inside_a_letter_is_gone_before_the_lease() {
    survive(Fault::RedisGone, Shape::OddlyNamedTree);
}

#[test]
fn process_whose_name_is_cut_inside_a_letter_dies_with_the_wrapper() {
    survive(Fault::WrapperKilled, Shape::OddlyNamedTree);
}

#[test]
fn orphan_whose_name_is_cut_inside_a_letter_is_gone_before_the_release() {
    survive(Fault::Nothing, Shape::OddlyNamedDaemon);
}

#[test]
fn orphan_that_proc_hides_is_gone_before_the_release() {
    survive_on(Host::Hiding, Fault::Nothing, Shape::UndumpableDaemon);
}

#[test]
fn orphan_that_proc_hides_is_gone_before_the_lease() {
    survive_on(Host::Hiding, Fault::RedisGone, Shape::Undumpable);
}

#[test]
fn killed_guardian_takes_along_what_proc_hides() {
    survive_on(Host::Hiding, Fault::GuardianKilled, Shape::Undumpable);
}

#[test]
fn all_processes_that_are_called_leasehold_are_killed() {
    survive(Fault::NamedKilled, Shape::Tree);
}

#[test]
fn all_processes_that_are_called_leasehold_are_stopped() {
    survive(Fault::NamedStopped, Shape::Tree);
}

#[test]
fn job_of_a_stopped_guardian_is_ended_soon_after_its_key_is_deleted() {
    survive(Fault::GuardianStoppedKeyDeleted, Shape::DeafTree);
}

//! A wrapper that is killed gives its lock back by its guardian, when no process of the job is left.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use leasehold::{LockClient, Once, Period};
use leasehold_support::{Proxy, Server};
use rustix::process::Signal;

use crate::common::{LONG, children, run, send, wait, wait_until};

/// Longer than any test.
const LEASE: &str = "10m";

/// A run whose job has begun.
fn begin(url: &str, options: &[&str], job: &[&str]) -> Child {
    let mut command = run(url);
    command.args(["--lease", LEASE]).args(options).args(["x", "--"]).args(job);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the program");
    wait_until("a job", || {
        children(child.id()).first().is_some_and(|guardian| !children(*guardian).is_empty())
    });
    child
}

fn kill(mut wrapper: Child) {
    wrapper.kill().expect("a child");
    wait(&mut wrapper);
}

/// A semaphore keeps its key for a while, with its limit.
fn is_held(server: &Server) -> bool {
    let client = LockClient::open(server.url()).expect("a client");
    let locks = client.locks_named("x").expect("a reply");
    locks.iter().any(|lock| !lock.inspection().holders().is_empty())
}

#[test]
fn killed_wrapper_gives_back_what_it_held_of_every_kind() {
    let options: [&[&str]; 4] =
        [&[], &["-s"], &["--permits", "2", "--of", "3"], &["--once-per", "365d"]];
    for options in options {
        let server = Server::start().expect("a server");
        let wrapper = begin(&server.url(), options, &["sleep", "60"]);
        assert!(is_held(&server));
        kill(wrapper);
        wait_until("it is given back", || !is_held(&server));
    }
}

/// The lock of a mutex is that of a writer, where readers have the name.
#[test]
fn killed_wrapper_among_readers_gives_back_what_it_held_as_a_writer() {
    let server = Server::start().expect("a server");
    let reader = begin(&server.url(), &["-s"], &["sleep", "60"]);
    let mut writer = run(&server.url());
    writer.args(["--lease", LEASE, "x", "--", "sleep", "60"]).stdin(Stdio::null());
    let writer = writer.spawn().expect("the program");
    let client = LockClient::open(server.url()).expect("a client");
    let lock = client.rw_lock("x").expect("a lock");
    wait_until("it waits", || lock.inspect().expect("a reply").waiting() > Some(0));
    kill(reader);
    let job = || children(children(writer.id())[0]);
    wait_until("the writer's job", || !job().is_empty());
    kill(writer);
    wait_until("it is given back", || !is_held(&server));
}

#[test]
fn run_of_a_killed_wrapper_counts_as_died_and_is_tried_again() {
    let server = Server::start().expect("a server");
    let once = ["--once-per", "365d"];
    kill(begin(&server.url(), &once, &["sleep", "60"]));
    let mut second = run(&server.url());
    second.args(once).args(["x", "--", "sh", "-c", "exit 7"]);
    assert_eq!(second.status().expect("the program").code(), Some(7), "not skipped");
    let client = LockClient::open(server.url()).expect("a client");
    let period = Period::every(Duration::from_secs(365 * 86_400));
    let once: Once = client.once("x", period).expect("a job");
    assert!(once.last_run().expect("a reply").is_some());
}

/// A deaf job is killed at once, and not before it is dead is the lock another's.
#[test]
fn lock_is_given_back_after_the_last_process() {
    let server = Server::start().expect("a server");
    let file = server.directory().join("pids").display().to_string();
    let script =
        "trap '' TERM; (setsid sh -c 'echo $$ >>\"$1\"; exec sleep 60' sh \"$1\" &) ; sleep 60";
    let wrapper = begin(&server.url(), &[], &["sh", "-c", script, "sh", &file]);
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("an orphan", || text().ends_with('\n'));
    let orphan = format!("/proc/{}", text().trim());
    let client = LockClient::open(server.url()).expect("a client");
    let lock = client.mutex("x").expect("a lock");
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().expect("the lock");
            let is_alive = std::path::Path::new(&orphan).exists();
            guard.release().expect("a release");
            is_alive
        });
        wait_until("it waits", || lock.inspect().expect("a reply").waiting() > Some(0));
        kill(wrapper);
        assert!(!next.join().expect("no panic"), "beside the next holder");
    });
}

/// It knows that its wrapper lives.
#[test]
fn stopped_wrapper_keeps_its_lock() {
    let server = Server::start().expect("a server");
    let mut command = run(&server.url());
    command.args(["--lease", "3s", "x", "--", "sleep", "60"]).stdin(Stdio::null());
    let mut wrapper = command.spawn().expect("the program");
    let guardian = || children(wrapper.id()).first().copied();
    wait_until("a job", || guardian().is_some_and(|guardian| !children(guardian).is_empty()));
    let guardian = guardian().expect("found");
    send(wrapper.id(), Signal::STOP);
    wait_until("the end of the job", || children(guardian).is_empty());
    assert!(is_held(&server), "nobody gave it back");
    send(wrapper.id(), Signal::CONT);
    assert_eq!(wait(&mut wrapper).code(), Some(76));
}

/// While Redis is away, the guardian tries for five seconds.
#[test]
fn lock_is_given_back_when_redis_is_back() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let wrapper = begin(&proxy.url(), &["--timeout", "200ms"], &["sleep", "60"]);
    let guardian = children(wrapper.id())[0];
    proxy.black_hole();
    proxy.cut();
    let before = proxy.accepted();
    kill(wrapper);
    wait_until("it tries", || proxy.accepted() > before);
    proxy.heal();
    wait_until("it is given back", || !is_held(&server));
    let is_there = || std::path::Path::new(&format!("/proc/{guardian}")).exists();
    wait_until("the guardian's end", || !is_there());
}

#[test]
fn guardian_gives_up_after_five_seconds() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let wrapper = begin(&proxy.url(), &["--timeout", "200ms"], &["sleep", "60"]);
    let guardian = children(wrapper.id())[0];
    proxy.black_hole();
    kill(wrapper);
    let is_there = || std::path::Path::new(&format!("/proc/{guardian}")).exists();
    wait_until("the guardian's end", || !is_there());
    assert!(is_held(&server), "it ends with its lease");
}

/// `LEASEHOLD_RUNS` times, 10 by default.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn time_from_a_killed_wrapper_to_the_next_grant() {
    let runs = std::env::var("LEASEHOLD_RUNS").ok().and_then(|value| value.parse().ok());
    let server = Server::start().expect("a server");
    let client = LockClient::open(server.url()).expect("a client");
    let lock = client.mutex("x").expect("a lock");
    let mut times: Vec<Duration> = (0..runs.unwrap_or(10))
        .map(|_| {
            let wrapper = begin(&server.url(), &[], &["sleep", "60"]);
            std::thread::scope(|scope| {
                let next = scope.spawn(|| {
                    let guard = lock.try_lock_for(LONG).expect("a reply").expect("the lock");
                    let granted = Instant::now();
                    guard.release().expect("a release");
                    granted
                });
                wait_until("it waits", || lock.inspect().expect("a reply").waiting() > Some(0));
                let begin = Instant::now();
                kill(wrapper);
                next.join().expect("no panic").saturating_duration_since(begin)
            })
        })
        .collect();
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "a killed wrapper: {} runs, to the next grant {median:?}, at most {most:?}",
        times.len()
    );
}

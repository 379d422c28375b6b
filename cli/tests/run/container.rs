//! A run as the first process of a PID namespace, beside processes that are not its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use leasehold_support::{Server, skip};
use rustix::process::Signal;

use crate::common::{children, send, wait, wait_until};

/// A command whose program is the first process of a PID namespace. Its process group is outside; with these words in
/// front it leads its own.
fn inside(words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).args(words);
    command
}

fn is_possible() -> bool {
    let is_possible = inside(&["true"]).output().is_ok_and(|output| output.status.success());
    if !is_possible {
        skip("this user may not have a PID namespace");
    }
    is_possible
}

fn first(words: &[&str], server: &Server, arguments: &[&str]) -> Command {
    let mut command = inside(words);
    command.args([env!("CARGO_BIN_EXE_leasehold"), "run", "--url", &server.url()]);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The only child of a process.
fn child(parent: u32) -> u32 {
    let mut found = Vec::new();
    wait_until("one child", || {
        found = children(parent);
        found.len() == 1
    });
    found[0]
}

/// The first line that a child prints.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

#[test]
fn process_group_without_a_number_is_no_fault() {
    if !is_possible() {
        return;
    }
    let server = Server::start().expect("a server");
    let job = "ps -o pgid= -p $$; exit 7";
    let output = first(&[], &server, &["x", "--", "sh", "-c", job]).output().expect("unshare");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let group = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(group.trim(), "0", "the job is in the group of its caller");
}

#[test]
fn job_that_is_stopped_below_the_first_process_ends_with_its_lease() {
    if !is_possible() {
        return;
    }
    let server = Server::start().expect("a server");
    let job = ["--lease", "600ms", "x", "--", "sh", "-c", "kill -STOP $$"];
    let mut program = first(&["setsid"], &server, &job).spawn().expect("unshare");
    assert_eq!(wait(&mut program).code(), Some(76));
}

#[test]
fn job_that_goes_on_below_the_first_process_is_kept() {
    if !is_possible() {
        return;
    }
    let server = Server::start().expect("a server");
    let script = "(sleep 0.1; kill -CONT $$) & kill -STOP $$; sleep 1.5; exit 3";
    let job = ["--lease", "900ms", "x", "--", "sh", "-c", script];
    let mut program = first(&["setsid"], &server, &job).spawn().expect("unshare");
    assert_eq!(wait(&mut program).code(), Some(3));
}

/// As `docker stop` does: a first process has no default for a signal, so it must pass it on or end by itself.
#[test]
fn first_process_passes_sigterm_on_and_ends_by_it_while_it_waits() {
    if !is_possible() {
        return;
    }
    let server = Server::start().expect("a server");
    let script = "trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.02; done";
    let job = ["x", "--", "sh", "-c", script];
    let mut program = first(&[], &server, &job).stdout(Stdio::piped()).spawn().expect("unshare");
    assert_eq!(line(&mut program), "up");
    let wrapper = child(program.id());
    let mut waiting = first(&[], &server, &["x", "--", "true"]).spawn().expect("unshare");
    let waiter = child(waiting.id());
    let queue = |key: &Vec<u8>| key.ends_with(b"queue");
    wait_until("a waiter", || server.keys().iter().any(queue));
    send(waiter, Signal::TERM);
    assert_eq!(wait(&mut waiting).code(), Some(143));
    send(wrapper, Signal::TERM);
    assert_eq!(wait(&mut program).code(), Some(5));
    assert!(!server.keys().contains(&b"x".to_vec()), "the lock was given back");
}

/// They come to the first process of a namespace.
#[test]
fn orphans_of_others_do_not_stay_as_zombies() {
    if !is_possible() {
        return;
    }
    let server = Server::start().expect("a server");
    let mut program = first(&[], &server, &["x", "--", "sleep", "60"]).spawn().expect("unshare");
    let wrapper = child(program.id());
    let guardian = child(wrapper);
    wait_until("the job", || !children(guardian).is_empty());
    let mut command = Command::new("nsenter");
    command.args(["--target", &wrapper.to_string(), "--pid", "--mount", "sh", "-c"]);
    let mut visitor = command.args(["sleep 0.3 & echo"]).stdout(Stdio::piped()).spawn();
    let visitor = visitor.as_mut().expect("nsenter");
    let mut orphan = None;
    wait_until("an orphan", || {
        orphan = children(wrapper).into_iter().find(|child| *child != guardian);
        orphan.is_some()
    });
    let orphan = format!("/proc/{}", orphan.expect("found"));
    wait_until("its end", || !std::path::Path::new(&orphan).exists());
    assert!(wait(visitor).success());
    send(guardian, Signal::KILL);
    assert_eq!(wait(&mut program).code(), Some(76));
}

/// As `helper & exec leasehold run …` in a script: the helper is a child of the wrapper.
#[test]
fn helper_of_the_caller_outlives_a_killed_guardian() {
    let server = Server::start().expect("a server");
    let script = "sleep 60 >/dev/null 2>&1 & echo $!; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold"), "run"]);
    command.args(["--url", &server.url(), "x", "--", "sleep", "60"]);
    let mut program = command.stdout(Stdio::piped()).spawn().expect("sh");
    let helper: u32 = line(&mut program).parse().expect("a number");
    let mut guardian = None;
    wait_until("a job", || {
        guardian = children(program.id()).into_iter().find(|child| *child != helper);
        guardian.is_some_and(|guardian| !children(guardian).is_empty())
    });
    let guardian = guardian.expect("found");
    let job = child(guardian);
    send(guardian, Signal::KILL);
    assert_eq!(wait(&mut program).code(), Some(76));
    let is_there = |process: u32| std::path::Path::new(&format!("/proc/{process}")).exists();
    assert!(!is_there(job), "the job has ended");
    assert!(is_there(helper), "the helper has not");
    send(helper, Signal::KILL);
}

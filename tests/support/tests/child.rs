//! A child process plays a role, obeys signals and leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server};

const SOON: Duration = Duration::from_secs(20);

/// The entry point of child processes; it does nothing in the process that people started.
#[test]
fn roles() {
    match role().as_deref() {
        Some("echo") => {
            tell(&format!("ready {}", std::env::var("WORD").expect("a word")));
            while let Some(line) = hear() {
                tell(&format!("heard {line}"));
            }
        }
        Some("owner") => {
            let server = Server::start().expect("a server");
            let grandchild = child("sleeper");
            let paused = Server::start().expect("a server");
            paused.pause();
            tell(&format!("server {}", server.pid()));
            tell(&format!("paused {}", paused.pid()));
            tell(&format!("folder {}", server.directory().display()));
            tell(&format!("grandchild {}", grandchild.pid()));
            std::thread::sleep(SOON);
        }
        Some("sleeper") => std::thread::sleep(SOON * 10),
        Some(other) => panic!("unknown role {other}"),
        None => {}
    }
}

fn child(role: &str) -> Child {
    let builder = Child::role(role).test("roles").env("WORD", "steady");
    builder.start().expect("a child")
}

#[test]
fn parent_and_child_talk() {
    let mut child = child("echo");
    assert_eq!(child.expect_line("ready", SOON), "steady");
    child.say("one");
    child.say("two");
    assert_eq!(child.expect_line("heard", SOON), "one");
    assert_eq!(child.expect_line("heard two", SOON), "");
}

#[test]
fn a_stopped_child_is_silent_until_it_goes_on() {
    let mut child = child("echo");
    child.expect_line("ready", SOON);
    child.stop();
    child.say("late");
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    child.cont();
    assert_eq!(child.expect_line("heard", SOON), "late");
    assert!(begin.elapsed() < SOON);
    child.kill9();
    assert!(!child.wait().success());
}

#[test]
fn child_does_not_outlive_a_killed_process() {
    let mut owner = child("owner");
    let server = owner.expect_line("server", SOON);
    let paused = owner.expect_line("paused", SOON);
    let folder = owner.expect_line("folder", SOON);
    let grandchild = owner.expect_line("grandchild", SOON);
    let left = || {
        let processes = [&server, &paused, &grandchild];
        processes.into_iter().filter(|pid| alive(pid)).count()
            + usize::from(Path::new(&folder).exists())
    };
    assert_eq!(left(), 4);
    owner.kill9();
    let end = Instant::now() + SOON;
    while left() > 0 {
        assert!(Instant::now() < end, "something outlived its owner");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn alive(pid: &str) -> bool {
    // An orphan that no one has reaped yet is dead all the same.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    let status = Command::new("kill").args(["-0", pid]).stderr(Stdio::null()).status();
    !zombie && status.expect("kill runs").success()
}

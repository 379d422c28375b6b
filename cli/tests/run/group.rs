//! A job has a control group of its own, where that can be.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use leasehold_support::{Server, skip};
use rustix::process::Signal;

use crate::common::{children, run, send, wait, wait_until};
use crate::host::Host;

/// A run that says where its group is, and that place. None where there are no groups.
fn begin(server: &Server, name: &str, job: &[&str]) -> Option<(Child, PathBuf)> {
    let mut command = run(&server.url());
    command.args(["-v", "--lease", "30s", name, "--"]).args(job).stdin(Stdio::null());
    let log = server.directory().join(format!("log-{name}"));
    let file = std::fs::File::create(&log).expect("a file");
    let child = command.stderr(file).spawn().expect("the program");
    wait_until("a job", || {
        children(child.id()).first().is_some_and(|guardian| !children(*guardian).is_empty())
    });
    let text = std::fs::read_to_string(log).expect("a file");
    let folder = text.lines().find_map(|line| line.split_once(" by cgroup.kill, in "));
    let folder = folder.map(|(_, folder)| PathBuf::from(folder));
    let Some(folder) = folder else {
        end(child);
        skip(format!("this user has no control group: {text}"));
        return None;
    };
    Some((child, folder))
}

fn end(mut child: Child) {
    send(child.id(), Signal::TERM);
    wait(&mut child);
}

/// Whether it is there, and no zombie: who has it for a child may never wait for it.
fn is_there(process: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(") ").is_some_and(|(_, tail)| !tail.starts_with('Z'))
}

fn group_of(process: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).expect("a process");
    text.lines().find_map(|line| line.strip_prefix("0::")).expect("version 2").to_owned()
}

#[test]
fn job_alone_is_in_its_group_which_ends_with_it() {
    let server = Server::start().expect("a server");
    let Some((child, folder)) = begin(&server, "x", &["sleep", "60"]) else { return };
    let name = folder.file_name().expect("a name").to_str().expect("text");
    let guardian = children(child.id())[0];
    let job = children(guardian)[0];
    wait_until("it has entered", || group_of(job).ends_with(name));
    assert!(!group_of(guardian).contains(name) && !group_of(child.id()).contains(name));
    end(child);
    assert!(!folder.exists(), "it was removed");
}

#[test]
fn group_of_a_killed_wrapper_or_guardian_is_removed_by_the_other() {
    let server = Server::start().expect("a server");
    let Some((mut child, folder)) = begin(&server, "x", &["sleep", "60"]) else { return };
    send(children(child.id())[0], Signal::KILL);
    assert_eq!(wait(&mut child).code(), Some(76));
    assert!(!folder.exists());
    let Some((mut child, folder)) = begin(&server, "x", &["sleep", "60"]) else { return };
    child.kill().expect("a child");
    wait(&mut child);
    wait_until("it is removed", || !folder.exists());
}

#[test]
fn group_that_both_have_left_is_removed_by_the_next_run() {
    let server = Server::start().expect("a server");
    let Some((mut child, left)) = begin(&server, "x", &["sleep", "60"]) else { return };
    let guardian = children(child.id())[0];
    let job = children(guardian)[0];
    send(guardian, Signal::STOP);
    child.kill().expect("a child");
    wait(&mut child);
    send(guardian, Signal::KILL);
    // The kernel kills it with its guardian.
    wait_until("the job's end", || !is_there(job));
    wait_until("the guardian's end", || !is_there(guardian));
    // Those of other tests may be faster.
    let Some((child, folder)) = begin(&server, "y", &["sleep", "60"]) else { return };
    assert!(!left.exists() && folder.exists());
    // One that runs keeps its own.
    let Some((other, _)) = begin(&server, "z", &["sleep", "60"]) else { return };
    assert!(folder.exists());
    end(child);
    end(other);
}

/// Their parent is then not below the guardian, and they are not in its tree.
#[test]
fn orphan_in_another_namespace_is_gone_before_the_release() {
    let server = Server::start().expect("a server");
    let mut other = Command::new("unshare");
    other.args(["--pid", "--fork", "--kill-child", "sleep", "60"]);
    other.stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut other) = other.spawn() else { return skip("there is no unshare(1)") };
    let file = server.directory().join("seen");
    // The shell in the namespace dies at once.
    let script = "nsenter --target \"$1\" --pid sh -c 'sleep 60 & exit'; \
                  while [ ! -e \"$2\" ]; do sleep 0.01; done";
    let mut first = None;
    wait_until("a namespace", || {
        first = children(other.id()).first().copied();
        first.is_some() || other.try_wait().expect("a child").is_some()
    });
    let Some(first) = first else { return skip("this user may not have a PID namespace") };
    let job = ["sh", "-c", script, "sh", &first.to_string(), file.to_str().expect("text")];
    let Some((mut child, folder)) = begin(&server, "x", &job) else {
        other.kill().expect("a child");
        wait(&mut other);
        return;
    };
    wait_until("an orphan", || !children(first).is_empty());
    let orphan = children(first)[0];
    std::fs::write(&file, "").expect("a file");
    assert_eq!(wait(&mut child).code(), Some(0));
    assert!(!is_there(orphan) && is_there(first), "it died, and the namespace did not");
    assert!(!folder.exists());
    other.kill().expect("a child");
    wait(&mut other);
}

#[test]
fn nested_runs_are_killed_along() {
    let server = Server::start().expect("a server");
    let program = env!("CARGO_BIN_EXE_leasehold");
    let url = server.url();
    let nested =
        [program, "run", "--url", &url, "inner", "--", "sh", "-c", "trap '' TERM; sleep 60"];
    let Some((mut child, folder)) = begin(&server, "x", &nested) else { return };
    let below = |process: u32| children(process).first().copied();
    let inner = || below(below(child.id())?);
    let job = || below(below(inner()?)?);
    wait_until("the inner job", || job().is_some());
    let (inner, job) = (inner().expect("found"), job().expect("found"));
    wait_until("the group of the inner one", || {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count() == 1
    });
    child.kill().expect("a child");
    wait(&mut child);
    wait_until("the end of both", || !is_there(inner) && !is_there(job));
    wait_until("both groups are removed", || !folder.exists());
}

/// What the machine has is used, and said.
#[test]
fn way_is_told_on_demand_alone() {
    let server = Server::start().expect("a server");
    for host in Host::ways() {
        let said = |options: &[&str]| {
            let mut command = host.run(&server.url());
            let output = command.args(options).args(["x", "--", "true"]).output();
            String::from_utf8(output.expect("the program").stderr).expect("text")
        };
        assert_eq!(said(&[]), "", "{host:?}");
        let text = said(&["-v"]);
        assert!(text.starts_with("leasehold: the processes of the job are killed "), "{text}");
        assert_eq!(text.contains("one by one"), host == Host::Ungrouped || Host::ways().len() == 1);
    }
}

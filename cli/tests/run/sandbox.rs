//! What a sandbox or a limit forbids is said before a lock is taken, or ends the run with a status of its own.

use std::process::{Command, Output, Stdio};

use leasehold_support::{Server, skip};

use crate::common::ask;

/// Runs a program under a filter that refuses PR_SET_CHILD_SUBREAPER with EPERM.
const WITHOUT_SUBREAPER: &str = r#"
import ctypes, os, struct, sys
# The number of prctl(2), where the calls of the running machine have it.
number = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
def code(*parts): return struct.pack("HBBI", *parts)
filter = b"".join([
    code(0x20, 0, 0, 0),                # the call
    code(0x15, 0, 3, number),
    code(0x20, 0, 0, 16),               # its first argument
    code(0x15, 0, 1, 36),
    code(0x06, 0, 0, 0x00050000 | 1),   # EPERM
    code(0x06, 0, 0, 0x7fff0000),       # allowed
])
room = ctypes.create_string_buffer(filter)
program = struct.pack("HxxxxxxQ", len(filter) // 8, ctypes.addressof(room))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):
    sys.exit(99)
os.execvp(sys.argv[1], sys.argv[1:])
"#;

/// A `/proc` in which the first process of a PID namespace finds itself, and no other.
const BLIND: &str = "mount -t tmpfs none /proc && mkdir /proc/self && \
                     echo '1 (x) S 0 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 9 1' >/proc/self/stat && \
                     exec \"$@\"";

fn leasehold(mut command: Command, server: &Server, arguments: &[&str]) -> Output {
    command.args([env!("CARGO_BIN_EXE_leasehold"), "run", "--url", &server.url()]);
    command.args(arguments).stdin(Stdio::null()).output().expect("the program")
}

#[test]
fn refused_subreaper_is_70_before_a_lock_is_taken() {
    let filtered = || {
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_SUBREAPER]);
        command
    };
    if !filtered().arg("true").output().is_ok_and(|output| output.status.success()) {
        return skip("there is no Python, or no filter can be set");
    }
    let server = Server::start().expect("a server");
    let output = leasehold(filtered(), &server, &["x", "--", "true"]);
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("PR_SET_CHILD_SUBREAPER"), "{text}");
    assert_eq!(server.keys(), Vec::<Vec<u8>>::new(), "no lock was taken");
}

/// The kernel says that there is a child, and `/proc` shows none.
#[test]
fn process_that_is_not_found_is_71_and_keeps_the_lock() {
    let blind = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--mount", "--fork", "sh", "-c", BLIND, "sh"]);
        command
    };
    if !blind().arg("true").output().is_ok_and(|output| output.status.success()) {
        return skip("this user may not have a /proc of its own");
    }
    let server = Server::start().expect("a server");
    let all_seen = leasehold(blind(), &server, &["x", "--", "sh", "-c", "exit 5"]);
    assert_eq!(all_seen.status.code(), Some(5), "{all_seen:?}");
    let job = ["--grace", "50ms", "x", "--", "sh", "-c", "sleep 60 & exit 0"];
    let output = leasehold(blind(), &server, &job);
    assert_eq!(output.status.code(), Some(71), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("processes of it may be left"), "{text}");
    assert_eq!(ask::<u32>(&server, &["EXISTS", "x"]), 1, "it ends with its lease");
}

/// Each process and each thread of a user counts against this limit.
#[test]
fn thread_that_cannot_be_had_is_an_error_and_no_panic() {
    let limited = |most: u32| {
        let mut command = Command::new("setpriv");
        // A user that has nothing else.
        command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "prlimit"]);
        command.arg(format!("--nproc={most}"));
        command
    };
    if !limited(1).arg("true").output().is_ok_and(|output| output.status.success()) {
        return skip("this user may not become another");
    }
    let server = Server::builder().tcp().start().expect("a server");
    let url = format!("redis://{}", server.addr());
    let mut refused = 0;
    for most in 1..12 {
        let mut command = limited(most);
        command.args([env!("CARGO_BIN_EXE_leasehold"), "run", "--url", &url, "-n", "x", "--"]);
        let output = command.arg("true").stdin(Stdio::null()).output().expect("the program");
        match output.status.code() {
            Some(0) => {}
            // No guardian or keeper; no thread of the library; no process for the job.
            Some(70 | 69 | 126) => refused += 1,
            _ => panic!("{most}: {output:?}"),
        }
    }
    assert!(refused > 1, "neither a process nor a thread, and then no thread");
}

//! Row by row beside flock(1): what its users expect.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_support::{Server, skip};

use crate::common::{run, wait};

/// Runs a row with flock(1), where it is installed, and with leasehold, and compares what it returns.
pub(crate) fn beside_flock<T: PartialEq + std::fmt::Debug>(row: impl Fn(&Tool) -> T) -> T {
    let server = Server::start().expect("a server");
    let ours = row(&Tool::Leasehold(server.url()));
    if Command::new("flock").arg("--version").output().is_err() {
        skip("flock(1) is not installed; leasehold alone was tried");
    } else {
        let file = server.directory().join("lock").display().to_string();
        assert_eq!(ours, row(&Tool::Flock(file)), "leasehold, and then flock");
    }
    ours
}

/// Either program, with the same lock in each command.
pub(crate) enum Tool {
    Flock(String),
    Leasehold(String),
}

impl Tool {
    pub(crate) fn command(&self, options: &[&str], job: &[&str]) -> Command {
        let mut command = match self {
            Tool::Leasehold(url) => {
                let mut command = run(url);
                command.args(options).args(["lock", "--"]);
                command
            }
            Tool::Flock(file) => {
                let mut command = Command::new("flock");
                command.args(options).arg(file);
                command
            }
        };
        command.args(job);
        command
    }

    fn output(&self, options: &[&str], job: &[&str]) -> Output {
        self.command(options, job).stdin(Stdio::null()).output().expect("the program")
    }

    fn status(&self, options: &[&str], job: &[&str]) -> Option<i32> {
        self.output(options, job).status.code()
    }

    /// Holds the lock until this is told to end.
    fn hold(&self, options: &[&str]) -> Holder {
        let mut command = self.command(options, &["sh", "-c", "echo held; read line"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "held\n");
        Holder(child)
    }
}

struct Holder(Child);

impl Holder {
    fn end(mut self) -> ExitStatus {
        drop(self.0.stdin.take());
        wait(&mut self.0)
    }
}

#[test]
fn n_gives_up_at_once_with_status_1() {
    let statuses = beside_flock(|tool| {
        let holder = tool.hold(&[]);
        let held = tool.status(&["-n"], &["true"]);
        holder.end();
        (held, tool.status(&["-n"], &["true"]))
    });
    assert_eq!(statuses, (Some(1), Some(0)));
}

#[test]
fn w_waits_for_as_long_as_it_says() {
    let statuses = beside_flock(|tool| {
        let holder = tool.hold(&[]);
        let begin = Instant::now();
        let held = tool.status(&["-w", "0.3"], &["true"]);
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
        let waiting = tool.command(&["-w", "30"], &["true"]).spawn();
        holder.end();
        (held, wait(&mut waiting.expect("the program")).code())
    });
    assert_eq!(statuses, (Some(1), Some(0)));
}

#[test]
fn without_an_option_it_waits_for_the_lock() {
    let output = beside_flock(|tool| {
        let holder = tool.hold(&[]);
        let mut waiting = tool.command(&[], &["true"]).spawn().expect("the program");
        assert!(waiting.try_wait().expect("a child").is_none());
        holder.end();
        wait(&mut waiting).code()
    });
    assert_eq!(output, Some(0));
}

#[test]
fn e_chooses_the_status() {
    let statuses = beside_flock(|tool| {
        let holder = tool.hold(&["-x"]);
        let statuses =
            [["-n", "-E", "9"], ["-w", "0.01", "-E9"]].map(|o| tool.status(&o, &["true"]));
        holder.end();
        statuses
    });
    assert_eq!(statuses, [Some(9), Some(9)]);
}

#[test]
fn s_shares_with_s_alone() {
    let statuses = beside_flock(|tool| {
        let reader = tool.hold(&["-s"]);
        let beside = tool.status(&["-s", "-n"], &["true"]);
        let alone = tool.status(&["-n"], &["true"]);
        let mut waiting = tool.command(&[], &["true"]).spawn().expect("the program");
        reader.end();
        let waited = wait(&mut waiting).code();
        let writer = tool.hold(&[]);
        let under_it = tool.status(&["-s", "-n"], &["true"]);
        let mut waiting = tool.command(&["-s"], &["true"]).spawn().expect("the program");
        writer.end();
        [beside, alone, waited, under_it, wait(&mut waiting).code()]
    });
    assert_eq!(statuses, [Some(0), Some(1), Some(0), Some(1), Some(0)]);
}

#[test]
fn exit_status_is_that_of_the_job() {
    let statuses = beside_flock(|tool| {
        ["exit 0", "exit 7", "exit 255", "kill -KILL $$", "kill -TERM $$"]
            .map(|script| tool.status(&[], &["sh", "-c", script]))
    });
    assert_eq!(statuses, [Some(0), Some(7), Some(255), Some(137), Some(143)]);
}

/// Here flock(1) differs: it returns 69 or, in later versions, the same.
#[test]
fn programs_that_cannot_run_have_the_statuses_of_a_shell() {
    let server = Server::start().expect("a server");
    let tool = Tool::Leasehold(server.url());
    for program in ["/etc/passwd", "/no/such/program", "no-such-program"] {
        let shell = Command::new("sh").args(["-c", "exec \"$0\"", program]).output().expect("sh");
        let output = tool.output(&[], &[program]);
        assert_eq!(output.status.code(), shell.status.code(), "{program}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(program), "{text}");
        assert_eq!(tool.status(&["-n"], &["true"]), Some(0), "the lock was given back");
    }
}

#[test]
fn input_comes_through_a_pipe_and_output_goes_through_two() {
    let outputs = beside_flock(|tool| {
        let mut command = tool.command(&[], &["sh", "-c", "cat; echo done >&2"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let mut stdin = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || stdin.write_all(&[b'x'; 1_000_000]));
        let output = child.wait_with_output().expect("its output");
        writer.join().expect("no panic").expect("a reader");
        (output.stdout.len(), output.stderr, output.status.code())
    });
    assert_eq!(outputs, (1_000_000, b"done\n".to_vec(), Some(0)));
}

/// The reader of a pipe waits for all who could still write to it.
#[test]
fn closed_output_of_the_job_is_closed_for_its_reader() {
    let server = Server::start().expect("a server");
    let tool = Tool::Leasehold(server.url());
    let mut command = tool.command(&[], &["sh", "-c", "echo first; exec >&-; read line"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let text = std::io::read_to_string(child.stdout.take().expect("piped")).expect("text");
    assert_eq!(text, "first\n");
    assert!(child.try_wait().expect("a child").is_none(), "the job goes on");
    drop(child.stdin.take());
    assert!(wait(&mut child).code().is_some());
}

//! What a run says while it waits, if it goes without, and what it hears while its job runs.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use leasehold_support::{Cluster, Server};

use crate::common::{ask, run, wait, wait_until};

/// A run whose job lasts until its input ends; killed on drop.
struct Holder(Child);

impl Holder {
    fn start(url: &str, options: &[&str]) -> Holder {
        let mut command = run(url);
        command.args(options).args(["x", "--", "sh", "-c", "echo up; read line; true"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "up\n");
        Holder(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert_eq!(wait(&mut self.0).code(), Some(0));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another subcommand.
fn leasehold(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env("REDIS_URL", url).env_remove("LEASEHOLD_URL");
    command.stdin(Stdio::null()).output().expect("it")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn waiting_run_says_whom_it_waits_for() {
    let server = Server::start().expect("a server");
    let holder = Holder::start(&server.url(), &[]);
    let mut command = run(&server.url());
    let command = command.args(["-v", "x", "--", "true"]).stdin(Stdio::null());
    let mut waiting = command.stderr(Stdio::piped()).spawn().expect("the program");
    let lines = BufReader::new(waiting.stderr.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok).filter(|line| !line.contains("the processes of"));
    let line = lines.next().expect("a line");
    // The label is the name of the command.
    let begin = format!("leasehold: waiting for \"x\", held by sh, process {} on ", holder.0.id());
    assert!(line.starts_with(&begin), "{line}");
    for part in
        [", for ", "; its lease ends in ", " unless it is renewed; place 1 of 1 in the queue"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    holder.end();
    assert_eq!(wait(&mut waiting).code(), Some(0));
    let end = "leasehold: the job ended by itself: exit status 0";
    assert_eq!(lines.collect::<Vec<_>>(), [end], "whom it waits for is said once");
}

/// Such a string keeps every run out for ever.
#[test]
fn string_without_an_end_is_named() {
    let server = Server::start().expect("a server");
    let _: () = ask(&server, &["SET", "x", "somebody"]);
    let mut command = run(&server.url());
    let output = command.args(["-n", "x", "--", "true"]).output().expect("it");
    assert_eq!(output.status.code(), Some(1));
    let said = "leasehold: not run: \"x\" is held by a string that may be data and does not end by itself; \
                leasehold show shows it\n";
    assert_eq!(stderr(&output), said);
}

#[test]
fn run_that_goes_without_says_who_has_the_lock() {
    let server = Server::start().expect("a server");
    let url = server.url();
    let holder = Holder::start(&url, &["--label", "nightly backup"]);
    let begin = |words: &str| {
        let pid = holder.0.id();
        format!("leasehold: {words}: \"x\" is held by nightly backup, process {pid} on ")
    };
    // Longer than the second after which it would say that it waits.
    for (wait, words) in [("0", "not run"), ("1.2", "not run after 1.2s")] {
        let output = leasehold(&url, &["run", "-w", wait, "x", "--", "true"]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.starts_with(&begin(words)) && text.lines().count() == 1, "{text}");
        let output = leasehold(&url, &["run", "-q", "-w", wait, "x", "--", "true"]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""));
    }
    let _: u32 = ask(&server, &["DEL", "y"]);
    let _: () = ask(&server, &["SET", "y", "somebody", "NX", "PX", "60000"]);
    let output = leasehold(&url, &["run", "-n", "y", "--", "true"]);
    assert!(
        stderr(&output).starts_with("leasehold: not run: \"y\" is held by somebody; its lease")
    );
    holder.end();
}

/// A job that says which signals it gets.
fn start_job(url: &str, options: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let script = "trap 'echo term; exit 0' TERM; trap 'echo usr1' USR1; echo up; while :; do sleep 0.02; done";
    let mut command = run(url);
    // Its renewals are so rare that none of them brings the news.
    command.args(["--lease", "20m"]).args(options).args(["x", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
    let lines: Lines<BufReader<ChildStdout>> =
        BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("up"));
    (child, lines)
}

/// Waits until the run listens to messages.
fn await_listener(server: &Server) {
    wait_until("it listens", || {
        !ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
    });
}

#[test]
fn forced_release_reaches_the_job_at_once() {
    let server = Server::start().expect("a server");
    for options in [&[][..], &["-s"], &["--of", "2"], &["--once-per", "365d"]] {
        let (mut child, lines) = start_job(&server.url(), options);
        await_listener(&server);
        let output = leasehold(&server.url(), &["release", "--force", "x"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(lines.collect::<Vec<_>>(), ["term"], "{options:?}");
        assert_eq!(wait(&mut child).code(), Some(76), "{options:?}");
        let _: u32 = ask(&server, &["DEL", "x", "{x}:record"]);
        wait_until("nobody listens", || {
            ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
        });
    }
}

#[test]
fn job_gets_a_signal_when_somebody_asks_for_its_lock() {
    let server = Server::start().expect("a server");
    let (mut child, mut lines) = start_job(&server.url(), &["--on-ask", "USR1"]);
    await_listener(&server);
    let output = leasehold(&server.url(), &["ask", "x"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lines.next().as_deref(), Some("usr1"));
    let output = leasehold(&server.url(), &["release", "--force", "x"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lines.collect::<Vec<_>>(), ["term"]);
    assert_eq!(wait(&mut child).code(), Some(76));
}

/// The time-out of a command is a tenth of the lease, as the library advises.
#[test]
fn defaults_are_those_that_the_library_advises() {
    let server = Server::start().expect("a server");
    let warnings = |options: &[&str]| {
        let arguments = [&["run"], options, &["x", "--", "true"]].concat();
        stderr(&leasehold(&server.url(), &arguments))
    };
    assert_eq!(warnings(&[]), "");
    assert_eq!(warnings(&["--lease", "10s"]), "");
    let text = warnings(&["--lease", "10s", "--timeout", "5s"]);
    assert!(
        text.starts_with("leasehold: warning: lock \"x\": a lease of 10s is shorter"),
        "{text}"
    );
}

/// A message travels between the nodes of a cluster, so one connection is enough.
#[test]
fn run_in_a_cluster_listens_at_the_master_of_its_lock_alone() {
    let cluster = Cluster::start(3, 0).expect("a cluster");
    let url = &cluster.urls()[0];
    let name = cluster.name_at(1, "x");
    let script = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut command = run(url);
    command.args(["--cluster", "--lease", "20m", &name, "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("up"));
    let listens = |master: &Server| {
        !ask::<Vec<String>>(master, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
    };
    wait_until("it listens", || listens(&cluster.masters()[1]));
    let output = leasehold(url, &["release", "--force", "--cluster", &name]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lines.next().as_deref(), Some("term"));
    let others = [0, 2].map(|place| {
        // A connection that was made and ended counts too.
        ask::<String>(&cluster.masters()[place], &["INFO", "commandstats"]).contains("subscribe")
    });
    assert_eq!(others, [false; 2]);
    assert_eq!(lines.next(), None);
    assert_eq!(wait(&mut child).code(), Some(76));
}

//! The trace of one contended wait over two processes, and of a loss; and the metrics.

#![allow(clippy::print_stdout, reason = "the trace is there to be read")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use leasehold::redis::cmd;
use leasehold_support::Server;

/// The longest that the test waits for what must come.
const SOON: Duration = Duration::from_secs(20);

/// A process of the trace, which is killed if the test fails.
struct Process {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    lines: Vec<String>,
}

impl Process {
    fn start(url: &str, label: &str, role: &str) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trace"))
            .args([url, label, role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdout = lines(child.stdout.take().expect("it is piped"));
        let stderr = lines(child.stderr.take().expect("it is piped"));
        Process { child, stdout, stderr, lines: Vec::new() }
    }

    fn await_hold(&self) {
        assert_eq!(self.stderr.recv_timeout(SOON).as_deref(), Ok("held"));
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");
    }

    /// Its lines up to one with these words.
    fn await_line(&mut self, words: [&str; 2]) {
        while !self.lines.last().is_some_and(|line| words.iter().all(|it| line.contains(it))) {
            let line = self.stdout.recv_timeout(SOON);
            self.lines.push(line.unwrap_or_else(|_| panic!("no {words:?} in {:#?}", self.lines)));
        }
    }

    fn end(mut self) -> Vec<String> {
        let status = self.child.wait().expect("a status");
        let mut lines = std::mem::take(&mut self.lines);
        lines.extend(self.stdout.iter());
        assert!(status.success(), "{status}: {lines:#?}");
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    spawn(move || {
        let lines = BufReader::new(pipe).lines().map_while(Result::ok);
        lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
    });
    receiver
}

#[test]
fn wait_over_two_processes_is_traced_with_its_blocker() {
    let server = Server::start().expect("a server");
    let url = server.url();
    let mut holder = Process::start(&url, "billing", "hold");
    holder.await_hold();
    let mut waiter = Process::start(&url, "shop", "wait");
    let queued = || -> u64 {
        let card = cmd("ZCARD").arg("{orders:42}:queue").query(&mut server.connection());
        card.expect("a number")
    };
    let begin = Instant::now();
    while queued() == 0 {
        assert!(begin.elapsed() < SOON, "nobody queues");
        sleep(Duration::from_millis(5));
    }
    let pid = holder.child.id();
    holder.go_on();
    waiter.await_hold();
    cmd("DEL").arg("orders:42").query::<()>(&mut server.connection()).expect("it is deleted");
    waiter.go_on();
    waiter.await_line(["lock_hold{", "close"]);
    waiter.go_on();
    let (billing, shop) = (holder.end(), waiter.end());
    billing.iter().for_each(|line| println!("billing: {line}"));
    shop.iter().for_each(|line| println!("shop:    {line}"));

    let has = |lines: &[String], words: &[&str]| {
        lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
    };
    let name = "name=orders:42 kind=\"mutex\"";
    assert!(has(&billing, &["lock_wait{", name, "how=\"free\"", "close"]), "its wait");
    assert!(has(&billing, &["lock_hold{", name, "token=", "held=", "close"]), "its hold");
    let blocker = format!("blocker=billing, process {pid} on ");
    let wait = ["lock_wait{", name, "how=\"queued\"", "waited=", &blocker, "close"];
    assert!(has(&shop, &wait), "whom it waited for");
    assert!(has(&shop, &["WARN lock_hold{", "cause=Deleted", "held="]), "its loss");
    assert!(has(&shop, &["lock_hold{", name, "token=", "held=", "close"]), "its hold");
}

#[test]
fn metrics_tell_what_happened() {
    let mut metrics = Command::new(env!("CARGO_BIN_EXE_metrics"));
    let output = metrics.args(["--seconds", "3"]).output().expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
}

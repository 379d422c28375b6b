//! What these tests share.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::redis::{self, FromRedisValue};
use leasehold::{Lease, LockClient, LockOptions};
use leasehold_support::Server;
pub(crate) use leasehold_support::until;
use serde_json::Value;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn server() -> Server {
    Server::start().expect("a server")
}

/// A client that holds locks for as long as a test lasts.
pub(crate) fn open(server: &Server) -> LockClient {
    LockClient::open(server.url()).expect("a client")
}

pub(crate) fn long() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(SOON))
}

pub(crate) fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(*word));
    command.query(&mut server.connection()).expect("a reply")
}

/// Ends the waits of these clients, also where a test fails while its threads wait.
pub(crate) struct EndWaits<'a>(pub(crate) &'a [LockClient]);

impl Drop for EndWaits<'_> {
    fn drop(&mut self) {
        for client in self.0 {
            let _ = client.close(Duration::ZERO, SOON);
        }
    }
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(value["version"], 1, "{self:?}");
        value
    }

    #[track_caller]
    pub(crate) fn ends(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// The program, without what the environment of the tests says.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env_remove("REDIS_URL").env_remove("LEASEHOLD_URL").env_remove("NO_COLOR");
    command.stdin(Stdio::null());
    command
}

/// Runs the program on this server.
pub(crate) fn run<A: AsRef<OsStr>>(server: &Server, arguments: impl IntoIterator<Item = A>) -> Ran {
    let mut command = program();
    command.env("REDIS_URL", server.url()).args(arguments);
    finish(&mut command, "")
}

/// Runs a command to its end, with this input.
pub(crate) fn finish(command: &mut Command, input: &str) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut stdin = child.stdin.take().expect("an input");
    // It may end without reading.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().unwrap_or(-1);
    Ran { status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

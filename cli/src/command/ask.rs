//! `leasehold ask`: asks the holder of a mutex to let go.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::LockClient;
use serde_json::json;

use crate::command::show::Named;
use crate::failure::Failure;
use crate::kind::{Kind, word_of};
use crate::report::json;
use crate::status;

/// Ask the holder of a mutex to release it.
///
/// The process that holds the mutex decides what to do. It gets the request if it listens for requests: a program with code
/// for that, or a `leasehold run --on-ask SIGNAL`, whose job gets the signal. A `leasehold run` without that option does
/// nothing.
#[derive(Args, Debug)]
pub(crate) struct AskArguments {
    #[command(flatten)]
    named: Named,
}

impl AskArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let other = match self.named.kind {
            Some(kind) => Some(kind.word()),
            None => {
                let found = self.named.find(client);
                let locks = found.map_err(|error| self.named.explain(client, error))?;
                locks.first().map(word_of)
            }
        };
        if let Some(other) = other.filter(|kind| *kind != Kind::Mutex.word()) {
            // A semaphore and an election are called by their names alone.
            let it = if other == Kind::Semaphore.word() {
                "a semaphore".to_owned()
            } else if other == Kind::Election.word() {
                "an election".to_owned()
            } else {
                format!("a {other} lock")
            };
            return Err(Failure::usage(format!(
                "only the holder of a mutex can be asked: this is {it}"
            )));
        }
        let received = client.mutex(self.named.bytes())?.request_release()?;
        if json {
            json::print(json!({ "received": received }))?;
        } else {
            let text = match received {
                true => {
                    "the holder was asked, and decides whether it lets go; a leasehold run passes this on to its job \
                     only if it was started with --on-ask"
                }
                false => "nobody received the request",
            };
            writeln!(std::io::stdout().lock(), "{text}")?;
        }
        Ok(if received { ExitCode::SUCCESS } else { ExitCode::from(status::NOT_HAD) })
    }
}

//! `leasehold show`: who holds a lock and who waits for it.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::{ListedLock, LockClient};
use serde_json::json;

use crate::failure::Failure;
use crate::kind::{Kind, word_of};
use crate::name::{self, NameArgument, Shown};
use crate::report::json;

/// One lock by its name; for all subcommands about one.
#[derive(Args, Clone, Debug)]
pub(crate) struct Named {
    /// The lock's name.
    pub(crate) name: NameArgument,
    /// Its kind; default that of the key. It matters only where a free name is waited for as locks of two kinds.
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
}

impl Named {
    pub(crate) fn bytes(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// The locks of this name that are in use: mostly one, or none.
    pub(crate) fn find(&self, client: &LockClient) -> leasehold::Result<Vec<ListedLock>> {
        let mut locks = client.locks_named(self.bytes())?;
        locks.retain(|lock| self.kind.is_none_or(|kind| kind.word() == word_of(lock)));
        Ok(locks)
    }

    /// How messages call it.
    pub(crate) fn shown(&self) -> String {
        format!("\"{}\"", Shown(self.bytes()))
    }
}

#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    named: Named,
}

impl ShowArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let locks = self.named.find(client)?;
        if json {
            json::print(json!({ "locks": json::locks(&locks) }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut output = std::io::stdout().lock();
        for lock in &locks {
            writeln!(output, "{} {}", word_of(lock), self.named.shown())?;
            writeln!(output, "{}", lock.inspection())?;
        }
        if locks.is_empty() {
            writeln!(output, "{}: free", self.named.shown())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

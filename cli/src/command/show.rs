//! `leasehold show`: who holds a lock and who waits for it, and how the job of its name ran last.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::{LastRun, ListedLock, LockClient};
use serde_json::json;

use crate::failure::{Failure, say};
use crate::kind::{Kind, word_of};
use crate::name::{self, Abridged, NameArgument, Shown};
use crate::report::{job, json};
use crate::status;

/// One lock by its name; for all subcommands about one.
#[derive(Args, Clone, Debug)]
pub(crate) struct Named {
    /// The name of the lock.
    pub(crate) name: NameArgument,
    /// The kind of the lock; default that of the key. Needed if processes wait for a free name as two kinds of lock, and
    /// for a string that may be data: `mutex` says that the string is a lock.
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
}

impl Named {
    pub(crate) fn bytes(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// The locks of this name that are in use: mostly one, or none.
    pub(crate) fn find(&self, client: &LockClient) -> leasehold::Result<Vec<ListedLock>> {
        let mut locks = match self.kind {
            Some(Kind::Mutex) => match client.mutex_named(self.bytes()) {
                Err(error) if error.is_wrong_type() => client.locks_named(self.bytes())?,
                found => found?.into_iter().collect(),
            },
            _ => client.locks_named(self.bytes())?,
        };
        locks.retain(|lock| self.kind.is_none_or(|kind| kind.word() == word_of(lock)));
        Ok(locks)
    }

    /// Explains why no lock was found. For a string that counts as data, the text shows the string, and how to say that
    /// it is a lock.
    pub(crate) fn explain(&self, client: &LockClient, error: leasehold::Error) -> Failure {
        let is_open = error.is_wrong_type() && self.kind.is_none();
        let string = is_open.then(|| client.mutex_named(self.bytes()).ok().flatten()).flatten();
        match string.as_ref().and_then(|lock| lock.inspection().holders().first()) {
            Some(holder) => Failure::new(
                status::INTERNAL,
                format!(
                    "{} is not taken for a lock: it is a string that may be data, \"{}\"; if it is a lock, add \
                     --kind mutex",
                    self.shown(),
                    Abridged(holder.owner())
                ),
            ),
            None => error.into(),
        }
    }

    /// How messages call it.
    pub(crate) fn shown(&self) -> String {
        format!("\"{}\"", Shown(self.bytes()))
    }
}

/// Show who holds a lock and who waits for it, and how the job of that name ran last.
///
/// The hold time and the token are known for a mutex, for a reentrant lock of this library, and for the writer of a
/// read-write lock. They are not known for readers, for permits of a semaphore, or for a lock that another program took.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    named: Named,
}

impl ShowArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let locks = self.named.find(client).map_err(|error| self.named.explain(client, error))?;
        let last = self.last_run(client)?;
        if json {
            let job = last.as_ref().map(job::json);
            json::print(json!({ "locks": json::locks(&locks), "job": job }))?;
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
        if let Some(last) = last {
            writeln!(output, "job {}", self.named.shown())?;
            writeln!(output, "{last:#}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// How the job of this name ran last, if there is one. Its lock is a mutex.
    fn last_run(&self, client: &LockClient) -> Result<Option<LastRun>, Failure> {
        if self.named.kind.is_some_and(|kind| kind != Kind::Mutex) {
            return Ok(None);
        }
        match job::of(client, self.named.bytes()).and_then(|job| job.last_run()) {
            // A user who may only see locks sees them still. And what another program has there is no job.
            Err(error) if error.is_denied() || error.is_wrong_type() => {
                say(&error);
                Ok(None)
            }
            outcome => Ok(outcome?),
        }
    }
}

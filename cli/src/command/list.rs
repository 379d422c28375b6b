//! `leasehold ls`: the locks that are in use.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::{ListedLock, LockClient};
use serde_json::json;

use crate::failure::Failure;
use crate::kind::{Kind, word_of};
use crate::name::{self, NameArgument};
use crate::report::{json, row, table};

/// Which locks are listed; for `ls` and `top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    /// Names to list: `*` stands for any bytes, `?` for one.
    #[arg(default_value = "*")]
    pattern: NameArgument,
    /// Search all keys of the server, and so list the locks of other programs too.
    #[arg(long)]
    scan: bool,
    /// List this kind only.
    #[arg(long)]
    kind: Option<Kind>,
}

impl Selection {
    /// The locks in use at this moment.
    pub(crate) fn read(&self, client: &LockClient) -> leasehold::Result<Vec<ListedLock>> {
        let mut locks = client.locks(name::bytes(&self.pattern))?;
        if self.scan {
            locks = locks.with_scan();
        }
        let is_wanted =
            |lock: &ListedLock| self.kind.is_none_or(|kind| kind.word() == word_of(lock));
        let mut found = Vec::new();
        for lock in locks {
            match lock {
                Ok(lock) if is_wanted(&lock) => found.push(lock),
                Ok(_) => {}
                // A scan that finds nothing for the time of a command goes on.
                Err(error) if error.is_timeout() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// List the locks that are in use.
///
/// It shows what is held or waited for longer than a second or two, as clients of this library announce it. With --scan it
/// searches all keys, and lists the locks of other programs too.
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    selection: Selection,
}

impl ListArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let mut locks = self.selection.read(client)?;
        locks.sort_by(|one, other| (one.name(), one.kind()).cmp(&(other.name(), other.kind())));
        if json {
            json::print(json!({ "locks": json::locks(&locks) }))?;
        } else {
            let text = table::table(&row::rows(&locks));
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

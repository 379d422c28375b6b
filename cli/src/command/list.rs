//! `leasehold ls`: the locks that are in use.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use leasehold::{Holder, ListedLock, LockClient};
use serde_json::json;

use crate::duration::parse_duration;
use crate::failure::{Failure, say};
use crate::kind::{Kind, word_of};
use crate::name::{self, NameArgument};
use crate::report::{json, row, table};
use crate::status;

/// Which locks are listed; for `ls` and `top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    /// The names to list: `*` stands for any bytes, `?` for one byte.
    #[arg(default_value = "*")]
    pattern: NameArgument,
    /// Search all keys of the server, to list the locks of other programs too.
    #[arg(long)]
    scan: bool,
    /// List locks of this kind only.
    #[arg(long)]
    kind: Option<Kind>,
}

/// What a look at the locks in use found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) locks: Vec<ListedLock>,
    /// How many more the server does not let this user look at.
    pub(crate) denied: usize,
    /// Why not, for the first of them.
    refusal: Option<leasehold::Error>,
}

impl Found {
    /// Says how many locks are missing, if any are.
    pub(crate) fn say_denied(&self) {
        if let Some(refusal) = &self.refusal {
            let (count, are) =
                (self.denied, if self.denied == 1 { "lock is" } else { "locks are" });
            say(&format_args!("{count} {are} not shown: {refusal}"));
        }
    }
}

/// Whether the server denied a look at one lock, and not the list or the scan. The error then begins with that lock.
fn is_about_one_lock(error: &leasehold::Error) -> bool {
    error.is_denied() && error.to_string().starts_with("lock \"")
}

impl Selection {
    /// The locks in use at this moment. A user who may look at some of them gets those.
    pub(crate) fn read(&self, client: &LockClient) -> leasehold::Result<Found> {
        let mut locks = client.locks(name::bytes(&self.pattern))?;
        if self.scan {
            locks = locks.with_scan();
        }
        let is_wanted =
            |lock: &ListedLock| self.kind.is_none_or(|kind| kind.word() == word_of(lock));
        let (mut found, mut has_looked) = (Found::default(), false);
        for lock in locks {
            has_looked |= lock.is_ok();
            match lock {
                Ok(lock) if is_wanted(&lock) => found.locks.push(lock),
                Ok(_) => {}
                // A scan that finds nothing for the time of a command goes on.
                Err(error) if error.is_timeout() => {}
                Err(error) if is_about_one_lock(&error) => {
                    found.denied += 1;
                    found.refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match found.refusal {
            Some(refusal) if !has_looked => Err(refusal),
            _ => Ok(found),
        }
    }
}

/// List the locks that are in use.
///
/// It lists what has been held or waited for longer than a second or two, as clients of this library announce it. With
/// --scan it searches all keys, and lists the locks of other programs too.
///
/// HOLDER is the label, the process and the host: backup.sh 4711@web-3; of several, the one whose lease ends first. HELD is
/// how long the lock has been held, TTL what is left of the lease, WAIT how many wait, LONGEST how long the first of them
/// has waited, and BLOCKER the process for which all of them wait in the end. A question mark stands for what is not known,
/// a dash for what there is not.
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    selection: Selection,
    /// List only locks that have been held for this long, print nothing if there are none, and return 1 if there are any.
    /// The hold time of readers, of permits and of other programs' locks is not known, and they are not listed.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    held: Option<Duration>,
}

impl ListArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let mut found = self.selection.read(client)?;
        if let Some(least) = self.held {
            // What it cannot see, it cannot rule out.
            if let Some(refusal) = found.refusal.take() {
                return Err(refusal.into());
            }
            found.locks.retain(|lock| is_held_for(lock, least));
        }
        found.say_denied();
        let Found { mut locks, denied, .. } = found;
        locks.sort_by(|one, other| (one.name(), one.kind()).cmp(&(other.name(), other.kind())));
        if json {
            json::print(json!({ "locks": json::locks(&locks), "denied": denied }))?;
        } else if self.held.is_none() || !locks.is_empty() {
            let text = table::table(&row::rows(&locks));
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
        let is_alarm = self.held.is_some() && !locks.is_empty();
        Ok(if is_alarm { ExitCode::from(status::NOT_HAD) } else { ExitCode::SUCCESS })
    }
}

fn is_held_for(lock: &ListedLock, least: Duration) -> bool {
    let mut spans = lock.inspection().holders().iter().filter_map(Holder::since);
    spans.any(|held| held >= least)
}

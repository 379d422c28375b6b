//! `leasehold release --force`: takes a lock from its holder.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use leasehold::{Holder, ListedLock, LockClient};
use serde_json::{Value, json};

use crate::command::show::Named;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::name::{Abridged, Shown};
use crate::report::span::short;
use crate::report::{json, row};
use crate::status;

/// Take a lock from its holder.
///
/// The next waiter gets the lock at once. The former holder may go on until it notices, and only a fencing token keeps it
/// from doing harm until then. The job of a `leasehold run` gets SIGTERM as soon as the run hears of it, and SIGKILL after
/// its grace.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArguments {
    #[command(flatten)]
    named: Named,
    /// Take it although its holder has not let go. Required, because nothing gentler takes a lock that is held.
    #[arg(long, required = true)]
    force: bool,
    /// If several hold the lock, take it from this owner, as `show --json` prints it.
    #[arg(long, value_name = "OWNER", conflicts_with = "all")]
    owner: Option<String>,
    /// If several hold the lock, take it from all of them.
    #[arg(long)]
    all: bool,
    /// Confirm that a string of another program is a lock. Without this option or `--kind mutex`, such a string is only
    /// shown.
    #[arg(long)]
    yes: bool,
}

impl ReleaseArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let mut locks =
            self.named.find(client).map_err(|error| self.named.explain(client, error))?;
        locks.retain(|lock| !lock.inspection().holders().is_empty());
        if locks.len() > 1 {
            return Err(Failure::usage(
                "locks of two kinds have this name: choose one with --kind",
            ));
        }
        let mut evicted = Vec::new();
        if let Some(lock) = locks.first() {
            let chosen = self.chosen(lock)?;
            self.check_form(lock, &chosen)?;
            for holder in chosen {
                if self.evict(client, lock, holder)? {
                    evicted.push(holder);
                }
            }
        }
        if json {
            let owner = |holder: &&Holder| Value::from(Shown(holder.owner()).to_string());
            json::print(json!({
                "evicted": evicted.iter().map(owner).collect::<Value>(),
                "holders": evicted.iter().map(|it| json::holder(it)).collect::<Value>(),
            }))?;
        } else {
            let mut output = std::io::stdout().lock();
            for holder in &evicted {
                writeln!(output, "taken from {holder}")?;
                writeln!(output, "{}", aftermath(holder))?;
            }
            if evicted.is_empty() {
                writeln!(output, "nobody held it")?;
            }
        }
        Ok(if evicted.is_empty() { ExitCode::from(status::NOT_HAD) } else { ExitCode::SUCCESS })
    }

    fn chosen<'a>(&self, lock: &'a ListedLock) -> Result<Vec<&'a Holder>, Failure> {
        let holders = lock.inspection().holders();
        let is_chosen = |holder: &&Holder| {
            let shown = || Shown(holder.owner()).to_string();
            self.owner.as_ref().is_none_or(|owner| *owner == shown())
        };
        let chosen: Vec<&Holder> = holders.iter().filter(is_chosen).collect();
        if chosen.len() > 1 && !self.all {
            return Err(Failure::usage(choice(&chosen)));
        }
        Ok(chosen)
    }

    /// A string that another program wrote counts as a lock if it has a time to live, or if the user says that it is
    /// one. The former is a guess, which the user has to confirm.
    fn check_form(&self, lock: &ListedLock, chosen: &[&Holder]) -> Result<(), Failure> {
        let is_guess = Kind::of(lock) == Some(Kind::Mutex) && !self.says_mutex() && !self.yes;
        match chosen.iter().find(|holder| is_guess && row::is_foreign(holder)) {
            Some(holder) => Err(Failure::usage(format!(
                "no client of this library wrote {}, which holds \"{}\": if it is the lock of another program, \
                 add --yes",
                self.named.shown(),
                Abridged(holder.owner())
            ))),
            None => Ok(()),
        }
    }

    fn says_mutex(&self) -> bool {
        self.named.kind == Some(Kind::Mutex)
    }

    /// Takes the lock from this holder; with `--kind mutex` and no `--owner`, from the holder at that moment. Returns
    /// whether anything was taken.
    fn evict(
        &self,
        client: &LockClient,
        lock: &ListedLock,
        holder: &Holder,
    ) -> Result<bool, Failure> {
        let name = self.named.bytes();
        Ok(match Kind::of(lock) {
            Some(Kind::Mutex) if self.says_mutex() && self.owner.is_none() => {
                client.mutex(name)?.force_release_any()?
            }
            Some(Kind::Mutex) => client.mutex(name)?.force_release_of(holder)?,
            Some(Kind::Reentrant) => client.reentrant(name)?.force_release_of(holder)?,
            Some(Kind::Semaphore) => client.semaphore(name, 1)?.force_release(holder)?,
            Some(Kind::ReadWrite) => client.rw_lock(name)?.force_release(holder)?,
            Some(Kind::Election) => client.election(name)?.force_release_of(holder)?,
            None => return Err(Failure::usage(format!("a {} is not known here", lock.kind()))),
        })
    }
}

/// Names the holders of which one is to be chosen.
fn choice(holders: &[&Holder]) -> String {
    const MOST: usize = 10;
    let mut text = format!("{} hold it: choose one with --owner, or all with --all", holders.len());
    for holder in holders.iter().take(MOST) {
        let _ = write!(text, "\n  {} ({holder})", Shown(holder.owner()));
    }
    if holders.len() > MOST {
        let _ = write!(text, "\n  and {} more, as show lists them", holders.len() - MOST);
    }
    text
}

/// What the former holder may still do, and until when.
fn aftermath(holder: &Holder) -> String {
    if row::is_foreign(holder) {
        return "that program may go on: nothing tells it that the lock is gone".to_owned();
    }
    let Some(ttl) = holder.ttl() else {
        return "its work may go on: its lease had no end".to_owned();
    };
    // The token is the server's time of the grant.
    let now = holder.token().zip(holder.since()).and_then(|(token, since)| {
        UNIX_EPOCH.checked_add(Duration::from_micros(token.get()).checked_add(since)?)
    });
    let until = now.and_then(|now| now.checked_add(ttl));
    let until = until
        .map_or_else(String::new, |until| format!(" (until about {} UTC)", time_of_day(until)));
    let most = short(ttl);
    format!(
        "its work may go on until it notices, for {most} at most{until}; leasehold run ends its job as soon as \
         it hears of this"
    )
}

/// The time of the day, as `02:00:03`.
fn time_of_day(at: SystemTime) -> String {
    const DAY: u64 = 86_400;
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % DAY;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

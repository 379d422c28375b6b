//! What a run says while it waits for its lock, and if it goes without.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use leasehold::{Holder, ListedLock, LockClient, WaitingProcess};

use crate::failure::{Failure, say};
use crate::name::Shown;
use crate::report::span::short;

/// From when on a wait is said.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Says whom a run waits for.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    name: Vec<u8>,
    /// Whether it says that it waits.
    tells_waits: bool,
    /// Whether it says that it did not get the lock.
    tells_refusals: bool,
    /// What to add where the server cannot be reached.
    hint: &'static str,
}

/// A wait, which is said once it is long. It ends when this is dropped.
pub(crate) struct Wait(#[expect(dead_code, reason = "its end is the message")] Option<Sender<()>>);

impl Speaker {
    pub(crate) fn new(
        name: Vec<u8>,
        is_quiet: bool,
        is_verbose: bool,
        hint: &'static str,
    ) -> Speaker {
        let is_heard = is_verbose || std::io::stderr().is_terminal();
        Speaker { name, tells_waits: is_heard && !is_quiet, tells_refusals: !is_quiet, hint }
    }

    /// Begins a wait.
    pub(crate) fn wait(&self, client: &LockClient) -> Wait {
        if !self.tells_waits {
            return Wait(None);
        }
        let (sender, over) = mpsc::channel();
        let (speaker, client) = (self.clone(), client.clone());
        // Nobody waits for this thread: the standard error may be held up for ever. Without it, the wait is silent.
        let spawned = std::thread::Builder::new()
            .name("run-speak".to_owned())
            .spawn(move || speaker.tell_wait(&client, &over));
        Wait(spawned.is_ok().then_some(sender))
    }

    fn tell_wait(&self, client: &LockClient, over: &Receiver<()>) {
        if over.recv_timeout(LONG_WAIT) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let name = Shown(&self.name);
        let text = match client.locks_named(&self.name) {
            Ok(locks) => {
                format!("waiting for \"{name}\"{}{}", held(&locks, ", held by "), place(&locks))
            }
            // It may not look, and wait all the same.
            Err(error) if !error.is_transient() => format!("waiting for \"{name}\""),
            Err(error) => format!("waiting for the server: {}{}", Failure::from(error), self.hint),
        };
        // The job may have the standard error by now.
        if over.try_recv() == Err(TryRecvError::Empty) {
            say(&text);
        }
    }

    /// Says who has the lock that was not free in time.
    pub(crate) fn tell_refusal(&self, client: &LockClient, wait: Option<Duration>) {
        if !self.tells_refusals {
            return;
        }
        let waited = match wait {
            Some(wait) if !wait.is_zero() => format!(" after {}", short(wait)),
            _ => String::new(),
        };
        let by = match client.locks_named(&self.name) {
            Ok(locks) => match held(&locks, " is held by ") {
                by if by.is_empty() => " was held, and is free now".to_owned(),
                by => by,
            },
            // A string without a time to live keeps every run out for ever.
            Err(error) if error.is_wrong_type() => {
                " is held by a string that may be data and does not end by itself; leasehold show shows it"
                    .to_owned()
            }
            Err(_) => " is held".to_owned(),
        };
        say(&format_args!("not run{waited}: \"{}\"{by}", Shown(&self.name)));
    }
}

/// The holder whose lease ends first, after these words; nothing where nobody is seen.
fn held(locks: &[ListedLock], words: &str) -> String {
    let holders = || locks.iter().flat_map(|lock| lock.inspection().holders());
    let first = holders().min_by_key(|holder| holder.ttl().unwrap_or(Duration::MAX));
    let Some(first) = first else { return String::new() };
    let mut text = format!("{words}{first}");
    match holders().count() - 1 {
        0 => {}
        1 => text.push_str(" and another"),
        others => _ = write!(text, " and {others} others"),
    }
    text.push_str(&state(first));
    text
}

/// Since when it holds a lock, and what is left of its lease.
fn state(holder: &Holder) -> String {
    let mut text = String::new();
    if let Some(since) = holder.since() {
        let _ = write!(text, ", for {}", short(since));
    }
    if let Some(span) = holder.overdue() {
        let _ = write!(text, "; its lease ended {} ago", short(span));
        return text;
    }
    match holder.ttl() {
        Some(ttl) => _ = write!(text, "; its lease ends in {} unless it is renewed", short(ttl)),
        None => text.push_str("; its lease has no end"),
    }
    text
}

/// The place of this process in the queue, where that can be seen.
fn place(locks: &[ListedLock]) -> String {
    let waiters = || locks.iter().flat_map(|lock| lock.inspection().waiters());
    let ours = waiters().find(|waiter| is_this_process(waiter));
    ours.map_or_else(String::new, |waiter| {
        format!("; place {} of {} in the queue", waiter.place(), waiters().count())
    })
}

fn is_this_process(waiter: &WaitingProcess) -> bool {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    // The library shows no more than the beginning of a long name.
    let is_here = waiter.host().is_none_or(|name| host.starts_with(name));
    is_here && waiter.pid() == Some(std::process::id())
}

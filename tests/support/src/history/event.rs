//! The recorded events, and their lines in a file.

use std::fmt;
use std::str::FromStr;

use super::resource::Touch;

/// The reported outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not done: an error that is certain of that, or a lost lock.
    NotDone,
    /// It may have been done or not.
    Unknown,
}

/// The observed state of a lock at the server, at one moment. An empty one begins the observations
/// anew: a waiter that was not observed for a while may have been taken for dead meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose it is.
    pub owner: Option<String>,
    /// The waiters, first come first, and until when each counts as alive, in µs of the server's
    /// time; zero for a dead one.
    pub queue: Vec<(String, u64)>,
    /// The server's time, µs.
    pub micros: u64,
}

/// The event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A lock was requested; a call that may wait (`waits`) must end after `budget` ns.
    Invoked {
        /// How long the call may take, in ns.
        budget: u64,
        /// Whether it waits in line.
        waits: bool,
    },
    /// It was granted, with its token.
    Granted {
        /// The fencing token.
        token: u64,
        /// When it is valid until, as far as is known at this moment.
        valid_until: u64,
    },
    /// Its lease is over, and it may come back.
    Silent,
    /// Still held, or again after a silence, and valid so long as is known now.
    Valid {
        /// Until when.
        until: u64,
    },
    /// Another holder was reported.
    Busy,
    /// The call ended with an error.
    Failed(Outcome),
    /// The loss of the hold was reported, with its token.
    Lost {
        /// The fencing token.
        token: u64,
    },
    /// The resource let this hold in (`accepted`) or refused it.
    Entered {
        /// The fencing token.
        token: u64,
        /// Whether it was let in.
        accepted: bool,
    },
    /// The resource took this hold's write (`accepted`) or refused it.
    Wrote {
        /// The fencing token.
        token: u64,
        /// Whether it was taken.
        accepted: bool,
    },
    /// A transaction that adds `id` to a list in the same server was run under the hold.
    Transacted {
        /// The added entry.
        id: u64,
        /// The reported outcome.
        outcome: Outcome,
    },
    /// The release begins; whether the hold was still valid just before.
    Releasing {
        /// Whether it was.
        valid: bool,
        /// How long the call may take, in ns.
        budget: u64,
    },
    /// The release ended.
    Released(Outcome),
    /// This process got the processor `by` ns too late.
    Lagged {
        /// How much too late.
        by: u64,
    },
    /// The server lost its data, at some moment from this one to `until`.
    Amnesia {
        /// The last moment at which it may have.
        until: u64,
        /// How long a lease lasts, in ns: one taken before may be passed on for so long.
        lease: u64,
    },
    /// The process was killed.
    Killed,
    /// The process was stopped, from this moment until it was let go.
    Stopped {
        /// When it was.
        until: u64,
    },
    /// All faults are over.
    Healed,
    /// The writes that the resource accepted, in order.
    Accepted(Vec<Touch>),
    /// The server was looked at.
    Saw(Snapshot),
    /// The list of the lock at the end: tokens and ids, in order.
    Listed(Vec<(u64, u64)>),
    /// The leftovers one lease after the end: keys, queue entries, channels.
    Left(Vec<String>),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, on the clock of [`now`](super::now).
    pub at: u64,
    /// Which process, by its id.
    pub process: u32,
    /// Which thread of it.
    pub thread: u32,
    /// Which call of the thread.
    pub call: u64,
    /// Which lock, by its number.
    pub lock: u32,
    /// What.
    pub what: What,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Done => "done",
            Outcome::NotDone => "not-done",
            Outcome::Unknown => "unknown",
        })
    }
}

/// The line of an event that a holder records.
///
/// # Panics
///
/// If it is an event that only the parent process records.
pub(crate) fn line(event: &Event) -> String {
    let Event { at, process, thread, call, lock, what } = event;
    let what = match what {
        What::Invoked { budget, waits } => format!("invoked {budget} {}", u64::from(*waits)),
        What::Granted { token, valid_until } => format!("granted {token} {valid_until}"),
        What::Valid { until } => format!("valid {until}"),
        What::Silent => "silent".to_owned(),
        What::Busy => "busy".to_owned(),
        What::Failed(outcome) => format!("failed {outcome}"),
        What::Lost { token } => format!("lost {token}"),
        What::Entered { token, accepted } => format!("entered {token} {}", u64::from(*accepted)),
        What::Wrote { token, accepted } => format!("wrote {token} {}", u64::from(*accepted)),
        What::Transacted { id, outcome } => format!("transacted {id} {outcome}"),
        What::Releasing { valid, budget } => format!("releasing {} {budget}", u64::from(*valid)),
        What::Released(outcome) => format!("released {outcome}"),
        What::Lagged { by } => format!("lagged {by}"),
        other => panic!("not for a holder to record: {other:?}"),
    };
    format!("{at} {process} {thread} {call} {lock} {what}\n")
}

/// The event of a line, or `None` if it is no whole one.
pub(crate) fn parse(line: &str) -> Option<Event> {
    let mut words = line.split(' ');
    let event = Event {
        at: number(words.next())?,
        process: number(words.next())?,
        thread: number(words.next())?,
        call: number(words.next())?,
        lock: number(words.next())?,
        what: what(words.next()?, words.next(), words.next())?,
    };
    Some(event)
}

fn what(name: &str, first: Option<&str>, second: Option<&str>) -> Option<What> {
    let truth = |word| number::<u64>(word).map(|number| number == 1);
    Some(match name {
        "invoked" => What::Invoked { budget: number(first)?, waits: truth(second)? },
        "granted" => What::Granted { token: number(first)?, valid_until: number(second)? },
        "valid" => What::Valid { until: number(first)? },
        "silent" => What::Silent,
        "busy" => What::Busy,
        "failed" => What::Failed(outcome(first)?),
        "lost" => What::Lost { token: number(first)? },
        "entered" => What::Entered { token: number(first)?, accepted: truth(second)? },
        "wrote" => What::Wrote { token: number(first)?, accepted: truth(second)? },
        "transacted" => What::Transacted { id: number(first)?, outcome: outcome(second)? },
        "releasing" => What::Releasing { valid: truth(first)?, budget: number(second)? },
        "released" => What::Released(outcome(first)?),
        "lagged" => What::Lagged { by: number(first)? },
        _ => return None,
    })
}

fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

fn outcome(word: Option<&str>) -> Option<Outcome> {
    let all = [Outcome::Done, Outcome::NotDone, Outcome::Unknown];
    all.into_iter().find(|outcome| Some(outcome.to_string().as_str()) == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_read_back_and_half_a_line_is_none() {
        for what in [
            What::Invoked { budget: 5, waits: true },
            What::Granted { token: 7, valid_until: 9 },
            What::Silent,
            What::Valid { until: 8 },
            What::Busy,
            What::Failed(Outcome::Unknown),
            What::Lost { token: 7 },
            What::Entered { token: 7, accepted: false },
            What::Wrote { token: 7, accepted: true },
            What::Transacted { id: 4, outcome: Outcome::NotDone },
            What::Releasing { valid: false, budget: 6 },
            What::Released(Outcome::Done),
            What::Lagged { by: 1 },
        ] {
            let event = Event { at: 1, process: 2, thread: 3, call: 4, lock: 5, what };
            let line = line(&event);
            assert_eq!(parse(line.trim_end()), Some(event));
        }
        assert_eq!(parse("1 2 3 4"), None);
        assert_eq!(parse("1 2 3 4 5 grant"), None);
    }
}

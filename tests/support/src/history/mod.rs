//! The actions of holders in several processes, recorded and checked.
//!
//! Each process appends its events to a file ([`Recorder`]), stamped with the one clock that all
//! processes of the machine share ([`now`]). Who started them adds what it did itself, merges all
//! of it into a [`History`], and asks the checkers, which are functions of a history and nothing
//! else.
//!
//! | checker | checks |
//! | --- | --- |
//! | [`c1`] | validity windows of one lock never overlap |
//! | [`c2`] | tokens grow in real time, and the resource refuses no valid holder |
//! | [`c3`] | no fenced write is corrupt; raw overlaps are counted, for they may happen |
//! | [`c4`] | nothing is reported as done, as not done or as busy that was not so |
//! | [`c5`] | every call has a verdict, and one lease later nothing is left |
//! | [`c6`] | no live waiter is overtaken |
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the recorded events, and their lines in a file |
//! | `record` | the clock and the file |
//! | `resource` | the protected resource: a file that checks fencing tokens |
//! | `call` | the events of one call, from its beginning to the end of its hold |
//! | `window`, `token`, `write`, `outcome`, `rest`, `order` | the checkers, in this order |
//! | `permit` | the checker of a semaphore's permits |
//! | `access` | the checker of a read-write lock's readers and writers |
//! | `stall` | whether the machine stood still, and deadlines overrun |

mod access;
mod call;
mod event;
mod order;
mod outcome;
mod permit;
mod record;
mod resource;
mod rest;
mod stall;
mod token;
mod window;
mod write;

use std::fmt;

pub use access::{AccessKind, AccessWindow, check_accesses};
pub use call::{Call, Ended, Silence};
pub use event::{Event, Outcome, Snapshot, What};
pub use order::c6;
pub use outcome::{c4, c4_but_busy};
pub use permit::{PermitHold, Resize, check_permits};
pub use record::{Recorder, now, read};
pub use resource::{Resource, Touch};
pub use rest::c5;
pub use stall::{Overrun, stalled, watch_processor, worst_overrun};
pub use token::c2;
pub use window::c1;
pub use write::{c3, raw_overlaps};

/// A violation that a checker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `C1` to `C8`.
    pub checker: &'static str,
    /// The description, with moments and tokens.
    pub text: String,
}

impl Violation {
    pub(crate) fn new(checker: &'static str, text: impl Into<String>) -> Self {
        Self { checker, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.text)
    }
}

/// The events of all processes, in the order of their moments, and their calls.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: Vec<Event>,
    calls: Vec<Call>,
}

impl History {
    /// Merges events, in whatever order they come.
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        let calls = call::assemble(&events);
        Self { events, calls }
    }

    /// Returns all events, by moment.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns all calls, by the moment at which they began.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the calls that were granted the lock.
    pub fn holds(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.token.is_some())
    }

    /// Returns how many holds waited for another, or at least met one.
    ///
    /// A hold is contended if another call for its lock had begun and not yet ended when it was
    /// asked for.
    pub fn contended(&self) -> usize {
        self.holds()
            .filter(|hold| {
                let before = self.calls[..self.calls.partition_point(|c| c.invoked < hold.invoked)]
                    .iter()
                    .rev()
                    // No hold lasts for this many calls of others.
                    .take(256);
                before.into_iter().any(|other| {
                    other.lock == hold.lock && other.over.is_none_or(|over| over > hold.invoked)
                })
            })
            .count()
    }

    /// Returns how often a hold was silent, and how often one came back from that.
    pub fn silences(&self) -> (usize, usize) {
        let silences = || self.holds().flat_map(|hold| &hold.silences);
        (silences().count(), silences().filter(|silence| silence.to.is_some()).count())
    }

    /// Runs all checkers.
    pub fn check(&self) -> Vec<Violation> {
        [c1, c2, c3, c4, c5, c6].iter().flat_map(|checker| checker(self)).collect()
    }

    /// Runs all checkers that hold over several servers.
    pub fn check_several(&self) -> Vec<Violation> {
        [c1, c2, c3, c4_but_busy, c5, c6].iter().flat_map(|checker| checker(self)).collect()
    }

    /// The locks that occur.
    pub(crate) fn locks(&self) -> Vec<u32> {
        let mut locks: Vec<u32> = self.calls.iter().map(|call| call.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// When a hold may first have been forgotten by the server, if it was: it was asked for before
    /// the server had forgotten everything, or is [inherited](Self::inherited).
    pub(crate) fn forgotten(&self, hold: &Call) -> Option<u64> {
        let from = |event: &Event| match event.what {
            What::Amnesia { until, .. } => (hold.invoked < until).then_some(event.at),
            _ => None,
        };
        self.amnesias().filter_map(from).chain(self.inherited(hold)).min()
    }

    /// When the server began to forget, if a hold stands on a lease that may have been taken before
    /// that was over, and may have been passed on within the process since.
    pub(crate) fn inherited(&self, hold: &Call) -> Option<u64> {
        let from = |event: &Event| match event.what {
            What::Amnesia { until, lease } => {
                (hold.first_valid_until < until + lease).then_some(event.at)
            }
            _ => None,
        };
        self.amnesias().filter_map(from).min()
    }

    /// When the server lost its data.
    pub(crate) fn amnesias(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| matches!(event.what, What::Amnesia { .. }))
    }

    /// When the process was killed.
    pub(crate) fn killed(&self, process: u32) -> Option<u64> {
        let killed = |event: &&Event| event.process == process && event.what == What::Killed;
        self.events.iter().find(killed).map(|event| event.at)
    }
}

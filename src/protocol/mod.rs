//! One exchange with Redis per call, and what its answer means. Nothing here sleeps or waits for
//! a lock.
//!
//! | module | what it has |
//! | --- | --- |
//! | `kind` | the recipe of a kind of lock: its keys, its scripts, its owner's value |
//! | `mutex`, `reentrant` | the kinds |
//! | `answer` | what scripts answer |
//! | `watch` | release by transaction, without a script |
//! | `single` | the protocol over one server |
//!
//! The engine sees [`Protocol`] and nothing behind it.

pub(crate) mod answer;
pub(crate) mod kind;
pub(crate) mod mutex;
pub(crate) mod reentrant;
pub(crate) mod single;
mod watch;

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::ReleaseKind;
use crate::base::time::Moment;
use crate::wire::failure::Failure;

pub(crate) use answer::{Answer, Verdict};
pub(crate) use kind::Target;

/// What the worker has to say about one lease.
#[derive(Debug)]
pub(crate) struct Errand<'a> {
    pub(crate) target: &'a Target,
    pub(crate) owner: &'a [u8],
    pub(crate) task: Task,
}

/// What an errand is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Make it live this long from now on, and show its hold count where its kind does.
    Renew { ttl: Duration, count: u32 },
    /// Give it back.
    Release,
}

/// A verdict, and when it was asked for on the holder's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) verdict: Verdict,
    pub(crate) sent: Moment,
}

/// The engine's view of where locks live.
///
/// Every call is one exchange, bounded by its deadline. A repeated call for the same owner does
/// no harm, whatever became of the first.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// Who asks.
    fn identity(&self) -> &Identity;

    /// Tries to make `owner` the owner.
    fn acquire(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        deadline: Moment,
    ) -> Result<Answer, Failure>;

    /// Gives the lock back if it is the owner's.
    fn release(
        &self,
        target: &Target,
        owner: &[u8],
        how: ReleaseKind,
        deadline: Moment,
    ) -> Result<Verdict, Failure>;

    /// Makes the lease last at least `ttl` from now, if it is the owner's.
    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure>;

    /// Runs errands for many leases at once.
    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>>;

    /// Who holds the lock.
    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure>;

    /// Gives the lock back for whoever holds it; whether anybody did.
    fn force_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure>;
}

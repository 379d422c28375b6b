//! The tasks of the worker.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::Lease;
use crate::protocol::target::Target;

/// A slot, as the worker sees it. The worker renews leases without it, and does here what needs the lock of the slot.
/// It does not wait for that: it returns nothing if a thread has it.
pub(crate) trait WatchedSlot: fmt::Debug + Send + Sync {
    /// Ends what is over of this lease: holds, or all of it, or its linger. Returns the losses, which the worker
    /// logs.
    fn end_over(self: Arc<Self>, lease: &Arc<Lease>) -> Option<Vec<Loss>>;

    /// Returns the lock if it is to be announced now. The slot has the worker come again for the next announcement,
    /// `again` after this one.
    fn announce(self: Arc<Self>, now: Moment, again: Duration) -> Option<Option<Arc<Target>>>;
}

/// A lease with its slot, as the worker has them in one turn.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) lease: Arc<Lease>,
    pub(super) slot: Weak<dyn WatchedSlot>,
}

/// Work for the worker.
#[derive(Debug)]
pub(super) enum ScheduledTask {
    /// Look what a lease needs, which a thread has taken again since the last look or has not.
    Look(Weak<Lease>, Weak<dyn WatchedSlot>, bool),
    /// Announce a slot in which threads only wait.
    Announce(Weak<dyn WatchedSlot>),
    /// Remove an owner's value for a thread that could not do so, or need not.
    Release(Arc<PendingRelease>),
    /// Call the user back.
    Notify(Notification),
}

/// A task with its due time.
#[derive(Debug)]
pub(super) struct TimedTask {
    pub(super) due: Moment,
    pub(super) task: ScheduledTask,
}

/// An owner's value that must not stay in Redis.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) target: Arc<Target>,
    pub(crate) owner: Arc<[u8]>,
    /// After this moment no unanswered request for it can run any more. Only the reply to a release that
    /// was sent later is final (rule 6).
    pub(crate) settled: Moment,
    /// How long it may live in Redis after the last request for it.
    pub(crate) ttl: Duration,
    /// The last token used, if that is not the one that Redis minted.
    pub(crate) last_token: Option<u64>,
    /// Not before then, whatever becomes of the client: the user wants the lock kept.
    pub(crate) kept_until: Option<Moment>,
}

impl PendingRelease {
    /// This one merged with another one of the same owner.
    pub(super) fn and(&self, other: &PendingRelease) -> PendingRelease {
        PendingRelease {
            target: Arc::clone(&self.target),
            owner: Arc::clone(&self.owner),
            // The later and the longer of both: either caller may know of a request that the other does
            // not.
            settled: self.settled.max(other.settled),
            ttl: self.ttl.max(other.ttl),
            last_token: self.last_token.max(other.last_token),
            kept_until: self.kept_until.max(other.kept_until),
        }
    }
}

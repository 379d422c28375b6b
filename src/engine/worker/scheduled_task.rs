//! The tasks of the worker.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::Lease;
use crate::engine::worker::removal::Removal;
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
    Remove(Arc<Removal>),
    /// Call the user back. In a box: the queue has a task for each lock that is held, and a notification would make each of
    /// them three times as large.
    Notify(Box<Notification>),
}

/// A task with its due time.
#[derive(Debug)]
pub(super) struct TimedTask {
    pub(super) due: Moment,
    pub(super) task: ScheduledTask,
}

//! The tasks of the worker.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::HeldLease;
use crate::protocol::target::Target;

/// A slot, as the worker sees it: it has leases that the worker must check.
pub(crate) trait RenewableSlot: fmt::Debug + Send + Sync {
    /// Ends lingers whose time is over. Returns the leases that threads hold, live or not, and the lock if it
    /// is to be announced now. The slot schedules the next check of a lease, unless its renewal is due now, and
    /// the next announcement, `announced_again` after this one.
    fn check(
        self: Arc<Self>,
        now: Moment,
        announced_again: Duration,
    ) -> (Vec<Arc<HeldLease>>, Option<Arc<Target>>);

    /// Schedules another check, if there still is a lease.
    fn check_again(self: Arc<Self>, due: Moment);

    /// A renewal of its lease, sent at `sent`, was confirmed, and the reply counts so many who wait, if it
    /// says.
    fn renewed(self: Arc<Self>, lease: &Arc<HeldLease>, sent: Moment, waiters: Option<u32>);

    /// A renewal of its lease has failed.
    fn not_renewed(self: Arc<Self>, lease: &Arc<HeldLease>);

    /// Its lease was found lost. The worker logs that.
    fn lost(self: Arc<Self>, lease: &Arc<HeldLease>, loss: Loss);
}

/// Work for the worker.
#[derive(Debug)]
pub(super) enum ScheduledTask {
    /// Check what a slot needs: a renewal, a hold count to show, the end of a lease or of a linger.
    Check(Weak<dyn RenewableSlot>),
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

//! What the worker is to do, and for whom.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::lease::HeldLease;
use crate::protocol::target::Target;

/// Has a lease now and then, and wants the worker to look at it: a slot.
pub(crate) trait RenewableSlot: fmt::Debug + Send + Sync {
    /// Returns the leases that threads have, live or not; another look is owed then. A linger whose time is
    /// over is ended.
    fn leases_to_check(self: Arc<Self>, now: Moment) -> Vec<Arc<HeldLease>>;

    /// Asks for another look then, if there still is a lease.
    fn check_again(self: Arc<Self>, due: Moment);

    /// Its lease was found lost, which the worker logs.
    fn lost(self: Arc<Self>, lease: &Arc<HeldLease>, loss: Loss);
}

/// Work for the worker.
#[derive(Debug)]
pub(super) enum ScheduledTask {
    /// Look what the slot needs: a renewal, its hold count shown, the end of a lease or a linger.
    Check(Weak<dyn RenewableSlot>),
    /// Give it back for a thread that could not or need not do so itself.
    Release(Arc<PendingRelease>),
    /// Call the user back.
    Notify(Notification),
}

/// Work and when it is due.
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
    /// Requests for it may run until then, so that an answer to an earlier one is not the last
    /// word (rule 6).
    pub(crate) settled: Moment,
    /// How long it lives after the last request for it.
    pub(crate) ttl: Duration,
    /// The last token used, where that is not the one minted.
    pub(crate) last_token: Option<u64>,
}

impl PendingRelease {
    /// This and another one of the same owner.
    pub(super) fn and(&self, other: &PendingRelease) -> PendingRelease {
        PendingRelease {
            target: Arc::clone(&self.target),
            owner: Arc::clone(&self.owner),
            settled: self.settled.max(other.settled),
            ttl: self.ttl.max(other.ttl),
            last_token: self.last_token.max(other.last_token),
        }
    }
}

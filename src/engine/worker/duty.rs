//! What the worker is to do, and for whom.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::News;
use crate::engine::lease::LiveLease;
use crate::protocol::target::Target;

/// Has a lease now and then, and wants the worker to look at it: a slot.
pub(crate) trait Tended: fmt::Debug + Send + Sync {
    /// Returns the leases that threads have, live or not; another look is owed then. A linger whose time is
    /// over is ended.
    fn held(self: Arc<Self>, now: Moment) -> Vec<Arc<LiveLease>>;

    /// Asks for another look then, if there still is a lease.
    fn look_again(self: Arc<Self>, due: Moment);

    /// Its lease was found lost, which the worker logs.
    fn lost(self: Arc<Self>, lease: &Arc<LiveLease>, loss: Loss);
}

/// Work for the worker.
#[derive(Debug)]
pub(super) enum Duty {
    /// Look what the slot needs: a renewal, its hold count shown, the end of a lease or a linger.
    Look(Weak<dyn Tended>),
    /// Give it back for a thread that could not or need not do so itself.
    GiveBack(Arc<GiveBack>),
    /// Call the user back.
    Announce(News),
}

/// Work and when it is due.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) due: Moment,
    pub(super) duty: Duty,
}

/// An owner's value that must not stay in Redis.
#[derive(Debug)]
pub(crate) struct GiveBack {
    pub(crate) target: Arc<Target>,
    pub(crate) owner: Arc<[u8]>,
    /// Requests for it may run until then, so that an answer to an earlier one is not the last
    /// word (rule 6).
    pub(crate) settled: Moment,
    /// How long it lives after the last request for it.
    pub(crate) ttl: Duration,
    /// The last token used, where that is not the one minted.
    pub(crate) last_token: Option<u64>,
    /// Not before then, whatever becomes of the client: the user wants the lock kept.
    pub(crate) kept_until: Option<Moment>,
}

impl GiveBack {
    /// This and another one of the same owner.
    pub(super) fn and(&self, other: &GiveBack) -> GiveBack {
        GiveBack {
            target: Arc::clone(&self.target),
            owner: Arc::clone(&self.owner),
            settled: self.settled.max(other.settled),
            ttl: self.ttl.max(other.ttl),
            last_token: self.last_token.max(other.last_token),
            kept_until: self.kept_until.max(other.kept_until),
        }
    }
}

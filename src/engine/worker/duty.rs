//! What the worker is to do.

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::News;
use crate::engine::lease::LiveLease;
use crate::engine::slot::Slot;
use crate::engine::worker::GiveBack;

/// Work for the worker.
#[derive(Debug)]
pub(super) enum Duty {
    /// Look what the slot needs: a renewal, its hold count shown, the end of a lease or a linger.
    Look(Weak<Slot>),
    /// Give it back for a thread that could not or need not do so itself.
    GiveBack(Arc<GiveBack>),
    /// Call the user back.
    Announce(News),
}

/// Another look at the slot of a lease.
pub(super) fn watch(lease: &Arc<LiveLease>, due: Moment) -> Entry {
    Entry { due, duty: Duty::Look(Arc::downgrade(lease.slot())) }
}

/// Work and when it is due.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) due: Moment,
    pub(super) duty: Duty,
}

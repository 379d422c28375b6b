//! What the worker is to do, and when it is due.

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::News;
use crate::engine::lease::LiveLease;
use crate::engine::slot::Slot;
use crate::engine::worker::GiveBack;

/// Work for the worker.
#[derive(Debug)]
pub(super) enum Duty {
    /// Renew it, and find out when it is lost.
    Watch(Weak<LiveLease>),
    /// Show its hold count.
    Show(Weak<LiveLease>),
    /// Give it back for a thread that could not or need not do so itself.
    GiveBack(Arc<GiveBack>),
    /// End a linger whose time is over.
    LookAtLinger(Weak<Slot>),
    /// Call the user back.
    Announce(News),
}

impl Duty {
    /// When it must be looked at, whatever happens: the end of a lease is never told late.
    pub(super) fn latest(&self) -> Moment {
        match self {
            Duty::Watch(lease) => lease.upgrade().map_or(Moment::FAR, |lease| lease.valid_until()),
            _ => Moment::FAR,
        }
    }

    /// Whether there is nothing to do any more.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Duty::Watch(lease) | Duty::Show(lease) => live(lease).is_none(),
            Duty::LookAtLinger(slot) => slot.strong_count() == 0,
            Duty::GiveBack(_) | Duty::Announce(_) => false,
        }
    }
}

/// The lease, unless it is over. A guard may still have one that was lost or given back, which must
/// not be renewed once more.
pub(super) fn live(lease: &Weak<LiveLease>) -> Option<Arc<LiveLease>> {
    lease.upgrade().filter(|lease| lease.is_live())
}

pub(super) fn watch(lease: &Arc<LiveLease>, due: Moment) -> Entry {
    Entry { due, duty: Duty::Watch(Arc::downgrade(lease)) }
}

/// Work and when it is due; the soonest is the greatest, as the heap wants it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) due: Moment,
    pub(super) duty: Duty,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

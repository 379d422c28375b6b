//! The entry of a reader that threads share.

use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::Slot;

impl Slot {
    /// Ends a hold of an entry that other threads share. Returns whether they do: then nothing is sent, and the last
    /// one gives the entry back.
    pub(crate) fn leave_entry(self: &Arc<Slot>, hold: &Arc<Hold>) -> bool {
        // Only readers share one; all others need no look, which takes the lock of the slot.
        hold.lease.access() == Some(Access::Read)
            && self.transition(|state, step| state.leave_entry(hold, step))
    }

    /// The acquirer goes on with the hold by which it has asked, at `sent`: nobody waits. Returns false if its wait was
    /// cancelled.
    pub(crate) fn asked(self: &Arc<Slot>, lease: &Arc<Lease>, sent: Moment) -> bool {
        self.transition(|state, step| state.asked(lease, sent, step))
    }

    /// Whether other threads hold the entry of this lease, which only readers share.
    pub(super) fn is_shared(&self, lease: &Arc<Lease>) -> bool {
        lease.access() == Some(Access::Read) && self.state.lock().has_entry(lease)
    }
}

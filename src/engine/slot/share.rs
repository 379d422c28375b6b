//! The entry of a reader that threads share.

use crate::base::loss::LossCause;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::Slot;

impl Slot {
    /// Ends a hold of an entry that other threads share. Returns whether they do: then nothing is sent, and the last
    /// one gives the entry back.
    pub(crate) fn leave_entry(self: &Arc<Slot>, lease: &Arc<HeldLease>) -> bool {
        // Only readers share one; all others need no look, which takes the lock of the slot.
        lease.access() == Some(Access::Read)
            && self.transition(|state, step| state.leave_entry(lease, step))
    }

    /// The acquirer goes on with the hold by which it has asked, at `sent`: nobody waits. Returns false if its wait was
    /// cancelled.
    pub(crate) fn asked(self: &Arc<Slot>, lease: &Arc<HeldLease>, sent: Moment) -> bool {
        self.transition(|state, step| state.asked(lease, sent, step))
    }

    /// A reply to a request about this lease, sent at `sent`, counts so many who wait.
    pub(crate) fn note_waiters(
        self: &Arc<Slot>,
        lease: &Arc<HeldLease>,
        sent: Moment,
        waiters: u32,
    ) {
        self.transition(|state, _| state.on_counted(lease, sent, waiters));
    }

    /// The other leases of the entry of a reader.
    pub(super) fn siblings(&self, lease: &Arc<HeldLease>) -> Vec<Arc<HeldLease>> {
        if lease.access() != Some(Access::Read) {
            return Vec::new();
        }
        let others = self.state.lock().siblings(lease);
        // The others are dropped here, where nothing is locked.
        let is_of_entry =
            |other: &Arc<HeldLease>| Arc::ptr_eq(&other.terms.owner, &lease.terms.owner);
        others.into_iter().filter(is_of_entry).collect()
    }

    /// Redis has replied that the owner of an entry does not hold the lock any more: that is so for all its holds.
    pub(super) fn lose_siblings(self: &Arc<Slot>, lease: &Arc<HeldLease>, cause: LossCause) {
        if !matches!(cause, LossCause::Taken | LossCause::Deleted) {
            // The end of a hold for itself.
            return;
        }
        // Again, as a thread may have come in by one of them before that was lost, with a hold that nobody renews.
        while self.lose_known_siblings(lease, cause) {}
    }

    /// Returns whether one of them was live.
    fn lose_known_siblings(self: &Arc<Slot>, lease: &Arc<HeldLease>, cause: LossCause) -> bool {
        let mut any = false;
        for sibling in self.siblings(lease) {
            if let Some(loss) = sibling.lose(cause, self.context.now()) {
                any = true;
                self.remove(&sibling);
                self.report_loss(&sibling, loss);
            }
        }
        any
    }
}

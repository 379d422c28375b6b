//! What a slot is told by messages.

use crate::base::sync::Arc;
use crate::engine::lease::HeldLease;
use crate::engine::slot::acquirer::ReceivedGrant;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::protocol::wake_message::GrantMessage;

impl SlotState {
    /// A grant was heard. It is kept for the acquirer, also before the reply to its request (rule 10).
    pub(in crate::engine::slot) fn on_grant(&mut self, grant: GrantMessage, step: &mut Step) {
        let Some(acquirer) = &mut self.acquirer else { return };
        if acquirer.number == grant.number {
            acquirer.grant = Some(ReceivedGrant { grant, received: step.now });
            step.wakes_acquirer = true;
        }
    }

    /// So many in other processes wait for what this attempt has. Returns whether it is of this slot.
    pub(in crate::engine::slot) fn on_wanted(&mut self, number: u64, waiters: u32) -> bool {
        let acquirer = self.acquirer.as_mut().filter(|acquirer| acquirer.number == number);
        let holder = self.holders.iter_mut().find(|holder| holder.is_attempt(number));
        let demand = match (acquirer, holder) {
            (Some(acquirer), _) => &mut acquirer.demand,
            (None, Some(holder)) => &mut holder.demand,
            (None, None) => return false,
        };
        demand.set(waiters.max(1));
        true
    }

    /// This attempt is said to have been evicted. Returns the lease in doubt, about which Redis is asked at once.
    pub(in crate::engine::slot) fn on_evicted(
        &mut self,
        number: u64,
        step: &mut Step,
    ) -> Option<Arc<HeldLease>> {
        if let Some(acquirer) = self.acquirer.as_mut().filter(|acquirer| acquirer.number == number)
        {
            // The grant may be in a reply on its way.
            acquirer.evicted = true;
        }
        let lease = self.holders.iter().find(|holder| holder.is_attempt(number))?.lease()?;
        lease.doubt(step.now);
        self.check_by(step.now, step);
        Some(lease)
    }

    /// Whether a thread has the lease of this attempt.
    pub(in crate::engine::slot) fn is_held(&self, number: u64) -> bool {
        self.holders.iter().any(|holder| holder.is_attempt(number) && holder.is_held())
    }

    /// Makes the acquirer ask again at once. What was published before was not heard.
    pub(in crate::engine::slot) fn request_retry(&mut self, step: &mut Step) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.retry_now = true;
            acquirer.demand.wanted = true;
            step.wakes_acquirer = true;
        }
        self.holders.iter_mut().for_each(|holder| holder.demand.wanted = true);
    }
}

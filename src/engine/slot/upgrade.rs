//! How a slot knows the upgrade that waits in it: the thread holds the lock, and is no acquirer.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::engine::slot::acquirer::Upgrader;
use crate::engine::slot::{Paused, Slot};

/// An upgrade that waits in its slot, until this is dropped.
pub(crate) struct WaitingUpgrade<'a> {
    slot: &'a Arc<Slot>,
    number: u64,
}

impl Slot {
    /// A thread that holds the lock waits to become the writer. `None` if the client is closing.
    pub(crate) fn begin_upgrade(self: &Arc<Slot>) -> Option<WaitingUpgrade<'_>> {
        let number = self.context.protocol.identity().next_attempt();
        let (begins, lingering) = self.transition(|state, step| {
            let begins = state.begin_upgrade(number, step);
            (begins, state.end_lingers(|_, _| begins, step))
        });
        // It would wait for these too.
        for lease in lingering {
            self.ended_linger(lease).release_now(self.context.exchange_deadline());
        }
        begins.then_some(WaitingUpgrade { slot: self, number })
    }

    /// The upgrade pauses until a message makes it ask, it is cancelled, or the time is over.
    pub(crate) fn pause_upgrade(&self, span: Duration) -> Paused {
        let mut state = self.state.lock();
        let until = self.context.now().after(span);
        let is_quiet = |upgrader: &Upgrader| !upgrader.retry_now && !upgrader.cancelled;
        while state.upgrader.as_deref().is_some_and(is_quiet) && self.context.now() < until {
            self.context.wait_until(until, &mut |left| {
                self.pause.wait_for(&mut state, left);
            });
        }
        match &mut state.upgrader {
            Some(upgrader) if !upgrader.cancelled => {
                upgrader.retry_now = false;
                Paused::Over
            }
            _ => Paused::Cancelled,
        }
    }
}

impl WaitingUpgrade<'_> {
    /// It waits no more. Returns whether it was cancelled, which it cannot be later.
    pub(crate) fn end(&self) -> bool {
        self.slot.transition(|state, _| state.end_upgrade(self.number))
    }
}

impl Drop for WaitingUpgrade<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

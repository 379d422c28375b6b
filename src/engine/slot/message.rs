//! What a slot is told by messages.

use crate::base::sync::Arc;
use crate::engine::callback::Notification;
use crate::engine::listener::ReleaseListener;
use crate::engine::slot::Slot;
use crate::protocol::wake_message::GrantMessage;

impl Slot {
    /// A grant was heard.
    pub(crate) fn on_grant(self: &Arc<Slot>, grant: GrantMessage) {
        self.transition(|state, step| state.on_grant(grant, step));
    }

    /// Another process waits for what this attempt has. A lease that lingers is given back.
    pub(crate) fn on_wanted(self: &Arc<Slot>, number: u64, waiters: u32) {
        let ours = self.transition(|state, _| state.on_wanted(number, waiters));
        if ours {
            self.revoke_linger(number);
        }
    }

    /// Somebody asks for what this attempt has. A lease that lingers is given back, and the user is told
    /// of what a thread here holds.
    pub(crate) fn on_request(self: &Arc<Slot>, number: u64) {
        self.revoke_linger(number);
        if self.state.lock().is_held(number) {
            let name = self.target.name().as_bytes().to_vec();
            self.context.worker.notify(Notification::Requested(name));
        }
    }

    /// This attempt is said to have been evicted: the worker asks Redis at once whether that is so. A lease
    /// that lingers is given back.
    pub(crate) fn on_evicted(self: &Arc<Slot>, number: u64) {
        // Dropped once the slot is unlocked: ours may be the last reference.
        drop(self.transition(|state, step| state.on_evicted(number, step)));
        self.revoke_linger(number);
    }

    /// Gives back a lease of this attempt that lingers: at once and here, since another thread would take
    /// longer to wake than this takes.
    fn revoke_linger(self: &Arc<Slot>, number: u64) {
        if let Some(ending) = self.end_linger(|holder| holder.is_attempt(number)) {
            ending.release_now(self.context.exchange_deadline());
        }
    }
}

impl ReleaseListener for Slot {
    fn has_waiters(&self) -> bool {
        self.state.lock().has_waiters()
    }

    fn on_release(&self) {
        self.state.lock().fairness.on_release();
        self.request_retry();
    }

    fn on_resubscribe(&self) {
        self.state.lock().fairness.on_resubscribe();
    }

    /// Wakes nobody but the acquirer.
    fn request_retry(&self) {
        let mut step = self.begin_step();
        self.state.lock().request_retry(&mut step);
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
    }
}

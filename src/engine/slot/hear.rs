//! What a slot is told by messages.

use crate::base::sync::Arc;
use crate::engine::callback::News;
use crate::engine::listener::HearsReleases;
use crate::engine::slot::Slot;
use crate::protocol::wake::GrantMessage;

impl Slot {
    /// A grant was heard.
    pub(crate) fn hear_grant(self: &Arc<Slot>, grant: GrantMessage) {
        self.on(|state, step| state.hear_grant(grant, step));
    }

    /// Another process waits for what this attempt has. A lease that lingers is given back.
    pub(crate) fn hear_wanted(self: &Arc<Slot>, number: u64, waiters: u32) {
        let ours = self.on(|state, _| state.hear_wanted(number, waiters));
        if ours {
            self.revoke_linger(number);
        }
    }

    /// Somebody asks for what this attempt has. A lease that lingers is given back, and the user is told
    /// of what a thread here holds.
    pub(crate) fn hear_request(self: &Arc<Slot>, number: u64) {
        self.revoke_linger(number);
        if self.state.lock().is_held(number) {
            let name = self.target.name().as_bytes().to_vec();
            self.context.worker.announce(News::Requested(name));
        }
    }

    /// This attempt is said to have been evicted: the worker asks Redis at once whether that is so. A lease
    /// that lingers is given back.
    pub(crate) fn hear_evicted(self: &Arc<Slot>, number: u64) {
        // Dropped once the slot is unlocked: ours may be the last reference.
        drop(self.on(|state, step| state.hear_evicted(number, step)));
        self.revoke_linger(number);
    }

    /// Gives back a lease of this attempt that lingers: at once and here, since another thread would take
    /// longer to wake than this takes.
    fn revoke_linger(self: &Arc<Slot>, number: u64) {
        if let Some(ending) = self.end_linger(|holder| holder.is_attempt(number)) {
            ending.give_back_now(self.context.exchange_deadline());
        }
    }
}

impl HearsReleases for Slot {
    fn is_waited_for(&self) -> bool {
        self.state.lock().is_waited_for()
    }

    fn hear_release(&self) {
        self.state.lock().courtesy.hear_release();
        self.nudge();
    }

    fn listen_anew(&self) {
        self.state.lock().courtesy.listen_anew();
    }

    /// Wakes nobody but the acquirer.
    fn nudge(&self) {
        let mut step = self.begin_step();
        self.state.lock().nudge(&mut step);
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
    }
}

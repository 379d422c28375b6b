//! The messages that a slot receives.

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::callback::Notification;
use crate::engine::listener::ReleaseListener;
use crate::engine::slot::Slot;
use crate::protocol::wake_message::GrantMessage;

/// So many leases that lingered are released by the thread that has ended their lingers, one by one.
const MOST_RELEASED_AT_ONCE: usize = 32;

impl Slot {
    /// A message reports a grant.
    pub(crate) fn on_grant(self: &Arc<Slot>, grant: &GrantMessage) {
        self.transition(|state, step| state.on_grant(grant, step));
    }

    /// Another process waits for the lock of this attempt, or more is held than the limit. What lingers is released.
    pub(crate) fn on_wanted(self: &Arc<Slot>, number: u64, waiters: u32) {
        let is_ours = self.transition(|state, step| state.on_wanted(number, waiters, step));
        // The release comes after the step: it is I/O, and no slot is locked during I/O.
        if is_ours {
            self.revoke_lingers();
        }
    }

    /// Somebody requests the release of the lock of this attempt. If its lease lingers, it is released;
    /// if a thread holds it, the user is notified.
    pub(crate) fn on_request(self: &Arc<Slot>, number: u64) {
        if self.revoke_linger(number) {
            let name = self.target.name().as_bytes().to_vec();
            self.context.worker.notify(Notification::Requested(name));
        }
    }

    /// A message reports that this attempt was evicted. It is a hint that anybody can publish, so the
    /// worker asks Redis at once. If the lease lingers, it is released.
    pub(crate) fn on_evicted(self: &Arc<Slot>, number: u64) {
        self.transition(|state, step| state.on_evicted(number, step));
        self.revoke_linger(number);
    }

    /// This process has set another limit, or may have, of which the message comes later, or not at all. What its threads hold
    /// is passed on no more, and what lingers is released: nobody here may take it again over the limit.
    pub(crate) fn on_resized(self: &Arc<Slot>) {
        // First, so that nothing begins to linger in between.
        self.request_retry();
        self.revoke_lingers();
    }

    /// Releases all leases that linger.
    fn revoke_lingers(self: &Arc<Slot>) {
        let mut lingers = self.end_lingers(Moment::FAR);
        // There may be thousands, and this may be the thread that reads the messages. So the rest is dropped, which leaves it
        // to the worker.
        lingers.truncate(MOST_RELEASED_AT_ONCE);
        let deadline = self.context.exchange_deadline();
        for linger in lingers {
            linger.release_now(deadline);
        }
    }

    /// The clock of the server that has the lock is not what it was.
    pub(crate) fn on_clock_fault(self: &Arc<Slot>) {
        self.transition(|state, step| state.on_clock_fault(step));
    }

    /// Releases the lease of this attempt if it lingers. Returns whether a thread holds it.
    fn revoke_linger(self: &Arc<Slot>, number: u64) -> bool {
        // One step finds both: between two, a lease that begins to linger would be neither.
        let (ended, is_held) = self.transition(|state, step| {
            let ended = state.end_lingers(|entry, _| entry.is_attempt(number), step);
            (ended, state.want_held(number))
        });
        // The thread that received the message releases: to wake another takes longer than the release, and
        // a waiter of another process waits for it. The deadline of an exchange bounds how long no
        // message is read.
        for lease in ended {
            self.ended_linger(lease).release_now(self.context.exchange_deadline());
        }
        is_held
    }
}

impl ReleaseListener for Slot {
    fn has_waiters(&self) -> bool {
        self.state.lock().has_waiters()
    }

    fn on_release(&self) {
        let now = self.context.now();
        let mut state = self.state.lock();
        let waits = state.is_acquiring();
        let asks = state.fairness.on_release(waits, now);
        drop(state);
        // Two steps, and the acquirer may run between them. It then sees the release already, and asks;
        // the retry makes it ask once more, which is harmless.
        if asks {
            self.request_retry();
        }
    }

    fn on_resubscribe(&self) {
        self.state.lock().fairness.on_resubscribe();
    }

    /// Makes the acquirer ask at once, and wakes no other thread.
    fn request_retry(&self) {
        // A `transition` would need an `Arc` of the slot, which the listener knows as a trait object.
        // The event uses neither the moment nor the flags of the step, and its only effect is to wake the
        // acquirer.
        let mut step = self.begin_step();
        self.state.lock().request_retry(&mut step);
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
    }
}

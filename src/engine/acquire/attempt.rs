//! How an acquirer begins an attempt, and takes it out of Redis again.

use std::time::Duration;

use crate::base::option::{LockOptions, ReleaseKind, WaitKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::acquire::AcquireLoop;
use crate::engine::slot::{Attempt, Slot};
use crate::engine::worker::PendingRelease;
use crate::protocol::request::ReleaseRequest;

/// How long leaving the queue may take, and how long at least where the time is over.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(50);
const MIN_LEAVE_TIMEOUT: Duration = Duration::from_millis(10);

impl Attempt {
    /// An attempt that begins now.
    pub(super) fn new(slot: &Slot, options: &LockOptions, number: u64) -> Attempt {
        let context = slot.context();
        let hands_over = options.wait_kind() == WaitKind::Queue;
        let window = options.lease.ttl().min(context.claim_window());
        let identity = context.protocol.identity();
        let owner = slot.target().kind().owner(identity, number, window, hands_over);
        Attempt {
            owner: owner.into(),
            options: *options,
            settled: Moment::PAST,
            unknown: false,
            queued: false,
            spent: false,
        }
    }
}

impl AcquireLoop<'_> {
    /// Begins another attempt.
    pub(super) fn restart_attempt(&mut self) {
        let number = self.context.protocol.identity().next_attempt();
        self.slot.restart(number);
        // What is not known of an attempt that was given back is not known of the next ones.
        let unknown = self.attempt.as_ref().is_some_and(|attempt| attempt.spent && attempt.unknown);
        self.drop_attempt();
        self.attempt = Some(Attempt { unknown, ..Attempt::new(self.slot, self.options, number) });
    }

    /// Takes what may remain of the attempt out of Redis.
    pub(super) fn drop_attempt(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.clean_up(attempt);
        }
    }

    pub(super) fn leave(&self, attempt: &Attempt, now: Moment) -> bool {
        let ttl = attempt.options.lease.ttl();
        let last = self.last_deadline.max(now.after(MIN_LEAVE_TIMEOUT));
        let deadline = now.after(LEAVE_TIMEOUT.min(self.context.bounds.exchange)).min(last);
        let (protocol, target) = (&self.context.protocol, self.slot.target());
        let kind = ReleaseKind::Lua;
        let request = ReleaseRequest { owner: &attempt.owner, ttl, last_token: None, kind };
        protocol.release(target, &request, deadline).is_ok()
    }

    pub(super) fn clean_up(&self, attempt: Attempt) {
        let now = self.context.now();
        let open = attempt.unknown || attempt.settled > now;
        // Who leaves the queue at once is not handed a lock that it no longer wants.
        if attempt.queued && !open && self.outage.is_none() && self.leave(&attempt, now) {
            return;
        }
        if attempt.queued || open {
            self.context.worker.release_in_background(PendingRelease {
                target: Arc::clone(self.slot.target()),
                owner: attempt.owner,
                settled: attempt.settled.max(now),
                ttl: attempt.options.lease.ttl(),
                last_token: None,
            });
        }
    }
}

impl Drop for AcquireLoop<'_> {
    fn drop(&mut self) {
        if self.context.is_shut_down() && self.attempt.is_some() {
            // Nobody can use it, and the slot must not look done before.
            self.drop_attempt();
            self.slot.stop_acquiring(None);
        }
        // It became a lease, and the slot is held, or the next thread has its turn.
        if let Some(attempt) = self.attempt.take()
            && let Some(attempt) = self.slot.stop_acquiring(Some(attempt))
        {
            self.clean_up(attempt);
        }
    }
}

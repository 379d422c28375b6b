//! How an acquirer begins an attempt, and removes it from Redis again.

use std::time::Duration;

use crate::base::option::{LockOptions, ReleaseKind, WaitKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::acquire::AcquireLoop;
use crate::engine::holding::Holding;
use crate::engine::owner_value::OwnerValue;
use crate::engine::slot::{Attempt, Slot};
use crate::engine::worker::Removal;
use crate::protocol::lock_kind::Window;
use crate::protocol::request::ReleaseRequest;

/// The most that leaving the queue may take.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(50);
/// The least that it gets when the caller's time is over.
const MIN_LEAVE_TIMEOUT: Duration = Duration::from_millis(10);

impl Attempt {
    /// An attempt that begins now.
    pub(super) fn new(slot: &Slot, options: &LockOptions, number: u64) -> Attempt {
        let context = slot.context();
        let hands_over = options.wait_kind() == WaitKind::Queue;
        // A claim is never longer than the lease that was asked for, or a holder that dies keeps others
        // out for longer than its lease says (rule 7).
        let lease = options.lease.ttl().min(context.claim_window(&options.of_request()));
        let window = Window { lease, tail: options.lease.tail() };
        let identity = context.protocol.identity();
        let owner = slot.target().kind().owner(identity, number, window, hands_over, options.share);
        let value = OwnerValue::new(Arc::clone(slot.target()), owner, *options);
        Attempt { value, unknown: false, queued: false, partial: false, spent: false }
    }
}

impl AcquireLoop<'_> {
    /// Begins another attempt.
    pub(super) fn restart_attempt(&mut self) {
        let number = self.context.protocol.identity().next_attempt();
        // The slot first: from here on a grant for the old value is ignored, while the old value is being
        // removed.
        self.slot.restart(number);
        // A released attempt of a quorum may still be accepted by some server. So an error of this call
        // must still report an unknown outcome, even if the attempts that follow did nothing.
        let unknown = self.attempt.spent && self.attempt.unknown;
        let next = Attempt { unknown, ..Attempt::new(self.slot, self.options, number) };
        let before = std::mem::replace(&mut self.attempt, next);
        self.clean_up(before);
    }

    /// Leaves the queue by one bounded request. Returns whether that had a reply.
    pub(super) fn leave(&self, attempt: &Attempt, now: Moment) -> bool {
        let ttl = attempt.value.key_ttl();
        // This runs on the caller's thread, whose time is usually over: so it is short, and the worker goes on.
        let last = self.last_deadline.max(now.after(MIN_LEAVE_TIMEOUT));
        let deadline = now.after(LEAVE_TIMEOUT.min(self.context.bounds.exchange)).min(last);
        let target = self.slot.target();
        // The transaction of `Release::watch` deletes a key, and knows no queue.
        let kind = ReleaseKind::Lua;
        let owner = &attempt.value.bytes;
        let request = ReleaseRequest { owner, ttl, last_token: None, kind, is_wanted: false };
        self.context.exchange(|protocol| protocol.release(target, &request, deadline)).is_ok()
    }

    /// Removes an attempt from Redis, at once if one request surely suffices, and otherwise by the
    /// worker.
    pub(super) fn clean_up(&self, attempt: Attempt) {
        let now = self.context.now();
        // While a request of the attempt may still run, one leave does not suffice: the request may run
        // after it, and own the lock or join the queue again (rule 6).
        let open = attempt.unknown || attempt.value.settled() > now;
        // Left at once: a hand-over to a waiter that has gone would keep the lock for a claim window. Not
        // in an outage, in which it would only cost the caller time.
        if attempt.queued && !open && self.outage.is_none() && self.leave(&attempt, now) {
            return;
        }
        if attempt.queued || open || attempt.partial {
            self.context.worker.release_in_background(Removal::of_attempt(&attempt.value, now));
        }
    }
}

impl Drop for AcquireLoop<'_> {
    fn drop(&mut self) {
        if self.is_held {
            return;
        }
        // The next thread acquires, whichever way this one ended, also by a panic: without an acquirer the threads in
        // the slot would wait for ever. And nobody would release what was passed on to this thread.
        if let Some(hold) = self.slot.take_passed() {
            Holding::new(self.slot, hold).release_in_background();
        }
        self.slot.stop_acquiring(self.attempt.clone(), |attempt| self.clean_up(attempt));
    }
}

//! How a delegate begins an attempt, and takes it out of Redis again.

use std::time::Duration;

use crate::base::option::{LockOptions, ReleaseKind, WaitKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::acquire::Delegate;
use crate::engine::slot::{Bid, Slot};
use crate::engine::worker::GiveBack;
use crate::protocol::request::Return;

/// How long leaving the queue may take, and how long at least where the time is over.
const LEAVE: Duration = Duration::from_millis(50);
const SHORTEST_LEAVE: Duration = Duration::from_millis(10);

impl Bid {
    /// An attempt that begins now.
    pub(super) fn new(slot: &Slot, options: &LockOptions, number: u64) -> Bid {
        let context = slot.context();
        let hands_over = options.wait_kind() == WaitKind::Queue;
        let window = options.lease.ttl().min(context.claim_window());
        let identity = context.protocol.identity();
        let owner = slot.target().kind().owner(identity, number, window, hands_over);
        Bid {
            owner: owner.into(),
            options: *options,
            settled: Moment::PAST,
            unknown: false,
            queued: false,
            spent: false,
        }
    }
}

impl Delegate<'_> {
    /// Begins another attempt.
    pub(super) fn bid_anew(&mut self) {
        let number = self.context.protocol.identity().next_attempt();
        self.slot.begin(number);
        // What is not known of an attempt that was given back is not known of the next ones.
        let unknown = self.bid.as_ref().is_some_and(|bid| bid.spent && bid.unknown);
        self.drop_bid();
        self.bid = Some(Bid { unknown, ..Bid::new(self.slot, self.options, number) });
    }

    /// Takes what may remain of the attempt out of Redis.
    pub(super) fn drop_bid(&mut self) {
        if let Some(bid) = self.bid.take() {
            self.clean_up(bid);
        }
    }

    pub(super) fn leave(&self, bid: &Bid, now: Moment) -> bool {
        let ttl = bid.options.lease.ttl();
        let last = self.last.max(now.after(SHORTEST_LEAVE));
        let deadline = now.after(LEAVE.min(self.context.bounds.exchange)).min(last);
        let (protocol, target) = (&self.context.protocol, self.slot.target());
        let how = ReleaseKind::Lua;
        let returned = Return { owner: &bid.owner, ttl, last_token: None, how };
        protocol.release(target, &returned, deadline).is_ok()
    }

    pub(super) fn clean_up(&self, bid: Bid) {
        let now = self.context.now();
        let open = bid.unknown || bid.settled > now;
        // Who leaves the queue at once is not handed a lock that it no longer wants.
        if bid.queued && !open && self.outage.is_none() && self.leave(&bid, now) {
            return;
        }
        if bid.queued || open {
            self.context.worker.give_back(GiveBack {
                target: Arc::clone(self.slot.target()),
                owner: bid.owner,
                settled: bid.settled.max(now),
                ttl: bid.options.lease.ttl(),
                last_token: None,
                kept_until: None,
            });
        }
    }
}

impl Drop for Delegate<'_> {
    fn drop(&mut self) {
        if self.context.is_closing() && self.bid.is_some() {
            // Nobody can use it, and the slot must not look done before.
            self.drop_bid();
            self.slot.stop_acquiring(None);
        }
        // It became a lease, and the slot is held, or the next thread has its turn.
        if let Some(bid) = self.bid.take()
            && let Some(bid) = self.slot.stop_acquiring(Some(bid))
        {
            self.clean_up(bid);
        }
    }
}

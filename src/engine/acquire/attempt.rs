//! How a delegate begins an attempt, and takes it out of Redis again.

use std::time::Duration;

use crate::base::option::{ReleaseKind, WaitKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::acquire::Delegate;
use crate::engine::slot::Bid;
use crate::engine::worker::GiveBack;
use crate::protocol::request::Return;

/// How long leaving the queue may take, and how long at least where the time is over.
const LEAVE: Duration = Duration::from_millis(50);
const SHORTEST_LEAVE: Duration = Duration::from_millis(10);

impl Delegate<'_> {
    /// Begins a new attempt.
    pub(super) fn bid_anew(&mut self) {
        let identity = self.context.protocol.identity();
        let number = identity.next_attempt();
        let hands_over = self.options.wait_kind() == WaitKind::Queue;
        let window = self.options.lease.ttl().min(self.context.claim_window());
        let owner = self.slot.target().kind().owner(identity, number, window, hands_over);
        self.slot.begin(number);
        // What is not known of an attempt that was given back is not known of the next ones.
        let unknown = self.bid.as_ref().is_some_and(|bid| bid.spent && bid.unknown);
        self.drop_bid();
        self.bid = Some(Bid {
            owner: owner.into(),
            options: *self.options,
            settled: Moment::PAST,
            unknown,
            queued: false,
            spent: false,
        });
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
            });
        }
    }
}

impl Drop for Delegate<'_> {
    fn drop(&mut self) {
        if self.context.is_shut_down() && self.bid.is_some() {
            // Nobody can use it, and the slot must not look done before.
            self.drop_bid();
            self.slot.vacate(None);
        }
        // It became a lease, and the slot is held, or the next thread has its turn.
        if mutated!("attempt-reused-after-leave")
            && let Some(bid) = &self.bid
        {
            self.clean_up(bid.clone());
        }
        if let Some(bid) = self.bid.take()
            && let Some(bid) = self.slot.vacate(Some(bid))
        {
            self.clean_up(bid);
        }
    }
}

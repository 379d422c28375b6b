//! How a process goes without the lock: what may remain of its attempt is taken out of Redis
//! (rules 5 and 6), as the end of `src/engine/acquire.rs` has it.

use crate::client::{Bid, Client, Part, Place};
use crate::mutation::Mutation;
use crate::network::Line;
use crate::protocol::Request;

impl Client {
    pub(crate) fn leave_to_worker(&mut self, number: u8, anew: bool, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Thread);
        let local = self.local(place.now);
        self.give_back(number, local, self.ttl, None, place);
        self.after_leaving(anew, place);
    }

    /// The thread goes without the lock.
    pub(crate) fn give_up(&mut self, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Thread);
        if let (Part::Asking { deadline, .. }, Some(bid)) = (self.part, &mut self.bid) {
            bid.settled = bid.settled.max(deadline);
            bid.unknown = true;
        }
        let bid = self.bid.take();
        self.part = Part::Idle;
        self.clean_up(bid, false, place);
    }

    /// Takes what may remain of an attempt out of Redis, then goes on with a new one or not at all.
    pub(crate) fn clean_up(&mut self, bid: Option<Bid>, anew: bool, place: &mut Place<'_>) {
        let local = self.local(place.now);
        let Some(bid) = bid else { return self.after_leaving(anew, place) };
        if place.setting.has(Mutation::LeaveForgotten) {
            self.is_out(bid.number, place);
            return self.after_leaving(anew, place);
        }
        let open = bid.unknown || bid.settled > local;
        if bid.queued && !open && !bid.outage {
            let owner = self.attempt(bid.number, place.setting);
            let deadline = local + place.setting.exchange;
            self.part = Part::Leaving { number: bid.number, deadline, anew };
            let leave = Request::Release { owner, ttl: self.ttl, last_token: None };
            return self.send(Line::Thread, leave, place);
        }
        if bid.queued || open {
            self.give_back(bid.number, bid.settled.max(local), self.ttl, None, place);
        } else {
            self.is_out(bid.number, place);
        }
        self.after_leaving(anew, place);
    }

    pub(crate) fn after_leaving(&mut self, anew: bool, place: &mut Place<'_>) {
        if anew {
            self.ask(place);
        } else {
            self.finish();
        }
    }

    /// The attempt is surely out of Redis, for ever.
    pub(crate) fn is_out(&mut self, number: u8, place: &Place<'_>) {
        // Where an attempt is used again that cannot be said.
        if !place.setting.has(Mutation::AttemptReused) {
            self.clean |= 1 << number;
        }
    }

    /// The thread is done with the lock.
    pub(crate) fn finish(&mut self) {
        self.part = Part::Idle;
        self.bid = None;
        self.heard = None;
        self.nudged = false;
    }
}

//! How a process gives up an attempt: every rest of it is removed from Redis
//! (rules 5 and 6), as the end of `src/engine/acquire.rs` has it.

use crate::client::{Client, OpenAttempt, Part, Place};
use crate::mutation::Mutation;
use crate::network::Line;
use crate::protocol::Request;

impl Client {
    pub(crate) fn leave_to_worker(&mut self, number: u8, anew: bool, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Thread);
        let local = self.local(place.now);
        self.give_back(number, local, None, place);
        self.after_leaving(anew, place);
    }

    /// The thread goes without the lock.
    pub(crate) fn give_up(&mut self, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Thread);
        if let (Part::Asking { deadline, .. }, Some(open_attempt)) =
            (self.part, &mut self.open_attempt)
        {
            open_attempt.settled = open_attempt.settled.max(deadline);
            open_attempt.unknown = true;
        }
        let open_attempt = self.open_attempt.take();
        self.part = Part::Idle;
        self.clean_up(open_attempt, false, place);
    }

    /// Removes every rest of an attempt from Redis. Then a new attempt begins, or none.
    pub(crate) fn clean_up(
        &mut self,
        open_attempt: Option<OpenAttempt>,
        anew: bool,
        place: &mut Place<'_>,
    ) {
        let local = self.local(place.now);
        let Some(open_attempt) = open_attempt else { return self.after_leaving(anew, place) };
        if place.setting.has(Mutation::LeaveForgotten) {
            self.is_out(open_attempt.number, place);
            return self.after_leaving(anew, place);
        }
        let open = open_attempt.unknown || open_attempt.settled > local;
        if open_attempt.queued && !open && !open_attempt.outage {
            let owner = self.attempt(open_attempt.number, place.setting);
            let deadline = local + place.setting.exchange;
            self.part = Part::Leaving { number: open_attempt.number, deadline, anew };
            let ttl = self.key_ttl(self.ttl, place.setting);
            let leave = Request::Release { owner, ttl, last_token: None };
            return self.send(Line::Thread, leave, place);
        }
        if open_attempt.queued || open {
            let settled = open_attempt.settled.max(local);
            self.give_back(open_attempt.number, settled, None, place);
        } else {
            self.is_out(open_attempt.number, place);
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
        // Not certain if the attempt is used again.
        if !place.setting.has(Mutation::AttemptReused) {
            self.clean |= 1 << number;
        }
    }

    /// The thread is done with the lock.
    pub(crate) fn finish(&mut self) {
        self.part = Part::Idle;
        self.open_attempt = None;
        self.heard = None;
        self.nudged = false;
    }
}

//! Which servers may still have a vote of which attempt.
//!
//! | a server's bit is | when |
//! | --- | --- |
//! | held | the server accepted the attempt |
//! | open | a request, or its first sending, got no reply: the server may accept it until its deadline |
//! | neither | the server replied otherwise, or replied to a release sent after that deadline |
//!
//! An attempt is in the table while one of its bits is set. When no bit is set, no vote exists and
//! none can arrive any more. An attempt whose votes no server confirms as released is removed by a
//! sweep once its leases have ended.

use std::collections::HashMap;

use crate::base::sync::Mutex;
use crate::base::time::Moment;

/// One bit for each server.
pub(crate) const MAX_SERVERS: usize = 64;
/// The table is swept when it has grown by this much.
const SWEEP_STEP: usize = 1024;

#[derive(Debug)]
struct Claim {
    held: u64,
    open: u64,
    /// The servers for which only the last request is open, and no earlier one.
    fresh: u64,
    /// The moment from which no request without a reply can run any more.
    settled: Moment,
    /// When all votes have expired by themselves.
    until: Moment,
}

#[derive(Debug, Default)]
struct ClaimTable {
    claims: HashMap<Box<[u8]>, Claim>,
    sweep_at: usize,
}

impl ClaimTable {
    /// Changes the claim of an attempt, and removes it when no bit is left.
    fn change(&mut self, owner: &[u8], change: impl FnOnce(&mut Claim)) {
        let Some(claim) = self.claims.get_mut(owner) else { return };
        change(claim);
        if claim.held | claim.open == 0 {
            self.claims.remove(owner);
        }
    }
}

/// The claims of the attempts of one client, by owner's value.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<ClaimTable>);

impl Claims {
    /// Notes that a request is about to be sent to these servers. It is open there until they
    /// reply.
    pub(super) fn ask(
        &self,
        owner: &[u8],
        servers: u64,
        sent: Moment,
        settled: Moment,
        until: Moment,
    ) {
        if servers == 0 {
            return;
        }
        let mut table = self.0.lock();
        // A sweep of the whole table for each attempt would make many live holds slow. Here each
        // attempt pays for a constant share of one, and the table is at most a step larger than
        // needed.
        if table.claims.len() >= table.sweep_at.max(SWEEP_STEP) {
            // `sent` is the present. `settled` of this request is later, so a sweep by it would
            // remove the claim of a hold that is live now and ends before `settled`. When a renewal
            // of that hold fails, its claim is still needed.
            table.claims.retain(|_, claim| claim.until > sent);
            table.sweep_at = table.claims.len() + SWEEP_STEP;
        }
        let new = Claim { held: 0, open: 0, fresh: 0, settled, until };
        let claim = table.claims.entry(owner.into()).or_insert(new);
        // Computed before `open` is set. A server that still owes the reply to an earlier request
        // stays open even if it replies to this one: the earlier request may be delayed, and run
        // last.
        claim.fresh = servers & !claim.open;
        claim.open |= servers;
        claim.settled = claim.settled.max(settled);
        claim.until = claim.until.max(until);
    }

    /// Notes the outcome of a request. The servers in `accepted` gave their votes. At the servers
    /// in `over` this request cannot run any more: they replied to it, or it was not sent to them.
    pub(super) fn replied(&self, owner: &[u8], accepted: u64, over: u64) {
        self.0.lock().change(owner, |claim| {
            claim.held |= accepted;
            claim.open &= !(claim.fresh & over);
        });
    }

    /// Notes that the leases of an attempt may last until then.
    pub(super) fn lengthen(&self, owner: &[u8], until: Moment) {
        if let Some(claim) = self.0.lock().claims.get_mut(owner) {
            claim.until = claim.until.max(until);
        }
    }

    /// Notes that these servers replied to a release sent at `sent`.
    pub(super) fn released(&self, owner: &[u8], servers: u64, sent: Moment) {
        self.0.lock().change(owner, |claim| {
            claim.held &= !servers;
            // A proposal that is still on its way may arrive after this release, and be accepted
            // then. Only a release sent after that proposal's deadline rules it out, because the
            // server ignores late proposals (rule 6).
            if sent >= claim.settled {
                claim.open &= !servers;
            }
        });
    }

    /// The servers that may have a vote of this attempt.
    pub(super) fn servers(&self, owner: &[u8]) -> u64 {
        let owed = |claim: &Claim| claim.held | claim.open;
        self.0.lock().claims.get(owner).map_or(0, owed)
    }

    /// How many attempts are in the table.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().claims.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000);
    const LATER: Moment = Moment::from_nanos(2_000);
    const END: Moment = Moment::from_nanos(9_000);

    #[test]
    fn accepted_vote_is_owed_until_its_release_is_answered() {
        let claims = Claims::default();
        claims.ask(b"x", 0b111, NOW, LATER, END);
        claims.replied(b"x", 0b011, 0b111);
        assert_eq!(claims.servers(b"x"), 0b011);
        claims.released(b"x", 0b001, NOW);
        assert_eq!((claims.servers(b"x"), claims.count()), (0b010, 1));
        claims.released(b"x", 0b010, NOW);
        assert_eq!((claims.servers(b"x"), claims.count()), (0, 0));
        claims.released(b"unknown", 0b1, NOW);
    }

    #[test]
    fn unanswered_request_is_owed_until_a_release_past_its_deadline() {
        let claims = Claims::default();
        claims.ask(b"x", 0b111, NOW, LATER, END);
        claims.replied(b"x", 0b011, 0b011);
        claims.released(b"x", 0b111, NOW);
        assert_eq!((claims.servers(b"x"), claims.count()), (0b100, 1));
        claims.released(b"x", 0b100, LATER);
        assert_eq!((claims.servers(b"x"), claims.count()), (0, 0));
    }

    #[test]
    fn later_reply_does_not_settle_an_earlier_request() {
        let claims = Claims::default();
        claims.ask(b"x", 0b1, NOW, NOW, END);
        claims.ask(b"x", 0b1, NOW, NOW, END);
        claims.replied(b"x", 0, 0b1);
        assert_eq!(claims.servers(b"x"), 0b1);
        claims.released(b"x", 0b1, NOW);
        assert_eq!(claims.count(), 0);
    }

    #[test]
    fn vote_of_a_repeated_request_is_owed_until_its_deadline() {
        let claims = Claims::default();
        claims.ask(b"x", 0b1, NOW, LATER, END);
        // The repetition was refused, and the first sending may still arrive.
        claims.replied(b"x", 0, 0);
        claims.released(b"x", 0b1, NOW);
        assert_eq!(claims.servers(b"x"), 0b1);
        claims.released(b"x", 0b1, LATER);
        assert_eq!(claims.count(), 0);
    }

    #[test]
    fn attempt_that_left_nothing_is_forgotten_at_once() {
        let claims = Claims::default();
        for number in 0..SWEEP_STEP / 2 {
            let owner = number.to_be_bytes();
            claims.ask(&owner, 0b111, NOW, LATER, END);
            match number % 3 {
                0 => claims.replied(&owner, 0, 0b111),
                1 => {
                    claims.replied(&owner, 0b001, 0b111);
                    claims.released(&owner, 0b001, NOW);
                }
                _ => {
                    claims.replied(&owner, 0b001, 0b011);
                    claims.released(&owner, 0b111, LATER);
                }
            }
            assert_eq!(claims.count(), 0, "{number}");
        }
        claims.ask(b"x", 0, NOW, LATER, END);
        assert_eq!(claims.count(), 0);
    }

    #[test]
    fn sweep_drops_ended_attempts() {
        let claims = Claims::default();
        for number in 0..SWEEP_STEP {
            claims.ask(&number.to_be_bytes(), 1, NOW, NOW, LATER);
        }
        claims.ask(b"x", 1, LATER, END, END);
        assert_eq!(claims.count(), 1);
    }

    #[test]
    fn live_hold_keeps_its_claim_in_a_sweep() {
        let claims = Claims::default();
        for number in 0..SWEEP_STEP {
            claims.ask(&number.to_be_bytes(), 0b111, NOW, NOW, LATER);
        }
        claims.ask(b"x", 0b111, NOW, END, END);
        assert_eq!(
            (claims.count(), claims.servers(&0_usize.to_be_bytes())),
            (SWEEP_STEP + 1, 0b111)
        );
    }
}

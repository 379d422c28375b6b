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

use crate::base::sync::contended::Mutex;
use crate::base::time::Moment;

/// One bit for each server.
pub(crate) const MAX_SERVERS: usize = 64;
/// The table is swept when it has grown by this much.
const SWEEP_STEP: usize = 1024;

#[derive(Debug)]
struct Ballot {
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
struct BallotTable {
    ballots: HashMap<Box<[u8]>, Ballot>,
    sweep_at: usize,
}

impl BallotTable {
    /// Changes the ballot of an attempt, and removes it when no bit is left.
    fn change(&mut self, owner: &[u8], change: impl FnOnce(&mut Ballot)) {
        let Some(ballot) = self.ballots.get_mut(owner) else { return };
        change(ballot);
        if ballot.held | ballot.open == 0 {
            self.ballots.remove(owner);
        }
    }
}

/// The ballots of the attempts of one client, by owner's value.
#[derive(Debug, Default)]
pub(super) struct Ballots(Mutex<BallotTable>);

impl Ballots {
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
        if table.ballots.len() >= table.sweep_at.max(SWEEP_STEP) {
            // `sent` is the present. `settled` of this request is later, so a sweep by it would
            // remove the ballot of a hold that is live now and ends before `settled`. When a renewal
            // of that hold fails, its ballot is still needed.
            table.ballots.retain(|_, ballot| ballot.until > sent);
            table.sweep_at = table.ballots.len() + SWEEP_STEP;
        }
        let new = Ballot { held: 0, open: 0, fresh: 0, settled, until };
        let ballot = table.ballots.entry(owner.into()).or_insert(new);
        // Computed before `open` is set. A server that still owes the reply to an earlier request
        // stays open even if it replies to this one: the earlier request may be delayed, and run
        // last.
        ballot.fresh = servers & !ballot.open;
        ballot.open |= servers;
        ballot.settled = ballot.settled.max(settled);
        ballot.until = ballot.until.max(until);
    }

    /// Notes the outcome of a request. The servers in `accepted` gave their votes. At the servers
    /// in `over` this request cannot run any more: they replied to it, or it was not sent to them.
    pub(super) fn replied(&self, owner: &[u8], accepted: u64, over: u64) {
        self.0.lock().change(owner, |ballot| {
            ballot.held |= accepted;
            ballot.open &= !(ballot.fresh & over);
        });
    }

    /// Notes that the leases of an attempt may last until then.
    pub(super) fn lengthen(&self, owner: &[u8], until: Moment) {
        if let Some(ballot) = self.0.lock().ballots.get_mut(owner) {
            ballot.until = ballot.until.max(until);
        }
    }

    /// Notes that these servers replied to a release sent at `sent`.
    pub(super) fn released(&self, owner: &[u8], servers: u64, sent: Moment) {
        self.0.lock().change(owner, |ballot| {
            ballot.held &= !servers;
            // A proposal that is still on its way may arrive after this release, and be accepted
            // then. Only a release sent after that proposal's deadline rules it out, because the
            // server ignores late proposals (rule 6).
            if sent >= ballot.settled {
                ballot.open &= !servers;
            }
        });
    }

    /// The servers that may have a vote of this attempt.
    pub(super) fn servers(&self, owner: &[u8]) -> u64 {
        let owed = |ballot: &Ballot| ballot.held | ballot.open;
        self.0.lock().ballots.get(owner).map_or(0, owed)
    }

    /// How many attempts are in the table.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().ballots.len()
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
        let ballots = Ballots::default();
        ballots.ask(b"x", 0b111, NOW, LATER, END);
        ballots.replied(b"x", 0b011, 0b111);
        assert_eq!(ballots.servers(b"x"), 0b011);
        ballots.released(b"x", 0b001, NOW);
        assert_eq!((ballots.servers(b"x"), ballots.count()), (0b010, 1));
        ballots.released(b"x", 0b010, NOW);
        assert_eq!((ballots.servers(b"x"), ballots.count()), (0, 0));
        ballots.released(b"unknown", 0b1, NOW);
    }

    #[test]
    fn unanswered_request_is_owed_until_a_release_past_its_deadline() {
        let ballots = Ballots::default();
        ballots.ask(b"x", 0b111, NOW, LATER, END);
        ballots.replied(b"x", 0b011, 0b011);
        ballots.released(b"x", 0b111, NOW);
        assert_eq!((ballots.servers(b"x"), ballots.count()), (0b100, 1));
        ballots.released(b"x", 0b100, LATER);
        assert_eq!((ballots.servers(b"x"), ballots.count()), (0, 0));
    }

    #[test]
    fn later_reply_does_not_settle_an_earlier_request() {
        let ballots = Ballots::default();
        ballots.ask(b"x", 0b1, NOW, NOW, END);
        ballots.ask(b"x", 0b1, NOW, NOW, END);
        ballots.replied(b"x", 0, 0b1);
        assert_eq!(ballots.servers(b"x"), 0b1);
        ballots.released(b"x", 0b1, NOW);
        assert_eq!(ballots.count(), 0);
    }

    #[test]
    fn vote_of_a_repeated_request_is_owed_until_its_deadline() {
        let ballots = Ballots::default();
        ballots.ask(b"x", 0b1, NOW, LATER, END);
        // The repetition was refused, and the first sending may still arrive.
        ballots.replied(b"x", 0, 0);
        ballots.released(b"x", 0b1, NOW);
        assert_eq!(ballots.servers(b"x"), 0b1);
        ballots.released(b"x", 0b1, LATER);
        assert_eq!(ballots.count(), 0);
    }

    #[test]
    fn attempt_that_left_nothing_is_forgotten_at_once() {
        let ballots = Ballots::default();
        for number in 0..SWEEP_STEP / 2 {
            let owner = number.to_be_bytes();
            ballots.ask(&owner, 0b111, NOW, LATER, END);
            match number % 3 {
                0 => ballots.replied(&owner, 0, 0b111),
                1 => {
                    ballots.replied(&owner, 0b001, 0b111);
                    ballots.released(&owner, 0b001, NOW);
                }
                _ => {
                    ballots.replied(&owner, 0b001, 0b011);
                    ballots.released(&owner, 0b111, LATER);
                }
            }
            assert_eq!(ballots.count(), 0, "{number}");
        }
        ballots.ask(b"x", 0, NOW, LATER, END);
        assert_eq!(ballots.count(), 0);
    }

    #[test]
    fn sweep_drops_ended_attempts() {
        let ballots = Ballots::default();
        for number in 0..SWEEP_STEP {
            ballots.ask(&number.to_be_bytes(), 1, NOW, NOW, LATER);
        }
        ballots.ask(b"x", 1, LATER, END, END);
        assert_eq!(ballots.count(), 1);
    }

    #[test]
    fn live_hold_keeps_its_ballot_in_a_sweep() {
        let ballots = Ballots::default();
        for number in 0..SWEEP_STEP {
            ballots.ask(&number.to_be_bytes(), 0b111, NOW, NOW, LATER);
        }
        ballots.ask(b"x", 0b111, NOW, END, END);
        assert_eq!(
            (ballots.count(), ballots.servers(&0_usize.to_be_bytes())),
            (SWEEP_STEP + 1, 0b111)
        );
    }
}

//! One attempt: proposals, votes, and what is taken back when they do not suffice.

use std::time::Duration;

use crate::base::time::{Moment, drift_allowance};
use crate::protocol::answer::{Busy, Granted};
use crate::protocol::quorum::judge::Voters;
use crate::protocol::quorum::vote::{Vote, free_after, vote};
use crate::protocol::quorum::{Quorum, impossible};
use crate::protocol::{Answer, Attempt, Target};
use crate::wire::failure::Failure;
use crate::wire::fan::Delivery;
use crate::wire::node::Lane;
use crate::wire::script::Call;

/// The first proposal, one above what it was refused for, one more for a clock not known well.
const ROUNDS: u32 = 3;
/// How many tokens are reserved besides the one that is proposed (rule 19).
const RESERVED: u64 = 31;
/// Tokens fit into so many bits.
const GREATEST: u64 = (1 << 53) - 1;
/// What was given is taken back also when the caller's time is over, but not for longer.
const TAKE_BACK: Duration = Duration::from_millis(25);

/// What a round came to.
struct Round {
    token: u64,
    sent: Moment,
    /// How many acceptances count.
    counted: usize,
    /// When the clocks of those have surely come to the last token reserved.
    passed: Moment,
    /// How many would accept a higher token, or a request that is not late, and how high.
    again: usize,
    floor: u64,
    /// How long the leases of others last, one for each server.
    holders: Vec<Option<Duration>>,
    answers: Vec<Option<Delivery>>,
}

impl Quorum {
    /// Tries to get a majority, and leaves nothing where it does not get one.
    pub(super) fn attempt(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        deadline: Moment,
    ) -> Result<Answer, Failure> {
        let limit = self.limit(deadline);
        self.meet(limit);
        let need = self.rules.need;
        let mut floor = 0;
        let mut rounds = 1;
        let mut round = loop {
            let round = self.round(target, attempt, floor, limit)?;
            if round.counted >= need {
                return Ok(Answer::Granted(Granted {
                    token: round.token,
                    ttl: attempt.ttl,
                    sent: round.sent,
                    micros: round.token + RESERVED,
                    received: round.passed,
                    waiters: 0,
                }));
            }
            let hopeful = round.again > 0 && round.counted + round.again >= need;
            if !hopeful || rounds == ROUNDS || self.clock.now() >= limit {
                break round;
            }
            floor = floor.max(round.floor);
            rounds += 1;
        };
        self.take_back(target, attempt, deadline);
        if !round.holders.is_empty() && round.counted + round.holders.len() >= need {
            let missing = need - round.counted;
            let ttl = free_after(&mut round.holders, missing);
            return Ok(Answer::Busy(Busy { ttl, ahead: 0, hands_over: false }));
        }
        Err(self.no_majority(&round.answers, self.claims.servers(attempt.owner) != 0))
    }

    /// Connects to servers whose time is not known: no request goes out without a deadline.
    fn meet(&self, limit: Moment) {
        let strange: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (!node.server_clock().is_known()).then_some(&[][..]))
            .collect();
        let known = strange.iter().filter(|calls| calls.is_none()).count();
        if known < self.nodes.len() {
            self.ask(strange, Lane::Callers, self.rules.need.saturating_sub(known), limit);
        }
    }

    fn round(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        floor: u64,
        limit: Moment,
    ) -> Result<Round, Failure> {
        let sent = self.clock.now();
        let deadlines: Vec<Option<u64>> =
            self.nodes.iter().map(|node| node.server_clock().reached_at(limit)).collect();
        let token = deadlines.iter().flatten().copied().fold(floor, u64::max).saturating_add(1);
        let reserved = token.saturating_add(RESERVED);
        if reserved > GREATEST {
            return Err(impossible(
                "token",
                token.to_string(),
                "below 2^53; a server's clock is off",
            ));
        }
        let calls: Vec<Option<[Call; 1]>> = deadlines
            .iter()
            .map(|deadline| {
                deadline.map(|deadline| [target.propose(attempt, deadline, token, reserved)])
            })
            .collect();
        let mut asked = 0;
        for (node, _) in calls.iter().enumerate().filter(|(_, calls)| calls.is_some()) {
            asked |= 1 << node;
        }
        self.claims.ask(attempt.owner, asked, limit, limit.after(attempt.ttl * 2));
        let calls = calls.iter().map(|calls| calls.as_ref().map(<[Call; 1]>::as_slice)).collect();
        let answers = self.ask(calls, Lane::Callers, self.rules.need, limit);
        let mut round = Round {
            token,
            sent,
            counted: 0,
            passed: Moment::PAST,
            again: 0,
            floor,
            holders: Vec::new(),
            answers: Vec::new(),
        };
        let mut voters = Voters::default();
        let (mut accepted, mut refused) = (0, 0);
        for (node, answer) in answers.iter().enumerate() {
            let Some(answer) = answer else { continue };
            let bit = 1 << node;
            match answer.outcomes.first() {
                Some(Ok(reply)) => {
                    let Ok((vote, micros)) = self.read(node, vote(&reply.value, token)) else {
                        continue;
                    };
                    let clock = self.nodes[node].server_clock();
                    clock.note(micros, reply.sent, reply.received);
                    let counts = voters.counts(answer.standing, reply);
                    match vote {
                        Vote::Accepted => {
                            accepted |= bit;
                            if counts {
                                round.counted += 1;
                                let ahead = Duration::from_micros(reserved.saturating_sub(micros));
                                let ahead = ahead + drift_allowance(ahead);
                                round.passed = round.passed.max(reply.received.after(ahead));
                            }
                        }
                        Vote::Busy(ttl) => {
                            refused |= bit;
                            round.holders.push(ttl);
                        }
                        Vote::Late => round.again += usize::from(counts),
                        Vote::Low(last) => {
                            round.again += usize::from(counts);
                            round.floor = round.floor.max(last);
                        }
                    }
                    if matches!(vote, Vote::Late | Vote::Low(_)) && !answer.repeated {
                        refused |= bit;
                    }
                }
                Some(Err(failure)) if failure.is_unknown() => {}
                _ => refused |= bit,
            }
        }
        self.claims.told(attempt.owner, accepted, refused);
        round.answers = answers;
        Ok(round)
    }

    /// Takes back what was given, or may have been. What cannot be taken back now remains.
    fn take_back(&self, target: &Target, attempt: &Attempt<'_>, deadline: Moment) {
        let servers = self.claims.servers(attempt.owner);
        if servers == 0 {
            return;
        }
        let release = [target.release(attempt.owner, attempt.ttl, None)];
        let calls = (0..self.nodes.len())
            .map(|node| (servers & (1 << node) != 0).then_some(&release[..]))
            .collect();
        let deadline = deadline.max(self.clock.now().after(TAKE_BACK));
        let answers = self.ask(calls, Lane::Callers, 0, deadline);
        for (node, answer) in answers.iter().enumerate() {
            if let Some(Ok(reply)) = answer.as_ref().and_then(|answer| answer.outcomes.first()) {
                self.claims.released(attempt.owner, 1 << node, reply.sent);
            }
        }
    }
}

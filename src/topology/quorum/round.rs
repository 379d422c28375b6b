//! One attempt: proposals, votes, and what is taken back when they do not suffice.

use std::time::Duration;

use crate::base::time::{Moment, drift_allowance};
use crate::protocol::reply::AcquireReply;
use crate::protocol::reply::{Busy, Granted};
use crate::protocol::request::AcquireRequest;
use crate::protocol::target::Target;
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::servers::{Quorum, first_replies, invalid_setting};
use crate::topology::quorum::tally::Voters;
use crate::topology::quorum::vote::{NodeHolder, Vote, free_after, most_votes, vote};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::transport::Lane;

/// The first proposal, one above what it was refused for, one more for a clock not known well.
const ROUNDS: u32 = 3;
/// How many tokens are reserved besides the one that is proposed (rule 19).
const RESERVED: u64 = 31;
/// Tokens fit into so many bits.
const GREATEST: u64 = (1 << 53) - 1;
/// So much of the caller's time is for taking back what was given…
const RESERVE: Duration = Duration::from_millis(25);
/// …and so much at least for that, and for the attempt itself, also where it is over.
const WITHDRAW_TIME: Duration = Duration::from_millis(10);
const ATTEMPT: Duration = Duration::from_millis(15);

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
    /// Who has the votes of other servers.
    holders: Vec<NodeHolder>,
    /// How many did not say.
    unanswered: usize,
    node_replies: Vec<Option<NodeReply>>,
}

impl Quorum {
    /// Tries to get a majority, and leaves nothing where it does not get one.
    pub(super) fn attempt(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        deadline: Moment,
    ) -> Result<AcquireReply, Failure> {
        let soonest = self.clock.now().after(ATTEMPT);
        let limit = self.limit(deadline.before(RESERVE).max(soonest));
        self.connect_missing(limit);
        let need = self.rules.need;
        let mut floor = 0;
        let mut rounds = 1;
        let round = loop {
            let round = match self.round(target, request, floor, limit) {
                Ok(round) => round,
                Err(failure) => break Err(failure),
            };
            if round.counted >= need {
                return Ok(AcquireReply::Granted(Granted {
                    token: round.token,
                    ttl: request.ttl,
                    sent: round.sent,
                    micros: round.token + RESERVED,
                    received: round.passed,
                    waiters: 0,
                }));
            }
            let hopeful = round.again > 0 && round.counted + round.again >= need;
            if !hopeful || rounds == ROUNDS || self.clock.now() >= limit {
                break Ok(round);
            }
            floor = floor.max(round.floor);
            rounds += 1;
        };
        self.withdraw_votes(target, request, deadline);
        let mut round = round?;
        if !round.holders.is_empty() && round.counted + round.holders.len() >= need {
            if most_votes(&round.holders) + round.unanswered < need {
                return Ok(AcquireReply::Split(self.round_time.get()));
            }
            let missing = need - round.counted;
            let ttl = free_after(&mut round.holders, missing);
            return Ok(AcquireReply::Busy(Busy { ttl, ahead: 0, hands_over: false }));
        }
        // Enough are well, and others were there first each time.
        let outrun = round.floor >= round.token || !round.holders.is_empty();
        if outrun && round.counted + round.again + round.holders.len() >= need {
            return Ok(AcquireReply::Split(self.round_time.get()));
        }
        let open = self.claims.servers(request.owner) != 0;
        // Enough are well, and were asked too late.
        if !open && round.counted + round.again + round.holders.len() >= need {
            return Ok(AcquireReply::Late);
        }
        Err(self.no_majority(&round.node_replies, open))
    }

    /// Connects to servers whose time is not known: no request goes out without a deadline.
    fn connect_missing(&self, limit: Moment) {
        let strange: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (!node.server_clock().is_known()).then_some(&[][..]))
            .collect();
        let known = strange.iter().filter(|calls| calls.is_none()).count();
        if known < self.nodes.len() {
            self.ask(&strange, Lane::Callers, self.rules.need.saturating_sub(known), limit);
        }
    }

    fn round(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        floor: u64,
        limit: Moment,
    ) -> Result<Round, Failure> {
        let sent = self.clock.now();
        let deadlines: Vec<Option<u64>> =
            self.nodes.iter().map(|node| node.server_clock().reached_at(limit)).collect();
        let above = deadlines.iter().flatten().copied().fold(floor, u64::max);
        let token = above.saturating_add(1);
        let reserved = token.saturating_add(RESERVED);
        if reserved > GREATEST {
            return Err(invalid_setting(
                "token",
                format!("{token}, as the clock of a server is ahead"),
                "a number below 2^53; set that clock right",
            ));
        }
        let calls: Vec<Option<[Call; 1]>> = deadlines
            .iter()
            .map(|deadline| {
                deadline.map(|deadline| [target.propose(request, deadline, token, reserved)])
            })
            .collect();
        let bits = calls.iter().enumerate().map(|(node, calls)| u64::from(calls.is_some()) << node);
        let asked = bits.fold(0, |asked, bit| asked | bit);
        self.claims.ask(request.owner, asked, sent, limit, limit.after(request.ttl * 2));
        let node_replies = self.ask(&calls, Lane::Callers, self.rules.need, limit);
        let mut round = Round {
            token,
            sent,
            counted: 0,
            passed: Moment::PAST,
            again: 0,
            floor,
            holders: Vec::new(),
            unanswered: self.nodes.len(),
            node_replies: Vec::new(),
        };
        self.round_time.note(self.clock.now().since(sent));
        let mut voters = Voters::default();
        let (mut accepted, mut over) = (0, 0);
        for (node, node_reply) in node_replies.iter().enumerate() {
            let Some(node_reply) = node_reply else { continue };
            let bit = 1 << node;
            // The first sending of a repeated request may have been accepted, or may arrive yet.
            let settled = if node_reply.repeated { 0 } else { bit };
            match node_reply.outcomes.first() {
                Some(Ok(reply)) => {
                    let Ok((vote, micros)) = self.read(node, vote(&reply.value, token)) else {
                        continue;
                    };
                    let clock = self.nodes[node].server_clock();
                    clock.note(reply.epoch, micros, reply.sent, reply.received);
                    round.unanswered -= 1;
                    let counts = voters.counts(node_reply.server_run, reply);
                    match vote {
                        Vote::Accepted => {
                            accepted |= bit;
                            // The first sending has the same token, which is not above the last one.
                            over |= bit;
                            if counts {
                                round.counted += 1;
                                let ahead = Duration::from_micros(reserved.saturating_sub(micros));
                                let ahead = ahead + drift_allowance(ahead);
                                round.passed = round.passed.max(reply.received.after(ahead));
                            }
                        }
                        Vote::Busy(holder) => round.holders.push(holder),
                        Vote::Late => round.again += usize::from(counts),
                        Vote::Low(last) => {
                            round.again += usize::from(counts);
                            round.floor = round.floor.max(last);
                        }
                    }
                    over |= settled;
                }
                Some(Err(failure)) if failure.is_unknown() => {}
                _ => over |= settled,
            }
        }
        self.claims.replied(request.owner, accepted, over);
        round.node_replies = node_replies;
        Ok(round)
    }

    /// Takes back what was given, or may have been. What cannot be taken back now remains.
    fn withdraw_votes(&self, target: &Target, request: &AcquireRequest<'_>, deadline: Moment) {
        let servers = self.claims.servers(request.owner);
        if servers == 0 {
            return;
        }
        // Where it may have looked like a holder others wait for its release.
        let release = if servers.count_ones() as usize >= self.rules.need {
            [target.release(request.owner, request.ttl, None)]
        } else {
            [target.withdraw(request.owner, request.ttl)]
        };
        let calls: Vec<_> = (0..self.nodes.len())
            .map(|node| (servers & (1 << node) != 0).then_some(&release))
            .collect();
        let deadline = deadline.max(self.clock.now().after(WITHDRAW_TIME));
        let node_replies = self.ask(&calls, Lane::Callers, 0, deadline);
        for (node, reply) in first_replies(&node_replies) {
            self.claims.released(request.owner, 1 << node, reply.sent);
        }
    }
}

//! One attempt: proposals, votes, and the withdrawal of votes that make no majority.

use std::time::Duration;

use crate::base::time::{Moment, drift_allowance};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::reply::AcquireReply;
use crate::protocol::reply::{Busy, Granted};
use crate::protocol::request::AcquireRequest;
use crate::protocol::target::Target;
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::servers::{Quorum, first_replies, invalid_setting};
use crate::topology::quorum::tally::Voters;
use crate::topology::quorum::vote::{Vote, free_after, most_votes, vote};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock;
use crate::wire::transport::Lane;

/// The first proposal, one above the token that refused it, and one more for a clock that was not
/// known well.
const ROUNDS: u32 = 3;
/// The greatest token. Numbers of Lua are doubles, which are exact up to here (rule 20).
const GREATEST: u64 = (1 << 53) - 1;
/// How much of the caller's time is kept for the withdrawal of votes…
const RESERVE: Duration = Duration::from_millis(25);
/// …and how long that may take at least, and the attempt itself, even past the caller's deadline.
const WITHDRAW_TIME: Duration = Duration::from_millis(10);
const ATTEMPT: Duration = Duration::from_millis(15);

/// The result of a round.
struct Round {
    token: u64,
    sent: Moment,
    /// How many acceptances count.
    counted: usize,
    /// When the clocks of these servers have surely passed the last reserved token.
    passed: Moment,
    /// How many servers would accept a higher token or a request that is in time.
    again: usize,
    /// The highest last token that they reported.
    floor: u64,
    /// The owners that have the votes of other servers.
    holders: Vec<ReportedHolder>,
    /// How many servers sent no readable reply.
    unanswered: usize,
    node_replies: Vec<Option<NodeReply>>,
}

impl Quorum {
    /// Tries to get a majority. Without one, it withdraws the votes that it got.
    pub(super) fn attempt(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        deadline: Moment,
    ) -> Result<AcquireReply, Failure> {
        // The withdrawal needs time of its own. If the round used up all of it, the votes of a
        // failed attempt would block the servers until the worker withdraws them. A caller with
        // almost no time still gets one short attempt, and so does `try_lock` at its deadline.
        let soonest = self.clock.now().after(ATTEMPT);
        let limit = self.limit(deadline.before(RESERVE).max(soonest));
        let need = self.rules.need;
        let mut floor = 0;
        let mut rounds = 1;
        let round = loop {
            // In each round: a server whose clock was set has shown that in the round before.
            self.connect_missing(limit);
            let round = match self.round(target, request, floor, limit) {
                Ok(round) => round,
                Err(failure) => break Err(failure),
            };
            if round.counted >= need {
                // Dated from before the first request was sent. The leases began one after the
                // other, and only that moment is before all of them. `passed` stands for the
                // servers' clocks: no hand-off may use tokens beyond the reserved ones before it
                // (rule 19).
                return Ok(AcquireReply::Granted(Granted {
                    token: round.token,
                    ttl: request.ttl,
                    sent: round.sent,
                    micros: round.token + target.kind().reserved_tokens(),
                    received: round.passed,
                    waiters: 0,
                    permits: None,
                }));
            }
            // Another round helps only if the servers that would accept a better proposal complete
            // a majority. Votes of other holders do not change within a round. The bound on the
            // rounds keeps two clients from outbidding each other without end.
            let hopeful = round.again > 0 && round.counted + round.again >= need;
            if !hopeful || rounds == ROUNDS || self.clock.now() >= limit {
                break Ok(round);
            }
            floor = floor.max(round.floor);
            rounds += 1;
        };

        // Before the outcome is examined, and also where no round came about: an earlier round of
        // the same attempt may have left votes.
        self.withdraw_votes(target, request, deadline);
        let mut round = round?;

        // Enough servers take part, and some have other holders.
        if let Some((holder, votes)) = most_votes(round.holders.iter())
            && round.counted + round.holders.len() >= need
        {
            // No holder can have a majority, even with all missing replies: several attempts split
            // the votes, and nobody has the lock. To wait for the end of a lease would be wrong,
            // because those attempts withdraw at once. So the caller pauses for about a round.
            if votes + round.unanswered < need {
                return Ok(AcquireReply::Split(self.round_time.get()));
            }
            // The same where the holder's release was announced: the message of the first server
            // came before the others had run that release. No second message comes, and the waiter
            // would miss its turn.
            if self.released.has(&holder.owner, self.clock.now()) {
                return Ok(AcquireReply::Split(self.round_time.get()));
            }
            let (holder, missing) = (holder.clone(), need - round.counted);
            let ttl = free_after(&mut round.holders, missing);
            return Ok(AcquireReply::Busy(Busy { ttl, holder, ahead: 0, hands_over: false }));
        }
        // A server with two names votes once, and refuses the second proposal as outbid by the first. To
        // wait would not help, and nobody else is in the way.
        if round.holders.is_empty()
            && let Some((one, other)) = twins(&round.node_replies)
        {
            let [one, other] = [one, other].map(|number| self.nodes[number].address());
            return Err(invalid_setting(
                "urls",
                format!(
                    "{one} and {other} are one server, and without its second vote there is no majority"
                ),
                "each server once",
            ));
        }
        // Enough servers are well, but other attempts were faster in each round. That is contention
        // and not an outage, although no reply names a holder with a majority.
        let outrun = round.floor >= round.token || !round.holders.is_empty();
        if outrun && round.counted + round.again + round.holders.len() >= need {
            return Ok(AcquireReply::Split(self.round_time.get()));
        }
        let open = self.ballots.servers(request.owner) != 0;
        // Enough servers are well, and got the request too late. `Late` means that nothing was
        // done, so it must not be returned while a vote may be left.
        if !open && round.counted + round.again + round.holders.len() >= need {
            return Ok(AcquireReply::Late);
        }
        Err(self.no_majority(&round.node_replies, open))
    }

    /// Asks the servers for their time whose time is not known. Without it no proposal can have a deadline.
    pub(super) fn connect_missing(&self, limit: Moment) {
        let strange: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (!node.server_clock().is_known()).then(|| [server_clock::time()]))
            .collect();
        let known = strange.iter().filter(|calls| calls.is_none()).count();
        // Waited for only as far as a majority needs it: a dead server must not cost a round, and
        // the attempt can go on without it.
        if known < self.nodes.len() {
            let need = self.rules.need.saturating_sub(known);
            let node_replies = self.ask(&strange, Lane::Callers, need, limit);
            for (_, reply) in first_replies(&node_replies) {
                server_clock::micros_of(&reply.value)
                    .into_iter()
                    .for_each(|it| reply.note_time(it));
            }
        }
    }

    fn round(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        floor: u64,
        limit: Moment,
    ) -> Result<Round, Failure> {
        // Before anything is sent and before the deadlines are made: validity counts from here
        // (rule 3).
        let sent = self.clock.now();
        let deadlines: Vec<Option<u64>> =
            self.nodes.iter().map(|node| node.server_clock().reached_at(limit)).collect();
        // One token for all servers, above *every* deadline and not only above that of each server:
        // the head of this folder shows that tokens grow only then.
        let above = deadlines.iter().flatten().copied().fold(floor, u64::max);
        let token = above.saturating_add(1);
        // Rule 19.
        let reserved = token.saturating_add(target.kind().reserved_tokens());
        // One server with a clock in the far future would otherwise raise the tokens of all servers
        // for good, up to numbers that Lua rounds.
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

        // Noted before sending: a panic or a lost reply must leave a ballot, not a vote that nobody
        // withdraws. Twice the time to live: a server may accept at `limit`, and repeated
        // acceptances may extend its lease; a ballot that ends too late costs only memory.
        let bits = calls.iter().enumerate().map(|(node, calls)| u64::from(calls.is_some()) << node);
        let asked = bits.fold(0, |asked, bit| asked | bit);
        self.ballots.ask(request.owner, asked, sent, limit, limit.after(request.ttl * 2));
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
            // After a repetition, a reply settles only the second sending. The first one may have
            // been accepted, or may arrive later.
            let settled = if node_reply.repeated { 0 } else { bit };
            match node_reply.outcomes.first() {
                Some(Ok(reply)) => {
                    // An unreadable reply settles nothing: it may belong to another command, and
                    // the request itself may have been accepted.
                    let Ok((vote, micros)) = self.read(node, vote(&reply.value, token)) else {
                        continue;
                    };
                    reply.note_time(micros);
                    round.unanswered -= 1;
                    // Only an acceptance uses up the vote of a server that has two names.
                    let may_vote = voters.may_vote(node_reply.server_run, reply);
                    match vote {
                        Vote::Accepted => {
                            // Also where the vote does not count, as in a quarantine: the server
                            // has the key, and a withdrawal must remove it.
                            accepted |= bit;
                            // Even after a repetition: both sendings have the same token, and the
                            // server accepts a token only once, so the other one can do nothing any
                            // more.
                            over |= bit;
                            if voters.counts(node_reply.server_run, reply) {
                                round.counted += 1;
                                let ahead = Duration::from_micros(reserved.saturating_sub(micros));
                                let ahead = ahead + drift_allowance(ahead);
                                round.passed = round.passed.max(reply.received.after(ahead));
                            }
                        }
                        // Counted in quarantine too: the server may have forgotten votes, but this
                        // one it has.
                        Vote::Busy(holder) => round.holders.push(holder),
                        Vote::Late => round.again += usize::from(may_vote),
                        Vote::Low(last) => {
                            round.again += usize::from(may_vote);
                            round.floor = round.floor.max(last);
                        }
                    }
                    over |= settled;
                }
                // It may have been accepted, and the bit stays open.
                Some(Err(failure)) if failure.is_unknown() => {}
                _ => over |= settled,
            }
        }
        self.ballots.replied(request.owner, accepted, over);
        round.node_replies = node_replies;
        Ok(round)
    }

    /// Withdraws the votes that servers gave or may have given. Where that fails, the ballot
    /// remains, and the worker goes on.
    fn withdraw_votes(&self, target: &Target, request: &AcquireRequest<'_>, deadline: Moment) {
        let servers = self.ballots.servers(request.owner);
        if servers == 0 {
            return;
        }
        // With votes on so many servers, other clients may have taken this attempt for a holder,
        // and wait for a release message. With fewer, a message would only wake them for nothing,
        // and all of them would then split the votes again.
        let release = if servers.count_ones() as usize >= self.rules.need {
            [target.release(request.owner, request.ttl, None)]
        } else {
            [target.withdraw(request.owner, request.ttl)]
        };
        let calls: Vec<_> = (0..self.nodes.len())
            .map(|node| (servers & (1 << node) != 0).then_some(&release))
            .collect();
        // Past the caller's deadline too: a few milliseconds here save the other clients a lease.
        // `enough` is 0, because a silent server gets its withdrawal from the worker.
        let deadline = deadline.max(self.clock.now().after(WITHDRAW_TIME));
        let node_replies = self.ask(&calls, Lane::Callers, 0, deadline);
        for (node, reply) in first_replies(&node_replies) {
            self.ballots.released(request.owner, 1 << node, reply.sent);
        }
    }
}

/// Two places in the list of servers that led to one run of one server.
fn twins(node_replies: &[Option<NodeReply>]) -> Option<(usize, usize)> {
    let run_at = |number: usize| {
        let reply: Option<&NodeReply> = node_replies.get(number).and_then(Option::as_ref);
        reply.and_then(|reply| reply.server_run).map(|it| it.run).filter(|&run| run != 0)
    };
    let pairs = (0..node_replies.len()).flat_map(|other| (0..other).map(move |one| (one, other)));
    pairs.into_iter().find(|&(one, other)| run_at(one).is_some() && run_at(one) == run_at(other))
}

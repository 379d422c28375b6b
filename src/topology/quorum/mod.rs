//! The protocol over several independent servers, a majority of which decides (Redlock).
//!
//! | module | what it has |
//! | --- | --- |
//! | `servers` | the servers, and asking them |
//! | `vote` | what servers answer, and what that comes to |
//! | `round` | one attempt: proposals, votes, and what is taken back when they do not suffice |
//! | `tally` | what all say about an owner, and why too few agree |
//! | `listener` | what the servers tell of releases |
//! | `claims` | what attempts may have left on which servers |
//!
//! # One round
//!
//! All servers are asked at once, by one thread, each until the same deadline. The lock is granted
//! when a majority *of all* servers, not of those that answered, has accepted. It is valid from
//! before the first request was sent, for its time to live less the allowance for clocks that
//! drift; the engine refuses a grant of which nothing is left. Where there is no majority, the lock
//! is taken back wherever it was given or may have been; what cannot be taken back now is left to
//! the worker. Then the attempt is dead, and the next one has an owner's value of its own: the request
//! that takes it back may come late, and must not take what the next one was given (rule 5). A renewal
//! needs a majority too, of servers that still have it: where it is gone it is not made anew, because a
//! late renewal would bring back what was released.
//!
//! The time-out of one server is the bound of a round. A server that was silent is not waited for
//! again before it has answered, so that it costs one time-out and not one for each call.
//!
//! # A server without memory
//!
//! A server that restarts empty has forgotten whom it voted for. It must not vote again before that
//! lease has ended, or two majorities could share only a server that forgot. So each new connection
//! asks since when the server runs, and its acceptance counts only when that is longer ago than the
//! longest lease; longer leases are refused. What a server reports is checked against what is known of
//! it (`topology::multi_node::quarantine`). A restart breaks the connection, so none outlives the run that was asked
//! about. Until then it is asked like the others: what it accepts now it remembers, and by the time that
//! it counts, it knows all that is live.
//!
//! # Tokens, without a second round
//!
//! Each server keeps the last token that it accepted for a name. The client proposes one token to
//! all, above the deadline of its request on the clock of every server that it has heard of. A
//! server accepts if it is not late, if nobody else has the lock, and if the token is above its own
//! last; then that is its last. A majority of acceptances of *the same* token grants.
//!
//! *Tokens grow.* Let `t` be granted, and `u` later, after `t` was released or ran out. Their
//! majorities share a server. It accepted `t`, and afterwards `u`.
//!
//! - It remembers `t`: then it accepted `u` because `u > t`.
//! - It has forgotten `t` because the fence ran out. That is kept until the server's clock has passed
//!   `t`, and longer. It accepted `u` at a time of its clock at which `u` was not late, so `u` is
//!   above that deadline, which is above that time, which is above `t`.
//! - It restarted empty. It counts again only after the longest lease, and then its clock has passed
//!   `t`, if `t` was ahead of it by less: by the time-out of a request and by what the servers' clocks
//!   are apart. The rest is as before.
//!
//! A server that refuses because of its last token brings that along, and the next round, which
//! follows at once, proposes above it. Servers that had accepted accept again: they know the attempt.
//! A request that was late brings the server's time along in the same way.
//!
//! With the token some more are reserved, for local hand-offs; the servers remember the last of them.
//! Beyond these a hand-off must wait until all clocks of its majority have surely come so far.
//!
//! `tests/proof/tests/quorum_model.rs` checks all cases of a small model: servers that forget, requests that are late,
//! reordered or lost, clocks that are apart; and that each of these rules is missed when it is left out.
//!
//! *What breaks it:* a majority loses its memory without a restart that can be seen (`FLUSHALL`, a
//! server told to keep its data that does not), or clocks that are set back or are apart by more than
//! the longest lease, each together with the loss of memory. Then tokens may repeat within the time
//! that was lost.

mod claims;
mod listener;
mod round;
mod servers;
mod tally;
#[cfg(test)]
mod tests;
mod vote;

use std::time::Duration;

use crate::base::error::Error;
use crate::base::id::{Holder, Identity};
use crate::base::option::TTL_OF_EXTEND;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::reply::{AcquireOutcome, Ownership, OwnershipReply, Released};
use crate::protocol::reply::{Forced, forced};
use crate::protocol::request::{AcquireRequest, ReleaseRequest};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::protocol::{Protocol, wake_message};
use crate::topology::multi_node::recent_messages::RecentMessages;
use crate::topology::multi_node::scatter::{NodeReply, NodeRequest, ask};
use crate::topology::quorum::listener::QuorumPublishers;
use crate::topology::quorum::servers::{first_replies, invalid_setting};
use crate::topology::quorum::tally::{TallyKind, is_open};
use crate::wire::Pipeline;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, probe};
use crate::wire::transport::Lane;

pub(crate) use crate::topology::multi_node::node::{Node, NodeSettings};
pub(crate) use claims::MAX_SERVERS;
pub(crate) use servers::{Quorum, QuorumRules};

impl Quorum {
    /// Connects, and says why too few servers serve this user.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let deadline = self.clock.now().after(self.rules.timeout * 2);
        let calls = [probe()];
        let all: Vec<NodeRequest<'_>> =
            self.nodes.iter().map(|node| NodeRequest { node, calls: &calls }).collect();
        let node_replies = ask(&all, Lane::Callers, self.rules.need, deadline, &*self.clock);
        let node_replies: Vec<Option<NodeReply>> = node_replies.into_iter().map(Some).collect();
        let now = self.clock.now();
        let mut seen: Vec<(u64, String)> = Vec::new();
        let (mut serving, mut counted) = (0, 0);
        for (node, node_reply) in self.nodes.iter().zip(&node_replies) {
            let Some(node_reply) = node_reply else { continue };
            serving += usize::from(node_reply.outcomes.iter().all(Result::is_ok));
            let Some(server_run) = node_reply.server_run else { continue };
            if let Some((_, other)) =
                seen.iter().find(|(run, _)| *run == server_run.run && *run != 0)
            {
                return Err(Error::config(
                    "urls",
                    format_args!("{other} and {} are one server", node.address()),
                    "each server once",
                ));
            }
            seen.push((server_run.run, node.address()));
            counted += usize::from(server_run.counts_from <= now);
        }
        if serving < self.rules.need {
            return Err(self.no_majority(&node_replies, false).into());
        }
        if counted < self.rules.need {
            log!(
                warn,
                "only {counted} of {} servers run for longer than the longest lease, {}; until {} \
                 do, no lock is granted",
                self.nodes.len(),
                Span(self.rules.longest),
                self.rules.need
            );
        }
        Ok(())
    }
}

impl Protocol for Quorum {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn acquire(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        deadline: Moment,
    ) -> AcquireOutcome {
        let outcome = self
            .check_lease("lease", request.ttl)
            .and_then(|()| self.attempt(target, request, deadline));
        // What was not granted was given back, or is left to the worker.
        AcquireOutcome { outcome, is_spent: true }
    }

    fn release(
        &self,
        target: &Target,
        request: &ReleaseRequest<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let ReleaseRequest { owner, ttl, last_token, kind: _ } = *request;
        let calls = [target.release(owner, ttl, last_token)];
        let node_replies = self.ask_all(&calls, Lane::Callers, deadline);
        Ok(self.tally(&node_replies, 0, owner, TallyKind::Release)?.ownership.into())
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<OwnershipReply, Failure> {
        self.check_lease(TTL_OF_EXTEND, ttl)?;
        let calls = [target.renew(owner, ttl, count)];
        self.claims.lengthen(owner, deadline.after(ttl));
        let node_replies = self.ask_all(&calls, Lane::Callers, deadline);
        self.tally(&node_replies, 0, owner, TallyKind::Renew)
    }

    fn run(
        &self,
        requests: &[LeaseRequest<'_>],
        deadline: Moment,
    ) -> Vec<Result<OwnershipReply, Failure>> {
        let calls: Vec<Call> = requests
            .iter()
            .map(|request| {
                if let LeaseCommand::Renew { ttl, .. } = request.command {
                    self.claims.lengthen(request.owner, deadline.after(ttl));
                }
                request.call()
            })
            .collect();
        let node_replies = self.ask_all(&calls, Lane::Worker, deadline);
        requests
            .iter()
            .enumerate()
            .map(|(number, request)| match request.command {
                LeaseCommand::Renew { .. } => {
                    self.tally(&node_replies, number, request.owner, TallyKind::Renew)
                }
                LeaseCommand::Release { .. } => {
                    let told = self.tally(&node_replies, number, request.owner, TallyKind::Release);
                    if self.may_still_own(request.owner) {
                        return Err(self.no_majority_on(&node_replies, number, true));
                    }
                    // Where nothing is left it does not matter whether it was enough to be held.
                    told.or(Ok(OwnershipReply {
                        ownership: Ownership::Gone,
                        sent: self.clock.now(),
                    }))
                }
            })
            .collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        let node_replies = self.ask_all(&[target.inspect()], Lane::Callers, deadline);
        let mut found: Vec<(usize, Holder)> = Vec::new();
        let mut answered = 0;
        for (node, reply) in first_replies(&node_replies) {
            let Ok(holder) = self.read(node, target.kind().read_holder(reply.value.clone())) else {
                continue;
            };
            answered += 1;
            let Some(holder) = holder else { continue };
            match found.iter_mut().find(|(_, known)| known.owner == holder.owner) {
                Some((votes, _)) => *votes += 1,
                None => found.push((1, holder)),
            }
        }
        let most = found.into_iter().max_by_key(|(votes, _)| *votes);
        let votes = most.as_ref().map_or(0, |(votes, _)| *votes);
        if votes >= self.rules.need {
            Ok(most.map(|(_, holder)| holder))
        } else if votes + (self.nodes.len() - answered) >= self.rules.need {
            Err(self.no_majority(&node_replies, false))
        } else {
            Ok(None)
        }
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        let limit = self.limit(deadline);
        let (mut again, mut had, mut open) = (true, false, false);
        loop {
            // A server that reported the holder has reported its time.
            let call = |node: &Arc<Node>| {
                node.server_clock().reached_at(limit).map(|by| [target.force(owner, by)])
            };
            let calls: Vec<Option<[Call; 1]>> = self.nodes.iter().map(call).collect();
            let node_replies = self.ask(&calls, Lane::Callers, self.rules.need, limit);
            // A server on which that owner had it no longer has done nothing.
            open |= is_open(&node_replies, 0);
            let (mut answered, mut late) = (0, 0);
            for (node, reply) in first_replies(&node_replies) {
                match self.read(node, forced(&reply.value))? {
                    Forced::Done(voted) => {
                        had |= voted;
                        answered += 1;
                    }
                    Forced::Late(micros) => {
                        let clock = self.nodes[node].server_clock();
                        clock.note(reply.epoch, micros, reply.sent, reply.received);
                        late += 1;
                    }
                }
            }
            if answered >= self.rules.need {
                return Ok(had);
            }
            if late == 0 || !std::mem::take(&mut again) {
                return Err(self.no_majority(&node_replies, had || open));
            }
        }
    }

    fn apply(
        &self,
        _target: &Target,
        _owner: &[u8],
        _pipeline: &Pipeline,
        _deadline: Moment,
    ) -> Result<Applied, Failure> {
        Err(invalid_setting(
            "transaction",
            "a QuorumClient has none, because the data cannot be on all of its servers",
            "a lock of a LockClient, or a check of the fencing token where the data is",
        ))
    }

    fn request_release(&self, _target: &Target, _deadline: Moment) -> Result<bool, Failure> {
        Ok(false)
    }

    fn may_still_own(&self, owner: &[u8]) -> bool {
        self.claims.servers(owner) != 0
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        Arc::new(QuorumPublishers {
            nodes: self.nodes.clone(),
            need: self.rules.need,
            clock: Arc::clone(&self.clock),
            round_time: Arc::clone(&self.round_time),
            client: self.identity.id().to_string().into_bytes(),
            recent_messages: RecentMessages::default(),
        })
    }

    /// The threads that listen wait for a message, so they are sent one.
    fn listen_to(&self, _channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        let nudge = [wake_message::wake_listener(&self.identity)];
        let nudges = vec![Some(&nudge); self.nodes.len()];
        let replies = self.ask(&nudges, Lane::Callers, 0, deadline);
        let denied = |reply: &NodeReply| match reply.outcomes.first() {
            Some(Err(failure)) if failure.is_denied() => Some(failure.clone()),
            _ => None,
        };
        let mut denials: Vec<Failure> = replies.iter().flatten().filter_map(denied).collect();
        // The others suffice; those that were not reached look by themselves, a little later.
        if denials.len() < self.rules.need { Ok(()) } else { Err(denials.swap_remove(0)) }
    }

    /// There are several servers, each with a clock of its own.
    fn granted_after(
        &self,
        _grant: &GrantMessage,
        _received: Moment,
        _queued: Option<Moment>,
    ) -> Option<Moment> {
        None
    }
}

//! The protocol over several independent servers, a majority of which decides (Redlock).
//!
//! | module | what it has |
//! | --- | --- |
//! | `servers` | the servers, and requests to them |
//! | `vote` | the replies of single servers, and how votes are counted |
//! | `round` | one attempt: proposals, votes, and the withdrawal of too few votes |
//! | `tally` | the ownership that all replies together show, and why there is no majority |
//! | `inspection` | the holder of the lock, and what each server says of it |
//! | `listener` | the messages that servers publish about releases |
//! | `ballot` | which servers may still have a vote of which attempt |
//!
//! # One round
//!
//! One thread sends a proposal to all servers at once, with one deadline for all. The lock is
//! granted when a majority *of all* servers, not of those that replied, has accepted. The grant is
//! valid from before the first request was sent, for its time to live less the allowance for clock
//! drift; the engine refuses a grant of which nothing is left. Without a majority, the client
//! withdraws the votes that servers gave or may have given. The worker withdraws those that remain.
//! Then the attempt is over, and the next one has an owner's value of its own: a withdrawal may
//! arrive late, and must not take the votes of the next attempt (rule 5). A renewal also needs a
//! majority, of servers that still have the lock. A renewal never creates the key: a late one would
//! bring back a released lock.
//!
//! The time-out of one server bounds a round. After a time-out, no request waits for that server
//! until it has replied again, so that it costs one time-out and not one for each call.
//!
//! # A server without memory
//!
//! A server that restarts empty has forgotten its vote. It must not vote again before the lease of
//! that vote has ended, or two majorities could share only a server that forgot. So each new
//! connection asks how long the server has run, and an acceptance counts only when that is longer
//! than the longest lease; longer leases are refused. Each report is checked against earlier ones
//! (`topology::multi_node::quarantine`). A restart breaks the connection, so no connection outlives
//! the run that it asked about. In the meantime the server gets the same requests as the others: it
//! remembers the votes that it gives now, and knows all live locks by the time that its votes
//! count.
//!
//! # Tokens, without a second round
//!
//! Each server keeps the last token that it accepted for a name. The client proposes one token to
//! all. That token is above the deadline of the request on the clock of every server whose time is
//! known. A server accepts if the request is not late, if no other owner has the lock, and if the
//! token is above its last one, which it replaces. A majority of acceptances of *the same* token
//! grants.
//!
//! *Tokens grow.* Let `t` be granted, and `u` later, after `t` was released or expired. Their
//! majorities share a server, which accepted `t`, and afterwards `u`.
//!
//! - The server remembers `t`: then it accepted `u` because `u > t`.
//! - The fence with `t` has expired. It expires only after the server's clock has passed `t`. When
//!   the server accepted `u`, that request was not late: `u` is above its deadline, which is above
//!   the server's time, which is above `t`.
//! - The server restarted empty. It votes again only after the longest lease. By then its clock has
//!   passed `t`, unless `t` was further ahead of it. `t` is ahead by the time-out of a request plus
//!   the difference between the servers' clocks. The rest is as before.
//!
//! A server that refuses because of its last token returns that token, and the next round follows
//! at once with a higher one. Servers that had accepted accept again, because they know the
//! attempt. A late request likewise returns the server's time.
//!
//! A proposal reserves some more tokens for local hand-offs, and the servers remember the last of
//! these. Beyond them, a hand-off must wait until all clocks of its majority have surely passed the
//! next token.
//!
//! `tests/proof/tests/quorum_model.rs` checks all cases of a small model: servers that lose their
//! memory, requests that are late, reordered or lost, and clocks that differ. It also shows that
//! each of these rules is needed.
//!
//! *What breaks it:* a majority loses its memory without a visible restart (`FLUSHALL`, or a server
//! that was declared to keep its data and does not); or clocks are set back, or differ, by more
//! than the longest lease, each together with a loss of memory. Then tokens may repeat within the
//! lost time.

mod ballot;
mod inspection;
mod listener;
mod round;
mod servers;
mod tally;
#[cfg(test)]
mod tests;
mod vote;

use std::time::Duration;

use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::inspection::Inspection;
use crate::base::option::TTL_OF_EXTEND;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::View;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::reply::{AcquireOutcome, Ownership, OwnershipReply, Released};
use crate::protocol::reply::{Forced, forced};
use crate::protocol::request::{AcquireRequest, ForceRequest, ReleaseRequest};
use crate::protocol::server_protocol::ServerProtocol;
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::protocol::{Protocol, wake_message};
use crate::topology::multi_node::scatter::{NodeReply, NodeRequest, ask};
use crate::topology::quorum::listener::QuorumPublishers;
use crate::topology::quorum::servers::{first_replies, invalid_setting};
use crate::topology::quorum::tally::{TallyKind, is_open};
use crate::wire::Pipeline;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, probe};
use crate::wire::transport::Lane;

pub(crate) use crate::topology::multi_node::node::{Node, NodeSettings};
pub(crate) use ballot::MAX_SERVERS;
pub(crate) use servers::{Quorum, QuorumRules};

impl Quorum {
    /// Connects to all servers. Returns an error if too few of them serve this user.
    pub(crate) fn check(&self) -> Result<(), Error> {
        // Twice the time-out of a request: no connection exists yet, and `ask` leaves one half of
        // the time for making them.
        let deadline = self.clock.now().after(self.rules.timeout * 2);
        let calls = [probe()];
        let all: Vec<NodeRequest<'_>> = self
            .nodes
            .iter()
            .map(|node| NodeRequest { node, calls: &calls, once: false })
            .collect();
        let node_replies = ask(&all, Lane::Callers, self.rules.need, deadline, &*self.clock);
        let node_replies: Vec<Option<NodeReply>> = node_replies.into_iter().map(Some).collect();

        let now = self.clock.now();
        let mut seen: Vec<(u64, String)> = Vec::new();
        let (mut serving, mut counted) = (0, 0);
        for (node, node_reply) in self.nodes.iter().zip(&node_replies) {
            let Some(node_reply) = node_reply else { continue };
            serving += usize::from(node_reply.outcomes.iter().all(Result::is_ok));
            let Some(server_run) = node_reply.server_run else { continue };
            // Two addresses of one server (a name and an IP, a socket and a port) would be two
            // votes with one memory, so that one crash could remove both. Addresses cannot be
            // compared to find that out; the run id can. `Voters` checks it again for every round,
            // because this check runs only with `connect_now`, and an address may lead elsewhere
            // later.
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
        // Only a warning: after a restart of all servers the quarantine ends by itself, and a
        // service that is started together with its servers must not fail to start.
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
        // An attempt that got no majority sent withdrawals, which may still be on their way. The
        // same owner's value must not be proposed again, or such a withdrawal could take the new
        // votes away (rule 5).
        AcquireOutcome { outcome, is_spent: true }
    }

    fn release(
        &self,
        target: &Target,
        request: &ReleaseRequest<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let ReleaseRequest { owner, ttl, last_token, .. } = *request;
        let calls = [target.release(owner, ttl, last_token)];
        let node_replies = self.ask_all(&calls, Lane::Callers, deadline);
        self.tally(&node_replies, 0, owner, TallyKind::Release).map(Released::from)
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
        // Before sending: once a server has extended the lease, the ballot must outlive it, even if
        // no reply arrives. A ballot that is swept too early would leave its vote behind.
        self.ballots.lengthen(owner, deadline.after(ttl));
        let node_replies = self.ask_all(&calls, Lane::Callers, deadline);
        self.tally(&node_replies, 0, owner, TallyKind::Renew).map(OwnershipReply::from)
    }

    fn keep_worker_connections(&self, until: Moment) -> bool {
        // Every node is told, even if an earlier one has no connection.
        let connected =
            self.nodes.iter().map(|node| node.transport().keep_worker_connection(until));
        connected.filter(|has_one| !has_one).count() == 0
    }

    fn connect_worker(&self) {
        self.nodes.iter().for_each(|node| node.transport().connect_worker());
    }

    fn server(&self) -> Result<&dyn ServerProtocol, Failure> {
        Err(Failure::refused_here("several servers have this lock"))
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
                    self.ballots.lengthen(request.owner, deadline.after(ttl));
                }
                request.call()
            })
            .collect();
        let node_replies = self.ask_all(&calls, Lane::Worker, deadline);
        requests
            .iter()
            .enumerate()
            .map(|(number, request)| match request.command {
                // No lock of a quorum has weights.
                LeaseCommand::Renew { .. }
                | LeaseCommand::RenewOrYield { .. }
                | LeaseCommand::Change { .. } => self
                    .tally(&node_replies, number, request.owner, TallyKind::Renew)
                    .map(Into::into),
                LeaseCommand::Release { .. } => {
                    let outcome =
                        self.tally(&node_replies, number, request.owner, TallyKind::Release);
                    // A background release must go on until *every* server has confirmed it. A
                    // majority of confirmations frees the lock, but a vote that remains on one
                    // server blocks that server for a lease.
                    if self.may_still_own(request.owner) {
                        return Err(self.no_majority_on(&node_replies, number, true));
                    }
                    // No vote remains, so the work is done, even where too few servers confirm that
                    // the owner ever had the lock. An error here would repeat the release forever.
                    let gone = |_| OwnershipReply::new(Ownership::Gone, self.clock.now());
                    Ok(outcome.map_or_else(gone, Into::into))
                }
            })
            .collect()
    }

    fn holders(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Vec<ReportedHolder>, Failure> {
        let node_replies = self.ask_all(&[target.inspect(view)], Lane::Callers, deadline);
        let reports = self.reports(target, view, &node_replies);
        let silent = reports.iter().filter(|report| report.is_none()).count();
        // A vote of one server is no holder: an attempt that fails has some votes for a moment.
        // Only with a majority, or if the missing replies could not make one, is the result
        // certain.
        let (holder, votes) = self.elected(&reports);
        if holder.is_none() && votes + silent >= self.rules.need {
            return Err(self.no_majority(&node_replies, false));
        }
        Ok(holder.into_iter().collect())
    }

    fn inspect(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Inspection, Failure> {
        let node_replies = self.ask_all(&[target.inspect(view)], Lane::Callers, deadline);
        self.inspection(target, &node_replies)
    }

    fn force_release(
        &self,
        target: &Target,
        request: &ForceRequest<'_>,
        deadline: Moment,
    ) -> Result<bool, Failure> {
        let limit = self.limit(deadline);
        let (mut again, mut had, mut open) = (true, false, false);
        loop {
            self.connect_missing(limit);
            // A server whose time is not known is left out. Without a deadline, a delayed force
            // could evict the holder long after the caller has got an error and given up.
            let call = |node: &Arc<Node>| {
                node.server_clock().reached_at(limit).map(|by| [target.force(request, by)])
            };
            let calls: Vec<Option<[Call; 1]>> = self.nodes.iter().map(call).collect();
            let node_replies = self.ask(&calls, Lane::Callers, self.rules.need, limit);
            // Kept over both rounds: a first request without a reply may still run, whatever the
            // servers reply to the second.
            open |= is_open(&node_replies, 0);
            let (mut answered, mut late) = (0, 0);
            for (node, reply) in first_replies(&node_replies) {
                match self.read(node, forced(&reply.value))? {
                    Forced::Done(voted) => {
                        had |= voted;
                        answered += 1;
                    }
                    Forced::Late(micros) => {
                        reply.note_time(micros);
                        late += 1;
                    }
                }
            }
            if answered >= self.rules.need {
                return Ok(had);
            }
            // Once more, and not forever: a late request returns the server's time, so that the
            // next deadline is right. If that is late too, the clock jumps or the network is too
            // slow.
            if late == 0 || !std::mem::take(&mut again) {
                return Err(self.no_majority(&node_replies, had || open));
            }
        }
    }

    fn apply(
        &self,
        _locks: &[(&Target, &[u8])],
        _pipeline: &Pipeline,
        _deadline: Moment,
    ) -> Result<Applied, Failure> {
        Err(invalid_setting(
            "transaction",
            "a QuorumClient has none, because the data cannot be on all of its servers",
            "a lock of a LockClient, or a check of the fencing token where the data is",
        ))
    }

    /// Sends nothing: nobody receives a request for a lock on several servers. That is no error,
    /// because a request to one server, too, may reach no client.
    fn request_release(&self, _target: &Target, _deadline: Moment) -> Result<bool, Failure> {
        Ok(false)
    }

    fn may_still_own(&self, owner: &[u8]) -> bool {
        self.ballots.servers(owner) != 0
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        Arc::new(QuorumPublishers {
            nodes: self.nodes.clone(),
            need: self.rules.need,
            clock: Arc::clone(&self.clock),
            round_time: Arc::clone(&self.round_time),
            client: self.identity.id().to_string().into_bytes(),
            released: Arc::clone(&self.released),
        })
    }

    /// Sends a message to each thread that listens. They block on their sockets, and find the new
    /// channel when they wake.
    fn listen_to(&self, _channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        let nudge = [wake_message::wake_listener(&self.identity)];
        let nudges = vec![Some(&nudge); self.nodes.len()];
        let replies = self.ask(&nudges, Lane::Callers, 0, deadline);
        let denied = |reply: &NodeReply| match reply.outcomes.first() {
            Some(Err(failure)) if failure.is_denied() => Some(failure.clone()),
            _ => None,
        };
        let mut denials: Vec<Failure> = replies.iter().flatten().filter_map(denied).collect();
        // Only a denial by a majority is an error: enough other servers then cannot be listened to.
        // A listener that the message did not reach polls for new channels itself a little later.
        if denials.len() < self.rules.need { Ok(()) } else { Err(denials.swap_remove(0)) }
    }

    /// A hold is doubted only if fewer servers than a majority were there since it was confirmed. One that comes back empty
    /// counts again once every lease that it may have forgotten has ended, so that nobody else has the lock by then.
    fn unbroken_since(&self, _target: &Target) -> Moment {
        let since = |node: &Arc<Node>| node.server_clock().epochs().unbroken_since();
        let mut since: Vec<Moment> = self.nodes.iter().map(since).collect();
        since.sort_unstable();
        since.get(self.rules.need - 1).copied().unwrap_or(Moment::PAST)
    }

    /// No server hands a lock over here, since a hand-over would be one vote only. So there is no
    /// grant to date.
    fn granted_after(
        &self,
        _target: &Target,
        _grant: &GrantMessage,
        _received: Moment,
        _queued: Option<Moment>,
    ) -> Option<Moment> {
        None
    }
}

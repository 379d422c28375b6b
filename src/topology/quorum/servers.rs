//! The servers of a quorum, and the requests to them.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::{Clock, Moment};
use crate::topology::multi_node::node::Node;
use crate::topology::multi_node::recent_messages::RecentMessages;
use crate::topology::multi_node::scatter::{NodeReply, NodeRequest, ask};
use crate::topology::quorum::ballot::Ballots;
use crate::topology::quorum::listener::RoundTime;
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::transport::Lane;

/// The rules of a quorum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuorumRules {
    /// How many servers must agree.
    pub(crate) need: usize,
    /// How long one of them may take to reply.
    pub(crate) timeout: Duration,
    /// No lease is longer.
    pub(crate) longest: Duration,
}

/// Locks on several servers, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) rules: QuorumRules,
    pub(super) identity: Arc<Identity>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ballots: Ballots,
    pub(super) round_time: Arc<RoundTime>,
    /// The owners whose releases other clients' servers have announced.
    pub(super) released: Arc<RecentMessages>,
}

impl Quorum {
    pub(crate) fn new(
        nodes: Vec<Node>,
        rules: QuorumRules,
        identity: Arc<Identity>,
        clock: Arc<dyn Clock>,
    ) -> Quorum {
        Quorum {
            nodes: nodes.into_iter().map(Arc::new).collect(),
            rules,
            identity,
            clock,
            ballots: Ballots::default(),
            round_time: Arc::new(RoundTime::new()),
            released: Arc::default(),
        }
    }

    /// Sends calls to the servers for which there are some: one exchange each, within the time-out
    /// of a server. If fewer than `enough` servers are connected, silent ones are waited for too.
    pub(super) fn ask<C: AsRef<[Call]>>(
        &self,
        calls: &[Option<C>],
        lane: Lane,
        enough: usize,
        deadline: Moment,
    ) -> Vec<Option<NodeReply>> {
        let asked: Vec<NodeRequest<'_>> = self
            .nodes
            .iter()
            .zip(calls)
            .filter_map(|(node, calls)| {
                Some(NodeRequest { node, calls: calls.as_ref()?.as_ref(), once: false })
            })
            .collect();
        let mut node_replies =
            ask(&asked, lane, enough, self.limit(deadline), &*self.clock).into_iter();
        // One place for each server, asked or not: bits of ballots are places in this list.
        calls.iter().map(|calls| calls.as_ref().and_then(|_| node_replies.next())).collect()
    }

    pub(super) fn ask_all(
        &self,
        calls: &[Call],
        lane: Lane,
        deadline: Moment,
    ) -> Vec<Option<NodeReply>> {
        self.ask(&vec![Some(calls); self.nodes.len()], lane, self.rules.need, deadline)
    }

    pub(super) fn limit(&self, deadline: Moment) -> Moment {
        deadline.min(self.clock.now().after(self.rules.timeout))
    }

    /// Passes on an outcome. A reply that cannot be read may belong to another command, and so may
    /// every later reply on its connection. Which connection that was is no longer known here, so
    /// all connections to that server are given up.
    pub(super) fn read<T>(&self, node: usize, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.map_err(|failure| {
            if !failure.is_unknown() {
                return failure;
            }
            failure.unreadable_at(&self.nodes[node].transport().discard_connections())
        })
    }

    pub(super) fn check_lease(&self, field: &'static str, ttl: Duration) -> Result<(), Failure> {
        if ttl <= self.rules.longest {
            return Ok(());
        }
        Err(invalid_setting(
            field,
            format!("{} is too long", Span(ttl)),
            "at most max_lease of the QuorumClient",
        ))
    }
}

pub(super) fn invalid_setting(
    field: &'static str,
    wrong: impl Into<String>,
    expected: &'static str,
) -> Failure {
    Failure::NotSent(NotSentReason::InvalidSetting { field, wrong: wrong.into(), expected })
}

/// The replies to the first call, each with the number of its server.
pub(super) fn first_replies(
    node_replies: &[Option<NodeReply>],
) -> impl Iterator<Item = (usize, &Reply)> {
    node_replies.iter().enumerate().filter_map(|(node, node_reply)| {
        Some((node, node_reply.as_ref()?.outcomes.first()?.as_ref().ok()?))
    })
}

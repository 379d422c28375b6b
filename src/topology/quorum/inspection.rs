//! Who has a lock on several servers.

use std::time::Duration;

use crate::base::inspection::{Inspection, ServerInspection};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::{Report, View};
use crate::protocol::target::Target;
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::servers::{Quorum, first_replies};
use crate::topology::quorum::vote::most_votes;
use crate::wire::failure::Failure;

impl Quorum {
    /// What each server reports, if it does.
    pub(super) fn reports(
        &self,
        target: &Target,
        view: View,
        node_replies: &[Option<NodeReply>],
    ) -> Vec<Option<Report>> {
        let mut reports: Vec<Option<Report>> = node_replies.iter().map(|_| None).collect();
        for (node, reply) in first_replies(node_replies) {
            reports[node] = self.read(node, target.report(view, reply.value.clone())).ok();
        }
        reports
    }

    /// Who has most votes, if these are a majority, and how many they are.
    pub(super) fn elected(&self, reports: &[Option<Report>]) -> (Option<ReportedHolder>, usize) {
        let all = reports.iter().flatten().flat_map(|report| &report.holders);
        let Some((first, count)) = most_votes(all.clone()) else { return (None, 0) };
        if count < self.rules.need {
            return (None, count);
        }
        // It loses the lock when the lease ends on the first server without which it has no majority.
        let mut votes: Vec<_> = all.filter(|it| it.owner == first.owner).collect();
        votes.sort_by_key(|holder| holder.ttl.unwrap_or(Duration::MAX));
        (votes.get(count - self.rules.need).map(|holder| (*holder).clone()), count)
    }

    /// The description for people: as much as is known.
    pub(super) fn inspection(
        &self,
        target: &Target,
        node_replies: &[Option<NodeReply>],
    ) -> Result<Inspection, Failure> {
        let reports = self.reports(target, View::Waiters, node_replies);
        if reports.iter().all(Option::is_none) {
            return Err(self.no_majority(node_replies, false));
        }
        let identify =
            |holder: &ReportedHolder| holder.identify(target.kind(), self.identity.as_ref());
        let failure =
            |node: usize| match node_replies[node].as_ref().and_then(|it| it.outcomes.first()) {
                Some(Err(failure)) => failure.to_string(),
                _ => "no reply that could be read".to_owned(),
            };
        let servers = self.nodes.iter().zip(&reports).enumerate();
        let servers = servers.map(|(node, (server, report))| ServerInspection {
            address: server.address(),
            holders: report.iter().flat_map(|report| &report.holders).map(identify).collect(),
            failure: report.is_none().then(|| failure(node)),
        });
        Ok(Inspection {
            holders: self.elected(&reports).0.iter().map(identify).collect(),
            waiters: Vec::new(),
            waiting: None,
            permits: None,
            word: None,
            servers: servers.collect(),
        })
    }
}

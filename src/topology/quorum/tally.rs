//! What all servers together say about an owner, and why too few of them agree.

use redis::RedisError;

use crate::base::text::Span;
use crate::base::time::Moment;
use crate::protocol::reply::ownership;
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::servers::Quorum;
use crate::topology::quorum::vote::Tally;
use crate::wire::connection::{Reply, ServerRun};
use crate::wire::failure::{Failure, NotSentReason, Shortage};

/// What servers are asked about an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TallyKind {
    Renew,
    Release,
}

/// Who has voted already: a server that is reached in two ways has one vote.
#[derive(Debug, Default)]
pub(super) struct Voters(Vec<u64>);

impl Voters {
    /// Whether the word of a server counts.
    pub(super) fn counts(&mut self, server_run: Option<ServerRun>, reply: &Reply) -> bool {
        let Some(ServerRun { run, counts_from }) = server_run else { return false };
        if counts_from > reply.sent {
            return false;
        }
        if run != 0 && self.0.contains(&run) {
            return false;
        }
        self.0.push(run);
        true
    }
}

/// Whether a request to some server has no reply, so that the server may have run it, or may run it yet.
pub(super) fn is_open(node_replies: &[Option<NodeReply>], number: usize) -> bool {
    node_replies.iter().flatten().any(|node_reply| {
        let unanswered = node_reply
            .outcomes
            .get(number)
            .is_some_and(|outcome| outcome.as_ref().is_err_and(Failure::is_unknown));
        unanswered || node_reply.repeated
    })
}

/// Whether some server ran a request about an owner. Too few replies then make the outcome unknown: that
/// server did its part now, or the vote was gone before, and with it perhaps the lock.
fn has_run(node_replies: &[Option<NodeReply>], number: usize) -> bool {
    let ran = |node_reply: &NodeReply| match node_reply.outcomes.get(number) {
        Some(Ok(_)) => true,
        // The key holds something else, so this vote is gone.
        Some(Err(failure)) => failure.is_wrong_type(),
        None => false,
    };
    node_replies.iter().flatten().any(ran)
}

impl Quorum {
    /// What all say about one of the owners that they were asked about.
    pub(super) fn tally(
        &self,
        node_replies: &[Option<NodeReply>],
        number: usize,
        owner: &[u8],
        kind: TallyKind,
    ) -> Result<OwnershipReply, Failure> {
        let mut tally = Tally::default();
        let mut voters = Voters::default();
        let mut first = Moment::FAR;
        for (node, node_reply) in node_replies.iter().enumerate() {
            let Some(node_reply) = node_reply else { continue };
            let reply = match node_reply.outcomes.get(number) {
                Some(Ok(reply)) => reply,
                // A key that holds something else is another's, as it is on one server.
                Some(Err(failure)) if failure.is_wrong_type() => {
                    tally.count(Ownership::Taken);
                    first = first.min(node_reply.asked);
                    if kind == TallyKind::Release {
                        // The release ran, and found nothing to take back.
                        self.claims.released(owner, 1 << node, node_reply.asked);
                    }
                    continue;
                }
                _ => continue,
            };
            let Ok(mut ownership) = self.read(node, ownership(&reply.value)) else { continue };
            first = first.min(reply.sent);
            if kind == TallyKind::Release {
                self.claims.released(owner, 1 << node, reply.sent);
                // The first request may have been the one that did it (rule 15).
                if node_reply.repeated && ownership == Ownership::Gone {
                    ownership = Ownership::Owned;
                }
            }
            // That it has nothing of ours is true whatever it has forgotten.
            if ownership != Ownership::Owned || voters.counts(node_reply.server_run, reply) {
                tally.count(ownership);
            }
        }
        match tally.ownership(self.rules.need, self.nodes.len()) {
            Some(ownership) => Ok(OwnershipReply { ownership, sent: first }),
            None => {
                let unknown = is_open(node_replies, number) || has_run(node_replies, number);
                Err(self.no_majority_on(node_replies, number, unknown))
            }
        }
    }

    /// Why too few servers agree; `unknown` unless it is sure that no server has done anything.
    pub(super) fn no_majority(&self, node_replies: &[Option<NodeReply>], unknown: bool) -> Failure {
        self.no_majority_on(node_replies, 0, unknown)
    }

    /// The same about one question of several.
    pub(super) fn no_majority_on(
        &self,
        node_replies: &[Option<NodeReply>],
        number: usize,
        unknown: bool,
    ) -> Failure {
        let mut said = Vec::new();
        let mut lasting = Vec::new();
        let (mut exhausted, mut failed, mut unreached) = (0, 0, 0);
        for (node, node_reply) in self.nodes.iter().zip(node_replies) {
            let outcome =
                node_reply.as_ref().and_then(|node_reply| node_reply.outcomes.get(number));
            let failure = match (node_reply, outcome) {
                // It is sent nothing before its time is known, which each connection begins with.
                (None, _) => node
                    .attempts()
                    .last_error()
                    .map(|error| Failure::NotSent(NotSentReason::Connect(error))),
                (_, Some(Err(failure))) => Some(failure.clone()),
                (_, Some(Ok(_))) => None,
                (Some(node_reply), None) => node_reply.not_sent.clone(),
            };
            if let Some(failure) = failure {
                let text = failure.to_string();
                said.push(if text.contains(&node.address()) {
                    text
                } else {
                    format!("{}: {text}", node.address())
                });
                exhausted += usize::from(matches!(
                    failure,
                    Failure::NotSent(NotSentReason::Exhausted(Shortage { is_silent: false, .. }))
                ));
                failed += 1;
                unreached += usize::from(matches!(
                    failure,
                    Failure::NotSent(NotSentReason::Connect(_) | NotSentReason::Closed(_))
                ));
                lasting.extend((!failure.is_transient()).then_some(failure));
            } else if node_reply.is_none() {
                said.push(format!("the time of {} is not known yet", node.address()));
            } else if let (Some(server_run), Some(Ok(reply))) =
                (node_reply.as_ref().and_then(|node_reply| node_reply.server_run), outcome)
                && server_run.counts_from > reply.sent
            {
                said.push(match server_run.counts_from {
                    Moment::FAR => {
                        format!("{} does not report its uptime", node.address())
                    }
                    from => format!(
                        "{} was restarted, and counts again in {}",
                        node.address(),
                        Span(from.since(reply.sent))
                    ),
                });
            }
        }
        if !unknown && lasting.len() > self.nodes.len() - self.rules.need {
            return lasting.swap_remove(0);
        }
        if said.is_empty() {
            said.push("their replies make no majority".to_owned());
        }
        // Those that were reached and do not count say so themselves.
        let too_few = if self.nodes.len() - unreached < self.rules.need {
            "too few could be reached"
        } else {
            "too few do"
        };
        let text = format!(
            "{} of {} servers must agree, and {too_few} ({})",
            self.rules.need,
            self.nodes.len(),
            said.join("; ")
        );
        if unknown {
            return Failure::Unknown(RedisError::from(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                text,
            )));
        }
        // Had there been connections to those as well, enough servers would have been asked.
        let reached = self.nodes.len() - failed;
        let is_exhausted = exhausted > 0 && reached + exhausted >= self.rules.need;
        Failure::NotSent(NotSentReason::NoMajority { text, is_exhausted })
    }
}

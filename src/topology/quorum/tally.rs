//! The ownership that the replies of all servers show together, and why there is no majority.

use redis::RedisError;

use crate::base::text::Span;
use crate::base::time::Moment;
use crate::protocol::reply::{Ownership, OwnershipReply, Released, released, renewed};
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::servers::Quorum;
use crate::topology::quorum::vote::Tally;
use crate::wire::connection::{Reply, ServerRun};
use crate::wire::failure::{Failure, NotSentReason, Shortage};

/// The request whose replies are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TallyKind {
    Renew,
    Release,
}

/// What the replies about one owner show together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tallied {
    pub(super) ownership: Ownership,
    /// When the first request was sent.
    pub(super) sent: Moment,
    /// How many clients received the release from the server that counted most. A hint: a client
    /// need not listen to all servers.
    pub(super) listeners: u32,
}

impl From<Tallied> for OwnershipReply {
    fn from(tallied: Tallied) -> OwnershipReply {
        OwnershipReply::new(tallied.ownership, tallied.sent)
    }
}

impl From<Tallied> for Released {
    fn from(tallied: Tallied) -> Released {
        Released { listeners: tallied.listeners, ..Released::from(tallied.ownership) }
    }
}

impl TallyKind {
    /// Reads one server's reply, and notes its time where the reply tells that.
    fn read(self, reply: &Reply) -> Result<Released, Failure> {
        match self {
            TallyKind::Renew => renewed(reply, false).map(|reply| reply.ownership.into()),
            TallyKind::Release => released(&reply.value, true),
        }
    }
}

/// The runs that have voted. A server with two addresses has one vote.
#[derive(Debug, Default)]
pub(super) struct Voters(Vec<u64>);

impl Voters {
    /// Whether a vote of this server would count.
    pub(super) fn may_vote(&self, server_run: Option<ServerRun>, reply: &Reply) -> bool {
        let Some(ServerRun { run, counts_from }) = server_run else { return false };
        // Compared with the sending, not with now: the server ran the request at some moment after
        // it, and only the earliest of these is certain.
        if counts_from > reply.sent {
            return false;
        }
        if run != 0 && self.0.contains(&run) {
            return false;
        }
        true
    }

    /// Whether the vote of a server counts. It does so once.
    pub(super) fn counts(&mut self, server_run: Option<ServerRun>, reply: &Reply) -> bool {
        if !self.may_vote(server_run, reply) {
            return false;
        }
        let Some(ServerRun { run, .. }) = server_run else { return false };
        // Run 0 is unknown. Two servers without a run id are taken for two, or no quorum of servers
        // that do not report one could ever agree.
        self.0.push(run);
        true
    }
}

/// Whether a request to some server has no reply, so that the server may have run it or may yet run
/// it.
pub(super) fn is_open(node_replies: &[Option<NodeReply>], number: usize) -> bool {
    node_replies.iter().flatten().any(|node_reply| {
        let unanswered = node_reply
            .outcomes
            .get(number)
            .is_some_and(|outcome| outcome.as_ref().is_err_and(Failure::is_unknown));
        unanswered || node_reply.repeated
    })
}

/// Whether some server ran a request about an owner. Without a majority of replies, the outcome is
/// then unknown: that server did its part, or its vote was gone before, and with it perhaps the
/// lock.
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
    /// Counts the replies about one of the owners in a request.
    pub(super) fn tally(
        &self,
        node_replies: &[Option<NodeReply>],
        number: usize,
        owner: &[u8],
        kind: TallyKind,
    ) -> Result<Tallied, Failure> {
        let mut listeners = 0;
        let mut tally = Tally::default();
        let mut voters = Voters::default();
        let mut first = Moment::FAR;
        for (node, node_reply) in node_replies.iter().enumerate() {
            let Some(node_reply) = node_reply else { continue };
            let reply = match node_reply.outcomes.get(number) {
                Some(Ok(reply)) => reply,
                // A key of another type belongs to somebody else, as it does on one server. If this
                // were an error, a hold could neither be lost nor be released while the key is
                // there.
                Some(Err(failure)) if failure.is_wrong_type() => {
                    tally.count(Ownership::Taken);
                    first = first.min(node_reply.asked);
                    // The release ran and found no vote. An error reply has no time of its own, so
                    // the earliest possible moment is used.
                    if kind == TallyKind::Release {
                        self.ballots.released(owner, 1 << node, node_reply.asked);
                    }
                    continue;
                }
                _ => continue,
            };
            let Ok(released) = self.read(node, kind.read(reply)) else { continue };
            let ownership = released.ownership;
            // Not the sum: a client listens to several servers.
            listeners = released.listeners.max(listeners);
            // The earliest sending of all: an extended lease is valid from there, as with a grant.
            first = first.min(reply.sent);
            if kind == TallyKind::Release {
                self.ballots.released(owner, 1 << node, reply.sent);
                // The first sending gave the vote back, or it was lost before: no vote for either (rule 15). Without a
                // majority of the others the outcome is unknown.
                if node_reply.repeated && ownership != Ownership::Owned {
                    continue;
                }
            }
            // A denial counts even in quarantine: the server has no vote of ours, whatever else it
            // has forgotten. A confirmation of a restarted server could be a vote that it gave a
            // second time.
            if ownership != Ownership::Owned || voters.counts(node_reply.server_run, reply) {
                tally.count(ownership);
            }
        }
        match tally.ownership(self.rules.need, self.nodes.len()) {
            Some(ownership) => Ok(Tallied { ownership, sent: first, listeners }),
            None => {
                let unknown = is_open(node_replies, number) || has_run(node_replies, number);
                Err(self.no_majority_on(node_replies, number, unknown))
            }
        }
    }

    /// Says why there is no majority. `unknown` unless it is certain that no server ran the
    /// request.
    pub(super) fn no_majority(&self, node_replies: &[Option<NodeReply>], unknown: bool) -> Failure {
        self.no_majority_on(node_replies, 0, unknown)
    }

    /// The same for one request of several.
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
                // It was sent nothing, because its time is not known: no connection was made yet.
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

        // More servers than a majority can spare refuse for good (a password, a permission). The
        // refusal itself says what to mend, and callers must not wait for an end of an outage. With
        // an unknown outcome that would claim that nothing was done.
        if !unknown && lasting.len() > self.nodes.len() - self.rules.need {
            return lasting.swap_remove(0);
        }
        if said.is_empty() {
            said.push("their replies make no majority".to_owned());
        }
        // Servers that were reached and did not agree are listed with their reasons.
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
        // With connections to these servers as well, the request would have reached a majority:
        // then a larger pool would help. With most servers down it would not, although some pools
        // are in use.
        let reached = self.nodes.len() - failed;
        let is_exhausted = exhausted > 0 && reached + exhausted >= self.rules.need;
        Failure::NotSent(NotSentReason::NoMajority { text, is_exhausted })
    }
}

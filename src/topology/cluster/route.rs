//! The routing of calls to the node of a cluster that has a hash slot.
//!
//! A call that a node refused was not run, so it may be sent to another node:
//!
//! | a node replies | then |
//! | --- | --- |
//! | `MOVED` | the map notes the new master, and the call goes there |
//! | `ASK` | the call goes to the other node once, after `ASKING`; an operation of several round trips waits instead |
//! | `TRYAGAIN` | the hash slot is being moved; the call is sent again after a short pause, until the deadline |
//! | nothing, and no connection can be made | the map is refreshed; the call goes to another node if the map names one (a call of the worker at its next try) |
//! | nothing, and the call was sent | it is not sent again, because the node may have run it |

use std::time::Duration;

use crate::base::sync::{self, Arc};
use crate::base::time::Moment;
use crate::protocol::backend::{RoundTrips, Sending};
use crate::topology::cluster::address::Redirect;
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::topology::cluster::directory::{Directory, no_master, unroutable};
use crate::topology::multi_node::node::Node;
use crate::topology::multi_node::scatter::{self, NodeRequest};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::transport::{Lane, Transport};

/// This many redirections are followed at once. Then comes a pause, in which the nodes may agree.
const HOPS: u32 = 4;
/// The first pause, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Another round needs this part of the whole time for its replies: a call that is sent in the last
/// moment ends as an unknown outcome, and a clear refusal is better.
const LAST_ROUND_FRACTION: u32 = 8;

impl Directory {
    /// Runs `step` at the node that has a hash slot, and follows redirections. The engine must be able
    /// to repeat the step after an unknown outcome.
    pub(super) fn follow<T>(
        self: &Arc<Self>,
        slot: u16,
        trips: RoundTrips,
        deadline: Moment,
        mut step: impl FnMut(&Arc<Transport>, bool) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut hops, mut pause) = (0, SHORTEST_PAUSE);
        let round = deadline.since(self.now()) / LAST_ROUND_FRACTION;
        let mut once: Option<Arc<ClusterNode>> = None;
        let mut why = None;
        // If the time ends in a later round, the reason of the earlier ones says more: "the
        // deadline has passed" would hide that the hash slot is being moved.
        let end = |failure, why: Option<&str>| match (failure, why) {
            (Failure::NotSent(NotSentReason::DeadlinePassed), Some(why)) => unroutable(why),
            (failure, _) => failure,
        };
        loop {
            let asking = once.is_some();
            // An `ASK` is valid for one command only. If it leads to a refusal, the next try begins
            // at the master on the map again.
            let member = match once.take() {
                Some(member) => member,
                None => self
                    .master_of(slot, Lane::Callers, deadline)
                    .map_err(|failure| end(failure, why))?,
            };
            let failure = match member.transport().and_then(|node| step(&node, asking)) {
                Err(failure) => failure,
                done => return done,
            };

            hops += 1;
            let reason = match self.next(slot, &member, &failure) {
                NextHop::CrossSlot => return Err(Failure::cross_slot()),
                // Two nodes may redirect to each other for a moment after a fail-over, so
                // redirections are not followed without a bound.
                NextHop::AtMaster if hops < HOPS => continue,
                NextHop::AtMaster => "the nodes of the cluster do not agree on who has its slot",
                // `ASKING` covers one command: the `EXEC` of a transaction, or the `WAIT` after a
                // write, would be redirected half-way. Such an operation waits for the end of the
                // move.
                NextHop::Once(member) if trips == RoundTrips::One && hops < HOPS => {
                    once = Some(member);
                    continue;
                }
                NextHop::Once(_) | NextHop::Later => MOVING,
                // Only what was surely not sent may go to another node. After an unknown outcome
                // the first node may have run it, and the engine decides what to do (rule 31).
                NextHop::Failed(Some(seen))
                    if matches!(failure, Failure::NotSent(_))
                        && self.has_other(slot, &member, seen, deadline)
                        && hops < HOPS =>
                {
                    continue;
                }
                NextHop::Failed(_) => return Err(end(failure, why)),
            };

            // Ends early, while the outcome is still known, instead of sending in the last moment.
            if self.now().after(pause + round.max(pause)) >= deadline {
                return Err(unroutable(reason));
            }
            why = Some(reason);
            sync::sleep(pause);
            (hops, pause) = (0, (pause * 2).min(LONGEST_PAUSE));
        }
    }

    /// Refreshes the map. Returns whether another node than this one now has the hash slot.
    fn has_other(
        self: &Arc<Self>,
        slot: u16,
        member: &ClusterNode,
        seen: u64,
        deadline: Moment,
    ) -> bool {
        self.ask(seen, deadline).is_ok()
            && self.known_master(slot).is_some_and(|now| now.address() != member.address())
    }

    /// What follows from a failure at a node. Updates the map accordingly.
    fn next(self: &Arc<Self>, slot: u16, member: &ClusterNode, failure: &Failure) -> NextHop {
        match Redirect::of(failure, member.address()) {
            // The node does not have this hash slot, but the one of a key that the user's transaction
            // names. To follow it would end at a node without the lock.
            Some(redirect) if redirect.slot != slot => NextHop::CrossSlot,
            // The map keeps the old master: until the end of the move, that one has the hash slot.
            Some(Redirect { to, once: true, .. }) => NextHop::Once(self.member_at(&to)),
            Some(Redirect { to, .. }) => {
                self.note(slot, &to);
                NextHop::AtMaster
            }
            None if failure.code() == Some("TRYAGAIN") => NextHop::Later,
            None => NextHop::Failed(is_doubtful(failure).then(|| self.suspect(member))),
        }
    }

    /// Sends many calls at once, each to the node that has its hash slot. A node that becomes silent delays the
    /// replies of the others once.
    pub(super) fn call_all(
        self: &Arc<Self>,
        calls: &[Call],
        hash_slot_of: impl Fn(usize) -> u16,
        sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let (count, lane) = (calls.len(), sending.lane());
        let mut outcomes: Vec<Result<Reply, Failure>> =
            vec![Err(Failure::NotSent(NotSentReason::DeadlinePassed)); count];
        let mut open: Vec<(usize, Option<Arc<ClusterNode>>)> =
            (0..count).map(|number| (number, None)).collect();
        // No pauses here, unlike in `follow`: renewals of all hash slots travel together, and the worker
        // repeats a failed one at its next turn.
        // A call that is sent once is not followed: it may have a deadline by the clock of the first node.
        for _ in 0..if sending == Sending::Once { 1 } else { HOPS } {
            if open.is_empty() || self.now() >= deadline {
                break;
            }
            let mut groups: Vec<Group> = Vec::new();
            for (number, once) in open.drain(..) {
                let asking = once.is_some();
                let slot = hash_slot_of(number);
                let member = once.map_or_else(|| self.master_of(slot, lane, deadline), Ok);
                match member.and_then(|member| Group::of(&mut groups, member)) {
                    Ok(group) => group.add(number, calls[number].clone(), asking),
                    Err(failure) => outcomes[number] = Err(failure),
                }
            }
            let requests: Vec<NodeRequest<'_>> = groups
                .iter()
                .map(|group| NodeRequest {
                    node: &group.node,
                    calls: &group.calls,
                    once: sending == Sending::Once,
                })
                .collect();
            let replies = scatter::ask(&requests, lane, 1, deadline, self.clock());

            for (group, reply) in groups.iter().zip(replies) {
                for (number, outcome) in group.numbers.iter().zip(reply.outcomes) {
                    // The reply to an `ASKING`, which is no call of the caller.
                    let Some(number) = *number else { continue };
                    if let Err(failure) = &outcome
                        && !(calls[number].is_excused && failure.is_unknown())
                    {
                        match self.next(hash_slot_of(number), &group.member, failure) {
                            NextHop::AtMaster => open.push((number, None)),
                            NextHop::Once(member) => open.push((number, Some(member))),
                            NextHop::CrossSlot | NextHop::Later | NextHop::Failed(_) => {}
                        }
                    }
                    // The outcome of a call that is sent again stays until the next one replaces
                    // it: if the rounds end first, the caller gets that refusal.
                    outcomes[number] = outcome;
                }
            }
        }
        // A raw `MOVED` or `ASK` would say nothing to the user.
        for (number, _) in open.into_iter().filter(|_| sending != Sending::Once) {
            if matches!(&outcomes[number], Err(Failure::Refused(_))) {
                outcomes[number] = Err(unroutable(MOVING));
            }
        }
        outcomes
    }

    /// Runs `step` at any node, and at the next one if a node is unreachable. Begins with the
    /// master of a hash slot, if one is given.
    pub(super) fn on_any_node<T>(
        self: &Arc<Self>,
        slot: Option<u16>,
        deadline: Moment,
        step: impl Fn(&Arc<Transport>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut masters = self.masters(deadline)?;
        if let Some(slot) = slot {
            let home = self.known_master(slot);
            // A stable sort: the others stay in order, with the suspect at the end.
            masters
                .sort_by_key(|member| home.as_ref().is_none_or(|home| !Arc::ptr_eq(home, member)));
        }
        let mut outcome = Err(no_master());
        for member in masters {
            outcome = member.transport().and_then(|node| step(&node));
            match &outcome {
                Err(failure) if is_doubtful(failure) && self.now() < deadline => {
                    self.suspect(&member);
                }
                _ => break,
            }
        }
        outcome
    }
}

/// What follows from a failure.
enum NextHop {
    /// To the master of the hash slot, which the map knows now.
    AtMaster,
    /// To the node that is taking the hash slot over, for this command only.
    Once(Arc<ClusterNode>),
    /// Again after a pause: the hash slot is being moved.
    Later,
    /// Nowhere: the call names a key of another hash slot.
    CrossSlot,
    /// No other node was named. If this one may be gone, the version of the map that led to it.
    Failed(Option<u64>),
}

/// The calls that go to one node together.
struct Group {
    member: Arc<ClusterNode>,
    node: Arc<Node>,
    calls: Vec<Call>,
    /// For each call, its number among the caller's calls; `None` for an `ASKING`.
    numbers: Vec<Option<usize>>,
}

impl Group {
    fn of(groups: &mut Vec<Group>, member: Arc<ClusterNode>) -> Result<&mut Group, Failure> {
        let found = groups.iter().position(|group| Arc::ptr_eq(&group.member, &member));
        let place = found.unwrap_or(groups.len());
        if found.is_none() {
            let node = member.node()?;
            groups.push(Group { member, node, calls: Vec::new(), numbers: Vec::new() });
        }
        Ok(&mut groups[place])
    }

    fn add(&mut self, number: usize, call: Call, asking: bool) {
        // `ASKING` is valid for the next command on the connection only, so it stands before each.
        if asking {
            self.calls.push(Call::asking());
            self.numbers.push(None);
        }
        // Whole, as `EVAL`: after a `NOSCRIPT` only the call would be sent again, without its
        // `ASKING`, and the node would redirect it.
        self.calls.push(if asking { call.with_source().unwrap_or(call) } else { call });
        self.numbers.push(Some(number));
    }
}

const MOVING: &str = "its slot is being moved to another node of the cluster";

/// Whether a failure may mean that the node is gone or is no longer a master.
fn is_doubtful(failure: &Failure) -> bool {
    match failure {
        Failure::NotSent(NotSentReason::Connect(_) | NotSentReason::Closed(_))
        | Failure::Unknown(_) => true,
        // A full pool, a passed deadline or a wrong setting says nothing about the node.
        Failure::NotSent(_) => false,
        Failure::Refused(_) => {
            matches!(failure.code(), Some("CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING"))
        }
    }
}

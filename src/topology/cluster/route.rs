//! The way to the node of a cluster that has a slot.
//!
//! What a node refused was not done, so that it may be sent to another:
//!
//! | a node says | then |
//! | --- | --- |
//! | `MOVED` | the slot is noted to be there, and it is asked |
//! | `ASK` | the other node is asked this once, with leave (`ASKING`); what takes several exchanges waits instead |
//! | `TRYAGAIN` | the slot is being moved; asked again after a short pause, until the deadline |
//! | no connection can be made | the map is asked for; another node is asked if that says so (the worker, at its next try) |
//! | no answer | nothing is sent again: it may have been done |

use std::time::Duration;

use crate::base::sync::{self, Arc};
use crate::base::time::Moment;
use crate::protocol::backend::RoundTrips;
use crate::topology::cluster::address::Redirect;
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::topology::cluster::directory::{Directory, no_master, unroutable};
use crate::topology::multi_node::node::Node;
use crate::topology::multi_node::scatter::{self, NodeRequest};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::transport::{Lane, Transport};

/// So many redirections are followed at once; then comes a pause, in which the nodes may agree.
const HOPS: u32 = 4;
/// How long such a pause is at first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The next round is to have this share of all time for its answers: of what is sent in the last moment
/// it is not known what became.
const LAST_ROUND_SHARE: u32 = 8;

impl Directory {
    /// Does something at the node that has a slot, and follows where it is sent from there. What is
    /// done must be such as the engine may repeat where it failed without an answer.
    pub(super) fn follow<T>(
        self: &Arc<Self>,
        slot: u16,
        trips: RoundTrips,
        deadline: Moment,
        mut step: impl FnMut(&Arc<Transport>, bool) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut hops, mut pause) = (0, SHORTEST_PAUSE);
        let round = deadline.since(self.now()) / LAST_ROUND_SHARE;
        let mut once: Option<Arc<ClusterNode>> = None;
        let mut why = None;
        // Time that ran out in a later round did so because of what the earlier ones met.
        let end = |failure, why: Option<&str>| match (failure, why) {
            (Failure::NotSent(NotSentReason::DeadlinePassed), Some(why)) => unroutable(why),
            (failure, _) => failure,
        };
        loop {
            let asking = once.is_some();
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
                NextHop::CrossSlot => return Err(cross_slot()),
                NextHop::AtMaster if hops < HOPS => continue,
                NextHop::AtMaster => "the nodes of the cluster do not agree on who has its slot",
                NextHop::Once(member) if trips == RoundTrips::One && hops < HOPS => {
                    once = Some(member);
                    continue;
                }
                NextHop::Once(_) | NextHop::Later => MOVING,
                NextHop::Failed(Some(seen))
                    if matches!(failure, Failure::NotSent(_))
                        && self.has_other(slot, &member, seen, deadline)
                        && hops < HOPS =>
                {
                    continue;
                }
                NextHop::Failed(_) => return Err(end(failure, why)),
            };
            if self.now().after(pause + round.max(pause)) >= deadline {
                return Err(unroutable(reason));
            }
            why = Some(reason);
            sync::sleep(pause);
            (hops, pause) = (0, (pause * 2).min(LONGEST_PAUSE));
        }
    }

    /// Whether another node than this is now known to have the slot.
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

    /// Draws the conclusions from a failure at a node.
    fn next(self: &Arc<Self>, slot: u16, member: &ClusterNode, failure: &Failure) -> NextHop {
        match Redirect::of(failure, member.address()) {
            Some(redirect) if redirect.slot != slot => NextHop::CrossSlot,
            Some(Redirect { to, once: true, .. }) => NextHop::Once(self.member_at(&to)),
            Some(Redirect { to, .. }) => {
                self.note(slot, &to);
                NextHop::AtMaster
            }
            None if failure.code() == Some("TRYAGAIN") => NextHop::Later,
            None => NextHop::Failed(is_doubtful(failure).then(|| self.suspect(member))),
        }
    }

    /// Many commands at once, each to the node that has its slot, on the worker's connections. One
    /// node that is silent keeps the others' answers waiting once, and then no longer.
    pub(super) fn call_all(
        self: &Arc<Self>,
        calls: &[Call],
        hash_slot_of: impl Fn(usize) -> u16,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let count = calls.len();
        let mut outcomes: Vec<Result<Reply, Failure>> =
            vec![Err(Failure::NotSent(NotSentReason::DeadlinePassed)); count];
        let mut open: Vec<(usize, Option<Arc<ClusterNode>>)> =
            (0..count).map(|number| (number, None)).collect();
        for _ in 0..HOPS {
            if open.is_empty() || self.now() >= deadline {
                break;
            }
            let mut groups: Vec<Group> = Vec::new();
            for (number, once) in open.drain(..) {
                let asking = once.is_some();
                let slot = hash_slot_of(number);
                let member = once.map_or_else(|| self.master_of(slot, Lane::Worker, deadline), Ok);
                match member.and_then(|member| Group::of(&mut groups, member)) {
                    Ok(group) => group.add(number, calls[number].clone(), asking),
                    Err(failure) => outcomes[number] = Err(failure),
                }
            }
            let requests: Vec<NodeRequest<'_>> = groups
                .iter()
                .map(|group| NodeRequest { node: &group.node, calls: &group.calls })
                .collect();
            let replies = scatter::ask(&requests, Lane::Worker, 1, deadline, self.clock());
            for (group, reply) in groups.iter().zip(replies) {
                for (number, outcome) in group.numbers.iter().zip(reply.outcomes) {
                    let Some(number) = *number else { continue };
                    if let Err(failure) = &outcome {
                        match self.next(hash_slot_of(number), &group.member, failure) {
                            NextHop::AtMaster => open.push((number, None)),
                            NextHop::Once(member) => open.push((number, Some(member))),
                            NextHop::CrossSlot | NextHop::Later | NextHop::Failed(_) => {}
                        }
                    }
                    outcomes[number] = outcome;
                }
            }
        }
        for (number, _) in open {
            if matches!(&outcomes[number], Err(Failure::Refused(_))) {
                outcomes[number] = Err(unroutable(MOVING));
            }
        }
        outcomes
    }

    /// Does something at any node, the next one where that could not. The first is who has a slot, if
    /// one is named.
    pub(super) fn on_any_node<T>(
        self: &Arc<Self>,
        slot: Option<u16>,
        deadline: Moment,
        step: impl Fn(&Arc<Transport>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut masters = self.masters(deadline)?;
        if let Some(slot) = slot {
            let home = self.known_master(slot);
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
    /// Another node has the slot.
    AtMaster,
    /// Another node is about to have it, and serves this command alone.
    Once(Arc<ClusterNode>),
    /// The slot is being moved.
    Later,
    /// A key of another slot was named.
    CrossSlot,
    /// No other node was named. If this one may be gone, the version of the map that led to it.
    Failed(Option<u64>),
}

/// What goes to one node together.
struct Group {
    member: Arc<ClusterNode>,
    node: Arc<Node>,
    calls: Vec<Call>,
    /// Whose answer each of them brings, if anybody's.
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
        if asking {
            self.calls.push(Call::asking());
            self.numbers.push(None);
        }
        // Sent again for want of the script, it would come without the leave.
        self.calls.push(if asking { call.with_source().unwrap_or(call) } else { call });
        self.numbers.push(Some(number));
    }
}

const MOVING: &str = "its slot is being moved to another node of the cluster";

/// A transaction names a key of another slot.
fn cross_slot() -> Failure {
    let text = "a key is not in the slot of the lock";
    Failure::Refused(redis::make_extension_error("CROSSSLOT".into(), Some(text.into())))
}

/// Whether it may mean that a node is gone, or is no master any longer.
fn is_doubtful(failure: &Failure) -> bool {
    match failure {
        Failure::NotSent(NotSentReason::Connect(_) | NotSentReason::Closed(_))
        | Failure::Unknown(_) => true,
        Failure::NotSent(_) => false,
        Failure::Refused(_) => {
            matches!(failure.code(), Some("CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING"))
        }
    }
}

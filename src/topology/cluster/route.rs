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
use crate::topology::cluster::address::Redirect;
use crate::topology::cluster::directory::{Directory, adrift, nowhere};
use crate::topology::cluster::member::Member;
use crate::topology::several::node::{Lane, Node};
use crate::topology::several::scatter::{self, Question};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::transport::Transport;

/// So many redirections are followed at once; then comes a pause, in which the nodes may agree.
const HOPS: u32 = 4;
/// How long such a pause is at first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The next round is to have this share of all time for its answers: of what is sent in the last moment
/// it is not known what became.
const LAST_ROUND: u32 = 8;

/// How a redirection that is for one command alone is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    Follow,
    Wait,
}

/// The nodes of a cluster as commands reach them.
#[derive(Debug)]
pub(super) struct Route {
    directory: Arc<Directory>,
}

impl Route {
    pub(super) fn new(directory: Directory) -> Route {
        Route { directory: Arc::new(directory) }
    }

    /// Who has which slots.
    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Makes sure that a node tells where the slots are, and lets this user run scripts.
    pub(super) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        self.anywhere(None, deadline, |transport| transport.check(deadline))
    }

    /// Does something at the node that has a slot, and follows where it is sent from there. What is
    /// done must be such as the engine may repeat where it failed without an answer.
    pub(super) fn follow<T>(
        &self,
        slot: u16,
        aside: Aside,
        deadline: Moment,
        mut step: impl FnMut(&Arc<Transport>, bool) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut hops, mut pause) = (0, SHORTEST_PAUSE);
        let round = deadline.since(self.directory.now()) / LAST_ROUND;
        let mut once: Option<Arc<Member>> = None;
        let mut why = None;
        // Time that ran out in a later round did so because of what the earlier ones met.
        let end = |failure, why: Option<&str>| match (failure, why) {
            (Failure::NotSent(NotSentReason::Overdue), Some(why)) => adrift(why),
            (failure, _) => failure,
        };
        loop {
            let asking = once.is_some();
            let member = match once.take() {
                Some(member) => member,
                None => {
                    self.directory.master_of(slot, deadline).map_err(|failure| end(failure, why))?
                }
            };
            let failure = match member.transport().and_then(|node| step(node, asking)) {
                Err(failure) => failure,
                done => return done,
            };
            hops += 1;
            let redirect = Redirect::of(&failure, member.address());
            let reason = match redirect {
                Some(redirect) if redirect.slot != slot => return Err(scattered()),
                Some(Redirect { to, once: false, .. }) => {
                    self.directory.note(slot, &to);
                    if hops < HOPS {
                        continue;
                    }
                    "the nodes of the cluster do not agree on who has its slot"
                }
                Some(Redirect { to, .. }) if aside == Aside::Follow && hops < HOPS => {
                    once = Some(self.directory.member_at(&to));
                    continue;
                }
                Some(_) => MOVING,
                None if failure.code() == Some("TRYAGAIN") => MOVING,
                None => {
                    if self.has_other(slot, &member, &failure, deadline) && hops < HOPS {
                        continue;
                    }
                    return Err(end(failure, why));
                }
            };
            if self.directory.now().after(pause + round.max(pause)) >= deadline {
                return Err(adrift(reason));
            }
            why = Some(reason);
            sync::sleep(pause);
            (hops, pause) = (0, (pause * 2).min(LONGEST_PAUSE));
        }
    }

    /// Draws the conclusions from a failure. Answers whether nothing was sent, and another node than
    /// this is now known to have the slot.
    fn has_other(&self, slot: u16, member: &Member, failure: &Failure, deadline: Moment) -> bool {
        if !is_doubtful(failure) {
            return false;
        }
        let seen = self.directory.suspect(member);
        matches!(failure, Failure::NotSent(_))
            && self.directory.ask(seen, deadline).is_ok()
            && self.directory.home(slot).is_some_and(|now| now.address() != member.address())
    }

    /// Many commands at once, each to the node that has its slot, on the worker's connections. One
    /// node that is silent keeps the others' answers waiting once, and then no longer.
    pub(super) fn call_all(
        &self,
        calls: &[Call],
        hash_slot_of: impl Fn(usize) -> u16,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let count = calls.len();
        let mut outcomes: Vec<Result<Reply, Failure>> = Vec::with_capacity(count);
        outcomes.resize_with(count, || Err(Failure::NotSent(NotSentReason::Overdue)));
        let mut open: Vec<(usize, Option<Arc<Member>>)> =
            (0..count).map(|number| (number, None)).collect();
        for _ in 0..HOPS {
            if open.is_empty() || self.directory.now() >= deadline {
                break;
            }
            let mut groups: Vec<Group> = Vec::new();
            for (number, once) in open.drain(..) {
                let asking = once.is_some();
                let slot = hash_slot_of(number);
                let member = once.map_or_else(|| self.directory.master_at_once(slot, deadline), Ok);
                match member.and_then(|member| Group::of(&mut groups, member)) {
                    Ok(group) => group.add(number, calls[number].clone(), asking),
                    Err(failure) => outcomes[number] = Err(failure),
                }
            }
            let questions: Vec<Question<'_>> = groups
                .iter()
                .map(|group| Question { node: &group.node, calls: &group.calls })
                .collect();
            let deliveries =
                scatter::ask(&questions, Lane::Worker, 1, deadline, self.directory.clock());
            for (group, delivery) in groups.iter().zip(deliveries) {
                for (number, outcome) in group.numbers.iter().zip(delivery.outcomes) {
                    let Some(number) = *number else { continue };
                    if let Err(failure) = &outcome {
                        match self.again(hash_slot_of(number), &group.member, failure) {
                            Again::No => {}
                            Again::AtMaster => open.push((number, None)),
                            Again::Once(member) => open.push((number, Some(member))),
                        }
                    }
                    outcomes[number] = outcome;
                }
            }
        }
        for (number, _) in open {
            if matches!(&outcomes[number], Err(Failure::Refused(_))) {
                outcomes[number] = Err(adrift(MOVING));
            }
        }
        outcomes
    }

    /// Whether what failed at a node is to be tried again, and where.
    fn again(&self, slot: u16, member: &Member, failure: &Failure) -> Again {
        match Redirect::of(failure, member.address()) {
            Some(redirect) if redirect.slot != slot => Again::No,
            Some(Redirect { to, once: true, .. }) => Again::Once(self.directory.member_at(&to)),
            Some(Redirect { to, .. }) => {
                self.directory.note(slot, &to);
                Again::AtMaster
            }
            None => {
                if is_doubtful(failure) {
                    self.directory.suspect(member);
                }
                Again::No
            }
        }
    }

    /// Does something at any node, the next one where that could not. The first is who has a slot, if
    /// one is named.
    pub(super) fn anywhere<T>(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        step: impl Fn(&Arc<Transport>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut masters = self.directory.masters(deadline)?;
        if let Some(slot) = slot {
            let home = self.directory.home(slot);
            masters
                .sort_by_key(|member| home.as_ref().is_none_or(|home| !Arc::ptr_eq(home, member)));
        }
        let mut outcome = Err(nowhere());
        for member in masters {
            outcome = member.transport().and_then(&step);
            match &outcome {
                Err(failure) if is_doubtful(failure) && self.directory.now() < deadline => {
                    self.directory.suspect(&member);
                }
                _ => break,
            }
        }
        outcome
    }

    /// The worker's connection to the node of a slot is used no longer.
    pub(super) fn distrust(&self, slot: u16) {
        if let Some(member) = self.directory.home(slot) {
            member.distrust();
        }
    }
}

/// Whether a command is sent again, and to whom.
enum Again {
    No,
    /// To who has its slot now.
    AtMaster,
    /// To the one that it was sent to for this once.
    Once(Arc<Member>),
}

/// What goes to one node together.
struct Group {
    member: Arc<Member>,
    node: Arc<Node>,
    calls: Vec<Call>,
    /// Whose answer each of them brings, if anybody's.
    numbers: Vec<Option<usize>>,
}

impl Group {
    fn of(groups: &mut Vec<Group>, member: Arc<Member>) -> Result<&mut Group, Failure> {
        let found = groups.iter().position(|group| Arc::ptr_eq(&group.member, &member));
        let place = found.unwrap_or(groups.len());
        if found.is_none() {
            let node = Arc::clone(member.worker()?);
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
fn scattered() -> Failure {
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

//! Which node of a cluster has a slot, and the way there.
//!
//! | the map is | meaning | goes to |
//! | --- | --- | --- |
//! | empty | no node was asked yet | asked for |
//! | asked for | one thread asks the nodes, one after the other; who knows no better waits for it | good; due, if none told |
//! | good | followed | due, at any redirection and any sign that a node is gone |
//! | due | followed all the same, and asked for by the next who comes, but not within a [`REST`] of the last time | asked for |
//!
//! What a node refused was not done, so that it may be sent to another:
//!
//! | a node says | then |
//! | --- | --- |
//! | `MOVED` | the slot is noted to be there, and it is asked |
//! | `ASK` | the other node is asked this once, with leave (`ASKING`); what takes several exchanges waits instead |
//! | `TRYAGAIN` | the slot is being moved; asked again after a short pause, until the deadline |
//! | no connection can be made | the map is asked for; another node is asked if that says so |
//! | no answer | nothing is sent again: it may have been done |
//!
//! All masters on the map are listened to. A master that is heard has the word on its own slots; on those
//! of one that is not, the first has it that is heard: the nodes pass on to each other what is published.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::ConnectionInfo;

use crate::base::sync::{self, Arc, AtomicBool, AtomicU64, Condvar, Mutex, OnceLock, Ordering};
use crate::base::tag::SLOTS;
use crate::base::time::{Clock, Moment};
use crate::wire::connection::Reply;
use crate::wire::endpoint;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::fan::{self, Question};
use crate::wire::manager::{Manager, Source};
use crate::wire::node::{Lane, Node, NodeSettings};
use crate::wire::pool::{PoolSettings, connector};
use crate::wire::script::Call;
use crate::wire::subscription::Subscription;
use crate::wire::topology::{Address, Range, Redirect, ranges};
use crate::wire::transport::Transport;

/// The nodes are not asked again for where the slots are within this time.
const REST: Duration = Duration::from_millis(100);
/// So many redirections are followed at once; then comes a pause, in which the nodes may agree.
const HOPS: u32 = 4;
/// How long such a pause is at first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A node that is asked for the slots has this share of the time at most.
const SHARE: usize = 3;

/// How the nodes of a cluster are spoken to.
#[derive(Debug)]
pub(crate) struct ClusterSettings {
    /// The bounds of the connections to each node.
    pub(crate) pool: PoolSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
}

/// The nodes of a cluster, and who of them has which slots.
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    /// How to speak to a node, wherever it is.
    template: ConnectionInfo,
    settings: Arc<ClusterSettings>,
    clock: Arc<dyn Clock>,
    map: Mutex<Map>,
    asked: Condvar,
    /// Grows whenever another may have the word on a slot.
    changes: AtomicU64,
    process: u32,
}

/// What is known of the slots.
#[derive(Debug, Default)]
struct Map {
    masters: Vec<Arc<Member>>,
    /// The place of its master for each slot; empty at first.
    slots: Vec<u16>,
    /// Seeds that have no slots as far as is known; only while nobody tells who has.
    spare: Vec<Arc<Member>>,
    /// Grows whenever the nodes were asked.
    version: u64,
    due: bool,
    /// Whether somebody is asking the nodes.
    flight: bool,
    /// From when on they may be asked again.
    rested: Option<Moment>,
    /// Why they told nothing the last time.
    trouble: Option<Failure>,
    /// Who was seen to fail, and is asked last.
    suspect: Option<Address>,
}

/// The place of a slot that nobody has.
const NOBODY: u16 = u16::MAX;

impl Map {
    fn master(&self, slot: u16) -> Option<&Arc<Member>> {
        self.masters.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    fn find(&self, address: &Address) -> Option<&Arc<Member>> {
        self.masters.iter().find(|member| member.address == *address)
    }

    fn has(&self, member: &Arc<Member>) -> bool {
        self.masters.iter().any(|other| Arc::ptr_eq(other, member))
    }
}

/// One node: a pool for callers, and a connection for the worker, both made when first needed. A
/// connection that listens is its thread's.
pub(crate) struct Member {
    address: Address,
    info: ConnectionInfo,
    settings: Arc<ClusterSettings>,
    clock: Arc<dyn Clock>,
    links: OnceLock<Links>,
    /// What connections that listen have in common. Who listens to a node may need no pool there.
    ear: OnceLock<Manager>,
    /// Whether it is listened to.
    heard: AtomicBool,
}

struct Links {
    callers: Arc<Transport>,
    worker: Node,
}

impl Member {
    fn links(&self) -> &Links {
        self.links.get_or_init(|| {
            let ClusterSettings { pool, connect_timeout, command_timeout } = &*self.settings;
            let connector = connector();
            let one = PoolSettings { max_size: 1, min_idle: 0, max_idle: None, ..pool.clone() };
            let timeout = (*connect_timeout).max(*command_timeout);
            let settings = NodeSettings { pool: one, timeout, probation: None };
            let worker =
                Node::with_connector(self.info.clone(), &self.clock, &settings, &connector);
            let callers = Transport::new(
                Source::Fixed(self.info.clone()),
                Arc::clone(&self.clock),
                pool,
                *connect_timeout,
                *command_timeout,
                connector,
            );
            Links { callers: Arc::new(callers), worker }
        })
    }

    /// Its address, without user information.
    pub(crate) fn shown(&self) -> String {
        self.address.to_string()
    }

    fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let ear = self.ear.get_or_init(|| {
            let ClusterSettings { connect_timeout, command_timeout, .. } = *self.settings;
            let (source, clock) = (Source::Fixed(self.info.clone()), Arc::clone(&self.clock));
            Manager::new(source, clock, Arc::default(), connect_timeout, command_timeout)
        });
        ear.subscribe(channel)
    }

    /// The way of callers to it.
    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.links().callers
    }

    /// No connection to it is used any longer, also by who listens there.
    fn retire(&self) {
        if let Some(links) = self.links.get() {
            links.callers.retire();
            links.worker.distrust();
        }
        if let Some(ear) = self.ear.get() {
            ear.move_on();
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may have a password.
        f.debug_struct("Member").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Ends the search for the slots, whatever becomes of who searches.
struct Flight<'a>(&'a Cluster);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut map = self.0.map.lock();
        map.flight = false;
        map.rested = Some(self.0.clock.now().after(REST));
        self.0.asked.notify_all();
    }
}

/// How a redirection that is for one command alone is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    Follow,
    Wait,
}

impl Cluster {
    /// The template says how to speak to each node; its own address is that of a seed.
    pub(crate) fn new(
        seeds: Vec<Address>,
        template: ConnectionInfo,
        settings: ClusterSettings,
        clock: Arc<dyn Clock>,
    ) -> Cluster {
        Cluster {
            seeds,
            template,
            settings: Arc::new(settings),
            clock,
            map: Mutex::default(),
            asked: Condvar::new(),
            changes: AtomicU64::new(0),
            process: std::process::id(),
        }
    }

    /// Makes sure that some node tells where the slots are.
    pub(crate) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        let seen = self.map.lock().version;
        self.ask(seen, deadline)
    }

    /// Does something at the node that has a slot, and follows where it is sent from there. What is
    /// done must be such as the engine may repeat where it failed without an answer.
    pub(crate) fn follow<T>(
        &self,
        slot: u16,
        aside: Aside,
        deadline: Moment,
        mut step: impl FnMut(&Arc<Transport>, bool) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut hops, mut pause) = (0, SHORTEST_PAUSE);
        let mut once: Option<Arc<Member>> = None;
        let mut why = None;
        // Time that ran out in a later round did so because of what the earlier ones met.
        let end = |failure, why: Option<&str>| match (failure, why) {
            (Failure::NotSent(Hindrance::Overdue), Some(why)) => adrift(why),
            (failure, _) => failure,
        };
        loop {
            let asking = once.is_some();
            let member = match once.take() {
                Some(member) => member,
                None => self.master_of(slot, deadline).map_err(|failure| end(failure, why))?,
            };
            let failure = match step(member.transport(), asking) {
                Err(failure) => failure,
                done => return done,
            };
            hops += 1;
            let redirect = Redirect::of(&failure, &member.address);
            let reason = match redirect {
                Some(redirect) if redirect.slot != slot => return Err(scattered()),
                Some(Redirect { to, once: false, .. }) => {
                    self.note(slot, &to);
                    if hops < HOPS {
                        continue;
                    }
                    "the nodes of the cluster do not agree on who has its slot"
                }
                Some(Redirect { to, .. }) if aside == Aside::Follow && hops < HOPS => {
                    once = Some(self.member_at(&to));
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
            if self.clock.now().after(pause) >= deadline {
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
        let seen = self.suspect(member);
        matches!(failure, Failure::NotSent(_))
            && self.ask(seen, deadline).is_ok()
            && self.map.lock().master(slot).is_some_and(|now| now.address != member.address)
    }

    /// Many commands at once, each to the node that has its slot, on the worker's connections. One
    /// node that is silent keeps the others' answers waiting once, and then no longer.
    pub(crate) fn call_all(
        &self,
        count: usize,
        slot_of: impl Fn(usize) -> u16,
        call_of: impl Fn(usize) -> Call,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut outcomes: Vec<Result<Reply, Failure>> = Vec::with_capacity(count);
        outcomes.resize_with(count, || Err(Failure::NotSent(Hindrance::Overdue)));
        let mut open: Vec<(usize, Option<Arc<Member>>)> =
            (0..count).map(|number| (number, None)).collect();
        for _ in 0..HOPS {
            if open.is_empty() || self.clock.now() >= deadline {
                break;
            }
            let mut groups: Vec<Group> = Vec::new();
            for (number, once) in open.drain(..) {
                let asking = once.is_some();
                match once.map_or_else(|| self.master_of(slot_of(number), deadline), Ok) {
                    Ok(member) => {
                        Group::of(&mut groups, member).add(number, call_of(number), asking)
                    }
                    Err(failure) => outcomes[number] = Err(failure),
                }
            }
            let questions: Vec<Question<'_>> = groups
                .iter()
                .map(|group| Question { node: &group.member.links().worker, calls: &group.calls })
                .collect();
            let deliveries = fan::ask(&questions, Lane::Worker, 1, deadline, &*self.clock);
            for (group, delivery) in groups.iter().zip(deliveries) {
                for (number, outcome) in group.numbers.iter().zip(delivery.outcomes) {
                    let Some(number) = *number else { continue };
                    if let Err(failure) = &outcome {
                        open.extend(
                            self.elsewhere(slot_of(number), &group.member, failure)
                                .map(|once| (number, once)),
                        );
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

    /// Whether a failure is to be tried again elsewhere: where its slot is now, or where it is sent for
    /// this once.
    #[expect(clippy::option_option, reason = "the inner one is whom to ask instead of the master")]
    fn elsewhere(
        &self,
        slot: u16,
        member: &Member,
        failure: &Failure,
    ) -> Option<Option<Arc<Member>>> {
        match Redirect::of(failure, &member.address) {
            Some(redirect) if redirect.slot != slot => None,
            Some(Redirect { to, once: true, .. }) => Some(Some(self.member_at(&to))),
            Some(Redirect { to, .. }) => {
                self.note(slot, &to);
                Some(None)
            }
            None => {
                if is_doubtful(failure) {
                    self.suspect(member);
                }
                None
            }
        }
    }

    /// Does something at any node, the next one where that could not. The first is who has a slot, if
    /// one is named.
    pub(crate) fn anywhere<T>(
        &self,
        slot: Option<u16>,
        deadline: Moment,
        step: impl Fn(&Arc<Transport>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut masters = self.masters(deadline)?;
        if let Some(slot) = slot {
            let home = self.map.lock().master(slot).map(Arc::clone);
            masters
                .sort_by_key(|member| home.as_ref().is_none_or(|home| !Arc::ptr_eq(home, member)));
        }
        let mut outcome = Err(nowhere());
        for member in masters {
            outcome = step(member.transport());
            match &outcome {
                Err(failure) if is_doubtful(failure) && self.clock.now() < deadline => {
                    self.suspect(&member);
                }
                _ => break,
            }
        }
        outcome
    }

    /// The present moment on the clock of all connections.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Whom to listen to. Where nobody is known yet, the nodes are asked.
    pub(crate) fn audible(&self) -> Result<Vec<Arc<Member>>, Failure> {
        let known = self.map.lock().masters.clone();
        if known.is_empty() { self.masters(self.patience()) } else { Ok(known) }
    }

    /// Differs from before whenever that may, or who [has the word](Self::has_word).
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// A node is listened to from now on, or no longer.
    pub(crate) fn set_heard(&self, member: &Member, heard: bool) {
        if member.heard.swap(heard, Ordering::AcqRel) != heard {
            self.change();
        }
    }

    /// Whether a node is the one to listen to for what is published about a slot.
    pub(crate) fn has_word(&self, slot: u16, member: &Arc<Member>) -> bool {
        let map = self.map.lock();
        let home = map.master(slot).filter(|home| home.is_heard());
        let word = home.or_else(|| map.masters.iter().find(|member| member.is_heard()));
        word.is_some_and(|word| Arc::ptr_eq(word, member))
    }

    /// The slots that a node has.
    pub(crate) fn slots_of(&self, member: &Arc<Member>) -> Vec<RangeInclusive<u16>> {
        let map = self.map.lock();
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for slot in (0..SLOTS)
            .filter(|&slot| map.master(slot).is_some_and(|master| Arc::ptr_eq(master, member)))
        {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        ranges
    }

    /// Makes a connection that listens to a channel at one node, on the caller's thread. Where that
    /// fails, the nodes are asked whether another has taken its place.
    pub(crate) fn subscribe(
        &self,
        member: &Arc<Member>,
        channel: &[u8],
    ) -> Result<Subscription, Failure> {
        if std::process::id() != self.process {
            return Err(Failure::NotSent(Hindrance::Forked));
        }
        member.subscribe(channel).inspect_err(|_| {
            // Else it has gone, and its thread is about to.
            if self.map.lock().has(member) {
                let seen = self.suspect(member);
                let _ = self.ask(seen, self.patience());
            }
        })
    }

    /// For how long who listens waits for what nodes tell of each other.
    fn patience(&self) -> Moment {
        self.clock.now().after(self.settings.command_timeout)
    }

    /// No connection to the node of a slot is used any longer.
    pub(crate) fn distrust(&self, slot: u16) {
        let member = self.map.lock().master(slot).map(Arc::clone);
        if let Some(links) = member.as_ref().and_then(|member| member.links.get()) {
            links.worker.distrust();
        }
    }

    /// All masters, those that are not known to fail first.
    fn masters(&self, deadline: Moment) -> Result<Vec<Arc<Member>>, Failure> {
        let mut map = self.map.lock();
        if map.masters.is_empty() || self.is_due(&map) {
            let seen = map.version;
            drop(map);
            let asked = self.ask(seen, deadline);
            map = self.map.lock();
            if map.masters.is_empty() {
                return Err(asked.err().unwrap_or_else(nowhere));
            }
        }
        let mut masters = map.masters.clone();
        masters.sort_by_key(|member| Some(&member.address) == map.suspect.as_ref());
        Ok(masters)
    }

    /// Who has a slot, as far as that is known. Where it is time to, the nodes are asked before.
    fn master_of(&self, slot: u16, deadline: Moment) -> Result<Arc<Member>, Failure> {
        let map = self.map.lock();
        let seen = map.version;
        if let Some(member) = map.master(slot)
            && !self.is_due(&map)
        {
            return Ok(Arc::clone(member));
        }
        drop(map);
        let asked = self.ask(seen, deadline);
        match self.map.lock().master(slot) {
            Some(member) => Ok(Arc::clone(member)),
            None => Err(asked.err().unwrap_or_else(nowhere)),
        }
    }

    /// Whether whoever comes is to have the nodes asked.
    fn is_due(&self, map: &Map) -> bool {
        map.due && !map.flight && !self.rests(map)
    }

    fn rests(&self, map: &Map) -> bool {
        map.rested.is_some_and(|rested| self.clock.now() < rested)
    }

    /// Has the nodes asked where the slots are, unless that was done since the map was seen, or a
    /// moment ago. It takes half of the time until the deadline at most, and who finds another asking
    /// waits for him.
    fn ask(&self, seen: u64, deadline: Moment) -> Result<(), Failure> {
        let mut map = self.map.lock();
        while map.flight && map.version == seen {
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                return Err(Failure::NotSent(Hindrance::Overdue));
            }
            self.asked.wait_for(&mut map, left);
        }
        if map.version != seen || self.rests(&map) {
            return map.trouble.clone().map_or(Ok(()), Err);
        }
        map.flight = true;
        let _flight = Flight(self);
        let mut asked = map.masters.clone();
        // Each time another first: one of them may be cut off from the rest.
        let turn = usize::try_from(map.version).unwrap_or(0) % asked.len().max(1);
        asked.rotate_left(turn);
        asked.sort_by_key(|member| Some(&member.address) == map.suspect.as_ref());
        let seeds = self.seeds.iter().filter(|seed| map.find(seed).is_none());
        let spare: Vec<Arc<Member>> = seeds
            .map(|seed| {
                let before = map.spare.iter().find(|member| member.address == *seed);
                before.map_or_else(|| self.member(seed), Arc::clone)
            })
            .collect();
        asked.extend_from_slice(&spare);
        drop(map);
        let now = self.clock.now();
        let told = self.ask_all(&asked, now.after(deadline.since(now) / 2));
        let mut map = self.map.lock();
        map.version += 1;
        match told {
            Ok(ranges) => {
                let gone = self.draw(&mut map, &asked, &ranges);
                let spare = std::mem::take(&mut map.spare);
                drop(map);
                self.change();
                // Their connections end without the lock.
                drop(spare);
                gone.iter().for_each(|member| member.retire());
                Ok(())
            }
            Err(failure) => {
                (map.due, map.spare) = (true, spare);
                map.trouble = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Asks one after the other until one tells.
    fn ask_all(&self, asked: &[Arc<Member>], deadline: Moment) -> Result<Vec<Range>, Failure> {
        let mut last = nowhere();
        for (number, member) in asked.iter().enumerate() {
            let now = self.clock.now();
            let share = (asked.len() - number).min(SHARE);
            let left = deadline.since(now) / u32::try_from(share).unwrap_or(1);
            let slots = Call::plain(&[b"CLUSTER", b"SLOTS"]);
            let outcome = member.transport().call(&slots, now.after(left));
            let told = outcome.map(|reply| ranges(&reply.value, &member.address));
            match told {
                // One that has just been made knows of nobody.
                Ok(Some(ranges)) if !ranges.is_empty() => return Ok(ranges),
                Ok(_) => {}
                // Whoever is refused by one is refused by all.
                Err(failure) if failure.is_denied_here() => return Err(failure),
                Err(failure) if failure.is_no_cluster() => {
                    let value = endpoint::shown(&member.info);
                    let allowed = "a node of a Redis Cluster; this server is none";
                    let field = "cluster";
                    last = Failure::NotSent(Hindrance::Impossible { field, value, allowed });
                }
                Err(failure) => last = failure,
            }
        }
        Err(match last {
            // Nothing was done that anybody would have to fear for.
            Failure::Unknown(error) => Failure::NotSent(Hindrance::Connect(error)),
            other => other,
        })
    }

    /// Draws the map anew. Answers who is on it no longer.
    fn draw(&self, map: &mut Map, asked: &[Arc<Member>], ranges: &[Range]) -> Vec<Arc<Member>> {
        let mut masters: Vec<Arc<Member>> = Vec::new();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        for Range { first, last, master } in ranges {
            let found = masters.iter().position(|member| member.address == *master);
            let place = found.unwrap_or_else(|| {
                let known = map
                    .find(master)
                    .or_else(|| asked.iter().find(|member| member.address == *master));
                masters.push(known.map_or_else(|| self.member(master), Arc::clone));
                masters.len() - 1
            });
            let place = u16::try_from(place).unwrap_or(NOBODY);
            slots[usize::from(*first)..=usize::from(*last)].fill(place);
        }
        let before = std::mem::replace(&mut map.masters, masters);
        (map.slots, map.due, map.trouble) = (slots, false, None);
        before.into_iter().filter(|member| map.find(&member.address).is_none()).collect()
    }

    /// Notes that a slot is elsewhere, and likely not alone.
    fn note(&self, slot: u16, to: &Address) {
        let mut map = self.map.lock();
        map.due = true;
        let place = self.place(&mut map, to);
        if let Some(entry) = map.slots.get_mut(usize::from(slot)) {
            *entry = u16::try_from(place).unwrap_or(NOBODY);
        }
        self.change();
    }

    fn member_at(&self, address: &Address) -> Arc<Member> {
        let mut map = self.map.lock();
        let place = self.place(&mut map, address);
        Arc::clone(&map.masters[place])
    }

    /// The place of a node on the map, to which it is added where it was not known.
    fn place(&self, map: &mut Map, address: &Address) -> usize {
        let found = map.masters.iter().position(|member| member.address == *address);
        found.unwrap_or_else(|| {
            map.masters.push(self.member(address));
            self.change();
            map.masters.len() - 1
        })
    }

    /// A node failed. Answers the version of the map that led there.
    fn suspect(&self, member: &Member) -> u64 {
        let mut map = self.map.lock();
        map.due = true;
        map.suspect = Some(member.address.clone());
        map.version
    }

    fn member(&self, address: &Address) -> Arc<Member> {
        Arc::new(Member {
            address: address.clone(),
            info: address.info(&self.template),
            settings: Arc::clone(&self.settings),
            clock: Arc::clone(&self.clock),
            links: OnceLock::new(),
            ear: OnceLock::new(),
            heard: AtomicBool::new(false),
        })
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The template may have a password.
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

/// What goes to one node together.
struct Group {
    member: Arc<Member>,
    calls: Vec<Call>,
    /// Whose answer each of them brings, if anybody's.
    numbers: Vec<Option<usize>>,
}

impl Group {
    fn of(groups: &mut Vec<Group>, member: Arc<Member>) -> &mut Group {
        let place = groups.iter().position(|group| Arc::ptr_eq(&group.member, &member));
        let place = place.unwrap_or_else(|| {
            groups.push(Group { member, calls: Vec::new(), numbers: Vec::new() });
            groups.len() - 1
        });
        &mut groups[place]
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

fn adrift(why: &str) -> Failure {
    Failure::NotSent(Hindrance::Adrift(why.to_owned()))
}

fn nowhere() -> Failure {
    adrift("no node of the cluster has its slot")
}

/// A transaction names a key of another slot.
fn scattered() -> Failure {
    let text = "a key is not in the slot of the lock";
    Failure::Refused(redis::make_extension_error("CROSSSLOT".into(), Some(text.into())))
}

/// Whether it may mean that a node is gone, or is no master any longer.
fn is_doubtful(failure: &Failure) -> bool {
    match failure {
        Failure::NotSent(Hindrance::Connect(_) | Hindrance::Closed(_)) | Failure::Unknown(_) => {
            true
        }
        Failure::NotSent(_) => false,
        Failure::Refused(_) => {
            matches!(failure.code(), Some("CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING"))
        }
    }
}

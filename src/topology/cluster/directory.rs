//! Which node of a cluster has a slot.
//!
//! | the map is | meaning | goes to |
//! | --- | --- | --- |
//! | empty | no node was asked yet | asked for |
//! | asked for | one thread asks the nodes, one after the other; a caller that knows no better waits for it | good; due, if none told |
//! | good | followed | due, at any redirection and any sign that a node is gone |
//! | due | followed all the same; the next call has it asked for, but not within a [`REFRESH_PAUSE`] of the last time | asked for |
//!
//! A call whose slot is at a node of which nothing bad is known does not wait for the others, of which
//! each may be dead and take a time-out: a thread of its own asks. A call asks itself, or waits, where
//! it has nowhere to go: its own node failed, or no node is known to have its slot.
//!
//! All masters on the map are listened to. A master that is heard has the word on its own slots; on those
//! of one that is not, the first has it that is heard: the nodes pass on to each other what is published.

use std::fmt;
use std::time::Duration;

use crate::base::sync::{self, Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::base::thread::Role;
use crate::base::time::{Clock, Moment};
use crate::topology::cluster::address::{Address, SlotRange, ranges};
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::topology::cluster::slot_map::SlotMap;
use crate::topology::multi_node::node::NodeSettings;
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::fork_guard;
use crate::wire::script::Call;
use crate::wire::subscription::Subscription;
use crate::wire::transport::Lane;

/// The nodes are not asked again for where the slots are within this time.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// A node that is asked for the slots has this share of the time at most.
const SHARE: usize = 3;

/// The nodes of a cluster, and who of them has which slots.
pub(crate) struct Directory {
    /// Asked too, where they are not on the map.
    seeds: Vec<Arc<ClusterNode>>,
    /// How to speak to a node, wherever it is.
    template: Endpoint,
    settings: Arc<NodeSettings>,
    clock: Arc<dyn Clock>,
    map: Mutex<SlotMap>,
    asked: Condvar,
    /// Grows whenever another may have the word on a slot.
    changes: AtomicU64,
}

/// Ends the search for the slots, whatever becomes of who searches.
struct RefreshGuard<'a>(&'a Directory);

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        let mut map = self.0.map.lock();
        map.refreshing = false;
        map.refresh_allowed_at = Some(self.0.clock.now().after(REFRESH_PAUSE));
        self.0.asked.notify_all();
    }
}

impl Directory {
    /// The template says how to speak to each node; its own address is that of a seed.
    pub(crate) fn new(
        seeds: Vec<Address>,
        template: Endpoint,
        settings: NodeSettings,
        clock: Arc<dyn Clock>,
    ) -> Directory {
        let mut directory = Directory {
            seeds: Vec::new(),
            template,
            settings: Arc::new(settings),
            clock,
            map: Mutex::default(),
            asked: Condvar::new(),
            changes: AtomicU64::new(0),
        };
        directory.seeds = seeds.iter().map(|seed| directory.member(seed)).collect();
        directory
    }

    /// The present moment on the clock of all connections.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The masters that are known.
    pub(crate) fn known(&self) -> Vec<Arc<ClusterNode>> {
        self.map.lock().masters.clone()
    }

    /// Asks the nodes who the masters are, unless that is known.
    pub(crate) fn find(self: &Arc<Self>) -> Result<(), Failure> {
        self.masters(self.query_deadline()).map(drop)
    }

    /// Changes whenever [`known`](Self::known) or [`is_listened_to_for`](Self::is_listened_to_for) may return something else.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// A node is listened to from now on, or no longer.
    pub(crate) fn set_listening(&self, member: &ClusterNode, listening: bool) {
        if member.set_listening(listening) {
            self.change();
        }
    }

    /// Whether a node is the one to listen to for what is published about a slot.
    pub(crate) fn is_listened_to_for(&self, slot: u16, member: &Arc<ClusterNode>) -> bool {
        self.map
            .lock()
            .listening_master(slot)
            .is_some_and(|listening| Arc::ptr_eq(listening, member))
    }

    /// The slots that a node has, in ascending order.
    pub(crate) fn slots_of(&self, member: &Arc<ClusterNode>) -> Vec<u16> {
        self.map.lock().slots_of(member)
    }

    /// Makes a connection that listens to a channel at one node, on the caller's thread. Where that
    /// fails, the nodes are asked whether another has taken its place. A node that refuses the user keeps it.
    pub(crate) fn subscribe(
        &self,
        member: &Arc<ClusterNode>,
        channel: &[u8],
    ) -> Result<Subscription, Failure> {
        fork_guard::check()?;
        member.subscribe(channel).inspect_err(|failure| {
            // A member that is on the map no longer has gone, and its thread is about to.
            if failure.is_transient() && self.map.lock().has(member) {
                let seen = self.suspect(member);
                let _ = self.ask(seen, self.query_deadline());
            }
        })
    }

    /// For how long who listens waits for what nodes tell of each other.
    fn query_deadline(&self) -> Moment {
        self.clock.now().after(self.settings.timeouts.command)
    }

    /// All masters, those that are not known to fail first.
    pub(super) fn masters(
        self: &Arc<Self>,
        deadline: Moment,
    ) -> Result<Vec<Arc<ClusterNode>>, Failure> {
        let mut map = self.map.lock();
        if map.masters.is_empty() {
            let seen = map.version;
            drop(map);
            let asked = self.ask(seen, deadline);
            map = self.map.lock();
            if map.masters.is_empty() {
                return Err(asked.err().unwrap_or_else(no_master));
            }
        }
        let mut masters = map.masters.clone();
        masters.sort_by_key(|member| Some(member.address()) == map.suspect.as_ref());
        self.refresh(map);
        Ok(masters)
    }

    /// Who has a slot, as far as that is known. No node is asked.
    pub(super) fn known_master(&self, slot: u16) -> Option<Arc<ClusterNode>> {
        self.map.lock().master(slot).map(Arc::clone)
    }

    /// Who has a slot, as far as that is known. Where nobody is known to, the nodes are asked before. Where the
    /// node has failed, a caller has them asked too; the worker must not wait because of one slot.
    pub(super) fn master_of(
        self: &Arc<Self>,
        slot: u16,
        lane: Lane,
        deadline: Moment,
    ) -> Result<Arc<ClusterNode>, Failure> {
        let map = self.map.lock();
        let seen = map.version;
        if let Some(member) = map.master(slot).map(Arc::clone) {
            let failed = map.suspect.as_ref() == Some(member.address());
            if lane == Lane::Worker || !failed || !self.is_due(&map) {
                self.refresh(map);
                return Ok(member);
            }
        }
        drop(map);
        let asked = self.ask(seen, deadline);
        self.known_master(slot).ok_or_else(|| asked.err().unwrap_or_else(no_master))
    }

    /// Has a thread ask the nodes where the slots are, if that is due. Nobody waits for it.
    fn refresh(self: &Arc<Self>, mut map: MutexGuard<'_, SlotMap>) {
        if !self.is_due(&map) {
            return;
        }
        map.refreshing = true;
        drop(map);
        let (directory, deadline) = (Arc::clone(self), self.query_deadline());
        let body = move || _ = directory.refresh_now(deadline);
        if let Err(error) = sync::spawn(&self.settings.threads.name(Role::SlotRefresh), body) {
            // The calls whose nodes have failed ask themselves.
            drop(RefreshGuard(self));
            log!(error, "no thread to ask where the slots are could be started: {error}");
        }
    }

    /// Whether the next call is to have the nodes asked.
    fn is_due(&self, map: &SlotMap) -> bool {
        map.due && !map.refreshing && !self.is_in_refresh_pause(map)
    }

    fn is_in_refresh_pause(&self, map: &SlotMap) -> bool {
        map.refresh_allowed_at
            .is_some_and(|refresh_allowed_at| self.clock.now() < refresh_allowed_at)
    }

    /// Has the nodes asked where the slots are, unless that was done since the map was seen, or a
    /// moment ago. It takes half of the time until the deadline at most, and who finds another asking
    /// waits for him. A failure is shared with those who have about as much time.
    pub(super) fn ask(&self, mut seen: u64, deadline: Moment) -> Result<(), Failure> {
        let mut map = self.map.lock();
        loop {
            while map.refreshing && map.version == seen {
                let left = deadline.since(self.clock.now());
                if left.is_zero() {
                    return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
                }
                self.asked.wait_for(&mut map, left);
            }
            if map.version == seen && !self.is_in_refresh_pause(&map) {
                break;
            }
            let Some(last_error) = &map.last_error else { return Ok(()) };
            // It says little to who has much more time than who met with it.
            if deadline.since(self.clock.now()) / 2 <= map.refresh_time * 2 {
                return Err(last_error.clone());
            }
            if !map.refreshing {
                break;
            }
            seen = map.version;
        }
        map.refreshing = true;
        drop(map);
        self.refresh_now(deadline)
    }

    /// Asks the nodes where the slots are, in half of the time until the deadline at most. The flight has
    /// begun.
    fn refresh_now(&self, deadline: Moment) -> Result<(), Failure> {
        let _flight = RefreshGuard(self);
        let map = self.map.lock();
        let mut asked = map.masters.clone();
        // Each time another first: one of them may be cut off from the rest.
        let turn = usize::try_from(map.version).unwrap_or(0) % asked.len().max(1);
        asked.rotate_left(turn);
        asked.sort_by_key(|member| Some(member.address()) == map.suspect.as_ref());
        asked.extend(self.seeds.iter().filter(|seed| map.find(seed.address()).is_none()).cloned());
        drop(map);
        let now = self.clock.now();
        let tried = deadline.since(now) / 2;
        let told = self.ask_all(&asked, now.after(tried));
        let mut map = self.map.lock();
        map.version += 1;
        match told {
            Ok(ranges) => {
                let mut gone = map.rebuild(&asked, &ranges, |address| self.member(address));
                gone.extend(asked.into_iter().filter(|member| !map.has(member)));
                drop(map);
                self.change();
                // Their connections end without the lock.
                gone.iter().for_each(|member| member.retire());
                Ok(())
            }
            Err(failure) => {
                (map.due, map.refresh_time) = (true, tried);
                map.last_error = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Asks one after the other until one tells.
    fn ask_all(
        &self,
        asked: &[Arc<ClusterNode>],
        deadline: Moment,
    ) -> Result<Vec<SlotRange>, Failure> {
        let mut last = no_master();
        for (number, member) in asked.iter().enumerate() {
            let now = self.clock.now();
            let share = (asked.len() - number).min(SHARE);
            let left = deadline.since(now) / u32::try_from(share).unwrap_or(1);
            let slots = Call::plain(&[b"CLUSTER", b"SLOTS"]);
            let outcome = member.transport().and_then(|node| node.call(&slots, now.after(left)));
            let told = outcome.map(|reply| ranges(&reply.value, member.address()));
            match told {
                // One that has just been made knows of nobody.
                Ok(Some(ranges)) if !ranges.is_empty() => return Ok(ranges),
                Ok(_) => {}
                // Whoever is refused by one is refused by all.
                Err(failure) if failure.is_denied_here() => return Err(failure),
                Err(failure) if failure.is_no_cluster() => {
                    let address = endpoint::address(member.info());
                    let wrong = format!("{address} is no node of a Redis Cluster");
                    let expected = "a node of one, or a client without .cluster(…)";
                    let field = "cluster";
                    last =
                        Failure::NotSent(NotSentReason::InvalidSetting { field, wrong, expected });
                }
                Err(failure) => last = failure,
            }
        }
        Err(match last {
            // Nothing was done that anybody would have to fear for.
            Failure::Unknown(error) => Failure::NotSent(NotSentReason::Connect(error)),
            other => other,
        })
    }

    /// Notes that a slot is elsewhere, and likely not alone.
    pub(super) fn note(&self, slot: u16, to: &Address) {
        let mut map = self.map.lock();
        let place = self.place(&mut map, to);
        map.note(slot, place);
        self.change();
    }

    pub(super) fn member_at(&self, address: &Address) -> Arc<ClusterNode> {
        let mut map = self.map.lock();
        let place = self.place(&mut map, address);
        Arc::clone(&map.masters[place])
    }

    /// The place of a node on the map, to which it is added where it was not known.
    fn place(&self, map: &mut SlotMap, address: &Address) -> usize {
        let found = map.masters.iter().position(|member| *member.address() == *address);
        found.unwrap_or_else(|| {
            map.masters.push(self.member(address));
            self.change();
            map.masters.len() - 1
        })
    }

    /// A node failed. Answers the version of the map that led there.
    pub(super) fn suspect(&self, member: &ClusterNode) -> u64 {
        let mut map = self.map.lock();
        map.due = true;
        map.suspect = Some(member.address().clone());
        map.version
    }

    /// Puts nodes on the map by hand, each with a slot. Returns the first.
    #[cfg(test)]
    pub(super) fn set_nodes(&self, nodes: &[(u16, &Address)]) -> Arc<ClusterNode> {
        let range = |&(slot, node): &(u16, &Address)| SlotRange {
            first: slot,
            last: slot,
            master: node.clone(),
        };
        let ranges: Vec<SlotRange> = nodes.iter().map(range).collect();
        let mut map = self.map.lock();
        map.rebuild(&[], &ranges, |address| self.member(address));
        Arc::clone(&map.masters[0])
    }

    fn member(&self, address: &Address) -> Arc<ClusterNode> {
        let info = address.info(&self.template);
        Arc::new(ClusterNode::new(address.clone(), info, &self.settings, &self.clock))
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The template may have a password.
        f.debug_struct("Directory").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

pub(super) fn unroutable(why: &str) -> Failure {
    Failure::NotSent(NotSentReason::Unroutable(why.to_owned()))
}

pub(super) fn no_master() -> Failure {
    unroutable("no node of the cluster has its slot")
}

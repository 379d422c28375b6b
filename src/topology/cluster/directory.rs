//! Which node of a cluster has a hash slot.
//!
//! | the map is | meaning | becomes |
//! | --- | --- | --- |
//! | empty | no refresh has succeeded yet | refreshing, at the first call |
//! | refreshing | one thread asks the nodes, one after the other; a caller without a usable node waits for it | good; due, if no node returned the hash slots |
//! | good | calls follow it | due, at any redirection and any sign that a node is gone |
//! | due | calls still follow it; the next one starts a refresh, but not within a [`REFRESH_PAUSE`] of the last | refreshing |
//!
//! A call whose node works must not wait for a refresh: each of the other nodes may be dead and
//! take a time-out. So a separate thread refreshes the map. A call refreshes the map itself, or
//! waits, only where it has no node to go to: its own node failed, or no node is known to have its
//! hash slot.
//!
//! The client receives messages from all masters on the map. A connected master is the one that
//! counts for its own hash slots. For the hash slots of an unreachable master, the first connected master
//! counts, because nodes forward published messages to each other.

use std::fmt;
use std::time::Duration;

use crate::base::sync::contended::{self, Condvar, Mutex, MutexGuard};
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::thread::Role;
use crate::base::time::{Clock, Moment};
use crate::topology::cluster::address::{Address, SlotRange, ranges};
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::topology::cluster::hash_slot_map::HashSlotMap;
use crate::topology::multi_node::node::NodeSettings;
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::fork_guard;
use crate::wire::script::Call;
use crate::wire::subscription::Subscription;
use crate::wire::transport::{Lane, Transport};

/// The shortest time between two refreshes.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// In a refresh, a node may use this part of the remaining time, so that one dead node leaves time
/// for two others.
const PARTS: usize = 3;

/// The nodes of a cluster, and the hash slots of each.
pub(crate) struct Directory {
    /// The nodes that the user named. A refresh asks them too, after those on the map.
    seeds: Vec<Arc<ClusterNode>>,
    /// The user, the password and the TLS settings for all nodes.
    template: Endpoint,
    settings: Arc<NodeSettings>,
    clock: Arc<dyn Clock>,
    map: Mutex<HashSlotMap>,
    asked: Condvar,
    /// Grows whenever another master may be the one to listen to for a hash slot.
    changes: AtomicU64,
}

/// Ends a refresh when it is dropped, even if the thread panics. Otherwise no other thread would
/// ever refresh the map, and callers would wait for the result until their deadlines.
struct RefreshGuard<'a>(&'a Directory);

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        let mut map = self.0.map.lock();
        map.refreshing = false;
        // Counted from the end, and also after a failure: every call of every thread reports that a
        // dead cluster is due for a refresh, and without a pause each would ask all nodes.
        map.refresh_allowed_at = Some(self.0.clock.now().after(REFRESH_PAUSE));
        self.0.asked.notify_all();
    }
}

impl Directory {
    /// The template has the user, the password and the TLS settings of all nodes, and the address
    /// of a seed.
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
        let seed = |seed: &Address| directory.member_of(seed, seed.given(&directory.template));
        directory.seeds = seeds.iter().map(seed).collect();
        directory
    }

    /// The present moment on the clock of all connections.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The masters on the map.
    pub(crate) fn known(&self) -> Vec<Arc<ClusterNode>> {
        self.map.lock().masters.clone()
    }

    /// Makes sure that the map has masters.
    pub(crate) fn find(self: &Arc<Self>) -> Result<(), Failure> {
        self.masters(self.query_deadline()).map(drop)
    }

    /// Changes whenever [`known`](Self::known) or [`is_listened_to_for`](Self::is_listened_to_for)
    /// may return something else.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes whether a thread receives messages from a node.
    pub(crate) fn set_listening(&self, member: &ClusterNode, listening: bool) {
        if member.set_listening(listening) {
            self.change();
        }
    }

    /// Whether a node is the one whose messages about a hash slot count.
    pub(crate) fn is_listened_to_for(&self, slot: u16, member: &Arc<ClusterNode>) -> bool {
        self.map
            .lock()
            .listening_master(slot)
            .is_some_and(|listening| Arc::ptr_eq(listening, member))
    }

    /// Whether a node is the master of a hash slot.
    pub(crate) fn has_slot(&self, slot: u16, member: &Arc<ClusterNode>) -> bool {
        self.map.lock().master(slot).is_some_and(|master| Arc::ptr_eq(master, member))
    }

    /// The hash slots that a node has, in ascending order.
    pub(crate) fn slots_of(&self, member: &Arc<ClusterNode>) -> Vec<u16> {
        self.map.lock().slots_of(member)
    }

    /// Connects to a node and subscribes to a channel, on the caller's thread. If that fails, the
    /// map is refreshed, since another node may have taken its place. A node that refuses the user
    /// keeps its place.
    pub(crate) fn subscribe(
        &self,
        member: &Arc<ClusterNode>,
        channel: &[u8],
    ) -> Result<Subscription, Failure> {
        fork_guard::check()?;
        member.subscribe(channel).inspect_err(|failure| {
            // A node that has left the map says nothing about the map, and its thread is about to
            // end. Otherwise the refresh runs on this thread, which has nothing else to do.
            if failure.is_transient() && self.map.lock().has(member) {
                let seen = self.suspect(member);
                let _ = self.ask(seen, self.query_deadline());
            }
        })
    }

    /// The deadline of a refresh without a caller's deadline.
    fn query_deadline(&self) -> Moment {
        self.clock.now().after(self.settings.timeouts.command)
    }

    /// All masters, with the one that failed last at the end.
    pub(super) fn masters(
        self: &Arc<Self>,
        deadline: Moment,
    ) -> Result<Vec<Arc<ClusterNode>>, Failure> {
        let mut map = self.map.lock();
        if map.masters.is_empty() {
            let seen = map.version;
            drop(map);
            let asked = self.ask(seen, deadline);
            // Not the outcome of the refresh decides, but the map: another thread may have
            // refreshed it, or a redirection may have added a master.
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

    /// The masters to which callers have connections: their locks may be there. Sends no request.
    pub(super) fn nodes_of_callers(&self) -> Vec<Arc<Transport>> {
        // Without the lock of the map, because a node may be about to start its thread.
        let masters = self.map.lock().masters.clone();
        let made = masters.iter().filter_map(|member| member.made_transport());
        made.filter(|node| node.serves_callers()).collect()
    }

    /// The master of a hash slot by the map. No request is sent.
    pub(super) fn known_master(&self, slot: u16) -> Option<Arc<ClusterNode>> {
        self.map.lock().master(slot).map(Arc::clone)
    }

    /// The master of a hash slot. If the map has none, it is refreshed first. It is also refreshed for a
    /// caller whose node failed.
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
            // The worker sends the renewals of all hash slots together. If it waited for a refresh
            // because of one dead node, the leases at all other nodes would expire meanwhile.
            if lane == Lane::Worker || !failed || !self.is_due(&map) {
                self.refresh(map);
                return Ok(member);
            }
        }
        drop(map);
        let asked = self.ask(seen, deadline);
        // A failed refresh leaves the map as it was, and its node may be back by now.
        self.known_master(slot).ok_or_else(|| asked.err().unwrap_or_else(no_master))
    }

    /// Starts a thread that refreshes the map, if that is due. Nobody waits for it.
    fn refresh(self: &Arc<Self>, mut map: MutexGuard<'_, HashSlotMap>) {
        if !self.is_due(&map) {
            return;
        }
        // Set under the same lock as the check, or two threads would be started.
        map.refreshing = true;
        drop(map);
        let (directory, deadline) = (Arc::clone(self), self.query_deadline());
        let body = move || _ = directory.refresh_now(deadline);
        if let Err(error) = self.settings.threads.spawn(Role::SlotRefresh, body) {
            // Takes `refreshing` back. A call whose node fails refreshes the map itself.
            drop(RefreshGuard(self));
            log!(error, "the thread that refreshes the map of slots could not be started: {error}");
        }
    }

    /// Whether the next call must start a refresh.
    fn is_due(&self, map: &HashSlotMap) -> bool {
        map.due && !map.refreshing && !self.is_in_refresh_pause(map)
    }

    fn is_in_refresh_pause(&self, map: &HashSlotMap) -> bool {
        map.refresh_allowed_at
            .is_some_and(|refresh_allowed_at| self.clock.now() < refresh_allowed_at)
    }

    /// Refreshes the map, unless that happened since the version `seen`, or a moment ago. It takes
    /// half of the time until the deadline at most. If another thread is refreshing, this one waits
    /// for it. Threads with about as much time share the failure of a refresh.
    pub(super) fn ask(&self, mut seen: u64, deadline: Moment) -> Result<(), Failure> {
        let mut map = self.map.lock();
        loop {
            while map.refreshing && map.version == seen {
                let left = deadline.since(self.clock.now());
                if left.is_zero() {
                    return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
                }
                map = contended::wait_for(&self.asked, map, left);
            }
            // Nobody refreshed meanwhile, so this thread does. `seen` and not `due` decides: a
            // caller whose node failed a moment ago must not be satisfied by an older refresh.
            if map.version == seen && !self.is_in_refresh_pause(&map) {
                break;
            }
            let Some(last_error) = &map.last_error else { return Ok(()) };
            // A refresh may have failed only because its caller had 10 ms. A thread with much more
            // time asks again. A thread with about as much would only meet the same dead nodes, so
            // that a hundred waiting threads would ask them one after the other.
            if deadline.since(self.clock.now()) / 2 <= map.refresh_time * 2 {
                return Err(last_error.clone());
            }
            if !map.refreshing {
                break;
            }
            // Another refresh is already under way, and its result is the one to wait for.
            seen = map.version;
        }
        map.refreshing = true;
        drop(map);
        self.refresh_now(deadline)
    }

    /// Refreshes the map in half of the time until the deadline at most. The caller has set
    /// `refreshing`.
    fn refresh_now(&self, deadline: Moment) -> Result<(), Failure> {
        let _flight = RefreshGuard(self);
        let map = self.map.lock();
        let mut asked = map.masters.clone();
        // Another node is first each time: one that is cut off from the rest still replies, with
        // the hash slots as they were before it was cut off.
        let turn = usize::try_from(map.version).unwrap_or(0) % asked.len().max(1);
        asked.rotate_left(turn);
        // A stable sort: it moves the suspect to the end and keeps the order of the others.
        asked.sort_by_key(|member| Some(member.address()) == map.suspect.as_ref());
        // The seeds are asked even if the map has masters: after a restart of all nodes with new
        // addresses, only the names that the user gave lead to them.
        let is_known =
            |seed: &Arc<ClusterNode>| asked.iter().any(|known| known.is_at_the_place_of(seed));
        let seeds: Vec<_> = self.seeds.iter().filter(|seed| !is_known(seed)).cloned().collect();
        asked.extend(seeds);
        // No lock during I/O: calls go on by the old map meanwhile.
        drop(map);

        // The other half is for the call that needs the map.
        let now = self.clock.now();
        let tried = deadline.since(now) / 2;
        let outcome = self.ask_all(&asked, now.after(tried));

        let mut map = self.map.lock();
        // After a failure too: it ends the wait of all threads that have seen the version before.
        map.version += 1;
        match outcome {
            Ok(ranges) => {
                let mut gone = map.rebuild(&asked, &ranges, |address| self.member(address));
                // Seeds that are no masters were connected to for this refresh only.
                gone.extend(asked.into_iter().filter(|member| !map.has(member)));
                drop(map);
                // After the map was replaced: a listener that sees the new number must find the new
                // masters.
                self.change();
                // Without the lock, since it closes sockets.
                gone.iter().for_each(|member| member.retire());
                Ok(())
            }
            // The old map stays. It may be wrong, but its nodes redirect; an empty one would stop
            // all calls at a moment when only the nodes that were asked are unreachable.
            Err(failure) => {
                (map.due, map.refresh_time) = (true, tried);
                map.last_error = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Asks one node after the other until one returns the hash slots.
    fn ask_all(
        &self,
        asked: &[Arc<ClusterNode>],
        deadline: Moment,
    ) -> Result<Vec<SlotRange>, Failure> {
        let mut last = no_master();
        for (number, member) in asked.iter().enumerate() {
            let now = self.clock.now();
            let parts = (asked.len() - number).min(PARTS);
            let left = deadline.since(now) / u32::try_from(parts).unwrap_or(1);
            let slots = Call::plain(&[b"CLUSTER", b"SLOTS"]);
            let outcome = member.transport().and_then(|node| node.call(&slots, now.after(left)));
            let outcome = outcome.map(|reply| ranges(&reply.value, member.address()));
            match outcome {
                // A node that has not yet met the others, or was reset, replies with an empty list.
                // It would erase the map.
                Ok(Some(ranges)) if !ranges.is_empty() => return Ok(ranges),
                Ok(_) => {}
                // All nodes have the same users, so the next one would refuse too. Each refused
                // password is noted in the node's log and may count towards a lock-out.
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
            // Only a query got no reply. The caller's own request was not sent, so its outcome is
            // known.
            Failure::Unknown(error) => Failure::NotSent(NotSentReason::Connect(error)),
            other => other,
        })
    }

    /// Notes the master of a hash slot from a redirection. Other hash slots have likely moved too.
    pub(super) fn note(&self, slot: u16, to: &Address) {
        let mut map = self.map.lock();
        let index = self.index_of(&mut map, to);
        map.note(slot, index);
        self.change();
    }

    /// The node at an address, to which an `ASK` leads. Its hash slots do not change.
    pub(super) fn member_at(&self, address: &Address) -> Arc<ClusterNode> {
        let mut map = self.map.lock();
        let index = self.index_of(&mut map, address);
        Arc::clone(&map.masters[index])
    }

    /// The index of a node on the map. A new node is added.
    fn index_of(&self, map: &mut HashSlotMap, address: &Address) -> usize {
        let found = map.masters.iter().position(|member| *member.address() == *address);
        found.unwrap_or_else(|| {
            map.masters.push(self.member(address));
            self.change();
            map.masters.len() - 1
        })
    }

    /// Notes that a node failed. Returns the version of the map, so that the caller can tell a
    /// later refresh from an earlier one.
    pub(super) fn suspect(&self, member: &ClusterNode) -> u64 {
        let mut map = self.map.lock();
        map.due = true;
        map.suspect = Some(member.address().clone());
        map.version
    }

    /// Puts nodes on the map by hand, each with a hash slot. Returns the first.
    #[cfg(test)]
    pub(super) fn set_nodes(&self, nodes: &[(u16, &Address)]) -> Arc<ClusterNode> {
        let range = |&(slot, node): &(u16, &Address)| SlotRange {
            first: slot,
            last: slot,
            master: node.clone(),
        };
        let ranges: Vec<SlotRange> = nodes.iter().map(range).collect();
        let mut map = self.map.lock();
        map.rebuild(&self.seeds, &ranges, |address| self.member(address));
        Arc::clone(&map.masters[0])
    }

    /// A node that announces this address.
    fn member(&self, address: &Address) -> Arc<ClusterNode> {
        self.member_of(address, address.announced(&self.template))
    }

    fn member_of(&self, address: &Address, info: Endpoint) -> Arc<ClusterNode> {
        Arc::new(ClusterNode::new(address.clone(), info, &self.settings, &self.clock))
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the template has the password.
        f.debug_struct("Directory").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

pub(super) fn unroutable(why: &str) -> Failure {
    Failure::NotSent(NotSentReason::Unroutable(why.to_owned()))
}

pub(super) fn no_master() -> Failure {
    unroutable("no node of the cluster has its slot")
}

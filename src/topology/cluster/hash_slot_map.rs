//! The map of a cluster: its masters, and which of them has which hash slots.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::tag::SLOTS;
use crate::base::time::Moment;
use crate::topology::cluster::address::{Address, SlotRange};
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::wire::failure::Failure;

/// The map, and the state of its refresh.
#[derive(Debug, Default)]
pub(super) struct HashSlotMap {
    pub(super) masters: Vec<Arc<ClusterNode>>,
    /// For each hash slot, the index of its master; empty at first.
    slots: Vec<u16>,
    /// Grows with each refresh, whether it succeeded or not.
    pub(super) version: u64,
    /// Whether the map may be out of date.
    pub(super) due: bool,
    /// Whether a thread is refreshing the map.
    pub(super) refreshing: bool,
    /// When the next refresh may start.
    pub(super) refresh_allowed_at: Option<Moment>,
    /// Why the last refresh failed; `None` after a success.
    pub(super) last_error: Option<Failure>,
    /// How much time the last failed refresh had. A thread with much more time refreshes again.
    pub(super) refresh_time: Duration,
    /// The node that failed last. It is asked last.
    pub(super) suspect: Option<Address>,
}

/// The index of a hash slot without a master.
const NOBODY: u16 = u16::MAX;

impl HashSlotMap {
    pub(super) fn master(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        self.masters.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    pub(super) fn find(&self, address: &Address) -> Option<&Arc<ClusterNode>> {
        self.masters.iter().find(|member| *member.address() == *address)
    }

    pub(super) fn has(&self, member: &Arc<ClusterNode>) -> bool {
        self.masters.iter().any(|other| Arc::ptr_eq(other, member))
    }

    /// The node whose messages about a hash slot count.
    pub(super) fn listening_master(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        // One node for each channel: with all of them, each release would wake a waiter once for
        // each master. Any connected node will do for the hash slots of an unreachable one, because
        // nodes forward published messages. It must be the same one for all threads, hence the
        // first.
        let home = self.master(slot).filter(|home| home.is_listening());
        home.or_else(|| self.masters.iter().find(|member| member.is_listening()))
    }

    /// The hash slots that a node has, in ascending order.
    pub(super) fn slots_of(&self, member: &Arc<ClusterNode>) -> Vec<u16> {
        let is_its = |slot: &u16| self.master(*slot).is_some_and(|it| Arc::ptr_eq(it, member));
        (0..SLOTS).filter(is_its).collect()
    }

    /// Replaces the map by the hash slots that a node returned. Returns the nodes that are no longer on
    /// it.
    pub(super) fn rebuild(
        &mut self,
        asked: &[Arc<ClusterNode>],
        ranges: &[SlotRange],
        make: impl Fn(&Address) -> Arc<ClusterNode>,
    ) -> Vec<Arc<ClusterNode>> {
        let mut masters: Vec<Arc<ClusterNode>> = Vec::new();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        for SlotRange { first, last, master } in ranges {
            let found = masters.iter().position(|member| *member.address() == *master);
            let place = found.unwrap_or_else(|| {
                // A known node is kept as it is, with its pools and its listener: a new object for
                // the same address would close all connections at each refresh. A seed that was
                // asked is connected too, and becomes a master here.
                masters.push(self.find(master).map_or_else(
                    || {
                        let made = make(master);
                        let asked = asked.iter().find(|asked| asked.is_at_the_place_of(&made));
                        asked.map_or(made, Arc::clone)
                    },
                    Arc::clone,
                ));
                masters.len() - 1
            });
            let place = u16::try_from(place).unwrap_or(NOBODY);
            // In range, because the parser (`address::ranges`) rejects other numbers.
            slots[usize::from(*first)..=usize::from(*last)].fill(place);
        }
        let before = std::mem::replace(&mut self.masters, masters);
        (self.slots, self.due, self.last_error) = (slots, false, None);
        // By address and not by pointer: a node that is kept must not be retired.
        before.into_iter().filter(|member| self.find(member.address()).is_none()).collect()
    }

    /// Notes that the master at this index has a hash slot, and that a refresh is due.
    pub(super) fn note(&mut self, slot: u16, place: usize) {
        // The redirection applies at once: a refresh may be at a node that does not know of the
        // move yet, and the calls until then would each be redirected again.
        self.due = true;
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = u16::try_from(place).unwrap_or(NOBODY);
        }
    }
}

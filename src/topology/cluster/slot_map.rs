//! The map of a cluster: its masters, and which of them has which slots.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::tag::SLOTS;
use crate::base::time::Moment;
use crate::topology::cluster::address::{Address, SlotRange};
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::wire::failure::Failure;

/// What is known of the slots.
#[derive(Debug, Default)]
pub(super) struct SlotMap {
    pub(super) masters: Vec<Arc<ClusterNode>>,
    /// The place of its master for each slot; empty at first.
    slots: Vec<u16>,
    /// Grows whenever the nodes were asked.
    pub(super) version: u64,
    pub(super) due: bool,
    /// Whether somebody is asking the nodes.
    pub(super) refreshing: bool,
    /// From when on they may be asked again.
    pub(super) refresh_allowed_at: Option<Moment>,
    /// Why they told nothing the last time, and for how long they were asked.
    pub(super) last_error: Option<Failure>,
    pub(super) refresh_time: Duration,
    /// Who was seen to fail, and is asked last.
    pub(super) suspect: Option<Address>,
}

/// The place of a slot that nobody has.
const NOBODY: u16 = u16::MAX;

impl SlotMap {
    pub(super) fn master(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        self.masters.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    pub(super) fn find(&self, address: &Address) -> Option<&Arc<ClusterNode>> {
        self.masters.iter().find(|member| *member.address() == *address)
    }

    pub(super) fn has(&self, member: &Arc<ClusterNode>) -> bool {
        self.masters.iter().any(|other| Arc::ptr_eq(other, member))
    }

    /// The node to listen to for what is published about a slot.
    pub(super) fn listening_master(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        let home = self.master(slot).filter(|home| home.is_listening());
        home.or_else(|| self.masters.iter().find(|member| member.is_listening()))
    }

    /// The slots that a node has, in ascending order.
    pub(super) fn slots_of(&self, member: &Arc<ClusterNode>) -> Vec<u16> {
        let is_its = |slot: &u16| self.master(*slot).is_some_and(|it| Arc::ptr_eq(it, member));
        (0..SLOTS).filter(is_its).collect()
    }

    /// Draws it anew, as one of the nodes that were asked told. Returns the nodes that are on it no longer.
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
                let known = self
                    .find(master)
                    .or_else(|| asked.iter().find(|member| *member.address() == *master));
                masters.push(known.map_or_else(|| make(master), Arc::clone));
                masters.len() - 1
            });
            let place = u16::try_from(place).unwrap_or(NOBODY);
            slots[usize::from(*first)..=usize::from(*last)].fill(place);
        }
        let before = std::mem::replace(&mut self.masters, masters);
        (self.slots, self.due, self.last_error) = (slots, false, None);
        before.into_iter().filter(|member| self.find(member.address()).is_none()).collect()
    }

    /// Notes that a slot is at this node, and that likely others have moved too.
    pub(super) fn note(&mut self, slot: u16, place: usize) {
        self.due = true;
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = u16::try_from(place).unwrap_or(NOBODY);
        }
    }
}

//! The masters of a cluster as they are listened to.
//!
//! A script publishes at the master that has its slot. A listener there hears it at once. The other nodes pass it
//! on, which may take 40 ms and more.
//!
//! *The client's own channel* is listened to at all masters, so everything is said as often as there are
//! masters. The first to say it is believed, and the [repetitions](RecentMessages) are not passed on: neither a slot
//! that moves nor a node that is silent can keep a message back that any other brings. A request to let go,
//! which may be meant each time that it is said, carries the time at which it was made.
//!
//! *The channel of one name* is listened to at the one master that has the word on its slot: the one that
//! has it, if that is heard, and else any that is.
//!
//! The client hears as soon as one master is heard, and until none is: messages of a master that cannot be
//! listened to arrive late, through the others. When a master is heard again, or a new one for the first
//! time, those who wait for names there ask again; so do those who wait at the channel of a name that
//! another has the word on now (rule 12).
//!
//! A node that becomes a replica is listened to until the map has another in its place. Nodes pass on
//! what is published by themselves, not by replication, so a replica hears what its master hears, and a
//! listener that left it early would hear less.

use crate::base::sync::Arc;
use crate::base::tag::hash_slot;
use crate::protocol::wake_message::{Publisher, Publishers, WAKE_LISTENER, WakeMessage};
use crate::topology::cluster::cluster_node::ClusterNode;
use crate::topology::cluster::directory::Directory;
use crate::topology::multi_node::recent_messages::RecentMessages;
use crate::wire::failure::Failure;
use crate::wire::subscription::Subscriber;

/// All masters of a cluster.
pub(super) struct ClusterPublishers {
    directory: Arc<Directory>,
    recent_messages: RecentMessages,
}

impl ClusterPublishers {
    pub(super) fn new(directory: &Arc<Directory>) -> ClusterPublishers {
        ClusterPublishers {
            directory: Arc::clone(directory),
            recent_messages: RecentMessages::default(),
        }
    }
}

impl Publishers for ClusterPublishers {
    fn all(&self) -> Vec<Arc<dyn Publisher>> {
        let mut members: Vec<_> = self.directory.known().into_iter().map(Some).collect();
        if members.is_empty() {
            members.push(None);
        }
        let master = |member| MasterPublisher { directory: Arc::clone(&self.directory), member };
        members.into_iter().map(|member| Arc::new(master(member)) as Arc<dyn Publisher>).collect()
    }

    fn version(&self) -> u64 {
        self.directory.changes()
    }

    fn accepts(&self, is_own: bool, payload: &[u8]) -> bool {
        !is_own
            || payload == WAKE_LISTENER
            || self.recent_messages.is_first(payload, self.directory.now())
    }
}

/// One master. Before any is known, one without a member stands for all of them: to listen to it is to ask the
/// nodes who they are.
struct MasterPublisher {
    directory: Arc<Directory>,
    member: Option<Arc<ClusterNode>>,
}

impl Publisher for MasterPublisher {
    fn number(&self) -> usize {
        self.member.as_ref().map_or(0, |member| Arc::as_ptr(member).addr())
    }

    fn address(&self) -> String {
        let shown = |member: &Arc<ClusterNode>| member.address().to_string();
        self.member.as_ref().map_or_else(|| "the cluster".to_owned(), shown)
    }

    fn connect_attempts(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.connect_attempts())
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        match &self.member {
            Some(member) => Ok(Box::new(self.directory.subscribe(member, channel)?)),
            None => Err(self.directory.find().err().unwrap_or_else(Failure::silent)),
        }
    }

    fn serves(&self, channel: &[u8]) -> bool {
        let is_listened_to_for =
            |member| self.directory.is_listened_to_for(hash_slot(channel), member);
        self.member.as_ref().is_some_and(is_listened_to_for)
    }

    fn set_listening(&self, listening: bool) {
        if let Some(member) = &self.member {
            self.directory.set_listening(member, listening);
        }
    }

    fn missed_wake(&self) -> WakeMessage {
        let slots = self.member.as_ref().map(|member| self.directory.slots_of(member));
        WakeMessage::Missed { slots: slots.unwrap_or_default() }
    }
}

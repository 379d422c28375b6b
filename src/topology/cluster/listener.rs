//! The masters of a cluster as publishers of messages.
//!
//! A script publishes at the master of its hash slot. Subscribers there receive the message at once. The
//! other nodes forward it, which may take 40 ms and more.
//!
//! *The client's own channel* is subscribed to at all masters once the client waits for a lock, so each message arrives once from
//! every master. The first one counts, and its [repetitions](RecentMessages) are dropped: neither a
//! hash slot that moves nor a silent node can hold back a message that another node delivers. A release
//! request may be sent several times on purpose, so it carries the time at which it was made.
//!
//! *The channel of one name* is subscribed to at one master: the master of its hash slot, or any
//! connected one while that master is unreachable.
//!
//! The listener is live while one master is connected: messages of an unreachable master arrive
//! late, through the others. When a master is connected again, or a new one for the first time, the
//! waiters for names there ask again. So do the waiters at a channel that has moved to another
//! master (rule 12).
//!
//! A node that becomes a replica keeps its subscriptions until the map has another node in its
//! place. Messages travel on the cluster bus and not by replication, so a replica receives what its
//! master receives, and a listener that left it early would receive less.

use crate::base::sync::Arc;
use crate::base::tag::hash_slot;
use crate::base::time::Moment;
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
    // Only known masters: this is called with a lock held, and must not ask the nodes.
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

    fn have_homes(&self) -> bool {
        true
    }

    fn accepts(&self, is_own: bool, payload: &[u8]) -> bool {
        // The channel of a name has one subscription, so nothing arrives twice there. And two equal
        // messages of it are two releases, none of which may be dropped. The message that wakes the
        // listener is meant for the thread that receives it: each master's thread needs its own.
        !is_own
            || payload == WAKE_LISTENER
            || self.recent_messages.is_first(payload, self.directory.now())
    }
}

/// One master. While the map is empty, a single one without a node stands for all: subscribing to
/// it refreshes the map.
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

    fn connections_made(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.connections_made())
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        match &self.member {
            Some(member) => Ok(Box::new(self.directory.subscribe(member, channel)?)),
            // Never a subscription. If the refresh succeeds, `changes` has grown, and the listener
            // replaces this publisher by the masters.
            None => Err(self.directory.find().err().unwrap_or_else(Failure::silent)),
        }
    }

    fn serves(&self, channel: &[u8]) -> bool {
        let is_listened_to_for =
            |member| self.directory.is_listened_to_for(hash_slot(channel), member);
        self.member.as_ref().is_some_and(is_listened_to_for)
    }

    fn is_home(&self, hash_slot: u16) -> bool {
        // The one that stands for all finds out which there are.
        self.member.as_ref().is_none_or(|member| self.directory.has_slot(hash_slot, member))
    }

    fn set_listening(&self, listening: bool) {
        if let Some(member) = &self.member {
            self.directory.set_listening(member, listening);
        }
    }

    fn lost(&self, began: Moment, at: Moment) {
        let transport = self.member.as_ref().and_then(|member| member.made_transport());
        transport.into_iter().for_each(|it| it.server_clock().note_subscription_end(began, at));
    }

    // Only the names in this master's hash slots: the messages of the other masters have gone on
    // arriving, and a wake-up of all waiters would make each of them send a request.
    fn missed_wake(&self) -> WakeMessage {
        let slots = self.member.as_ref().map(|member| self.directory.slots_of(member));
        WakeMessage::Missed { hash_slots: slots.unwrap_or_default() }
    }
}

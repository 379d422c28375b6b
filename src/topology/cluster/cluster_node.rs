//! One node of a cluster, and the connections to it.

use std::fmt;

use crate::base::sync::contended::Mutex;
use crate::base::sync::{Arc, AtomicBool, OnceLock, Ordering};
use crate::base::time::Clock;
use crate::topology::cluster::address::Address;
use crate::topology::multi_node::node::{Node, NodeSettings};
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::Failure;
use crate::wire::locator::FixedServer;
use crate::wire::manager::Manager;
use crate::wire::subscription::Subscription;
use crate::wire::transport::Transport;

/// One node: a pool for callers, and a connection for the worker, both made when first needed. The
/// connection for messages belongs to the thread that listens.
pub(crate) struct ClusterNode {
    address: Address,
    info: Endpoint,
    settings: Arc<NodeSettings>,
    clock: Arc<dyn Clock>,
    node: Mutex<Option<Arc<Node>>>,
    /// Makes the connections for messages. Separate from `node`, because a client may receive
    /// messages from a node that it sends no calls, and needs no pool there.
    listen_manager: OnceLock<Manager>,
    /// Whether a thread receives messages from it.
    listening: AtomicBool,
}

impl ClusterNode {
    pub(super) fn new(
        address: Address,
        info: Endpoint,
        settings: &Arc<NodeSettings>,
        clock: &Arc<dyn Clock>,
    ) -> ClusterNode {
        ClusterNode {
            address,
            info,
            settings: Arc::clone(settings),
            clock: Arc::clone(clock),
            node: Mutex::new(None),
            listen_manager: OnceLock::new(),
            listening: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn info(&self) -> &Endpoint {
        &self.info
    }

    /// Whether another node has the same address, and is reached in the same way. If announced addresses are mapped,
    /// a user may give an address that another node announces.
    pub(super) fn is_at_the_place_of(&self, other: &ClusterNode) -> bool {
        self.address == other.address && self.info.addr() == other.info.addr()
    }

    /// Its connections, which are made on the first call. After [`retire`](Self::retire), a call
    /// that still has this node makes new ones; they end with its last reference.
    pub(super) fn node(&self) -> Result<Arc<Node>, Failure> {
        // Made under the lock, so that two threads do not make a pool each. That is quick: a pool
        // connects only later, on a thread of its own.
        let mut node = self.node.lock();
        if let Some(node) = &*node {
            return Ok(Arc::clone(node));
        }
        let made = Node::new(self.info.clone(), &self.clock, &self.settings)?;
        Ok(Arc::clone(node.insert(Arc::new(made))))
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// Notes whether a thread receives messages from it. Returns whether that changed.
    pub(super) fn set_listening(&self, listening: bool) -> bool {
        // A swap, so that of two threads only one sees the change and announces it.
        self.listening.swap(listening, Ordering::AcqRel) != listening
    }

    pub(super) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let listen_manager = self.listen_manager.get_or_init(|| {
            let (source, clock) = (FixedServer::new(self.info.clone()), Arc::clone(&self.clock));
            Manager::new(Arc::new(source), clock, self.settings.timeouts)
        });
        // No epoch, so that the node's role is not checked: nodes forward published messages to all
        // others, and a master that became a replica goes on delivering them.
        listen_manager.subscribe_at(&self.info, channel, None)
    }

    /// How many attempts to connect there were for callers and the worker, whether they succeeded
    /// or not.
    pub(crate) fn connect_attempts(&self) -> u64 {
        self.node.lock().as_ref().map_or(0, |node| node.transport().connect_attempts())
    }

    /// How many connections were made for callers so far.
    pub(crate) fn connections_made(&self) -> u64 {
        let made = |node: &Arc<Node>| node.transport().manager().attempts().counts().made;
        self.node.lock().as_ref().map_or(0, made)
    }

    /// The transport of its connections.
    pub(crate) fn transport(&self) -> Result<Arc<Transport>, Failure> {
        self.node().map(|node| Arc::clone(node.transport()))
    }

    /// The same, if they exist already.
    pub(super) fn made_transport(&self) -> Option<Arc<Transport>> {
        self.node.lock().as_ref().map(|node| Arc::clone(node.transport()))
    }

    /// Closes its connections when they come back: one of them may be out of step.
    pub(super) fn discard_connections(&self) {
        if let Some(node) = &*self.node.lock() {
            node.transport().discard_connections();
        }
    }

    /// Closes all its connections for good.
    pub(super) fn retire(&self) {
        // Taken out first: closing sockets is I/O, and no other thread should wait for it here.
        let node = self.node.lock().take();
        if let Some(node) = node {
            node.transport().retire();
        }
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the endpoint has the password.
        f.debug_struct("ClusterNode").field("address", &self.address).finish_non_exhaustive()
    }
}

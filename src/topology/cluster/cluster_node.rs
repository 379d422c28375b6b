//! One node of a cluster, and the connections to it.

use std::fmt;

use crate::base::sync::{Arc, AtomicBool, Mutex, OnceLock, Ordering};
use crate::base::time::Clock;
use crate::topology::cluster::address::Address;
use crate::topology::multi_node::node::{Node, NodeSettings};
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::Failure;
use crate::wire::locator::FixedServer;
use crate::wire::manager::Manager;
use crate::wire::subscription::Subscription;
use crate::wire::transport::Transport;

/// One node: a pool for callers, and a connection for the worker, both made when first needed. A
/// connection that listens is its thread's.
pub(crate) struct ClusterNode {
    address: Address,
    info: Endpoint,
    settings: Arc<NodeSettings>,
    clock: Arc<dyn Clock>,
    node: Mutex<Option<Arc<Node>>>,
    /// What connections that listen have in common. Who listens to a node may need no pool there.
    listen_manager: OnceLock<Manager>,
    /// Whether it is listened to.
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

    /// The ways to it.
    pub(super) fn node(&self) -> Result<Arc<Node>, Failure> {
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

    /// Answers whether that is new.
    pub(super) fn set_listening(&self, listening: bool) -> bool {
        self.listening.swap(listening, Ordering::AcqRel) != listening
    }

    pub(super) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let listen_manager = self.listen_manager.get_or_init(|| {
            let (source, clock) = (FixedServer::new(self.info.clone()), Arc::clone(&self.clock));
            Manager::new(Arc::new(source), clock, self.settings.timeouts)
        });
        // Nodes pass on to each other what is published, so that a replica is as good a place as its master.
        listen_manager.subscribe_at(&self.info, channel, None)
    }

    /// How many connections were tried for callers and the worker so far, whatever came of it.
    pub(crate) fn connect_attempts(&self) -> u64 {
        self.node.lock().as_ref().map_or(0, |node| node.transport().connect_attempts())
    }

    /// The way of callers to it.
    pub(crate) fn transport(&self) -> Result<Arc<Transport>, Failure> {
        self.node().map(|node| Arc::clone(node.transport()))
    }

    /// Its connections are used no longer.
    pub(super) fn discard_connections(&self) {
        if let Some(node) = &*self.node.lock() {
            node.transport().discard_connections();
        }
    }

    /// No connection to it is used any longer.
    pub(super) fn retire(&self) {
        let node = self.node.lock().take();
        if let Some(node) = node {
            node.transport().retire();
        }
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may have a password.
        f.debug_struct("Member").field("address", &self.address).finish_non_exhaustive()
    }
}

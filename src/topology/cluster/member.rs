//! One node of a cluster, and the connections to it.

use std::fmt;

use crate::base::sync::{Arc, AtomicBool, OnceLock, Ordering};
use crate::base::thread::Threads;
use crate::base::time::Clock;
use crate::protocol::wake::Publisher as _;
use crate::topology::cluster::address::Address;
use crate::topology::several::node::{Node, NodeSettings};
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::Failure;
use crate::wire::manager::{Manager, Timeouts};
use crate::wire::pool::{PoolSettings, connector};
use crate::wire::source::Fixed;
use crate::wire::subscription::Subscription;
use crate::wire::transport::Transport;

/// How the nodes of a cluster are spoken to.
#[derive(Debug)]
pub(crate) struct ClusterSettings {
    /// The bounds of the connections to each node.
    pub(crate) pool: PoolSettings,
    pub(crate) timeouts: Timeouts,
    /// What the threads of the client are called.
    pub(crate) threads: Threads,
}

/// One node: a pool for callers, and a connection for the worker, both made when first needed. A
/// connection that listens is its thread's.
pub(crate) struct Member {
    address: Address,
    info: Endpoint,
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
    worker: Arc<Node>,
}

impl Member {
    pub(super) fn new(
        address: Address,
        info: Endpoint,
        settings: &Arc<ClusterSettings>,
        clock: &Arc<dyn Clock>,
    ) -> Member {
        Member {
            address,
            info,
            settings: Arc::clone(settings),
            clock: Arc::clone(clock),
            links: OnceLock::new(),
            ear: OnceLock::new(),
            heard: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn info(&self) -> &Endpoint {
        &self.info
    }

    fn links(&self) -> Result<&Links, Failure> {
        if let Some(links) = self.links.get() {
            return Ok(links);
        }
        // Of two that come at once, one has started its thread in vain, which ends.
        let connector = connector(self.settings.threads)?;
        Ok(self.links.get_or_init(|| {
            let ClusterSettings { pool, timeouts, threads } = &*self.settings;
            let timeout = timeouts.connect.max(timeouts.command);
            let longer = usize::from(timeouts.command > timeouts.connect);
            let settings = NodeSettings {
                pool: pool.of_one(),
                timeout,
                setting: timeouts.settings[longer],
                probation: None,
                threads: *threads,
            };
            let worker =
                Node::with_connector(self.info.clone(), &self.clock, &settings, &connector);
            let callers = Transport::new(
                Arc::new(Fixed::new(self.info.clone())),
                Arc::clone(&self.clock),
                pool,
                *timeouts,
                connector,
            );
            Links { callers: Arc::new(callers), worker: Arc::new(worker) }
        }))
    }

    pub(super) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    /// Answers whether that is new.
    pub(super) fn set_heard(&self, heard: bool) -> bool {
        self.heard.swap(heard, Ordering::AcqRel) != heard
    }

    pub(super) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let ear = self.ear.get_or_init(|| {
            let (source, clock) =
                (Arc::new(Fixed::heard_at_replicas(self.info.clone())), Arc::clone(&self.clock));
            Manager::new(source, clock, Arc::default(), self.settings.timeouts)
        });
        ear.subscribe(channel)
    }

    /// How many connections were tried for callers and the worker so far, whatever came of it.
    pub(crate) fn tried(&self) -> u64 {
        self.links.get().map_or(0, |links| links.callers.tried() + links.worker.tried())
    }

    /// The way of callers to it.
    pub(crate) fn transport(&self) -> Result<&Arc<Transport>, Failure> {
        Ok(&self.links()?.callers)
    }

    /// The way of the worker to it.
    pub(super) fn worker(&self) -> Result<&Arc<Node>, Failure> {
        Ok(&self.links()?.worker)
    }

    /// The worker's connection to it is used no longer.
    pub(super) fn distrust(&self) {
        if let Some(links) = self.links.get() {
            links.worker.distrust();
        }
    }

    /// No connection to it is used any longer, also by who listens there.
    pub(super) fn retire(&self) {
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

//! The servers of a quorum as they are listened to.
//!
//! A majority of `need` out of `n` servers has a server in common with any `n - need + 1`, so when that many
//! confirmed a channel, every majority that is released has one of them. Locks can be taken only while `need`
//! servers answer, which are no fewer, so whoever can take a lock can be told of its release too. Until then,
//! and where the one server in common goes down, a waiter asks again at its next heartbeat.
//!
//! The first server to tell of a release is believed, and the [repetitions](RecentMessages) are not passed on. All that
//! wait hear of a release at the same time. Were they to ask at once they would split the votes between
//! them, so each lets a random part of a round's time pass.

use std::time::Duration;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Clock;
use crate::protocol::wake_message::{Publisher, Publishers};
use crate::topology::multi_node::node::Node;
use crate::topology::multi_node::recent_messages::RecentMessages;

/// Waiters do not drift apart by less than this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How long a round takes when all is well.
#[derive(Debug)]
pub(super) struct RoundTime(AtomicU64);

impl RoundTime {
    pub(super) fn new() -> RoundTime {
        RoundTime(AtomicU64::new(u64::try_from(SHORTEST_PAUSE.as_nanos()).unwrap_or(0)))
    }

    /// A round took so long. One that waited for a silent server is an outlier.
    pub(super) fn note(&self, took: Duration) {
        let most = self.0.load(Ordering::Relaxed).saturating_mul(2);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(took.min(most).max(10_000), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// All servers of a quorum.
pub(super) struct QuorumPublishers {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) need: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) round_time: Arc<RoundTime>,
    /// What the values of this client's owners have in them.
    pub(super) client: Vec<u8>,
    pub(super) recent_messages: RecentMessages,
}

impl Publishers for QuorumPublishers {
    fn all(&self) -> Vec<Arc<dyn Publisher>> {
        self.nodes.iter().map(|node| node.transport().clone() as Arc<dyn Publisher>).collect()
    }

    fn required(&self) -> usize {
        self.nodes.len() - self.need + 1
    }

    fn accepts(&self, is_own: bool, payload: &[u8]) -> bool {
        if is_own {
            // Each server tells of its own vote, so the last one tells of all. Nothing else is told to one
            // client here.
            return payload.starts_with(b"x ");
        }
        // Threads of this process that wait know of its own releases.
        let ours = payload.windows(self.client.len()).any(|part| part == self.client);
        !ours && self.recent_messages.is_first(payload, self.clock.now())
    }

    fn pause(&self) -> Duration {
        self.round_time.get().max(SHORTEST_PAUSE).mul_f64(fastrand::f64())
    }
}

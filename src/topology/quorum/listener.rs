//! The servers of a quorum as publishers of messages.
//!
//! A majority of `need` out of `n` servers shares a server with any `n - need + 1` servers. So once
//! that many have confirmed a channel, a release by any majority is published by one of them. Locks
//! can be taken only while `need` servers reply, which are at least as many, so a client that can
//! take a lock can also receive its release. Until the channel is confirmed, or if the only shared
//! server goes down, a waiter asks again at its next heartbeat.
//!
//! The first message about a release counts, and its [repetitions](RecentMessages) are dropped. All
//! waiters receive a release at the same time. If they all asked at once, they would split the
//! votes among them. So each waits for a random part of the time that a round takes.

use std::time::Duration;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Clock;
use crate::protocol::wake_message::{Publisher, Publishers};
use crate::topology::multi_node::node::Node;
use crate::topology::multi_node::recent_messages::RecentMessages;

/// Waiters spread over at least this time, even if rounds are faster.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How long a round takes while all servers are well.
#[derive(Debug)]
pub(super) struct RoundTime(AtomicU64);

impl RoundTime {
    pub(super) fn new() -> RoundTime {
        RoundTime(AtomicU64::new(u64::try_from(SHORTEST_PAUSE.as_nanos()).unwrap_or(0)))
    }

    /// Notes how long a round took.
    pub(super) fn note(&self, took: Duration) {
        // A round that waited for a silent server takes a whole time-out. If that became the new
        // value, all waiters would pause for it after each release. So the value can only double,
        // while a fast round lowers it at once. Two threads may overwrite each other's value here,
        // which costs nothing but accuracy.
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
    /// The client's id, which is a part of all its owner's values.
    pub(super) client: Vec<u8>,
    pub(super) released: Arc<RecentMessages>,
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
            // Only evictions are sent to a single client here. Each is passed on although every
            // server sends it: each server publishes when *its* vote is gone, and the hold is lost
            // only with the last of a majority. Dropping repetitions would drop the one that
            // matters.
            return payload.starts_with(b"x ");
        }
        // Waiters of this process learn of its own releases directly. A message would wake them a
        // second time, and they would ask again for nothing.
        let ours = payload.windows(self.client.len()).any(|part| part == self.client);
        !ours && self.released.is_first(payload, self.clock.now())
    }

    fn pause(&self) -> Duration {
        self.round_time.get().max(SHORTEST_PAUSE).mul_f64(fastrand::f64())
    }
}

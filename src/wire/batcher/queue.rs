//! The queue of gathering batches, and the places that they wait for.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::pending::{BatchEntry, Entries, PendingBatch};

/// How many places there are. With fewer the server would be idle, with more the batches would be
/// empty. As many threads as this never wait for each other.
const FEW: usize = 4;

/// How long a leader waits for a place before it takes an additional one.
const TURN: Duration = Duration::from_millis(5);

/// Batches the commands of one pool's callers.
#[derive(Debug)]
pub(crate) struct Batcher {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) few: usize,
    /// How many places there are for a leader that has waited for its turn: one for each
    /// connection.
    pub(super) all: usize,
    pub(super) turn: Duration,
    pub(super) queue: Mutex<BatchQueue>,
}

/// The places and the batches. It is locked before the entries of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    /// How many places are taken.
    pub(super) taken: usize,
    /// The gathering batches, oldest first.
    pub(super) batches: VecDeque<Arc<PendingBatch>>,
}

impl Batcher {
    /// For a pool of `size` connections.
    pub(crate) fn new(clock: Arc<dyn Clock>, size: u32) -> Batcher {
        let all = usize::try_from(size).unwrap_or(usize::MAX);
        Batcher { clock, few: FEW.min(all), all, turn: TURN, queue: Mutex::default() }
    }

    /// Gives a batch its place. Returns the leader's command.
    pub(super) fn start(
        &self,
        queue: &mut BatchQueue,
        pending: &Arc<PendingBatch>,
        entries: &mut Entries,
    ) -> Vec<u8> {
        queue.taken += 1;
        // Out of the queue before anything is sent: nobody may enter a batch whose commands are
        // already packed. The next batch may have a place, too, and its leader has been woken by
        // nobody.
        queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
        self.wake_leader(queue);
        match &mut entries.all[entries.leader] {
            BatchEntry::Waiting { packed, .. } => std::mem::take(packed),
            _ => Vec::new(),
        }
    }

    /// Wakes the leader of the first batch, if there is a place for it.
    pub(super) fn wake_leader(&self, queue: &BatchQueue) {
        let Some(pending) = queue.batches.front() else { return };
        let mut entries = pending.entries.lock();
        if queue.taken < self.places(&entries, self.clock.now()) {
            // A flag as well as a notification: the leader may not be waiting yet, or be between
            // two looks.
            entries.leader_woken = true;
            drop(entries);
            pending.leader_woken.notify_all();
        }
    }

    /// How many places the leader of these entries may use.
    pub(super) fn places(&self, entries: &Entries, now: Moment) -> usize {
        // A few connections that died unnoticed would take all of the few places for a whole
        // time-out. The bound is then that of the pool, in which there are more connections.
        if now < entries.turn { self.few } else { self.all }
    }
}

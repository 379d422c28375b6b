//! Where batches gather, and the places that they wait for.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::pending::{BatchEntry, Entries, PendingBatch};

/// How many places there are: as many threads never wait for each other. With fewer the server would
/// idle, with more the batches be empty.
const FEW: usize = 4;

/// How long a leader waits for a place until it takes one besides.
const TURN: Duration = Duration::from_millis(5);

/// Where the callers of one pool meet.
#[derive(Debug)]
pub(crate) struct Batcher {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) few: usize,
    /// How many places there are for a leader that has waited for its turn.
    pub(super) all: usize,
    pub(super) turn: Duration,
    pub(super) queue: Mutex<BatchQueue>,
}

/// Locked before the entries of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    /// Places that are taken.
    pub(super) taken: usize,
    /// In the order in which they came.
    pub(super) batches: VecDeque<Arc<PendingBatch>>,
}

impl Batcher {
    /// For a pool of so many connections.
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
        queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
        self.wake_leader(queue);
        match &mut entries.all[entries.leader] {
            BatchEntry::Waiting { packed, .. } => std::mem::take(packed),
            _ => Vec::new(),
        }
    }

    /// Has the first leader look for a place, if there is one for it.
    pub(super) fn wake_leader(&self, queue: &BatchQueue) {
        let Some(pending) = queue.batches.front() else { return };
        let mut entries = pending.entries.lock();
        if queue.taken < self.places(&entries, self.clock.now()) {
            entries.leader_woken = true;
            drop(entries);
            pending.leader_woken.notify_all();
        }
    }

    /// How many places there are for the leader of these entries.
    pub(super) fn places(&self, entries: &Entries, now: Moment) -> usize {
        if now < entries.turn { self.few } else { self.all }
    }
}

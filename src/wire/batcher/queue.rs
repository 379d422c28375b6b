//! The queue of gathering batches, and the places that they wait for.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::pending::{Entries, PendingBatch};

/// How many places there are for a crowd. With fewer the server would be idle, with more the batches
/// would be empty.
pub(super) const FEW: usize = 4;

/// Up to how many callers have a place each, and never wait for each other. A batch saves these few
/// little, and costs most of them the rest of another's exchange and two switches of threads.
pub(super) const EACH: usize = 8;

/// How long a leader waits for a place before it takes an additional one.
const TURN: Duration = Duration::from_millis(5);

/// Batches the commands of one pool's callers.
#[derive(Debug)]
pub(crate) struct Batcher {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) few: usize,
    pub(super) each: usize,
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
    /// How many callers there are: those that go alone, and all that have entered a batch which has
    /// not ended, although some may have given up since.
    pub(super) callers: usize,
    /// The most callers of late.
    crowd: usize,
    /// The gathering batches, oldest first.
    pub(super) batches: VecDeque<Arc<PendingBatch>>,
}

impl BatchQueue {
    /// Counts a caller that comes.
    pub(super) fn count_caller(&mut self) {
        self.callers += 1;
        // It falls by one for each caller that comes, and not with each that goes: all callers of a
        // batch go at once, and most of them are about to come back.
        self.crowd = self.callers.max(self.crowd.saturating_sub(1));
    }
}

impl Batcher {
    /// For a pool of `size` connections.
    pub(crate) fn new(clock: Arc<dyn Clock>, size: u32) -> Batcher {
        let all = usize::try_from(size).unwrap_or(usize::MAX);
        let few = FEW.min(all);
        // One connection stays for those that need one for more than a batch. They wait for it in the
        // pool, and callers that come again and again would take each connection before them.
        let each = EACH.min(all.saturating_sub(1)).max(few);
        Batcher { clock, few, each, all, turn: TURN, queue: Mutex::default() }
    }

    /// With so many places for a crowd, and so many for as many callers.
    #[cfg(all(test, leasehold_shuttle))]
    pub(crate) fn with_places(clock: Arc<dyn Clock>, few: usize, each: usize) -> Batcher {
        Batcher { clock, few, each, all: each, turn: TURN, queue: Mutex::default() }
    }

    /// Nothing is under way, and nobody waits.
    #[cfg(test)]
    pub(crate) fn assert_idle(&self) {
        let queue = self.queue.lock();
        assert_eq!((queue.taken, queue.callers, queue.batches.len()), (0, 0, 0));
    }

    /// Gives a batch its place.
    pub(super) fn start(&self, queue: &mut BatchQueue, pending: &Arc<PendingBatch>) {
        queue.taken += 1;
        // Out of the queue before anything is sent: nobody may enter a batch whose commands are
        // already packed. The next batch may have a place, too, and its leader has been woken by
        // nobody.
        queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
        self.wake_leader(queue);
    }

    /// Wakes the leader of the first batch, if there is a place for it.
    pub(super) fn wake_leader(&self, queue: &BatchQueue) {
        if let Some(pending) = self.leader_to_wake(queue) {
            pending.leader_woken.notify_all();
        }
    }

    /// Has the leader of the first batch look for a place, if there is one for it. Returns the batch if
    /// its leader sleeps, and must be notified.
    pub(super) fn leader_to_wake<'q>(
        &self,
        queue: &'q BatchQueue,
    ) -> Option<&'q Arc<PendingBatch>> {
        let pending = queue.batches.front()?;
        let mut entries = pending.entries.lock();
        if queue.taken >= self.places(queue, &entries, self.clock.now()) {
            return None;
        }
        // A flag as well as a notification: the leader may not be waiting yet, or be between two
        // looks. A leader whose flag is set looks before it sleeps, or sleeps since before that and
        // is notified by the caller that has set it.
        let was_woken = std::mem::replace(&mut entries.leader_woken, true);
        (!was_woken && entries.sleepers.leaders > 0).then_some(pending)
    }

    /// How many places there are for those that come now.
    pub(super) fn usual_places(&self, queue: &BatchQueue) -> usize {
        // The number may grow while a batch gathers, and that wakes no leader. It need not: at least
        // `few` places are taken then, and the first of them that is returned wakes it.
        if queue.crowd > self.each { self.few } else { self.each }
    }

    /// How many places the leader of these entries may use.
    pub(super) fn places(&self, queue: &BatchQueue, entries: &Entries, now: Moment) -> usize {
        // A few connections that died unnoticed would take all of the few places for a whole
        // time-out. The bound is then that of the pool, in which there are more connections.
        if now < entries.turn { self.usual_places(queue) } else { self.all }
    }
}

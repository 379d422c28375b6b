//! Where batches gather, and the places that they wait for.

use std::collections::VecDeque;

use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::pending::{BatchEntry, Entries, PendingBatch};

/// How many places there are: as many threads never wait for each other. With fewer the server would
/// idle, with more the batches be empty.
const FEW: usize = 4;

/// The batches of one pool, and how many places there are for them.
#[derive(Debug)]
pub(super) struct BatchQueue {
    pub(super) clock: Arc<dyn Clock>,
    few: usize,
    pub(super) all: usize,
    pub(super) state: Mutex<State>,
}

/// Locked before the entries of a pending.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Places that are taken.
    pub(super) taken: usize,
    /// In the order in which they came.
    pub(super) batches: VecDeque<Arc<PendingBatch>>,
}

/// How long a caller has.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) start: Moment,
    pub(super) deadline: Moment,
    /// Until when a caller that came then waits for a connection, as things stand.
    pub(super) limit: &'a dyn Fn(Moment) -> Moment,
}

impl Span<'_> {
    /// Until when it waits for a connection, as things stand.
    pub(super) fn limit(&self) -> Moment {
        self.deadline.min((self.limit)(self.start))
    }
}

impl BatchQueue {
    /// For a pool of so many connections.
    pub(super) fn new(clock: Arc<dyn Clock>, size: u32) -> BatchQueue {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        BatchQueue { clock, few: FEW.min(size), all: size, state: Mutex::default() }
    }

    /// Whether a caller that comes now need not wait.
    pub(super) fn has_place(&self, state: &State) -> bool {
        state.taken < self.few
    }

    /// Gives a pending its place. Answers the leader's command.
    pub(super) fn start(
        &self,
        state: &mut State,
        pending: &Arc<PendingBatch>,
        entries: &mut Entries,
    ) -> Vec<u8> {
        state.taken += 1;
        state.batches.retain(|other| !Arc::ptr_eq(other, pending));
        self.wake_leader(state);
        match &mut entries.all[entries.leader] {
            BatchEntry::Waiting { packed, .. } => std::mem::take(packed),
            _ => Vec::new(),
        }
    }

    /// Has the first leader look for a place, if there is one for it.
    pub(super) fn wake_leader(&self, state: &State) {
        let Some(pending) = state.batches.front() else { return };
        let mut entries = pending.entries.lock();
        if state.taken < self.places(&entries, self.clock.now()) {
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

//! A gathering batch, its entries, and its leader.

use crate::base::sync::Arc;
use crate::base::sync::contended::{self, Condvar};
use crate::base::time::Moment;
use crate::wire::connection::{Reply, SLACK};
use crate::wire::failure::Failure;

/// How many commands share a write…
pub(super) const ENTRIES: usize = 32;
/// …and from how many bytes on no other is added.
pub(super) const BYTES: usize = 64 * 1024;

pub(super) type CallOutcome = Result<Reply, Failure>;

#[derive(Debug)]
pub(super) enum BatchEntry {
    Waiting { packed: Vec<u8>, deadline: Moment },
    Sent,
    Done(CallOutcome),
    Abandoned,
}

#[derive(Debug)]
pub(super) struct Entries {
    pub(super) all: Vec<BatchEntry>,
    bytes: usize,
    pub(super) leader: usize,
    /// The leader's deadline.
    pub(super) deadline: Moment,
    /// From when on the leader may take an additional place.
    pub(super) turn: Moment,
    /// Whether the leader must look for a place.
    pub(super) leader_woken: bool,
}

impl Entries {
    /// Adds an entry if there is room and the leader has enough time. Takes `packed` only then.
    pub(super) fn enter(&mut self, packed: &mut Vec<u8>, deadline: Moment) -> Option<usize> {
        let full = self.all.len() >= ENTRIES || self.bytes >= BYTES;
        // A leader with less time would give up its exchange while this entry could still wait.
        // `SLACK` allows for callers with equal spans, of whom the later always has the later
        // deadline: without it, no two of them could share a batch.
        if full || deadline > self.deadline.after(SLACK) {
            return None;
        }
        self.bytes += packed.len();
        self.all.push(BatchEntry::Waiting { packed: std::mem::take(packed), deadline });
        Some(self.all.len() - 1)
    }

    /// Makes the waiting entry with the most time the leader. Returns whether there is one.
    pub(super) fn elect(&mut self) -> bool {
        let waiting = self.all.iter().enumerate().filter_map(|(number, entry)| match entry {
            BatchEntry::Waiting { deadline, .. } => Some((*deadline, number)),
            _ => None,
        });
        let Some((deadline, leader)) = waiting.max() else { return false };
        // The new leader counts as woken: the former one may have received the wake-up for a free
        // place, and did not use it.
        (self.deadline, self.leader, self.leader_woken) = (deadline, leader, true);
        true
    }
}

/// A batch of commands before it is sent.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub(super) entries: contended::Mutex<Entries>,
    /// Notified when the leader may find a place.
    pub(super) leader_woken: Condvar,
    /// Notified when entries have their outcomes.
    pub(super) done: Condvar,
}

impl PendingBatch {
    pub(super) fn new(packed: Vec<u8>, deadline: Moment, turn: Moment) -> Arc<PendingBatch> {
        let mut all = Vec::with_capacity(ENTRIES);
        let bytes = packed.len();
        all.push(BatchEntry::Waiting { packed, deadline });
        let entries = Entries { all, bytes, leader: 0, deadline, turn, leader_woken: false };
        let entries = contended::Mutex::new(entries);
        Arc::new(PendingBatch { entries, leader_woken: Condvar::new(), done: Condvar::new() })
    }

    /// Wakes all callers.
    pub(super) fn wake(&self) {
        // Both, because the roles may have changed during a wait: a new leader may still wait for
        // `done`, and a former one for `leader_woken`.
        self.done.notify_all();
        self.leader_woken.notify_all();
    }
}

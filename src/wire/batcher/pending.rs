//! A batch that gathers, its entries, and its leader.

use crate::base::sync::Arc;
use crate::base::sync::contended::{self, Condvar};
use crate::base::time::Moment;
use crate::wire::connection::{Reply, SLACK};
use crate::wire::failure::Failure;

/// How many commands travel together…
pub(super) const ENTRIES: usize = 32;
/// …and from how many bytes on no other is taken along.
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
    /// The leader's.
    pub(super) deadline: Moment,
    /// From when on the leader takes a place besides.
    pub(super) turn: Moment,
    /// Whether the leader is to look for a place.
    pub(super) leader_woken: bool,
}

impl Entries {
    /// Takes an entry if there is room and the leader has the time.
    pub(super) fn enter(&mut self, packed: &mut Vec<u8>, deadline: Moment) -> Option<usize> {
        let full = self.all.len() >= ENTRIES || self.bytes >= BYTES;
        if full || deadline > self.deadline.after(SLACK) {
            return None;
        }
        self.bytes += packed.len();
        self.all.push(BatchEntry::Waiting { packed: std::mem::take(packed), deadline });
        Some(self.all.len() - 1)
    }

    /// Hands on to the one that can wait longest. Returns whether anybody waits.
    pub(super) fn elect(&mut self) -> bool {
        let waiting = self.all.iter().enumerate().filter_map(|(number, entry)| match entry {
            BatchEntry::Waiting { deadline, .. } => Some((*deadline, number)),
            _ => None,
        });
        let Some((deadline, leader)) = waiting.max() else { return false };
        (self.deadline, self.leader, self.leader_woken) = (deadline, leader, true);
        true
    }
}

/// The commands that travel together.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub(super) entries: contended::Mutex<Entries>,
    /// Where the leader waits for a place.
    pub(super) leader_woken: Condvar,
    /// Where the others wait.
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

    /// Wakes everybody. A caller that led before may still wait where the leader does.
    pub(super) fn wake(&self) {
        self.done.notify_all();
        self.leader_woken.notify_all();
    }
}

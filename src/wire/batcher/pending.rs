//! A gathering batch, its entries, and its leader.

use std::ops::Range;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::sync::contended::{self, Condvar, MutexGuard};
use crate::base::time::Moment;
use crate::wire::connection::{Reply, SLACK};
use crate::wire::failure::Failure;

/// How many commands share a write…
pub(super) const ENTRIES: usize = 32;
/// How many usually do.
const USUAL: usize = 8;
/// …and from how many bytes on no other is added.
pub(super) const BYTES: usize = 64 * 1024;

pub(super) type CallOutcome = Result<Reply, Failure>;

#[derive(Debug)]
pub(super) enum BatchEntry {
    /// With the place of its command among those of the batch.
    Waiting {
        command: Range<usize>,
        deadline: Moment,
    },
    Sent,
    Done(CallOutcome),
    Abandoned,
}

#[derive(Debug)]
pub(super) struct Entries {
    pub(super) all: Vec<BatchEntry>,
    /// Their commands, one after the other, also of those that have given up.
    pub(super) commands: Vec<u8>,
    pub(super) leader: usize,
    /// The leader's deadline.
    pub(super) deadline: Moment,
    /// From when on the leader may take an additional place.
    pub(super) turn: Moment,
    /// Whether the leader must look for a place.
    pub(super) leader_woken: bool,
    /// The callers that sleep in [`PendingBatch::wait`].
    pub(super) sleepers: Sleepers,
}

/// How many callers sleep, by what they wait for. To notify a condition variable is a system call even
/// if nobody waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sleepers {
    pub(super) leaders: usize,
    pub(super) followers: usize,
}

impl Sleepers {
    fn of(&mut self, leads: bool) -> &mut usize {
        if leads { &mut self.leaders } else { &mut self.followers }
    }
}

impl Entries {
    /// Adds an entry if there is room and the leader has enough time.
    pub(super) fn enter(&mut self, command: &[u8], deadline: Moment) -> Option<usize> {
        let full = self.all.len() >= ENTRIES || self.commands.len() >= BYTES;
        // A leader with less time would give up its exchange while this entry could still wait.
        // `SLACK` allows for callers with equal spans, of whom the later always has the later
        // deadline: without it, no two of them could share a batch.
        if full || deadline > self.deadline.after(SLACK) {
            return None;
        }
        self.add(command, deadline);
        Some(self.all.len() - 1)
    }

    fn add(&mut self, command: &[u8], deadline: Moment) {
        let start = self.commands.len();
        // Copied by its caller, who has the memory at hand: a thread that takes or frees the memory
        // of others has to share it with them.
        self.commands.extend_from_slice(command);
        let command = start..self.commands.len();
        self.all.push(BatchEntry::Waiting { command, deadline });
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
    pub(super) fn new(command: &[u8], deadline: Moment, turn: Moment) -> Arc<PendingBatch> {
        let mut entries = Entries {
            all: Vec::with_capacity(USUAL),
            commands: Vec::with_capacity(command.len() * USUAL),
            leader: 0,
            deadline,
            turn,
            leader_woken: false,
            sleepers: Sleepers::default(),
        };
        entries.add(command, deadline);
        let entries = contended::Mutex::new(entries);
        Arc::new(PendingBatch { entries, leader_woken: Condvar::new(), done: Condvar::new() })
    }

    /// Waits, as the leader or as a follower, to be woken, for no longer than `span`.
    pub(super) fn wait<'a>(
        &self,
        mut entries: MutexGuard<'a, Entries>,
        leads: bool,
        span: Duration,
    ) -> MutexGuard<'a, Entries> {
        // Counted under the lock that the wait gives up. Each change that a caller waits for is made
        // under that lock, too, and the count is read with it. So a change finds the sleeper counted,
        // or the sleeper has found the change, and does not wait. A sleeper that is woken and has
        // not run yet is still counted; to notify it once more is harmless.
        *entries.sleepers.of(leads) += 1;
        // Two condition variables, because they are notified at different times: a free place
        // concerns the leader alone, and its 31 companions would wake for nothing.
        let woken = if leads { &self.leader_woken } else { &self.done };
        entries = contended::wait_for(woken, entries, span);
        *entries.sleepers.of(leads) -= 1;
        entries
    }

    /// Wakes all callers. `sleepers` were counted under the lock under which the entries were changed,
    /// or later.
    pub(super) fn wake(&self, sleepers: Sleepers) {
        // Both, because the roles may have changed during a wait: a new leader may still wait for
        // `done`, and a former one for `leader_woken`.
        if sleepers.followers > 0 {
            self.done.notify_all();
        }
        if sleepers.leaders > 0 {
            self.leader_woken.notify_all();
        }
    }
}

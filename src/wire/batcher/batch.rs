//! The commands that one leader takes to the server, and their outcomes.

use std::io;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::batcher::pending::{BatchEntry, CallOutcome, PendingBatch};
use crate::wire::batcher::queue::Batcher;
use crate::wire::failure::{Failure, NotSentReason};

/// Takes batches to the server and back: the pool, except in tests.
pub(crate) trait BatchSender {
    /// Until when a caller that came then waits for a connection, as things stand.
    fn limit(&self, start: Moment) -> Moment;

    /// Why there was no connection for a caller that waited for this long.
    fn shortage(&self, waited: Duration) -> NotSentReason;

    /// Takes a batch to the server and back. A failure befalls all in it that have no outcome.
    fn send(&self, batch: &mut Batch<'_>) -> Result<(), Failure>;
}

/// How long a caller has, and how its command is sent.
#[derive(Clone, Copy)]
pub(super) struct CallerTime<'a> {
    pub(super) start: Moment,
    pub(super) deadline: Moment,
    pub(super) sender: &'a dyn BatchSender,
}

impl CallerTime<'_> {
    /// Until when it waits for a connection, as things stand.
    pub(super) fn limit(&self) -> Moment {
        self.deadline.min(self.sender.limit(self.start))
    }

    pub(super) fn shortage(&self, now: Moment) -> Failure {
        Failure::NotSent(self.sender.shortage(now.since(self.start)))
    }
}

/// What one leader takes to the server: its own command first, then those of its batch.
pub(crate) struct Batch<'a> {
    batcher: &'a Batcher,
    /// The batch and the leader's entry. A caller that goes alone has none.
    pending: Option<(&'a Arc<PendingBatch>, usize)>,
    packed: Vec<u8>,
    span: CallerTime<'a>,
    /// When the last reply must be there.
    deadline: Moment,
    sealed: bool,
    /// The entries of others that were sent.
    others: Vec<usize>,
    /// The outcomes as far as they came: the leader's, and those of the others.
    own: Option<CallOutcome>,
    outcomes: Vec<CallOutcome>,
    failure: Option<Failure>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        batcher: &'a Batcher,
        packed: Vec<u8>,
        span: CallerTime<'a>,
        pending: Option<(&'a Arc<PendingBatch>, usize)>,
    ) -> Batch<'a> {
        Batch {
            batcher,
            pending,
            packed,
            span,
            deadline: span.deadline,
            sealed: false,
            others: Vec::new(),
            own: None,
            outcomes: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn run(mut self) -> CallOutcome {
        self.failure = self.span.sender.send(&mut self).err();
        self.own.take().unwrap_or_else(|| Err(self.failure()))
    }

    /// Since when a connection is waited for, and until when that makes sense at all.
    pub(super) fn span(&self) -> (Moment, Moment) {
        (self.span.start, self.span.deadline)
    }

    /// Takes along the entries that wait, now that there is a connection. Returns what is to be sent, how many
    /// commands that is, and when the last reply must be there.
    pub(super) fn seal(&mut self) -> (&[u8], usize, Moment) {
        self.sealed = true;
        if let Some((pending, own)) = self.pending {
            let now = self.batcher.clock.now();
            let mut entries = pending.entries.lock();
            entries.all[own] = BatchEntry::Sent;
            for (number, entry) in entries.all.iter_mut().enumerate() {
                // What is overdue goes by itself.
                if let BatchEntry::Waiting { packed, deadline } = entry
                    && *deadline > now
                {
                    self.packed.extend_from_slice(packed);
                    self.deadline = self.deadline.max(*deadline);
                    self.others.push(number);
                    *entry = BatchEntry::Sent;
                }
            }
        }
        (&self.packed, 1 + self.others.len(), self.deadline)
    }

    /// The outcome of the next command, in the order in which they are sent.
    pub(super) fn push_outcome(&mut self, outcome: CallOutcome) {
        match self.own {
            None => self.own = Some(outcome),
            Some(_) => self.outcomes.push(outcome),
        }
    }

    /// What befalls all that have no outcome.
    fn failure(&self) -> Failure {
        self.failure.clone().unwrap_or_else(panicked)
    }

    /// Hands everybody in the batch the outcome.
    fn deliver(&mut self, pending: &PendingBatch) {
        let mut entries = pending.entries.lock();
        let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
        for &number in &self.others {
            let outcome = outcomes.next().unwrap_or_else(|| Err(self.failure()));
            if let entry @ BatchEntry::Sent = &mut entries.all[number] {
                *entry = BatchEntry::Done(outcome);
            }
        }
    }

    /// Leaves the batch without having got a connection.
    fn abandon(&mut self, pending: &Arc<PendingBatch>, own: usize) {
        // Others may have the time that the leader had not. What else fails would fail for them.
        let had_time = self.batcher.clock.now() < self.span.limit();
        let mut queue = self.batcher.queue.lock();
        let mut entries = pending.entries.lock();
        entries.all[own] = BatchEntry::Abandoned;
        if !had_time && self.failure.is_some() && entries.elect() {
            queue.batches.push_front(Arc::clone(pending));
            return;
        }
        for entry in &mut entries.all {
            if let BatchEntry::Waiting { .. } = entry {
                *entry = BatchEntry::Done(Err(self.failure()));
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some((pending, own)) = self.pending {
            if self.sealed {
                self.deliver(pending);
            } else {
                self.abandon(pending, own);
            }
            pending.wake();
        }
        let mut queue = self.batcher.queue.lock();
        queue.taken -= 1;
        self.batcher.wake_leader(&queue);
    }
}

/// The leader did not come back: its thread panicked.
pub(super) fn panicked() -> Failure {
    Failure::Unknown(io::Error::other("the thread that had sent the command panicked").into())
}

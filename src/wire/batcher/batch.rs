//! What one leader takes to the server, and brings back to those in its pending.

use std::io;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::batcher::pending::{BatchEntry, Outcome, PendingBatch};
use crate::wire::batcher::queue::{BatchQueue, Span};
use crate::wire::connection::Connection;
use crate::wire::failure::Failure;

/// What one leader takes to the server: its own command first, then those of its pending.
pub(crate) struct Batch<'a> {
    queue: &'a BatchQueue,
    /// The pending and the leader's entry. A caller that goes alone has none.
    pending: Option<(&'a Arc<PendingBatch>, usize)>,
    packed: Vec<u8>,
    span: Span<'a>,
    /// When the last reply must be there.
    deadline: Moment,
    sealed: bool,
    own: Option<Outcome>,
    /// The other entries that were sent, and their outcomes as far as they came.
    others: Vec<usize>,
    outcomes: Vec<Outcome>,
    failure: Option<Failure>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        queue: &'a BatchQueue,
        packed: Vec<u8>,
        span: Span<'a>,
        pending: Option<(&'a Arc<PendingBatch>, usize)>,
    ) -> Batch<'a> {
        Batch {
            queue,
            pending,
            packed,
            span,
            deadline: span.deadline,
            sealed: false,
            own: None,
            others: Vec::new(),
            outcomes: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn run(mut self, carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>) -> Outcome {
        self.failure = carry(&mut self).err();
        self.own.take().unwrap_or_else(|| Err(self.failure.clone().unwrap_or_else(abandoned)))
    }

    /// Since when a connection is waited for, and until when that makes sense at all.
    pub(crate) fn span(&self) -> (Moment, Moment) {
        (self.span.start, self.span.deadline)
    }

    /// Takes along who waits, now that there is a connection. Answers what is to be sent, how many
    /// commands that is, and when the last answer must be there.
    pub(super) fn seal(&mut self) -> (&[u8], usize, Moment) {
        self.sealed = true;
        if let Some((pending, own)) = self.pending {
            let now = self.queue.clock.now();
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

    /// Takes all of it to the server and back. A failure befalls all in it that were told nothing.
    pub(crate) fn exchange(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let (packed, count, deadline) = self.seal();
        connection.send(packed, count, deadline)?;
        connection.receive_each(deadline, |outcome| self.tell(outcome))
    }

    /// The outcome of the next command, in the order in which they are sent.
    pub(super) fn tell(&mut self, outcome: Outcome) {
        match self.own {
            None => self.own = Some(outcome),
            Some(_) => self.outcomes.push(outcome),
        }
    }

    /// Hands everybody in the pending the outcome.
    fn arrive(&mut self, pending: &Arc<PendingBatch>) {
        let mut entries = pending.entries.lock();
        let mut outcomes = self.outcomes.drain(..);
        for &number in &self.others {
            let missing = || Err(self.failure.clone().unwrap_or_else(abandoned));
            let outcome = outcomes.next().unwrap_or_else(missing);
            if let entry @ BatchEntry::Sent = &mut entries.all[number] {
                *entry = BatchEntry::Done(outcome);
            }
        }
    }

    /// Leaves the pending without having got a connection.
    fn abandon(&mut self, pending: &Arc<PendingBatch>, own: usize) {
        let mut queue = self.queue.state.lock();
        let mut entries = pending.entries.lock();
        entries.all[own] = BatchEntry::Abandoned;
        // Others may have the time that the leader had not. What else fails would fail for them.
        let had_time = self.queue.clock.now() < self.span.limit();
        if !had_time && self.failure.is_some() && entries.elect() {
            queue.batches.push_front(Arc::clone(pending));
            return;
        }
        for entry in &mut entries.all {
            if let BatchEntry::Waiting { .. } = entry {
                *entry = BatchEntry::Done(Err(self.failure.clone().unwrap_or_else(abandoned)));
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some((pending, own)) = self.pending {
            if self.sealed {
                self.arrive(pending);
            } else {
                self.abandon(pending, own);
            }
            pending.wake();
        }
        let mut queue = self.queue.state.lock();
        queue.taken -= 1;
        self.queue.wake_leader(&queue);
    }
}

/// The leader did not come back: its thread panicked.
pub(super) fn abandoned() -> Failure {
    Failure::Unknown(io::Error::other("the thread that had sent the command panicked").into())
}

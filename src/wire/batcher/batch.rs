//! The commands that one leader sends, and their outcomes.

use std::io;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::batcher::pending::{BatchEntry, CallOutcome, Entries, PendingBatch, Sleepers};
use crate::wire::batcher::queue::Batcher;
use crate::wire::failure::{Failure, NotSentReason};

/// Sends batches and receives their replies: the pool, except in tests.
pub(crate) trait BatchSender {
    /// How long a caller that came at `start` waits for a connection, as things stand.
    fn limit(&self, start: Moment) -> Moment;

    /// Why there was no connection for a caller that waited for this long.
    fn shortage(&self, waited: Duration) -> NotSentReason;

    /// Sends a batch and receives the replies. A failure becomes the outcome of all entries without
    /// one.
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
    /// How long it waits for a connection, as things stand.
    pub(super) fn limit(&self) -> Moment {
        self.deadline.min(self.sender.limit(self.start))
    }

    pub(super) fn shortage(&self, now: Moment) -> Failure {
        // One that came after its deadline has waited for nothing.
        Failure::NotSent(match self.deadline <= self.start {
            true => NotSentReason::DeadlinePassed,
            false => self.sender.shortage(now.since(self.start)),
        })
    }
}

/// The commands of one leader: its own first, then those of its batch.
pub(crate) struct Batch<'a> {
    batcher: &'a Batcher,
    /// The batch, and the number of the leader's entry. `None` for a caller that goes alone.
    pending: Option<(&'a Arc<PendingBatch>, usize)>,
    /// The leader's command.
    command: &'a [u8],
    /// All commands, the leader's first; empty if there is no other.
    packed: Vec<u8>,
    span: CallerTime<'a>,
    /// The latest deadline of all entries.
    deadline: Moment,
    sealed: bool,
    /// How many callers are gone when it ends.
    callers: usize,
    /// The entries of others that were sent.
    others: Vec<usize>,
    /// The outcomes so far: the leader's, and those of the others.
    own: Option<CallOutcome>,
    outcomes: Vec<CallOutcome>,
    failure: Option<Failure>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        batcher: &'a Batcher,
        command: &'a [u8],
        span: CallerTime<'a>,
        pending: Option<(&'a Arc<PendingBatch>, usize)>,
    ) -> Batch<'a> {
        Batch {
            batcher,
            pending,
            command,
            packed: Vec::new(),
            span,
            deadline: span.deadline,
            sealed: false,
            callers: 1,
            others: Vec::new(),
            own: None,
            outcomes: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn run(mut self) -> CallOutcome {
        // Whatever `send` does, the drop of this value hands out the outcomes and returns the
        // place: also after a panic, such as that of a user's logger, with 31 threads waiting.
        self.failure = self.span.sender.send(&mut self).err();
        self.own.take().unwrap_or_else(|| Err(self.failure()))
    }

    /// Since when the leader waits for a connection, and its deadline.
    pub(super) fn span(&self) -> (Moment, Moment) {
        (self.span.start, self.span.deadline)
    }

    /// Adds the waiting entries, now that there is a connection. Returns the bytes to send, the
    /// number of commands, and the latest deadline.
    pub(crate) fn seal(&mut self) -> (&[u8], usize, Moment) {
        self.sealed = true;
        if let Some((pending, own)) = self.pending {
            // Only now, and not when the batch got its place: while the leader waited for a
            // connection, others have given up, and their commands must not be sent. It may run
            // again on a second connection, and then finds those that it has marked as sent in
            // `packed` already.
            let now = self.batcher.clock.now();
            let mut entries = pending.entries.lock();
            self.callers = entries.all.len();
            let Entries { all, commands, .. } = &mut *entries;
            all[own] = BatchEntry::Sent;
            for (number, entry) in all.iter_mut().enumerate() {
                // An overdue one stays. Its caller is about to give up and to report that nothing
                // was sent.
                if let BatchEntry::Waiting { command, deadline } = entry
                    && *deadline > now
                {
                    if self.packed.is_empty() {
                        self.packed.reserve_exact(self.command.len() + commands.len());
                        self.packed.extend_from_slice(self.command);
                    }
                    self.packed.extend_from_slice(&commands[command.clone()]);
                    self.deadline = self.deadline.max(*deadline);
                    self.others.push(number);
                    *entry = BatchEntry::Sent;
                }
            }
        }
        // With the latest deadline: the leader may have to read replies of others after its own has
        // come. By `Entries::enter` that is no more than `SLACK` later than its own deadline.
        let packed = if self.packed.is_empty() { self.command } else { &self.packed };
        (packed, 1 + self.others.len(), self.deadline)
    }

    /// Adds the outcome of the next command, in the order of sending.
    pub(crate) fn push_outcome(&mut self, outcome: CallOutcome) {
        match self.own {
            None => self.own = Some(outcome),
            Some(_) => self.outcomes.push(outcome),
        }
    }

    /// The outcome of all entries without one.
    fn failure(&self) -> Failure {
        self.failure.clone().unwrap_or_else(panicked)
    }

    /// Gives each entry its outcome. Returns who sleeps.
    fn deliver(&mut self, pending: &PendingBatch) -> Sleepers {
        let mut entries = pending.entries.lock();
        let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
        for &number in &self.others {
            let outcome = outcomes.next().unwrap_or_else(|| Err(self.failure()));
            // Not if its caller has reached its deadline and left: nobody would take the outcome
            // out again.
            if let entry @ BatchEntry::Sent = &mut entries.all[number] {
                *entry = BatchEntry::Done(outcome);
            }
        }
        entries.sleepers
    }

    /// Leaves the batch without a connection. Returns who sleeps.
    fn abandon(&mut self, pending: &Arc<PendingBatch>, own: usize) -> Sleepers {
        // If only the leader's time was over, somebody with more time may go on. Any other failure,
        // such as a refused connection, is that of the others as well: each of them would meet it
        // in turn.
        let had_time = self.batcher.clock.now() < self.span.limit();
        let mut queue = self.batcher.queue.lock();
        let mut entries = pending.entries.lock();
        entries.all[own] = BatchEntry::Abandoned;
        if !had_time && self.failure.is_some() && entries.elect() {
            // In front, because it was first before. All of its callers count until it ends.
            self.callers = 0;
            queue.batches.push_front(Arc::clone(pending));
            return entries.sleepers;
        }
        self.callers = entries.all.len();

        for entry in &mut entries.all {
            if let BatchEntry::Waiting { .. } = entry {
                *entry = BatchEntry::Done(Err(self.failure()));
            }
        }
        entries.sleepers
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some((pending, own)) = self.pending {
            let sleepers =
                if self.sealed { self.deliver(pending) } else { self.abandon(pending, own) };
            pending.wake(sleepers);
        }
        // Last of all. The place is returned when the batch is either delivered or back in the
        // queue: the leader that is woken for it must be that of the first batch.
        let mut queue = self.batcher.queue.lock();
        queue.taken -= 1;
        queue.callers -= self.callers;
        // Notified without the lock, which it takes first of all.
        let next = self.batcher.leader_to_wake(&queue).cloned();
        drop(queue);
        if let Some(next) = next {
            next.leader_woken.notify_all();
        }
    }
}

/// The outcome of an entry whose leader panicked.
pub(super) fn panicked() -> Failure {
    // Unknown, because the panic may have come after the write.
    Failure::Unknown(io::Error::other("the thread that had sent the command panicked").into())
}

//! Commands that threads send at the same moment travel together.
//!
//! A caller that finds a place free goes alone. While the places are taken, callers gather in a
//! *pending*. Whoever has a place and a pending *leads*: it borrows a connection, sends the commands of
//! all in one write, reads the answers in order, and wakes all at once. That is the first in the
//! pending, when a place comes free, or a newcomer that finds place and pending before. Nobody works for
//! others beyond the one exchange that its own command needs.
//!
//! | a entry is | its caller waits | then it is |
//! | --- | --- | --- |
//! | waiting | for the pending to leave | sent; told, if no connection can be made; gone at its limit, which is *not sent* |
//! | sent | for its answer | told; gone at its deadline, which is *unknown* |
//! | told | no longer: it has its outcome | gone |
//!
//! | a pending is | where | then it is |
//! | --- | --- | --- |
//! | gathering | in the queue, where only the last may be entered | driven; dissolved, when no entry waits |
//! | driven | with its leader | left: sent, or told; gathering, if its leader had no time for a connection and others have |
//!
//! A pending takes nobody with more time than its leader, so that it is never the leader's deadline
//! that ends another's wait; a leader whose time is over hands on to whoever has the most.
//!
//! While any pending gathers, all `FEW` places are taken or the leader of the first was *leader_woken*:
//! by whoever gave a place back, drove the pending before, or dissolved it. Few places, because a
//! larger pending saves more than one more connection does. But a leader that waited for a [`TURN`]
//! takes one besides: a connection that died unnoticed must hold up only those on it.

mod batch;
mod pending;
mod queue;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::sync::{Arc, crowd};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::batch::abandoned;
use crate::wire::batcher::pending::{BatchEntry, Outcome, PendingBatch};
use crate::wire::batcher::queue::{BatchQueue, Span};
use crate::wire::connection::is_no_script;
use crate::wire::failure::{Failure, Hindrance, Shortage};
use crate::wire::script::Call;

pub(crate) use batch::Batch;

/// How long a leader waits for a place until it takes one besides.
const TURN: Duration = Duration::from_millis(5);

/// Where the callers of one pool meet.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: BatchQueue,
    turn: Duration,
}

/// What a leader without a place has to do.
enum Step {
    Lead(Vec<u8>),
    Leave,
    Wait,
}

impl Batcher {
    /// For a pool of so many connections.
    pub(crate) fn new(clock: Arc<dyn Clock>, size: u32) -> Batcher {
        Batcher { queue: BatchQueue::new(clock, size), turn: TURN }
    }

    /// One command and its answer. `limit` tells until when a caller that came then waits for a connection, as
    /// things stand. `carry` takes a batch to the server; a failure that it answers befalls all in the batch that
    /// were told nothing.
    pub(crate) fn call(
        &self,
        call: &Call,
        deadline: Moment,
        limit: &dyn Fn(Moment) -> Moment,
        carry: impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let span = Span { start: self.queue.clock.now(), deadline, limit };
        match self.call_once(call.pack(), span, &carry) {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call_once(whole.pack(), span, &carry),
                None => Err(Failure::Refused(error)),
            },
            outcome => outcome,
        }
    }

    fn call_once(
        &self,
        mut packed: Vec<u8>,
        span: Span<'_>,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let deadline = span.deadline;
        let mut queue = self.queue.state.lock();
        if queue.batches.is_empty() && self.queue.has_place(&queue) {
            queue.taken += 1;
            drop(queue);
            return Batch::new(&self.queue, packed, span, None).run(carry);
        }
        if let Some(pending) = queue.batches.back().cloned() {
            let mut entries = pending.entries.lock();
            if let Some(number) = entries.enter(&mut packed, deadline) {
                // Who runs already need not wait until the one that was leader_woken has woken up.
                let leads = queue.batches.len() == 1 && deadline >= entries.deadline;
                if leads && self.queue.has_place(&queue) {
                    (entries.leader, entries.deadline) = (number, deadline);
                    let packed = self.queue.start(&mut queue, &pending, &mut entries);
                    drop((entries, queue));
                    let pending = Some((&pending, number));
                    return Batch::new(&self.queue, packed, span, pending).run(carry);
                }
                drop((entries, queue));
                return self.wait(&pending, number, span, carry);
            }
        }
        let pending = PendingBatch::new(packed, deadline, self.queue.clock.now().after(self.turn));
        queue.batches.push_back(Arc::clone(&pending));
        drop(queue);
        self.wait(&pending, 0, span, carry)
    }

    /// Waits in a pending, and leads it if that falls to this caller.
    fn wait(
        &self,
        pending: &Arc<PendingBatch>,
        number: usize,
        span: Span<'_>,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let Span { start, deadline, .. } = span;
        let mut now = self.queue.clock.now();
        let mut limit = span.limit();
        let mut entries = pending.entries.lock();
        let mut look = limit.min(entries.turn);
        loop {
            if now >= limit {
                // It waits for something else by now, for which there is another bound.
                limit = span.limit();
                look = look.max(limit.min(entries.turn));
            }
            let leads = entries.leader == number;
            let steps = leads && (entries.leader_woken || now >= look);
            let until = match &mut entries.all[number] {
                BatchEntry::Waiting { .. } if steps => {
                    entries.leader_woken = false;
                    drop(entries);
                    match self.step(pending, number, now, limit) {
                        Step::Lead(packed) => {
                            let pending = Some((pending, number));
                            return Batch::new(&self.queue, packed, span, pending).run(carry);
                        }
                        Step::Leave => return Err(exhausted(now.since(start))),
                        Step::Wait => {}
                    }
                    if now >= look {
                        look = limit;
                    }
                    // What came in between had nobody to wake.
                    entries = pending.entries.lock();
                    continue;
                }
                BatchEntry::Waiting { .. } if leads => look,
                entry @ BatchEntry::Waiting { .. } if now >= limit => {
                    *entry = BatchEntry::Abandoned;
                    return Err(exhausted(now.since(start)));
                }
                BatchEntry::Waiting { .. } => limit,
                entry @ BatchEntry::Sent if now >= deadline => {
                    *entry = BatchEntry::Abandoned;
                    return Err(Failure::silent());
                }
                BatchEntry::Sent => deadline,
                entry @ (BatchEntry::Done(_) | BatchEntry::Abandoned) => {
                    let told = std::mem::replace(entry, BatchEntry::Abandoned);
                    return if let BatchEntry::Done(outcome) = told {
                        outcome
                    } else {
                        Err(abandoned())
                    };
                }
            };
            let woken = if leads { &pending.leader_woken } else { &pending.told };
            entries = crowd::wait_for(woken, entries, until.since(now));
            now = self.queue.clock.now();
        }
    }

    /// Looks for a place for a leader, or lets it go if its time is over.
    fn step(&self, pending: &Arc<PendingBatch>, number: usize, now: Moment, limit: Moment) -> Step {
        let mut queue = self.queue.state.lock();
        let mut entries = pending.entries.lock();
        let gathers = queue.batches.iter().any(|other| Arc::ptr_eq(other, pending));
        if !gathers || entries.leader != number {
            return Step::Wait;
        }
        if now >= limit {
            entries.all[number] = BatchEntry::Abandoned;
            if entries.elect() {
                drop(entries);
                pending.wake();
            } else {
                drop(entries);
                queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
                self.queue.wake_leader(&queue);
            }
            return Step::Leave;
        }
        if queue.taken >= self.queue.places(&entries, now) {
            return Step::Wait;
        }
        Step::Lead(self.queue.start(&mut queue, pending, &mut entries))
    }
}

fn exhausted(waited: Duration) -> Failure {
    Failure::NotSent(Hindrance::Exhausted(Shortage { waited, pool: None }))
}

//! Commands that threads send at the same moment travel together.
//!
//! A caller that finds a place free goes alone. While the places are taken, callers gather in a pending
//! batch. A caller with a place and a batch *leads*: it borrows a connection, sends the commands of all in one
//! write, reads the replies in order, and wakes all at once. The first caller of a batch leads it when a place
//! comes free, or a newcomer that finds place and batch before. Nobody works for others beyond the one exchange
//! that its own command needs.
//!
//! | an entry is | its caller waits | then it is |
//! | --- | --- | --- |
//! | waiting | for the batch to leave | sent; done, if no connection can be made; abandoned at its limit, which is *not sent* |
//! | sent | for its reply | done; abandoned at its deadline, which is *unknown* |
//! | done | no longer: it has its outcome | abandoned |
//!
//! | a batch is | where | then it is |
//! | --- | --- | --- |
//! | gathering | in the queue, where only the last may be entered | led; dissolved, when no entry waits |
//! | led | with its leader | left: sent, or done; gathering, if its leader had no time for a connection and others have |
//!
//! A batch takes nobody with more time than its leader, so that the leader's deadline never ends another's
//! wait. A leader whose time is over hands on to the caller that has the most.
//!
//! While any batch gathers, all `FEW` places are taken or the leader of the first was woken: by the caller
//! that gave a place back, led the batch before, or dissolved it. Few places, because a larger batch saves more
//! than one more connection does. But a leader that waited for its turn takes one besides: a connection that
//! died unnoticed must hold up only those on it.

mod batch;
mod pending;
mod pool_sender;
mod queue;
#[cfg(test)]
mod tests;

use self::batch::{Batch, BatchSender, CallerTime};
use self::pending::{BatchEntry, CallOutcome, PendingBatch};
pub(crate) use self::queue::Batcher;
use crate::base::sync::{Arc, contended};
use crate::base::time::Moment;
use crate::wire::connection::is_no_script;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

impl Batcher {
    /// One command and its reply.
    pub(crate) fn call(
        &self,
        call: &Call,
        deadline: Moment,
        sender: &dyn BatchSender,
    ) -> CallOutcome {
        let span = CallerTime { start: self.clock.now(), deadline, sender };
        match self.call_once(call.pack(), span) {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call_once(whole.pack(), span),
                None => Err(Failure::Refused(error)),
            },
            outcome => outcome,
        }
    }

    fn call_once(&self, mut packed: Vec<u8>, span: CallerTime<'_>) -> CallOutcome {
        let mut queue = self.queue.lock();
        if queue.batches.is_empty() && queue.taken < self.few {
            queue.taken += 1;
            drop(queue);
            return Batch::new(self, packed, span, None).run();
        }
        if let Some(pending) = queue.batches.back().cloned() {
            let mut entries = pending.entries.lock();
            if let Some(number) = entries.enter(&mut packed, span.deadline) {
                // This thread runs already, and need not wait until the leader has woken up.
                let leads = queue.batches.len() == 1 && span.deadline >= entries.deadline;
                if leads && queue.taken < self.few {
                    (entries.leader, entries.deadline) = (number, span.deadline);
                    let packed = self.start(&mut queue, &pending, &mut entries);
                    drop((entries, queue));
                    return Batch::new(self, packed, span, Some((&pending, number))).run();
                }
                drop((entries, queue));
                return self.wait(&pending, number, span);
            }
        }
        let turn = self.clock.now().after(self.turn);
        let pending = PendingBatch::new(packed, span.deadline, turn);
        queue.batches.push_back(Arc::clone(&pending));
        drop(queue);
        self.wait(&pending, 0, span)
    }

    /// Waits in a batch, and leads it if that falls to this caller.
    fn wait(
        &self,
        pending: &Arc<PendingBatch>,
        number: usize,
        span: CallerTime<'_>,
    ) -> CallOutcome {
        let mut now = self.clock.now();
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
                    if let Some(outcome) = self.step(pending, number, span, (now, limit)) {
                        return outcome;
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
                    drop(entries);
                    return Err(span.shortage(now));
                }
                BatchEntry::Waiting { .. } => limit,
                entry @ BatchEntry::Sent if now >= span.deadline => {
                    *entry = BatchEntry::Abandoned;
                    return Err(Failure::silent());
                }
                BatchEntry::Sent => span.deadline,
                entry @ (BatchEntry::Done(_) | BatchEntry::Abandoned) => {
                    return match std::mem::replace(entry, BatchEntry::Abandoned) {
                        BatchEntry::Done(outcome) => outcome,
                        _ => Err(batch::panicked()),
                    };
                }
            };
            let woken = if leads { &pending.leader_woken } else { &pending.done };
            entries = contended::wait_for(woken, entries, until.since(now));
            now = self.clock.now();
        }
    }

    /// Leads if there is a place, or leaves if its time is over. `None` if it has to wait on.
    fn step(
        &self,
        pending: &Arc<PendingBatch>,
        number: usize,
        span: CallerTime<'_>,
        (now, limit): (Moment, Moment),
    ) -> Option<CallOutcome> {
        let mut queue = self.queue.lock();
        let mut entries = pending.entries.lock();
        let gathers = queue.batches.iter().any(|other| Arc::ptr_eq(other, pending));
        if !gathers || entries.leader != number {
            return None;
        }
        if now >= limit {
            entries.all[number] = BatchEntry::Abandoned;
            let others_wait = entries.elect();
            drop(entries);
            if others_wait {
                pending.wake();
            } else {
                queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
                self.wake_leader(&queue);
            }
            drop(queue);
            return Some(Err(span.shortage(now)));
        }
        if queue.taken >= self.places(&entries, now) {
            return None;
        }
        let packed = self.start(&mut queue, pending, &mut entries);
        drop((entries, queue));
        Some(Batch::new(self, packed, span, Some((pending, number))).run())
    }
}

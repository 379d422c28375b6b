//! Sends the commands of many threads in one write.
//!
//! A caller that finds a free place goes alone. While all places are taken, callers gather in a
//! pending batch. A caller with a place and a batch *leads*: it borrows a connection, sends all
//! commands in one write, reads the replies in order, and wakes all at once. The first caller of a
//! batch leads it when a place becomes free, unless a newcomer finds both the place and the batch
//! before. Nobody works for others beyond the one exchange that its own command needs.
//!
//! | an entry is | its caller waits | then it is |
//! | --- | --- | --- |
//! | waiting | for the batch to leave | sent; done, if no connection can be made; abandoned at its limit, which is *not sent* |
//! | sent | for its reply | done; abandoned at its deadline, which is *unknown* |
//! | done | no longer: it has its outcome | abandoned |
//!
//! | a batch is | where | then it is |
//! | --- | --- | --- |
//! | gathering | in the queue, where callers may enter only the last one | led; dissolved, when no entry waits |
//! | led | with its leader | gone: sent, or done; gathering, if its leader had no time for a connection and others have |
//!
//! A batch accepts nobody with more time than its leader, so that the leader's deadline never ends
//! another's wait. A leader whose time is over hands the batch to the caller with the most time.
//!
//! While any batch gathers, at least `FEW` places are taken, or the leader of the first batch was
//! woken: by the caller that returned a place, led the batch before, or dissolved it. A crowd of
//! callers has few places, because a larger batch saves it more than another connection does; up to
//! `EACH` callers have one each. A leader that has waited for its turn takes a place above those few,
//! too: a connection that died unnoticed must hold up only the commands on it.

mod batch;
mod pending;
mod pool_sender;
mod queue;
#[cfg(test)]
mod tests;

use self::batch::CallerTime;
pub(crate) use self::batch::{Batch, BatchSender};
use self::pending::{BatchEntry, CallOutcome, PendingBatch};
pub(crate) use self::queue::Batcher;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::connection::is_no_script;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

impl Batcher {
    /// Sends one command and waits for its reply.
    pub(crate) fn call(
        &self,
        call: &Call,
        deadline: Moment,
        sender: &dyn BatchSender,
    ) -> CallOutcome {
        let span = CallerTime { start: self.clock.now(), deadline, sender };
        // Repeated as a command of its own, behind those that wait. Its leader could not do it: to
        // send more after the batch would hold up everybody in that.
        match self.call_once(call.packed(), span) {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call_once(whole.packed(), span),
                None => Err(Failure::Refused(error)),
            },
            outcome => outcome,
        }
    }

    fn call_once(&self, command: &[u8], span: CallerTime<'_>) -> CallOutcome {
        let mut queue = self.queue.lock();
        queue.count_caller();
        // The usual way, without a batch and without an allocation. Not while a batch waits: this
        // caller would overtake it, and a steady stream of such callers would starve it.
        if queue.batches.is_empty() && queue.taken < self.usual_places(&queue) {
            queue.taken += 1;
            drop(queue);
            return Batch::new(self, command, span, None).run();
        }
        // Only the last: an earlier one was full, or its leader had less time than somebody after
        // it. To fill it up later would let this caller overtake others. The queue stays locked, so
        // that the batch cannot leave between being found and being entered.
        if let Some(pending) = queue.batches.back().cloned() {
            let mut entries = pending.entries.lock();
            if let Some(number) = entries.enter(command, span.deadline) {
                // The leader that was woken is a sleeping thread, and this one runs. It leads if
                // the place is still free, and if nobody in the batch has more time than it has.
                let leads = queue.batches.len() == 1 && span.deadline >= entries.deadline;
                if leads && queue.taken < self.usual_places(&queue) {
                    (entries.leader, entries.deadline) = (number, span.deadline);
                    self.start(&mut queue, &pending);
                    drop((entries, queue));
                    return Batch::new(self, command, span, Some((&pending, number))).run();
                }
                drop((entries, queue));
                return self.wait(&pending, (number, command), span);
            }
        }

        let turn = self.clock.now().after(self.turn);
        let pending = PendingBatch::new(command, span.deadline, turn);
        queue.batches.push_back(Arc::clone(&pending));
        drop(queue);
        self.wait(&pending, (0, command), span)
    }

    /// Waits in a batch, and leads it if this caller becomes its leader.
    fn wait(
        &self,
        pending: &Arc<PendingBatch>,
        (number, command): (usize, &[u8]),
        span: CallerTime<'_>,
    ) -> CallOutcome {
        let mut now = self.clock.now();
        let mut limit = span.limit();
        let mut entries = pending.entries.lock();
        // When the leader looks for a place although nobody woke it: at its turn. From then on it
        // may take a place above the few. Such a place is free without anybody returning it, so no
        // wake-up announces it.
        let mut look = limit.min(entries.turn);
        loop {
            if now >= limit {
                // The pool may have changed since: what was a wait for a new connection may now be
                // one for a used connection, with a later limit.
                limit = span.limit();
                look = look.max(limit.min(entries.turn));
            }

            // Read at each step: a newcomer may have taken the lead, or a leader without time have
            // handed it over.
            let leads = entries.leader == number;
            let steps = leads && (entries.leader_woken || now >= look);
            let until = match &mut entries.all[number] {
                BatchEntry::Waiting { .. } if steps => {
                    // Taken back before the look, not after it. A place that becomes free during
                    // the look sets it again, and the next round sees that; reset afterwards, the
                    // wake-up would be lost. The entries are released first, because the queue is
                    // locked before them.
                    entries.leader_woken = false;
                    drop(entries);
                    if let Some(outcome) = self.step(pending, (number, command), span, (now, limit))
                    {
                        return outcome;
                    }
                    // Its turn has come, and all places are taken. From here on a returned place
                    // wakes it; to look again at once would spin.
                    if now >= look {
                        look = limit;
                    }
                    // Not straight to the wait: between the look and this lock the entry may have
                    // been sent, or the leader woken, and nobody was there to be notified.
                    entries = pending.entries.lock();
                    continue;
                }
                BatchEntry::Waiting { .. } if leads => look,
                entry @ BatchEntry::Waiting { .. } if now >= limit => {
                    // Marked under the lock that `seal` takes: so it is certain that nothing was
                    // sent.
                    *entry = BatchEntry::Abandoned;
                    drop(entries);
                    return Err(span.shortage(now));
                }
                BatchEntry::Waiting { .. } => limit,
                // At its own deadline, although the leader may wait longer for others in the batch.
                // The reply may still come, and is dropped then.
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

            entries = pending.wait(entries, leads, until.since(now));
            now = self.clock.now();
        }
    }

    /// Leads if there is a place, or leaves if its time is over. `None` if it must go on waiting.
    fn step(
        &self,
        pending: &Arc<PendingBatch>,
        (number, command): (usize, &[u8]),
        span: CallerTime<'_>,
        (now, limit): (Moment, Moment),
    ) -> Option<CallOutcome> {
        let mut queue = self.queue.lock();
        let mut entries = pending.entries.lock();
        let gathers = queue.batches.iter().any(|other| Arc::ptr_eq(other, pending));
        // Between the caller's look at its entry and these locks a newcomer may have led the batch
        // away, or become its leader.
        if !gathers || entries.leader != number {
            return None;
        }
        if now >= limit {
            entries.all[number] = BatchEntry::Abandoned;
            let others_wait = entries.elect();
            let (callers, sleepers) = (entries.all.len(), entries.sleepers);
            drop(entries);
            // The new leader waits where followers do, so all are woken. If nobody is left, the
            // next batch must not wait for a wake-up that this one can no longer pass on.
            if others_wait {
                pending.wake(sleepers);
            } else {
                queue.batches.retain(|other| !Arc::ptr_eq(other, pending));
                queue.callers -= callers;
                self.wake_leader(&queue);
            }
            drop(queue);
            return Some(Err(span.shortage(now)));
        }

        if queue.taken >= self.places(&queue, &entries, now) {
            return None;
        }
        self.start(&mut queue, pending);
        drop((entries, queue));
        Some(Batch::new(self, command, span, Some((pending, number))).run())
    }
}

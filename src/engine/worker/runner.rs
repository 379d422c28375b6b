//! The worker's thread: what it does in a turn, and for how long it sleeps.

use std::fmt;
use std::time::Duration;

use crate::base::panic::catch_panic;
use crate::base::sync::channel::{Receiver, RecvTimeoutError};
use crate::base::sync::{self, Arc};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{Callbacks, Notification};
use crate::engine::heartbeat::DEAD_AFTER;
use crate::engine::lease::HeldLease;
use crate::engine::ownership::taken_by_wrong_type;
use crate::engine::worker::report::Report;
use crate::engine::worker::scheduled_task::{RenewableSlot, ScheduledTask, TimedTask};
use crate::engine::worker::task_queue::TaskQueue;
use crate::engine::worker::worker_request::{LONGEST_RETRY, SHORTEST_RETRY, WorkerRequest};
use crate::protocol::Protocol;
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::reply::OwnershipReply;
use crate::wire::failure::Failure;

/// A renewal waits for its answer for this share of the validity that is left, and can then be tried
/// again: of 300 ms that leaves three tries, even where none is answered.
const RENEWAL_TRIES: u32 = 2;
/// What may take up to this many times as long travels together.
const MAX_TIMEOUT_RATIO: u32 = 4;

/// What is named where one piece of work panics.
const PART: &str = "the renewal worker, which goes on with other locks,";

/// The worker's thread.
pub(super) struct Runner {
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) exchange: Duration,
    pub(super) callbacks: Callbacks,
    pub(super) threads: Threads,
    pub(super) wake_receiver: Receiver<()>,
    pub(super) task_queue: Arc<TaskQueue>,
    /// What is being done, put back on the task queue if that panics.
    pub(super) in_progress: Vec<ScheduledTask>,
    /// What is yet to be written to the log. A turn that panics leaves it to the next.
    pub(super) report: Report,
}

impl Runner {
    pub(super) fn run(&mut self) {
        self.task_queue.wake();
        loop {
            match catch_panic("the renewal worker, which goes on,", || self.run_due()) {
                Some(true) => {}
                Some(false) => return,
                None => _ = catch_panic("the renewal worker, which goes on,", || self.put_back()),
            }
        }
    }

    /// Puts what was being done back on the task queue.
    pub(super) fn put_back(&mut self) {
        let due = self.clock.now().after(SHORTEST_RETRY);
        let tasks = std::mem::take(&mut self.in_progress);
        self.put(tasks.into_iter().map(|task| TimedTask { due, task }));
    }

    /// Puts on the task queue what is to be done later.
    fn put(&self, entries: impl IntoIterator<Item = TimedTask>) {
        // The worker itself is awake.
        for TimedTask { due, task } in entries {
            match task {
                ScheduledTask::Check(slot) => {
                    if let Some(slot) = slot.upgrade() {
                        slot.check_again(due);
                    }
                }
                ScheduledTask::Release(task) => {
                    _ = self.task_queue.release_in_background(due, task)
                }
                ScheduledTask::Notify(notifications) => {
                    _ = self.task_queue.notify(due, notifications)
                }
            }
        }
    }

    /// Does what is due and sleeps until more is. Answers whether to go on.
    pub(super) fn run_due(&mut self) -> bool {
        let now = self.clock.now();
        self.task_queue.take(now, &mut self.in_progress);
        self.carry_out(now);
        self.in_progress.clear();
        std::mem::take(&mut self.report).log(self.clock.now());
        self.sleep()
    }

    fn sleep(&mut self) -> bool {
        let next = self.task_queue.sleep();
        let heard = if next == Moment::FAR {
            self.wake_receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            let mut heard = Ok(());
            self.clock.wait_until(next, &mut |left| heard = self.wake_receiver.recv_timeout(left));
            heard
        };
        self.task_queue.wake();
        if heard != Err(RecvTimeoutError::Disconnected) {
            return true;
        }
        // The client is gone. Slots keep it alive, so only what was left to us remains.
        match self.task_queue.close() {
            Moment::FAR => false,
            next => {
                self.clock.wait_until(next, &mut sync::sleep);
                true
            }
        }
    }

    fn carry_out(&mut self, now: Moment) {
        let (mut requests, mut notifications, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for task in &self.in_progress {
            match task {
                ScheduledTask::Check(slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    // One that panics keeps no other lease from being renewed.
                    let checked = catch_panic(PART, || {
                        for lease in Arc::clone(&slot).leases_to_check(now) {
                            requests.extend(check(&slot, &lease, now, &mut self.report));
                        }
                    });
                    if checked.is_none() {
                        let task = ScheduledTask::Check(Arc::downgrade(&slot));
                        again.push(TimedTask { due: now.after(LONGEST_RETRY), task });
                    }
                }
                // A place in the queue may outlive a short lease.
                ScheduledTask::Release(task)
                    if now < task.settled.after(task.ttl.max(DEAD_AFTER)) =>
                {
                    requests.push(WorkerRequest::Release(Arc::clone(task)));
                }
                // It has expired by itself.
                ScheduledTask::Release(task) => self.task_queue.release_done(task),
                ScheduledTask::Notify(notification) => notifications.push(notification.clone()),
            }
        }
        // Told once, whatever happens next.
        self.in_progress.retain(|task| !matches!(task, ScheduledTask::Notify(_)));
        self.put(again);
        self.put(self.call_back(notifications, now));
        if !requests.is_empty() {
            let reply = self.ask(&requests, now);
            let now = self.clock.now();
            for (request, reply) in requests.into_iter().zip(reply) {
                let (pending_release, task) = (request.pending_release(), request.task());
                let report = &mut self.report;
                let next =
                    catch_panic(PART, || request.handle_reply(reply, now, &*self.protocol, report))
                        .unwrap_or_else(|| Some(TimedTask { due: now.after(LONGEST_RETRY), task }));
                if let Some(task) = pending_release
                    && next.is_none()
                {
                    self.task_queue.release_done(&task);
                }
                self.put(next);
            }
        }
    }

    /// Runs all requests, the most urgent first. Those that may take about as long travel together as one
    /// pipeline, so that a lease with little time left does not cut the time of all others.
    ///
    /// No pipeline goes on beyond the end of a lease that was asked for in vain before: when Redis is
    /// silent, that end must not be noticed late.
    fn ask(&self, requests: &[WorkerRequest], now: Moment) -> Vec<Result<OwnershipReply, Failure>> {
        let mut now = now;
        let ends: Vec<Moment> = requests.iter().map(|request| request.end(now)).collect();
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&number| ends[number]);
        let mut reply: Vec<Option<Result<OwnershipReply, Failure>>> =
            requests.iter().map(|_| None).collect();
        let mut missed = Moment::FAR;
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let timeout = |number: usize| self.renewal_timeout(ends[number], now);
            let most = timeout(first);
            let alike = rest.partition_point(|&number| timeout(number) <= most * MAX_TIMEOUT_RATIO);
            let (group, others) = rest.split_at(alike);
            let lease_requests: Vec<LeaseRequest<'_>> =
                group.iter().map(|&number| requests[number].request()).collect();
            let deadline = now.after(most).min(missed.max(now.after(SHORTEST_RETRY)));
            for (&number, outcome) in group.iter().zip(self.protocol.run(&lease_requests, deadline))
            {
                if outcome.is_err() {
                    missed = missed.min(ends[number]);
                }
                // A refusal does not tell when it was asked for, but that was not before now.
                let refused = |failure| {
                    Ok(OwnershipReply { ownership: taken_by_wrong_type(failure)?, sent: now })
                };
                reply[number] = Some(outcome.or_else(refused));
            }
            rest = others;
            if !rest.is_empty() {
                now = self.clock.now();
            }
        }
        reply.into_iter().map(|reply| reply.unwrap_or_else(|| Err(Failure::silent()))).collect()
    }

    /// How long the renewal of a lease that ends then waits for its answer.
    fn renewal_timeout(&self, end: Moment, now: Moment) -> Duration {
        (end.since(now) / RENEWAL_TRIES).max(SHORTEST_RETRY).min(self.exchange)
    }

    /// Tells the user. Answers what could not be told yet.
    fn call_back(&self, mut notifications: Vec<Notification>, now: Moment) -> Vec<TimedTask> {
        notifications.retain(|notifications| self.callbacks.wants(notifications));
        if notifications.is_empty() {
            return Vec::new();
        }
        let notifications: Arc<[Notification]> = notifications.into();
        let thread = self.threads.name(Role::Callback);
        let Err(error) = self.callbacks.call(&thread, Arc::clone(&notifications)) else {
            return Vec::new();
        };
        log!(error, "no thread for a callback could be started: {error}");
        let due = now.after(LONGEST_RETRY);
        notifications
            .iter()
            .map(|notifications| TimedTask {
                due,
                task: ScheduledTask::Notify(notifications.clone()),
            })
            .collect()
    }
}

/// Looks at a lease that a thread has. Returns what is to go to Redis for it.
fn check(
    slot: &Arc<dyn RenewableSlot>,
    lease: &Arc<HeldLease>,
    now: Moment,
    report: &mut Report,
) -> Option<WorkerRequest> {
    if let Some(loss) = lease.expire(now) {
        Arc::clone(slot).lost(lease, loss.clone());
        report.lost(loss);
        return None;
    }
    let renews = lease.renew_at() <= now;
    let asks = renews || lease.hold_count.is_unshown() || lease.is_doubted();
    // Taken before its phase is looked at, so that a release that comes in between does not pass on a
    // lease that is about to be renewed.
    let command = asks.then(|| lease.command());
    if !lease.is_live() {
        return None;
    }
    if renews {
        // What comes of it says when to look again.
        return command.map(|command| WorkerRequest::Renew(Arc::clone(slot), command));
    }
    Arc::clone(slot).check_again(lease.next_check());
    command.map(|command| WorkerRequest::Show(Arc::clone(slot), command))
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("hand", &self.in_progress.len()).finish_non_exhaustive()
    }
}

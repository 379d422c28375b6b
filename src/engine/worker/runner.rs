//! The worker's thread: its turns, and its sleep between them.

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::panic::catch_panic;
use crate::base::sync::channel::{Receiver, RecvTimeoutError};
use crate::base::sync::{self, Arc, Ordering};
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
use crate::observe::{Exchange, Renewed};
use crate::protocol::Protocol;
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::protocol::target::Target;
use crate::wire::failure::Failure;

/// A renewal waits for its reply for the rest of the validity divided by this, and can then be repeated.
/// With 300 ms left there are three tries, even if none has a reply.
const RENEWAL_TRIES: u32 = 2;
/// Renewals whose time-outs differ by no more than this factor travel together.
const MAX_TIMEOUT_RATIO: u32 = 4;

/// The most locks that one command announces, and about how many bytes their names may have.
const MAX_ANNOUNCED: usize = 1_000;
const MAX_ANNOUNCED_BYTES: usize = 1 << 18;
/// A lock is announced again after this time: three times before it is dropped from the index.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
/// One second in which announcements are made together.
pub(crate) const ANNOUNCE_TICK: Duration = Duration::from_secs(1);
/// While Redis is silent, an announcement holds up the next check for the time of a reply divided by this.
const ANNOUNCEMENT_SHARE: u32 = 10;
/// After an announcement without a reply none is sent for this long. The connection is lost with it, and
/// renewals use the same one: while the server is slow they must not lose it each second.
const ANNOUNCEMENT_REST: Duration = Duration::from_secs(20);

/// How the log names the worker after a panic in one task.
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
    /// The tasks of this turn, which go back into the task queue if the turn panics.
    pub(super) in_progress: Vec<ScheduledTask>,
    /// The lines that are still to be logged. A turn that panics leaves them to the next.
    pub(super) report: Report,
    /// The first check that is due while a connection of the worker is missing, and when to have it made;
    /// [`Moment::PAST`] once that was done.
    pub(super) connects: Option<(Moment, Moment)>,
    /// No announcement is sent before this.
    pub(super) announces_from: Moment,
}

impl Runner {
    pub(super) fn run(&mut self) {
        // The queue begins as asleep for ever, so that the first task starts this thread.
        self.task_queue.wake();
        loop {
            // A panic here would end the renewals of all locks of the client. The tasks of the turn are
            // repeated, and the repetition is guarded too, since it locks slots and tells the time.
            match catch_panic("the renewal worker, which goes on,", || self.run_due()) {
                Some(true) => {}
                Some(false) => return,
                None => _ = catch_panic("the renewal worker, which goes on,", || self.put_back()),
            }
        }
    }

    /// Puts the tasks of this turn back into the task queue.
    pub(super) fn put_back(&mut self) {
        // Not at once: a task that panics each time must not keep the thread busy.
        let due = self.clock.now().after(SHORTEST_RETRY);
        let tasks = std::mem::take(&mut self.in_progress);
        self.put(tasks.into_iter().map(|task| TimedTask { due, task }));
    }

    /// Puts tasks into the task queue.
    fn put(&self, entries: impl IntoIterator<Item = TimedTask>) {
        // Whether to wake the worker is not asked: this is the worker, and it is awake.
        for TimedTask { due, task } in entries {
            match task {
                ScheduledTask::Check(slot) => {
                    // By the slot, which compares with what it knows of its entry, and drops the check if
                    // its lease is gone by now.
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

    /// Does what is due, and sleeps until the next task. Returns whether to go on.
    pub(super) fn run_due(&mut self) -> bool {
        let now = self.clock.now();
        // One reading of the clock for the whole turn: a task that becomes due while the turn runs waits
        // for the next, or a busy client could keep this one from ever ending.
        self.task_queue.take(now, &mut self.in_progress);
        self.carry_out(now);
        // Only now, so that a panic on the way finds everything that may not have been done.
        self.in_progress.clear();
        std::mem::take(&mut self.report).log(self.clock.now());
        self.sleep()
    }

    fn sleep(&mut self) -> bool {
        let now = self.clock.now();
        let early = self.connect_early(now);
        let next = self.task_queue.sleep(now).min(early);
        // Nothing is due at any time: without this case the clock would wake the thread each second, for
        // a suspend that matters to no task.
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
        // The client is gone: the last sender of the channel went with it. Slots keep the client alive,
        // so no lease is left, only releases and notifications. They are done before the thread ends.
        match self.task_queue.close() {
            Moment::FAR => false,
            // Nobody can wake this thread any more.
            next => {
                self.clock.wait_until(next, &mut sync::sleep);
                true
            }
        }
    }

    /// Has the worker's connections made before its first check is due, halfway until then. Returns when to
    /// look again.
    ///
    /// Not at once: most locks are released before they need a renewal, and need no connection for it.
    fn connect_early(&mut self, now: Moment) -> Moment {
        let due = self.task_queue.next_check();
        if due == Moment::FAR || self.protocol.keep_worker_connections(due) {
            self.connects = None;
            return Moment::FAR;
        }
        // The check of another lock: the one for which the worker was to connect is gone or done.
        let halfway = now.after(due.since(now) / 2);
        let (_, at) = self.connects.filter(|(of, _)| *of == due).unwrap_or((due, halfway));
        if at > now {
            self.connects = Some((due, at));
            return at;
        }
        if at != Moment::PAST {
            self.protocol.connect_worker();
        }
        // Once for each check. The order stays until it succeeds.
        self.connects = Some((due, Moment::PAST));
        Moment::FAR
    }

    fn carry_out(&mut self, now: Moment) {
        let (mut requests, mut notifications, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let (mut announced, mut room, mut later) = (Vec::new(), MAX_ANNOUNCED_BYTES, ANNOUNCE_TICK);
        let (last, first) = self.in_progress.split_at(self.first_announced());
        for task in first.iter().chain(last) {
            match task {
                ScheduledTask::Check(slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    // Each by itself, so that a panic keeps no other lease from being renewed.
                    let checked = catch_panic(PART, || {
                        let has_room = room > 0 && announced.len() < MAX_ANNOUNCED;
                        let again = if has_room { ANNOUNCE_EVERY } else { later };
                        let (leases, target) = Arc::clone(&slot).check(now, again);
                        match target {
                            Some(target) if has_room => {
                                room = room.saturating_sub(target.key().len());
                                announced.push(target);
                            }
                            // As many as there is room for fall into each of the next seconds.
                            Some(_) => later += ANNOUNCE_TICK / MAX_ANNOUNCED as u32,
                            None => {}
                        }
                        for lease in leases {
                            requests.extend(check(&slot, &lease, now, &mut self.report));
                        }
                    });
                    if checked.is_none() {
                        let task = ScheduledTask::Check(Arc::downgrade(&slot));
                        again.push(TimedTask { due: now.after(LONGEST_RETRY), task });
                    }
                }
                // Up to this moment the value may still be in Redis. `DEAD_AFTER` is in it because
                // a place in the queue outlives a short lease.
                ScheduledTask::Release(task)
                    if now < task.settled.after(task.ttl.max(DEAD_AFTER)) =>
                {
                    requests.push(WorkerRequest::Release(Arc::clone(task)));
                }
                // The value has expired by itself, and no request for it can run any more.
                ScheduledTask::Release(task) => self.task_queue.release_done(task),
                ScheduledTask::Notify(notification) => notifications.push(notification.clone()),
            }
        }
        // Taken off the list before they are passed on: a panic below would otherwise repeat callbacks
        // that have run.
        self.in_progress.retain(|task| !matches!(task, ScheduledTask::Notify(_)));

        self.put(again);
        self.put(self.call_back(notifications, now));
        // The callbacks were started before this, which may take as long as a silent server.
        if !requests.is_empty() {
            let reply = self.ask(&requests, now);
            // Read again: the exchange may have taken longer than a lease has left, and a loss must be
            // noticed.
            let now = self.clock.now();
            for (request, reply) in requests.into_iter().zip(reply) {
                let (pending_release, task) = (request.pending_release(), request.task());
                let report = &mut self.report;
                let next =
                    catch_panic(PART, || request.handle_reply(reply, now, &*self.protocol, report))
                        // The reply is lost with the panic, so the task is repeated.
                        .unwrap_or_else(|| Some(TimedTask { due: now.after(LONGEST_RETRY), task }));
                if let Some(task) = pending_release
                    && next.is_none()
                {
                    self.task_queue.release_done(&task);
                }
                self.put(next);
            }
        }
        // Last: nobody waits for it, and the renewals of this turn must not.
        if !announced.is_empty() {
            self.announce(&announced);
        }
    }

    /// The number of the task with which a turn begins. Where not all announcements have room, it is a random
    /// check: slots that are due at one moment always come in the same order, and the last ones would never have
    /// room.
    fn first_announced(&self) -> usize {
        let is_check = |task: &&ScheduledTask| matches!(task, ScheduledTask::Check(_));
        let checks = self.in_progress.iter().take_while(is_check).count();
        if checks > MAX_ANNOUNCED { fastrand::usize(..checks) } else { 0 }
    }

    /// Notes in the index that these locks are in use.
    fn announce(&mut self, targets: &[Arc<Target>]) {
        let now = self.clock.now();
        if now < self.announces_from {
            return;
        }
        let until_next = self.task_queue.next_due().since(now);
        let most = until_next.clamp(self.exchange / ANNOUNCEMENT_SHARE, self.exchange);
        let Err(failure) = self.protocol.announce(targets, now.after(most)) else { return };
        if failure.is_denied() || failure.is_wrong_type() {
            self.task_queue.announces.store(false, Ordering::Relaxed);
            log!(warn, "locks in use are not announced any more: {failure}");
        } else {
            if !matches!(failure, Failure::Refused(_)) {
                self.announces_from = now.after(ANNOUNCEMENT_REST);
            }
            // Also when memory is full. The next announcement of each follows in any case.
            log!(debug, "{} locks in use were not announced: {failure}", targets.len());
        }
    }

    /// Sends all requests, the most urgent first. Those with similar time-outs travel together as one
    /// pipeline, so that a lease with little time left does not cut the time of all others.
    ///
    /// After a renewal that failed no pipeline goes on beyond the end of its lease: while Redis is
    /// silent, that end must not be noticed late.
    fn ask(&self, requests: &[WorkerRequest], now: Moment) -> Vec<Result<OwnershipReply, Failure>> {
        let mut now = now;
        let ends: Vec<Moment> = requests.iter().map(|request| request.end(now)).collect();
        let mut order: Vec<usize> = (0..requests.len()).collect();
        // Releases and counts come last: they end at `Moment::FAR`.
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
            // Bounded by the first lease of the group, which has the least time. A group after a failure
            // gets a short time at least, or it would not be sent at all.
            let deadline = now.after(most).min(missed.max(now.after(SHORTEST_RETRY)));

            let outcomes = self.protocol.run(&lease_requests, deadline);
            let is_renewal = |number: usize| matches!(requests[number], WorkerRequest::Renew(..));
            self.tell(&outcomes, group.iter().map(|&number| is_renewal(number)), now);
            for (&number, outcome) in group.iter().zip(outcomes) {
                if outcome.is_err() {
                    missed = missed.min(ends[number]);
                }
                // A refusal has no time of sending. It was sent now or later, and the earlier moment is
                // the safe one.
                let refused = |failure| {
                    Ok(OwnershipReply {
                        ownership: taken_by_wrong_type(failure)?,
                        sent: now,
                        waiters: None,
                    })
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

    /// How long the renewal of a lease with this end waits for its reply.
    fn renewal_timeout(&self, end: Moment, now: Moment) -> Duration {
        // A part of what is left, and not the whole time-out of a reply: one lost reply must not cost the
        // lease.
        (end.since(now) / RENEWAL_TRIES).max(SHORTEST_RETRY).min(self.exchange)
    }

    /// Tells observers of a pipeline that was sent at `sent`. Of each request `renewals` says whether it renews a lease.
    fn tell(
        &self,
        outcomes: &[Result<OwnershipReply, Failure>],
        renewals: impl Iterator<Item = bool>,
        sent: Moment,
    ) {
        if self.callbacks.observers.active().is_none() {
            return;
        }
        let took = self.clock.now().since(sent);
        let failure = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        let outcome = failure.map_or(Ok(()), |failure| Err(Error::from(failure.clone()).kind()));
        let is_owned = |outcome: &Result<OwnershipReply, Failure>| {
            outcome.as_ref().is_ok_and(|reply| reply.ownership == Ownership::Owned)
        };
        let renewed = outcomes.iter().zip(renewals).filter(|(it, renews)| *renews && is_owned(it));
        let count = u32::try_from(renewed.count()).unwrap_or(u32::MAX);
        self.callbacks.observers.tell_aside(move |observer| {
            observer.exchange(&Exchange { took, outcome });
            if count > 0 {
                observer.renewed(&Renewed { count, took });
            }
        });
    }

    /// Passes notifications to the user's callbacks. Returns those that could not be passed on.
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

/// Checks a lease that a thread holds. Returns the request that it needs.
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
    let change = lease.open_change();
    let asks = renews || change.is_some() || lease.hold_count.is_unshown() || lease.is_doubted();
    // Counted before the phase is looked at. The other way round, a release could come in between, find
    // nothing under way, and pass on a lease whose renewal is sent a moment later (rule 17).
    let command = asks.then(|| lease.command());
    if !lease.is_live() {
        return None;
    }

    if renews {
        return command.map(|command| WorkerRequest::Renew(Arc::clone(slot), command));
    }
    match change {
        Some(change) => command.map(|it| WorkerRequest::Change(Arc::clone(slot), it, change)),
        None => command.map(|command| WorkerRequest::Show(Arc::clone(slot), command)),
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_progress = self.in_progress.len();
        f.debug_struct("Runner").field("in_progress", &in_progress).finish_non_exhaustive()
    }
}

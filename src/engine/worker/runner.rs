//! The worker's thread: its turns, and its sleep between them.

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, Ordering, Weak};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{Callbacks, Notification};
use crate::engine::lease::{Lease, Silence};
use crate::engine::ownership::taken_by_wrong_type;
use crate::engine::worker::report::Report;
use crate::engine::worker::scheduled_task::{ScheduledTask, TimedTask, Watched, WatchedSlot};
use crate::engine::worker::task_queue::TaskQueue;
use crate::engine::worker::worker_request::{
    LONGEST_RETRY, LeaseNeed, Next, SHORTEST_RETRY, WorkerRequest, ask_again_at,
};
use crate::observe::observers::Observers;
use crate::observe::{ConfirmedAgain, Exchange, Renewed, Unconfirmed};
use crate::protocol::Protocol;
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::protocol::server_protocol::ServerProtocol;
use crate::protocol::target::Target;
use crate::wire::failure::Failure;

/// A renewal waits for its reply for the rest of the validity divided by this, and can then be repeated.
/// With 300 ms left there are three tries, even if none has a reply.
const RENEWAL_TRIES: u32 = 2;
/// Renewals whose time-outs differ by no more than this factor travel together.
const MAX_TIMEOUT_RATIO: u32 = 4;

/// The most locks that one command announces, and about how many bytes their names may have.
pub(super) const MAX_ANNOUNCED: usize = 1_000;
pub(super) const MAX_ANNOUNCED_BYTES: usize = 1 << 18;
/// A lock is announced again after this time: three times before it is dropped from the index.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
/// One second in which announcements are made together.
pub(crate) const ANNOUNCE_TICK: Duration = Duration::from_secs(1);
/// While Redis is silent, an announcement, or what asks about doubted leases, holds up the next check for the time of a reply
/// divided by this.
const BRIEF_SHARE: u32 = 10;
/// After an announcement without a reply none is sent for this long. The connection is lost with it, and
/// renewals use the same one: while the server is slow they must not lose it each second.
const ANNOUNCEMENT_REST: Duration = Duration::from_secs(20);

/// The worker comes back after this time to a slot that is locked.
const BUSY_RETRY: Duration = Duration::from_millis(5);

/// How the log names the worker after a panic in one task.
const PART: &str = "the renewal worker, which goes on with other locks,";

/// A request with its reply.
type Replied = (WorkerRequest, Result<OwnershipReply, Failure>);

/// The worker's thread.
pub(super) struct Runner {
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) exchange: Duration,
    pub(super) callbacks: Callbacks,
    pub(super) threads: Threads,
    pub(super) task_queue: Arc<TaskQueue>,
    /// The tasks of this turn, which go back into the task queue if the turn panics.
    pub(super) in_progress: Vec<ScheduledTask>,
    /// The lines that are still to be logged. A turn that panics leaves them to the next.
    pub(super) report: Report,
    /// The first look that is due while a connection of the worker is missing, and when to have it made;
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
        // They are due later: a task that panics each time must not keep the thread busy.
        let due = self.clock.now().after(SHORTEST_RETRY);
        let tasks = std::mem::take(&mut self.in_progress);
        self.put(tasks.into_iter().map(|task| TimedTask { due, task }));
    }

    /// Puts tasks into the task queue.
    fn put(&self, entries: impl IntoIterator<Item = TimedTask>) {
        // Whether to wake the worker is not asked: this is the worker, and it is awake.
        for TimedTask { due, task } in entries {
            match task {
                ScheduledTask::Look(lease, slot, _) => {
                    if let Some(lease) = lease.upgrade() {
                        self.look_again(&Watched { lease, slot }, due);
                    }
                }
                ScheduledTask::Announce(slot) => {
                    if let Some(slot) = slot.upgrade() {
                        _ = self.task_queue.watch_slot(&slot, due);
                    }
                }
                ScheduledTask::Remove(task) => _ = self.task_queue.release_in_background(due, task),
                ScheduledTask::Notify(notification) => {
                    _ = self.task_queue.notify(due, *notification)
                }
            }
        }
    }

    /// Does what is due, and sleeps until the next task. Returns whether to go on.
    pub(super) fn run_due(&mut self) -> bool {
        let now = self.clock.now();
        self.sift(now);
        // One reading of the clock for the whole turn: a task that becomes due while the turn runs waits
        // for the next, or a busy client could keep this one from ever ending.
        self.task_queue.take(now, &mut self.in_progress);
        self.carry_out(now);
        // Only now, so that a panic on the way finds everything that may not have been done.
        self.in_progress.clear();
        std::mem::take(&mut self.report).log(self.clock.now());
        self.sleep()
    }

    /// Doubts the leases that their servers have not confirmed since a break of the connections.
    fn sift(&self, now: Moment) {
        for (lease, slot) in self.task_queue.begin_sifting(now) {
            let since = self.protocol.unbroken_since(&lease.value.target);
            // One that lingers is asked about by nobody, and no thread takes it again.
            if lease.doubt_unless_confirmed(since) && lease.is_held() {
                self.task_queue.ask(&lease, slot);
            }
        }
    }

    fn sleep(&mut self) -> bool {
        let now = self.clock.now();
        let early = self.connect_early(now);
        let next = self.task_queue.sleep(now).min(early);
        // Even a wait of no length gives the processor to other threads, and on a busy machine it comes back late.
        if next <= now {
            self.task_queue.wake();
            return true;
        }
        if !self.task_queue.wait(&*self.clock, next) {
            return true;
        }
        // The client is gone. Slots keep the client alive, so no lease is left, only releases and
        // notifications. They are done before the thread ends.
        match self.task_queue.close() {
            Moment::FAR => false,
            // Nobody can wake this thread any more.
            next => {
                self.clock.wait_until(next, &mut sync::sleep);
                true
            }
        }
    }

    /// Has the worker's connections made before its first look is due, halfway until then. Returns when to
    /// look again.
    ///
    /// It is not made at once: most locks are released before they need a renewal, and need no connection for it.
    pub(super) fn connect_early(&mut self, now: Moment) -> Moment {
        let due = self.task_queue.next_look();
        if due == Moment::FAR || self.protocol.keep_worker_connections(due) {
            self.connects = None;
            return Moment::FAR;
        }
        // The look at another lock: the one for which the worker was to connect is gone or done.
        let halfway = now.after(due.since(now) / 2);
        let (_, at) = self.connects.filter(|(of, _)| *of == due).unwrap_or((due, halfway));
        if at > now {
            self.connects = Some((due, at));
            return at;
        }
        if at != Moment::PAST {
            self.protocol.connect_worker();
        }
        // Once for each look. The order stays until it succeeds.
        self.connects = Some((due, Moment::PAST));
        Moment::FAR
    }

    fn carry_out(&mut self, now: Moment) {
        let (mut requests, mut notifications, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ended, mut announcements) = (Vec::new(), Announcements::new());
        let (last, first) = self.in_progress.split_at(self.first_announced());
        for task in first.iter().chain(last) {
            match task {
                ScheduledTask::Look(lease, slot, was_retaken) => {
                    let Some(lease) = lease.upgrade() else { continue };
                    let watched = Watched { lease, slot: Weak::clone(slot) };
                    // Each by itself, so that a panic keeps no other lease from being renewed.
                    let looked = catch_panic(PART, || {
                        let observers = &self.callbacks.observers;
                        tell_silence(&watched.lease, now, observers, &mut self.report);
                        if watched.lease.has_ended_by(now) && !end_over(&watched, &mut self.report)
                        {
                            ended.push(watched.clone());
                        }
                        match need(&watched.lease, now, *was_retaken) {
                            // With the others, which are sent in the order of their ends.
                            Some(LeaseNeed::Ask) => {
                                self.task_queue.ask(&watched.lease, Weak::clone(slot));
                            }
                            need => requests.extend(need.and_then(|it| request(&watched, it))),
                        }
                        let put_off = announcements.look(&watched, now);
                        again.extend(put_off.map(|due| (watched.clone(), due)));
                    });
                    if looked.is_none() {
                        again.push((watched, now.after(LONGEST_RETRY)));
                    }
                }
                ScheduledTask::Announce(slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    if catch_panic(PART, || announcements.ask(&slot, now)) != Some(true) {
                        _ = self.task_queue.watch_slot(&slot, now.after(ANNOUNCE_TICK));
                    }
                }
                ScheduledTask::Remove(task) if now < task.gone_by => {
                    requests.push(WorkerRequest::Remove(Arc::clone(task)));
                }
                // The value has expired by itself, and no request for it can run any more.
                ScheduledTask::Remove(task) => self.task_queue.release_done(task),
                ScheduledTask::Notify(notification) => {
                    notifications.push(Notification::clone(notification));
                }
            }
        }
        // Taken off the list before they are passed on: a panic below would otherwise repeat callbacks
        // that have run.
        self.in_progress.retain(|task| !matches!(task, ScheduledTask::Notify(_)));

        again.iter().for_each(|(watched, due)| self.look_again(watched, *due));
        self.put(self.call_back(notifications, now));
        // The callbacks were started before this, which may take as long as a silent server.
        if !requests.is_empty() {
            // Read again, as after the exchange: this thread may have had no processor since.
            let replies = self.ask(requests, self.clock.now());
            ended.extend(self.handle(replies));
        }
        self.end(ended);
        self.ask_about_doubted();
        // Last: nobody waits for it, and the renewals of this turn must not.
        if !announcements.targets.is_empty() {
            self.announce(&announcements.targets);
        }
    }

    /// Deals with replies. Returns the leases that were found lost.
    fn handle(&mut self, replies: Vec<Replied>) -> Vec<Watched> {
        // Read again: the exchange may have taken longer than a lease has left, and a loss must be
        // noticed.
        let now = self.clock.now();
        let mut ended = Vec::new();
        for (request, reply) in replies {
            let repeated = request.repeated_at(now.after(LONGEST_RETRY));
            let report = &mut self.report;
            let next =
                catch_panic(PART, || request.handle_reply(reply, now, &*self.protocol, report))
                    // The reply is lost with the panic, so the request is repeated.
                    .unwrap_or(repeated);
            match next {
                Next::Nothing => {}
                Next::Look(watched, due) => {
                    let observers = &self.callbacks.observers;
                    tell_silence(&watched.lease, now, observers, &mut self.report);
                    self.look_after(&watched, now, due);
                }
                Next::End(watched) => ended.push(watched),
                Next::Released(task) => self.task_queue.release_done(&task),
                Next::Again(task) => self.put([task]),
            }
        }
        ended
    }

    /// Asks about leases that are doubted, those that end first.
    fn ask_about_doubted(&mut self) {
        let now = self.clock.now();
        let (mut requests, mut again) = (Vec::new(), Moment::FAR);
        for (lease, slot) in self.task_queue.take_asks(now) {
            let Some(lease) = lease.upgrade() else { continue };
            // A renewal may have shown that it is there.
            if need(&lease, now, false) != Some(LeaseNeed::Ask) {
                continue;
            }
            let (of, to) = (Arc::downgrade(&lease), Weak::clone(&slot));
            self.in_progress.push(ScheduledTask::Look(of, to, false));
            again = again.min(ask_again_at(&lease, now));
            let request = request(&Watched { lease, slot }, LeaseNeed::Ask);
            requests.extend(request.map(|request| (Moment::FAR, request)));
        }
        if requests.is_empty() {
            return;
        }
        let mut replies = Vec::with_capacity(requests.len());
        _ = self.send(requests, self.brief_deadline(now), now, &mut replies);
        if replies.iter().all(|(_, reply)| reply.is_err()) {
            self.task_queue.rest_asks(again);
        }
        let ended = self.handle(replies);
        self.end(ended);
    }

    /// The deadline of an exchange for which nothing that is due soon must wait for long.
    fn brief_deadline(&self, now: Moment) -> Moment {
        let until_next = self.task_queue.next_due().since(now);
        now.after(until_next.clamp(self.exchange / BRIEF_SHARE, self.exchange))
    }

    /// Looks at a lease again at this moment, or at the first of its own after `now`. One that is over needs no look.
    fn look_after(&self, watched: &Watched, now: Moment, due: Moment) {
        let next = watched.lease.next_after(now);
        if next != Moment::FAR {
            self.look_again(watched, due.min(next));
        }
    }

    fn look_again(&self, Watched { lease, slot }: &Watched, due: Moment) {
        _ = self.task_queue.watch(lease, Weak::clone(slot), due);
    }

    /// Ends what is over of leases whose slots were locked before the requests, or that were found lost by a reply.
    fn end(&mut self, ended: Vec<Watched>) {
        for watched in ended {
            let report = &mut self.report;
            if catch_panic(PART, || end_over(&watched, report)) != Some(true) {
                self.look_again(&watched, self.clock.now().after(BUSY_RETRY));
            }
        }
    }

    /// The number of the task with which a turn begins. Where not all announcements have room, it is a random
    /// look: slots that are due at one moment always come in the same order, and the last ones would never have
    /// room.
    fn first_announced(&self) -> usize {
        let is_look = |task: &&ScheduledTask| {
            matches!(task, ScheduledTask::Look(..) | ScheduledTask::Announce(_))
        };
        let looks = self.in_progress.iter().take_while(is_look).count();
        if looks > MAX_ANNOUNCED { fastrand::usize(..looks) } else { 0 }
    }

    /// Notes in the index that these locks are in use.
    fn announce(&mut self, targets: &[Arc<Target>]) {
        let now = self.clock.now();
        if now < self.announces_from {
            return;
        }
        let deadline = self.brief_deadline(now);
        let announce = |it: &dyn ServerProtocol| it.announce(targets, deadline);
        let Err(failure) = self.protocol.server().and_then(announce) else { return };
        if failure.is_denied() || failure.is_wrong_type() {
            self.task_queue.announces.store(false, Ordering::Relaxed);
            log!(warn, "locks in use are not announced any more: {failure}");
        } else {
            if !matches!(failure, Failure::Refused(_)) {
                self.announces_from = now.after(ANNOUNCEMENT_REST);
            }
            // A full memory is one cause. The next announcement of each slot follows in any case.
            log!(debug, "{} locks in use were not announced: {failure}", targets.len());
        }
    }

    /// Sends all requests, the most urgent first. Those with similar time-outs travel together as one
    /// pipeline, so that a lease with little time left does not cut the time of all others.
    ///
    /// After a renewal that failed no pipeline goes on beyond the end of its lease: while Redis is
    /// silent, that end must not be noticed late.
    fn ask(&self, requests: Vec<WorkerRequest>, now: Moment) -> Vec<Replied> {
        let mut now = now;
        let mut requests: Vec<(Moment, WorkerRequest)> =
            requests.into_iter().map(|request| (request.end(now), request)).collect();
        // Removals and counts come last: they end at `Moment::FAR`.
        requests.sort_by_key(|&(end, _)| end);

        let (mut missed, mut replies) = (Moment::FAR, Vec::with_capacity(requests.len()));
        while let Some(&(first, _)) = requests.first() {
            let timeout = |end: Moment| self.renewal_timeout(end, now);
            let most = timeout(first);
            let alike =
                requests.partition_point(|&(end, _)| timeout(end) <= most * MAX_TIMEOUT_RATIO);

            let others = requests.split_off(alike);
            // Bounded by the first lease of the group, which has the least time. A group after a failure
            // gets a short time at least, or it would not be sent at all.
            let deadline = now.after(most).min(missed.max(now.after(SHORTEST_RETRY)));

            missed = missed.min(self.send(requests, deadline, now, &mut replies));

            requests = others;
            if !requests.is_empty() {
                now = self.clock.now();
            }
        }
        replies
    }

    /// Sends requests as one pipeline, each with the end of its lease, and adds the replies. Returns the first end of those
    /// that failed.
    fn send(
        &self,
        requests: Vec<(Moment, WorkerRequest)>,
        deadline: Moment,
        now: Moment,
        replies: &mut Vec<Replied>,
    ) -> Moment {
        let lease_requests: Vec<LeaseRequest<'_>> =
            requests.iter().map(|(_, request)| request.request()).collect();
        let outcomes = self.protocol.run(&lease_requests, deadline);
        self.tell(&outcomes, requests.iter().map(|(_, request)| request.is_renewal()), now);
        let mut missed = Moment::FAR;
        for ((end, request), outcome) in requests.into_iter().zip(outcomes) {
            if outcome.is_err() {
                missed = missed.min(end);
            }
            // A refusal has no time of sending. It was sent now or later, and the earlier moment is
            // the safe one.
            let refused =
                |failure| taken_by_wrong_type(failure).map(|it| OwnershipReply::new(it, now));
            replies.push((request, outcome.or_else(refused)));
        }
        missed
    }

    /// How long the renewal of a lease with this end waits for its reply.
    fn renewal_timeout(&self, end: Moment, now: Moment) -> Duration {
        // A part of what is left, and not the whole time-out of a reply: one lost reply must not cost the
        // lease.
        (end.since(now) / RENEWAL_TRIES).max(SHORTEST_RETRY).min(self.exchange)
    }

    /// Tells observers of a pipeline that was sent at `sent`. Of each request `renewals` says whether it renews a lease.
    pub(super) fn tell(
        &self,
        outcomes: &[Result<OwnershipReply, Failure>],
        renewals: impl Iterator<Item = bool>,
        sent: Moment,
    ) {
        if self.callbacks.observers.active().is_none() {
            return;
        }
        let took = self.clock.now().since(sent);
        // One that left its lock to others had the reply that it asked for.
        let mut failures = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let failure = failures.find(|failure| !failure.is_yield());
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
            .map(|notification| TimedTask {
                due,
                task: ScheduledTask::Notify(Box::new(notification.clone())),
            })
            .collect()
    }
}

/// The slots that are announced in a turn.
struct Announcements {
    targets: Vec<Arc<Target>>,
    /// How many bytes the other names may have.
    room: usize,
    /// After which time the next one is announced that has no room.
    later: Duration,
}

impl Announcements {
    fn new() -> Announcements {
        Announcements { targets: Vec::new(), room: MAX_ANNOUNCED_BYTES, later: ANNOUNCE_TICK }
    }

    /// Asks the slot of a lease, if it is to be announced by now. Returns when to look again if the slot is locked.
    fn look(&mut self, Watched { lease, slot }: &Watched, now: Moment) -> Option<Moment> {
        if lease.announce_at() > now {
            return None;
        }
        let is_held = lease.is_held();
        if is_held && slot.upgrade().is_some_and(|slot| self.ask(&slot, now)) {
            return None;
        }
        // A thread that takes a lingering lease, and holds it then, is found in a second.
        let due = now.after(ANNOUNCE_TICK);
        lease.announce_by(due);
        is_held.then_some(due)
    }

    /// Asks a slot. Returns false if it is locked.
    fn ask(&mut self, slot: &Arc<dyn WatchedSlot>, now: Moment) -> bool {
        let has_room = self.room > 0 && self.targets.len() < MAX_ANNOUNCED;
        let again = if has_room { ANNOUNCE_EVERY } else { self.later };
        let Some(target) = Arc::clone(slot).announce(now, again) else { return false };
        match target {
            Some(target) if has_room => {
                self.room = self.room.saturating_sub(target.key().len());
                self.targets.push(target);
            }
            // Each of the next seconds takes as many as there is room for.
            Some(_) => self.later += ANNOUNCE_TICK / MAX_ANNOUNCED as u32,
            None => {}
        }
        true
    }
}

/// Ends what is over of a lease. Returns false if its slot is locked.
fn end_over(Watched { lease, slot }: &Watched, report: &mut Report) -> bool {
    let Some(slot) = slot.upgrade() else { return true };
    let Some(losses) = slot.end_over(lease) else { return false };
    let failures = lease.failures();
    losses.into_iter().for_each(|loss| report.lost(loss, failures));
    true
}

/// Tells of a lease that has become silent, or has come back.
fn tell_silence(lease: &Lease, now: Moment, observers: &Observers, report: &mut Report) {
    let Some((silence, token)) = lease.next_silence(now) else { return };
    report.silence(lease, silence);
    let target = Arc::clone(&lease.value.target);
    observers.tell_aside(move |observer| {
        let (name, kind) = (target.name().as_bytes(), target.kind().name());
        match silence {
            Silence::Begun(unheard) => {
                observer.unconfirmed(&Unconfirmed { name, kind, token, unheard });
            }
            Silence::Over(unheard) => {
                observer.confirmed_again(&ConfirmedAgain { name, kind, token, unheard });
            }
        }
    });
}

/// The request that a lease needs.
fn request(watched: &Watched, need: LeaseNeed) -> Option<WorkerRequest> {
    let lease = &watched.lease;
    // Counted before its end is looked at. The other way round, it could be found lost in between, with nothing under
    // way, and what a renewal leaves of it in Redis would not be removed.
    let _under_way = lease.renewal();
    let watched = watched.clone();
    (!lease.is_over()).then(|| WorkerRequest::Lease { need, watched, _under_way })
}

/// What a lease needs of Redis now.
pub(super) fn need(lease: &Lease, now: Moment, was_retaken: bool) -> Option<LeaseNeed> {
    if lease.lost_at() <= now {
        return None;
    }
    if lease.needs_renewal(now, was_retaken) {
        return Some(LeaseNeed::Renew(lease.ttl()));
    }
    if !lease.is_held() {
        return None;
    }
    match lease.open_change() {
        Some(change) => Some(LeaseNeed::Change(change)),
        None if lease.is_doubted() => Some(LeaseNeed::Ask),
        None => lease.count.is_unshown().then_some(LeaseNeed::Show),
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_progress = self.in_progress.len();
        f.debug_struct("Runner").field("in_progress", &in_progress).finish_non_exhaustive()
    }
}

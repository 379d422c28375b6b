//! The tasks of the worker, shared with the callers that add them.
//!
//! | part | one entry for each | leaves when |
//! | --- | --- | --- |
//! | looks | lease, held or lingering; slot in which threads wait for long | the lease is released or lost, or the worker takes it |
//! | asks | lease that is doubted and held, by its end: those that end first are asked about first | the lease is released or lost, or the worker takes it |
//! | releases | owner's value that must be removed from Redis | the worker takes it |
//! | notifications | loss; request to let go, up to a limit | the worker takes it |
//!
//! The lock is a leaf: a thread that has it takes no other, and drops nothing that belongs to the user. A slot
//! adds and removes what is its own while the slot itself is locked, in the order of its events.

use std::collections::HashMap;
use std::iter;
use std::time::Duration;

use crate::base::sync::contended::{self, Condvar, Mutex, MutexGuard};
use crate::base::sync::{Arc, AtomicBool, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::Notification;
use crate::engine::lease::Lease;
use crate::engine::worker::removal::Removal;
use crate::engine::worker::scheduled_task::{ScheduledTask, WatchedSlot};
use crate::engine::worker::timers::Timers;
use crate::protocol::target::Target;

/// The most leases that are asked about in one turn because they are doubted: renewals do not wait for more of them.
pub(super) const MAX_ASKED: usize = 1_000;
/// Leases are looked through after a break of the connections no sooner than this after the last time: a server that comes
/// and goes must not have each asked about all the time.
pub(super) const BREAK_TICK: Duration = Duration::from_secs(1);
/// The most releases in one turn: renewals do not wait for more of them.
pub(super) const MAX_RELEASES_PER_RUN: usize = 256;
/// The most release requests of others that wait for the user's callback. Others may send any number.
pub(super) const MAX_RELEASE_REQUESTS: usize = 1024;
/// How long the worker remembers a check that is gone: an idle client makes no more turns after this.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(2);

/// The tasks of the worker, and until when it sleeps.
#[derive(Debug)]
pub(super) struct TaskQueue {
    state: Mutex<State>,
    /// Where the worker sleeps.
    roused: Condvar,
    /// A pending release is done.
    released: Condvar,
    /// Whether the worker announces what lasts.
    pub(super) announces: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Keyed by the address of the lease or the slot. The weak reference keeps its memory, so no other gets the address.
    looks: Timers<usize, ScheduledTask>,
    /// Keyed in the same way. Each is due at the end of its lease, which only orders them.
    asks: Timers<usize, (Weak<Lease>, Weak<dyn WatchedSlot>)>,
    /// No lease is asked about before this, because the last ones had no reply.
    asks_from: Moment,
    /// When all leases are looked through, because the connections to a server have ended; [`Moment::FAR`] if they have
    /// not. And when that was done last.
    sift_at: Moment,
    sifted_at: Moment,
    /// Keyed by the address of the owner's value, like those below.
    releases: Timers<usize, Arc<Removal>>,
    notifications: Timers<u64, Notification>,
    /// The number of the last notification.
    last_notification: u64,
    /// The owners' values that are still to be removed from Redis. A value stays here while the worker is at
    /// work on it.
    unreleased: HashMap<usize, Arc<Removal>>,
    /// No pending release waits beyond this for a thread that may still be at work; [`Moment::FAR`]
    /// before a shutdown. One that is to be kept does.
    flush_at: Moment,
    /// When the worker wakes by itself; `None` while it is awake, and will look here before it sleeps.
    sleeps_until: Option<Moment>,
    /// Whether it is to wake earlier.
    is_roused: bool,
    /// Whether the client is gone: nobody adds anything any more.
    is_abandoned: bool,
    /// When the check was due for which a slot last woke the worker, but at most [`IDLE_AFTER`] after the worker next
    /// slept; [`Moment::FAR`] once that has passed. A lock that is taken and released over and over has a check each time, and none by the time the
    /// worker looks. To wake it each time would take a system call a lock, so it sleeps no longer than until this, and
    /// the later checks need not wake it.
    woken_for: Moment,
}

impl State {
    fn next(&self) -> Moment {
        let asks = if self.asks.is_empty() { Moment::FAR } else { self.asks_from };
        let others = self.looks.next().min(self.releases.next()).min(self.notifications.next());
        others.min(asks).min(self.sift_at)
    }

    fn release_in_background(&mut self, due: Moment, task: Arc<Removal>) -> bool {
        let (mut due, mut task) = (due, task);
        // One entry for each value: a release that one caller wants early and another wants repeated
        // until late is done early and repeated until late.
        if let Some((before, other)) = self.releases.remove(&task.place()) {
            (due, task) = (due.min(before), Arc::new(task.and(&other)));
        }
        let due = task.kept_until.map_or(due, |until| until.max(due));
        self.unreleased.insert(task.place(), Arc::clone(&task));
        self.releases.put(task.place(), due, task);
        self.sleeps_past(due)
    }

    /// Sets the timer of a lease or a slot. Returns whether the caller must wake the worker.
    fn look(&mut self, place: usize, due: Moment, task: ScheduledTask) -> bool {
        self.looks.put(place, due, task);
        let wakes = self.sleeps_past(due);
        if wakes {
            self.woken_for = due;
        }
        wakes
    }

    fn wake(&mut self) {
        self.sleeps_until = None;
        self.is_roused = false;
    }

    /// Whether the worker sleeps beyond a moment, so that the caller must wake it.
    fn sleeps_past(&self, due: Moment) -> bool {
        self.sleeps_until.is_some_and(|until| due < until)
    }
}

impl TaskQueue {
    pub(super) fn new() -> TaskQueue {
        let state = State {
            looks: Timers::new(),
            asks: Timers::new(),
            asks_from: Moment::PAST,
            sift_at: Moment::FAR,
            sifted_at: Moment::PAST,
            releases: Timers::new(),
            notifications: Timers::new(),
            last_notification: 0,
            unreleased: HashMap::new(),
            flush_at: Moment::FAR,
            sleeps_until: Some(Moment::FAR),
            is_roused: false,
            is_abandoned: false,
            woken_for: Moment::FAR,
        };
        TaskQueue {
            state: Mutex::new(state),
            roused: Condvar::new(),
            released: Condvar::new(),
            announces: AtomicBool::new(false),
        }
    }

    /// Makes the worker look at a lease, at this moment or at that of the timer that it has. Returns whether the caller
    /// must wake the worker.
    pub(super) fn watch(
        &self,
        lease: &Arc<Lease>,
        slot: Weak<dyn WatchedSlot>,
        due: Moment,
    ) -> bool {
        let place = Arc::as_ptr(lease) as usize;
        let mut state = self.state.lock();
        // The earlier moment stays. What the lease has noted is no more than a hint: the worker may have taken the timer
        // meanwhile.
        let due = state.looks.due(&place).map_or(due, |before| due.min(before));
        lease.note_due(due);
        state.look(place, due, ScheduledTask::Look(Arc::downgrade(lease), slot, false))
    }

    /// Makes the worker come to a slot in which threads wait, at this moment.
    pub(super) fn watch_slot(&self, slot: &Arc<dyn WatchedSlot>, due: Moment) -> bool {
        let place = Arc::as_ptr(slot).cast::<()>() as usize;
        self.state.lock().look(place, due, ScheduledTask::Announce(Arc::downgrade(slot)))
    }

    /// Removes the timer of a lease.
    pub(super) fn forget(&self, lease: &Lease) {
        self.forget_at(std::ptr::from_ref(lease) as usize);
        lease.note_due(Moment::FAR);
    }

    /// Removes the timer of a slot.
    pub(super) fn forget_slot<S: WatchedSlot>(&self, slot: &S) {
        self.forget_at(std::ptr::from_ref(slot) as usize);
    }

    fn forget_at(&self, place: usize) {
        let mut state = self.state.lock();
        let forgotten = (state.looks.remove(&place), state.asks.remove(&place));
        drop(state);
        // After the lock: it may be the last weak reference, and frees the memory.
        drop(forgotten);
    }

    /// The connections to a server have ended: the worker looks through all leases, and asks about those that the server
    /// has not confirmed since.
    pub(super) fn note_break(&self, now: Moment) {
        let mut state = self.state.lock();
        let due = state.sifted_at.after(BREAK_TICK).max(now);
        state.sift_at = state.sift_at.min(due);
        let wakes = state.sleeps_past(state.sift_at);
        drop(state);
        if wakes {
            self.rouse();
        }
    }

    /// Returns all leases that the worker comes to, if they are to be looked through by now.
    pub(super) fn begin_sifting(&self, now: Moment) -> Vec<(Arc<Lease>, Weak<dyn WatchedSlot>)> {
        let mut state = self.state.lock();
        if now < state.sift_at {
            return Vec::new();
        }
        (state.sift_at, state.sifted_at) = (Moment::FAR, now);
        let leases = state.looks.values().filter_map(|task| match task {
            ScheduledTask::Look(lease, slot, _) => Some((lease.upgrade()?, Weak::clone(slot))),
            _ => None,
        });
        leases.collect()
    }

    /// Has a lease asked about, after those that end earlier.
    pub(super) fn ask(&self, lease: &Arc<Lease>, slot: Weak<dyn WatchedSlot>) {
        let (place, end) = (Arc::as_ptr(lease) as usize, lease.lost_at());
        self.state.lock().asks.put(place, end, (Arc::downgrade(lease), slot));
    }

    /// Takes the leases that are asked about in this turn: as many as may be, those that end first.
    pub(super) fn take_asks(&self, now: Moment) -> Vec<(Weak<Lease>, Weak<dyn WatchedSlot>)> {
        let State { asks, asks_from, .. } = &mut *self.state.lock();
        let most = if *asks_from <= now { MAX_ASKED } else { 0 };
        iter::from_fn(|| asks.pop(Moment::FAR)).take(most).map(|(_, ask)| ask).collect()
    }

    /// Asks about no lease before this.
    pub(super) fn rest_asks(&self, until: Moment) {
        self.state.lock().asks_from = until;
    }

    /// Adds a pending release. Returns whether the caller must wake the worker.
    pub(super) fn release_in_background(&self, due: Moment, task: Arc<Removal>) -> bool {
        self.state.lock().release_in_background(due, task)
    }

    /// The same for a lock under which a thread may still be at work: it waits until `due`, unless there
    /// is a shutdown.
    pub(super) fn release_later(&self, due: Moment, task: Arc<Removal>) -> bool {
        let mut state = self.state.lock();
        let due = due.min(state.flush_at);
        state.release_in_background(due, task)
    }

    /// Makes all pending releases due, now and from now on: the client is shut down, and takes the locks
    /// of threads that are at work. Returns whether the caller must wake the worker.
    pub(super) fn flush_releases(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.flush_at = now;
        state.releases.bring_forward(|task| task.kept_until.map_or(now, |until| until.max(now)));
        state.sleeps_past(state.releases.next())
    }

    /// An owner's value is not in Redis any more, unless another release of it was added meanwhile.
    pub(super) fn release_done(&self, task: &Removal) {
        let mut state = self.state.lock();
        // Another release of the value may have been added while this one was under way, for a request
        // that this one did not outlive. A shutdown must wait for that one too.
        if !state.releases.contains(&task.place()) {
            let removed = state.unreleased.remove(&task.place());
            drop(state);
            // After the lock: the value is freed, and with it perhaps its lock's name.
            drop(removed);
            self.released.notify_all();
        }
    }

    /// Waits until all pending releases are done of locks that need not be kept, or the deadline. Returns the
    /// locks that are not released.
    pub(super) fn wait_released(&self, clock: &dyn Clock, deadline: Moment) -> Vec<Arc<Target>> {
        let mut state = self.state.lock();
        loop {
            let now = clock.now();
            let is_due = |task: &&Arc<Removal>| task.kept_until.is_none_or(|until| until <= now);
            let mut unreleased =
                state.unreleased.values().filter(is_due).map(|task| &task.value.target).peekable();
            if unreleased.peek().is_none() || deadline <= now {
                return unreleased.map(Arc::clone).collect();
            }
            state = self.wait_until(clock, deadline, &self.released, state);
        }
    }

    /// Adds a notification. Returns whether the caller must wake the worker.
    pub(super) fn notify(&self, due: Moment, notifications: Notification) -> bool {
        let mut state = self.state.lock();
        let waiting = state.notifications.len();
        if waiting >= MAX_RELEASE_REQUESTS && matches!(notifications, Notification::Requested(_)) {
            // Only these have a limit, since anybody may send them. The user is about to get as many, and
            // a process that still wants the lock asks again. A loss is never dropped.
            return false;
        }
        state.last_notification += 1;
        let number = state.last_notification;
        state.notifications.put(number, due, notifications);
        state.sleeps_past(due)
    }

    /// Takes the tasks of one turn: all looks and notifications that are due, and some of the releases.
    ///
    /// A task that becomes due meanwhile belongs to the next turn, or a turn might never end.
    pub(super) fn take(&self, now: Moment, in_progress: &mut Vec<ScheduledTask>) {
        // Each lease has one timer, so the looks are bounded by the live leases, and all of them are
        // taken: a renewal that is left out might come too late. Releases may come in any number, and can
        // wait.
        let State { looks, releases, notifications, .. } = &mut *self.state.lock();
        while let Some((place, task)) = looks.pop(now) {
            in_progress.push(match task {
                // Its next timer is set at once, under the same lock: none of the threads that take the lease has to.
                ScheduledTask::Look(lease, slot, _) => {
                    let looked = lease.upgrade().map(|lease| lease.begin_look(now));
                    let (next, was_retaken) = looked.unwrap_or((Moment::FAR, false));
                    if next != Moment::FAR {
                        let task =
                            ScheduledTask::Look(Weak::clone(&lease), Weak::clone(&slot), false);
                        looks.put(place, next, task);
                    }
                    ScheduledTask::Look(lease, slot, was_retaken)
                }
                task => task,
            });
        }
        in_progress.extend(
            iter::from_fn(|| releases.pop(now))
                .take(MAX_RELEASES_PER_RUN)
                .map(|(_, task)| ScheduledTask::Remove(task)),
        );
        in_progress.extend(
            iter::from_fn(|| notifications.pop(now))
                .map(|(_, it)| ScheduledTask::Notify(Box::new(it))),
        );
    }

    /// When the first look at a lease or a slot is due; [`Moment::FAR`] if there is none.
    pub(super) fn next_look(&self) -> Moment {
        self.state.lock().looks.next()
    }

    /// The worker is about to sleep. From now on a caller with an earlier task must wake it. Returns
    /// until when it sleeps.
    pub(super) fn sleep(&self, now: Moment) -> Moment {
        let mut state = self.state.lock();
        state.woken_for = match state.woken_for {
            past if past <= now => Moment::FAR,
            Moment::FAR => Moment::FAR,
            due => due.min(now.after(IDLE_AFTER)),
        };
        // Looked up and noted under one lock. A task that a caller adds before is in `next`; one that it
        // adds after is compared with `sleeps_until`, and stays noted as a request to wake until the worker
        // waits.
        let until = state.next().min(state.woken_for);
        state.sleeps_until = Some(until);
        until
    }

    /// The worker is awake, and looks here before it sleeps again. Until then nobody needs to wake it.
    pub(super) fn wake(&self) {
        self.state.lock().wake();
    }

    /// The worker sleeps until that moment, or until it is roused. Returns whether the client is gone.
    pub(super) fn wait(&self, clock: &dyn Clock, until: Moment) -> bool {
        let mut state = self.state.lock();
        if !state.is_roused && !state.is_abandoned {
            state = self.wait_until(clock, until, &self.roused, state);
        }
        state.wake();
        state.is_abandoned
    }

    /// Waits to be notified, until that moment at most. It may return early.
    fn wait_until<'a>(
        &'a self,
        clock: &dyn Clock,
        until: Moment,
        condvar: &Condvar,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        // Without this case the clock would wake the thread each second, for a suspend that matters to no task.
        if until == Moment::FAR {
            return contended::wait(condvar, state);
        }
        let mut waiting = Some(state);
        clock.wait_until(until, &mut |left| {
            waiting = waiting.take().map(|state| contended::wait_for(condvar, state, left));
        });
        waiting.unwrap_or_else(|| self.state.lock())
    }

    /// Wakes the worker.
    pub(super) fn rouse(&self) {
        self.state.lock().is_roused = true;
        self.roused.notify_one();
    }

    /// The client is gone.
    pub(super) fn abandon(&self) {
        self.state.lock().is_abandoned = true;
        self.roused.notify_one();
    }

    /// When the first task is due.
    pub(super) fn next_due(&self) -> Moment {
        self.state.lock().next()
    }

    /// The client is gone, and with it its slots. Returns when the first remaining task is due.
    pub(super) fn close(&self) -> Moment {
        let mut state = self.state.lock();
        state.looks.clear();
        state.asks.clear();
        state.sift_at = Moment::FAR;
        state.next()
    }

    /// When the worker wakes by itself; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn sleeps_until(&self) -> Option<Moment> {
        self.state.lock().sleeps_until
    }

    /// Whether the worker sleeps, and nothing is due.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_at_rest(&self, now: Moment) -> bool {
        let state = self.state.lock();
        state.sleeps_until.is_some() && !state.is_roused && now < state.next()
    }

    /// When the worker has its next task, which may be [`Moment::FAR`]; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn next(&self) -> Option<Moment> {
        let state = self.state.lock();
        state.sleeps_until.map(|_| state.next())
    }

    /// How many looks, releases and notifications there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.looks.len(), state.releases.len(), state.notifications.len())
    }
}

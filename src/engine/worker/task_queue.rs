//! What the worker is to do, shared with those who want it done.
//!
//! | part | one entry for each | leaves when |
//! | --- | --- | --- |
//! | checks | slot with a lease, held or lingering | the lease is given back or lost, or the worker takes it |
//! | releases | owner's value that is to be taken out of Redis | the worker takes it |
//! | notifications | loss; request to let go, up to a limit | the worker takes it |
//!
//! The lock is a leaf: a thread that has it takes no other, and drops nothing that is the user's. A slot
//! puts its entry in and takes it out while the slot itself is locked, so the entry is there exactly
//! while the slot has a lease.

use std::collections::HashMap;
use std::iter;

use crate::base::sync::{Arc, Condvar, Mutex, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::Notification;
use crate::engine::worker::scheduled_task::{PendingRelease, RenewableSlot, ScheduledTask};
use crate::engine::worker::timers::Timers;
use crate::protocol::target::Target;

/// The most leases that are given back in one turn: renewals wait for no more of them.
pub(super) const MAX_RELEASES_PER_RUN: usize = 256;
/// The most requests to let go that wait to be told. Others send them, as many as they like.
pub(super) const MAX_RELEASE_REQUESTS: usize = 1024;

/// What the worker is to do, and until when it sleeps.
#[derive(Debug)]
pub(super) struct TaskQueue {
    state: Mutex<State>,
    /// Something is owed no longer.
    released: Condvar,
}

#[derive(Debug)]
struct State {
    /// By the address of the slot, which the weak reference keeps from being used again.
    checks: Timers<usize, Weak<dyn RenewableSlot>>,
    releases: Timers<Arc<[u8]>, Arc<PendingRelease>>,
    notifications: Timers<u64, Notification>,
    /// The number of the last notification.
    last_notification: u64,
    /// The owners' values that are still to be taken out of Redis, and their locks.
    unreleased: HashMap<Arc<[u8]>, Arc<Target>>,
    /// Nothing that is owed waits beyond this for the thread that had it; [`Moment::FAR`] before a
    /// shutdown.
    flush_at: Moment,
    /// When the worker wakes by itself; `None` while it is awake.
    sleeps_until: Option<Moment>,
}

impl State {
    fn next(&self) -> Moment {
        self.checks.next().min(self.releases.next()).min(self.notifications.next())
    }

    fn release_in_background(&mut self, due: Moment, task: Arc<PendingRelease>) -> bool {
        let (mut due, mut task) = (due, task);
        if let Some((before, other)) = self.releases.remove(&task.owner) {
            (due, task) = (due.min(before), Arc::new(task.and(&other)));
        }
        self.unreleased.insert(Arc::clone(&task.owner), Arc::clone(&task.target));
        self.releases.put(Arc::clone(&task.owner), due, task);
        self.sleeps_past(due)
    }

    /// Whether the worker sleeps past a moment.
    fn sleeps_past(&self, due: Moment) -> bool {
        self.sleeps_until.is_some_and(|until| due < until)
    }
}

impl TaskQueue {
    pub(super) fn new() -> TaskQueue {
        let state = State {
            checks: Timers::new(),
            releases: Timers::new(),
            notifications: Timers::new(),
            last_notification: 0,
            unreleased: HashMap::new(),
            flush_at: Moment::FAR,
            sleeps_until: Some(Moment::FAR),
        };
        TaskQueue { state: Mutex::new(state), released: Condvar::new() }
    }

    /// Wants a slot looked at then, or when it was wanted before if that is earlier. Returns whether
    /// the worker must be woken for it.
    pub(super) fn check_at<S: RenewableSlot + 'static>(&self, slot: &Arc<S>, due: Moment) -> bool {
        let mut state = self.state.lock();
        let place = Arc::as_ptr(slot) as usize;
        // Most have no entry yet, and those that have want an earlier one.
        let due = state.checks.due(&place).map_or(due, |before| due.min(before));
        let slot: Weak<dyn RenewableSlot> = Arc::<S>::downgrade(slot);
        state.checks.put(place, due, slot);
        state.sleeps_past(due)
    }

    /// Wants a slot no longer looked at.
    pub(super) fn forget<S: RenewableSlot>(&self, slot: &S) {
        let forgotten = self.state.lock().checks.remove(&(std::ptr::from_ref(slot) as usize));
        drop(forgotten);
    }

    /// Owes it that an owner's value is taken out of Redis. Returns whether the worker must be woken
    /// for it.
    pub(super) fn release_in_background(&self, due: Moment, task: Arc<PendingRelease>) -> bool {
        self.state.lock().release_in_background(due, task)
    }

    /// The same for what a thread may still be at work with, which waits until then, but for no shutdown.
    pub(super) fn release_later(&self, due: Moment, task: Arc<PendingRelease>) -> bool {
        let mut state = self.state.lock();
        let due = due.min(state.flush_at);
        state.release_in_background(due, task)
    }

    /// Makes all that is owed due, now and from now on: the client is shut down, which takes away what
    /// threads are at work with. Returns whether the worker must be woken for it.
    pub(super) fn flush_releases(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.flush_at = now;
        state.releases.bring_forward(now);
        state.sleeps_past(state.releases.next())
    }

    /// An owner's value is not in Redis any more, unless it was to be taken out once more meanwhile.
    pub(super) fn release_done(&self, task: &PendingRelease) {
        let mut state = self.state.lock();
        if !state.releases.contains(&task.owner) {
            state.unreleased.remove(&task.owner);
            drop(state);
            self.released.notify_all();
        }
    }

    /// Waits until everything is given back, or the deadline. Returns the locks that are not.
    pub(super) fn wait_released(&self, clock: &dyn Clock, deadline: Moment) -> Vec<Arc<Target>> {
        let mut state = self.state.lock();
        loop {
            if state.unreleased.is_empty() || deadline <= clock.now() {
                return state.unreleased.values().map(Arc::clone).collect();
            }
            clock.wait_until(deadline, &mut |left| {
                self.released.wait_for(&mut state, left);
            });
        }
    }

    /// Calls the user back then. Returns whether the worker must be woken for it.
    pub(super) fn notify(&self, due: Moment, notifications: Notification) -> bool {
        let mut state = self.state.lock();
        let waiting = state.notifications.len();
        if waiting >= MAX_RELEASE_REQUESTS && matches!(notifications, Notification::Requested(_)) {
            // The user is about to hear of as many, and a process that still wants the lock asks again.
            return false;
        }
        state.last_notification += 1;
        let number = state.last_notification;
        state.notifications.put(number, due, notifications);
        state.sleeps_past(due)
    }

    /// Takes out what is due, as far as it belongs into one turn: all slots, as each of them is
    /// there once, but only some of what is given back.
    ///
    /// What falls due meanwhile belongs to the next turn, or a turn might never end.
    pub(super) fn take(&self, now: Moment, in_progress: &mut Vec<ScheduledTask>) {
        let State { checks, releases, notifications, .. } = &mut *self.state.lock();
        in_progress.extend(iter::from_fn(|| checks.pop(now)).map(ScheduledTask::Check));
        in_progress.extend(
            iter::from_fn(|| releases.pop(now))
                .take(MAX_RELEASES_PER_RUN)
                .map(ScheduledTask::Release),
        );
        in_progress.extend(iter::from_fn(|| notifications.pop(now)).map(ScheduledTask::Notify));
    }

    /// The worker is about to sleep: a caller that wants something earlier than it wakes by itself must
    /// wake it. Returns until when it sleeps.
    pub(super) fn sleep(&self) -> Moment {
        let mut state = self.state.lock();
        let next = state.next();
        state.sleeps_until = Some(next);
        next
    }

    /// The worker is awake, and looks here before it sleeps again.
    pub(super) fn wake(&self) {
        self.state.lock().sleeps_until = None;
    }

    /// No slot is left. Returns when the first of what remains is due.
    pub(super) fn close(&self) -> Moment {
        let mut state = self.state.lock();
        state.checks.clear();
        state.next()
    }

    /// When the worker wakes by itself; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn sleeps_until(&self) -> Option<Moment> {
        self.state.lock().sleeps_until
    }

    /// When the worker does something next, which may be [`Moment::FAR`]; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn next(&self) -> Option<Moment> {
        let state = self.state.lock();
        state.sleeps_until.map(|until| until.min(state.next()))
    }

    /// How many checks, releases and notifications there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.checks.len(), state.releases.len(), state.notifications.len())
    }
}

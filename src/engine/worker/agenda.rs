//! What the worker is to do, shared with those who want it done.
//!
//! | part | one entry for each | leaves when |
//! | --- | --- | --- |
//! | looks | slot with a lease, held or lingering | the lease is given back or lost, or the worker takes it |
//! | returns | owner's value that is to be taken out of Redis | the worker takes it |
//! | news | loss; request to let go, up to a limit | the worker takes it |
//!
//! The lock is a leaf: a thread that has it takes no other, and drops nothing that is the user's. A slot
//! puts its entry in and takes it out while the slot itself is locked, so the entry is there exactly
//! while the slot has a lease.

use std::collections::HashMap;
use std::iter;

use crate::base::sync::{Arc, Condvar, Mutex, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::News;
use crate::engine::worker::duty::{Duty, GiveBack, Tended};
use crate::engine::worker::timers::Timers;
use crate::protocol::target::Target;

/// The most leases that are given back in one turn: renewals wait for no more of them.
pub(super) const RETURNS: usize = 256;
/// The most requests to let go that wait to be told. Others send them, as many as they like.
pub(super) const REQUESTS: usize = 1024;

/// What the worker is to do, and until when it sleeps.
#[derive(Debug)]
pub(super) struct Agenda {
    state: Mutex<State>,
    /// Something is owed no longer.
    fewer: Condvar,
}

#[derive(Debug)]
struct State {
    /// By the address of the slot, which the weak reference keeps from being used again.
    looks: Timers<usize, Weak<dyn Tended>>,
    returns: Timers<Arc<[u8]>, Arc<GiveBack>>,
    news: Timers<u64, News>,
    /// The number of the last of the news.
    told: u64,
    /// The owners' values that are still to be taken out of Redis.
    owed: HashMap<Arc<[u8]>, Arc<GiveBack>>,
    /// Nothing that is owed waits beyond this for the thread that had it; [`Moment::FAR`] before a
    /// shutdown.
    hurried: Moment,
    /// When the worker wakes by itself; `None` while it is awake.
    sleeps_until: Option<Moment>,
}

impl State {
    fn next(&self) -> Moment {
        self.looks.next().min(self.returns.next()).min(self.news.next())
    }

    fn give_back(&mut self, due: Moment, duty: Arc<GiveBack>) -> bool {
        let (mut due, mut duty) = (due, duty);
        if let Some((before, other)) = self.returns.remove(&duty.owner) {
            (due, duty) = (due.min(before), Arc::new(duty.and(&other)));
        }
        let due = duty.kept_until.map_or(due, |until| until.max(due));
        self.owed.insert(Arc::clone(&duty.owner), Arc::clone(&duty));
        self.returns.put(Arc::clone(&duty.owner), due, duty);
        self.oversleeps(due)
    }

    /// Whether the worker sleeps past a moment.
    fn oversleeps(&self, due: Moment) -> bool {
        self.sleeps_until.is_some_and(|until| due < until)
    }
}

impl Agenda {
    pub(super) fn new() -> Agenda {
        let state = State {
            looks: Timers::new(),
            returns: Timers::new(),
            news: Timers::new(),
            told: 0,
            owed: HashMap::new(),
            hurried: Moment::FAR,
            sleeps_until: Some(Moment::FAR),
        };
        Agenda { state: Mutex::new(state), fewer: Condvar::new() }
    }

    /// Wants a slot looked at then, or when it was wanted before if that is earlier. Returns whether
    /// the worker must be woken for it.
    pub(super) fn look_at<S: Tended + 'static>(&self, slot: &Arc<S>, due: Moment) -> bool {
        let mut state = self.state.lock();
        let place = Arc::as_ptr(slot) as usize;
        // Most have no entry yet, and those that have want an earlier one.
        let due = state.looks.due(&place).map_or(due, |before| due.min(before));
        let slot: Weak<dyn Tended> = Arc::<S>::downgrade(slot);
        state.looks.put(place, due, slot);
        state.oversleeps(due)
    }

    /// Wants a slot no longer looked at.
    pub(super) fn forget<S: Tended>(&self, slot: &S) {
        let forgotten = self.state.lock().looks.remove(&(std::ptr::from_ref(slot) as usize));
        drop(forgotten);
    }

    /// Owes it that an owner's value is taken out of Redis. Returns whether the worker must be woken
    /// for it.
    pub(super) fn give_back(&self, due: Moment, duty: Arc<GiveBack>) -> bool {
        self.state.lock().give_back(due, duty)
    }

    /// The same for what a thread may still be at work with, which waits until then, but for no shutdown.
    pub(super) fn give_back_later(&self, due: Moment, duty: Arc<GiveBack>) -> bool {
        let mut state = self.state.lock();
        let due = due.min(state.hurried);
        state.give_back(due, duty)
    }

    /// Makes all that is owed due, now and from now on: the client is shut down, which takes away what
    /// threads are at work with. Returns whether the worker must be woken for it.
    pub(super) fn hurry(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.hurried = now;
        state.returns.bring_forward(|duty| duty.kept_until.map_or(now, |until| until.max(now)));
        state.oversleeps(state.returns.next())
    }

    /// An owner's value is not in Redis any more, unless it was to be taken out once more meanwhile.
    pub(super) fn is_given_back(&self, duty: &GiveBack) {
        let mut state = self.state.lock();
        if !state.returns.contains(&duty.owner) {
            state.owed.remove(&duty.owner);
            drop(state);
            self.fewer.notify_all();
        }
    }

    /// Waits until everything is given back that is not to be kept, or the deadline. Returns the locks that are
    /// not.
    pub(super) fn wait_given_back(&self, clock: &dyn Clock, deadline: Moment) -> Vec<Arc<Target>> {
        let mut state = self.state.lock();
        loop {
            let now = clock.now();
            let is_due = |duty: &&Arc<GiveBack>| duty.kept_until.is_none_or(|until| until <= now);
            let mut owed = state.owed.values().filter(is_due).map(|duty| &duty.target).peekable();
            if owed.peek().is_none() || deadline <= now {
                return owed.map(Arc::clone).collect();
            }
            clock.doze(deadline, &mut |left| {
                self.fewer.wait_for(&mut state, left);
            });
        }
    }

    /// Calls the user back then. Returns whether the worker must be woken for it.
    pub(super) fn announce(&self, due: Moment, news: News) -> bool {
        let mut state = self.state.lock();
        let waiting = state.news.len();
        if waiting >= REQUESTS && matches!(news, News::Requested(_)) {
            // The user is about to hear of as many, and a process that still wants the lock asks again.
            return false;
        }
        state.told += 1;
        let number = state.told;
        state.news.put(number, due, news);
        state.oversleeps(due)
    }

    /// Takes out what is due, as far as it belongs into one turn: all slots, as each of them is
    /// there once, but only some of what is given back.
    ///
    /// What falls due meanwhile belongs to the next turn, or a turn might never end.
    pub(super) fn take(&self, now: Moment, hand: &mut Vec<Duty>) {
        let State { looks, returns, news, .. } = &mut *self.state.lock();
        hand.extend(iter::from_fn(|| looks.pop(now)).map(Duty::Look));
        hand.extend(iter::from_fn(|| returns.pop(now)).take(RETURNS).map(Duty::GiveBack));
        hand.extend(iter::from_fn(|| news.pop(now)).map(Duty::Announce));
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
        state.looks.clear();
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

    /// How many slots, values to give back, and news there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.looks.len(), state.returns.len(), state.news.len())
    }
}

//! The held locks and their holds, and the threads that wait for them.
//!
//! A thread joins the queue of its lock. The first in the queue takes the lock when it is free or
//! the lease of its holder has ended. So two events concern a waiting thread: it becomes the first,
//! or the holder releases. Both notify the first thread, and it wakes by itself when the holder's
//! lease ends.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use crate::base::name::Name;
use crate::base::option::Lease;
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::base::time::{Clock, Moment};
use crate::base::token::FencingToken;

/// The locks of one [`LocalLocks`](crate::LocalLocks).
pub(super) struct Registry {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_token: u64,
    /// The locks with a holder or a queue.
    locks: HashMap<Name, Lock>,
}

#[derive(Default)]
struct Lock {
    /// The last hold that was not released. Its lease may have ended.
    holder: Option<LocalGrant>,
    /// A condition variable for each thread, so that a release wakes the first alone.
    queue: VecDeque<Arc<Condvar>>,
}

/// One hold, identified by its token.
#[derive(Clone, Copy)]
pub(super) struct LocalGrant {
    pub(super) token: FencingToken,
    valid_until: Moment,
}

impl Registry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Registry {
        Registry { clock, state: Mutex::new(State::default()) }
    }

    /// Waits for the lock and takes it; `None` if others hold it for the whole wait.
    pub(super) fn acquire(&self, name: &Name, wait: Duration, lease: Lease) -> Option<LocalGrant> {
        let deadline = self.clock.now().after(wait);
        let waiter = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        // Also if the lock is free: a newcomer that took it past the queue would overtake the first
        // thread, which was notified and has not run yet.
        state.locks.entry(name.clone()).or_default().queue.push_back(Arc::clone(&waiter));
        loop {
            // Read under the lock and anew each time: after a wait, the lease may have ended.
            let now = self.clock.now();
            // Always there, because this thread is in its queue.
            let lock = state.locks.get(name)?;
            let free_at = lock.holder.map_or(Moment::PAST, |holder| holder.valid_until);
            let is_first = lock.queue.front().is_some_and(|first| Arc::ptr_eq(first, &waiter));
            // Before the deadline is checked: a wait of zero takes a free lock.
            if is_first && free_at <= now {
                let end = if lease.is_renewed() { Moment::FAR } else { now.after(lease.ttl()) };
                let end = end.min(lease.limit.map_or(Moment::FAR, |limit| now.after(limit)));
                let grant = LocalGrant { token: state.next_token(), valid_until: end };
                state.change(name, |lock| {
                    lock.holder = Some(grant);
                    lock.queue.pop_front();
                });
                return Some(grant);
            }
            if deadline <= now {
                state.change(name, |lock| lock.queue.retain(|one| !Arc::ptr_eq(one, &waiter)));
                return None;
            }
            // Only the first wakes at the end of the holder's lease. If all did, each expiry would
            // wake the whole queue, and all but one would sleep again.
            let until = if is_first { deadline.min(free_at) } else { deadline };
            self.clock.wait_until(until, &mut |span| {
                waiter.wait_for(&mut state, span);
            });
        }
    }

    /// Frees the lock if this hold still has it. Returns whether the hold was valid until now.
    pub(super) fn release(&self, name: &Name, grant: LocalGrant) -> bool {
        let mut state = self.state.lock();
        // Under the lock: a hold that is valid at this moment is still the holder, since no other
        // thread can take the lock now.
        let was_valid = self.is_valid(grant);
        // By the token: after the lease ended, the lock may belong to another thread, which must
        // keep it.
        state.change(name, |lock| {
            lock.holder = lock.holder.filter(|holder| holder.token != grant.token);
        });
        was_valid
    }

    pub(super) fn is_valid(&self, grant: LocalGrant) -> bool {
        self.clock.now() < grant.valid_until
    }
}

impl State {
    /// The next token: at least the time in microseconds, as Redis makes it, so that tokens grow
    /// from one run of the program to the next.
    fn next_token(&mut self) -> FencingToken {
        #[expect(
            clippy::disallowed_methods,
            reason = "no server has made a token; no deadline comes of it"
        )]
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.last_token = micros.max(self.last_token.saturating_add(1));
        FencingToken::new(self.last_token)
    }

    /// Changes a lock and notifies the first thread of its queue. Removes the lock if it has
    /// neither a holder nor a queue.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Lock)) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        change(lock);
        match lock.queue.front() {
            // After every change, whether it matters to the first or not: a notification too many
            // costs one check, and a missing one a hang.
            Some(first) => {
                first.notify_one();
            }
            None if lock.holder.is_none() => {
                self.locks.remove(name);
            }
            None => {}
        }
    }
}

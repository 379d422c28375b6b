//! Which locks are held, and by which hold, and the threads that wait for them.
//!
//! A thread that wants a lock joins its queue. The first in the queue takes the lock when it is free, or the
//! lease of its holder is over. So two events concern a waiting thread: it becomes the first, or the holder
//! releases. At both the first is notified; it wakes by itself when the holder's lease ends.

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
    /// Those that are held or waited for.
    locks: HashMap<Name, Lock>,
}

#[derive(Default)]
struct Lock {
    /// Its lease may be over.
    holder: Option<LocalGrant>,
    queue: VecDeque<Arc<Condvar>>,
}

/// One hold, which its token tells from all others.
#[derive(Clone, Copy)]
pub(super) struct LocalGrant {
    pub(super) token: FencingToken,
    valid_until: Moment,
}

impl Registry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Registry {
        Registry { clock, state: Mutex::new(State::default()) }
    }

    /// Waits for the lock and takes it; `None` if others have it for that long.
    pub(super) fn acquire(&self, name: &Name, wait: Duration, lease: Lease) -> Option<LocalGrant> {
        let deadline = self.clock.now().after(wait);
        let waiter = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        state.locks.entry(name.clone()).or_default().queue.push_back(Arc::clone(&waiter));
        loop {
            let now = self.clock.now();
            // It is there as long as this thread is in its queue.
            let lock = state.locks.get(name)?;
            let free_at = lock.holder.map_or(Moment::PAST, |holder| holder.valid_until);
            let is_first = lock.queue.front().is_some_and(|first| Arc::ptr_eq(first, &waiter));
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
            let until = if is_first { deadline.min(free_at) } else { deadline };
            self.clock.wait_until(until, &mut |span| {
                waiter.wait_for(&mut state, span);
            });
        }
    }

    /// Frees the lock if this hold still has it. Returns whether the hold was valid until now.
    pub(super) fn release(&self, name: &Name, grant: LocalGrant) -> bool {
        let mut state = self.state.lock();
        // Seen under the lock: a hold that is valid now is the holder.
        let was_valid = self.is_valid(grant);
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
    /// At least the time in microseconds, as Redis makes it: tokens grow from one run of the program to the next.
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

    /// Changes a lock, tells the first in its queue, and forgets a lock that nobody has or wants.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Lock)) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        change(lock);
        match lock.queue.front() {
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

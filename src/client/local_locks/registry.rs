//! The held locks and their holds, and the threads that wait for them.
//!
//! A thread joins the queue of its lock. The first in the queue takes the lock when it is free or
//! the lease of its holder has ended. So two events concern a waiting thread: it becomes the first,
//! or the holder releases. Both notify the first thread, and it wakes by itself when the holder's
//! lease ends. A third event, that the locks are closed, notifies all threads.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use crate::base::close_report::CloseReport;
use crate::base::error::{Error, Result};
use crate::base::inspection::{HeldPart, Holder, Inspection, Origin, WaitingProcess};
use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::option::Lease;
use crate::base::sync::{Arc, Condvar, Mutex};
use crate::base::time::{Clock, Moment};
use crate::base::token::FencingToken;
use crate::engine::closing::{Closing, ClosingPhase};

/// The locks of one [`LocalLocks`](crate::LocalLocks).
pub(super) struct Registry {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    closing: Closing,
}

#[derive(Default)]
struct State {
    last_token: u64,
    /// The locks with a holder or a queue.
    locks: HashMap<Name, Lock>,
}

#[derive(Default)]
struct Lock {
    /// The last hold that was not released. Its lease may have ended. Once all holds are taken it
    /// stays, for the report.
    holder: Option<LocalGrant>,
    /// A condition variable for each thread, so that a release wakes the first alone.
    queue: VecDeque<Arc<LocalWaiter>>,
}

/// A thread that waits.
struct LocalWaiter {
    since: Moment,
    woken: Condvar,
}

/// One hold, identified by its token.
#[derive(Clone, Copy)]
pub(super) struct LocalGrant {
    pub(super) token: FencingToken,
    pub(super) since: Moment,
    pub(super) valid_until: Moment,
}

/// When this lease ends that begins at `since`, and when its limit ends a hold.
pub(super) fn lease_ends(lease: Lease, since: Moment) -> (Moment, Moment) {
    let until = if lease.is_renewed() { Moment::FAR } else { since.after(lease.ttl()) };
    (until, lease.limit.map_or(Moment::FAR, |limit| since.after(limit)))
}

impl Registry {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Registry {
        Registry { clock, state: Mutex::new(State::default()), closing: Closing::new() }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.phase() != ClosingPhase::Open
    }

    /// Whether a wait that begins now is too long for the clock.
    pub(super) fn is_endless(&self, wait: Duration) -> bool {
        self.clock.now().after(wait) == Moment::FAR
    }

    /// Waits for the lock and takes it; `None` if others hold it for the whole wait.
    pub(super) fn acquire(
        &self,
        name: &Name,
        wait: Duration,
        lease: Lease,
    ) -> Result<Option<LocalGrant>> {
        let since = self.clock.now();
        let deadline = since.after(wait);
        let waiter = Arc::new(LocalWaiter { since, woken: Condvar::new() });
        let mut state = self.state.lock();
        // Also if the lock is free: a newcomer that took it past the queue would overtake the first
        // thread, which was notified and has not run yet.
        state.locks.entry(name.clone()).or_default().queue.push_back(Arc::clone(&waiter));
        loop {
            // Read under the lock and anew each time: after a wait, the lease may have ended.
            let now = self.clock.now();
            // Always there, because this thread is in its queue.
            let Some(lock) = state.locks.get(name) else { return Ok(None) };
            let free_at = lock.holder.map_or(Moment::PAST, |holder| holder.valid_until);
            let is_first = lock.queue.front().is_some_and(|first| Arc::ptr_eq(first, &waiter));
            let leave = |state: &mut State| {
                state.change(name, |lock| lock.queue.retain(|one| !Arc::ptr_eq(one, &waiter)));
            };
            // Under the lock: `close` counts the threads that are in a queue by then, and a later
            // one is refused here.
            if self.is_closing() {
                leave(&mut state);
                return Err(Error::cancelled("the locks were closed; make new ones").of(name));
            }
            // Before the deadline is checked: a wait of zero takes a free lock.
            if is_first && free_at <= now {
                let (end, limit) = lease_ends(lease, now);
                let (token, valid_until) = (state.next_token(), end.min(limit));
                let grant = LocalGrant { token, since: now, valid_until };
                state.change(name, |lock| {
                    lock.holder = Some(grant);
                    lock.queue.pop_front();
                });
                return Ok(Some(grant));
            }
            if deadline <= now {
                leave(&mut state);
                return Ok(None);
            }
            // Only the first wakes at the end of the holder's lease. If all did, each expiry would
            // wake the whole queue, and all but one would sleep again.
            let until = if is_first { deadline.min(free_at) } else { deadline };
            self.clock.wait_until(until, &mut |span| {
                waiter.woken.wait_for(&mut state, span);
            });
        }
    }

    /// The present moment.
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Makes a hold end at this moment. Returns it; `None` if it is over.
    pub(super) fn end_at(
        &self,
        name: &Name,
        grant: LocalGrant,
        valid_until: Moment,
    ) -> Option<LocalGrant> {
        let mut state = self.state.lock();
        // Under the lock, as in `release`: one that is valid now is still the holder.
        if !self.is_valid(grant) {
            return None;
        }
        let grant = LocalGrant { valid_until, ..grant };
        state.change(name, |lock| lock.holder = Some(grant));
        Some(grant)
    }

    /// Frees the lock if this hold still has it. Returns whether the hold was valid until now.
    pub(super) fn release(&self, name: &Name, grant: LocalGrant) -> bool {
        let mut state = self.state.lock();
        // Under the lock: a hold that is valid at this moment is still the holder, since no other
        // thread can take the lock now.
        let was_valid = self.is_valid(grant);
        // A hold that was valid is released, also if `close` ends all holds at this moment.
        if was_valid || self.closing.phase() != ClosingPhase::Ended {
            // By the token: after the lease ended, the lock may belong to another thread, which must
            // keep it.
            state.change(name, |lock| {
                lock.holder = lock.holder.filter(|holder| holder.token != grant.token);
            });
        }
        // `close` has it when it looks at the locks.
        drop(state);
        if self.is_closing() {
            self.closing.tell();
        }
        was_valid
    }

    /// Who has the lock and who waits: threads of this process.
    pub(super) fn inspect(&self, name: &Name) -> Inspection {
        let (state, now) = (self.state.lock(), self.clock.now());
        let origin = || Some(Origin { pid: Some(std::process::id()), ..Origin::default() });
        let holder = |grant: &LocalGrant| Holder {
            owner: grant.token.to_string().into_bytes(),
            origin: origin(),
            token: Some(grant.token),
            since: Some(now.since(grant.since)),
            overdue: None,
            ttl: (grant.valid_until != Moment::FAR).then(|| grant.valid_until.since(now)),
            part: HeldPart::Whole,
        };
        let waiter = |(index, waiter): (usize, &Arc<LocalWaiter>)| WaitingProcess {
            owner: Vec::new(),
            origin: origin(),
            place: index + 1,
            since: Some(now.since(waiter.since)),
        };
        let lock = state.locks.get(name);
        let held = lock.and_then(|lock| lock.holder).filter(|grant| self.is_valid(*grant));
        let waiters: Vec<_> =
            lock.map_or_else(Vec::new, |lock| lock.queue.iter().enumerate().map(waiter).collect());
        Inspection {
            holders: held.iter().map(holder).collect(),
            waiting: Some(waiters.len()),
            waiters,
            permits: None,
            word: None,
            servers: Vec::new(),
        }
    }

    pub(super) fn is_valid(&self, grant: LocalGrant) -> bool {
        self.clock.now() < grant.valid_until && self.closing.phase() != ClosingPhase::Ended
    }

    /// Why this hold is not valid.
    pub(super) fn loss(&self, name: &Name, grant: LocalGrant) -> Loss {
        let is_over = grant.valid_until <= self.clock.now();
        let cause = if is_over { LossCause::Expired } else { LossCause::ShutDown };
        // A renewed lease does not end by itself.
        Loss::new(name.clone(), grant.token, cause, false)
    }

    /// Refuses and cancels all waits, and takes what is still held when the grace is over.
    pub(super) fn close(&self, grace: Duration, within: Duration) -> CloseReport {
        let end = self.clock.now().after(grace);
        let (mut cancelled, mut holds) = (0, Vec::new());
        let state = self.state.lock();
        // Under the lock under which a thread joins a queue or leaves it. Of several calls the first one counts
        // those that wait.
        let is_first = self.closing.set(ClosingPhase::Closing);
        for (name, lock) in &state.locks {
            cancelled += if is_first { lock.queue.len() } else { 0 };
            lock.queue.iter().for_each(|waiter| _ = waiter.woken.notify_one());
            holds.extend(lock.holder.map(|grant| (name.clone(), grant)));
        }
        drop(state);
        // Nobody is told of the end of a lease.
        let last = holds.iter().map(|(_, grant)| grant.valid_until).max().unwrap_or(Moment::PAST);
        let works =
            |(name, grant): &(Name, LocalGrant)| self.is_valid(*grant) && self.has(name, *grant);
        drop(self.closing.wait(&*self.clock, end.min(last), &holds, works));
        self.closing.advance(ClosingPhase::Ended);
        let loss = |(name, grant): &(Name, LocalGrant)| {
            self.has(name, *grant).then(|| self.loss(name, *grant))
        };
        CloseReport::new(cancelled, holds.iter().map(loss), Vec::new(), within)
    }

    /// Whether nobody has released this hold.
    fn has(&self, name: &Name, grant: LocalGrant) -> bool {
        let state = self.state.lock();
        let holder = state.locks.get(name).and_then(|lock| lock.holder);
        holder.is_some_and(|holder| holder.token == grant.token)
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
                first.woken.notify_one();
            }
            None if lock.holder.is_none() => {
                self.locks.remove(name);
            }
            None => {}
        }
    }
}

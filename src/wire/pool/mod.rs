//! The pool of connections: how long a caller waits for one, which ones may be used again, and why
//! there was none.

mod adapter;
mod setting;

use std::time::Duration;

pub(crate) use self::adapter::{Borrowed, ConnectThread, connector};
use self::adapter::{RawPool, untested};
pub(crate) use self::setting::{PoolSettings, check_timeout};
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::base::time::Moment;
use crate::wire::connect_attempts::ConnectCounts;
use crate::wire::connection::{Connection, Session as _};
use crate::wire::error_context::connecting;
use crate::wire::failure::{Failure, NotSentReason, Shortage};
use crate::wire::manager::Manager;

/// How long a caller waits before it looks again whether the worker still waits for a connection.
const WORKER_FIRST: Duration = Duration::from_millis(1);

/// A pool of connections to one server.
pub(crate) struct Pool {
    raw: RawPool,
    manager: Arc<Manager>,
    max_wait: Duration,
    max_idle: Option<u32>,
    /// Whether the worker waits for a connection here. Callers leave it the next one that is returned: a busy pool
    /// would otherwise always give it to the next caller, and leases would end beside connections that work.
    worker_waits: AtomicBool,
}

impl Pool {
    /// Makes a pool. It connects when a connection is first needed.
    pub(crate) fn new(
        manager: &Arc<Manager>,
        settings: &PoolSettings,
        connector: ConnectThread,
    ) -> Pool {
        let raw = RawPool::new(manager, settings, connector);
        let (max_wait, max_idle) = (settings.max_wait, settings.max_idle);
        Pool {
            raw,
            manager: Arc::clone(manager),
            max_wait,
            max_idle,
            worker_waits: AtomicBool::new(false),
        }
    }

    /// Borrows an idle connection.
    pub(crate) fn ready(&self) -> Option<Borrowed> {
        if self.is_left_to_worker() {
            return None;
        }
        // An outdated connection is dropped here, which closes it. After a fail-over that may be
        // all of them.
        let now = self.manager.now();
        while let Some(mut connection) = self.raw.try_get() {
            if connection.is_usable() && !connection.has_died(now) {
                return Some(connection);
            }
        }
        None
    }

    /// Orders one more connection, if there may be one, without waiting for it. Returns an idle one
    /// if there is one.
    pub(crate) fn request(&self) -> Option<Borrowed> {
        if self.is_left_to_worker() {
            return None;
        }
        let mut connection = self.raw.request_connection()?;
        let now = self.manager.now();
        (connection.is_usable() && !connection.has_died(now)).then_some(connection)
    }

    /// Borrows an idle connection. If there is none, orders one without waiting for it.
    pub(crate) fn ready_or_request(&self) -> Option<Borrowed> {
        self.ready().or_else(|| self.request())
    }

    /// Borrows an idle connection for the worker, and does not test it.
    pub(crate) fn lend(&self) -> Option<Borrowed> {
        untested(|| {
            while let Some(mut connection) = self.raw.try_get() {
                if self.may_lend(&mut connection) {
                    return Some(connection);
                }
            }
            None
        })
    }

    /// Looks whether the server has closed an idle connection, which nobody else notices before it is used.
    pub(crate) fn look(&self) {
        let idle = untested(|| self.raw.try_get());
        if let Some(mut connection) = idle.filter(|it| it.is_usable()) {
            _ = connection.look(self.manager.now());
        }
    }

    /// The same, but waits a moment until a caller returns a connection, or until an attempt to connect
    /// ends that is not among those `seen`.
    pub(crate) fn wait_to_lend(&self, seen: ConnectCounts, most: Duration) -> Option<Borrowed> {
        let mut connection = untested(|| self.raw.wait_returned(seen, most))?;
        self.may_lend(&mut connection).then_some(connection)
    }

    fn may_lend(&self, connection: &mut Connection) -> bool {
        self.manager.may_lend(connection) && !connection.has_died(self.manager.now())
    }

    /// Has callers leave to the worker what is returned, until the turn is dropped.
    pub(crate) fn worker_turn(&self) -> WorkerTurn<'_> {
        self.worker_waits.store(true, Ordering::Release);
        WorkerTurn(self)
    }

    /// Whether callers leave the next connection to the worker. While there is none, they order one as ever.
    pub(crate) fn is_left_to_worker(&self) -> bool {
        self.worker_waits.load(Ordering::Acquire) && !self.is_empty()
    }

    /// Wakes the thread that connects, after an attempt was requested.
    pub(crate) fn wake(&self) {
        self.raw.wake();
    }

    /// Notes that a caller needs a connection: if the last attempt failed, the next one begins now.
    pub(crate) fn ask(&self) {
        if self.manager.attempts().ask() {
            self.raw.wake();
        }
    }

    /// Whether there is no connection at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// How long a caller that came at `start` waits for a connection, as things stand: for a new
    /// one, as long as connecting may take; for one that others use, as long as `max_wait`.
    pub(crate) fn limit(&self, start: Moment) -> Moment {
        let attempts = self.manager.attempts().counts();
        // If connecting fails while some connections work, the caller can only wait for one of
        // those. The time during which connections were made does not count, so that `max_wait`
        // begins anew with the last.
        if self.raw.is_full() || attempts.is_failing && !self.is_empty() {
            start.max(attempts.made_at).after(self.max_wait)
        } else {
            start.after(self.manager.longest_attempt())
        }
    }

    /// Borrows a connection. Waits until `deadline`, and no longer than until
    /// [`limit`](Self::limit).
    pub(crate) fn get(&self, deadline: Moment) -> Result<Borrowed, Failure> {
        self.get_since(self.manager.now(), deadline)
    }

    /// The same for a caller that has waited since `start`.
    fn get_since(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        // Not `is_usable`: r2d2 takes no poisoned connection back, and this is the fast path of all
        // calls.
        if !self.is_left_to_worker()
            && let Some(mut connection) = self.raw.try_get()
            && !connection.is_outdated()
            && !connection.has_died(start)
        {
            return Ok(connection);
        }
        self.get_slowly(start, deadline)
    }

    #[cold]
    fn get_slowly(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        let attempts = self.manager.attempts();
        // Before `ask`, or a failure of the attempt that it causes could go unnoticed.
        let before = attempts.counts();
        self.ask();
        let mut seen = before;
        // Such a caller has waited for nothing, so it knows nothing about the server.
        if deadline <= self.manager.now() {
            return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
        }
        loop {
            let now = self.manager.now();
            // Computed anew at each step, because the caller may begin to wait for something else:
            // the pool may be full now, or connecting may have failed.
            let left = deadline.min(self.limit(start)).since(now);
            if left.is_zero() {
                return Err(Failure::NotSent(self.shortage(self.manager.now().since(start))));
            }
            if self.is_left_to_worker() {
                attempts.wait(seen, left.min(WORKER_FIRST));
            } else if let Some(mut connection) = self.raw.wait(seen, left)
                && !self.is_left_to_worker()
                && connection.is_usable()
                && !connection.has_died(now)
            {
                return Ok(connection);
            }
            seen = attempts.counts();
            // r2d2 will try again. But with no connection that could become free, this caller
            // returns the error: a refused connection or password is worth more to it than a
            // time-out later on.
            if seen.failed != before.failed
                && self.is_empty()
                && let Some(error) = attempts.last_error()
            {
                return Err(Failure::connect(error));
            }
        }
    }

    /// Why there was no connection during this wait.
    pub(crate) fn shortage(&self, waited: Duration) -> NotSentReason {
        if !self.raw.is_full() {
            // An attempt has failed, or takes longer than this caller can wait.
            let connecting = || connecting(&self.manager.awaited(), waited);
            let trouble = self.manager.attempts().last_error();
            return NotSentReason::Connect(trouble.unwrap_or_else(connecting));
        }
        NotSentReason::Exhausted(Shortage {
            waited,
            size: self.raw.max_size(),
            address: self.manager.address(),
            // If the server is silent all connections are in use, and a larger pool would not help.
            // Half of the wait, because replies during its beginning say nothing about the rest.
            is_silent: self.manager.silence() > waited / 2,
        })
    }

    /// Runs one exchange on a borrowed connection. The caller has waited for it since `start`.
    pub(crate) fn with_connection<T>(
        &self,
        start: Moment,
        deadline: Moment,
        exchange: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut connection = self.get_since(start, deadline)?;
        let outcome = exchange(&mut connection);
        // r2d2 has no upper bound for idle connections. It closes what is poisoned, which is not
        // put back.
        if self.max_idle.is_some_and(|max_idle| self.raw.idle() >= max_idle) {
            connection.poison();
        }
        outcome
    }
}

/// The time during which the worker waits for a connection of callers.
#[derive(Debug)]
pub(crate) struct WorkerTurn<'a>(&'a Pool);

impl Drop for WorkerTurn<'_> {
    fn drop(&mut self) {
        self.0.worker_waits.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("raw", &self.raw).finish_non_exhaustive()
    }
}

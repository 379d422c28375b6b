//! The pool of connections: how long a caller waits for one, which of them may still be used, and why there
//! was none.

mod adapter;
mod setting;

use std::time::Duration;

use self::adapter::RawPool;
pub(crate) use self::adapter::{Borrowed, ConnectThread, connector};
pub(crate) use self::setting::{PoolSettings, check_timeout};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::connection::{Connection, Session as _};
use crate::wire::error_context::connecting;
use crate::wire::failure::{Failure, NotSentReason, Shortage};
use crate::wire::manager::Manager;

/// A pool of connections to one server.
pub(crate) struct Pool {
    raw: RawPool,
    manager: Arc<Manager>,
    max_wait: Duration,
    max_idle: Option<u32>,
}

impl Pool {
    /// Makes a pool, which connects when a connection is first needed.
    pub(crate) fn new(
        manager: &Arc<Manager>,
        settings: &PoolSettings,
        connector: ConnectThread,
    ) -> Pool {
        let raw = RawPool::new(manager, settings, connector);
        let (max_wait, max_idle) = (settings.max_wait, settings.max_idle);
        Pool { raw, manager: Arc::clone(manager), max_wait, max_idle }
    }

    /// Borrows a connection if one is there; if not, has one more made, without waiting for it.
    pub(crate) fn ready_or_request(&self) -> Option<Borrowed> {
        while let Some(connection) = self.raw.try_get() {
            if connection.is_usable() {
                return Some(connection);
            }
        }
        self.raw.request_connection().filter(|connection| connection.is_usable())
    }

    /// A caller wants a connection, and there is none for it: if the last could not be made, it is tried
    /// again now.
    pub(crate) fn ask(&self) {
        if self.manager.attempts().ask() {
            self.raw.wake();
        }
    }

    /// Whether there is no connection at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Until when a caller that came at `start` waits for a connection, as things stand: for one that is being
    /// made, as long as that may take; for one that others have, as long as the user said. The time in which
    /// connections were made does not count towards that.
    pub(crate) fn limit(&self, start: Moment) -> Moment {
        let attempts = self.manager.attempts().counts();
        if self.raw.is_full() || attempts.is_failing && !self.is_empty() {
            start.max(attempts.made_at).after(self.max_wait)
        } else {
            start.after(self.manager.longest_attempt())
        }
    }

    /// Borrows a connection. Waits until `deadline`, and no longer than [`limit`](Self::limit) says.
    pub(crate) fn get(&self, deadline: Moment) -> Result<Borrowed, Failure> {
        self.get_since(self.manager.now(), deadline)
    }

    /// The same for a caller that has waited since then.
    fn get_since(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        if let Some(connection) = self.raw.try_get()
            && !connection.is_outdated()
        {
            return Ok(connection);
        }
        self.get_slowly(start, deadline)
    }

    #[cold]
    fn get_slowly(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        let attempts = self.manager.attempts();
        let before = attempts.counts();
        self.ask();
        let mut seen = before;
        loop {
            let now = self.manager.now();
            let left = deadline.min(self.limit(start)).since(now);
            if left.is_zero() {
                return Err(Failure::NotSent(self.shortage(self.manager.now().since(start))));
            }
            if let Some(connection) = self.raw.wait(seen, left)
                && connection.is_usable()
            {
                return Ok(connection);
            }
            seen = attempts.counts();
            // It is tried again. But where there is no other to come free, that is not waited for.
            if seen.failed != before.failed
                && self.is_empty()
                && let Some(error) = attempts.last_error()
            {
                return Err(Failure::connect(error));
            }
        }
    }

    /// Why no connection came free in this time.
    pub(crate) fn shortage(&self, waited: Duration) -> NotSentReason {
        if !self.raw.is_full() {
            // One could not be made, or is being made and takes longer than the caller has.
            let connecting = || connecting(&self.manager.address(), waited);
            let trouble = self.manager.attempts().last_error();
            return NotSentReason::Connect(trouble.unwrap_or_else(connecting));
        }
        NotSentReason::Exhausted(Shortage {
            waited,
            size: self.raw.max_size(),
            address: self.manager.address(),
            // Of a silent server all connections are in use, and no larger pool would help. Replies that came
            // when the wait had just begun say nothing of the rest of it.
            is_silent: self.manager.silence() > waited / 2,
        })
    }

    /// Runs one exchange on a borrowed connection, and spoils that where the exchange did. The caller has waited
    /// for one since `start`.
    pub(crate) fn exchange<T>(
        &self,
        start: Moment,
        deadline: Moment,
        exchange: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut connection = self.get_since(start, deadline)?;
        let outcome = exchange(&mut connection);
        if self.max_idle.is_some_and(|max_idle| self.raw.idle() >= max_idle) {
            connection.poison();
        }
        outcome
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("raw", &self.raw).finish_non_exhaustive()
    }
}

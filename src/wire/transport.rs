//! What callers send to one server, and what its worker sends where there is one server.

use crate::base::sync::Arc;
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::Batcher;
use crate::wire::connection::{Connection, Reply, Session as _};
use crate::wire::failure::Failure;
use crate::wire::fork_guard;
use crate::wire::locator::Locator;
use crate::wire::manager::{Manager, Timeouts};
use crate::wire::pool::{ConnectThread, Pool, PoolSettings};
use crate::wire::script::{Call, probe};
use crate::wire::server_clock::ServerClock;

/// Who asks: renewals must not wait for callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Callers,
    Worker,
}

/// One server: the pool for callers, and a connection of its own for the worker.
#[derive(Debug)]
pub(crate) struct Transport {
    pool: Pool,
    batcher: Batcher,
    /// Renewals must not wait for callers. The worker does not connect itself: looking a name up may
    /// take longer than what is left of the leases of which it is to tell that they are lost.
    worker: Pool,
    manager: Arc<Manager>,
}

impl Transport {
    pub(crate) fn new(
        source: Arc<dyn Locator>,
        clock: Arc<dyn Clock>,
        settings: &PoolSettings,
        timeouts: Timeouts,
        connector: ConnectThread,
    ) -> Transport {
        let manager = Arc::new(Manager::new(source, Arc::clone(&clock), timeouts));
        Transport {
            batcher: Batcher::new(Arc::clone(&clock), settings.max_size),
            worker: Pool::new(&manager, &settings.of_one(), connector.clone()),
            pool: Pool::new(&manager, settings, connector),
            manager,
        }
    }

    /// The maker of its connections.
    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// The connections of callers, or that of the worker.
    pub(crate) fn pool(&self, lane: Lane) -> &Pool {
        match lane {
            Lane::Callers => &self.pool,
            Lane::Worker => &self.worker,
        }
    }

    pub(crate) fn server_clock(&self) -> &ServerClock {
        self.manager.server_clock()
    }

    /// How many connections were tried so far, whatever came of it.
    pub(crate) fn connect_attempts(&self) -> u64 {
        self.manager.attempts().counts().all()
    }

    /// Until when the reply to a request that is sent now is waited for.
    pub(crate) fn reply_by(&self, deadline: Moment) -> Moment {
        self.manager.reply_by(deadline)
    }

    /// Makes sure that a connection can be made; a new one tells the server's time.
    pub(crate) fn connect(&self, deadline: Moment) -> Result<(), Failure> {
        fork_guard::check()?;
        self.pool.get(deadline).map(drop)
    }

    /// Makes sure that the server serves, which one that is starting does not, and lets this user run
    /// scripts.
    pub(crate) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        self.call(&probe(), deadline).map(drop)
    }

    /// One command and its answer. It travels together with what other threads send at the moment.
    pub(crate) fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        fork_guard::check()?;
        let outcome = self.batcher.call(call, deadline, &self.pool);
        outcome.map_err(|failure| failure.at(&self.manager.address(), self.manager.reply_limit()))
    }

    /// Several commands that must travel on one connection.
    pub(crate) fn exchange<T>(
        &self,
        deadline: Moment,
        exchange: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        fork_guard::check()?;
        self.pool.exchange(self.manager.now(), deadline, exchange)
    }

    /// Many commands as one pipeline, on the worker's connection.
    pub(crate) fn call_all(&self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        let told = fork_guard::check().and_then(|()| {
            let start = self.manager.now();
            self.worker
                .exchange(start, deadline, |connection| Ok(connection.call_all(calls, deadline)))
        });
        told.unwrap_or_else(|failure| calls.iter().map(|_| Err(failure.clone())).collect())
    }

    /// Closes all connections, and what listens too: the server is not what it was.
    pub(crate) fn retire(&self) {
        self.manager.move_on();
    }

    /// Closes all connections as they come back: one of them may be out of step.
    pub(crate) fn discard_connections(&self) {
        self.manager.outdate_all();
    }
}

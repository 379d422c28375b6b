//! The connections to one server: those of callers, and that of the worker.

use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::base::time::{Clock, Moment};
use crate::wire::batcher::Batcher;
use crate::wire::connection::{Connection, Reply};
use crate::wire::failure::Failure;
use crate::wire::fork_guard;
use crate::wire::lane::LaneConnections;
use crate::wire::locator::Locator;
use crate::wire::manager::{Manager, Timeouts};
use crate::wire::pool::{ConnectThread, Pool, PoolSettings};
use crate::wire::script::{Call, probe};
use crate::wire::server_clock::ServerClock;
use crate::wire::worker_connection::WorkerConnection;

pub(crate) use crate::wire::lane::Lane;

/// One server: the pool for callers, and a connection of its own for the worker.
#[derive(Debug)]
pub(crate) struct Transport {
    pool: Pool,
    batcher: Batcher,
    worker: Arc<WorkerConnection>,
    /// Whether the worker had a connection of its own when it last looked.
    had_worker: AtomicBool,
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
        let manager = Manager::new(source, Arc::clone(&clock), timeouts);
        let manager = manager.observed(settings.observers.clone()).timed(&settings.clocks);
        let manager = Arc::new(manager);
        Transport {
            batcher: Batcher::new(Arc::clone(&clock), settings.max_size),
            worker: WorkerConnection::new(&manager, settings, &connector),
            had_worker: AtomicBool::new(false),
            pool: Pool::new(&manager, settings, connector),
            manager,
        }
    }

    /// What opens its connections.
    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// The connections of callers, or those of the worker.
    pub(crate) fn lane(&self, lane: Lane) -> LaneConnections<'_> {
        match lane {
            Lane::Callers => LaneConnections::Callers(&self.pool),
            Lane::Worker => LaneConnections::Worker { own: &self.worker, callers: &self.pool },
        }
    }

    /// Whether callers have a connection.
    pub(crate) fn serves_callers(&self) -> bool {
        !self.pool.is_empty()
    }

    /// Keeps the worker's connection until this moment. Returns whether it exists.
    pub(crate) fn keep_worker_connection(&self, until: Moment) -> bool {
        let has_worker = self.worker.keep(until);
        // Relaxed: the worker alone comes here.
        let had_worker = self.had_worker.swap(has_worker, Ordering::Relaxed);
        // Those of callers are looked at until it has one that was made before: a new one would lead to a server that
        // has come back meanwhile, and show nothing of that.
        if !has_worker || !had_worker {
            self.pool.look();
        }
        has_worker
    }

    /// Orders the worker's connection if there is none, without waiting for it.
    pub(crate) fn connect_worker(&self) {
        self.worker.connect();
    }

    pub(crate) fn server_clock(&self) -> &Arc<ServerClock> {
        self.manager.server_clock()
    }

    /// How many connection attempts were made so far, whatever their outcome.
    pub(crate) fn connect_attempts(&self) -> u64 {
        self.manager.attempts().counts().all()
    }

    /// How long a request that is sent now waits for its reply.
    pub(crate) fn reply_by(&self, deadline: Moment) -> Moment {
        self.manager.reply_by(deadline)
    }

    /// Makes sure that a connection exists; opening a new one reads the server's time.
    pub(crate) fn connect(&self, deadline: Moment) -> Result<(), Failure> {
        fork_guard::check()?;
        self.pool.get(deadline).map(drop)
    }

    /// Makes sure that the server is not still loading its data, and lets this user run scripts.
    pub(crate) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        // A script, because it fails for what the locks would fail for. The `TIME` of a new
        // connection does not: a server that is loading its data replies to it, and so it does to a
        // user who may run no scripts.
        self.call(&probe(), deadline).map(drop)
    }

    /// Sends one command and waits for its reply. It may share a write with commands of other
    /// threads.
    pub(crate) fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        fork_guard::check()?;
        let outcome = self.batcher.call(call, deadline, &self.pool);
        outcome.map_err(|failure| failure.at(&self.manager.address(), self.manager.reply_limit()))
    }

    /// Runs several commands on one connection.
    pub(crate) fn with_connection<T>(
        &self,
        deadline: Moment,
        mut exchange: impl FnMut(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        fork_guard::check()?;
        // No place of the batcher is taken. A `WAIT` of seconds in one of its few places would hold
        // up all the short commands behind it.
        Failure::retry_while(Failure::is_closed_before, || {
            self.pool.with_connection(self.manager.now(), deadline, &mut exchange)
        })
    }

    /// Sends many commands as one pipeline.
    pub(crate) fn call_all(
        &self,
        calls: &[Call],
        lane: Lane,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let outcomes = fork_guard::check().and_then(|()| {
            // One connection, and so one time-out for all. One at a time, a silent server would
            // cost each lease its own, and the last would have run out before its request was sent.
            self.lane(lane).call_all(calls, deadline)
        });
        outcomes.unwrap_or_else(|failure| calls.iter().map(|_| Err(failure.clone())).collect())
    }

    /// Closes all connections and subscriptions: the server is another one, or has another role.
    pub(crate) fn retire(&self) {
        self.manager.move_on();
    }

    /// Closes all connections as they return to the pool: on one of them replies may belong to
    /// other commands. Returns the server's address.
    pub(crate) fn discard_connections(&self) -> String {
        self.manager.outdate_all();
        self.manager.address()
    }
}

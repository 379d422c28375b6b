//! One server of several.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::base::thread::Threads;
use crate::base::time::{Clock, Moment};
use crate::protocol::wake::Publisher;
use crate::topology::several::probation::Probation;
use crate::wire::attempt::AttemptCounts;
use crate::wire::connection::{Connection, Reply, Standing};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::fault::Limit;
use crate::wire::manager::{Manager, Timeouts};
use crate::wire::pool::{Borrowed, Connector, Pool, PoolSettings, connector};
use crate::wire::process::Process;
use crate::wire::server_clock::ServerClock;
use crate::wire::source::{Fixed, Question, Source};
use crate::wire::subscription::Subscriber;

/// Who asks: renewals must not wait for callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Callers,
    Worker,
}

/// Connections of one lane. They are made by a thread of the node's, never by who asks: one server
/// that cannot be reached must not hold up the others.
struct Connections {
    pool: Pool,
    manager: Arc<Manager>,
}

/// How the connections to a node are made.
#[derive(Clone, Debug)]
pub(crate) struct NodeSettings {
    pub(crate) pool: PoolSettings,
    /// How long it may take to connect, or to answer.
    pub(crate) timeout: Duration,
    /// The name of that setting, for errors.
    pub(crate) setting: &'static str,
    /// For how long its word does not count after a restart; `None` where it always does.
    pub(crate) probation: Option<Duration>,
    /// What the threads of its client are called.
    pub(crate) threads: Threads,
}

/// A server that has to report since when it runs, and so from when on it counts.
#[derive(Debug)]
struct Voter {
    info: Endpoint,
    probation: Arc<Probation>,
}

impl Source for Voter {
    fn locate(
        &self,
        _each: Duration,
        _most: Duration,
        _asks_all: bool,
    ) -> Result<(Endpoint, bool), RedisError> {
        Ok((self.info.clone(), false))
    }

    fn address(&self) -> String {
        endpoint::address(&self.info)
    }

    /// No request goes out without a deadline.
    fn needs_time(&self) -> bool {
        true
    }

    fn question(&self) -> Option<Question> {
        Some(Question { command: &[b"INFO", b"server"], needed: self.probation.is_needed() })
    }

    fn judge(&self, connection: &mut Connection, reply: Option<&Reply>) -> Result<(), RedisError> {
        connection.standing = self.probation.standing(reply);
        Ok(())
    }
}

/// One server of several: a pool for callers, a connection for the worker.
pub(crate) struct Node {
    callers: Connections,
    worker: Connections,
    server_clock: Arc<ServerClock>,
    probation: Option<Arc<Probation>>,
    /// It did not answer, or could not be connected to, when it was last tried.
    silent: AtomicBool,
    /// How long it takes to answer, in nanoseconds.
    took: AtomicU64,
    timeout: Duration,
    process: Process,
    address: String,
}

impl Node {
    pub(crate) fn new(
        info: Endpoint,
        clock: &Arc<dyn Clock>,
        settings: &NodeSettings,
    ) -> Result<Node, Failure> {
        Ok(Node::with_connector(info, clock, settings, &connector(settings.threads)?))
    }

    /// Makes a node whose connections are made by a thread that others use too.
    pub(crate) fn with_connector(
        info: Endpoint,
        clock: &Arc<dyn Clock>,
        settings: &NodeSettings,
        connector: &Connector,
    ) -> Node {
        let address = endpoint::address(&info);
        let server_clock = Arc::new(ServerClock::default());
        let probation = settings.probation.map(|span| Arc::new(Probation::new(span)));
        let source: Arc<dyn Source> = match &probation {
            Some(probation) => Arc::new(Voter { info, probation: Arc::clone(probation) }),
            None => Arc::new(Fixed::new(info)),
        };
        let lane = |pool: &PoolSettings| {
            let manager = Manager::new(
                Arc::clone(&source),
                Arc::clone(clock),
                Arc::clone(&server_clock),
                Timeouts {
                    connect: settings.timeout,
                    command: settings.timeout,
                    settings: [settings.setting; 2],
                },
            );
            let manager = Arc::new(manager);
            let connector = connector.clone();
            let pool = Pool::new(&manager, pool, connector);
            Connections { pool, manager }
        };
        Node {
            callers: lane(&settings.pool),
            worker: lane(&settings.pool.of_one()),
            server_clock,
            probation,
            silent: AtomicBool::new(false),
            took: AtomicU64::new(0),
            timeout: settings.timeout,
            process: Process::here(),
            address,
        }
    }

    fn lane(&self, lane: Lane) -> &Connections {
        match lane {
            Lane::Callers => &self.callers,
            Lane::Worker => &self.worker,
        }
    }

    /// The server's address, as errors name it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn server_clock(&self) -> &ServerClock {
        &self.server_clock
    }

    /// Whether this process may use it.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        self.process.check()
    }

    /// A connection, if there is one. If not, one is being made from now on.
    pub(crate) fn ready(&self, lane: Lane) -> Option<Borrowed> {
        self.lane(lane).pool.ready_or_order()
    }

    /// Why there was no connection in this time.
    pub(crate) fn hindrance(&self, lane: Lane, waited: Duration) -> Hindrance {
        self.lane(lane).pool.hindrance(waited)
    }

    /// A caller wants a connection, and there is none: if the last could not be made, it is tried again now.
    pub(crate) fn ask(&self, lane: Lane) {
        self.lane(lane).pool.ask();
    }

    /// Whether there is no connection at all.
    pub(crate) fn is_cut_off(&self, lane: Lane) -> bool {
        self.lane(lane).pool.is_empty()
    }

    pub(crate) fn attempts(&self, lane: Lane) -> AttemptCounts {
        self.lane(lane).manager.attempts().counts()
    }

    /// Why no connection can be made at the moment, if so.
    pub(crate) fn trouble(&self, lane: Lane) -> Option<RedisError> {
        self.lane(lane).manager.attempts().trouble()
    }

    /// The server hung up: connections made before are likely dead too.
    pub(crate) fn hung_up(&self, lane: Lane, connection: &Connection) {
        self.lane(lane).manager.outdate(connection);
    }

    /// How long it takes to answer, as far as is known.
    pub(crate) fn took(&self) -> u64 {
        self.took.load(Ordering::Relaxed)
    }

    /// Its answer was waited for until now; or was there already, so that it may be faster than was
    /// thought: then it is soon read earlier, and that shows.
    pub(crate) fn note_took(&self, took: Option<Duration>) {
        let took = took.map(|took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.took.store(took.unwrap_or(self.took() / 2), Ordering::Relaxed);
    }

    /// How long a reply may take.
    pub(crate) fn limit(&self) -> Limit {
        self.callers.manager.reply_limit()
    }

    /// No answer came in this time, which may have been too short for one.
    pub(crate) fn missed(&self, waited: Duration) {
        if waited >= self.timeout - self.timeout / 10 {
            self.set_silent(true);
            self.distrust();
        }
    }

    /// No connection to it is used any longer: one of them may be out of step, or all be dead.
    pub(crate) fn distrust(&self) {
        self.callers.manager.outdate_all();
        self.worker.manager.outdate_all();
    }

    /// It replied on a connection of this standing to what was sent then. Returns its standing by now.
    pub(crate) fn heard(&self, standing: Standing, sent: Moment) -> Standing {
        self.probation.as_ref().map_or(standing, |probation| probation.heard(standing, sent))
    }

    /// Whether it is not worth waiting for.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        if self.is_silent() != silent {
            self.silent.store(silent, Ordering::Relaxed);
            log::debug!("{} is {}", self.address, if silent { "silent" } else { "back" });
        }
    }
}

impl Publisher for Node {
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn tried(&self) -> u64 {
        self.attempts(Lane::Callers).all() + self.attempts(Lane::Worker).all()
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        self.check_process()?;
        Ok(Box::new(self.worker.manager.subscribe(channel)?))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}

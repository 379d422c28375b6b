//! One server of several.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::base::thread::Threads;
use crate::base::time::{Clock, Moment};
use crate::topology::multi_node::quarantine::RestartQuarantine;
use crate::wire::connect_attempts::ConnectAttempts;
use crate::wire::connection::{Connection, Reply, ServerRun};
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::Failure;
use crate::wire::locator::{FixedServer, HandshakeCommand, LocateResult, Locator};
use crate::wire::manager::Timeouts;
use crate::wire::pool::{PoolSettings, connector};
use crate::wire::server_clock::ServerClock;
use crate::wire::transport::Transport;

/// How the connections to a node are made.
#[derive(Clone, Debug)]
pub(crate) struct NodeSettings {
    pub(crate) pool: PoolSettings,
    pub(crate) timeouts: Timeouts,
    /// For how long its word does not count after a restart; `None` where it always does.
    pub(crate) quarantine: Option<Duration>,
    /// What the threads of its client are called.
    pub(crate) threads: Threads,
}

/// A server that has to report since when it runs, and so from when on it counts.
#[derive(Debug)]
struct Voter {
    server: FixedServer,
    quarantine: Arc<RestartQuarantine>,
}

impl Locator for Voter {
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult {
        self.server.locate(each, most, asks_all)
    }

    fn address(&self) -> String {
        self.server.address()
    }

    /// No request goes out without a deadline.
    fn needs_time(&self) -> bool {
        true
    }

    fn handshake_command(&self) -> Option<HandshakeCommand> {
        Some(HandshakeCommand {
            command: &[b"INFO", b"server"],
            needed: self.quarantine.is_needed(),
        })
    }

    fn check_handshake(
        &self,
        connection: &mut Connection,
        reply: Option<&Reply>,
    ) -> Result<(), RedisError> {
        connection.server_run = self.quarantine.server_run(reply);
        Ok(())
    }
}

/// One server of several.
pub(crate) struct Node {
    transport: Arc<Transport>,
    quarantine: Option<Arc<RestartQuarantine>>,
    /// It did not answer, or could not be connected to, when it was last tried.
    silent: AtomicBool,
    /// How long it takes to answer, in nanoseconds.
    took: AtomicU64,
}

impl Node {
    pub(crate) fn new(
        info: Endpoint,
        clock: &Arc<dyn Clock>,
        settings: &NodeSettings,
    ) -> Result<Node, Failure> {
        let NodeSettings { pool, timeouts, quarantine, threads } = settings;
        let quarantine = quarantine.map(|span| Arc::new(RestartQuarantine::new(span)));
        let server = FixedServer::new(info);
        let source: Arc<dyn Locator> = match &quarantine {
            Some(quarantine) => Arc::new(Voter { server, quarantine: Arc::clone(quarantine) }),
            None => Arc::new(server),
        };
        let connector = connector(*threads)?;
        let transport = Transport::new(source, Arc::clone(clock), pool, *timeouts, connector);
        Ok(Node {
            transport: Arc::new(transport),
            quarantine,
            silent: AtomicBool::new(false),
            took: AtomicU64::new(0),
        })
    }

    /// The way to it.
    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// The server's address, as errors name it.
    pub(crate) fn address(&self) -> String {
        self.transport.manager().address()
    }

    pub(crate) fn server_clock(&self) -> &ServerClock {
        self.transport.server_clock()
    }

    pub(crate) fn attempts(&self) -> &ConnectAttempts {
        self.transport.manager().attempts()
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

    /// No answer came in this time, which may have been too short for one.
    pub(crate) fn missed(&self, waited: Duration) {
        let timeout = self.transport.manager().reply_limit().span;
        if waited >= timeout - timeout / 10 {
            self.set_silent(true);
            self.transport.discard_connections();
        }
    }

    /// It replied on a connection of this standing to what was sent then. Returns its standing by now.
    pub(crate) fn note_reply(&self, server_run: ServerRun, sent: Moment) -> ServerRun {
        self.quarantine
            .as_ref()
            .map_or(server_run, |quarantine| quarantine.note_reply(server_run, sent))
    }

    /// Whether it is not worth waiting for.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        if self.is_silent() != silent {
            self.silent.store(silent, Ordering::Relaxed);
            log!(debug, "{} is {}", self.address(), if silent { "silent" } else { "back" });
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.address()).finish_non_exhaustive()
    }
}

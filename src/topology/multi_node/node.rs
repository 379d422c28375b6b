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
    /// How long a restarted server has no vote; `None` if every server always counts.
    pub(crate) quarantine: Option<Duration>,
    /// Names the threads of the client.
    pub(crate) threads: Threads,
}

/// A server with a vote: each new connection asks how long it has run, which decides whether its
/// vote counts.
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

    /// A proposal carries a deadline in the server's time. A connection that cannot read that time
    /// could send only proposals that are valid forever, so it is of no use (rule 2).
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
    /// The last attempt to reach it brought no reply or no connection.
    silent: AtomicBool,
    /// How long its last replies took, in nanoseconds.
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
        // Only a quorum counts votes. A node of a cluster has none to withhold, and is asked
        // nothing.
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

    /// Its connections.
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

    /// How long its last replies took, in nanoseconds.
    pub(crate) fn took(&self) -> u64 {
        // Relaxed here and below: both values are hints for the order of reads and the length of
        // waits. A stale one costs time, and no other memory is published through them.
        self.took.load(Ordering::Relaxed)
    }

    /// Notes how long its reply took. `None` if the reply had arrived before it was read: then the
    /// server may be faster than assumed.
    pub(crate) fn note_took(&self, took: Option<Duration>) {
        let took = took.map(|took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        // A reply that waited behind a slower server has no measurable time of its own. Halving the
        // estimate moves this server forward in the order until its true time can be measured.
        // Keeping the old estimate would leave a server that became fast behind the slow ones
        // forever.
        self.took.store(took.unwrap_or(self.took() / 2), Ordering::Relaxed);
    }

    /// Notes that no reply came in this time.
    pub(crate) fn missed(&self, waited: Duration) {
        let timeout = self.transport.manager().reply_limit().span;
        // A caller with 5 ms left says nothing about the server. Only a wait of about the whole
        // time-out does; the tenth below it covers the margin by which a socket stops early.
        if waited >= timeout - timeout / 10 {
            self.set_silent(true);
            self.transport.discard_connections();
        }
    }

    /// Notes that the server replied to a request sent at `sent`, on a connection to this run.
    /// Returns what is known of the run now.
    pub(crate) fn note_reply(&self, server_run: ServerRun, sent: Moment) -> ServerRun {
        self.quarantine
            .as_ref()
            .map_or(server_run, |quarantine| quarantine.note_reply(server_run, sent))
    }

    /// Whether a request should not wait for it.
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

//! How calls reach the server of a lock.

use std::fmt;

use crate::base::error::Error;
use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::index::ScanPosition;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::wire::Value;
use crate::wire::connection::{Connection, Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;
use crate::wire::transport::{Lane, Transport};

/// How many round trips an operation makes on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundTrips {
    One,
    /// Not possible at a cluster node that is importing the slot: `ASKING` permits one command
    /// only.
    Many,
}

/// How many calls are sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Those of the worker: they follow a redirection, and are sent again where a connection breaks.
    Worker,
    /// Those of a caller, likewise.
    Caller,
    /// Those of a caller, each to one node and once. A redirection is a refusal.
    Once,
}

impl Sending {
    pub(crate) fn lane(self) -> Lane {
        if self == Sending::Worker { Lane::Worker } else { Lane::Callers }
    }
}

/// The servers of one client, of which one at a time has a lock.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// A server for the duration of one operation.
    type Server<'a>: LockServer;

    fn identity(&self) -> &Identity;

    /// The lock of this name, with the keys that its scripts get on these servers.
    fn target(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::new(kind, name)
    }

    /// Rejects keys that cannot be used together with the lock's on these servers.
    fn check_keys(&self, _name: &Name, _keys: &[Vec<u8>]) -> Result<(), Error> {
        Ok(())
    }

    /// Runs an operation at the server of the lock. If that server refuses because it does not have
    /// the lock's hash slot, the operation runs again at another server.
    fn with_server<T>(
        &self,
        target: &Target,
        trips: RoundTrips,
        deadline: Moment,
        operation: impl FnMut(&Self::Server<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure>;

    /// Sends many calls at once, each to the server of its key. `sending` says over which connections, and what
    /// becomes of those that a node of a cluster refuses.
    fn call_many(
        &self,
        keys: &[&[u8]],
        calls: &[Call],
        sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>>;

    /// One step of a scan at the server where it stands. Returns none behind the last server.
    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Value>, Failure>;

    /// As [`Protocol::keep_worker_connections`](crate::protocol::Protocol::keep_worker_connections).
    fn keep_worker_connections(&self, _until: Moment) -> bool {
        true
    }

    /// As [`Protocol::connect_worker`](crate::protocol::Protocol::connect_worker).
    fn connect_worker(&self) {}

    /// Closes the connections of [`call_many`](Backend::call_many) to the server of this key. Returns its address.
    fn discard_connections(&self, key: &[u8]) -> String;

    /// The servers that publish what wakes this client's waiters.
    fn publishers(&self) -> Arc<dyn Publishers>;

    /// Makes the listener's threads subscribe to this channel, which was just added to their list.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure>;

    /// As [`Protocol::is_timed_by`](crate::protocol::Protocol::is_timed_by).
    fn is_timed_by(&self, _target: &Target, _clock: u64) -> bool {
        true
    }

    /// As [`Protocol::unbroken_since`](crate::protocol::Protocol::unbroken_since).
    fn unbroken_since(&self, target: &Target) -> Moment;

    /// As [`Protocol::granted_after`](crate::protocol::Protocol::granted_after).
    fn granted_after(
        &self,
        target: &Target,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment>;
}

/// One server.
pub(crate) trait LockServer {
    /// Sends one command and waits for its reply. It may share a write with commands of other
    /// threads.
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure>;

    /// As [`call`](LockServer::call), but `request` builds the command after a connection was
    /// borrowed.
    fn call_with(&self, request: impl Fn() -> Call, deadline: Moment) -> Result<Reply, Failure>;

    /// Runs several round trips on one connection. They run again on another one where the first
    /// returns that it had died before anything was sent.
    fn session<T>(
        &self,
        deadline: Moment,
        operation: impl FnMut(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure>;

    /// Makes sure that a connection exists; opening a new one reads the server's time.
    fn connect(&self, deadline: Moment) -> Result<(), Failure>;

    /// The server's time.
    fn clock(&self) -> &Arc<ServerClock>;

    /// How long a request that is sent now waits for its reply.
    fn reply_by(&self, deadline: Moment) -> Moment;

    /// Closes all connections: on one of them replies may belong to other commands. Returns the server's address.
    fn discard_connections(&self) -> String;
}

/// A real server.
#[derive(Debug)]
pub(crate) struct TransportServer<'a> {
    pub(crate) transport: &'a Transport,
    /// The server is a cluster node that is importing the slot, so each command needs `ASKING`
    /// before it.
    pub(crate) asking: bool,
}

impl LockServer for TransportServer<'_> {
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        if !self.asking {
            return self.transport.call(call, deadline);
        }
        // Not by the batcher. `ASKING` permits the next command of its connection, whoever sends
        // that: a command of another thread between the two would use the permission up, and ours
        // would be sent back with `MOVED`.
        self.transport
            .with_connection(deadline, |connection| connection.call_asking(call, deadline))
    }

    fn call_with(&self, request: impl Fn() -> Call, deadline: Moment) -> Result<Reply, Failure> {
        // Not by the batcher either: that packs a command before it has a connection, and the wait
        // for a connection may outlast the deadline that the command contains.
        let call = if self.asking { Connection::call_asking } else { Connection::call };
        self.transport
            .with_connection(deadline, |connection| call(connection, &request(), deadline))
    }

    fn session<T>(
        &self,
        deadline: Moment,
        mut operation: impl FnMut(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // `asking` does not matter here: a session is several commands (`RoundTrips::Many`), and
        // those wait for the end of the import rather than follow an `ASK`.
        self.transport.with_connection(deadline, |connection| operation(connection))
    }

    fn connect(&self, deadline: Moment) -> Result<(), Failure> {
        self.transport.connect(deadline)
    }

    fn clock(&self) -> &Arc<ServerClock> {
        self.transport.server_clock()
    }

    fn reply_by(&self, deadline: Moment) -> Moment {
        self.transport.reply_by(deadline)
    }

    fn discard_connections(&self) -> String {
        self.transport.discard_connections()
    }
}

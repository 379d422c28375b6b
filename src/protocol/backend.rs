//! How calls reach the server that has a lock.

use std::fmt;

use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::wire::connection::{Connection, Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;
use crate::wire::transport::Transport;

/// How many round trips an operation makes on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundTrips {
    One,
    /// A node of a cluster that is only about to take the lock over accepts single commands alone.
    Many,
}

/// The servers of one client, where one of them at a time has a lock.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// A server, for the time of one operation.
    type Server<'a>: LockServer;

    fn identity(&self) -> &Identity;

    /// A lock with the keys that its scripts are given here.
    fn target(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::new(kind, name)
    }

    /// Rejects keys that the servers cannot have together.
    fn check_keys(&self, _name: &Name, _keys: &[Vec<u8>]) -> Result<(), Error> {
        Ok(())
    }

    /// Runs an operation at the server that has the lock. It runs again at another server where the first
    /// one refused it because it does not have the lock.
    fn with_server<T>(
        &self,
        target: &Target,
        trips: RoundTrips,
        deadline: Moment,
        operation: impl FnMut(&Self::Server<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure>;

    /// Sends many calls at once, each to the server that has its lock, apart from the connections that
    /// callers share.
    fn call_many(
        &self,
        targets: &[&Target],
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>>;

    /// Closes the connections of [`call_many`](Backend::call_many) to the server that has this lock.
    fn discard_connections(&self, target: &Target);

    /// The servers that publish what wakes this client's waiters.
    fn publishers(&self) -> Arc<dyn Publishers>;

    /// Makes the threads that listen look for what is wished for, since there is one more channel.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure>;

    /// As [`Protocol::granted_after`](crate::protocol::Protocol::granted_after).
    fn granted_after(
        &self,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment>;
}

/// One server.
pub(crate) trait LockServer {
    /// Sends one command and waits for its reply. It may travel together with those of other threads.
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure>;

    /// As [`call`](Server::call), for a command that is made once there is a connection for it.
    fn call_with(&self, request: impl FnOnce() -> Call, deadline: Moment)
    -> Result<Reply, Failure>;

    /// Runs several round trips on one connection.
    fn session<T>(
        &self,
        deadline: Moment,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure>;

    /// Makes sure that a connection can be made; a new one tells the server's time.
    fn connect(&self, deadline: Moment) -> Result<(), Failure>;

    /// The server's time.
    fn clock(&self) -> &ServerClock;

    /// Until when the reply to a request that is sent now is waited for.
    fn reply_by(&self, deadline: Moment) -> Moment;

    /// Closes all connections: one of them may be out of step.
    fn discard_connections(&self);
}

/// A real server.
#[derive(Debug)]
pub(crate) struct TransportServer<'a> {
    pub(crate) transport: &'a Transport,
    /// It is a node of a cluster that is about to take the slot over, and has to be told that each command
    /// knows that.
    pub(crate) asking: bool,
}

impl LockServer for TransportServer<'_> {
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        if !self.asking {
            return self.transport.call(call, deadline);
        }
        self.transport.exchange(deadline, |connection| connection.call_asking(call, deadline))
    }

    fn call_with(
        &self,
        request: impl FnOnce() -> Call,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        let call = if self.asking { Connection::call_asking } else { Connection::call };
        self.transport.exchange(deadline, |connection| call(connection, &request(), deadline))
    }

    fn session<T>(
        &self,
        deadline: Moment,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.transport.exchange(deadline, |connection| operation(connection))
    }

    fn connect(&self, deadline: Moment) -> Result<(), Failure> {
        self.transport.connect(deadline)
    }

    fn clock(&self) -> &ServerClock {
        self.transport.server_clock()
    }

    fn reply_by(&self, deadline: Moment) -> Moment {
        self.transport.reply_by(deadline)
    }

    fn discard_connections(&self) {
        self.transport.discard_connections();
    }
}

//! Several round trips on one connection, which `WATCH` … `EXEC` and `WAIT` need.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::connection::{Connection, Reply};
use crate::wire::failure::Failure;
use crate::wire::script::Call;

/// One connection for as long as an operation needs it.
pub(crate) trait Session {
    /// Sends one command and waits for its reply.
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure>;

    /// Sends several commands at once and waits for their replies.
    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>>;

    /// As [`call`](Session::call), for a command to which the server replies only after `within`.
    fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure>;

    /// How long the server may take over a command so that its reply still arrives by the deadline.
    fn longest_wait(&self, deadline: Moment) -> Duration;

    /// Keeps the connection from being used again: it may be left watching, or within a transaction.
    fn poison(&mut self);
}

impl Session for Connection {
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        Connection::call(self, call, deadline)
    }

    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        Connection::call_all(self, calls, deadline)
    }

    fn call_slow(
        &mut self,
        call: &Call,
        _within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        Connection::call_slow(self, call, deadline)
    }

    fn longest_wait(&self, deadline: Moment) -> Duration {
        Connection::longest_wait(self, deadline)
    }

    fn poison(&mut self) {
        Connection::poison(self);
    }
}

//! Several round trips on one connection, to a server or to what plays one.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::connection::{Connection, Reply};
use crate::wire::failure::Failure;
use crate::wire::script::Call;

/// A connection that nobody else uses meanwhile, so that `WATCH`, `MULTI` and `WAIT` are about its own
/// commands.
pub(crate) trait Session {
    /// Sends one command and waits for its reply.
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure>;

    /// Sends commands together and waits for all their replies.
    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>>;

    /// Sends a command for which the server may wait so long before it replies.
    fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure>;

    /// How long that may be for a command that is sent now.
    fn longest_wait(&self, deadline: Moment) -> Duration;

    /// Marks the connection as not to be used again.
    fn poison(&mut self);
}

impl Session for Connection {
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        self.call(call, deadline)
    }

    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        self.call_all(calls, deadline)
    }

    fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        self.call_slow(call, within, deadline)
    }

    fn longest_wait(&self, deadline: Moment) -> Duration {
        self.longest_wait(deadline)
    }

    fn poison(&mut self) {
        self.poison();
    }
}

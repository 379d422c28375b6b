//! Where connections lead, and what a new one has to show.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use crate::wire::connection::{Connection, Reply};
use crate::wire::endpoint::{self, Endpoint};

/// A server, and whether it is elsewhere than before.
pub(crate) type LocateResult = Result<(Endpoint, bool), RedisError>;

/// A server that connections lead to, wherever it is.
pub(crate) trait Locator: Send + Sync + fmt::Debug {
    /// Finds the server within `most`, and asks no one for longer than `each`. Returns whether it is elsewhere
    /// than before. `asks_all`: not only the first who knows.
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult;

    /// The server, as errors name it.
    fn address(&self) -> String;

    /// Notes that the server could not be spoken to where it was found.
    fn suspect(&self) {}

    /// Whether a connection is of no use before the server has told its time.
    fn needs_time(&self) -> bool {
        false
    }

    /// What each new connection is asked besides the time, if anything.
    fn handshake_command(&self) -> Option<HandshakeCommand> {
        None
    }

    /// Judges a new connection by the reply to that question; there is none where the user may not ask it.
    fn check_handshake(
        &self,
        _connection: &mut Connection,
        _reply: Option<&Reply>,
    ) -> Result<(), RedisError> {
        Ok(())
    }
}

/// A command for a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeCommand {
    pub(crate) command: &'static [&'static [u8]],
    /// Whether a user who may not ask it cannot use the connection.
    pub(crate) needed: bool,
}

/// Always the same server.
#[derive(Debug)]
pub(crate) struct FixedServer {
    info: Endpoint,
}

impl FixedServer {
    pub(crate) fn new(info: Endpoint) -> FixedServer {
        FixedServer { info }
    }
}

impl Locator for FixedServer {
    fn locate(&self, _each: Duration, _most: Duration, _asks_all: bool) -> LocateResult {
        Ok((self.info.clone(), false))
    }

    fn address(&self) -> String {
        endpoint::address(&self.info)
    }
}

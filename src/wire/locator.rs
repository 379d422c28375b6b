//! Where connections lead, and what is checked on a new one.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use crate::wire::connection::{Connection, Reply};
use crate::wire::endpoint::{self, Endpoint};

/// A server, and whether it has moved since the last call.
pub(crate) type LocateResult = Result<(Endpoint, bool), RedisError>;

/// Finds the server that connections lead to.
pub(crate) trait Locator: Send + Sync + fmt::Debug {
    /// Finds the server within `most`, and waits for nobody longer than `each`. Returns whether the
    /// server has moved. With `asks_all`, asks all sentinels and not only until one knows.
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult;

    /// The server, as errors name it.
    fn address(&self) -> String;

    /// A sentence that says what [`locate`](Self::locate) waits for; `None` if it waits for nothing.
    fn awaited(&self) -> Option<String> {
        None
    }

    /// Notes that no connection could be made to the place that was found.
    fn suspect(&self) {}

    /// Whether a connection is useless until the server's time is known.
    fn needs_time(&self) -> bool {
        false
    }

    /// The command that each new connection sends besides `TIME`, if any.
    fn handshake_command(&self) -> Option<HandshakeCommand> {
        None
    }

    /// Accepts or rejects a new connection by the reply to that command. `None` if the user may not
    /// run it.
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
    /// Whether a connection is useless to a user who may not run it.
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

//! The bytes to a server and back: a connection of redis-rs, or one over TLS.
//!
//! TLS is spoken here, not by redis-rs: that reads the machine's certificates at each connection, whatever
//! it is told to trust, and trusts others where another crate of the program turns a feature of it on.

use std::mem::ManuallyDrop;
use std::time::Duration;

use redis::{ConnectionLike, RedisConnectionInfo, RedisError, Value};

use crate::wire::endpoint::Endpoint;
#[cfg(feature = "tls")]
use crate::wire::sealed::Sealed;

/// A connection to a server.
pub(crate) enum Line {
    /// In plain text.
    Open(redis::Connection),
    /// Over TLS.
    #[cfg(feature = "tls")]
    Sealed(Box<Sealed>),
}

impl Line {
    /// Connects, and says what redis-rs says first: `HELLO`, for RESP3, with the user and the password
    /// that are in the settings. It may take this long for each address that the host's name has.
    pub(crate) fn open(
        to: &Endpoint,
        settings: &RedisConnectionInfo,
        most: Duration,
    ) -> Result<Line, RedisError> {
        #[cfg(feature = "tls")]
        if let Some(config) = to.tls() {
            let sealed = Sealed::open(to.info(), config, settings, most)?;
            return Ok(Line::Sealed(Box::new(sealed)));
        }
        let client = redis::Client::open(to.info().clone().set_redis_settings(settings.clone()))?;
        client.get_connection_with_timeout(most).map(Line::Open)
    }

    /// Sends a command that is packed.
    pub(crate) fn send_packed_command(&mut self, command: &[u8]) -> Result<(), RedisError> {
        match self {
            Line::Open(connection) => connection.send_packed_command(command),
            #[cfg(feature = "tls")]
            Line::Sealed(sealed) => sealed.send(command),
        }
    }

    /// Waits for a reply, or a message. A time-out is taken for a reply that comes late, and skipped then.
    pub(crate) fn recv_response(&mut self) -> Result<Value, RedisError> {
        match self {
            Line::Open(connection) => connection.recv_response(),
            #[cfg(feature = "tls")]
            Line::Sealed(sealed) => sealed.receive(),
        }
    }

    /// Waits for a message, and drops what else comes. Unlike with [`recv_response`](Self::recv_response), a
    /// time-out is taken for no reply that comes late.
    pub(crate) fn recv_message(&mut self) -> Result<(Vec<u8>, Vec<u8>), RedisError> {
        match self {
            Line::Open(connection) => {
                // Its destructor would leave all channels, and owns nothing else.
                let mut messages = ManuallyDrop::new(connection.as_pubsub());
                let message = messages.get_message()?;
                Ok((message.get_channel()?, message.get_payload()?))
            }
            #[cfg(feature = "tls")]
            Line::Sealed(sealed) => sealed.receive_message(),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        match self {
            Line::Open(connection) => connection.set_read_timeout(timeout),
            #[cfg(feature = "tls")]
            Line::Sealed(sealed) => sealed.set_read_timeout(timeout),
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        match self {
            Line::Open(connection) => connection.set_write_timeout(timeout),
            #[cfg(feature = "tls")]
            Line::Sealed(sealed) => sealed.set_write_timeout(timeout),
        }
    }
}

/// For single commands before there is a [`Connection`](crate::wire::connection::Connection).
impl ConnectionLike for Line {
    fn req_packed_command(&mut self, command: &[u8]) -> Result<Value, RedisError> {
        self.send_packed_command(command)?;
        loop {
            match self.recv_response()? {
                Value::Push { .. } => {}
                reply => return Ok(reply),
            }
        }
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        self.send_packed_command(commands)?;
        let mut replies = Vec::new();
        while replies.len() < offset + count {
            match self.recv_response()? {
                Value::Push { .. } => {}
                reply => replies.push(reply),
            }
        }
        Ok(replies.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        self.is_open()
    }

    fn is_open(&self) -> bool {
        match self {
            Line::Open(connection) => connection.is_open(),
            #[cfg(feature = "tls")]
            Line::Sealed(_) => true,
        }
    }
}

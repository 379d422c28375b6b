//! The bytes to a server and back: a connection of redis-rs, or one over TLS.
//!
//! TLS is spoken here, not by redis-rs: that reads the machine's certificates at each connection, whatever
//! it is told to trust, and trusts others where another crate of the program turns a feature of it on.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionLike, ErrorKind, RedisConnectionInfo, RedisError, Value};

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
    /// Connects to one of the host's addresses, or to a socket that has none, and says what redis-rs says
    /// first: `HELLO`, for RESP3, with the user and the password that are in the settings. All of it takes
    /// no longer than this.
    pub(crate) fn open(
        to: &Endpoint,
        at: Option<SocketAddr>,
        settings: &RedisConnectionInfo,
        most: Duration,
    ) -> Result<Line, RedisError> {
        if to.is_secure() {
            return Line::seal(to, at, settings, most);
        }
        let mut info = to.info().clone().set_redis_settings(settings.clone());
        if let Some(at) = at {
            info = info.set_addr(ConnectionAddr::Tcp(literal(at), at.port()));
        }
        let client = redis::Client::open(info)?;
        client.get_connection_with_timeout(most).map(Line::Open)
    }

    /// Connects over TLS or not at all: in plain text, anybody on the way could read the password.
    #[cfg(feature = "tls")]
    fn seal(
        to: &Endpoint,
        at: Option<SocketAddr>,
        settings: &RedisConnectionInfo,
        most: Duration,
    ) -> Result<Line, RedisError> {
        let config = to.tls().ok_or_else(without_tls)?;
        let sealed = Sealed::open(to.info(), at, config, settings, most)?;
        Ok(Line::Sealed(Box::new(sealed)))
    }

    #[cfg(not(feature = "tls"))]
    fn seal(
        _: &Endpoint,
        _: Option<SocketAddr>,
        _: &RedisConnectionInfo,
        _: Duration,
    ) -> Result<Line, RedisError> {
        Err(without_tls())
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

/// An address as a host, which is looked up without asking anybody.
fn literal(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            format!("{}%{}", address.ip(), address.scope_id())
        }
        address => address.ip().to_string(),
    }
}

fn without_tls() -> RedisError {
    let text = "the address is for TLS, and there are no settings of TLS for it";
    (ErrorKind::InvalidClientConfig, text).into()
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

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use super::*;
    use crate::wire::endpoint::parse;

    #[test]
    fn secure_address_without_certificates_is_never_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("an option");
        let address = listener.local_addr().expect("an address");
        let endpoint = parse(&format!("rediss://me:s3cret@{address}")).expect("a URL");
        let settings = endpoint.redis_settings();
        let line = Line::open(&endpoint, Some(address), settings, Duration::from_millis(200));
        let error = line.err().expect("no certificates");
        assert_eq!(error.kind(), ErrorKind::InvalidClientConfig, "{error:?}");
        let accepted = listener.accept().err().map(|error| error.kind());
        assert_eq!(accepted, Some(io::ErrorKind::WouldBlock), "something was sent");
    }
}

//! A connection to a server: the commands that open it, then packed commands out and replies in.
//!
//! It replaces redis-rs's own connection, whose time-outs are for each system call, and whose first
//! commands have none of their own.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use redis::io::tcp::socket2::SockAddr;
use redis::{Cmd, ConnectionAddr, ErrorKind, FromRedisValue, RedisError, Value};

use crate::base::time::{BootClock, Clock as _};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{Limit, locate};
use crate::wire::failure::is_max_clients;
use crate::wire::race;
use crate::wire::socket::Socket;
use crate::wire::stream::Stream;

/// A connection to a server.
pub(crate) struct RawConnection {
    pub(super) stream: Stream,
    parser: redis::Parser,
    /// The reply to `HELLO`, or to `AUTH`, if one was sent.
    pub(super) greeting: Value,
    /// Gives the connection its name, together with the next command: a write of its own might meet a server that
    /// has hung up already, and hide why.
    naming: Option<Vec<u8>>,
    /// The next reply is that to the naming, which may be refused.
    owes_reply_to_name: bool,
}

impl RawConnection {
    /// Connects and logs in. If an address of the host is silent, the next one is tried at the same time. Each
    /// address has this time for all steps. The look-up of the name and the providers of credentials and
    /// certificates have no time limit. The connection has no time-outs afterwards.
    pub(crate) fn connect(
        to: &Endpoint,
        limit: impl Into<Limit>,
    ) -> Result<RawConnection, RedisError> {
        let limit: Limit = limit.into();
        let mut tried = Vec::new();
        RawConnection::connect_noting(to, limit.span, &mut tried)
            .map_err(|error| locate(error, &shown(to, &tried), limit))
    }

    /// The same. If the host has several addresses and none accepts, notes them for the error.
    fn connect_noting(
        to: &Endpoint,
        most: Duration,
        tried: &mut Vec<SocketAddr>,
    ) -> Result<RawConnection, RedisError> {
        let to = &*to.with_credentials()?;
        match to.addr() {
            ConnectionAddr::Tcp(host, port) => {
                // The system's resolver blocks without a limit. So callers never connect
                // themselves: they wait for the connecting thread, and give up by their own
                // deadlines.
                let addresses: Vec<SocketAddr> =
                    (host.as_str(), *port).to_socket_addrs()?.collect();
                RawConnection::connect_to_any(&addresses, to, most, tried)
            }
            ConnectionAddr::Unix(path) => {
                let path = SockAddr::unix(path)?;
                RawConnection::open(to, || Socket::connect(&path, BootClock.now().after(most)))
            }
            _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    /// Connects to the first address that accepts.
    fn connect_to_any(
        addresses: &[SocketAddr],
        to: &Endpoint,
        most: Duration,
        tried: &mut Vec<SocketAddr>,
    ) -> Result<RawConnection, RedisError> {
        // Only an unreachable address leads to the next one. The log-in would be refused there as well,
        // and would count as one more wrong password.
        RawConnection::open(to, || {
            race::connect(addresses, most).inspect_err(|_| tried.extend_from_slice(addresses))
        })
    }

    /// Logs in on a new connection, and chooses the database.
    fn open(
        to: &Endpoint,
        connect: impl FnOnce() -> io::Result<Socket>,
    ) -> Result<RawConnection, RedisError> {
        let stream = Stream::connect(to, connect)?;
        let (parser, greeting) = (redis::Parser::new(), Value::Nil);
        let mut line =
            RawConnection { stream, parser, greeting, naming: None, owes_reply_to_name: false };
        let settings = to.redis_settings();
        let (user, password) = (settings.username(), settings.password());
        // No `CLIENT SETINFO`, which redis-rs sends here: it is one more round trip, and an ACL may
        // deny it. No `HELLO` in RESP2 either: without a password the caller's command is the first
        // on the connection.
        let mut hello = if settings.protocol().supports_resp3() {
            let mut hello = redis::cmd("HELLO");
            hello.arg("3");
            if password.is_some() {
                hello.arg("AUTH").arg(user.unwrap_or("default"));
            }
            Some(hello)
        } else {
            password.map(|_| redis::cmd("AUTH").arg(user).take())
        };
        if let Some(hello) = &mut hello {
            let said = line.query(hello.arg(password));
            // Kept for the subscription: a reply to `HELLO` contains the server's role, to any
            // user.
            line.greeting = said.map_err(|error| match password {
                Some(_) => without_text(error),
                None => error,
            })?;
        }

        if settings.db() != 0 {
            line.query::<Value>(redis::cmd("SELECT").arg(settings.db()))?;
        }
        let naming =
            |name: &str| redis::cmd("CLIENT").arg("SETNAME").arg(name).get_packed_command();
        line.naming = to.name().map(naming);
        // From here on the owner sets time-outs for each request. Left in place, the deadline would
        // fail every exchange once the time for connecting is over.
        line.stream.end_deadline()?;
        Ok(line)
    }

    /// Sends one command and waits for its reply, without a
    /// [`Connection`](crate::wire::connection::Connection).
    pub(crate) fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        self.send_packed_command(&command.get_packed_command())?;
        Ok(redis::from_redis_value(self.recv_reply(Duration::MAX)?.extract_error()?)?)
    }

    /// Sends a packed command. The socket's time-out bounds each write.
    pub(crate) fn send_packed_command(&mut self, command: &[u8]) -> Result<(), RedisError> {
        let Some(naming) = self.naming.take() else { return Ok(self.stream.send(command)?) };
        self.owes_reply_to_name = true;
        Ok(self.stream.send(&[&naming, command].concat())?)
    }

    /// Waits for a reply or a message, for `within` in all. It may be called again after a
    /// time-out.
    pub(crate) fn recv(&mut self, within: Duration) -> Result<Value, RedisError> {
        self.stream.socket.begin_reply(within);
        // The parser keeps what it has read. If half a message came before the time-out, the next
        // call goes on with the other half, so a listener loses nothing by its short waits.
        self.parse()
    }

    fn parse(&mut self) -> Result<Value, RedisError> {
        let value = self.parser.parse_value(&mut self.stream)?;
        let is_reply = !matches!(value, Value::Push { .. });
        if !(is_reply && std::mem::take(&mut self.owes_reply_to_name)) {
            return Ok(value);
        }
        match self.parser.parse_value(&mut self.stream) {
            // A server that refuses a connection says why, and hangs up: that was no reply to the naming.
            Err(error) if matches!(value, Value::ServerError(_)) && !error.is_timeout() => {
                Ok(value)
            }
            next => next,
        }
    }

    /// Waits for a reply, and drops messages before it.
    pub(crate) fn recv_reply(&mut self, within: Duration) -> Result<Value, RedisError> {
        self.stream.socket.begin_reply(within);
        loop {
            match self.parse()? {
                // A server may push at any time in RESP3, such as when it is about to close
                // connections for maintenance. Taken for the reply, it would put all later replies
                // out of step.
                Value::Push { .. } => {}
                reply => return Ok(reply),
            }
        }
    }

    /// Whether bytes have arrived, or the other end has closed the connection; or one of these comes
    /// `within` this time.
    pub(crate) fn is_readable(&self, within: Duration) -> bool {
        self.stream.socket.is_readable(within)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.stream.socket.inner.set_read_timeout(timeout)?)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.stream.socket.inner.set_write_timeout(timeout)?)
    }
}

/// The server as errors name it. If it has several addresses, those that cannot be reached follow.
fn shown(to: &Endpoint, tried: &[SocketAddr]) -> String {
    let address = endpoint::address(to);
    if tried.len() < 2 {
        return address;
    }
    let tried: Vec<String> = tried.iter().map(|address| address.ip().to_string()).collect();
    format!("{address} ({})", tried.join(", "))
}

/// Replaces an error whose text may contain the password.
fn without_text(error: RedisError) -> RedisError {
    // A server that does not know `AUTH` or `HELLO` quotes its arguments, the password among them.
    // It does so under the general code. Errors with another code have fixed texts, and so has that
    // of a full server.
    if error.code() == Some("ERR") && !is_max_clients(&error) {
        RedisError::from((ErrorKind::AuthenticationFailed, "AUTH or HELLO was refused"))
    } else {
        error
    }
}

#[cfg(test)]
mod tests;

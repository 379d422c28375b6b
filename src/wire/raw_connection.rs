//! A connection to a server: the commands that open it, then commands out and replies in.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use redis::io::tcp::socket2::SockAddr;
use redis::{Cmd, ConnectionAddr, ErrorKind, FromRedisValue, RedisError, Value};

use crate::base::time::{BootClock, Clock as _};
use crate::wire::endpoint::Endpoint;
use crate::wire::error_context::io_kind;
use crate::wire::failure::is_max_clients;
use crate::wire::stream::Stream;

/// A connection to a server.
pub(crate) struct RawConnection {
    pub(super) stream: Stream,
    parser: redis::Parser,
    /// The reply to `HELLO`, or to `AUTH`, if one was sent.
    pub(super) greeting: Value,
}

impl RawConnection {
    /// Makes a connection that is known to its server. The host's addresses are tried in turn, and each of them
    /// has this time for all that is to be done; the look-up of a name takes as long as it takes. No time-outs
    /// are set on the connection.
    pub(crate) fn connect(to: &Endpoint, most: Duration) -> Result<RawConnection, RedisError> {
        match to.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let addresses = (host.as_str(), *port).to_socket_addrs()?;
                RawConnection::connect_to_any(addresses, to, most)
            }
            ConnectionAddr::Unix(path) => RawConnection::open(to, &SockAddr::unix(path)?, most),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    /// Connects to the first of these addresses that can be connected to.
    fn connect_to_any(
        addresses: impl IntoIterator<Item = SocketAddr>,
        to: &Endpoint,
        most: Duration,
    ) -> Result<RawConnection, RedisError> {
        let none = "the host has no address";
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, none).into();
        for address in addresses {
            match RawConnection::open(to, &address.into(), most) {
                Err(error) if is_of_the_way(&error) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }

    /// Connects to one address, and says what there is to say.
    fn open(to: &Endpoint, at: &SockAddr, most: Duration) -> Result<RawConnection, RedisError> {
        let stream = Stream::connect(to, at, BootClock.now().after(most))?;
        let mut line = RawConnection { stream, parser: redis::Parser::new(), greeting: Value::Nil };
        let settings = to.redis_settings();
        let (user, password) = (settings.username(), settings.password());
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
            line.greeting = said.map_err(|error| match password {
                Some(_) => without_text(error),
                None => error,
            })?;
        }
        if settings.db() != 0 {
            line.query::<Value>(redis::cmd("SELECT").arg(settings.db()))?;
        }
        line.stream.end_deadline()?;
        Ok(line)
    }

    /// One command and its reply, without a [`Connection`](crate::wire::connection::Connection).
    pub(crate) fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        self.send_packed_command(&command.get_packed_command())?;
        Ok(redis::from_redis_value(self.recv_reply(Duration::MAX)?.extract_error()?)?)
    }

    /// Sends a command that is packed. Each write takes no longer than the socket's time-out.
    pub(crate) fn send_packed_command(&mut self, command: &[u8]) -> Result<(), RedisError> {
        Ok(self.stream.send(command)?)
    }

    /// Waits for a reply, or a message, for so long in all. What comes after a time-out is what did not come
    /// before it.
    pub(crate) fn recv(&mut self, within: Duration) -> Result<Value, RedisError> {
        self.stream.socket.begin_reply(within);
        self.parser.parse_value(&mut self.stream)
    }

    /// Waits for a reply, and drops the messages before it.
    pub(crate) fn recv_reply(&mut self, within: Duration) -> Result<Value, RedisError> {
        self.stream.socket.begin_reply(within);
        loop {
            match self.parser.parse_value(&mut self.stream)? {
                Value::Push { .. } => {}
                reply => return Ok(reply),
            }
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.stream.socket.inner.set_read_timeout(timeout)?)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.stream.socket.inner.set_write_timeout(timeout)?)
    }
}

/// Whether an address could not be connected to. A server that was there has the last word, even if it hung up
/// or said nothing: the other addresses are likely its own.
fn is_of_the_way(error: &RedisError) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof, WouldBlock,
    };
    let of_server =
        [BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof, WouldBlock];
    io_kind(error).is_some_and(|kind| !of_server.contains(&kind))
}

/// A server that does not know `AUTH` or `HELLO` repeats what was said to it, the password too. A code
/// tells enough; without one it is a refusal of the user all the same.
fn without_text(error: RedisError) -> RedisError {
    if error.code() == Some("ERR") && !is_max_clients(&error) {
        RedisError::from((ErrorKind::AuthenticationFailed, "AUTH or HELLO was refused"))
    } else {
        error
    }
}

#[cfg(test)]
mod tests;

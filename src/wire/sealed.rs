//! A connection over TLS.

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, PushKind, RedisConnectionInfo, RedisError, Value,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock as _, Moment};
use crate::wire::fault::io_error;

/// The most that TLS seals at once. It fits into the buffer of a session, which is empty before each.
const RECORD: usize = 16 * 1024;

/// A connection over TLS.
pub(crate) struct Sealed {
    session: ClientConnection,
    socket: TcpStream,
    parser: redis::Parser,
    /// How many replies are to be skipped, since nobody waits for them any longer.
    late: usize,
}

impl Sealed {
    /// Connects to an address of the host, agrees on TLS, and says `HELLO` if the settings are for RESP3. All
    /// of it takes no longer than this.
    pub(crate) fn open(
        info: &ConnectionInfo,
        at: Option<SocketAddr>,
        config: &Arc<ClientConfig>,
        settings: &RedisConnectionInfo,
        most: Duration,
    ) -> Result<Sealed, RedisError> {
        let (ConnectionAddr::Tcp(host, _), Some(at)) = (info.addr(), at) else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
        })?;
        let deadline = Some(BootClock.now().after(most));
        let socket = TcpStream::connect_timeout(&at, most)?;
        apply(&socket, info.tcp_settings())?;
        let mut session = ClientConnection::new(Arc::clone(config), name)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // The last message of a handshake is the client's.
        while session.is_handshaking() || session.wants_write() {
            if session.wants_write() {
                write(&mut session, &socket, deadline)?;
            } else if read(&mut session, &socket, deadline)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        let mut sealed = Sealed { session, socket, parser: redis::Parser::new(), late: 0 };
        if settings.protocol().supports_resp3() {
            sealed.say_hello(settings, deadline)?;
        }
        sealed.set_read_timeout(None)?;
        sealed.set_write_timeout(None)?;
        Ok(sealed)
    }

    fn say_hello(
        &mut self,
        settings: &RedisConnectionInfo,
        deadline: Option<Moment>,
    ) -> Result<(), RedisError> {
        let mut hello = redis::cmd("HELLO");
        hello.arg("3");
        if let Some(password) = settings.password() {
            hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
        }
        self.send_by(&hello.get_packed_command(), deadline)?;
        let mut opened = Opened { session: &mut self.session, socket: &self.socket, deadline };
        self.parser.parse_value(&mut opened)?.extract_error().map(drop)
    }

    /// Gives a command to the system. Each write takes no longer than the socket's time-out.
    pub(crate) fn send(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        self.send_by(packed, None)
    }

    /// A stream of rustls would drop the error of a write, which the caller has to know: nothing was sent
    /// to a peer that is gone.
    fn send_by(&mut self, packed: &[u8], deadline: Option<Moment>) -> Result<(), RedisError> {
        for record in packed.chunks(RECORD) {
            self.session.writer().write_all(record)?;
            while self.session.wants_write() {
                write(&mut self.session, &self.socket, deadline)?;
            }
        }
        Ok(())
    }

    /// What the peer says to the parser.
    fn parse(&mut self) -> Result<Value, RedisError> {
        let Sealed { session, socket, parser, .. } = self;
        parser.parse_value(&mut Opened { session, socket, deadline: None })
    }

    /// Waits for a reply, or a message. What redis-rs does where there is no TLS: a time-out is taken for
    /// a reply that comes late, and skipped then.
    pub(crate) fn receive(&mut self) -> Result<Value, RedisError> {
        loop {
            let read = self.parse();
            let io_kind = read.as_ref().err().and_then(io_error).map(io::Error::kind);
            match (&read, io_kind) {
                (Ok(Value::Push { .. }), _) | (_, Some(io::ErrorKind::UnexpectedEof)) => {
                    return read;
                }
                (_, Some(_)) => {
                    self.late += 1;
                    return read;
                }
                _ if self.late == 0 => return read,
                _ => self.late -= 1,
            }
        }
    }

    /// Waits for a message, and drops what else comes. A time-out is taken for no reply that comes late.
    pub(crate) fn receive_message(&mut self) -> Result<(Vec<u8>, Vec<u8>), RedisError> {
        loop {
            match self.parse()? {
                Value::Push { kind: PushKind::Message, data } => {
                    let mut parts = data.into_iter().map(redis::from_redis_value::<Vec<u8>>);
                    if let (Some(channel), Some(payload)) = (parts.next(), parts.next()) {
                        return Ok((channel?, payload?));
                    }
                }
                Value::Push { .. } => {}
                _ => self.late = self.late.saturating_sub(1),
            }
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.socket.set_read_timeout(timeout)?)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.socket.set_write_timeout(timeout)?)
    }
}

/// What a peer says, without its seal.
struct Opened<'a> {
    session: &'a mut ClientConnection,
    socket: &'a TcpStream,
    /// Until when all of it is waited for. Without one, each read takes as long as the socket lets it.
    deadline: Option<Moment>,
}

impl Read for Opened<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                // The session has nothing yet. The end of what the peer says is no such error.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            read(self.session, self.socket, self.deadline)?;
            // TLS has replies of its own, such as to a wish for other keys. No command is left here
            // unless its sender was told that it failed.
            while self.session.wants_write() {
                write(self.session, self.socket, self.deadline)?;
            }
        }
    }
}

/// Writes once. A peer that is gone may have said why, which tells more than that it is gone.
fn write(
    session: &mut ClientConnection,
    mut socket: &TcpStream,
    deadline: Option<Moment>,
) -> io::Result<()> {
    limit(socket, deadline)?;
    match session.write_tls(&mut socket) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) if is_gone(&error) => Err(last_words(session, socket).unwrap_or(error)),
        outcome => outcome.map(drop),
    }
}

/// Reads once. Returns how much, which is nothing where the peer has hung up.
fn read(
    session: &mut ClientConnection,
    mut socket: &TcpStream,
    deadline: Option<Moment>,
) -> io::Result<usize> {
    let length = loop {
        limit(socket, deadline)?;
        match session.read_tls(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome?,
        }
    };
    session.process_new_packets().map_err(|error| {
        // The peer learns why, if it can be told.
        let _ = session.write_tls(&mut socket);
        io::Error::new(io::ErrorKind::InvalidData, error)
    })?;
    Ok(length)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// What a peer that is gone had against the connection. No read waits where the system knows that.
fn last_words(session: &mut ClientConnection, mut socket: &TcpStream) -> Option<io::Error> {
    while let Ok(1..) = session.read_tls(&mut socket) {
        if let Err(error) = session.process_new_packets() {
            return Some(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
    None
}

/// Gives a socket what redis-rs gives to one without TLS.
fn apply(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    socket.set_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        SockRef::from(socket).set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    SockRef::from(socket).set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// The next read or write may take what is left, if there is a deadline.
fn limit(socket: &TcpStream, deadline: Option<Moment>) -> io::Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    let left = deadline.since(BootClock.now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

#[cfg(test)]
mod tests;

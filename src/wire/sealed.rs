//! A connection over TLS.

use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, PushKind, RedisConnectionInfo, RedisError, Value,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock as _, Moment};
use crate::wire::fault::io_error;

/// A connection over TLS.
pub(crate) struct Sealed {
    stream: StreamOwned<ClientConnection, TcpStream>,
    parser: redis::Parser,
    /// How many replies are to be skipped, since nobody waits for them any longer.
    late: usize,
}

impl Sealed {
    /// Connects, agrees on TLS, and says `HELLO` if the settings are for RESP3. All of it takes no longer
    /// than this, but for the look-up of a name, and for each address that the name has.
    pub(crate) fn open(
        info: &ConnectionInfo,
        config: &Arc<ClientConfig>,
        settings: &RedisConnectionInfo,
        most: Duration,
    ) -> Result<Sealed, RedisError> {
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
        })?;
        let mut socket = connect(host, *port, most)?;
        apply(&socket, info.tcp_settings())?;
        let deadline = BootClock.now().after(most);
        let mut session = ClientConnection::new(Arc::clone(config), name)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        while session.is_handshaking() {
            limit(&socket, deadline)?;
            session.complete_io(&mut socket)?;
        }
        limit(&socket, deadline)?;
        let stream = StreamOwned::new(session, socket);
        let mut sealed = Sealed { stream, parser: redis::Parser::new(), late: 0 };
        if settings.protocol().supports_resp3() {
            sealed.say_hello(settings)?;
        }
        sealed.set_read_timeout(None)?;
        sealed.set_write_timeout(None)?;
        Ok(sealed)
    }

    fn say_hello(&mut self, settings: &RedisConnectionInfo) -> Result<(), RedisError> {
        let mut hello = redis::cmd("HELLO");
        hello.arg("3");
        if let Some(password) = settings.password() {
            hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
        }
        self.send(&hello.get_packed_command())?;
        self.receive()?.extract_error().map(drop)
    }

    pub(crate) fn send(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        Ok(self.stream.write_all(packed)?)
    }

    /// Waits for a reply, or a message. What redis-rs does where there is no TLS: a time-out is taken for
    /// a reply that comes late, and skipped then.
    pub(crate) fn receive(&mut self) -> Result<Value, RedisError> {
        loop {
            let read = self.parser.parse_value(&mut self.stream);
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
            match self.parser.parse_value(&mut self.stream)? {
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
        Ok(self.stream.sock.set_read_timeout(timeout)?)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<(), RedisError> {
        Ok(self.stream.sock.set_write_timeout(timeout)?)
    }
}

/// Connects to the first address of a host that lets it.
fn connect(host: &str, port: u16, most: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, most) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
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

/// The next read or write may take what is left.
fn limit(socket: &TcpStream, deadline: Moment) -> io::Result<()> {
    let left = deadline.since(BootClock.now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

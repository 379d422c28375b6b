//! The bytes to a server and back, in plain text or over TLS.
//!
//! TLS is spoken here, not by redis-rs: that reads the machine's certificates at each connection, whatever
//! it is told to trust, and trusts others where another crate of the program turns a feature of it on.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::io::tcp::socket2::{self, SockAddr, TcpKeepalive};
use redis::{ErrorKind, RedisError};

use crate::base::time::{BootClock, Clock as _, Moment};
use crate::wire::endpoint::Endpoint;

/// How long a connection is idle before the system asks the other end whether it is there. What is on the way,
/// such as a NAT or a balancer, may drop a connection that is idle for some minutes and tell nobody.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How soon the system asks again when nothing came back.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);

/// A connected socket of either kind: reads, writes and time-outs are the same for both.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) inner: TcpStream,
    /// Until when all reads and writes together may take. Without one, each takes as long as the socket lets it.
    pub(super) deadline: Option<Moment>,
}

impl Socket {
    /// Connects until `deadline`, which then holds for the reads and writes too.
    fn connect(to: &SockAddr, deadline: Moment) -> io::Result<Socket> {
        let left = left(deadline)?;
        let socket = socket2::Socket::new(to.domain(), socket2::Type::STREAM, None)?;
        if to.is_unix() {
            // A listener that takes no more connections keeps this waiting like a full socket.
            socket.set_write_timeout(Some(left))?;
            socket.connect(to)?;
        } else {
            socket.connect_timeout(to, left)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&keepalive())?;
        }
        Ok(Socket { inner: socket.into(), deadline: Some(deadline) })
    }

    fn by_deadline(&mut self) -> io::Result<&mut TcpStream> {
        if let Some(deadline) = self.deadline {
            let left = left(deadline)?;
            self.inner.set_read_timeout(Some(left))?;
            self.inner.set_write_timeout(Some(left))?;
        }
        Ok(&mut self.inner)
    }
}

fn left(deadline: Moment) -> io::Result<Duration> {
    let left = deadline.since(BootClock.now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn keepalive() -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        windows
    ))]
    let keepalive = keepalive.with_interval(KEEPALIVE_AGAIN);
    keepalive
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.by_deadline()?.read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.by_deadline()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes to a server and back.
pub(super) enum Stream {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<super::tls::TlsStream>),
}

impl Stream {
    /// Connects over TLS or not at all where the address is for it: in plain text, anybody on the way could read
    /// the password.
    pub(super) fn connect(
        to: &Endpoint,
        at: &SockAddr,
        deadline: Moment,
    ) -> Result<Stream, RedisError> {
        if !to.is_secure() {
            return Ok(Stream::Plain(Socket::connect(at, deadline)?));
        }
        #[cfg(feature = "tls")]
        if let Some(session) = super::tls::session(to)? {
            let socket = Socket::connect(at, deadline)?;
            return Ok(Stream::Tls(Box::new(super::tls::handshake(session, socket)?)));
        }
        let text = "the address is for TLS, and there are no settings of TLS for it";
        Err((ErrorKind::InvalidClientConfig, text).into())
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => &socket.inner,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => &stream.sock.inner,
        }
    }

    /// From now on, each read and write may take as long as the socket lets it.
    pub(super) fn end_deadline(&mut self) -> io::Result<()> {
        let socket = match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => &mut stream.sock,
        };
        socket.deadline = None;
        socket.inner.set_read_timeout(None)?;
        socket.inner.set_write_timeout(None)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => super::tls::send(stream, bytes),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

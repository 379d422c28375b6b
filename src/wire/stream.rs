//! The bytes to a server and back, in plain text or over TLS.
//!
//! TLS is spoken here, not by redis-rs: that reads the machine's certificates at each connection, whatever
//! it is told to trust, and trusts others where another crate of the program turns a feature of it on.

use std::io::{self, Read, Write as _};

use redis::RedisError;
use redis::io::tcp::socket2::SockAddr;

use crate::base::time::Moment;
use crate::wire::endpoint::Endpoint;
use crate::wire::socket::Socket;
#[cfg(feature = "tls")]
use crate::wire::tls;

/// The bytes to a server and back.
pub(super) struct Stream {
    pub(super) socket: Socket,
    /// Where TLS is spoken.
    #[cfg(feature = "tls")]
    session: Option<Box<rustls::ClientConnection>>,
}

impl Stream {
    /// Connects over TLS or not at all where the address is for it: in plain text, anybody on the way could read
    /// the password.
    pub(super) fn connect(
        to: &Endpoint,
        at: &SockAddr,
        deadline: Moment,
    ) -> Result<Stream, RedisError> {
        #[cfg(feature = "tls")]
        if to.is_secure() {
            let mut session = Box::new(tls::session(to)?);
            let mut socket = Socket::connect(at, deadline)?;
            tls::handshake(&mut session, &mut socket)?;
            return Ok(Stream { socket, session: Some(session) });
        }
        let _ = to;
        Ok(Stream {
            socket: Socket::connect(at, deadline)?,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    /// From now on, each read and write may take as long as the socket lets it.
    pub(super) fn end_deadline(&mut self) -> io::Result<()> {
        self.socket.deadline = None;
        self.socket.inner.set_read_timeout(None)?;
        self.socket.inner.set_write_timeout(None)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return tls::send(session, &mut self.socket, bytes);
        }
        self.socket.write_all(bytes)
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return rustls::Stream::new(&mut **session, &mut self.socket).read(into);
        }
        self.socket.read(into)
    }
}

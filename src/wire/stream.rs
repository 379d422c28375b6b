//! The byte stream of a connection, in plain text or over TLS.
//!
//! TLS is done here and not by redis-rs. That reads the machine's certificates for each connection,
//! even with other certificates configured, and a feature that another crate of the program turns
//! on changes which ones it trusts.

use std::io::{self, Read, Write as _};

use redis::RedisError;

use crate::wire::endpoint::Endpoint;
use crate::wire::socket::Socket;
#[cfg(feature = "tls")]
use crate::wire::tls;

/// The byte stream of a connection.
pub(super) struct Stream {
    pub(super) socket: Socket,
    /// `None` in plain text.
    #[cfg(feature = "tls")]
    session: Option<Box<rustls::ClientConnection>>,
}

impl Stream {
    /// Connects by a socket that `connect` makes, over TLS if the address is secure.
    pub(super) fn connect(
        to: &Endpoint,
        connect: impl FnOnce() -> io::Result<Socket>,
    ) -> Result<Stream, RedisError> {
        // No fall-back to plain text after a failed handshake: an attacker who can break that could then
        // read the password, which is the first thing that is sent.
        #[cfg(feature = "tls")]
        if to.is_secure() {
            // Before the socket: a bad certificate setting is found without I/O.
            let mut session = Box::new(tls::session(to)?);
            let mut socket = connect()?;
            tls::handshake(&mut session, &mut socket)?;
            return Ok(Stream { socket, session: Some(session) });
        }
        let _ = to;
        Ok(Stream {
            socket: connect()?,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    /// From now on only the socket's time-outs bound each read and write.
    pub(super) fn end_deadline(&mut self) -> io::Result<()> {
        self.socket.deadline = None;
        self.socket.inner.set_read_timeout(None)?;
        self.socket.inner.set_write_timeout(None)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            // Not by `rustls::Stream`: it drops the error of a write, and the caller must know
            // whether the peer can have the command.
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

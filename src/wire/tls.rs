//! TLS: certificates, sessions, and the recognition of TLS faults.

mod source;

use std::io::{self, Write as _};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::base::certificates::{Certificates, CertificatesProvider};
use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, OnceLock};
use crate::wire::endpoint::Endpoint;
use crate::wire::error_context::io_error;
use crate::wire::socket::Socket;

pub(crate) use source::TlsSource;

/// The largest TLS record. It fits into the buffer of a session, because [`send`] empties the
/// buffer before it adds the next record.
pub(super) const RECORD: usize = 16 * 1024;

/// The certificates of a client: fixed ones, or a provider of them.
#[derive(Default)]
pub(crate) struct TlsSettings {
    pub(crate) certificates: Certificates,
    pub(crate) provider: Option<CertificatesProvider>,
    /// The source that all endpoints share, made once: the machine's certificates are read once, and all
    /// connections share the cache of sessions.
    source: OnceLock<TlsSource>,
}

impl TlsSettings {
    /// Adds them to an endpoint that speaks TLS. Returns any other endpoint as it was.
    pub(crate) fn equip(&self, server: Endpoint) -> Result<Endpoint> {
        if server.is_secure() { Ok(server.set_tls_source(self.source()?)) } else { Ok(server) }
    }

    /// Rejects them if no server uses TLS: a user who sets them believes that TLS is on.
    pub(crate) fn check_use(&self, speaks_tls: bool) -> Result<()> {
        let field = match self {
            TlsSettings { provider: Some(_), .. } => "certificates",
            TlsSettings { certificates: Certificates { authority: Some(_), .. }, .. } => {
                "ca_certificate"
            }
            TlsSettings { certificates: Certificates { client: Some(_), .. }, .. } => {
                "client_certificate"
            }
            _ => return Ok(()),
        };
        if self.provider.is_some() && self.certificates != Certificates::default() {
            let allowed = "one of the two: no ca_certificate and no client_certificate";
            return Err(Error::config(field, "set beside certificates that are fixed", allowed));
        }
        if speaks_tls { Ok(()) } else { Err(without_tls(field)) }
    }

    fn source(&self) -> Result<TlsSource> {
        if let Some(source) = self.source.get() {
            return Ok(source.clone());
        }
        let source = match &self.provider {
            None => TlsSource::fixed(&self.certificates)?,
            Some(provider) => TlsSource::provided(Arc::clone(provider)),
        };
        Ok(self.source.get_or_init(|| source).clone())
    }
}

fn without_tls(field: &str) -> Error {
    Error::config(field, "set for a URL without TLS", "a rediss:// URL with it")
}

/// A new session with this server, before its handshake.
pub(super) fn session(to: &Endpoint) -> std::result::Result<ClientConnection, RedisError> {
    let (ConnectionAddr::Tcp(host, _), Some(source)) = (to.addr(), to.tls_source()) else {
        let text = "the address is for TLS, and there are no settings of TLS for it";
        return Err((ErrorKind::InvalidClientConfig, text).into());
    };
    let config = source.config()?;
    let name = ServerName::try_from(host.clone()).map_err(|_| {
        (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
    })?;
    let session = ClientConnection::new(config, name);
    Ok(session.map_err(tls_fault)?)
}

/// Completes the handshake within the deadline of the socket.
pub(super) fn handshake(session: &mut ClientConnection, socket: &mut Socket) -> io::Result<()> {
    // `is_handshaking` ends before the client's last message is written. Written here, it
    // counts to the time for connecting, and not to that of the first command.
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(socket)?;
    }
    Ok(())
}

/// Encrypts bytes and writes all of them to the socket.
///
/// `rustls::Stream` would drop the error of a write. The caller needs it: it shows that nothing was
/// sent to a peer that is gone.
pub(super) fn send(
    session: &mut ClientConnection,
    socket: &mut Socket,
    bytes: &[u8],
) -> io::Result<()> {
    // Record by record: a session refuses more than its buffer has room for, and each of these
    // writes empties it.
    for record in bytes.chunks(RECORD) {
        session.writer().write_all(record)?;
        while session.wants_write() {
            match session.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // In TLS 1.3 a server rejects the client certificate after the client's handshake
                // is complete. The alert then waits to be read while the first command fails with a
                // broken pipe.
                Err(error) => return Err(read_alert(session, socket).unwrap_or(error)),
                Ok(_) => {}
            }
        }
    }
    Ok(())
}

/// The alert of a peer that has closed the connection, which says more than that it is closed.
fn read_alert(session: &mut ClientConnection, socket: &mut Socket) -> Option<io::Error> {
    // Only what has arrived is read: the caller's time may be over. The connection is poisoned in
    // any case, so the socket may stay non-blocking.
    socket.inner.set_nonblocking(true).ok()?;
    while let Ok(1..) = session.read_tls(socket) {
        if let Err(error) = session.process_new_packets() {
            return Some(tls_fault(error));
        }
    }
    None
}

fn tls_fault(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether the two sides could not agree on a TLS connection.
pub(crate) fn is_fault(error: &RedisError) -> bool {
    io_error(error)
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests;

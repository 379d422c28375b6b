//! TLS: certificates, sessions, and the recognition of TLS faults.

use std::io::{self, Write as _};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, OnceLock};
use crate::wire::endpoint::Endpoint;
use crate::wire::error_context::io_error;
use crate::wire::socket::Socket;

/// The largest TLS record. It fits into the buffer of a session, because [`send`] empties the
/// buffer before it adds the next record.
pub(super) const RECORD: usize = 16 * 1024;

/// CA certificates to trust, and the client certificate.
#[derive(Default)]
pub(crate) struct Certificates {
    /// CA certificates to trust, in PEM; without them those of the machine.
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<ClientCertificate>,
    /// The configuration made of them, once: the machine's certificates are read once, and all
    /// connections share the cache of sessions.
    config: OnceLock<Arc<ClientConfig>>,
}

/// A client's certificate chain and its key.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Certificates {
    /// Adds them to an endpoint that speaks TLS. Returns any other endpoint as it was.
    pub(crate) fn equip(&self, server: Endpoint) -> Result<Endpoint> {
        if server.is_secure() { Ok(server.set_tls(self.config()?)) } else { Ok(server) }
    }

    /// Rejects them if no server uses TLS: a user who sets them believes that TLS is on.
    pub(crate) fn check_use(&self, speaks_tls: bool) -> Result<()> {
        match self {
            _ if speaks_tls => Ok(()),
            Certificates { authority: Some(_), .. } => Err(without_tls("ca_certificate")),
            Certificates { client: Some(_), .. } => Err(without_tls("client_certificate")),
            _ => Ok(()),
        }
    }

    /// The configuration of all connections.
    fn config(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        // If the program has chosen a provider, perhaps a certified one, it is used here. None is
        // installed, as that is the program's choice alone, and `ClientConfig::builder` would panic
        // without one.
        let chosen = CryptoProvider::get_default().map(Arc::clone);
        let provider = chosen.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| {
                let allowed = "one that speaks TLS 1.2 or 1.3";
                Error::config("rustls provider", "the default of this process", allowed)
            })?
            .with_root_certificates(self.roots()?);

        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let (chain, key) = client.read()?;
                builder.with_client_auth_cert(chain, key).map_err(|_| {
                    let wrong = "the key is not that of the certificate";
                    Error::config("client_certificate", wrong, "a pair")
                })?
            }
        };
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }

    /// The trusted authorities: those of the user, else those of the machine. The features with
    /// which rustls or the driver were built add none.
    fn roots(&self) -> Result<RootCertStore> {
        let field = "ca_certificate";
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.authority {
            for certificate in certificates(field, pem)? {
                roots.add(certificate).map_err(|_| unreadable(field))?;
            }
            return Ok(roots);
        }

        let found = rustls_native_certs::load_native_certs();
        // A machine's store often has a few certificates that cannot be parsed. Failing for those
        // would make TLS unusable on it.
        if roots.add_parsable_certificates(found.certs).0 > 0 {
            return Ok(roots);
        }
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        Err(Error::config(
            field,
            "none",
            format_args!("PEM text, as this machine has no certificates of authorities{why}"),
        ))
    }
}

impl ClientCertificate {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let field = "client_certificate";
        let chain = certificates(field, &self.chain)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| unreadable(field))?;
        Ok((chain, key))
    }
}

fn without_tls(field: &str) -> Error {
    Error::config(field, "set for a URL without TLS", "a rediss:// URL with it")
}

fn certificates(field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    // The parser returns no certificate and no error for a text without any, such as DER or a path.
    if !pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Err(Error::config(field, "no certificate in it", "PEM text"));
    }
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.map_err(|_| unreadable(field)))
        .collect()
}

/// The error for a text that is not readable as PEM.
fn unreadable(field: &str) -> Error {
    // Without the parser's error: it quotes the line, which may be part of a private key.
    Error::config(field, "not readable", "PEM text: base64 between BEGIN and END lines")
}

/// A new session with this server, before its handshake.
pub(super) fn session(to: &Endpoint) -> std::result::Result<ClientConnection, RedisError> {
    let (ConnectionAddr::Tcp(host, _), Some(config)) = (to.addr(), to.tls()) else {
        let text = "the address is for TLS, and there are no settings of TLS for it";
        return Err((ErrorKind::InvalidClientConfig, text).into());
    };
    let name = ServerName::try_from(host.clone()).map_err(|_| {
        (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
    })?;
    let session = ClientConnection::new(Arc::clone(config), name);
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

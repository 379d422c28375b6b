//! TLS: whom to trust, whom to be, and telling its faults from others.

use std::io::{self, Write as _};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, OnceLock};
use crate::wire::endpoint::Endpoint;
use crate::wire::fault::io_error;
use crate::wire::stream::Socket;

/// The most that TLS seals at once. It fits into the buffer of a session, which is empty before each.
pub(super) const RECORD: usize = 16 * 1024;

/// Whom a client trusts, and who it is.
pub(crate) struct Certificates {
    /// PEM text with the authorities; those of the machine where there is none.
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<Identification>,
    /// What was made of them. The machine's are read once, and the connections share their sessions.
    config: OnceLock<Arc<ClientConfig>>,
}

/// A client's certificate chain and its key.
#[derive(Clone)]
pub(crate) struct Identification {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates { authority: None, client: None, config: OnceLock::new() }
    }
}

impl Certificates {
    /// Gives them to a server, if TLS is spoken there.
    pub(crate) fn equip(&self, server: Endpoint) -> Result<Endpoint> {
        if server.is_secure() { Ok(server.set_tls(self.config()?)) } else { Ok(server) }
    }

    /// Refuses them where no server has a use for them: its user believes that TLS is spoken.
    pub(crate) fn check_use(&self, speaks_tls: bool) -> Result<()> {
        match self {
            _ if speaks_tls => Ok(()),
            Certificates { authority: Some(_), .. } => Err(without_tls("ca_certificate")),
            Certificates { client: Some(_), .. } => Err(without_tls("client_certificate")),
            _ => Ok(()),
        }
    }

    /// What all connections have in common.
    fn config(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        // The process's choice of cryptography is followed, and left alone: what is made here has its own.
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

    /// The authorities that are trusted, and no others, whatever rustls or the driver were built with.
    fn roots(&self) -> Result<RootCertStore> {
        let field = "ca_certificate";
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.authority {
            check_pem(field, pem)?;
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|_| unreadable(field))?;
                roots.add(certificate).map_err(|_| unreadable(field))?;
            }
            return Ok(roots);
        }
        let found = rustls_native_certs::load_native_certs();
        // Some of a machine's may be odd. That is no reason to do without the others.
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

impl Identification {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let field = "client_certificate";
        check_pem(field, &self.chain)?;
        let chain: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&self.chain).collect();
        let chain = chain.map_err(|_| unreadable(field))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| unreadable(field))?;
        Ok((chain, key))
    }
}

fn without_tls(field: &str) -> Error {
    Error::config(field, "set for a URL without TLS", "a rediss:// URL with it")
}

fn check_pem(field: &str, pem: &[u8]) -> Result<()> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    if pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        Ok(())
    } else {
        Err(Error::config(field, "no certificate in it", "PEM text"))
    }
}

/// Why it cannot be read is not told: readers of PEM quote the line, which may be all of a key.
fn unreadable(field: &str) -> Error {
    Error::config(field, "not readable", "PEM text: base64 between BEGIN and END lines")
}

/// TLS over a socket.
pub(super) type TlsStream = StreamOwned<ClientConnection, Socket>;

/// A session with this server, which begins with the handshake; `None` without settings of TLS.
pub(super) fn session(to: &Endpoint) -> std::result::Result<Option<ClientConnection>, RedisError> {
    let (ConnectionAddr::Tcp(host, _), Some(config)) = (to.addr(), to.tls()) else {
        return Ok(None);
    };
    let name = ServerName::try_from(host.clone()).map_err(|_| {
        (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
    })?;
    let session = ClientConnection::new(Arc::clone(config), name);
    Ok(Some(session.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?))
}

/// Agrees on TLS, by the deadline of the socket.
pub(super) fn handshake(session: ClientConnection, socket: Socket) -> io::Result<TlsStream> {
    let mut stream = StreamOwned::new(session, socket);
    // The last message of a handshake is the client's.
    while stream.conn.is_handshaking() || stream.conn.wants_write() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Gives bytes to the system. The stream's own writes would drop an error, which the caller has to know: nothing
/// was sent to a peer that is gone.
pub(super) fn send(stream: &mut TlsStream, bytes: &[u8]) -> io::Result<()> {
    for record in bytes.chunks(RECORD) {
        stream.conn.writer().write_all(record)?;
        while stream.conn.wants_write() {
            match stream.conn.write_tls(&mut stream.sock) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(last_words(stream).unwrap_or(error)),
                Ok(_) => {}
            }
        }
    }
    Ok(())
}

/// What a peer that is gone had against the connection. It tells more than that the peer is gone.
fn last_words(stream: &mut TlsStream) -> Option<io::Error> {
    // No read waits where the system knows that it is gone, and no other is to.
    stream.sock.inner.set_nonblocking(true).ok()?;
    while let Ok(1..) = stream.conn.read_tls(&mut stream.sock) {
        if let Err(error) = stream.conn.process_new_packets() {
            return Some(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
    None
}

/// Whether the two sides could not agree on a TLS connection.
pub(crate) fn is_fault(error: &RedisError) -> bool {
    io_error(error)
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

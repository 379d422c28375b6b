//! TLS: whom to trust, whom to be, a connection, and telling its faults from others.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, PushKind, RedisConnectionInfo, RedisError, Value,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, OnceLock};
use crate::base::time::{BootClock, Clock as _, Moment};
use crate::wire::endpoint::Endpoint;
use crate::wire::fault::io_error;

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

/// A connection over TLS.
pub(crate) struct Sealed {
    stream: StreamOwned<ClientConnection, TcpStream>,
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
    ) -> std::result::Result<Sealed, RedisError> {
        let (ConnectionAddr::Tcp(host, _), Some(at)) = (info.addr(), at) else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            (ErrorKind::InvalidClientConfig, "no name for which there are certificates")
        })?;
        let deadline = BootClock.now().after(most);
        let mut socket = TcpStream::connect_timeout(&at, most)?;
        apply(&socket, info.tcp_settings())?;
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

    fn say_hello(&mut self, settings: &RedisConnectionInfo) -> std::result::Result<(), RedisError> {
        let mut hello = redis::cmd("HELLO");
        hello.arg("3");
        if let Some(password) = settings.password() {
            hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
        }
        self.send(&hello.get_packed_command())?;
        self.receive()?.extract_error().map(drop)
    }

    pub(crate) fn send(&mut self, packed: &[u8]) -> std::result::Result<(), RedisError> {
        Ok(self.stream.write_all(packed)?)
    }

    /// Waits for a reply, or a message. What redis-rs does where there is no TLS: a time-out is taken for
    /// a reply that comes late, and skipped then.
    pub(crate) fn receive(&mut self) -> std::result::Result<Value, RedisError> {
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
    pub(crate) fn receive_message(
        &mut self,
    ) -> std::result::Result<(Vec<u8>, Vec<u8>), RedisError> {
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

    pub(crate) fn set_read_timeout(
        &self,
        timeout: Option<Duration>,
    ) -> std::result::Result<(), RedisError> {
        Ok(self.stream.sock.set_read_timeout(timeout)?)
    }

    pub(crate) fn set_write_timeout(
        &self,
        timeout: Option<Duration>,
    ) -> std::result::Result<(), RedisError> {
        Ok(self.stream.sock.set_write_timeout(timeout)?)
    }
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

/// Whether the two sides could not agree on a TLS connection.
pub(crate) fn is_fault(error: &RedisError) -> bool {
    io_error(error)
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

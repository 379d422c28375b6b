//! The source of certificates for connections over TLS: read once, or provided for each connection.

use redis::RedisError;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::base::certificates::{Certificates, CertificatesProvider, ClientCertificate};
use crate::base::error::{Error, Result};
use crate::base::panic::catch_panic;
use crate::base::sync::{Arc, Mutex, OnceLock};
use crate::wire::error_context::not_provided;

/// The source of the configuration of TLS connections.
#[derive(Clone)]
pub(crate) enum TlsSource {
    Fixed(Arc<ClientConfig>),
    /// Provides them for each connection.
    Provided(Arc<ProvidedTls>),
}

/// Certificates that the user's code provides.
pub(crate) struct ProvidedTls {
    provider: CertificatesProvider,
    /// The last certificates and their configuration. As long as they do not change, sessions are resumed.
    last: Mutex<Option<(Certificates, Arc<ClientConfig>)>>,
    /// The CA certificates of the machine, read when they are first needed.
    machine: OnceLock<Arc<RootCertStore>>,
}

impl TlsSource {
    pub(super) fn fixed(certificates: &Certificates) -> Result<TlsSource> {
        Ok(TlsSource::Fixed(config(certificates, machine_roots)?))
    }

    pub(super) fn provided(provider: CertificatesProvider) -> TlsSource {
        let (last, machine) = (Mutex::new(None), OnceLock::new());
        TlsSource::Provided(Arc::new(ProvidedTls { provider, last, machine }))
    }

    /// The configuration for a new connection. Calls the user's provider, if there is one.
    pub(super) fn config(&self) -> std::result::Result<Arc<ClientConfig>, RedisError> {
        match self {
            TlsSource::Fixed(config) => Ok(Arc::clone(config)),
            TlsSource::Provided(provided) => provided.config(),
        }
    }
}

impl ProvidedTls {
    fn config(&self) -> std::result::Result<Arc<ClientConfig>, RedisError> {
        const WHAT: &str = "certificates";
        let provided = catch_panic("the provider of certificates", || (self.provider)());
        let certificates = provided
            .ok_or_else(|| not_provided(WHAT, None))?
            .map_err(|error| not_provided(WHAT, Some(error)))?;
        if let Some((last, config)) = &*self.last.lock()
            && *last == certificates
        {
            return Ok(Arc::clone(config));
        }
        // An unreadable certificate may be a passing fault too: a file may just be in the middle of a write.
        let config = config(&certificates, || self.machine_roots())
            .map_err(|error| not_provided(WHAT, Some(error.into())))?;
        *self.last.lock() = Some((certificates, Arc::clone(&config)));
        Ok(config)
    }

    fn machine_roots(&self) -> Result<Arc<RootCertStore>> {
        if let Some(roots) = self.machine.get() {
            return Ok(Arc::clone(roots));
        }
        let roots = machine_roots()?;
        Ok(Arc::clone(self.machine.get_or_init(|| roots)))
    }
}

/// The configuration of connections with these certificates.
fn config(
    certificates: &Certificates,
    machine: impl FnOnce() -> Result<Arc<RootCertStore>>,
) -> Result<Arc<ClientConfig>> {
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
        .with_root_certificates(match &certificates.authority {
            Some(pem) => own_roots(pem)?,
            None => machine()?,
        });

    let config = match &certificates.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = read(client)?;
            builder.with_client_auth_cert(chain, key).map_err(|_| {
                let wrong = "the key is not that of the certificate";
                Error::config("client_certificate", wrong, "a pair")
            })?
        }
    };
    Ok(Arc::new(config))
}

/// The authorities that the user trusts. The features with which rustls or the driver were built add none.
fn own_roots(pem: &[u8]) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in pem_certificates(AUTHORITY, pem)? {
        roots.add(certificate).map_err(|_| unreadable(AUTHORITY))?;
    }
    Ok(Arc::new(roots))
}

/// The authorities of the machine.
fn machine_roots() -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // A machine's store often has a few certificates that cannot be parsed. Failing for those
    // would make TLS unusable on it.
    if roots.add_parsable_certificates(found.certs).0 > 0 {
        return Ok(Arc::new(roots));
    }
    let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    Err(Error::config(
        AUTHORITY,
        "none",
        format_args!("PEM text, as this machine has no certificates of authorities{why}"),
    ))
}

const AUTHORITY: &str = "ca_certificate";

fn read(
    client: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let field = "client_certificate";
    let chain = pem_certificates(field, &client.chain)?;
    let key = PrivateKeyDer::from_pem_slice(&client.key).map_err(|_| unreadable(field))?;
    Ok((chain, key))
}

fn pem_certificates(field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
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

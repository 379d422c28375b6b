//! TLS: whom to trust, whom to be, and telling its faults from others.

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::base::error::{Error, Result};
use crate::wire::fault::io_error;

/// PEM texts that go with a `rediss://` URL.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<Identification>,
}

/// A client's certificate chain and its key.
#[derive(Clone)]
pub(crate) struct Identification {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Certificates {
    /// Gives them to an address, having checked them.
    pub(crate) fn equip(&self, info: ConnectionInfo) -> Result<ConnectionInfo> {
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return self.equip_tls(info);
        }
        match self {
            Certificates { authority: None, client: None } => Ok(info),
            Certificates { authority: Some(_), .. } => Err(without_tls("ca_certificate")),
            Certificates { client: Some(_), .. } => Err(without_tls("client_certificate")),
        }
    }

    fn equip_tls(&self, info: ConnectionInfo) -> Result<ConnectionInfo> {
        // rustls takes whatever cryptography the process has chosen. Where it has chosen none, and
        // several are linked in, rustls panics; so a choice is made.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let build = |field: &str, root_cert: Option<Vec<u8>>, client_tls| {
            Client::build_with_tls(info.clone(), TlsCertificates { client_tls, root_cert })
                .map(|client| client.get_connection_info().clone())
                .map_err(|_| unreadable(field))
        };
        if let Some(pem) = &self.authority {
            check_pem("ca_certificate", pem)?;
        }
        let equipped = build("ca_certificate", self.authority.clone(), None)?;
        let Some(client) = &self.client else { return Ok(equipped) };
        check_pem("client_certificate", &client.chain)?;
        client.check()?;
        let Identification { chain, key } = client.clone();
        let client = ClientTlsConfig { client_cert: chain, client_key: key };
        build("client_certificate", self.authority.clone(), Some(client))
    }
}

impl Identification {
    /// Checks that the key is the certificate's, which rustls would see only at the first connection.
    fn check(&self) -> Result<()> {
        let field = "client_certificate";
        let chain: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&self.chain).collect();
        let chain = chain.map_err(|_| unreadable(field))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| unreadable(field))?;
        ClientConfig::builder()
            .with_root_certificates(RootCertStore::empty())
            .with_client_auth_cert(chain, key)
            .map(drop)
            .map_err(|_| Error::config(field, "the key is not that of the certificate", "a pair"))
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

/// Whether the two sides could not agree on a TLS connection.
pub(crate) fn is_fault(error: &RedisError) -> bool {
    io_error(error)
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

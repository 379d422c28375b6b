//! Certificates for TLS, and their provider.

use std::fmt;

use crate::base::sync::Arc;

/// Certificates for TLS, in PEM, that a [provider](crate::LockClientBuilder::certificates) returns: the CA
/// certificates that a client trusts, and its own certificate.
///
/// ```
/// use leasehold::Certificates;
///
/// # fn demo() -> std::io::Result<Certificates> {
/// let certificates = Certificates::new()
///     .ca_certificate(std::fs::read("/run/tls/ca.pem")?)
///     .client_certificate(std::fs::read("/run/tls/chain.pem")?, std::fs::read("/run/tls/key.pem")?);
/// # Ok(certificates)
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// CA certificates to trust; without them those of the machine.
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<ClientCertificate>,
}

/// A client's certificate chain and its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Certificates {
    /// No certificates: the client trusts the CA certificates of the machine, and presents none of its own.
    ///
    /// ```
    /// use leasehold::Certificates;
    ///
    /// assert_eq!(Certificates::new(), Certificates::default());
    /// ```
    #[must_use]
    pub fn new() -> Certificates {
        Certificates::default()
    }

    /// The CA certificates to trust, in place of those of the machine; default those of the machine.
    ///
    /// ```
    /// use leasehold::Certificates;
    ///
    /// # fn demo(pem: &[u8]) {
    /// let certificates = Certificates::new().ca_certificate(pem);
    /// # }
    /// ```
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Certificates {
        self.authority = Some(pem.as_ref().to_vec());
        self
    }

    /// The client's certificate with its chain, and its key, for mutual TLS; default none.
    ///
    /// ```
    /// use leasehold::Certificates;
    ///
    /// # fn demo(chain: &[u8], key: &[u8]) {
    /// let certificates = Certificates::new().client_certificate(chain, key);
    /// // Neither is shown.
    /// assert_eq!(format!("{certificates:?}"), "Certificates { .. }");
    /// # }
    /// ```
    #[must_use]
    pub fn client_certificate(
        mut self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Certificates {
        let (chain, key) = (chain.as_ref().to_vec(), key.as_ref().to_vec());
        self.client = Some(ClientCertificate { chain, key });
        self
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived, because the key is a secret.
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// What a provider returns.
pub(crate) type Provided = Result<Certificates, Box<dyn std::error::Error + Send + Sync>>;

/// Provides the current certificates.
pub(crate) type CertificatesProvider = Arc<dyn Fn() -> Provided + Send + Sync>;

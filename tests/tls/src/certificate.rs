//! Certificates that live as long as a test.

use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// Somebody who signs certificates.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A signed certificate and its key, as PEM text.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub pem: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// Makes an authority that nobody trusts yet.
    ///
    /// # Panics
    ///
    /// If the system has no randomness.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// The authority's own certificate, as PEM text.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a certificate for a name or an address.
    ///
    /// # Panics
    ///
    /// If that is not one.
    pub fn sign(&self, subject: &str) -> Certificate {
        self.issue(CertificateParams::new(vec![subject.to_owned()]).expect("a name"))
    }

    /// The same, for a certificate that expires at this moment, to the second.
    ///
    /// # Panics
    ///
    /// As there, and before 1970.
    pub fn sign_until(&self, subject: &str, end: SystemTime) -> Certificate {
        let mut params = CertificateParams::new(vec![subject.to_owned()]).expect("a name");
        let end = end.duration_since(SystemTime::UNIX_EPOCH).expect("a later time");
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end.as_secs());
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certificate { pem, key: key.serialize_pem() }
    }
}

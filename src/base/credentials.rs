//! The user and the password of a log-in, and what provides them.

use std::fmt;

use crate::base::sync::Arc;

/// A user of the server with its password, for a [provider](crate::LockClientBuilder::credentials).
///
/// ```
/// use leasehold::Credentials;
///
/// let credentials = Credentials::new("locks", "s3cret");
/// assert!(!format!("{credentials:?}").contains("s3cret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Credentials {
    /// A user and its password. A server with `requirepass` and without users of its own has the user
    /// `default`.
    ///
    /// ```
    /// use leasehold::Credentials;
    ///
    /// let credentials = Credentials::new("default", "s3cret");
    /// ```
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: a log of it would have the password.
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What a provider returns.
pub(crate) type Provided = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>;

/// Provides the credentials of the moment.
pub(crate) type CredentialsProvider = Arc<dyn Fn() -> Provided + Send + Sync>;

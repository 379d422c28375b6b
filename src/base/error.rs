//! Errors: a kind for programs, and a text for people.

mod kind;
mod predicate;

use std::error::Error as StdError;
use std::fmt;

use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::text::clean;

pub use kind::ErrorKind;

/// The result of this crate's calls.
///
/// ```
/// fn report(client: &leasehold::LockClient) -> leasehold::Result<u32> {
///     client.mutex("search-index")?.with(|_guard| {
///         // … the work …
///         42
///     })
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call.
///
/// One predicate is true for each error, with two exceptions: a lost lock is also not held, and an
/// outage that ended a wait may leave the outcome of a request unknown. A lock that somebody else
/// holds is not an error: `try_lock` and its variants return `Ok(None)`. [Errors by
/// symptom](crate::guide::errors) says what to do about each.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// match lock.try_lock() {
///     Ok(Some(_guard)) => { /* ours */ }
///     Ok(None) => { /* somebody else has it */ }
///     Err(error) if error.is_unreachable() => { /* Redis is down: say so, try later */ }
///     Err(error) if error.is_unknown_outcome() => { /* it may be held until its lease ends */ }
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    /// For an unknown outcome: an outage caused it.
    in_outage: bool,
    lock: Option<Name>,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A constructor for each of these kinds, with the text as its argument.
macro_rules! constructors {
    ($($constructor:ident: $kind:ident),+ $(,)?) => {
        impl Error {
            $(pub(crate) fn $constructor(text: impl Into<String>) -> Error {
                Error::new(ErrorKind::$kind, text)
            })+
        }
    };
}

constructors! {
    timeout: Timeout,
    not_held: NotHeld,
    unreachable: Unreachable,
    unknown_outcome: UnknownOutcome,
    denied: Denied,
    wrong_type: WrongType,
    cancelled: Cancelled,
    exhausted: PoolExhausted,
    refused: Refused,
    crowded: Crowded,
    not_replicated: NotReplicated,
    not_fsynced: NotFsynced,
}

impl Error {
    /// An error for an implementation of [`DistributedLock`](crate::DistributedLock) outside of
    /// this crate.
    ///
    /// The message says what happened and what to do about it, in one line: control characters are
    /// escaped. Errors are logged, so it must not have secrets in it. For [`ErrorKind::Config`] it
    /// names the setting, the value, and what is allowed.
    ///
    /// ```
    /// use leasehold::{DistributedLock, Error, ErrorKind, Lease, Result};
    /// use std::time::Duration;
    ///
    /// /// A lock service that is down.
    /// struct Down;
    ///
    /// impl DistributedLock for Down {
    ///     fn try_lock(&self, key: &str, _wait: Duration, _lease: Lease) -> Result<bool> {
    ///         let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    ///         Err(Error::new(ErrorKind::Unreachable, "the lock service is down; try again later")
    ///             .with_lock_name(key)
    ///             .with_source(cause))
    ///     }
    ///
    ///     fn unlock(&self, key: &str) -> Result<()> {
    ///         Err(Error::new(ErrorKind::NotHeld, "not held by this thread").with_lock_name(key))
    ///     }
    ///
    ///     fn is_held(&self, _key: &str) -> bool {
    ///         false
    ///     }
    /// }
    ///
    /// let error = Down.try_lock("orders:42", Duration::ZERO, Lease::default()).unwrap_err();
    /// assert!(error.is_unreachable() && error.is_transient());
    /// assert_eq!(
    ///     error.to_string(),
    ///     "lock \"orders:42\": the lock service is down; try again later"
    /// );
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        // Every text passes through here, since it may repeat the words of a server or of another
        // process.
        let text = clean(&message.into()).into_owned();
        Error(Box::new(Inner { kind, in_outage: false, lock: None, text, source: None }))
    }

    /// Puts the name of the lock before the message, unless the error names a lock already.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::NotHeld, "not held by this thread").with_lock_name("a\n");
    /// assert_eq!(error.to_string(), r#"lock "a\n": not held by this thread"#);
    /// ```
    #[must_use = "it returns the error"]
    pub fn with_lock_name(self, name: impl AsRef<[u8]>) -> Error {
        self.of(&Name::unchecked(name.as_ref()))
    }

    /// Keeps the error that caused this one, as its [source](std::error::Error::source). The
    /// message does not change.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind, Result};
    /// use std::error::Error as _;
    ///
    /// fn port(text: &str) -> Result<u16> {
    ///     text.parse().map_err(|cause| {
    ///         Error::new(ErrorKind::Config, format!("invalid port: {text:?}, expected 0 to 65535"))
    ///             .with_source(cause)
    ///     })
    /// }
    /// let error = port("x").unwrap_err();
    /// assert!(error.source().unwrap().is::<std::num::ParseIntError>());
    /// ```
    #[must_use = "it returns the error"]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// An error about a setting, in the form that all of these have: the setting, its value, and
    /// what is allowed.
    pub(crate) fn config(
        field: &str,
        wrong: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Config, format!("invalid {field}: {wrong}, expected {expected}"))
    }

    pub(crate) fn lost(loss: &Loss) -> Error {
        // With `Taken` another holder is certain, and the text of the cause says so.
        let since = match loss.cause() {
            LossCause::Taken => "",
            _ => ", and another holder may have had it since",
        };
        let text = format!("lost: {}{since}; {}", loss.what(), loss.advice());
        let error = Error::new(ErrorKind::Lost, text).of(loss.lock());
        match &loss.source {
            Some(source) => error.with_source(Arc::clone(source)),
            None => error,
        }
    }

    /// Names the lock, unless the error names one already.
    pub(crate) fn of(mut self, name: &Name) -> Error {
        // The first name is the most precise: an error passes through several layers that add
        // theirs.
        self.0.lock.get_or_insert_with(|| name.clone());
        self
    }

    /// The message without the name of the lock.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// Adds a consequence to the text, once.
    pub(crate) fn with_consequence(mut self, consequence: &str) -> Error {
        if !self.0.text.contains(consequence) {
            self.0.text.push_str("; ");
            self.0.text.push_str(consequence);
        }
        self
    }

    /// Marks an unknown outcome as caused by an outage, so that `is_unreachable` is true as well.
    pub(crate) fn in_outage(mut self) -> Error {
        // Other kinds stay as they are: `Unreachable` has the predicate anyway, and a refusal is no
        // outage.
        self.0.in_outage = self.0.kind == ErrorKind::UnknownOutcome;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = &self.0.lock {
            write!(f, "lock {lock:?}: ")?;
        }
        f.write_str(&self.0.text)
    }
}

/// Shows the text as it is, not escaped a second time: `unwrap` prints it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [{:?}]", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_cleaned() {
        let error = Error::refused("Redis refused the command: ERR a\r\nb\u{1b}[2J");
        assert_eq!(error.to_string(), r"Redis refused the command: ERR a\r\nb\u{1b}[2J");
    }

    fn lock() -> Name {
        Name::new(b"", b"orders:42").unwrap()
    }

    #[test]
    fn error_other_is_cleaned_names_lock_once_keeps_source() {
        let error = Error::new(ErrorKind::Denied, "no\nentry").with_source("the cause");
        assert_eq!(error.to_string(), r"no\nentry");
        let named = error.with_lock_name("a\n").with_lock_name("b");
        assert_eq!(named.to_string(), r#"lock "a\n": no\nentry"#);
        assert_eq!(named.source().unwrap().to_string(), "the cause");
    }

    #[test]
    fn debug_shows_the_text_as_it_is() {
        let error = Error::timeout("timed out after 2s").of(&lock());
        assert_eq!(format!("{error:?}"), "lock \"orders:42\": timed out after 2s [Timeout]");
    }

    #[test]
    fn config_errors_have_one_form() {
        let error = Error::config("url port", "not a number", "1 to 65535");
        assert_eq!(error.to_string(), "invalid url port: not a number, expected 1 to 65535");
    }

    #[test]
    fn loss_error_names_its_lock_once() {
        let loss = Loss::new(lock(), crate::FencingToken::new(1), LossCause::Deleted, true);
        let text = Error::lost(&loss).of(&lock()).to_string();
        assert!(text.starts_with("lock \"orders:42\": lost: its key was deleted"), "{text}");
        assert_eq!(text.matches("orders:42").count(), 1, "{text}");
        assert!(text.starts_with(&loss.to_string()), "{loss}");
    }
}

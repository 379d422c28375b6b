//! What can go wrong, told so that a program can decide and a person can act.

mod predicate;

use std::error::Error as StdError;
use std::fmt;

use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::text::clean;

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

type Source = Box<dyn StdError + Send + Sync>;

/// Why a call did not do what was asked.
///
/// One predicate is true for each error, with two exceptions: a lost lock is also not held, and an outage
/// that ended a wait may leave the outcome of a request unknown. A lock that somebody else holds is not an
/// error: `try_lock` and its kin return `Ok(None)`. [Errors by symptom](crate::guide::errors) says what to
/// do about each.
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
    kind: Kind,
    /// Of an unknown outcome: it came of an outage.
    in_outage: bool,
    lock: Option<Name>,
    text: String,
    source: Option<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Timeout,
    Lost,
    NotHeld,
    Unreachable,
    UnknownOutcome,
    Config,
    Denied,
    WrongType,
    Cancelled,
    Exhausted,
    Refused,
    NotReplicated,
    NotFsynced,
}

/// A constructor for each of these kinds, which takes the text.
macro_rules! constructors {
    ($($constructor:ident: $kind:ident),+ $(,)?) => {
        impl Error {
            $(pub(crate) fn $constructor(text: impl Into<String>) -> Error {
                Error::new(Kind::$kind, text)
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
    exhausted: Exhausted,
    refused: Refused,
    not_replicated: NotReplicated,
    not_fsynced: NotFsynced,
}

impl Error {
    /// The text may repeat what a server said.
    fn new(kind: Kind, text: impl Into<String>) -> Error {
        let text = clean(&text.into()).into_owned();
        Error(Box::new(Inner { kind, in_outage: false, lock: None, text, source: None }))
    }

    /// The one form that all of these have: what is wrong with which setting, and what is allowed.
    pub(crate) fn config(
        field: &str,
        wrong: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Error {
        Error::new(Kind::Config, format!("invalid {field}: {wrong}, expected {expected}"))
    }

    pub(crate) fn lost(loss: &Loss) -> Error {
        let since = match loss.cause() {
            LossCause::Taken => "",
            _ => ", and another holder may have had it since",
        };
        let text = format!("lost: {}{since}; {}", loss.what(), loss.advice());
        Error::new(Kind::Lost, text).of(loss.lock())
    }

    /// Names the lock, unless it is named already.
    pub(crate) fn of(mut self, name: &Name) -> Error {
        self.0.lock.get_or_insert_with(|| name.clone());
        self
    }

    /// Says what follows from it, once.
    pub(crate) fn so(mut self, consequence: &str) -> Error {
        if !self.0.text.contains(consequence) {
            self.0.text.push_str("; ");
            self.0.text.push_str(consequence);
        }
        self
    }

    /// Says that Redis could not be reached, besides that an outcome is unknown.
    pub(crate) fn in_outage(mut self) -> Error {
        self.0.in_outage = self.0.kind == Kind::UnknownOutcome;
        self
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Source>) -> Error {
        self.0.source = Some(source.into());
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

/// The text as it is, so that the message of a panic can be read.
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

//! The kinds of failure.

#[allow(unused_imports, reason = "named in the documentation")]
use crate::base::error::Error;

/// The kind of an [`Error`]. Each kind has a predicate, such as [`Error::is_timeout`], whose
/// documentation says more.
///
/// | kind | predicate | [transient](Error::is_transient) | why |
/// | --- | --- | --- | --- |
/// | [`Timeout`](ErrorKind::Timeout) | [`is_timeout`](Error::is_timeout) | yes | the holder releases the lock, or its lease ends |
/// | [`Lost`](ErrorKind::Lost) | [`is_lost`](Error::is_lost), [`is_not_held`](Error::is_not_held) | no | this hold does not come back; before the work is done again, look at the part of it that was done |
/// | [`NotHeld`](ErrorKind::NotHeld) | [`is_not_held`](Error::is_not_held) | no | the program has to change |
/// | [`Unreachable`](ErrorKind::Unreachable) | [`is_unreachable`](Error::is_unreachable) | yes | Redis comes back |
/// | [`UnknownOutcome`](ErrorKind::UnknownOutcome) | [`is_unknown_outcome`](Error::is_unknown_outcome) | yes | a lock that may have been taken is free again when its lease ends; a transaction may have been applied, and a second try may apply it twice |
/// | [`Config`](ErrorKind::Config) | [`is_config`](Error::is_config) | no | the setting or the argument has to change |
/// | [`Denied`](ErrorKind::Denied) | [`is_denied`](Error::is_denied) | no | the password or the permissions have to change |
/// | [`WrongType`](ErrorKind::WrongType) | [`is_wrong_type`](Error::is_wrong_type) | no | the name has to change, or the key has to be deleted |
/// | [`Cancelled`](ErrorKind::Cancelled) | [`is_cancelled`](Error::is_cancelled) | no | the wait was ended on purpose, and once the client is closed no other succeeds |
/// | [`PoolExhausted`](ErrorKind::PoolExhausted) | [`is_pool_exhausted`](Error::is_pool_exhausted) | yes | other calls return their connections |
/// | [`Refused`](ErrorKind::Refused) | [`is_refused`](Error::is_refused) | no | the server or the program has to change: the text says how |
/// | [`Crowded`](ErrorKind::Crowded) | [`is_crowded`](Error::is_crowded) | yes | those who wait get the lock, or give up |
/// | [`NotReplicated`](ErrorKind::NotReplicated) | [`is_not_replicated`](Error::is_not_replicated) | yes | replicas catch up |
/// | [`NotFsynced`](ErrorKind::NotFsynced) | [`is_not_fsynced`](Error::is_not_fsynced) | yes | disks catch up |
///
/// ```
/// use leasehold::{Error, ErrorKind};
///
/// /// The status of the reply to an HTTP request that needed the lock.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Timeout => 409,
///         ErrorKind::Config | ErrorKind::NotHeld => 500,
///         _ if error.is_transient() => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(status(&Error::new(ErrorKind::Unreachable, "the lock service is down")), 503);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The wait ended before the lock was free, or the grant arrived too late.
    Timeout,
    /// The lock was held, and was lost before its release.
    Lost,
    /// This thread does not hold the lock.
    NotHeld,
    /// Redis could not be reached or could not serve. Nothing was done.
    Unreachable,
    /// The command may have been done or not.
    UnknownOutcome,
    /// A setting or an argument is not allowed.
    Config,
    /// The user, the password or the user's permissions were refused.
    Denied,
    /// The key holds something that is not a lock of this kind.
    WrongType,
    /// Another thread ended the wait, or closed the client.
    Cancelled,
    /// Every connection of the pool was in use.
    PoolExhausted,
    /// The server or the client refused the call for another reason. Nothing was done.
    Refused,
    /// As many threads of the client wait for the lock as its options allow.
    Crowded,
    /// Too few replicas had the lock in time.
    NotReplicated,
    /// Too few disks had the lock in time.
    NotFsynced,
}

impl ErrorKind {
    /// The table above in code. There is no `_` arm, so that the compiler demands a decision for a
    /// new kind.
    pub(super) fn is_transient(self) -> bool {
        match self {
            ErrorKind::Timeout
            | ErrorKind::Unreachable
            | ErrorKind::UnknownOutcome
            | ErrorKind::PoolExhausted
            | ErrorKind::Crowded
            | ErrorKind::NotReplicated
            | ErrorKind::NotFsynced => true,
            ErrorKind::Lost
            | ErrorKind::NotHeld
            | ErrorKind::Config
            | ErrorKind::Denied
            | ErrorKind::WrongType
            | ErrorKind::Cancelled
            | ErrorKind::Refused => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ErrorKind; 14] = [
        ErrorKind::Timeout,
        ErrorKind::Lost,
        ErrorKind::NotHeld,
        ErrorKind::Unreachable,
        ErrorKind::UnknownOutcome,
        ErrorKind::Config,
        ErrorKind::Denied,
        ErrorKind::WrongType,
        ErrorKind::Cancelled,
        ErrorKind::PoolExhausted,
        ErrorKind::Refused,
        ErrorKind::Crowded,
        ErrorKind::NotReplicated,
        ErrorKind::NotFsynced,
    ];

    fn predicates(error: &Error) -> Vec<&'static str> {
        let all = [
            ("is_timeout", error.is_timeout()),
            ("is_lost", error.is_lost()),
            ("is_not_held", error.is_not_held()),
            ("is_unreachable", error.is_unreachable()),
            ("is_unknown_outcome", error.is_unknown_outcome()),
            ("is_config", error.is_config()),
            ("is_denied", error.is_denied()),
            ("is_wrong_type", error.is_wrong_type()),
            ("is_cancelled", error.is_cancelled()),
            ("is_pool_exhausted", error.is_pool_exhausted()),
            ("is_refused", error.is_refused()),
            ("is_crowded", error.is_crowded()),
            ("is_not_replicated", error.is_not_replicated()),
            ("is_not_fsynced", error.is_not_fsynced()),
        ];
        all.into_iter().filter(|(_, is_true)| *is_true).map(|(name, _)| name).collect()
    }

    #[test]
    fn documented_table_is_what_errors_do() {
        let rows: Vec<&str> = include_str!("kind.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("/// | [`"))
            .collect();
        assert_eq!(rows.len(), ALL.len());
        for (kind, row) in ALL.into_iter().zip(rows) {
            let error = Error::new(kind, "text");
            let links: String = predicates(&error)
                .iter()
                .map(|name| format!("[`{name}`](Error::{name}), "))
                .collect();
            let transient = if error.is_transient() { "yes" } else { "no" };
            let links = links.trim_end_matches(", ");
            let begin = format!("{kind:?}`](ErrorKind::{kind:?}) | {links} | {transient} | ");
            assert!(row.starts_with(&begin), "{row}\n{begin}");
            assert_eq!(error.kind(), kind);
        }
    }

    #[test]
    fn outage_with_an_unknown_outcome_is_both() {
        let error = Error::unknown_outcome("no reply").in_outage();
        assert_eq!(predicates(&error), ["is_unreachable", "is_unknown_outcome"]);
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    }
}

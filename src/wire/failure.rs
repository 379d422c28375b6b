//! Why a command has no reply of its own.

use std::fmt;
use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use redis::Value;
use redis::{ErrorKind, RedisError};

use crate::base::text::{Span, clean};
use crate::wire::error_context::{
    Limit, is_tls_fault, locate, server_of, silence, unreadable, words,
};

/// Why there is no reply, by what may have happened on the server.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Nothing was sent: nothing happened.
    NotSent(NotSentReason),
    /// The server replied with an error: nothing happened.
    Refused(RedisError),
    /// It was sent, wholly or in part, and no reply came: it may have happened.
    Unknown(RedisError),
}

/// What kept a command from being sent.
#[derive(Clone, Debug)]
pub(crate) enum NotSentReason {
    /// No connection could be made.
    Connect(RedisError),
    /// The connection had been closed before, or a command that had to come first got no reply on it.
    Closed(RedisError),
    /// All connections were in use.
    Exhausted(Shortage),
    /// This process is a fork of the one that made the client.
    Forked,
    /// The caller's deadline had passed already.
    DeadlinePassed,
    /// Too few of several servers replied; nothing was left on them.
    NoMajority {
        text: String,
        /// Whether enough would have replied with a free connection to each of them.
        is_exhausted: bool,
    },
    /// No node of a cluster serves the slot at the moment; those that were asked did nothing.
    Unroutable(String),
    /// The server cannot do it, whatever the time.
    InvalidSetting { field: &'static str, wrong: String, expected: &'static str },
}

/// A wait for a connection of a full pool.
#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    pub(crate) waited: Duration,
    /// How many connections the pool may have.
    pub(crate) size: u32,
    pub(crate) address: String,
    /// None of them received a reply in that time.
    pub(crate) is_silent: bool,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { waited, size, address, is_silent } = self;
        let (subject, was, others) = match size {
            1 => ("the only connection".to_owned(), "was", "another call has waited for a reply"),
            _ => (format!("all {size} connections"), "were", "other calls have waited for replies"),
        };
        if *is_silent {
            write!(f, "{others} on {subject} to {address} for {}", Span(*waited))
        } else {
            write!(f, "{subject} to {address} {was} in use for {}", Span(*waited))
        }
    }
}

/// The beginning of a script's refusal if the key holds data of the same type as the lock.
pub(super) const NO_LOCK: &str = "not a lock: ";
/// So the error of a renewal begins that has left its lock to others, behind its code.
const YIELDS: &str = "its lease is over";

/// What a server's refusal means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalKind {
    Denied,
    WrongType,
    /// The server cannot serve now, and may do so soon: its state, and what to do.
    NotYet(&'static str, &'static str),
    /// Another node of a cluster has the key.
    Moved,
    /// The keys are in several slots.
    CrossSlot,
    Other,
}

impl RefusalKind {
    pub(super) fn of(error: &RedisError) -> RefusalKind {
        let text = error.detail().unwrap_or_default();
        // The codes come first. A text is looked at only where a server reports the refusal of a
        // command inside a script under the general code `ERR`.
        match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => RefusalKind::Denied,
            Some("WRONGTYPE") => RefusalKind::WrongType,
            Some("LOADING") => RefusalKind::NotYet("is loading its data", "try again later"),
            Some("BUSY") => RefusalKind::NotYet(
                "is busy with a long script",
                "end it with SCRIPT KILL, or try again later",
            ),
            Some("READONLY" | "UNBLOCKED") => RefusalKind::NotYet(
                "is a replica and takes no writes",
                "connect to its master, or use .sentinels(…)",
            ),
            Some("MISCONF") => {
                RefusalKind::NotYet("cannot save its data to disk", "look into its log")
            }
            Some("NOREPLICAS") => RefusalKind::NotYet(
                "has fewer replicas than it needs to take writes",
                "look at them",
            ),
            Some("MASTERDOWN") => {
                RefusalKind::NotYet("is a replica without its master", "start the master")
            }
            Some("CLUSTERDOWN") => {
                RefusalKind::NotYet("is in a cluster that is down", "look at the other nodes")
            }
            Some("TRYAGAIN") => {
                RefusalKind::NotYet("cannot serve at the moment", "try again later")
            }
            Some("MOVED" | "ASK") => RefusalKind::Moved,
            Some("CROSSSLOT") => RefusalKind::CrossSlot,
            _ if error.kind() == ErrorKind::AuthenticationFailed => RefusalKind::Denied,
            _ if text.contains("ACL failure")
                // Redis 7.0 has these words for a command that the user may not run in a script.
                || text.contains("The user executing the script can't")
                || text.contains("NOPERM") =>
            {
                RefusalKind::Denied
            }
            _ => RefusalKind::Other,
        }
    }
}

impl Failure {
    /// No connection could be made.
    pub(crate) fn connect(error: RedisError) -> Failure {
        Failure::NotSent(NotSentReason::Connect(error))
    }

    /// What the server would refuse, for this reason.
    pub(crate) fn refused_here(text: impl Into<String>) -> Failure {
        let error = (ErrorKind::InvalidClientConfig, "refused", text.into());
        Failure::Refused(RedisError::from(error))
    }

    /// A transaction names a key of another hash slot. A single server refuses that with the same code.
    pub(crate) fn cross_slot() -> Failure {
        let text = "a key is not in the slot of the lock";
        Failure::Refused(redis::make_extension_error("CROSSSLOT".into(), Some(text.into())))
    }

    /// A connection on which nothing comes any more.
    pub(crate) fn silent() -> Failure {
        Failure::Unknown(silence())
    }

    /// The driver's error, if there is one.
    fn error(&self) -> Option<&RedisError> {
        match self {
            Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error))
            | Failure::Refused(error)
            | Failure::Unknown(error) => Some(error),
            Failure::NotSent(_) => None,
        }
    }

    /// The error of a connection attempt that failed for this reason.
    pub(crate) fn into_error(self) -> RedisError {
        self.error().cloned().unwrap_or_else(silence)
    }

    /// Why no connection could be made, if that is what failed.
    pub(crate) fn in_connecting(&self) -> Option<&RedisError> {
        match self {
            Failure::NotSent(NotSentReason::Connect(error)) => Some(error),
            _ => None,
        }
    }

    /// The same failure with the server's address, unless it contains one.
    pub(crate) fn at(mut self, address: &str, limit: Limit) -> Failure {
        // Not `Refused`: the connection that read the refusal has added its address already, and
        // the codes that callers parse must stay as the driver made them.
        if let Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error))
        | Failure::Unknown(error) = &mut self
        {
            *error = locate(error.clone(), address, limit);
        }
        self
    }

    /// The failure of a reply that cannot be read, with the server's address.
    pub(crate) fn unreadable_at(self, address: &str) -> Failure {
        match self {
            Failure::Unknown(error) if error.kind() == ErrorKind::UnexpectedReturnType => {
                Failure::Unknown(unreadable(&error, address))
            }
            other => other,
        }
    }

    /// The refusal for a server's error reply: a code, a blank, and more words.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn refused(reply: &str) -> Failure {
        Failure::Refused(match redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error.into(),
            Ok(_) => RedisError::from((ErrorKind::UnexpectedReturnType, "no error reply")),
            Err(error) => error,
        })
    }

    /// The refusal for a key of another type.
    #[cfg(test)]
    pub(crate) fn wrong_type() -> Failure {
        Failure::refused("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    /// The failure for a port where nobody listens.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn no_connection() -> Failure {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Failure::NotSent(NotSentReason::Connect(refused.into()))
    }

    /// The failure for a connection that was closed by the other end.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn reset() -> Failure {
        Failure::Unknown(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
    }

    /// Whether it may pass soon, so that a caller with time left tries again.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            // A wrong password, an ACL, a certificate: people have to mend those. Servers log each
            // failed log-in, and some lock the user out after several.
            Failure::NotSent(NotSentReason::Connect(error)) => match RefusalKind::of(error) {
                _ if is_tls_fault(error) => false,
                RefusalKind::NotYet(..) => true,
                RefusalKind::Denied | RefusalKind::WrongType => false,
                _ => error.is_io_error() || is_max_clients(error),
            },
            Failure::NotSent(NotSentReason::Forked | NotSentReason::InvalidSetting { .. }) => false,
            Failure::Refused(error) => matches!(RefusalKind::of(error), RefusalKind::NotYet(..)),
            // Among them `DeadlinePassed`: the thread stalled for as long as an exchange may take,
            // which says nothing about the server. An unknown outcome may be repeated under the
            // same owner's value.
            Failure::NotSent(_) | Failure::Unknown(_) => true,
        }
    }

    /// Sends a request, and sends it once more if the connection was lost: a pooled one may have
    /// died unnoticed. Both have the same deadline.
    pub(crate) fn retry_disconnected<T>(
        ask: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Failure::retry_while(Failure::is_disconnect, ask)
    }

    /// The same for a request that only reads. Without a reply nothing was done, so its outcome is never unknown.
    pub(crate) fn retry_read<T>(ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        Failure::retry_disconnected(ask).map_err(Failure::before_sending)
    }

    /// The same, with another condition for the repetition.
    pub(crate) fn retry_while<T>(
        is_worth_it: impl FnOnce(&Failure) -> bool,
        mut ask: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match ask() {
            // If both fail, the first failure is returned where its outcome is unknown. The second
            // may say that nothing was sent; the first request may have run all the same.
            Err(first) if is_worth_it(&first) => match ask() {
                Err(_) if first.is_unknown() => Err(first),
                outcome => outcome,
            },
            outcome => outcome,
        }
    }

    /// Whether the command may have run.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Failure::Unknown(_))
    }

    /// Whether a server has replied, and refused the command or the connection: it can be reached.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Failure::Refused(_) => true,
            Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error)) => {
                error.code().is_some() || is_denial(error) || is_max_clients(error)
            }
            _ => false,
        }
    }

    /// Whether the server denied the command to this user.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Failure::Refused(error) if RefusalKind::of(error) == RefusalKind::Denied)
    }

    /// Whether the server refused the command because it is out of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Failure::Refused(error) if error.code() == Some("OOM"))
    }

    /// Whether the command whose keys were asked for has none.
    pub(crate) fn is_without_keys(&self) -> bool {
        let text =
            |error: &RedisError| error.detail().is_some_and(|it| it.contains("no key arguments"));
        matches!(self, Failure::Refused(error) if text(error))
    }

    /// Whether the server denied the command to this user, or rejected the user.
    pub(crate) fn is_denied_here(&self) -> bool {
        self.error().is_some_and(is_denial)
    }

    /// Whether the server belongs to no cluster.
    pub(crate) fn is_no_cluster(&self) -> bool {
        let text = "cluster support disabled";
        matches!(self, Failure::Refused(error) if error.to_string().contains(text))
    }

    /// Whether the server may have run a part of the script before it refused: the user may not be allowed to run a
    /// later command.
    pub(crate) fn may_have_run_in_part(&self) -> bool {
        // If the key has another type, or the server takes no writes or is out of memory, the first write is refused
        // (rules 16, 41).
        matches!(self, Failure::Refused(error) if matches!(
            RefusalKind::of(error),
            RefusalKind::Denied | RefusalKind::Other
        )) && !self.is_out_of_memory()
    }

    /// The code of the server's refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Failure::Refused(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the server refused the command because it is a replica, or has become one.
    pub(crate) fn is_of_replica(&self) -> bool {
        let Failure::Refused(error) = self else { return false };
        is_of_replica(error.code().unwrap_or_default(), error.detail())
    }

    /// Whether the key has another type.
    pub(crate) fn is_wrong_type(&self) -> bool {
        matches!(self, Failure::Refused(error) if RefusalKind::of(error) == RefusalKind::WrongType)
    }

    /// Whether a script has found data of the same type as the lock.
    pub(crate) fn is_data(&self) -> bool {
        let says_no_lock =
            |error: &RedisError| error.detail().is_some_and(|it| it.starts_with(NO_LOCK));
        matches!(self, Failure::Refused(error) if self.is_wrong_type() && says_no_lock(error))
    }

    /// Whether a renewal has left its lock to those who wait for it (rule 50): the script says so, and no node of a cluster.
    pub(crate) fn is_yield(&self) -> bool {
        let Failure::Refused(error) = self else { return false };
        let says_so = error.detail().is_some_and(|it| it.starts_with(YIELDS));
        error.code() == Some("TRYAGAIN") && says_so
    }

    /// Whether a node of a cluster refused it because another has the key, or is about to have it.
    pub(crate) fn is_redirect(&self) -> bool {
        matches!(self, Failure::Refused(_))
            && matches!(self.code(), Some("MOVED" | "ASK" | "TRYAGAIN"))
    }

    /// Whether the only known cause is that there was too little time.
    pub(crate) fn is_out_of_time(&self) -> bool {
        match self {
            Failure::Unknown(error) | Failure::NotSent(NotSentReason::Connect(error)) => {
                error.is_timeout()
            }
            Failure::NotSent(reason) => matches!(
                reason,
                NotSentReason::Exhausted(_)
                | NotSentReason::DeadlinePassed
                // Some of several servers may only have been too slow.
                | NotSentReason::NoMajority { .. }
                | NotSentReason::Unroutable(_)
            ),
            Failure::Refused(_) => false,
        }
    }

    /// Whether this process did not run until the deadline had passed, which says nothing about any server.
    pub(crate) fn is_held_up(&self) -> bool {
        matches!(self, Failure::NotSent(NotSentReason::DeadlinePassed))
    }

    /// Whether a connection that needs a master leads to a replica.
    pub(crate) fn is_not_a_master(&self) -> bool {
        matches!(self, Failure::Unknown(error) if error.to_string().starts_with(NOT_A_MASTER))
    }

    /// Whether the connection had died before anything was sent on it.
    pub(crate) fn is_closed_before(&self) -> bool {
        // Not after a time-out of a command that came first: another would wait as long.
        matches!(self, Failure::NotSent(NotSentReason::Closed(error)) if !error.is_timeout())
    }

    /// The failure of a request that changes nothing, or comes before the one that does.
    pub(crate) fn before_sending(self) -> Failure {
        match self {
            Failure::Unknown(error) => Failure::NotSent(NotSentReason::Closed(error)),
            other => other,
        }
    }

    /// Whether the connection was closed, rather than silent.
    pub(crate) fn is_disconnect(&self) -> bool {
        match self {
            // A repetition after a time-out would wait as long again, on a server that does not
            // reply. After a closed connection it costs a round trip.
            Failure::Unknown(error) => !error.is_timeout(),
            Failure::NotSent(NotSentReason::Closed(error)) => !error.is_timeout(),
            Failure::NotSent(_) | Failure::Refused(_) => false,
        }
    }
}

/// Whether a server denied something to this user, or rejected the user.
pub(crate) fn is_denial(error: &RedisError) -> bool {
    RefusalKind::of(error) == RefusalKind::Denied
}

/// Whether only a replica, or a server that becomes one, gives this refusal.
pub(crate) fn is_of_replica(code: &str, text: Option<&str>) -> bool {
    // In a transaction or a script of older servers the code is `EXECABORT` or `ERR`, and the cause
    // is in the text. `UNBLOCKED` ends a blocking command, such as `WAIT`, when the master is
    // demoted during it.
    matches!(code, "READONLY" | "MASTERDOWN" | "UNBLOCKED")
        || text.is_some_and(|text| text.contains("READONLY You can't write"))
}

const NOT_A_MASTER: &str = "not a master";

/// The error of a connection that needs a master and leads to a replica.
pub(crate) fn not_a_master(text: &str) -> RedisError {
    // An I/O error, because it passes: sentinels or DNS will name the new master soon.
    RedisError::from((ErrorKind::Io, NOT_A_MASTER, text.to_owned()))
}

/// Whether the server takes no more connections.
pub(crate) fn is_max_clients(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("max number of clients"))
}

/// The text of a log line, without advice.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error))
            | Failure::Unknown(error) => words(error),
            Failure::NotSent(NotSentReason::Exhausted(shortage)) => shortage.to_string(),
            Failure::NotSent(NotSentReason::Forked) => "this process is a fork".to_owned(),
            Failure::NotSent(NotSentReason::DeadlinePassed) => {
                "the deadline passed before a command was sent".to_owned()
            }
            Failure::NotSent(
                NotSentReason::NoMajority { text, .. } | NotSentReason::Unroutable(text),
            ) => text.clone(),
            Failure::NotSent(NotSentReason::InvalidSetting { field, wrong, expected }) => {
                format!("invalid {field}: {wrong}, expected {expected}")
            }
            Failure::Refused(error) => match server_of(error) {
                Some(address) => format!("{address} says {}", words(error)),
                None => words(error),
            },
        };
        // A server wrote part of it. Line ends and escape sequences would forge lines in a log.
        f.write_str(&clean(&text))
    }
}

/// The text of an error, cleaned for a log or another error: a server may have written it.
pub(crate) fn shown(error: &RedisError) -> String {
    clean(&words(error)).into_owned()
}

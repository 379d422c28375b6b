//! What became of a command that brought no answer of its own.

use std::fmt;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::base::error::Error;
use crate::base::sync::Arc;
use crate::base::text::clean;

/// Why there is no answer, told by what may have happened on the server.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Nothing was sent: nothing happened.
    NotSent(Hindrance),
    /// The server answered with an error: nothing happened.
    Refused(RedisError),
    /// It was sent, wholly or in part, and no answer came: it may have happened.
    Unknown(RedisError),
}

/// What kept a command from being sent.
#[derive(Clone, Debug)]
pub(crate) enum Hindrance {
    /// No connection could be made.
    Connect(RedisError),
    /// The connection had been closed before.
    Closed(RedisError),
    /// All connections were in use for this long.
    Exhausted(Duration),
    /// This process is a fork of the one that made the client.
    Forked,
    /// The caller's deadline had passed already.
    Overdue,
    /// Too few of several servers answered; nothing was left on them.
    NoMajority(String),
    /// No node of a cluster does it at the moment; those that were asked did nothing.
    Adrift(String),
    /// It cannot be done here.
    Impossible { field: &'static str, value: String, allowed: &'static str },
}

/// What a server's refusal means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Denied,
    WrongType,
    /// The server cannot serve now, and may soon.
    NotNow,
    /// Another node of a cluster has the key.
    Elsewhere,
    /// Keys of several slots were named together.
    Scattered,
    Other,
}

impl Refusal {
    fn of(error: &RedisError) -> Refusal {
        let text = error.detail().unwrap_or_default();
        match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Refusal::Denied,
            Some("WRONGTYPE") => Refusal::WrongType,
            Some(
                "LOADING" | "BUSY" | "MASTERDOWN" | "READONLY" | "CLUSTERDOWN" | "TRYAGAIN"
                | "NOREPLICAS" | "MISCONF" | "UNBLOCKED",
            ) => Refusal::NotNow,
            Some("MOVED" | "ASK") => Refusal::Elsewhere,
            Some("CROSSSLOT") => Refusal::Scattered,
            _ if error.kind() == ErrorKind::AuthenticationFailed => Refusal::Denied,
            _ if text.contains("ACL failure")
                // Redis 7.0 says so of what a script may not do.
                || text.contains("The user executing the script can't")
                || text.contains("NOPERM") =>
            {
                Refusal::Denied
            }
            _ => Refusal::Other,
        }
    }
}

impl Failure {
    /// A connection on which nothing comes any more.
    pub(crate) fn silent() -> Failure {
        Failure::Unknown(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
    }

    /// What the server says of a key that holds something else.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn wrong_type() -> Failure {
        let text = "Operation against a key holding the wrong kind of value";
        Failure::Refused(redis::make_extension_error("WRONGTYPE".into(), Some(text.into())))
    }

    /// What needs a real server, where there is none.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn only_on_a_server() -> Failure {
        let text = "a transaction of Redis commands needs a real server; this one is a test double";
        Failure::Refused(redis::make_extension_error("UNSUPPORTED".into(), Some(text.into())))
    }

    /// Nobody listens there.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn no_connection() -> Failure {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Failure::NotSent(Hindrance::Connect(refused.into()))
    }

    /// The other end closed the connection.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn reset() -> Failure {
        Failure::Unknown(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
    }

    /// Whether it may be over soon, so that a caller with time left tries again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Failure::NotSent(Hindrance::Connect(error)) if is_tls_fault(error) => false,
            Failure::NotSent(Hindrance::Connect(error)) => match Refusal::of(error) {
                Refusal::NotNow => true,
                Refusal::Denied | Refusal::WrongType => false,
                Refusal::Elsewhere | Refusal::Scattered | Refusal::Other => {
                    error.is_io_error() || is_max_clients(error)
                }
            },
            // A thread that stalled for as long as an exchange may take can ask again.
            Failure::NotSent(
                Hindrance::Exhausted(_)
                | Hindrance::Closed(_)
                | Hindrance::Overdue
                | Hindrance::NoMajority(_)
                | Hindrance::Adrift(_),
            ) => true,
            Failure::NotSent(Hindrance::Forked | Hindrance::Impossible { .. }) => false,
            Failure::Refused(error) => Refusal::of(error) == Refusal::NotNow,
            Failure::Unknown(_) => true,
        }
    }

    /// Asks, and once more where the connection was lost: a pooled one may have died unnoticed. Both have one
    /// deadline. A repetition that fails says nothing of what the first request has done.
    pub(crate) fn repeating<T>(ask: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        Failure::repeating_while(Failure::is_disconnect, ask)
    }

    /// The same, with another rule for which failures are worth a repetition.
    pub(crate) fn repeating_while<T>(
        is_worth_it: impl FnOnce(&Failure) -> bool,
        mut ask: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match ask() {
            Err(first) if is_worth_it(&first) => match ask() {
                Err(_) if first.is_unknown() && !mutated!("repetition-speaks-for-both") => {
                    Err(first)
                }
                outcome => outcome,
            },
            outcome => outcome,
        }
    }

    /// Whether the command may have been done.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Failure::Unknown(_))
    }

    /// Whether the server denied it to this user.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Failure::Refused(error) if Refusal::of(error) == Refusal::Denied)
    }

    /// Whether the server refused it for want of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Failure::Refused(error) if error.code() == Some("OOM"))
    }

    /// Whether the server denied it to this user, or the user itself.
    pub(crate) fn is_denied_here(&self) -> bool {
        match self {
            Failure::NotSent(Hindrance::Connect(error)) => Refusal::of(error) == Refusal::Denied,
            _ => self.is_denied(),
        }
    }

    /// Whether the server belongs to no cluster.
    pub(crate) fn is_no_cluster(&self) -> bool {
        let text = "cluster support disabled";
        matches!(self, Failure::Refused(error) if error.to_string().contains(text))
    }

    /// What the server's refusal begins with.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Failure::Refused(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the server refused it as the replica that it is, or has become.
    pub(crate) fn is_of_replica(&self) -> bool {
        let Failure::Refused(error) = self else { return false };
        is_of_replica(error.code().unwrap_or_default(), error.detail())
    }

    /// Whether the key holds something else.
    pub(crate) fn is_wrong_type(&self) -> bool {
        matches!(self, Failure::Refused(error) if Refusal::of(error) == Refusal::WrongType)
    }

    /// Whether all that is known is that the time did not suffice.
    pub(crate) fn is_for_want_of_time(&self) -> bool {
        match self {
            Failure::Unknown(error) | Failure::NotSent(Hindrance::Connect(error)) => {
                error.is_timeout()
            }
            Failure::NotSent(
                Hindrance::Exhausted(_)
                | Hindrance::Overdue
                // Some of several servers may only have been too slow.
                | Hindrance::NoMajority(_)
                | Hindrance::Adrift(_),
            ) => true,
            Failure::NotSent(
                Hindrance::Closed(_) | Hindrance::Forked | Hindrance::Impossible { .. },
            )
            | Failure::Refused(_) => false,
        }
    }

    /// Whether a connection that has to lead to a master leads to a replica.
    pub(crate) fn is_not_a_master(&self) -> bool {
        matches!(self, Failure::Unknown(error) if error.to_string().starts_with(NOT_A_MASTER))
    }

    /// Whether the connection was lost, rather than silent.
    pub(crate) fn is_disconnect(&self) -> bool {
        match self {
            Failure::Unknown(error) => !error.is_timeout(),
            Failure::NotSent(Hindrance::Closed(_)) => true,
            Failure::NotSent(_) | Failure::Refused(_) => false,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::NotSent(Hindrance::Connect(error) | Hindrance::Closed(error)) => {
                refused_connection(error)
            }
            Failure::NotSent(Hindrance::Exhausted(waited)) => Error::exhausted(format!(
                "no pooled connection came free within {waited:?}; raise max_size or max_wait"
            )),
            Failure::NotSent(Hindrance::Forked) => Error::refused(
                "this process is a fork of one that had built a client, or tried to; fork before that, or \
                 start a new program",
            ),
            Failure::NotSent(Hindrance::Overdue) => {
                Error::timeout("the deadline passed before a command could be sent")
            }
            Failure::NotSent(Hindrance::NoMajority(text) | Hindrance::Adrift(text)) => {
                Error::unreachable(text)
            }
            Failure::NotSent(Hindrance::Impossible { field, value, allowed }) => {
                Error::config(field, value, allowed)
            }
            Failure::Refused(error) => match Refusal::of(&error) {
                Refusal::Denied => Error::denied(format!("Redis denied the command: {error}")),
                Refusal::WrongType => Error::wrong_type(format!(
                    "its key holds something that is not a lock of this kind: {error}"
                )),
                Refusal::NotNow => {
                    Error::unreachable(format!("Redis cannot serve at the moment: {error}"))
                }
                Refusal::Elsewhere => Error::refused(format!(
                    "the server is a node of a Redis Cluster, another of which has the lock: build \
                     the client with .cluster(…) ({error})"
                )),
                Refusal::Scattered => Error::refused(format!(
                    "in a Redis Cluster all keys of a transaction must be in the slot of the lock: \
                     write them with its name, or its hash tag, in braces ({error})"
                )),
                Refusal::Other => Error::refused(format!("Redis refused the command: {error}")),
            }
            .caused_by(error),
            Failure::Unknown(error) => Error::unknown_outcome(format!(
                "the command was sent and no answer came, so it may have been done: {error}"
            ))
            .caused_by(error),
        }
    }
}

fn refused_connection(error: RedisError) -> Error {
    let denied = Refusal::of(&error) == Refusal::Denied;
    if is_tls_fault(&error) {
        let text = format!("a TLS connection to Redis could not be agreed on: {error}");
        return Error::refused(text).caused_by(error);
    }
    if error.kind() == ErrorKind::InvalidClientConfig {
        let allowed = "the name under which the sentinels watch the master";
        let told = error.detail().unwrap_or_default().to_owned();
        return Error::config("url", told, allowed).caused_by(error);
    }
    let text = if denied && error.code() == Some("NOPERM") {
        format!("Redis denied the user what every connection begins with: {error}")
    } else if denied {
        format!("Redis denied the user or the password: {error}")
    } else if is_max_clients(&error) {
        format!("Redis takes no more connections (maxclients): {error}")
    } else if is_hang_up(&error) {
        format!("Redis closed the connection at once (is maxclients reached?): {error}")
    } else if error.is_io_error() || Refusal::of(&error) == Refusal::NotNow {
        format!("Redis cannot be reached: {error}")
    } else {
        return Error::refused(format!("Redis refused the connection: {error}")).caused_by(error);
    };
    if denied { Error::denied(text) } else { Error::unreachable(text) }.caused_by(error)
}

/// Whether the other end was there, and closed the connection.
fn is_hang_up(error: &RedisError) -> bool {
    io_kind(error).is_some() && error.is_connection_dropped() && !error.is_connection_refusal()
}

/// What kind of trouble the operating system told of, if it was that.
pub(crate) fn io_kind(error: &RedisError) -> Option<std::io::ErrorKind> {
    io_error(error).map(std::io::Error::kind)
}

/// Whether a server denied it to this user, or the user itself.
pub(crate) fn is_denial(error: &RedisError) -> bool {
    Refusal::of(error) == Refusal::Denied
}

/// Whether only a replica, or a server that becomes one, refuses something so. What a transaction or a
/// script is refused for may be in the text. A server that is made a replica unblocks who waits there.
pub(crate) fn is_of_replica(code: &str, text: Option<&str>) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN" | "UNBLOCKED")
        || text.is_some_and(|text| text.contains("READONLY You can't write"))
}

const NOT_A_MASTER: &str = "not a master";

/// What a connection fails with that has to lead to a master, and leads to a replica.
pub(crate) fn not_a_master(text: &str) -> RedisError {
    RedisError::from((ErrorKind::Io, NOT_A_MASTER, text.to_owned()))
}

/// Whether the two sides could not agree on a TLS connection.
pub(crate) fn is_tls_fault(error: &RedisError) -> bool {
    #[cfg(feature = "tls")]
    return crate::wire::tls::is_fault(error);
    #[cfg(not(feature = "tls"))]
    {
        let _ = error;
        false
    }
}

/// What the operating system, or TLS above it, told of, if it was that.
pub(crate) fn io_error(error: &RedisError) -> Option<&std::io::Error> {
    // redis-rs keeps its cause behind a counted pointer, which is the type that comes out.
    type Kept = Arc<dyn std::error::Error + Send + Sync>;
    let kept = std::error::Error::source(error)?.downcast_ref::<Kept>()?;
    kept.downcast_ref::<std::io::Error>()
}

/// Whether the server takes no more connections.
pub(crate) fn is_max_clients(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("max number of clients"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotSent(Hindrance::Connect(error)) => {
                write!(f, "no connection: {}", shown(error))
            }
            Failure::NotSent(Hindrance::Closed(error)) => {
                write!(f, "it was closed: {}", shown(error))
            }
            Failure::NotSent(Hindrance::Exhausted(_)) => f.write_str("the pool is exhausted"),
            Failure::NotSent(Hindrance::Forked) => f.write_str("the process was forked"),
            Failure::NotSent(Hindrance::Overdue) => f.write_str("the deadline has passed"),
            Failure::NotSent(Hindrance::NoMajority(text) | Hindrance::Adrift(text)) => {
                f.write_str(text)
            }
            Failure::NotSent(Hindrance::Impossible { field, allowed, .. }) => {
                write!(f, "{field}: {allowed}")
            }
            Failure::Refused(error) => write!(f, "refused: {}", shown(error)),
            Failure::Unknown(error) => write!(f, "no answer: {}", shown(error)),
        }
    }
}

/// What an error says, which may be what a server said, for a log or an error.
pub(crate) fn shown(error: &RedisError) -> String {
    clean(&error.to_string()).into_owned()
}

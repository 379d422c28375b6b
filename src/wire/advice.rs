//! What a caller is told of a failure: what happened, at which server, and what to do about it.
//!
//! `tests/it/error_text/table.md` shows the texts.

use redis::{ErrorKind, RedisError};

use crate::base::error::Error;
use crate::wire::endpoint::OVER_TLS;
use crate::wire::failure::{Failure, Hindrance, Refusal, is_max_clients, is_tls_fault};
use crate::wire::fault::{NO_THREAD, at_which, io_kind, is_lookup, place, subject, words};

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::NotSent(Hindrance::Connect(error) | Hindrance::Closed(error)) => {
                refused_connection(error)
            }
            Failure::NotSent(Hindrance::Exhausted(shortage)) if shortage.is_silent => {
                Error::unreachable(format!("{shortage}; look whether Redis hangs"))
            }
            Failure::NotSent(Hindrance::Exhausted(shortage)) => {
                Error::exhausted(format!("{shortage}; raise max_size or max_wait"))
            }
            Failure::NotSent(Hindrance::Forked) => Error::refused(
                "this process is a fork of one that had built a client; build clients only after the \
                 fork, or start a new program instead of forking",
            ),
            Failure::NotSent(Hindrance::Overdue) => Error::timeout(
                "this thread was held up until its deadline had passed, so no command was sent; try again",
            ),
            Failure::NotSent(Hindrance::NoMajority { text, is_exhausted: true }) => {
                Error::exhausted(format!("{text}; raise max_size or node_timeout"))
            }
            Failure::NotSent(Hindrance::NoMajority { text, .. }) => Error::unreachable(format!(
                "{text}; look whether those servers run and can be reached"
            )),
            Failure::NotSent(Hindrance::Adrift(text)) => {
                Error::unreachable(format!("{text}; look at the cluster, or try again later"))
            }
            Failure::NotSent(Hindrance::Impossible { field, wrong, expected }) => {
                Error::config(field, wrong, expected)
            }
            Failure::Refused(error) => refused_command(error),
            Failure::Unknown(error) => Error::unknown_outcome(format!(
                "{}, so it is not known whether the command ran",
                words(&error)
            ))
            .caused_by(error),
        }
    }
}

fn refused_command(error: RedisError) -> Error {
    let (said, redis) = (words(&error), subject(&error));
    match Refusal::of(&error) {
        Refusal::Denied => Error::denied(format!(
            "{redis} denies this user a command or a key ({said}); add it to the user's ACL"
        )),
        Refusal::WrongType => Error::wrong_type(format!(
            "its key{} holds something that is not a lock of this kind ({said}); choose another \
             name, or delete the key",
            at_which(&error)
        )),
        Refusal::NotNow => not_now(&error, &redis, &said),
        Refusal::Elsewhere => Error::refused(format!(
            "the keys of this lock are on another node of the cluster ({said}); build the client with \
             .cluster(…)"
        )),
        Refusal::Scattered => Error::refused(format!(
            "a key of the transaction is not in the cluster slot of the lock ({said}); put the lock's \
             name, or its hash tag, in braces into the name of each key"
        )),
        Refusal::Other if error.code() == Some("OOM") => Error::refused(format!(
            "{redis} is out of memory ({said}); raise its maxmemory or delete data"
        )),
        Refusal::Other => Error::refused(format!("{redis} refused the command ({said})")),
    }
    .caused_by(error)
}

/// What a server says that may serve soon.
fn not_now(error: &RedisError, redis: &str, said: &str) -> Error {
    let (state, advice) = match error.code() {
        Some("LOADING") => ("is loading its data", "try again later"),
        Some("BUSY") => {
            ("is busy with a long script", "end it with SCRIPT KILL, or try again later")
        }
        Some("READONLY" | "UNBLOCKED") => {
            ("is a replica and takes no writes", "connect to its master, or use .sentinels(…)")
        }
        Some("MISCONF") => ("cannot save its data to disk", "look into its log"),
        Some("NOREPLICAS") => ("has fewer replicas than it needs to take writes", "look at them"),
        Some("MASTERDOWN") => ("is a replica without its master", "start the master"),
        Some("CLUSTERDOWN") => ("is in a cluster that is down", "look at the other nodes"),
        _ => ("cannot serve at the moment", "try again later"),
    };
    Error::unreachable(format!("{redis} {state} ({said}); {advice}"))
}

fn refused_connection(error: RedisError) -> Error {
    let (said, redis) = (words(&error), subject(&error));
    if is_tls_fault(&error) {
        let text = format!(
            "{said}; check that the server speaks TLS at this port, and its certificate against \
             ca_certificate"
        );
        return Error::refused(text).caused_by(error);
    }
    if error.kind() == ErrorKind::InvalidClientConfig {
        let allowed = "the name under which the sentinels watch the master: redis://name";
        return Error::config("url host", said, allowed).caused_by(error);
    }
    let refusal = Refusal::of(&error);
    if refusal == Refusal::Denied {
        let text = match error.code() {
            Some("NOPERM") => {
                format!(
                    "{redis} denies this user what connecting needs ({said}); add it to the user's ACL"
                )
            }
            Some("NOAUTH") => {
                format!(
                    "{redis} wants a password ({said}); write it into the URL: redis://:password@host"
                )
            }
            _ => format!(
                "{redis} refused the user or the password ({said}); correct them in the URL"
            ),
        };
        return Error::denied(text).caused_by(error);
    }
    if refusal == Refusal::NotNow {
        return not_now(&error, &redis, &said).caused_by(error);
    }
    let (text, advice) = if is_max_clients(&error) {
        (
            format!("{redis} takes no more connections ({said})"),
            "raise its maxclients or use fewer clients",
        )
    } else if said == NO_THREAD {
        (said, "raise the limit on threads")
    } else if is_hang_up(&error) {
        (said, "look whether its maxclients is reached, or whether it expects rediss://")
    } else if is_lookup(&error) {
        (said, "check the host in the URL")
    } else if said.contains("sentinel") && error.is_io_error() {
        (said, "look at the sentinels and the master")
    } else if error.is_timeout() && said.contains(OVER_TLS) {
        (said, "look whether the port speaks TLS, or whether Redis hangs")
    } else if error.is_timeout() {
        (said, "look whether Redis hangs, or a firewall drops the packets")
    } else if error.is_io_error() {
        (said, "look whether Redis runs there")
    } else {
        return Error::refused(no_redis(&error, &redis, &said)).caused_by(error);
    };
    Error::unreachable(format!("{text}; {advice}")).caused_by(error)
}

/// What is at the address is not what was expected there.
fn no_redis(error: &RedisError, redis: &str, said: &str) -> String {
    if error.kind() == ErrorKind::Parse {
        let address = place(error).unwrap_or("the server");
        format!(
            "{address} does not speak the Redis protocol; check the port, and whether it expects rediss://"
        )
    } else if said.contains("unknown command") {
        format!(
            "{redis} does not know a command that locks need ({said}); if it is a sentinel, use .sentinels(…)"
        )
    } else if said.contains("DB index is out of range") {
        format!(
            "{redis} has no database of that number ({said}); correct the URL, or raise `databases` in its \
             redis.conf"
        )
    } else {
        format!("{redis} refused the connection ({said})")
    }
}

/// Whether the other end was there, and closed the connection.
fn is_hang_up(error: &RedisError) -> bool {
    io_kind(error).is_some() && error.is_connection_dropped() && !error.is_connection_refusal()
}

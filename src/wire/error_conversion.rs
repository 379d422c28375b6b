//! What a caller is told of a failure: what happened, at which server, and what to do about it.
//!
//! `tests/it/error_text/table.md` shows the texts.

use redis::{ErrorKind, RedisError};

use crate::base::error::Error;
use crate::wire::endpoint::OVER_TLS;
use crate::wire::error_context::{
    NO_THREAD, at_which, io_kind, is_lookup, is_tls_fault, place, subject, words,
};
use crate::wire::failure::{Failure, NotSentReason, RefusalKind, is_max_clients};

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error)) => {
                refused_connection(error)
            }
            Failure::NotSent(NotSentReason::Exhausted(shortage)) if shortage.is_silent => {
                Error::unreachable(format!("{shortage}; look whether Redis hangs"))
            }
            Failure::NotSent(NotSentReason::Exhausted(shortage)) => {
                Error::exhausted(format!("{shortage}; raise max_size or max_wait"))
            }
            Failure::NotSent(NotSentReason::Forked) => Error::refused(
                "this process is a fork of one that had built a client; build clients only after the \
                 fork, or start a new program instead of forking",
            ),
            Failure::NotSent(NotSentReason::DeadlinePassed) => Error::timeout(
                "this thread was held up until its deadline had passed, so no command was sent; try again",
            ),
            Failure::NotSent(NotSentReason::NoMajority { text, is_exhausted: true }) => {
                Error::exhausted(format!("{text}; raise max_size or node_timeout"))
            }
            Failure::NotSent(NotSentReason::NoMajority { text, .. }) => Error::unreachable(
                format!("{text}; look whether those servers run and can be reached"),
            ),
            Failure::NotSent(NotSentReason::Unroutable(text)) => {
                Error::unreachable(format!("{text}; look at the cluster, or try again later"))
            }
            Failure::NotSent(NotSentReason::InvalidSetting { field, wrong, expected }) => {
                Error::config(field, wrong, expected)
            }
            Failure::Refused(error) => refused_command(error),
            Failure::Unknown(error) => Error::unknown_outcome(format!(
                "{}, so it is not known whether the command ran",
                words(&error)
            ))
            .with_source(error),
        }
    }
}

fn refused_command(error: RedisError) -> Error {
    let (said, redis) = (words(&error), subject(&error));
    match RefusalKind::of(&error) {
        RefusalKind::Denied => Error::denied(format!(
            "{redis} denies this user a command or a key ({said}); add it to the user's ACL"
        )),
        RefusalKind::WrongType => Error::wrong_type(format!(
            "its key{} holds something that is not a lock of this kind ({said}); choose another \
             name, or delete the key",
            at_which(&error)
        )),
        RefusalKind::NotYet(state, advice) => {
            Error::unreachable(format!("{redis} {state} ({said}); {advice}"))
        }
        RefusalKind::Moved => Error::refused(format!(
            "the keys of this lock are on another node of the cluster ({said}); build the client with \
             .cluster(…)"
        )),
        RefusalKind::CrossSlot => Error::refused(format!(
            "a key of the transaction is not in the cluster slot of the lock ({said}); put the lock's \
             name, or its hash tag, in braces into the name of each key"
        )),
        RefusalKind::Other if error.code() == Some("OOM") => Error::refused(format!(
            "{redis} is out of memory ({said}); raise its maxmemory or delete data"
        )),
        RefusalKind::Other => Error::refused(format!("{redis} refused the command ({said})")),
    }
    .with_source(error)
}

fn refused_connection(error: RedisError) -> Error {
    let (said, redis) = (words(&error), subject(&error));
    match RefusalKind::of(&error) {
        _ if is_tls_fault(&error) => Error::refused(format!(
            "{said}; check that the server speaks TLS at this port, and its certificate against \
             ca_certificate"
        )),
        _ if error.kind() == ErrorKind::InvalidClientConfig => Error::config(
            "url host",
            said,
            "the name under which the sentinels watch the master: redis://name",
        ),
        RefusalKind::Denied => Error::denied(match error.code() {
            Some("NOPERM") => format!(
                "{redis} denies this user what connecting needs ({said}); add it to the user's ACL"
            ),
            Some("NOAUTH") => format!(
                "{redis} wants a password ({said}); write it into the URL: redis://:password@host"
            ),
            _ => {
                format!(
                    "{redis} refused the user or the password ({said}); correct them in the URL"
                )
            }
        }),
        RefusalKind::NotYet(state, advice) => {
            Error::unreachable(format!("{redis} {state} ({said}); {advice}"))
        }
        _ if is_max_clients(&error) => Error::unreachable(format!(
            "{redis} takes no more connections ({said}); raise its maxclients or use fewer clients"
        )),
        _ if error.is_io_error() => {
            Error::unreachable(format!("{said}; {}", advice_on_io(&error, &said)))
        }
        _ => Error::refused(no_redis(&error, &redis, &said)),
    }
    .with_source(error)
}

/// What to do where the system, or nobody, replied.
fn advice_on_io(error: &RedisError, said: &str) -> &'static str {
    if said == NO_THREAD {
        "raise the limit on threads"
    } else if error.is_connection_dropped()
        && !error.is_connection_refusal()
        && io_kind(error).is_some()
    {
        "look whether its maxclients is reached, or whether it expects rediss://"
    } else if is_lookup(error) {
        "check the host in the URL"
    } else if said.contains("sentinel") {
        "look at the sentinels and the master"
    } else if error.is_timeout() && said.contains(OVER_TLS) {
        "look whether the port speaks TLS, or whether Redis hangs"
    } else if error.is_timeout() {
        "look whether Redis hangs, or a firewall drops the packets"
    } else {
        "look whether Redis runs there"
    }
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

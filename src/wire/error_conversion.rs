//! The public error for a failure: what happened, at which server, and what to do about it.
//!
//! `tests/it/error_text/table.md` shows the texts.

use redis::{ErrorKind, RedisError};

use crate::base::error::Error;
use crate::wire::endpoint::OVER_TLS;
use crate::wire::error_context::{
    NO_THREAD, PROVIDER, at_which, is_closed, is_lookup, is_tls_fault, server_of, subject, words,
};
use crate::wire::failure::{Failure, NO_LOCK, NotSentReason, RefusalKind, is_max_clients};
use crate::wire::server_version::is_too_old;

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::NotSent(NotSentReason::Connect(error) | NotSentReason::Closed(error)) => {
                refused_connection(error)
            }
            // `unreachable`, although the pool was exhausted, too. A larger pool would only hold
            // more threads that wait for a server that does not reply.
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
            Failure::Unknown(error) if error.kind() == ErrorKind::UnexpectedReturnType => {
                Error::unknown_outcome(format!(
                    "{} replied with {}, which is no reply to this command, so it is not known whether the \
                     command ran; look whether a proxy stands before Redis, and connect past it",
                    server_of(&error).unwrap_or("Redis"),
                    words(&error)
                ))
                .with_source(error)
            }
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
        RefusalKind::WrongType => wrong_type(&error, &said),
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
        RefusalKind::Other if is_unknown_command(&said) => Error::refused(unknown_command(&redis, &said)),
        RefusalKind::Other => Error::refused(format!("{redis} refused the command ({said})")),
    }
    .with_source(error)
}

/// The error for a key that is not a lock of the requested kind. If kinds share a type, their scripts say what the key
/// is.
fn wrong_type(error: &RedisError, said: &str) -> Error {
    let at = at_which(error);
    // The key may be in use, so the text does not advise deleting it.
    if let Some((_, what)) = said.split_once(NO_LOCK) {
        return Error::wrong_type(format!("its key{at} is not a lock: {what}"));
    }
    Error::wrong_type(match said.strip_prefix("WRONGTYPE the key is a ") {
        Some(kind) => format!(
            "its key{at} is a {kind} ({said}); use it as a {kind} in all clients, or choose another name"
        ),
        None => format!(
            "its key{at} holds something that is not a lock of this kind ({said}); choose another name, or find out what \
             uses the key"
        ),
    })
}

fn refused_connection(error: RedisError) -> Error {
    let (said, redis) = (words(&error), subject(&error));
    // The order matters. A TLS fault is an I/O error to the driver, and an unknown name of a master
    // is reported like a bad setting: the arms below would advise to look whether Redis runs there.
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
        _ if is_too_old(&error) => Error::refused(said),
        // Redis has three codes for three causes with three remedies. The last arm also gets
        // refusals without a code: servers that do not know `AUTH` or `HELLO` as they were sent.
        RefusalKind::Denied => Error::denied(match error.code() {
            Some("NOPERM") => format!(
                "{redis} denies this user what connecting needs ({said}); add it to the user's ACL"
            ),
            Some("NOAUTH") => {
                // The subject of a Unix socket has its path.
                let form = match redis.contains(" at /") {
                    true => "unix:///path?pass=password",
                    false => "redis://:password@host",
                };
                format!("{redis} wants a password ({said}); write it into the URL: {form}")
            }
            _ => {
                format!(
                    "{redis} refused the user or the password ({said}); correct them in the URL, or where they \
                     are provided"
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

/// What to do if the operating system reported the error, or nobody replied.
fn advice_on_io(error: &RedisError, said: &str) -> &'static str {
    if said == NO_THREAD {
        "raise the limit on threads"
    } else if said.starts_with(PROVIDER) {
        "look why, or try again later"
    // A server at its `maxclients` may close the connection before its refusal is read, and a TLS
    // port closes one that speaks plain text.
    } else if is_closed(error) {
        "look whether its maxclients is reached, whether it is a proxy that does not know CLIENT or TIME, or whether it \
         expects rediss://"
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

fn is_unknown_command(said: &str) -> bool {
    // The second is that of a script.
    said.contains("unknown command") || said.contains("Unknown Redis command")
}

/// The text for a command that the server does not have: an ACL would have another one.
fn unknown_command(redis: &str, said: &str) -> String {
    format!(
        "{redis} does not know a command that locks need ({said}); if it is a sentinel, use .sentinels(…), if it \
         is a proxy, connect past it, and if the command was renamed, give it its name back"
    )
}

/// The text for a server that is not the Redis that was expected at this address.
fn no_redis(error: &RedisError, redis: &str, said: &str) -> String {
    // The driver has no kinds for these, so their texts decide. A server with another wording gets
    // the last text, which is less helpful and still right.
    if error.kind() == ErrorKind::Parse {
        let address = server_of(error).unwrap_or("the server");
        format!(
            "{address} does not speak the Redis protocol; check the port, and whether it expects rediss://"
        )
    } else if is_unknown_command(said) {
        unknown_command(redis, said)
    } else if said.contains("DB index is out of range") {
        format!(
            "{redis} has no database of that number ({said}); correct the URL, or raise `databases` in its \
             redis.conf"
        )
    } else {
        format!("{redis} refused the connection ({said})")
    }
}

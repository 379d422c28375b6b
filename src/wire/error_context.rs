//! The text of the driver's errors, with the address of the server.
//!
//! The driver's error has no field for an address, so the address goes into its text. An error of
//! the operating system is wrapped in [`Located`], which keeps the kind. A server's reply gets the
//! address after its text, and keeps its code.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::base::sync::Arc;
use crate::base::text::{Span, clean};

/// The length of a wait, and the setting that it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) span: Duration,
    /// `None` if it was the caller's deadline.
    pub(crate) setting: Option<&'static str>,
}

impl From<Duration> for Limit {
    /// A wait by a caller's deadline.
    fn from(span: Duration) -> Limit {
        Limit { span, setting: None }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting {
            Some(setting) => write!(f, "{setting} ({})", Span(self.span)),
            None => write!(f, "{}", Span(self.span)),
        }
    }
}

/// An error of the operating system, or of TLS, with the server's address.
#[derive(Debug)]
struct Located {
    text: String,
    source: RedisError,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Located {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The codes of replies that callers parse by the driver's methods, which read their whole text.
const READ_BY_TYPE: [&str; 4] = ["MOVED", "ASK", "NOSCRIPT", "EXECABORT"];
const BEGIN: &str = " (at ";

/// Adds the server's address and the length of the wait to an error, unless it contains an address.
pub(crate) fn locate(error: RedisError, address: &str, limit: Limit) -> RedisError {
    // An error may pass through several layers, each of which knows an address. The first is the
    // right one: that of the node which replied, and not that of the master which the client looked
    // for.
    if located(&error).is_some() || server_of(&error).is_some() {
        return error;
    }
    if let Some(io) = io_error(&error) {
        // The kind stays outside, because the driver's `is_timeout` and the like look at nothing
        // else.
        let (kind, text) = (io.kind(), text_of(io, address, limit));
        return io::Error::new(kind, Located { text, source: error }).into();
    }

    let detail = |text: &str| format!("{text}{BEGIN}{address})");
    let said = without_words_of_the_command(error.detail().unwrap_or_default());
    match (error.code(), error.kind()) {
        (Some(code), _) if READ_BY_TYPE.contains(&code) => error,
        (Some(code), _) => redis::make_extension_error(code.to_owned(), Some(detail(said))),
        (None, kind @ ErrorKind::AuthenticationFailed) => {
            let text = "the server does not know AUTH or HELLO as they were sent";
            RedisError::from((kind, "no log-in", detail(text)))
        }
        (None, kind @ ErrorKind::Parse) => {
            RedisError::from((kind, "no reply of Redis", detail(said)))
        }
        // Errors without a code that are left are those of the search by sentinels, which contain
        // addresses.
        (None, _) => error,
    }
}

/// The text of an error if the connecting thread cannot be started.
pub(crate) const NO_THREAD: &str = "no thread that connects could be started";

/// The error if that thread cannot be started.
pub(crate) fn no_thread() -> RedisError {
    io::Error::other(NO_THREAD).into()
}

/// The beginning of the error text if the user's provider failed.
pub(crate) const PROVIDER: &str = "the provider of ";

/// The error of a connection if the user's provider of this failed: with the provider's own error, or with `None` if
/// it panicked.
pub(crate) fn not_provided(
    what: &str,
    error: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> RedisError {
    // An I/O error, because it passes: a store of secrets comes back, as a server does.
    let text = match &error {
        Some(error) => format!("{PROVIDER}{what} failed: {}", clean(&error.to_string())),
        None => format!("{PROVIDER}{what} panicked"),
    };
    let source = error.map_or_else(|| io::ErrorKind::Other.into(), io::Error::other).into();
    io::Error::other(Located { text, source }).into()
}

/// The error of a caller whose time ended before a connection was made. It says what the caller waited for last, and
/// for how long.
pub(crate) fn connecting(awaited: &Awaited, waited: Duration) -> RedisError {
    let text = match awaited {
        Awaited::Server(address) => {
            format!("gave up connecting to {address} after {}", Span(waited))
        }
        Awaited::Others(what) => format!("gave up after {}: {what}", Span(waited)),
    };
    io::Error::new(io::ErrorKind::TimedOut, Located { text, source: silence() }).into()
}

/// The server or servers that an attempt to connect waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The server at this address.
    Server(String),
    /// Other servers that must reply first, described in a sentence.
    Others(String),
}

/// The error of a connection without a reply in time.
pub(crate) fn silence() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

fn text_of(error: &io::Error, address: &str, limit: Limit) -> String {
    match error.kind() {
        // Linux ends a read at a socket's time-out with `EAGAIN`, which is `WouldBlock`.
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("no reply from {address} within {limit}")
        }
        io::ErrorKind::ConnectionRefused => format!("{address} refused the connection"),
        io::ErrorKind::NotFound => format!("there is no socket {address}"),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe => format!("{address} closed the connection"),
        // The standard library has no kind for it, only this text.
        _ if error.to_string().starts_with(LOOKUP) => {
            format!("the host of {address} has no known address ({error})")
        }
        _ => format!("no connection to {address} ({error})"),
    }
}

const LOOKUP: &str = "failed to lookup address";

/// Whether the name of the host could not be resolved.
pub(crate) fn is_lookup(error: &RedisError) -> bool {
    io_error(error).is_some_and(|error| error.to_string().starts_with(LOOKUP))
}

fn located(error: &RedisError) -> Option<&Located> {
    outer_io_error(error)?.get_ref()?.downcast_ref()
}

/// The address in an error that a server's reply became, if it has one.
pub(crate) fn server_of(error: &RedisError) -> Option<&str> {
    // From the end: the server's own text may contain the same words.
    error.detail()?.rsplit_once(BEGIN)?.1.strip_suffix(')')
}

/// That address as a part of a sentence.
pub(crate) fn at_which(error: &RedisError) -> String {
    server_of(error).map_or(String::new(), |address| format!(" at {address}"))
}

/// The server as the subject of a sentence.
pub(crate) fn subject(error: &RedisError) -> String {
    match server_of(error) {
        Some(sentinel) if sentinel.starts_with(SENTINEL) => sentinel.to_owned(),
        _ => format!("Redis{}", at_which(error)),
    }
}

const SENTINEL: &str = "the sentinel at ";

/// The refusal of a sentinel, marked so that it does not look like the master's.
pub(crate) fn by_sentinel(error: &RedisError, address: &str) -> RedisError {
    // Only a failed log-in has no code here, see `raw_connection`.
    let code = error.code().unwrap_or("WRONGPASS").to_owned();
    let said = without_server(error.detail().unwrap_or_default());
    redis::make_extension_error(code, Some(format!("{said}{BEGIN}{SENTINEL}{address})")))
}

/// The error of a reply that does not fit its command.
pub(crate) const UNREADABLE: &str = "the reply does not have the form of one to this command";

/// The error of a reply that cannot be read, with the server's address.
pub(crate) fn unreadable(error: &RedisError, address: &str) -> RedisError {
    let what = without_server(error.detail().unwrap_or("something else"));
    let detail = format!("{what}{BEGIN}{address})");
    RedisError::from((ErrorKind::UnexpectedReturnType, UNREADABLE, detail))
}

/// A server's text without the words of the command that it repeats: they are keys and values, and belong in no log.
fn without_words_of_the_command(said: &str) -> &str {
    const REPEATED: [&str; 2] = [", with args beginning with:", ", with args:"];
    let end = REPEATED.iter().filter_map(|begin| said.find(begin)).min();
    end.map_or(said, |end| &said[..end])
}

fn without_server(detail: &str) -> &str {
    detail.rsplit_once(BEGIN).map_or(detail, |(said, _)| said)
}

/// The text of an error, without the address that was added to a reply.
pub(crate) fn words(error: &RedisError) -> String {
    let Some(detail) = error.detail().map(without_server) else { return error.to_string() };
    match error.code() {
        Some(code) => format!("{code} {detail}").trim_end().trim_end_matches('.').to_owned(),
        None => detail.to_owned(),
    }
}

/// The kind of an error of the operating system, if it is one.
pub(crate) fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    io_error(error).map(io::Error::kind)
}

/// Whether the other end has closed the connection. `io_kind` leaves out the errors that this crate makes of what sentinels
/// report: the driver counts those as dropped connections, too.
pub(crate) fn is_closed(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal() && io_kind(error).is_some()
}

/// The error of the operating system, or of TLS, if it is one.
pub(crate) fn io_error(error: &RedisError) -> Option<&io::Error> {
    located(error).map_or_else(|| outer_io_error(error), |located| io_error(&located.source))
}

/// Whether the two sides could not agree on a TLS connection.
#[cfg(feature = "tls")]
pub(crate) use crate::wire::tls::is_fault as is_tls_fault;

/// Without TLS there are no faults of it.
#[cfg(not(feature = "tls"))]
pub(crate) fn is_tls_fault(_: &RedisError) -> bool {
    false
}

fn outer_io_error(error: &RedisError) -> Option<&io::Error> {
    // redis-rs keeps the cause in an `Arc`, and `source` returns that `Arc`, not the error in it. A
    // direct downcast to `io::Error` compiles and never succeeds.
    type Kept = Arc<dyn std::error::Error + Send + Sync>;
    let kept = std::error::Error::source(error)?.downcast_ref::<Kept>()?;
    kept.downcast_ref::<io::Error>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { span: Duration::from_secs(1), setting: Some("command_timeout") };

    fn reply(line: &str) -> RedisError {
        match redis::parse_redis_value(line.as_bytes()) {
            Ok(redis::Value::ServerError(error)) => error.into(),
            other => panic!("no error: {other:?}"),
        }
    }

    #[test]
    fn silent_server_error_names_address_and_timeout() {
        let error = RedisError::from(io::Error::from_raw_os_error(11));
        let error = locate(error, "10.0.0.7:6379", LIMIT);
        assert!(error.is_timeout() && error.is_io_error());
        assert_eq!(words(&error), "no reply from 10.0.0.7:6379 within command_timeout (1s)");
        // The first server that is named stays.
        let again = locate(error, "10.0.0.8:6379", LIMIT);
        assert!(words(&again).contains("10.0.0.7"), "{again}");
    }

    #[test]
    fn reply_keeps_its_code_beside_the_address() {
        let error = reply("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
        let error = locate(error, "10.0.0.7:6379", LIMIT);
        assert_eq!(error.code(), Some("WRONGPASS"));
        assert_eq!(server_of(&error), Some("10.0.0.7:6379"));
        assert_eq!(words(&error), "WRONGPASS invalid username-password pair or user is disabled");
    }

    #[test]
    fn redirection_stays_readable_for_the_driver() {
        let error = locate(reply("-MOVED 7 10.0.0.8:6379\r\n"), "10.0.0.7:6379", LIMIT);
        assert_eq!(error.redirect_node(), Some(("10.0.0.8:6379", 7)));
    }
}

//! The address of a server, checked before any I/O.

mod info;

use std::borrow::Cow;
use std::fmt;

pub(crate) use redis::ConnectionInfo;
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError};

use crate::base::credentials::{Credentials, CredentialsProvider};
use crate::base::error::{Error, Result};
use crate::base::panic::catch_panic;
use crate::base::sync::Arc;
use crate::base::text::clean;
use crate::wire::error_context::not_provided;
#[cfg(feature = "tls")]
use crate::wire::tls::TlsSource;

const SCHEMES: &str = if cfg!(feature = "tls") {
    "redis://, rediss://, valkey://, valkeys://, unix://, redis+unix:// or valkey+unix://"
} else {
    "redis://, valkey://, unix://, redis+unix:// or valkey+unix://"
};
const FORM: &str = "redis://[user][:password@]host[:port][/database]";
const DATABASES: &str = "a number from 0";
const LOG_IN: &str = "a password with it; a user with `nopass` takes any";
/// At most this many characters of a label are in the name of a connection.
const LONGEST_LABEL: usize = 128;

/// A server as a user gives it.
#[derive(Clone)]
pub(crate) enum GivenServer {
    Url(String),
    Info(Box<ConnectionInfo>),
}

impl GivenServer {
    pub(crate) fn url(url: impl AsRef<str>) -> GivenServer {
        GivenServer::Url(url.as_ref().to_owned())
    }

    /// The endpoint, checked. No error repeats the user or the password.
    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        match self {
            GivenServer::Url(url) => parse(url),
            GivenServer::Info(info) => {
                let (info, secure) = info::read(info)?;
                Endpoint::new(info, secure, ["info db", "info username"])
            }
        }
    }
}

/// The address of a server, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Always the address of a plain socket; `secure` says whether TLS is spoken over it.
    info: ConnectionInfo,
    secure: bool,
    /// The name of connections there.
    name: Option<Arc<str>>,
    /// Asked for the user and the password at each connection.
    credentials: Option<CredentialsProvider>,
    /// Maps an address that a server announces to the one to connect to.
    mapper: Option<AddressMapper>,
    /// The address that the server announced, if this endpoint has another one.
    announced: Option<Arc<str>>,
    /// CA certificates to trust, and the client certificate.
    #[cfg(feature = "tls")]
    tls: Option<TlsSource>,
}

/// Maps an announced host and port to those to connect to.
pub(crate) type AddressMapper = Arc<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

impl Endpoint {
    /// Checks what a URL and the driver's own description have in common. The fields are the names of the
    /// database and the user in errors.
    fn new(info: ConnectionInfo, secure: bool, [db, user]: [&str; 2]) -> Result<Endpoint> {
        let settings = info.redis_settings();
        // Checked because the driver takes an `i64` and passes it on: the server's refusal would come
        // at the first connection, without the name of the setting.
        if !(0..=i64::from(i32::MAX)).contains(&settings.db()) {
            return Err(Error::config(db, settings.db(), DATABASES));
        }
        // `AUTH` needs both. Without a password nobody would log in, and the locks would be those of
        // the default user.
        if settings.username().is_some() && settings.password().is_none() {
            return Err(Error::config(user, "no password", LOG_IN));
        }
        Ok(Endpoint {
            info,
            secure,
            name: None,
            credentials: None,
            mapper: None,
            announced: None,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    pub(crate) fn addr(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    pub(crate) fn redis_settings(&self) -> &RedisConnectionInfo {
        self.info.redis_settings()
    }

    pub(crate) fn set_redis_settings(mut self, settings: RedisConnectionInfo) -> Endpoint {
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Another server, announced at this address, with the settings of this one. Runs the user's address
    /// mapper, if there is one.
    pub(crate) fn at(&self, host: String, port: u16) -> Endpoint {
        let Some(mapper) = &self.mapper else { return self.reached_at(host, port) };
        let mapped = catch_panic("the mapper of addresses", || mapper(&host, port));
        // After a panic, which is logged, the address may still be the right one.
        let (to_host, to_port) = mapped.unwrap_or_else(|| (host.clone(), port));
        let is_same = (&to_host, to_port) == (&host, port);
        let mut other = self.reached_at(to_host, to_port);
        other.announced = (!is_same).then(|| place(&ConnectionAddr::Tcp(host, port)).into());
        other
    }

    /// Another server, at exactly this address, with the settings of this one.
    pub(crate) fn reached_at(&self, host: String, port: u16) -> Endpoint {
        // The settings stay: a master that sentinels name has the user, the database and the TLS of
        // the URL.
        let mut other = self.clone();
        other.info = other.info.set_addr(ConnectionAddr::Tcp(host, port));
        other.announced = None;
        other
    }

    /// Sets the mapper of the addresses that servers announce.
    pub(crate) fn set_mapper(mut self, mapper: AddressMapper) -> Endpoint {
        self.mapper = Some(mapper);
        self
    }

    /// What connections are called there, for people who look at the server.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Names connections after their client's label. A server takes printable ASCII without spaces alone.
    pub(crate) fn set_name(mut self, label: &str) -> Endpoint {
        let printable = |letter| if matches!(letter, '!'..='~') { letter } else { '_' };
        let label: String = label.chars().take(LONGEST_LABEL).map(printable).collect();
        self.name = Some(format!("leasehold:{label}").into());
        self
    }

    pub(crate) fn set_credentials(mut self, provider: CredentialsProvider) -> Endpoint {
        self.credentials = Some(provider);
        self
    }

    /// The endpoint with the user and the password of the moment. Runs the user's code, if that provides them.
    pub(super) fn with_credentials(&self) -> std::result::Result<Cow<'_, Endpoint>, RedisError> {
        let Some(provider) = &self.credentials else { return Ok(Cow::Borrowed(self)) };
        let provided = catch_panic("the provider of credentials", || provider());
        let Credentials { user, password } = provided
            .ok_or_else(|| not_provided("credentials", None))?
            .map_err(|error| not_provided("credentials", Some(error)))?;
        let settings = self.redis_settings().clone().set_username(user).set_password(password);
        Ok(Cow::Owned(self.clone().set_redis_settings(settings)))
    }

    /// Whether the server speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls_source(&self) -> Option<&TlsSource> {
        self.tls.as_ref()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn set_tls_source(mut self, source: TlsSource) -> Endpoint {
        self.tls = Some(source);
        self
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may have a password.
        write!(f, "{}", shown(self))
    }
}

/// Reads a URL. No error repeats its user information.
pub(crate) fn parse(url: &str) -> Result<Endpoint> {
    if url.is_empty() {
        return Err(Error::config("url", "empty", FORM));
    }
    // The parts are checked here although the driver parses the URL below: its errors name no
    // allowed values, and it skips or repairs much that a user should know of.
    let Some((given, rest)) = url.split_once("://") else {
        return Err(Error::config("url scheme", "missing", SCHEMES));
    };
    // A scheme in capitals is the same one (RFC 3986).
    let scheme = given.to_ascii_lowercase();
    match scheme.as_str() {
        "redis" | "valkey" => check_tcp(rest)?,
        "rediss" | "valkeys" if cfg!(feature = "tls") => check_tcp(rest)?,
        "unix" | "redis+unix" | "valkey+unix" => check_unix(rest)?,
        "rediss" | "valkeys" => {
            return Err(Error::config(
                "url scheme",
                format_args!("{scheme}:// needs leasehold's feature `tls`, which is off"),
                "the feature turned on in Cargo.toml, or redis://",
            ));
        }
        _ => {
            return Err(Error::config(
                "url scheme",
                format_args!(
                    "unknown \"{}\"",
                    given.chars().take(32).collect::<String>().escape_debug()
                ),
                SCHEMES,
            ));
        }
    }

    // The driver never sees the secure scheme. It would want its own TLS feature for it, and would
    // obey `#insecure`, which turns the checks of certificates off.
    let secure = matches!(scheme.as_str(), "rediss" | "valkeys");
    let plain = if secure { format!("redis://{rest}") } else { format!("{scheme}://{rest}") };
    let info = plain.into_connection_info().map_err(|error| {
        // The driver's text may be shown: it names the wrong part, and never quotes the URL with
        // its password.
        Error::config("url", format_args!("{scheme}://… is not readable ({error})"), FORM)
    })?;
    Endpoint::new(info, secure, ["url database", "url user"])
}

fn check_tcp(rest: &str) -> Result<()> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // An unescaped `/` in a password ends the authority too early. Nothing of the URL is shown,
    // because what looks like a host or a path here is part of the password.
    if tail.contains('@') {
        return Err(Error::config(
            "url user or password",
            "an unescaped character",
            "%2F for /, %3F for ?, %23 for #, %40 for @, %3A for :",
        ));
    }

    // The last `@`, as in the driver's parser: a password may contain one.
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let (host, port) = match address.rsplit_once(':') {
        // In `[::1]` the last colon belongs to the address.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (address, None),
    };
    if host.is_empty() {
        return Err(Error::config("url host", "empty", FORM));
    }

    if let Some(port) = port
        && !port.parse::<u16>().is_ok_and(|port| port > 0)
    {
        // In `redis://user:secret` the host is missing, and this is the password. So only what can
        // be a port is shown.
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let wrong = match port.len() {
            _ if !is_number => "not a number",
            ..=5 => port,
            _ => "too large",
        };
        return Err(Error::config("url port", wrong, "1 to 65535"));
    }

    let path = tail.strip_prefix('/').unwrap_or("");
    let database = path.split(['?', '#']).next().unwrap_or("").trim_matches('/');
    if !database.is_empty() && database.parse::<i64>().is_err() {
        return Err(Error::config(
            "url database",
            format_args!("\"{}\"", database.escape_debug()),
            DATABASES,
        ));
    }
    check_tail(tail, false)
}

fn check_unix(rest: &str) -> Result<()> {
    if !rest.starts_with('/') {
        let allowed = "an absolute one: unix:///path/to/socket";
        if rest.starts_with("localhost/") {
            return Err(Error::config(
                "url host",
                "localhost before the path of a socket",
                allowed,
            ));
        }
        return Err(Error::config("url path", "relative", allowed));
    }
    check_tail(rest, true)
}

/// Whether the driver reads a parameter. It silently skips all others, so two services with
/// different values of such a parameter would never exclude each other.
fn is_known(parameter: &str, is_unix: bool) -> bool {
    parameter == "protocol" || is_unix && matches!(parameter, "db" | "user" | "pass")
}

/// What to write instead of an unknown parameter, by its name.
fn instead(parameter: &str, is_unix: bool) -> String {
    let known = if is_unix {
        "no parameter but db, user, pass and protocol"
    } else {
        "no parameter but protocol=resp2 or protocol=resp3"
    };
    match parameter {
        "db" | "database" if !is_unix => "the database as a path, redis://host:port/2".to_owned(),
        "user" | "username" | "pass" | "password" | "auth" | "token" if !is_unix => {
            "the user and the password before the host, redis://user:password@host:port".to_owned()
        }
        name if name.contains("timeout") => {
            format!("{known}; time-outs are set on the client's builder")
        }
        _ => known.to_owned(),
    }
}

/// Checks the part after the address: no parameter that the driver skips, none twice, no fragment.
fn check_tail(tail: &str, is_unix: bool) -> Result<()> {
    if let Some((_, fragment)) = tail.split_once('#') {
        // In the URL of a Unix socket the password is a parameter, and an unescaped `#` in it
        // begins the fragment.
        let is_shown = !is_unix && is_plain(fragment);
        return Err(Error::config(
            "url fragment",
            if is_shown { format!("#{fragment}") } else { "not shown here".to_owned() },
            "no #fragment; write # as %23, and note that certificate checks cannot be turned off",
        ));
    }
    let Some((_, query)) = tail.split_once('?') else { return Ok(()) };
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, has_value) =
            pair.split_once('=').map_or((pair, false), |(name, _)| (name, true));
        // An unescaped `&` in a password makes its end look like a parameter. So one without a
        // value, or after `pass`, is not shown.
        let is_shown = has_value && !seen.contains(&"pass") && is_plain(name);
        let shown =
            if is_shown { format!("\"{name}\"") } else { "one that is not shown here".to_owned() };
        let wrong = if seen.contains(&name) {
            format!("{shown} is there twice")
        } else if !is_known(name, is_unix) {
            format!("unknown {shown}")
        } else if !has_value {
            format!("{shown} has no value")
        } else {
            seen.push(name);
            continue;
        };
        return Err(Error::config("url parameter", wrong, instead(name, is_unix)));
    }
    Ok(())
}

/// Whether a text is short and harmless enough to be shown in an error.
fn is_plain(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    text.len() <= 32 && text.bytes().all(is_word)
}

/// The mark after the address of a server over TLS, in errors.
pub(crate) const OVER_TLS: &str = "(TLS)";

/// The address for errors: host and port, or the path of a socket, and the announced address if it differs.
pub(crate) fn address(endpoint: &Endpoint) -> String {
    // A sentinel or a node of a cluster may have announced it, and it is shown in errors and logs.
    let mut address = clean(&place(endpoint.addr())).into_owned();
    // The logs of servers and sentinels have this one.
    if let Some(announced) = &endpoint.announced {
        address += &format!(" (announced as {})", clean(announced));
    }
    if endpoint.is_secure() { format!("{address} {OVER_TLS}") } else { address }
}

/// Host and port, or the path of a socket. An IPv6 address is in brackets, as in a URL.
fn place(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
        other => other.to_string(),
    }
}

/// The address for display, with the database unless it is 0: no user, no password.
pub(crate) fn shown(endpoint: &Endpoint) -> String {
    let database = endpoint.redis_settings().db();
    let with = |mark: &str| if database == 0 { String::new() } else { format!("{mark}{database}") };
    let text = match endpoint.addr() {
        ConnectionAddr::Unix(path) => format!("unix://{}{}", path.display(), with("?db=")),
        other if endpoint.is_secure() => format!("rediss://{}{}", place(other), with("/")),
        other => format!("redis://{}{}", place(other), with("/")),
    };
    clean(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_somebody_announces_is_shown_escaped() {
        let near = parse("redis://localhost").unwrap();
        let mapper: AddressMapper = Arc::new(|_: &str, port: u16| ("a\u{1b}[2J".to_owned(), port));
        let far = near.clone().set_mapper(mapper).at("b\r\n".to_owned(), 1);
        assert_eq!(address(&far), r"a\u{1b}[2J:1 (announced as b\r\n:1)");
        assert_eq!(shown(&near.at("c\u{202e}".to_owned(), 2)), r"redis://c\u{202e}:2");
    }

    #[test]
    fn bad_url_error_names_part_value_and_what_is_allowed() {
        for (url, parts) in [
            ("", ["url", "empty", "redis://"]),
            ("localhost:6379", ["url scheme", "missing", "unix://"]),
            ("http://localhost", ["scheme", "http", "redis://"]),
            ("redis://localhost:99999", ["port", "99999", "65535"]),
            ("redis://localhost:100000", ["port", "too large", "65535"]),
            ("redis://localhost:0", ["port", "0", "65535"]),
            ("redis://localhost:x", ["port", "not a number", "65535"]),
            ("redis://", ["host", "empty", "host[:port]"]),
            ("redis://:6379", ["host", "empty", "host[:port]"]),
            ("redis://localhost/-1", ["database", "-1", "a number from 0"]),
            ("redis://localhost/one", ["database", "one", "a number from 0"]),
            ("unix://relative", ["path", "relative", "unix:///path"]),
            ("unix://localhost/socket", ["url host", "localhost before", "unix:///path"]),
            ("unix:///socket?db=-1", ["database", "-1", "a number from 0"]),
            ("redis://localhost?db=2", ["parameter", "db", "redis://host:port/2"]),
            ("redis://localhost/?database=2", ["parameter", "database", "redis://host:port/2"]),
            ("redis://localhost?pass=s3cret", ["parameter", "pass", "user:password@"]),
            ("redis://localhost?timeout=5", ["parameter", "timeout", "no parameter but"]),
            (
                "redis://localhost?protocol=2&protocol=3",
                ["\"protocol\" is there twice", "no parameter but", "resp3"],
            ),
            ("redis://localhost?protocol", ["parameter", "not shown", "protocol=resp3"]),
            ("redis://localhost/1#two", ["fragment", "#two", "%23"]),
            ("unix:///socket?pass=a&b=c", ["parameter", "not shown", "db, user, pass"]),
            ("unix:///socket?database=1", ["parameter", "database", "db, user, pass"]),
            ("unix:///socket?db=1&db=2", ["parameter", "\"db\" is there twice", "db, user"]),
            ("unix:///socket#a", ["fragment", "not shown", "%23"]),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.is_config(), "{url}");
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "{url}: {text}");
            }
        }
    }

    #[test]
    fn password_is_hidden_and_unescaped_characters_explained() {
        for url in ["redis://:s3/cret@host", "redis://u:s3#cret@host:1", "redis://u:s3?cret@host"] {
            let error = parse(url).expect_err(url);
            let text = format!("{error} {error:?}");
            assert!(text.contains("password") && text.contains("%2F"), "{text}");
            assert!(!text.contains("s3") && !text.contains("cret"), "{text}");
        }
        let text = parse("redis://user:123456").unwrap_err().to_string();
        assert!(!text.contains("123456"), "{text}");
        for url in ["redis://:s3:cret@host", "redis://:s3@cret@host", "redis://u:s3cret@host:70000"]
        {
            let shown = match parse(url) {
                Ok(info) => format!("{info:?} {}", shown(&info)),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("s3") && !shown.contains("cret@"), "{url}: {shown}");
        }
    }

    #[test]
    fn name_of_a_connection_is_printable_ascii() {
        for (label, name) in [
            ("", "leasehold:"),
            ("billing", "leasehold:billing"),
            ("a b\r\nQUIT\0", "leasehold:a_b__QUIT_"),
            ("Zürich~!", "leasehold:Z_rich~!"),
            (&"x".repeat(1_000), &format!("leasehold:{}", "x".repeat(LONGEST_LABEL))),
        ] {
            let endpoint = parse("redis://localhost").unwrap().set_name(label);
            assert_eq!(endpoint.at("other".to_owned(), 1).name(), Some(name));
        }
    }

    #[test]
    fn url_is_shown_as_it_was_given() {
        for url in [
            "redis://localhost:6379",
            "redis://[::1]:6379",
            "redis://[::1]:6379/3",
            "redis://10.0.0.1:7000/15",
            "unix:///run/redis.sock",
            "unix:///run/redis.sock?db=2",
        ] {
            assert_eq!(format!("{:?}", parse(url).expect(url)), url);
        }
        assert_eq!(address(&parse("redis://[::1]:7000/3").unwrap()), "[::1]:7000");
        let mapper: AddressMapper = Arc::new(|_, _| ("::2".to_owned(), 1));
        let mapped = parse("redis://a").unwrap().set_mapper(mapper).at("::1".to_owned(), 7000);
        assert_eq!(address(&mapped), "[::2]:1 (announced as [::1]:7000)");
    }

    #[test]
    fn scheme_in_capitals_is_the_same_scheme() {
        for (url, shown) in [
            ("REDIS://localhost/2", "redis://localhost:6379/2"),
            ("Valkey://localhost", "redis://localhost:6379"),
            ("UNIX:///socket", "unix:///socket"),
        ] {
            assert_eq!(format!("{:?}", parse(url).expect(url)), shown);
        }
        if cfg!(feature = "tls") {
            assert!(parse("REDISS://localhost").unwrap().is_secure());
        } else {
            let error = parse("REDISS://localhost").unwrap_err().to_string();
            assert!(error.contains("feature `tls`"), "{error}");
        }
        // The text has what was written.
        assert!(parse("HTTP://localhost").unwrap_err().to_string().contains("\"HTTP\""));
    }

    #[test]
    fn good_urls_are_accepted() {
        for url in [
            "redis://localhost",
            "redis://[::1]:6379/3",
            "redis://user:pass@localhost:6379/1?protocol=resp3",
            "valkey://10.0.0.1",
            "unix:///run/redis.sock?db=2",
            "unix:///run/redis.sock?db=2&user=me&pass=s3&protocol=resp3",
            "redis://localhost?",
        ] {
            parse(url).expect(url);
        }
    }
}

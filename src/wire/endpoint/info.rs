//! The driver's own description of a server, checked as a URL is. What this library does not do is refused: a
//! setting that is skipped in silence is one that somebody relies on.

use std::net::Ipv6Addr;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo};

use crate::base::error::{Error, Result};

/// The description with a plain address, and whether TLS is spoken there.
pub(super) fn read(info: &ConnectionInfo) -> Result<(ConnectionInfo, bool)> {
    let (address, secure) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => (tcp(host, *port)?, false),
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            let allowed =
                "TLS that checks the server; .ca_certificate(…) trusts an authority of yours";
            return Err(Error::config("info address", "insecure TLS", allowed));
        }
        ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
            let allowed = "none; give .ca_certificate(…) and .client_certificate(…) to the builder";
            return Err(Error::config("info address", "TLS parameters of its own", allowed));
        }
        ConnectionAddr::TcpTls { .. } if !cfg!(feature = "tls") => {
            return Err(Error::config(
                "info address",
                "TLS needs leasehold's feature `tls`, which is off",
                "the feature turned on in Cargo.toml, or ConnectionAddr::Tcp",
            ));
        }
        ConnectionAddr::TcpTls { host, port, .. } => (tcp(host, *port)?, true),
        ConnectionAddr::Unix(path) if path.is_absolute() => (info.addr().clone(), false),
        ConnectionAddr::Unix(_) => {
            return Err(Error::config("info path", "relative", "an absolute one"));
        }
        _ => {
            return Err(Error::config("info address", "of an unknown kind", "Tcp, TcpTls or Unix"));
        }
    };

    // By their text, because the linger time has no getter. `nodelay` may be either: it is off unless
    // somebody asks for it, and always on here.
    let settings = info.tcp_settings();
    let usual = TcpSettings::default().set_nodelay(settings.nodelay());
    if format!("{settings:?}") != format!("{usual:?}") {
        let allowed = "the default, as the client sets nodelay, keepalive and time-outs itself";
        return Err(Error::config("info tcp_settings", "set", allowed));
    }
    let settings = info.redis_settings();
    if settings.lib_name().is_some() || settings.lib_ver().is_some() {
        let allowed = "none, as no CLIENT SETINFO is sent; .label(…) names connections";
        return Err(Error::config("info lib_name", "set", allowed));
    }
    Ok((info.clone().set_addr(address), secure))
}

fn tcp(host: &str, port: u16) -> Result<ConnectionAddr> {
    let field = "info host";
    if host.is_empty() {
        return Err(Error::config(field, "empty", "a name or an IP address"));
    }
    // The host is in errors and logs. A URL in its place may have a password in it.
    let is_odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || "@/".contains(letter);
    let is_address = |host: &str| {
        // The part behind `%` is the interface of a link-local address.
        host.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    };
    if host.contains(is_odd) || host.contains(':') && !is_address(host) {
        let allowed = "a name or an IP address alone, IPv6 without brackets";
        return Err(Error::config(field, "not a host", allowed));
    }
    if matches!(host, "0.0.0.0" | "::") {
        return Err(Error::config(field, host, "the address of one machine"));
    }
    if port == 0 {
        return Err(Error::config("info port", port, "1 to 65535"));
    }
    Ok(ConnectionAddr::Tcp(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::{IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo};

    use super::super::{GivenServer, shown};
    use super::*;

    fn info(address: ConnectionAddr) -> ConnectionInfo {
        address.into_connection_info().unwrap()
    }

    fn host(host: &str) -> ConnectionInfo {
        info(ConnectionAddr::Tcp(host.to_owned(), 6379))
    }

    fn over_tls(insecure: bool) -> ConnectionInfo {
        let host = "localhost".to_owned();
        info(ConnectionAddr::TcpTls { host, port: 6379, insecure, tls_params: None })
    }

    fn with(settings: RedisConnectionInfo) -> ConnectionInfo {
        host("localhost").set_redis_settings(settings.set_password("s3cret"))
    }

    fn sockets(settings: TcpSettings) -> ConnectionInfo {
        host("localhost").set_tcp_settings(settings)
    }

    #[test]
    fn bad_info_error_names_field_value_and_what_is_allowed() {
        let settings = RedisConnectionInfo::default;
        for (info, parts) in [
            (host(""), ["info host", "empty", "IP address"]),
            (host("user:s3cret@localhost"), ["info host", "not a host", "alone"]),
            (host("redis://localhost"), ["info host", "not a host", "alone"]),
            (host("localhost:6379"), ["info host", "not a host", "alone"]),
            (host("[::1]"), ["info host", "not a host", "without brackets"]),
            (host("a b"), ["info host", "not a host", "alone"]),
            (host("a\nb"), ["info host", "not a host", "alone"]),
            (host("0.0.0.0"), ["info host", "0.0.0.0", "one machine"]),
            (
                info(ConnectionAddr::Tcp("localhost".to_owned(), 0)),
                ["info port", "0", "1 to 65535"],
            ),
            (info(ConnectionAddr::Unix("relative".into())), ["info path", "relative", "absolute"]),
            (info(ConnectionAddr::Unix("".into())), ["info path", "relative", "absolute"]),
            (with(settings().set_db(-1)), ["info db", "-1", "a number from 0"]),
            (with(settings().set_db(1 << 40)), ["info db", "1099511627776", "a number from 0"]),
            (with(settings().set_lib_name("a", "1")), ["info lib_name", "set", "label"]),
            (
                host("localhost").set_redis_settings(settings().set_username("locks")),
                ["info username", "no password", "nopass"],
            ),
            (
                sockets(TcpSettings::default().set_linger_time(Duration::ZERO)),
                ["info tcp_settings", "set", "keepalive"],
            ),
            (
                sockets(
                    TcpSettings::default()
                        .set_keepalive(redis::io::tcp::socket2::TcpKeepalive::new()),
                ),
                ["info tcp_settings", "set", "keepalive"],
            ),
            (over_tls(true), ["info address", "insecure", "ca_certificate"]),
            #[cfg(not(feature = "tls"))]
            (over_tls(false), ["info address", "feature `tls`", "Cargo.toml"]),
        ] {
            let error = GivenServer::Info(Box::new(info.clone())).endpoint().expect_err("refused");
            assert!(error.is_config(), "{info:?}");
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "{info:?}: {text}");
            }
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn good_info_keeps_its_settings_and_hides_its_password() {
        let settings = RedisConnectionInfo::default()
            .set_username("locks")
            .set_password("s3cret")
            .set_db(3)
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        for (info, address) in [
            (host("localhost"), "redis://localhost:6379/3"),
            (host("::1"), "redis://[::1]:6379/3"),
            (host("fe80::1%eth0"), "redis://[fe80::1%eth0]:6379/3"),
            (sockets(TcpSettings::default().set_nodelay(true)), "redis://localhost:6379/3"),
            (info(ConnectionAddr::Unix("/run/redis.sock".into())), "unix:///run/redis.sock?db=3"),
            #[cfg(feature = "tls")]
            (over_tls(false), "rediss://localhost:6379/3"),
        ] {
            let given = GivenServer::Info(Box::new(info.set_redis_settings(settings.clone())));
            let endpoint = given.endpoint().unwrap();
            assert_eq!(shown(&endpoint), address);
            assert!(!format!("{endpoint:?}").contains("s3cret"));
            let read = endpoint.redis_settings();
            assert_eq!(
                (read.username(), read.password(), read.db()),
                (Some("locks"), Some("s3cret"), 3)
            );
            assert!(read.protocol().supports_resp3());
        }
    }
}

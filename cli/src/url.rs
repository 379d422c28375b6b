//! URLs of servers: a password becomes part of one, and what another one says is read.

use leasehold::redis::{ConnectionInfo, IntoConnectionInfo as _, RedisError};

/// What the URL says, and whether it asks for TLS. The driver here cannot do TLS, and would refuse a URL that asks for it.
pub(crate) fn read(url: &str) -> Result<(ConnectionInfo, bool), RedisError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Ok((url.into_connection_info()?, false));
    };
    // A scheme in capitals is the same one.
    let scheme = scheme.to_ascii_lowercase();
    let (scheme, secure) = match scheme.as_str() {
        "rediss" => ("redis", true),
        "valkeys" => ("valkey", true),
        other => (other, false),
    };
    Ok((format!("{scheme}://{rest}").into_connection_info()?, secure))
}

/// The user that this URL names; one that names none is for the default user.
pub(crate) fn user(url: &str) -> String {
    let info = read(url).ok();
    let user = info.and_then(|(info, _)| info.redis_settings().username().map(str::to_owned));
    user.unwrap_or_else(|| "default".to_owned())
}

/// The URL with this password, in place of one that it may have.
pub(crate) fn with_password(url: &str, password: &str) -> String {
    let password = encoded(password);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    if scheme.to_ascii_lowercase().contains("unix") {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("pass="));
        let pass = format!("pass={password}");
        let query: Vec<&str> = others.chain([pass.as_str()]).collect();
        return format!("{scheme}://{path}?{}", query.join("&"));
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:{password}@{host}{path}")
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_that_of_the_url() {
        for (url, name) in [
            ("redis://a", "default"),
            ("redis://:secret@a", "default"),
            ("rediss://locks:secret@a:6380/1", "locks"),
            ("valkeys://locks:secret@a", "locks"),
            ("REDISS://locks:secret@a", "locks"),
            ("redis://lo%40cks:secret@a", "lo@cks"),
            ("unix:///socket?user=locks&pass=secret", "locks"),
        ] {
            assert_eq!(user(url), name, "{url}");
        }
    }

    #[test]
    fn password_takes_its_place_in_every_form_of_url() {
        for (url, whole) in [
            ("redis://h", "redis://:p%40%2F@h"),
            ("redis://h:1/2?protocol=resp3", "redis://:p%40%2F@h:1/2?protocol=resp3"),
            ("rediss://me@h", "rediss://me:p%40%2F@h"),
            ("redis://me:old@h/0", "redis://me:p%40%2F@h/0"),
            ("unix:///s", "unix:///s?pass=p%40%2F"),
            ("UNIX:///s", "UNIX:///s?pass=p%40%2F"),
            ("redis+unix:///s?user=me&pass=old", "redis+unix:///s?user=me&pass=p%40%2F"),
        ] {
            assert_eq!(with_password(url, "p@/"), whole);
        }
    }
}

//! A password that was typed becomes part of a URL.

/// The URL with this password, in place of one that it may have.
pub(crate) fn with_password(url: &str, password: &str) -> String {
    let password = encoded(password);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    if scheme.contains("unix") {
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
    fn password_takes_its_place_in_every_form_of_url() {
        for (url, whole) in [
            ("redis://h", "redis://:p%40%2F@h"),
            ("redis://h:1/2?protocol=resp3", "redis://:p%40%2F@h:1/2?protocol=resp3"),
            ("rediss://me@h", "rediss://me:p%40%2F@h"),
            ("redis://me:old@h/0", "redis://me:p%40%2F@h/0"),
            ("unix:///s", "unix:///s?pass=p%40%2F"),
            ("redis+unix:///s?user=me&pass=old", "redis+unix:///s?user=me&pass=p%40%2F"),
        ] {
            assert_eq!(with_password(url, "p@/"), whole);
        }
    }
}

//! URLs of servers.

use leasehold_support::fuzz::Target;

use super::{SMALL, bounded, is_error, is_shown, variant};
use crate::client::LockClient;
use crate::wire::endpoint::{address, parse, shown};

const WORDS: &[&str] = &[
    "redis://",
    "rediss://",
    "valkey://",
    "valkeys://",
    "unix://",
    "redis+unix://",
    "://",
    "@",
    ":",
    "/",
    "?",
    "#",
    "&",
    "=",
    "[::1]",
    "[",
    "]",
    "%",
    "%00",
    "%zz",
    "%40",
    "protocol=resp3",
    "db=",
    "user=",
    "pass=",
    "timeout=",
    "localhost",
    "s3cret",
    ":s3cret@",
    "insecure",
];
const PASSWORD: &str = "s3cret";

/// Whether every place where the password stands lies between a colon and an `@`, where a URL has it.
fn has_password(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let Some((before, _)) = rest.split_once(PASSWORD) else { return false };
    let after = rest.rsplit(PASSWORD).next().unwrap_or_default();
    // A socket's path has none. A scheme may be written in capitals.
    !scheme.to_ascii_lowercase().contains("unix")
        && !scheme.contains(PASSWORD)
        && before.contains(':')
        && after.contains('@')
}

#[test]
fn url_of_any_text_is_read_or_refused() {
    Target::new("url").words(WORDS).run(|input| {
        let url = String::from_utf8_lossy(input);
        let read = bounded(input, SMALL, || parse(&url));
        let (texts, shape) = match &read {
            Ok(server) => {
                let texts = [format!("{server:?}"), shown(server), address(server)];
                (texts.to_vec(), "read".to_owned() + &variant(server.addr()))
            }
            Err(error) => {
                let text = error.to_string();
                let part: String = text.split(':').next().unwrap_or_default().to_owned();
                (vec![text], is_error(error) + &part)
            }
        };
        for text in &texts {
            is_shown(text);
            assert!(!(has_password(&url) && text.contains(PASSWORD)), "{text:?}");
        }
        shape
    });
}

/// The same through the builders, which do no I/O.
#[test]
fn client_of_any_url_is_built_or_refused() {
    Target::new("url").words(WORDS).run(|input| {
        let url = String::from_utf8_lossy(input);
        let (one, two) = url.split_at(url.char_indices().nth(input.len() / 2).map_or(0, |it| it.0));
        let built = [
            LockClient::builder(&url).build().map(drop),
            LockClient::builder(&url).sentinels([one, two]).build().map(drop),
            LockClient::builder(one).cluster([&*url, two]).build().map(drop),
        ];
        built.map(|built| built.map_or_else(|error| is_error(&error), |()| "built".into())).concat()
    });
}

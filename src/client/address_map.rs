//! Announced addresses and those to connect to, as a file lists them.

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};

/// The function for [`map_address`](crate::LockClientBuilder::map_address) that maps these addresses, and leaves all
/// others as they are.
pub(super) fn mapper(
    pairs: &BTreeMap<String, String>,
) -> Result<impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static> {
    let pairs: Result<Vec<_>> =
        pairs.iter().map(|(from, to)| Ok((address(from)?, address(to)?))).collect();
    let pairs = pairs?;
    Ok(move |host: &str, port: u16| {
        let pair = pairs.iter().find(|((from, at), _)| from == host && *at == port);
        pair.map_or_else(|| (host.to_owned(), port), |(_, to)| to.clone())
    })
}

fn address(text: &str) -> Result<(String, u16)> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        // An IPv6 address stands in brackets, as in a URL.
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
    });
    parts.ok_or_else(|| {
        Error::config("map_address", format_args!("\"{}\"", text.escape_debug()), "HOST:PORT")
    })
}

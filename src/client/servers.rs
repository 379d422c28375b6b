//! Which servers the URLs may name: those of sentinels, of a cluster, of a quorum.

use redis::ConnectionAddr;

use crate::base::error::{Error, Result};
use crate::client::settings::Settings;
use crate::topology::cluster::address::Address;
use crate::topology::quorum::MAX_SERVERS;
use crate::wire::endpoint::{self, Endpoint};

/// The sentinels that know the master of the name that is the host of `info`.
pub(super) fn sentinels(
    settings: &Settings,
    info: &Endpoint,
    urls: &[String],
) -> Result<Vec<Endpoint>> {
    if !matches!(info.addr(), ConnectionAddr::Tcp(..)) {
        let allowed = "redis://[user][:password@]name-of-the-master[/database] with sentinels";
        return Err(Error::config("url", "the path of a socket", allowed));
    }
    let nodes =
        distinct("sentinels", urls, |url| settings.one_of_several(url), "each address once")?;
    settings.check_certificates(nodes.iter().chain([info]))?;
    Ok(nodes)
}

/// The nodes of a cluster that are asked for the others, each once.
pub(super) fn seeds(settings: &Settings, info: &Endpoint, urls: &[String]) -> Result<Vec<Address>> {
    let mut seeds = Vec::new();
    let others = urls.iter().map(|url| settings.server(url));
    for node in std::iter::once(Ok(info.clone())).chain(others) {
        let node = node?;
        let (own, usual) = (node.redis_settings(), info.redis_settings());
        let Some(address) = Address::of(&node) else {
            let allowed =
                "redis://host[:port], as the nodes of a cluster know each other by address";
            return Err(Error::config("cluster", "the path of a socket", allowed));
        };
        if own.db() != 0 {
            let allowed = "0, as a cluster has no other";
            return Err(Error::config("url database", own.db(), allowed));
        }
        let differs = |told: Option<&str>, usual: Option<&str>| told.is_some() && told != usual;
        if differs(own.username(), usual.username()) || differs(own.password(), usual.password()) {
            let allowed = "those of the client's URL, which are used at every node";
            return Err(Error::config(
                "cluster",
                format_args!("{} has another user or password", endpoint::address(&node)),
                allowed,
            ));
        }
        if node.is_secure() != info.is_secure() {
            let allowed = "the scheme of the client's URL, which is used at every node";
            let wrong = format_args!("{} has another scheme", endpoint::shown(&node));
            return Err(Error::config("cluster", wrong, allowed));
        }
        if !seeds.contains(&address) {
            seeds.push(address);
        }
    }
    Ok(seeds)
}

/// The servers of a quorum.
pub(super) fn servers(settings: &Settings, urls: &[String]) -> Result<Vec<Endpoint>> {
    if urls.len() >= MAX_SERVERS {
        return Err(Error::config(
            "urls",
            format_args!("{} servers are too many", urls.len()),
            format_args!("at most {}", MAX_SERVERS - 1),
        ));
    }
    // Another database, or another user, is the same server all the same.
    let once = "each server once, whatever the database or the user";
    distinct("urls", urls, |url| settings.server(url), once)
}

/// The servers of at least one URL, each with an address of its own.
fn distinct(
    field: &str,
    urls: &[String],
    server: impl Fn(&str) -> Result<Endpoint>,
    once: &str,
) -> Result<Vec<Endpoint>> {
    if urls.is_empty() {
        return Err(Error::config(field, "empty", "at least one URL"));
    }
    let mut servers: Vec<Endpoint> = Vec::new();
    for url in urls {
        let server = server(url)?;
        let shown = endpoint::address(&server);
        if servers.iter().any(|other| endpoint::address(other) == shown) {
            return Err(Error::config(field, format_args!("{shown} twice"), once));
        }
        servers.push(server);
    }
    Ok(servers)
}

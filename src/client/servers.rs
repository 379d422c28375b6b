//! Checks of the URLs of sentinels, of a cluster, and of a quorum.

use redis::ConnectionAddr;

use crate::base::error::{Error, Result};
use crate::client::settings::Settings;
use crate::topology::cluster::address::Address;
use crate::topology::quorum::MAX_SERVERS;
use crate::wire::endpoint::{self, Endpoint, GivenServer};

/// The sentinels. The host of `info` is the name of their master.
pub(super) fn sentinels(
    settings: &Settings,
    info: &Endpoint,
    given: &[GivenServer],
) -> Result<Vec<Endpoint>> {
    if !matches!(info.addr(), ConnectionAddr::Tcp(..)) {
        let allowed = "redis://[user][:password@]name-of-the-master[/database] with sentinels";
        return Err(Error::config("url", "the path of a socket", allowed));
    }
    let nodes =
        distinct("sentinels", given, |it| settings.one_of_several(it), "each address once")?;
    settings.check_certificates(nodes.iter().chain([info]))?;
    Ok(nodes)
}

/// The nodes that lead to the others in a cluster, without duplicates.
pub(super) fn seeds(
    settings: &Settings,
    info: &Endpoint,
    given: &[GivenServer],
) -> Result<Vec<Address>> {
    let mut seeds = Vec::new();
    let others = given.iter().map(|it| settings.server(it));
    for node in std::iter::once(Ok(info.clone())).chain(others) {
        let node = node?;
        let (own, usual) = (node.redis_settings(), info.redis_settings());
        // Nodes report each other by host and port, so a socket would never match a node on the
        // map, and the client would connect to that node twice.
        let Some(address) = Address::of(&node) else {
            let allowed =
                "redis://host[:port], as the nodes of a cluster know each other by address";
            return Err(Error::config("cluster", "the path of a socket", allowed));
        };
        if own.db() != 0 {
            let allowed = "0, as a cluster has no other";
            return Err(Error::config("url database", own.db(), allowed));
        }
        // Nodes that the client learns of later have no URL, so all nodes must accept one user. A
        // URL without a user or password is fine: it says nothing else.
        let differs = |given: Option<&str>, usual: Option<&str>| given.is_some() && given != usual;
        if differs(own.username(), usual.username()) || differs(own.password(), usual.password()) {
            let allowed = "those of the client's URL, which are used at every node";
            return Err(Error::config(
                "cluster",
                format_args!("{} has another user or password", endpoint::address(&node)),
                allowed,
            ));
        }
        // Otherwise the password would go to some nodes in plain text without notice.
        if node.is_secure() != info.is_secure() {
            let allowed = "the scheme of the client's URL, which is used at every node";
            let wrong = format!("{} has another scheme", endpoint::shown(&node));
            return Err(Error::config("cluster", wrong, allowed));
        }
        // No error: the client's URL may well be listed among the others.
        if !seeds.contains(&address) {
            seeds.push(address);
        }
    }
    Ok(seeds)
}

/// The servers of a quorum.
pub(super) fn servers(settings: &Settings, given: &[GivenServer]) -> Result<Vec<Endpoint>> {
    // The table of ballots has one bit for each server.
    if given.len() >= MAX_SERVERS {
        return Err(Error::config(
            "urls",
            format_args!("{} servers are too many", given.len()),
            format_args!("at most {}", MAX_SERVERS - 1),
        ));
    }
    // Two databases of one server share its memory and its crash, so they would be two votes of one
    // server.
    let once = "each server once, whatever the database or the user";
    distinct("urls", given, |it| settings.server(it), once)
}

/// These servers, of which there must be one at least. Duplicate addresses are an
/// error.
fn distinct(
    field: &str,
    given: &[GivenServer],
    server: impl Fn(&GivenServer) -> Result<Endpoint>,
    once: &str,
) -> Result<Vec<Endpoint>> {
    if given.is_empty() {
        return Err(Error::config(field, "empty", "at least one URL"));
    }
    let mut servers: Vec<Endpoint> = Vec::new();
    for given in given {
        let server = server(given)?;
        let shown = endpoint::address(&server);
        if servers.iter().any(|other| endpoint::address(other) == shown) {
            return Err(Error::config(field, format_args!("{shown} twice"), once));
        }
        servers.push(server);
    }
    Ok(servers)
}

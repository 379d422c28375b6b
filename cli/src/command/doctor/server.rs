//! Which server it is, and which others there are.

use leasehold::redis;

use super::check::Check;
use super::finding::Finding;
use super::node;
use super::probe::Probe;
use crate::connection::ConnectionArguments;

/// The first version of Redis with all that the scripts use.
const OLDEST: (u32, u32) = (7, 0);
/// The first one that can wait for disks.
const WITH_WAITAOF: (u32, u32) = (7, 2);

pub(super) fn version(probe: &Probe<'_>) -> Finding {
    let found = probe.info("server").map(|info| {
        let valkey = info.text("valkey_version").map(|version| ("Valkey", version));
        let found = valkey.or_else(|| Some(("Redis", info.text("redis_version")?)));
        found.map(|(program, version)| (program, version.to_owned()))
    });
    match found {
        Ok(Some((program, version))) => judge(program, &version),
        Ok(None) => Finding::unknown(Check::Version, "INFO does not tell it"),
        // A script knows it, too, and may run where INFO may not. Valkey tells it as Redis would.
        Err(why) => match probe.get(redis::cmd("EVAL").arg("return redis.REDIS_VERSION").arg(0)) {
            Ok(version) => judge("Redis", String::as_str(&version)),
            Err(_) => Finding::unknown(Check::Version, why),
        },
    }
}

/// The finding for an error by which the library refuses a server that is too old.
pub(super) fn too_old(error: &leasehold::Error) -> Option<Finding> {
    let text = error.to_string();
    let seen = text.strip_suffix("; leasehold needs Redis 7.0 or later, or Valkey")?;
    Some(refused(seen))
}

fn refused(seen: &str) -> Finding {
    Finding::fault(Check::Version, seen)
        .so("no lock can be had: SET … NX GET and PEXPIRE … GT came with Redis 7.0")
        .mend("use Redis 7.0 or later, or Valkey")
}

fn judge(program: &str, version: &str) -> Finding {
    let seen = format!("{program} {version}");
    let mut parts = version.split('.').map_while(|part| part.parse().ok());
    let Some(number) = parts.next().map(|major| (major, parts.next().unwrap_or(0))) else {
        return Finding::unknown(Check::Version, format!("\"{version}\" is no version"));
    };
    // Any Valkey has the commands of Redis 7.2.
    if program == "Valkey" || number >= WITH_WAITAOF {
        return Finding::fine(Check::Version, seen);
    }
    if number >= OLDEST {
        return Finding::fine(Check::Version, seen)
            .so("min_fsyncs cannot be used: WAITAOF came with 7.2");
    }
    refused(&seen)
}

/// Whether the server does not reply.
pub(super) fn is_silent(probe: &Probe<'_>) -> bool {
    silence(probe).is_some()
}

fn silence(probe: &Probe<'_>) -> Option<leasehold::Error> {
    let outcome = probe.ask(&redis::cmd("TIME"));
    outcome.err().filter(|error| error.is_unreachable() || error.is_timeout())
}

/// A server of a cluster that does not reply.
pub(super) fn unreachable(probe: &Probe<'_>) -> Option<Finding> {
    silence(probe).map(|error| {
        Finding::fault(Check::Connection, error.to_string())
            .so("no lock whose name is on this master can be had")
            .mend("start it, or let a replica take its place")
    })
}

/// What stands around the server.
pub(super) fn topology(probe: &Probe<'_>, connection: &ConnectionArguments) -> Finding {
    const CHECK: Check = Check::Topology;
    if connection.is_cluster() {
        return match node::tag(&probe.name) {
            None => Finding::fine(CHECK, "a cluster; each master is examined"),
            Some(_) => Finding::fine(CHECK, "a cluster; one master is examined")
                .so("--name has a hash tag, which is on this master; the others are not known"),
        };
    }
    if connection.has_sentinels() {
        return Finding::fine(CHECK, "the master that the sentinels name");
    }
    match probe.info("cluster") {
        Ok(info) if info.number("cluster_enabled") == Some(1) => {
            Finding::fault(CHECK, "a node of a cluster, and --cluster is not given")
                .so("locks in slots of other nodes cannot be had")
                .mend("add --cluster, and LockClientBuilder::cluster in programs")
        }
        Ok(_) => Finding::fine(CHECK, "one server"),
        Err(why) => Finding::unknown(CHECK, why),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn versions_are_judged_by_number() {
        for (program, version, level) in [
            ("Redis", "6.2.14", Level::Fault),
            ("Redis", "7.0.15", Level::Fine),
            ("Redis", "10.0", Level::Fine),
            ("Valkey", "7.2.5", Level::Fine),
            ("Redis", "unstable", Level::Unknown),
            ("Redis", "7", Level::Fine),
        ] {
            assert_eq!(judge(program, version).level, level, "{version}");
        }
        assert!(judge("Redis", "7.0.15").consequence.contains("WAITAOF"));
    }
}

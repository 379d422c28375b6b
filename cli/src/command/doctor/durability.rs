//! What outlives a restart and a fail-over.

use super::finding::Finding;
use super::probe::{Info, Probe};

pub(super) fn check(probe: &Probe<'_>) -> Vec<Finding> {
    let persistence = match probe.info("persistence") {
        Ok(info) => persistence(probe, &info),
        Err(why) => Finding::unknown("persistence", why),
    };
    let replicas = match probe.info("replication") {
        Ok(info) => replicas(probe, &info),
        Err(why) => Finding::unknown("replicas", why),
    };
    vec![persistence, replicas]
}

fn persistence(probe: &Probe<'_>, info: &Info) -> Finding {
    const CHECK: &str = "persistence";
    const MEND: &str = "CONFIG SET appendonly yes, and appendfsync always if a crash of the machine may lose \
                        nothing; or fencing tokens that the resource checks";
    if info.number("aof_enabled") == Some(1) {
        return match probe.config("appendfsync").as_deref() {
            Ok("always") => Finding::fine(CHECK, "append-only file, synced at each write"),
            Ok(other) => Finding::fine(CHECK, format!("append-only file, appendfsync {other}"))
                .so("a crash of the machine may lose the locks of the last second or more"),
            Err(why) => Finding::fine(CHECK, "append-only file")
                .so(format!("how often it is synced is not known: {why}")),
        };
    }
    match probe.config("save").as_deref() {
        Ok("") => Finding::warning(CHECK, "none")
            .so("a restart loses all locks: another may take what is still held")
            .mend(MEND),
        Ok(save) => Finding::warning(CHECK, format!("snapshots alone (save {save})"))
            .so("a crash loses all locks since the last snapshot: another may take what is still held")
            .mend(MEND),
        Err(why) => Finding::warning(CHECK, "no append-only file")
            .so(format!("a crash loses locks; whether there are snapshots is not known, because {why}"))
            .mend(MEND),
    }
}

fn replicas(probe: &Probe<'_>, info: &Info) -> Finding {
    const CHECK: &str = "replicas";
    if info.text("role") == Some("slave") {
        let host = info.text("master_host").unwrap_or("?");
        let port = info.text("master_port").unwrap_or("?");
        return Finding::fault(CHECK, format!("this is a replica of {host}:{port}"))
            .so("no lock can be had: a replica refuses to write")
            .mend(format!(
                "use the master, redis://{host}:{port}, or name the sentinels with --sentinel"
            ));
    }
    let Some(count) = info.number("connected_slaves") else {
        return Finding::unknown(CHECK, "INFO does not tell it");
    };
    if count == 0 {
        return Finding::fine(CHECK, "none")
            .so("no fail-over can lose a lock; while this server is down, no lock can be had");
    }
    let consequence = "a fail-over may lose a lock that no replica has yet: two holders at a time";
    let mend = "min-replicas-to-write 1 with min-replicas-max-lag bounds how long a master that is cut off \
                grants locks; LockOptions::min_replicas waits for replicas at each grant";
    match probe.config("min-replicas-to-write").as_deref() {
        Ok("0") => Finding::warning(CHECK, format!("{count}, and min-replicas-to-write is 0"))
            .so(consequence)
            .mend(mend),
        Ok(least) => Finding::fine(CHECK, format!("{count}, and min-replicas-to-write is {least}"))
            .so(format!("still, {consequence}; LockOptions::min_replicas makes it less likely")),
        Err(why) => Finding::warning(CHECK, format!("{count}"))
            .so(format!("{consequence}; min-replicas-to-write is not known, because {why}"))
            .mend(mend),
    }
}

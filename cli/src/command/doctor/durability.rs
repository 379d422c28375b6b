//! What outlives a restart and a fail-over.

use super::check::Check;
use super::finding::Finding;
use super::probe::{Info, Probe};

pub(super) fn check(probe: &Probe<'_>) -> Vec<Finding> {
    let (persistence, writes) = match probe.info("persistence") {
        Ok(info) => (persistence(probe, &info), writes(probe, &info)),
        Err(why) => (Finding::unknown(Check::Persistence, why), None),
    };
    let replicas = match probe.info("replication") {
        Ok(info) => replicas(probe, &info),
        Err(why) => Finding::unknown(Check::Replicas, why),
    };
    [Some(persistence), writes, Some(replicas)].into_iter().flatten().collect()
}

/// Whether a snapshot that fails stops all writes, which is the default of servers that make snapshots.
fn writes(probe: &Probe<'_>, info: &Info) -> Option<Finding> {
    const CHECK: Check = Check::Writes;
    const MEND: &str = "make room on the disk and look into the server's log; \
                        CONFIG SET stop-writes-on-bgsave-error no lets locks go on without snapshots";
    let stops = probe.config("stop-writes-on-bgsave-error").ok()? == "yes";
    let saves = !probe.config("save").ok()?.is_empty();
    if !stops || !saves {
        return None;
    }
    Some(if info.text("rdb_last_bgsave_status") == Some("err") {
        Finding::fault(CHECK, "refused, because the last snapshot failed")
            .so("no lock is granted, renewed or released, and renewed locks are lost after their lease")
            .mend(MEND)
    } else {
        Finding::fine(CHECK, "stop when a snapshot fails (stop-writes-on-bgsave-error)")
            .so("then, as on a full disk, no lock is granted or renewed until one succeeds")
    })
}

fn persistence(probe: &Probe<'_>, info: &Info) -> Finding {
    const CHECK: Check = Check::Persistence;
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
    const CHECK: Check = Check::Replicas;
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

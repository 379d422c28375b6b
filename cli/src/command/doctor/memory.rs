//! Whether the server may evict locks.

use super::check::Check;
use super::finding::Finding;
use super::probe::Probe;

pub(super) fn check(probe: &Probe<'_>) -> Finding {
    const CHECK: Check = Check::Memory;
    let info = match probe.info("memory") {
        Ok(info) => info,
        Err(why) => return Finding::unknown(CHECK, why),
    };
    let (Some(policy), Some(limit)) = (info.text("maxmemory_policy"), info.number("maxmemory"))
    else {
        return Finding::unknown(CHECK, "INFO does not tell the policy");
    };
    let used = info.number("used_memory").unwrap_or(0);
    let seen = match limit {
        0 => format!("maxmemory-policy {policy}, without a limit"),
        _ => format!(
            "maxmemory-policy {policy}; {} % of {} are used",
            used.saturating_mul(100) / limit,
            size(limit)
        ),
    };
    match (policy, limit) {
        ("noeviction", 0) => Finding::fine(CHECK, seen),
        ("noeviction", _) if used < limit => {
            Finding::fine(CHECK, seen).so("a full server grants no lock, and still renews and releases")
        }
        ("noeviction", _) => Finding::fault(CHECK, seen)
            .so("it is full: no lock is granted; those that are held are still renewed and released")
            .mend("free memory, or raise maxmemory"),
        (_, 0) => Finding::fine(CHECK, seen).so("nothing is evicted as long as there is no limit"),
        _ => Finding::warning(CHECK, seen)
            .so("a lock has a time to live, and so it may be evicted: two holders at a time")
            .mend("CONFIG SET maxmemory-policy noeviction"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        ..0x10_0000 => format!("{} kB", bytes >> 10),
        _ => format!("{} MB", bytes >> 20),
    }
}

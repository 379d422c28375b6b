//! A master as sentinels, or the server itself, report it.

use redis::Value;

/// What a sentinel tells of its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MasterReport {
    /// Grows with every fail-over.
    pub(super) rank: Rank,
    pub(super) address: (String, u16),
}

/// How new the word of a sentinel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Counts the fail-overs that were told of.
    pub(super) epoch: u64,
    /// One more is under way, and its new master is one already.
    pub(super) is_ahead: bool,
}

impl MasterReport {
    /// Whether this is no older than what was known. The sentinel that leads a fail-over counts it before
    /// its end, and is ahead then of all that is told afterwards: of the same place, by itself too.
    pub(super) fn is_as_new_as(&self, known: Option<&MasterReport>) -> bool {
        known.is_none_or(|known| self.rank >= known.rank || self.address == known.address)
    }
}

/// Whether the answer to ROLE is a master's.
pub(super) fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|name| {
        redis::from_redis_value_ref::<String>(name).is_ok_and(|name| name == "master")
    })
}

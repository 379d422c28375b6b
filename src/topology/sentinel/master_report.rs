//! A master as sentinels, or the server itself, report it.

use redis::Value;

/// A sentinel's report about its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MasterReport {
    /// Grows with every fail-over.
    pub(super) rank: Rank,
    pub(super) address: (String, u16),
}

/// How new a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The sentinels' `config-epoch` of this master, which grows with every fail-over.
    pub(super) epoch: u64,
    /// Another fail-over is under way, and its new master already reports itself as one.
    pub(super) is_ahead: bool,
}

impl MasterReport {
    /// Whether this report is at least as new as the known one.
    pub(super) fn is_as_new_as(&self, known: Option<&MasterReport>) -> bool {
        // The sentinel that leads a fail-over raises its epoch before the end, so that the report
        // "epoch 8, ahead" may be followed by "epoch 8" of the same address. That has a lower rank
        // and is no older: the address decides.
        known.is_none_or(|known| self.rank >= known.rank || self.address == known.address)
    }
}

/// Whether the reply to `ROLE` is a master's.
pub(super) fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|name| {
        redis::from_redis_value_ref::<String>(name).is_ok_and(|name| name == "master")
    })
}

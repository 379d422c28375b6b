//! What a client asks of a lock.

use std::time::Duration;

use crate::base::option::ReleaseKind;

/// One request to become the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    pub(crate) mode: AcquireMode,
    /// A waiter that is not heard of for this long is taken for dead (rule 8).
    pub(crate) dies_after: Duration,
}

/// One request to be the owner no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    /// The last token used where that is not the one minted.
    pub(crate) last_token: Option<u64>,
    pub(crate) kind: ReleaseKind,
}

/// What to do where another has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcquireMode {
    /// Nothing.
    Try,
    /// Queue up.
    Join,
    /// Stay in the queue (rule 1: only if it is there).
    Heartbeat,
}

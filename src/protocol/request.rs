//! The requests to become the owner of a lock, and to stop being it.

use std::time::Duration;

use crate::base::option::ReleaseKind;

/// One request to become the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    pub(crate) mode: AcquireMode,
    /// How long after this request the waiter counts as dead if no other follows (rule 8).
    pub(crate) dies_after: Duration,
}

/// One request to stop being the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    /// The last token used, if that is not the minted one.
    pub(crate) last_token: Option<u64>,
    pub(crate) kind: ReleaseKind,
}

/// What the script does if another owner has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcquireMode {
    /// Nothing.
    Try,
    /// Join the queue.
    Join,
    /// Stay in the queue, if the attempt is in it (rule 1).
    Heartbeat,
}

//! The requests to become the owner of a lock, and to stop being it.

use std::time::Duration;

use crate::base::option::ReleaseKind;
use crate::base::share::{Access, Share};

/// One request to become the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) owner: &'a [u8],
    /// How long its lease lasts.
    pub(crate) ttl: Duration,
    /// For how long its key outlives the lease (rule 46).
    pub(crate) tail: Duration,
    pub(crate) share: Share,
    pub(crate) mode: AcquireMode,
    /// How long after this request the waiter counts as dead if no other follows (rule 8).
    pub(crate) dies_after: Duration,
}

/// One request to make the weight of a hold another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    /// Grows with each change of the hold. What is not the latest does nothing (rule 35).
    pub(crate) number: u64,
    pub(crate) to: ChangeTo,
    /// How long after this request a waiting upgrade counts as dead if no other follows.
    pub(crate) dies_after: Duration,
}

/// One request to set the limit of a semaphore that is in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResizeRequest {
    pub(crate) limit: u32,
    /// The limit that the user declares.
    pub(crate) declared: u32,
    /// How long the new limit is kept after the last use.
    pub(crate) keep: Duration,
}

/// One request to say a word for the leader of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProclaimRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    pub(crate) term: u64,
    /// Grows with each word of the term. What is not the latest does nothing.
    pub(crate) number: u64,
    pub(crate) word: &'a [u8],
}

/// What a hold of a read-write lock becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeTo {
    Access(Access),
    /// The writer, if an earlier request has begun to wait for that.
    Heartbeat,
}

/// One request to stop being the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseRequest<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    /// The last token used, if that is not the minted one.
    pub(crate) last_token: Option<u64>,
    pub(crate) kind: ReleaseKind,
    /// Whether somebody is known to wait, so that the script need not ask. It may be wrong.
    pub(crate) is_wanted: bool,
}

/// One request to take the lock from this owner, which may be foreign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForceRequest<'a> {
    pub(crate) owner: &'a [u8],
    /// Whether the user says that the key is a lock, even if it does not look like one.
    pub(crate) takes_any: bool,
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

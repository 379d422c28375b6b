//! What is known about an attempt of this process.

use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::engine::owner_value::OwnerValue;
use crate::engine::slot::wait_limit::WaitLimit;

/// One attempt of this process. It may outlive the thread that began it: the next thread can take it
/// over.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) value: Arc<OwnerValue>,
    /// Whether it may own the lock: a request had no reply, or a message granted the lock, and no later
    /// reply has contradicted that.
    pub(crate) unknown: bool,
    /// Whether the server may have run a part of a request that it refused.
    pub(crate) partial: bool,
    /// Whether it may stand in the queue.
    pub(crate) queued: bool,
    /// Whether the next request needs another owner's value, because this one was released.
    pub(crate) spent: bool,
}

impl Attempt {
    /// Whether a thread with these options can take it over.
    pub(super) fn can_serve(&self, options: &LockOptions, wait_limit: WaitLimit) -> bool {
        // A single attempt never stands in the queue (rule 4), and takes no place over. What Redis was
        // asked for under this value, the lease above all, holds for the next thread too, so its options
        // must ask for the same.
        wait_limit != WaitLimit::TryOnce && self.value.options.requests_same_as(options)
    }
}

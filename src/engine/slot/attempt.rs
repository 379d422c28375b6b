//! What a process has asked Redis for under one owner's value.

use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::slot::wait_limit::WaitLimit;

/// One attempt of this process, which may outlast the thread that began it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) options: LockOptions,
    /// When the last request for it without an answer is surely dead.
    pub(crate) settled: Moment,
    /// Whether it may own the lock: since a request brought no answer, or a message granted it, no
    /// answer has told otherwise.
    pub(crate) unknown: bool,
    /// Whether it may stand in the queue.
    pub(crate) queued: bool,
    /// Whether the next request needs another owner's value: this one was given back.
    pub(crate) spent: bool,
}

impl Attempt {
    /// Whether a thread with these options can go on with it.
    pub(super) fn can_serve(&self, options: &LockOptions, wait_limit: WaitLimit) -> bool {
        wait_limit != WaitLimit::TryOnce && self.options.requests_same_as(options)
    }
}

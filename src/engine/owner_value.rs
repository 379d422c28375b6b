//! One owner's value: what an attempt of this process writes into Redis, to own a lock or to queue for it.
//!
//! It is one object from before its first request until nothing of it can be left in Redis. An attempt asks under it, a
//! lease is what Redis granted to it, and a removal takes it out again; they share it.

use std::fmt;
use std::time::Duration;

use crate::base::option::{LockOptions, RequestOptions};
use crate::base::sync::Arc;
use crate::base::time::{AtomicMoment, Moment};
use crate::protocol::target::Target;

/// One owner's value.
pub(crate) struct OwnerValue {
    pub(crate) target: Arc<Target>,
    /// The value as Redis has it.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) options: RequestOptions,
    settled: AtomicMoment,
}

impl OwnerValue {
    pub(crate) fn new(
        target: Arc<Target>,
        bytes: impl Into<Box<[u8]>>,
        options: LockOptions,
    ) -> Arc<OwnerValue> {
        let settled = AtomicMoment::new(Moment::PAST);
        Arc::new(OwnerValue { target, bytes: bytes.into(), options: options.of_request(), settled })
    }

    /// The time to live that its requests ask for: that of the lease, and of the tail (rule 46).
    pub(crate) fn key_ttl(&self) -> Duration {
        let lease = self.options.lease;
        lease.key_ttl(lease.ttl())
    }

    /// After this moment no unanswered request for the lock can run any more; the past if each had its reply.
    pub(crate) fn settled(&self) -> Moment {
        self.settled.get()
    }

    /// A request for the lock with this deadline had no reply. The server does nothing for it afterwards (rule 2).
    pub(crate) fn unanswered_until(&self, deadline: Moment) {
        self.settled.raise(deadline);
    }
}

impl fmt::Debug for OwnerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerValue({:?}, {})", self.target, self.bytes.escape_ascii())
    }
}

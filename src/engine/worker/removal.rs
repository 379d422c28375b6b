//! The removal of an owner's value from Redis, for a thread that could not do so, or need not.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::{Moment, drift_allowance};
use crate::engine::heartbeat::DEAD_AFTER;
use crate::engine::lease::Lease;
use crate::engine::owner_value::OwnerValue;

/// An owner's value that must not stay in Redis.
#[derive(Clone, Debug)]
pub(crate) struct Removal {
    pub(crate) value: Arc<OwnerValue>,
    /// How long it may live in Redis after the last request for it.
    pub(super) ttl: Duration,
    /// The moment by which the value has surely ended in Redis by itself.
    pub(super) gone_by: Moment,
    /// The last token used, if that is not the one that Redis minted.
    pub(super) last_token: Option<u64>,
    /// The removal waits for this moment, whatever becomes of the client: the user wants the lock kept.
    pub(super) kept_until: Option<Moment>,
}

impl Removal {
    /// That of an attempt, which may have the lock or stand in the queue.
    pub(crate) fn of_attempt(value: &Arc<OwnerValue>, now: Moment) -> Removal {
        Removal::new(value, value.key_ttl(), now)
    }

    /// That of a lease.
    pub(crate) fn of_lease(lease: &Lease, now: Moment) -> Removal {
        let value = &lease.value;
        let tail = value.options.lease.tail();
        let end = lease.leased_until().after(tail).max(lease.perhaps_until());
        // It may be renewed for longer than was asked for at first (rule 62).
        let ttl = value.key_ttl().max(value.options.lease.key_ttl(lease.ttl()));
        let skew = value.options.clock_skew(end.since(now));
        // The lease may have been extended beyond its usual length, and it ends in Redis later than here: by the
        // allowances, by the drift in the time since, and by the difference of the clocks if it is on another
        // server by then.
        let ttl = ttl.max(end.since(now) + drift_allowance(ttl) * 2 + skew * 2);
        Removal {
            last_token: lease.unstored_token(),
            kept_until: Some(lease.kept_until()).filter(|&until| now < until),
            ..Removal::new(value, ttl, now)
        }
    }

    fn new(value: &Arc<OwnerValue>, ttl: Duration, now: Moment) -> Removal {
        // At least from now: Redis may have renewed it until now. A place in the queue outlives a short lease.
        let gone_by = value.settled().max(now).after(ttl.max(DEAD_AFTER));
        Removal { value: Arc::clone(value), ttl, gone_by, last_token: None, kept_until: None }
    }

    /// This one merged with another one of the same value.
    pub(super) fn and(&self, other: &Removal) -> Removal {
        Removal {
            value: Arc::clone(&self.value),
            // The later and the longer of both: either caller may know of a request that the other does
            // not.
            ttl: self.ttl.max(other.ttl),
            gone_by: self.gone_by.max(other.gone_by),
            last_token: self.last_token.max(other.last_token),
            kept_until: self.kept_until.max(other.kept_until),
        }
    }

    /// Whether the reply to a request that was sent at `sent` is final: only that to a release which no request of the
    /// value can outlive (rule 6).
    pub(super) fn is_final(&self, sent: Moment) -> bool {
        self.value.settled() <= sent
    }

    /// The key by which the task queue finds it.
    pub(super) fn place(&self) -> usize {
        // The removal keeps the value, so no other has its address meanwhile.
        Arc::as_ptr(&self.value) as usize
    }
}

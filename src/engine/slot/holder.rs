//! The holders of a slot: the leases that this process has.

use std::any::Any;
use std::fmt;

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::lease::HeldLease;

/// A reference to the slot, which keeps it alive while its lease lingers.
pub(super) type KeepAlive = Arc<dyn Any + Send + Sync>;

/// What is known about waiters of other processes for the lock of one attempt (rule 18).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// How many wait, as far as this client knows.
    pub(super) remote: u32,
    /// Whether there was a waiter at any time since the attempt began. This never goes back to false.
    pub(super) wanted: bool,
}

impl Demand {
    /// Adds the count that a grant reports.
    pub(super) fn add(&mut self, waiters: u32) {
        // The greater count stays. A message may arrive before the reply with the grant although
        // Redis sent it later, and then it counts waiters that the grant does not.
        self.remote = self.remote.max(waiters);
        self.wanted |= waiters > 0;
    }

    /// Takes the count of a message that a waiter sent.
    pub(super) fn set(&mut self, waiters: u32) {
        self.remote = waiters;
        self.wanted = true;
    }
}

/// A lease that this process has.
#[derive(Debug)]
pub(super) struct SlotHolder {
    /// The number of the attempt that acquired it.
    pub(super) number: u64,
    pub(super) hold: HoldState,
    /// What those who wait are told of it.
    pub(super) blocker: Blocker,
    pub(super) demand: Demand,
    pub(super) granted_at: Moment,
    /// How many times the lease was passed on since it was granted.
    pub(super) passed: u32,
}

/// What this process does with a lease.
pub(super) enum HoldState {
    /// A thread holds it. Only that thread keeps the lease alive, so that a lease that was dropped
    /// without a release is found abandoned.
    Held(Weak<HeldLease>),
    /// No thread holds it. The process keeps it, and with it the slot.
    Lingering { lease: Arc<HeldLease>, until: Moment, _keep: KeepAlive },
    /// It is being released.
    Releasing { lease: Weak<HeldLease>, since: Moment },
}

impl SlotHolder {
    /// Whether this holder has that lease.
    pub(super) fn has(&self, lease: &Arc<HeldLease>) -> bool {
        match &self.hold {
            HoldState::Held(held) | HoldState::Releasing { lease: held, .. } => {
                // Compared by address without an upgrade, which might leave the last reference here,
                // under the slot's lock. A weak reference keeps the allocation, so no other lease can
                // have the address.
                std::ptr::eq(held.as_ptr(), Arc::as_ptr(lease))
            }
            HoldState::Lingering { lease: held, .. } => Arc::ptr_eq(held, lease),
        }
    }

    /// Whether the attempt of this number acquired it, and it is not being released.
    pub(super) fn is_attempt(&self, number: u64) -> bool {
        self.number == number && self.releasing_since().is_none()
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.hold, HoldState::Held(_))
    }

    pub(super) fn lingers(&self) -> bool {
        self.lingers_until().is_some()
    }

    pub(super) fn lingers_until(&self) -> Option<Moment> {
        match self.hold {
            HoldState::Lingering { until, .. } => Some(until),
            _ => None,
        }
    }

    pub(super) fn releasing_since(&self) -> Option<Moment> {
        match self.hold {
            HoldState::Releasing { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Whether no thread has it any more, so that nobody can release it.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.hold, HoldState::Held(lease) if lease.strong_count() == 0)
    }

    /// The lease that a thread holds. The caller drops it once the slot is unlocked: it may be the last
    /// reference.
    pub(super) fn lease(&self) -> Option<Arc<HeldLease>> {
        match &self.hold {
            HoldState::Held(lease) => lease.upgrade(),
            _ => None,
        }
    }

    /// The next thread gets it.
    pub(super) fn pass_on(&mut self, successor: &Arc<HeldLease>, now: Moment) {
        // `granted_at` and the demand stay: the bounds on passing on count from the grant by Redis, or
        // threads of one process could keep the lock for ever by passing it around.
        self.hold = HoldState::Held(Arc::downgrade(successor));
        self.blocker = Blocker::local(successor, now);
        self.passed = self.passed.saturating_add(1);
    }
}

impl fmt::Debug for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldState::Held(_) => "Held",
            HoldState::Lingering { .. } => "Lingering",
            HoldState::Releasing { .. } => "Releasing",
        })
    }
}

//! The holders of a slot: the leases that its process has.

use std::any::Any;
use std::fmt;

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::lease::HeldLease;

/// Keeps the slot alive while its lease lingers.
pub(super) type KeepAlive = Arc<dyn Any + Send + Sync>;

/// What is known of those who wait in other processes for what an attempt has (rule 18).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// How many wait, as far as is known.
    pub(super) remote: u32,
    /// Whether any was heard of since the attempt began.
    pub(super) wanted: bool,
}

impl Demand {
    pub(super) fn add(&mut self, waiters: u32) {
        self.remote = self.remote.max(waiters);
        self.wanted |= waiters > 0;
    }

    pub(super) fn set(&mut self, waiters: u32) {
        self.remote = waiters;
        self.wanted = true;
    }
}

/// A lease that this process has.
#[derive(Debug)]
pub(super) struct SlotHolder {
    /// Of the attempt that got it.
    pub(super) number: u64,
    pub(super) hold: HoldState,
    /// What those who wait are told of it.
    pub(super) blocker: Blocker,
    pub(super) demand: Demand,
    pub(super) granted_at: Moment,
    /// How often the lease was passed on since it was granted.
    pub(super) passed: u32,
}

/// In whose hands a lease is.
pub(super) enum HoldState {
    /// A thread's.
    Held(Weak<HeldLease>),
    /// Nobody's: the process keeps it, and the slot.
    Lingering { lease: Arc<HeldLease>, until: Moment, _keep: KeepAlive },
    /// It is being given back.
    Releasing { lease: Weak<HeldLease>, since: Moment },
}

impl SlotHolder {
    /// Whether this lease is meant.
    pub(super) fn has(&self, lease: &Arc<HeldLease>) -> bool {
        match &self.hold {
            HoldState::Held(held) | HoldState::Releasing { lease: held, .. } => {
                std::ptr::eq(held.as_ptr(), Arc::as_ptr(lease))
            }
            HoldState::Lingering { lease: held, .. } => Arc::ptr_eq(held, lease),
        }
    }

    /// Whether it is the one of this attempt, and not being given back.
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

    /// Whether nobody has it any longer, or can give it back.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.hold, HoldState::Held(lease) if lease.strong_count() == 0)
    }

    /// The lease that a thread has. The caller drops it once the slot is unlocked: it may be the last reference.
    pub(super) fn lease(&self) -> Option<Arc<HeldLease>> {
        match &self.hold {
            HoldState::Held(lease) => lease.upgrade(),
            _ => None,
        }
    }

    /// The next thread has it.
    pub(super) fn pass_on(&mut self, successor: &Arc<HeldLease>, now: Moment) {
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

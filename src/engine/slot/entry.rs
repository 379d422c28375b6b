//! The entries of a slot: what this process has of an owner's value that Redis has granted the lock.

use std::any::Any;
use std::fmt;

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::few::Few;
use crate::engine::heartbeat::DEAD_AFTER;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;

/// A reference to the slot, which keeps it alive while its lease lingers.
pub(super) type KeepAlive = Arc<dyn Any + Send + Sync>;

/// What is known about waiters of other processes for the lock of one attempt (rule 18).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// How many waited when the last count came, and when that was.
    counted: u32,
    counted_at: Moment,
    /// Whether there was a waiter at any time since the attempt began. This never goes back to false.
    pub(super) wanted: bool,
}

impl Demand {
    /// How many wait in other processes, as far as this client knows.
    pub(super) fn remote(&self, now: Moment) -> u32 {
        // The first of those who wait tells the holder with each of its heartbeats. So nobody waits any more where the
        // last of them was missed by so much: they gave up, or have died.
        if now.since(self.counted_at) < DEAD_AFTER { self.counted } else { 0 }
    }

    /// Adds the count that a grant reports.
    pub(super) fn add(&mut self, waiters: u32, now: Moment) {
        // The greater count stays. A message may arrive before the reply with the grant although
        // Redis sent it later, and then it counts waiters that the grant does not.
        if waiters > 0 {
            self.set(self.remote(now).max(waiters), now);
        }
    }

    /// Takes the count of a message that a waiter sent.
    pub(super) fn set(&mut self, waiters: u32, now: Moment) {
        (self.counted, self.counted_at) = (waiters, now);
        self.wanted = true;
    }
}

/// One owner's value that has the lock.
#[derive(Debug)]
pub(super) struct Entry {
    /// The number of the attempt that acquired it.
    pub(super) number: u64,
    /// Its holds keep the lease alive, or its linger does: one that was dropped without a release is found abandoned,
    /// and is not renewed.
    pub(super) lease: Weak<Lease>,
    pub(super) phase: EntryPhase,
    /// Its description for threads that wait.
    pub(super) blocker: Blocker,
    pub(super) demand: Demand,
    pub(super) granted_at: Moment,
    /// How many times the lease was passed on since it was granted.
    pub(super) passed: u32,
}

/// What this process does with an entry.
pub(super) enum EntryPhase {
    /// Threads hold it: one, or several that share it to read.
    Held(Few<Weak<Hold>>),
    /// No thread holds it. The process keeps it, and with it the slot.
    Lingering { lease: Arc<Lease>, _keep: KeepAlive },
    /// It is being released.
    Releasing { since: Moment },
}

impl Entry {
    pub(super) fn new(number: u64, hold: &Arc<Hold>, demand: Demand, now: Moment) -> Entry {
        Entry {
            number,
            lease: Arc::downgrade(&hold.lease),
            phase: EntryPhase::held(hold),
            blocker: Blocker::local(hold, now),
            demand,
            granted_at: now,
            passed: 0,
        }
    }

    /// Whether it is the entry of that lease.
    pub(super) fn has(&self, lease: &Arc<Lease>) -> bool {
        // A weak reference keeps the allocation, so no other lease can have the address.
        std::ptr::eq(self.lease.as_ptr(), Arc::as_ptr(lease))
    }

    /// Its lease is about to be released: notes there whether somebody waited elsewhere.
    pub(super) fn pass_demand_to(&self, lease: &Lease) {
        if self.demand.wanted {
            lease.note_wanted();
        }
    }

    /// Whether the attempt of this number acquired it, and it is not being released.
    pub(super) fn is_attempt(&self, number: u64) -> bool {
        self.number == number && self.releasing_since().is_none()
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.phase, EntryPhase::Held(_))
    }

    /// The lease, if it lingers.
    pub(super) fn lingering(&self) -> Option<&Arc<Lease>> {
        match &self.phase {
            EntryPhase::Lingering { lease, .. } => Some(lease),
            _ => None,
        }
    }

    pub(super) fn releasing_since(&self) -> Option<Moment> {
        match self.phase {
            EntryPhase::Releasing { since } => Some(since),
            _ => None,
        }
    }

    /// Whether no thread has it any more, so that nobody can release it.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(&self.phase, EntryPhase::Held(holds)
            if holds.iter().all(|hold| hold.strong_count() == 0))
    }

    /// The holds of threads. The caller drops them once the slot is unlocked: each may be the last reference.
    pub(super) fn holds(&self) -> impl Iterator<Item = Arc<Hold>> {
        let holds = match &self.phase {
            EntryPhase::Held(holds) => Some(holds),
            _ => None,
        };
        holds.into_iter().flat_map(Few::iter).filter_map(Weak::upgrade)
    }

    /// A thread takes the lease, which lingered.
    pub(super) fn retake(&mut self, hold: &Arc<Hold>, now: Moment) {
        self.phase = EntryPhase::held(hold);
        self.blocker = Blocker::local(hold, now);
    }

    /// The next thread gets it.
    pub(super) fn pass_on(&mut self, next: &Arc<Hold>, now: Moment) {
        // `granted_at` and the demand stay: the bounds on passing on count from the grant by Redis, or
        // threads of one process could keep the lock for ever by passing it around.
        self.retake(next, now);
        self.passed = self.passed.saturating_add(1);
    }
}

impl EntryPhase {
    fn held(hold: &Arc<Hold>) -> EntryPhase {
        let mut holds = Few::new();
        holds.push(Arc::downgrade(hold));
        EntryPhase::Held(holds)
    }
}

impl fmt::Debug for EntryPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EntryPhase::Held(_) => "Held",
            EntryPhase::Lingering { .. } => "Lingering",
            EntryPhase::Releasing { .. } => "Releasing",
        })
    }
}

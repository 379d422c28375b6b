//! What calls ask of a lease by which its threads hold the lock once more (rule 62).
//!
//! A thread that holds the lock by a fixed lease may take it again with a renewed one, or for longer. The lease then is
//! what the two ask for together, until the guard of the inner call is gone.

use std::time::Duration;

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::time::Moment;

/// What one call asks for, beyond what its hold has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The address of its hold, of which a lease that readers share has several.
    pub(crate) hold: usize,
    /// To what the lease is to be renewed; zero if it need not be.
    pub(crate) renewed_to: Duration,
    /// How many renewals it allows; `u32::MAX` if there is no limit. Once noted, with those before it.
    pub(crate) most_renewals: u32,
    /// When its `max_hold` ends the hold.
    pub(crate) limit: Moment,
}

/// What all of them ask for together, of which a thread reads each part without a lock.
#[derive(Debug)]
pub(super) struct Inside {
    /// The longest lease that is to be renewed, in nanoseconds; 0 if there is none.
    ttl: AtomicU64,
    /// The fewest renewals; `u32::MAX` if there is no limit.
    most_renewals: AtomicU32,
}

impl Inside {
    pub(super) fn new() -> Inside {
        Inside { ttl: AtomicU64::new(0), most_renewals: AtomicU32::new(u32::MAX) }
    }

    pub(super) fn ttl(&self) -> Option<Duration> {
        let nanos = self.ttl.load(Ordering::SeqCst);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    pub(super) fn most_renewals(&self) -> u32 {
        self.most_renewals.load(Ordering::SeqCst)
    }

    pub(super) fn set(&self, asked: &[Asked]) {
        // A lease has at most 30 days.
        let nanos = |it: &Asked| u64::try_from(it.renewed_to.as_nanos()).unwrap_or(u64::MAX);
        self.ttl.store(asked.iter().map(nanos).max().unwrap_or(0), Ordering::SeqCst);
        let most = asked.iter().map(|it| it.most_renewals).min();
        self.most_renewals.store(most.unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}

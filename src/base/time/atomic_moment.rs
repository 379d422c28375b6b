//! A moment that threads share without a lock.

use std::fmt;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::time::Moment;

/// A moment that threads share without a lock.
///
/// All accesses are sequentially consistent, so all threads see the accesses to all of these moments in one order. A
/// weaker order would have to be proven right for each pair of moments.
pub(crate) struct AtomicMoment(AtomicU64);

impl AtomicMoment {
    pub(crate) fn new(moment: Moment) -> AtomicMoment {
        AtomicMoment(AtomicU64::new(moment.as_nanos()))
    }

    pub(crate) fn get(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn set(&self, moment: Moment) {
        self.0.store(moment.as_nanos(), Ordering::SeqCst);
    }

    /// Sets it to this moment if that is later.
    pub(crate) fn raise(&self, moment: Moment) {
        self.0.fetch_max(moment.as_nanos(), Ordering::SeqCst);
    }

    /// Sets it to `moment` if it is still `before`.
    pub(crate) fn replace(&self, before: Moment, moment: Moment) {
        let (before, moment) = (before.as_nanos(), moment.as_nanos());
        let _ = self.0.compare_exchange(before, moment, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl fmt::Debug for AtomicMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

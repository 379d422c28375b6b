//! Whether threads hold a lease or it lingers, and until when at most.
//!
//! One atomic has both, so that the worker, which takes no lock for it, never finds the end of the one with the other.

use std::fmt;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::time::Moment;

/// How the process uses a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Threads hold it. `max_hold` ends the first of their holds at `until`.
    Held { until: Moment },
    /// No thread holds it, and the process keeps it until then.
    Lingering { until: Moment },
}

impl Usage {
    /// When the worker has something to end.
    pub(super) fn until(self) -> Moment {
        match self {
            Usage::Held { until } | Usage::Lingering { until } => until,
        }
    }

    /// The lowest bit tells the two apart. A nanosecond does not matter.
    fn packed(self) -> u64 {
        match self {
            Usage::Held { until } => until.as_nanos() & !1,
            Usage::Lingering { until } => until.as_nanos() | 1,
        }
    }

    fn unpacked(bits: u64) -> Usage {
        let until = match bits | 1 {
            u64::MAX => Moment::FAR,
            _ => Moment::from_nanos(bits & !1),
        };
        if bits & 1 == 0 { Usage::Held { until } } else { Usage::Lingering { until } }
    }
}

/// The usage of a lease, which threads share without a lock.
pub(super) struct AtomicUsage(AtomicU64);

impl AtomicUsage {
    /// Held for as long as it is valid.
    pub(super) fn new() -> AtomicUsage {
        AtomicUsage(AtomicU64::new(Usage::Held { until: Moment::FAR }.packed()))
    }

    pub(super) fn get(&self) -> Usage {
        Usage::unpacked(self.0.load(Ordering::SeqCst))
    }

    pub(super) fn set(&self, usage: Usage) {
        self.0.store(usage.packed(), Ordering::SeqCst);
    }

    /// Another hold, which ends at `until`, is added to those that it has.
    pub(super) fn join(&self, until: Moment) {
        self.0.fetch_min(Usage::Held { until }.packed(), Ordering::SeqCst);
    }
}

impl fmt::Debug for AtomicUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_as_it_was_set() {
        let usage = AtomicUsage::new();
        assert_eq!(usage.get(), Usage::Held { until: Moment::FAR });
        let [first, later] = [100, 200].map(Moment::from_nanos);
        usage.join(later);
        usage.join(first);
        usage.join(Moment::FAR);
        assert_eq!(usage.get(), Usage::Held { until: first });
        for set in [
            Usage::Lingering { until: later },
            Usage::Lingering { until: Moment::FAR },
            Usage::Held { until: later },
        ] {
            usage.set(set);
            assert_eq!(usage.get(), set);
        }
    }
}

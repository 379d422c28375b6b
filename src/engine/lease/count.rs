//! How many times a thread holds a lock, which Redis shows to people (rule 22).
//!
//! The thread sets the count and the worker shows it, without a lock. Each of the two writes one of
//! `count` and `unshown` and then reads the other. All accesses are sequentially consistent. Under a
//! weaker order both could read the value before the other's write: the thread would find the flag still
//! set, and the worker the old count, and nobody would show the last change.

use crate::base::sync::{AtomicBool, AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct ReentryCount {
    count: AtomicU32,
    /// Whether the worker still has to show the count.
    unshown: AtomicBool,
}

impl ReentryCount {
    /// The count of the first hold, which Redis shows.
    pub(super) fn new() -> ReentryCount {
        ReentryCount { count: AtomicU32::new(1), unshown: AtomicBool::new(false) }
    }

    /// The count of the next hold.
    pub(super) fn begin(&self) {
        if self.count.load(Ordering::SeqCst) != 1 {
            self.set(1);
        }
    }

    /// Sets the count. Returns whether the caller must tell the worker to show it.
    pub(crate) fn set(&self, count: u32) -> bool {
        self.count.store(count, Ordering::SeqCst);
        // Loaded before it is swapped: reentries in a row find it set, and a load costs less than a write
        // that other processors must see.
        !self.unshown.load(Ordering::SeqCst) && !self.unshown.swap(true, Ordering::SeqCst)
    }

    /// Returns the count for a request that shows it.
    pub(crate) fn show(&self) -> u32 {
        // Before the count is read: a change after this line sets the flag again.
        self.unshown.store(false, Ordering::SeqCst);
        self.count.load(Ordering::SeqCst)
    }

    /// Whether the worker still has to show it.
    pub(crate) fn is_unshown(&self) -> bool {
        self.unshown.load(Ordering::SeqCst)
    }
}

//! How many times a thread holds a lock, which Redis shows to people (rule 22).
//!
//! The thread sets the count and the worker shows it, without a lock. Each of the two writes one of
//! `count` and `unshown` and then reads the other. All four accesses are sequentially consistent. Under a
//! weaker order both could read the value before the other's write: the thread would find the flag still
//! set, and the worker the old count, and nobody would show the last change.

use crate::base::sync::{AtomicBool, AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct HoldCount {
    count: AtomicU32,
    /// Whether the worker still has to show the count.
    unshown: AtomicBool,
    /// The count that Redis shows.
    shown: AtomicU32,
}

impl HoldCount {
    /// The count of a hold that begins, while Redis shows this count.
    pub(super) fn new(shown: u32) -> HoldCount {
        let unshown = AtomicBool::new(shown != 1);
        HoldCount { count: AtomicU32::new(1), unshown, shown: AtomicU32::new(shown) }
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
        let count = self.count.load(Ordering::SeqCst);
        self.shown.store(count, Ordering::SeqCst);
        count
    }

    /// Whether the worker still has to show it.
    pub(crate) fn is_unshown(&self) -> bool {
        self.unshown.load(Ordering::SeqCst)
    }

    /// The count that Redis shows.
    pub(super) fn shown(&self) -> u32 {
        self.shown.load(Ordering::SeqCst)
    }
}

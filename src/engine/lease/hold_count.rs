//! How many times a thread holds a lock, as Redis shows it to people.

use crate::base::sync::{AtomicBool, AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct HoldCount {
    count: AtomicU32,
    /// Whether the worker is to show the count.
    unshown: AtomicBool,
    /// The count that was shown last.
    shown: AtomicU32,
}

impl HoldCount {
    /// The count of a hold that begins, while this count is shown.
    pub(super) fn new(shown: u32) -> HoldCount {
        let unshown = AtomicBool::new(shown != 1);
        HoldCount { count: AtomicU32::new(1), unshown, shown: AtomicU32::new(shown) }
    }

    /// Sets it. Returns whether that is yet to be shown, and the worker does not know of it.
    pub(crate) fn set(&self, count: u32) -> bool {
        self.count.store(count, Ordering::SeqCst);
        !self.unshown.load(Ordering::SeqCst) && !self.unshown.swap(true, Ordering::SeqCst)
    }

    /// The count that is shown now.
    pub(crate) fn show(&self) -> u32 {
        self.unshown.store(false, Ordering::SeqCst);
        let count = self.count.load(Ordering::SeqCst);
        self.shown.store(count, Ordering::SeqCst);
        count
    }

    /// Whether it is yet to be shown.
    pub(crate) fn is_unshown(&self) -> bool {
        self.unshown.load(Ordering::SeqCst)
    }

    /// The count that was shown last.
    pub(super) fn shown(&self) -> u32 {
        self.shown.load(Ordering::SeqCst)
    }
}

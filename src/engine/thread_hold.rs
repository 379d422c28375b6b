//! The holds of a thread, and their counts.
//!
//! A hold stays in its thread: reentry looks it up here and takes neither lock nor network. What a
//! thread still holds when it ends is left to the worker, because the destructor of a
//! thread-local must not do I/O.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::base::sync::{Arc, thread_local};
use crate::engine::holding::Holding;
use crate::engine::slot::Slot;

/// What one thread holds of one lock, and how many times.
#[derive(Debug)]
pub(crate) struct ThreadHold {
    holding: Holding,
    /// Zero once it is over for this thread.
    count: Cell<u32>,
}

impl ThreadHold {
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    /// Counts one more. Answers whether there was room.
    pub(crate) fn enter(&self) -> bool {
        let Some(count) = self.count.get().checked_add(1) else { return false };
        self.set(count);
        true
    }

    /// Counts one less. Answers whether that was the last, and the lease is to be released.
    pub(crate) fn leave(self: &Rc<ThreadHold>) -> bool {
        match self.count.get() {
            // Its thread has ended, or it was made an owned lease.
            0 => false,
            1 => {
                self.count.set(0);
                forget(self);
                true
            }
            count => {
                self.set(count - 1);
                false
            }
        }
    }

    fn set(&self, count: u32) {
        self.count.set(count);
        let Holding { slot, lease } = &self.holding;
        if slot.target().kind().shows_count() && lease.hold_count.set(count) {
            slot.show_hold_count(lease);
        }
    }
}

/// Makes a holding that of this thread.
pub(crate) fn adopt(holding: Holding) -> Rc<ThreadHold> {
    let slot = Arc::as_ptr(&holding.slot);
    let hold = Rc::new(ThreadHold { holding, count: Cell::new(1) });
    // While the thread ends there is no table any more; the guard alone has the hold then.
    let _ = HOLDS.try_with(|holds| {
        let mut holds = holds.0.borrow_mut();
        // An owned lease that was lost on its way must not take the place of what is held since.
        let is_live = |hold: &ThreadHold| hold.holding.lease.is_live();
        if holds.get(&slot).is_some_and(|found| is_live(found)) && !is_live(&hold) {
            return None;
        }
        // A lease that was lost may still have its guards; they keep it and find it lost.
        holds.insert(slot, Rc::clone(&hold))
    });
    hold
}

/// This thread's hold of a lock, if it has one, lost or not.
pub(crate) fn find(slot: &Arc<Slot>) -> Option<Rc<ThreadHold>> {
    HOLDS.try_with(|holds| holds.0.borrow().get(&Arc::as_ptr(slot)).map(Rc::clone)).ok()?
}

fn forget(hold: &Rc<ThreadHold>) {
    let slot = Arc::as_ptr(&hold.holding.slot);
    let _ = HOLDS.try_with(|holds| {
        let mut holds = holds.0.borrow_mut();
        if holds.get(&slot).is_some_and(|found| Rc::ptr_eq(found, hold)) {
            return holds.remove(&slot);
        }
        None
    });
}

/// By the slot's address, which stays its own while a hold keeps the slot alive.
type ByAddress = HashMap<*const Slot, Rc<ThreadHold>, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
struct Holds(RefCell<ByAddress>);

impl Drop for Holds {
    fn drop(&mut self) {
        for (_, hold) in self.0.take() {
            hold.count.set(0);
            hold.holding.release_in_background();
        }
    }
}

thread_local! {
    static HOLDS: Holds = Holds::default();
}

/// Spreads addresses; the keys are our own, so nobody can choose them to collide.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

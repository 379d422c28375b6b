//! The holds of a thread, and their counts.
//!
//! A hold belongs to its thread: a reentry finds it here and needs neither a lock nor the network. When a
//! thread ends, the worker releases what it still holds, because the destructor of a thread-local must
//! not do I/O.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::base::share::Access;
use crate::base::sync::{Arc, thread_local};
use crate::engine::holding::Holding;
use crate::engine::inner_call::InnerCall;
use crate::engine::slot::Slot;

/// A thread's hold of one lock, and how many times it holds it.
#[derive(Debug)]
pub(crate) struct ThreadHold {
    holding: Holding,
    /// Zero once it is over for this thread.
    count: Cell<u32>,
    /// How many of these are upgradable reads, and how many writes, of a read-write lock.
    greater: [Cell<u32>; 2],
    /// What calls by key ask for that entered it and were not unlocked yet, each with the count with which it entered.
    kept: RefCell<Vec<(u32, Box<InnerCall>)>>,
    /// Its place in the table: the address of its slot, or of its own hold if another hold has that place.
    place: Cell<*const ()>,
}

impl ThreadHold {
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    /// Counts one more, of this access to a read-write lock. Returns false if the counter is full.
    pub(crate) fn enter(&self, access: Option<Access>) -> bool {
        let Some(count) = self.count.get().checked_add(1) else { return false };
        if let Some(greater) = self.greater(access) {
            greater.set(greater.get() + 1);
        }
        self.set(count);
        true
    }

    /// Where this access is counted, besides the sum.
    fn greater(&self, access: Option<Access>) -> Option<&Cell<u32>> {
        match access {
            None | Some(Access::Read) => None,
            Some(Access::UpgradableRead) => Some(&self.greater[0]),
            Some(Access::Write) => Some(&self.greater[1]),
        }
    }

    /// One of the times that the thread holds a read-write lock becomes another.
    pub(crate) fn recount(&self, before: Option<Access>, after: Access) {
        if let Some(greater) = self.greater(before) {
            greater.set(greater.get().saturating_sub(1));
        }
        if let Some(greater) = self.greater(Some(after)) {
            greater.set(greater.get() + 1);
        }
    }

    /// The greatest access that one of the guards of a read-write lock needs.
    pub(crate) fn needs(&self) -> Access {
        match self.greater.each_ref().map(Cell::get) {
            [0, 0] => Access::Read,
            [_, 0] => Access::UpgradableRead,
            _ => Access::Write,
        }
    }

    /// Counts one less. Returns whether that was the last, so that the caller releases the lease.
    pub(crate) fn leave(self: &Rc<ThreadHold>, access: Option<Access>) -> bool {
        if let Some(greater) = self.greater(access) {
            greater.set(greater.get().saturating_sub(1));
        }
        match self.count.get() {
            // The thread has ended, or the guard was turned into an owned lease: somebody else releases
            // it.
            0 => false,
            1 => {
                // Forgotten before the release is sent: a `lock()` of this thread that a destructor of
                // the user makes meanwhile must wait for the lock like any other, and not reenter a hold
                // that is over.
                self.count.set(0);
                forget(self);
                // It is nothing to the next hold of the lease.
                drop(self.kept.take());
                true
            }
            count => {
                self.set(count - 1);
                false
            }
        }
    }

    /// A guard is left to this thread, which gives it up by key: what it asks for stays in force until then.
    pub(crate) fn keep(&self, inner: Option<Box<InnerCall>>) {
        self.kept.borrow_mut().extend(inner.map(|inner| (self.count(), inner)));
    }

    /// Takes out what the last call asked for that was left to this thread, as it is given up by key.
    pub(crate) fn take_kept(&self) -> Option<Box<InnerCall>> {
        let mut kept = self.kept.borrow_mut();
        // The calls inside it are given up first.
        let is_last = kept.last().is_some_and(|(entered, _)| *entered >= self.count());
        kept.pop_if(|_| is_last).map(|(_, inner)| inner)
    }

    fn set(&self, count: u32) {
        self.count.set(count);
        let Holding { slot, hold } = &self.holding;
        // Redis shows the count to people, and nothing waits for that (rule 22). The worker is asked once
        // for all changes until it has shown one, so most reentries lock nothing.
        if slot.target().kind().shows_count() && hold.lease.count.set(count) {
            slot.watch(&hold.lease);
        }
    }
}

/// Makes a holding the hold of this thread.
pub(crate) fn adopt(holding: Holding) -> Rc<ThreadHold> {
    let place = Cell::new(place_of(&holding.slot));
    let access = holding.hold.lease.access();
    let (count, greater, kept) = (Cell::new(1), Default::default(), RefCell::default());
    let hold = Rc::new(ThreadHold { holding, count, greater, kept, place });
    if let Some(greater) = hold.greater(access) {
        greater.set(1);
    }
    // While the thread ends its table is gone: only the guard has the hold then.
    let _ = HOLDS.try_with(|holds| {
        let mut holds = holds.0.borrow_mut();
        // This thread may hold the lock already: by now, where an owned lease was lost on its way to it, or
        // besides, where several may hold it. What it reenters stays, and the end of the thread finds both.
        if holds.get(&hold.place.get()).is_some_and(|found| found.holding.hold.is_live()) {
            hold.place.set(Arc::as_ptr(&hold.holding.hold).cast());
        }
        // Replaces a lost hold, whose guards keep it and find it lost. The old entry is returned and not
        // dropped here: its end may run destructors of the user, which may lock again and borrow this
        // table.
        holds.insert(hold.place.get(), Rc::clone(&hold))
    });
    hold
}

/// This thread's hold of a lock, if there is one. It may be lost.
pub(crate) fn find(slot: &Arc<Slot>) -> Option<Rc<ThreadHold>> {
    at(place_of(slot))
}

/// Whether the end of this thread releases this hold.
pub(crate) fn is_kept(hold: &Rc<ThreadHold>) -> bool {
    at(hold.place.get()).is_some_and(|found| Rc::ptr_eq(&found, hold))
}

/// Whether this thread has another hold of the same lock.
pub(crate) fn has_other(hold: &ThreadHold) -> bool {
    let is_other = |other: &Rc<ThreadHold>| {
        let Holding { slot, hold: its } = &other.holding;
        Arc::ptr_eq(slot, &hold.holding.slot)
            && !Arc::ptr_eq(its, &hold.holding.hold)
            && its.is_live()
    };
    HOLDS.try_with(|holds| holds.0.borrow().values().any(is_other)).unwrap_or(false)
}

fn at(place: *const ()) -> Option<Rc<ThreadHold>> {
    HOLDS.try_with(|holds| holds.0.borrow().get(&place).map(Rc::clone)).ok()?
}

fn place_of(slot: &Arc<Slot>) -> *const () {
    Arc::as_ptr(slot).cast()
}

fn forget(hold: &Rc<ThreadHold>) {
    let place = hold.place.get();
    let _ = HOLDS.try_with(|holds| {
        let mut holds = holds.0.borrow_mut();
        // The place may belong to a later hold of the same lock by now. What is removed is dropped once
        // the borrow is over, as in `adopt`.
        if !holds.get(&place).is_some_and(|found| Rc::ptr_eq(found, hold)) {
            return None;
        }
        let removed = holds.remove(&place);
        // From now on the thread reenters another hold of the same lock, if it has one. Only where several may
        // hold, as this looks at all holds of the thread.
        let slot = &hold.holding.slot;
        let other = |other: &&Rc<ThreadHold>| Arc::ptr_eq(&other.holding.slot, slot);
        if slot.target().kind().overlaps()
            && !holds.contains_key(&place_of(slot))
            && let Some(other) = holds.values().find(other).map(Rc::clone)
        {
            holds.remove(&other.place.replace(place_of(slot)));
            holds.insert(place_of(slot), other);
        }
        removed
    });
}

/// The key in the table: the address of the slot, or of the hold. Nothing else can have it while the hold keeps both alive.
type ByAddress = HashMap<*const (), Rc<ThreadHold>, BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
struct Holds(RefCell<ByAddress>);

impl Drop for Holds {
    fn drop(&mut self) {
        for (_, hold) in self.0.take() {
            // Before the release: a guard that outlives the thread's table, leaked or in another
            // thread-local, then finds the hold over and does not release it again.
            hold.count.set(0);
            hold.holding.release_in_background();
        }
    }
}

thread_local! {
    static HOLDS: Holds = Holds::default();
}

/// Spreads addresses. Nobody outside chooses them, so no hash against collisions on purpose is needed.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_usize(&mut self, address: usize) {
        // The lowest bits of an address are all zero, and the table uses the highest bits of a hash: the
        // product moves those that differ to the top.
        self.0 = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

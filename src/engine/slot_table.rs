//! The slots of a client: one for each name and kind, while anybody has a reference to it.

use std::collections::HashMap;

use crate::base::name::Name;
use crate::base::sync::{Arc, Mutex, Weak};
use crate::engine::few::Few;

/// The slots of one name: one for each kind in use.
type SlotsOfName<S> = Vec<(&'static str, Weak<S>)>;

/// Generic, because slots use the table: a slot removes itself from it when it is dropped.
#[derive(Debug)]
pub(crate) struct SlotTable<S>(Mutex<HashMap<Name, SlotsOfName<S>>>);

impl<S> SlotTable<S> {
    pub(super) fn new() -> SlotTable<S> {
        SlotTable(Mutex::new(HashMap::new()))
    }

    /// Returns the slot of a name, and makes it if there is none. `make` runs under the lock of the
    /// table.
    pub(crate) fn get(
        &self,
        kind: &'static str,
        name: Name,
        make: impl FnOnce(Name) -> S,
    ) -> Arc<S> {
        // Locked from the look-up to the insertion: two threads that made a slot each would both ask
        // Redis for the name, and the process would wait for itself.
        let mut names = self.0.lock();
        let slots = names.entry(name.clone()).or_default();
        if let Some(index) = slots.iter().position(|(of, _)| *of == kind) {
            if let Some(slot) = slots[index].1.upgrade() {
                return slot;
            }
            // The last reference is gone, and the destructor of that slot waits for this lock in
            // `forget`. The new slot does not wait for it: `forget` keeps what is alive.
            slots.swap_remove(index);
        }
        let slot = Arc::new(make(name));
        // Most names have one kind. By itself the list would begin with room for four.
        slots.reserve_exact(1);
        slots.push((kind, Arc::downgrade(&slot)));
        slot
    }

    /// The slots of a name. The result is a list and no iterator under the lock: dropping a reference may
    /// end a slot, whose destructor takes the lock again.
    pub(crate) fn of_name(&self, name: &[u8]) -> Few<Arc<S>> {
        let names = self.0.lock();
        let slots = names.get(name).into_iter().flatten();
        slots.filter_map(|(_, slot)| slot.upgrade()).collect()
    }

    /// All slots, as a list for the same reason.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        self.0.lock().values().flatten().filter_map(|(_, slot)| slot.upgrade()).collect()
    }

    #[cfg(all(test, leasehold_shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Removes a slot that was dropped.
    pub(crate) fn forget(&self, name: &Name) {
        let mut names = self.0.lock();
        let Some(slots) = names.get_mut(name) else { return };
        // The check is liveness, not identity: another thread may have made a new slot of the same name since
        // the last reference was dropped, and that one must stay.
        slots.retain(|(_, slot)| slot.strong_count() > 0);
        if slots.is_empty() {
            names.remove(name);
            // Only far below the capacity, or names that come and go would move the whole table again and
            // again.
            if names.capacity() > 64 && names.len() * 4 < names.capacity() {
                names.shrink_to_fit();
            }
        }
    }
}

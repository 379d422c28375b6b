//! The slots of a client: one per name and kind, for as long as anybody has it.

use std::collections::HashMap;

use crate::base::name::Name;
use crate::base::sync::{Arc, Mutex, Weak};

/// The slots of one name, of which there is one for each kind that is in use.
type SlotsOfName<S> = Vec<(&'static str, Weak<S>)>;

/// It knows nothing of what a slot is, since slots know it: they take themselves out.
#[derive(Debug)]
pub(crate) struct SlotTable<S>(Mutex<HashMap<Name, SlotsOfName<S>>>);

impl<S> SlotTable<S> {
    pub(super) fn new() -> SlotTable<S> {
        SlotTable(Mutex::new(HashMap::new()))
    }

    /// The slot of a name, made if nobody has it.
    pub(crate) fn get(
        &self,
        kind: &'static str,
        name: Name,
        make: impl FnOnce(Name) -> S,
    ) -> Arc<S> {
        let mut names = self.0.lock();
        let slots = names.entry(name.clone()).or_default();
        if let Some(index) = slots.iter().position(|(of, _)| *of == kind) {
            if let Some(slot) = slots[index].1.upgrade() {
                return slot;
            }
            slots.swap_remove(index);
        }
        let slot = Arc::new(make(name));
        slots.push((kind, Arc::downgrade(&slot)));
        slot
    }

    /// All slots of a name.
    pub(crate) fn of_name(&self, name: &[u8]) -> Vec<Arc<S>> {
        let names = self.0.lock();
        names.get(name).map_or_else(Vec::new, |slots| {
            slots.iter().filter_map(|(_, slot)| slot.upgrade()).collect()
        })
    }

    /// All slots.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        self.0.lock().values().flatten().filter_map(|(_, slot)| slot.upgrade()).collect()
    }

    #[cfg(all(test, leasehold_shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Forgets a name that nobody has any longer, unless somebody has just asked for it anew.
    pub(crate) fn forget(&self, name: &Name) {
        let mut names = self.0.lock();
        let Some(slots) = names.get_mut(name) else { return };
        slots.retain(|(_, slot)| slot.strong_count() > 0);
        if slots.is_empty() {
            names.remove(name);
            if names.capacity() > 64 && names.len() * 4 < names.capacity() {
                names.shrink_to_fit();
            }
        }
    }
}

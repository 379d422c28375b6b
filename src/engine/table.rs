//! The slots of a client: one per name and kind, for as long as anybody has it.

use std::collections::HashMap;

use crate::base::name::Name;
use crate::base::sync::{Arc, Mutex, Weak};
use crate::engine::slot::Slot;

type Key = (&'static str, Name);

#[derive(Debug, Default)]
pub(crate) struct Table(Mutex<HashMap<Key, Weak<Slot>>>);

impl Table {
    /// The slot of a name, made if nobody has it.
    pub(crate) fn get(
        &self,
        kind: &'static str,
        name: Name,
        make: impl FnOnce(Name) -> Slot,
    ) -> Arc<Slot> {
        let mut slots = self.0.lock();
        let key = (kind, name);
        if let Some(slot) = slots.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(make(key.1.clone()));
        slots.insert(key, Arc::downgrade(&slot));
        slot
    }

    /// Forgets a name that nobody has any longer, unless somebody has just asked for it anew.
    pub(crate) fn forget(&self, kind: &'static str, name: &Name) {
        let mut slots = self.0.lock();
        let key = (kind, name.clone());
        if slots.get(&key).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(&key);
            if slots.capacity() > 64 && slots.len() * 4 < slots.capacity() {
                slots.shrink_to_fit();
            }
        }
    }
}

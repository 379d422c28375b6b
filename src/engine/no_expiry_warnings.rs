//! Holders without an end: keys that have no time to live.
//!
//! No lock of this library is such a key, and neither is one of Redisson. Somebody has written it by hand,
//! or has taken its time to live away. A wait for it may never end, and looks like any other wait.

use std::collections::HashSet;

use crate::base::name::Name;
use crate::base::sync::{AtomicBool, Mutex, Ordering};

/// The locks of a client whose holder has no end, as far as its waiters were told.
#[derive(Debug, Default)]
pub(crate) struct NoExpiryWarnings {
    names: Mutex<HashSet<Name>>,
    /// Whether there is any: each grant asks that, and most clients never have one.
    any: AtomicBool,
}

impl NoExpiryWarnings {
    /// Somebody waits for a holder without an end. The user is warned once, for as long as it stays so.
    pub(super) fn warn(&self, name: &Name) {
        if self.begin(name) {
            log!(
                warn,
                "lock {name:?}: its key has no time to live, so a wait for it may never end; no lock of \
                 this library is like that. Look at the key with `redis-cli TTL`, and free it with \
                 force_release() or `redis-cli DEL`"
            );
        }
    }

    /// Returns whether that was not known.
    fn begin(&self, name: &Name) -> bool {
        let mut names = self.names.lock();
        self.any.store(true, Ordering::Relaxed);
        names.insert(name.clone())
    }

    /// The lock has another holder, or none.
    pub(super) fn end(&self, name: &Name) {
        if self.any.load(Ordering::Relaxed) {
            let mut names = self.names.lock();
            names.remove(name);
            self.any.store(!names.is_empty(), Ordering::Relaxed);
        }
    }
}

//! Warnings about locks whose key has no time to live.
//!
//! Neither this library nor Redisson writes such a key: somebody wrote it by hand, or removed its time to
//! live. A wait for it may never end, and looks like any other wait.

use std::collections::HashSet;

use crate::base::name::Name;
use crate::base::sync::{AtomicBool, Mutex, Ordering};

/// The locks of a client that were last seen without a time to live.
#[derive(Debug, Default)]
pub(crate) struct NoExpiryWarnings {
    names: Mutex<HashSet<Name>>,
    /// Whether `names` has any: each grant looks here, and most clients never have one.
    any: AtomicBool,
}

impl NoExpiryWarnings {
    /// A thread waits for a key without a time to live. Warns the user once while that stays so: a waiter
    /// finds it again at each heartbeat.
    pub(super) fn warn(&self, name: &Name) {
        // `begin` has released the lock by now: a logger is code of the user, and may wait for a lock of
        // this client.
        if self.begin(name) {
            log!(
                warn,
                "lock {name:?}: its key has no time to live, so a wait for it may never end; no lock of \
                 this library is like that. Look at the key with `redis-cli TTL`. If it is a lock, free it \
                 with force_release(), a string of another program with force_release_any()"
            );
        }
    }

    /// Notes the name. Returns whether it is new.
    fn begin(&self, name: &Name) -> bool {
        let mut names = self.names.lock();
        self.any.store(true, Ordering::Relaxed);
        names.insert(name.clone())
    }

    /// The lock is granted, or its holder has a time to live.
    pub(super) fn end(&self, name: &Name) {
        // Relaxed, and read without the lock: a value that is out of date costs a warning that is not
        // repeated, and this runs for each grant of the client.
        if self.any.load(Ordering::Relaxed) {
            let mut names = self.names.lock();
            names.remove(name);
            self.any.store(!names.is_empty(), Ordering::Relaxed);
        }
    }
}

//! The kinds of lock that one server has at a time, for tests of what all of them do.

use std::time::Duration;

use leasehold::{Guard, Holder, LockClient, LockOptions, Mutex, ReentrantLock, Result};

/// What the handles of all kinds can.
pub(crate) trait Lock: Send + Sync {
    fn lock(&self) -> Result<Guard>;
    fn try_lock(&self) -> Result<Option<Guard>>;
    fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>>;
    fn holder(&self) -> Result<Option<Holder>>;
    fn last_blocker(&self) -> Option<Holder>;
    fn force_release(&self) -> Result<bool>;
    fn release_for(&self, owner: &[u8]) -> Result<bool>;
}

/// One of them.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    with: fn(&LockClient, &str, LockOptions) -> Result<Box<dyn Lock>>,
}

impl Kind {
    /// A lock of this kind.
    pub(crate) fn with(
        &self,
        client: &LockClient,
        name: &str,
        options: LockOptions,
    ) -> Box<dyn Lock> {
        (self.with)(client, name, options).expect("a lock")
    }

    pub(crate) fn open(&self, client: &LockClient, name: &str) -> Box<dyn Lock> {
        self.with(client, name, LockOptions::new())
    }
}

macro_rules! kinds {
    ($($name:literal: $lock:ident by $with:ident),+) => {
        $(
            impl Lock for $lock {
                fn lock(&self) -> Result<Guard> {
                    $lock::lock(self)
                }

                fn try_lock(&self) -> Result<Option<Guard>> {
                    $lock::try_lock(self)
                }

                fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
                    $lock::try_lock_for(self, wait)
                }

                fn holder(&self) -> Result<Option<Holder>> {
                    $lock::holder(self)
                }

                fn last_blocker(&self) -> Option<Holder> {
                    $lock::last_blocker(self)
                }

                fn force_release(&self) -> Result<bool> {
                    $lock::force_release(self)
                }

                fn release_for(&self, owner: &[u8]) -> Result<bool> {
                    $lock::release_for(self, owner)
                }
            }
        )+

        /// Every kind.
        pub(crate) const KINDS: &[Kind] = &[$(Kind {
            name: $name,
            with: |client, name, options| {
                client.$with(name, options).map(|lock| Box::new(lock) as Box<dyn Lock>)
            },
        }),+];
    };
}

kinds!("mutex": Mutex by mutex_with, "reentrant": ReentrantLock by reentrant_with);

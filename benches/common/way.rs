//! The kinds of lock and the ways to wait for them.

use std::time::Duration;

use leasehold::{Guard, Holder, LockClient, LockOptions, Mutex, ReentrantLock, Result, Wait};

/// For how long a lock lingers that does.
const LINGER: Duration = Duration::from_secs(5);

/// A kind of lock and a way to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Queue,
    /// The same, and the lease stays for a while.
    Linger,
    Spin,
    Notify,
    SpinReentrant,
}

impl Way {
    pub(crate) const ALL: [Way; 5] =
        [Way::Queue, Way::Linger, Way::Spin, Way::Notify, Way::SpinReentrant];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Way::Queue => "mutex queue",
            Way::Linger => "mutex linger",
            Way::Spin => "mutex spin",
            Way::Notify => "reentrant notify",
            Way::SpinReentrant => "reentrant spin",
        }
    }

    pub(crate) fn of_title(title: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.title() == title)
    }

    pub(crate) fn lock(self, client: &LockClient, name: &str) -> Result<Lock> {
        let options = LockOptions::new();
        match self {
            Way::Queue => client.mutex(name).map(Lock::Mutex),
            Way::Linger => client.mutex_with(name, options.linger(LINGER)).map(Lock::Mutex),
            Way::Spin => client.mutex_with(name, options.wait(Wait::spin())).map(Lock::Mutex),
            Way::Notify => client.reentrant(name).map(Lock::Reentrant),
            Way::SpinReentrant => {
                client.reentrant_with(name, options.wait(Wait::spin())).map(Lock::Reentrant)
            }
        }
    }
}

/// A lock of either kind.
#[derive(Debug)]
pub(crate) enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantLock),
}

impl Lock {
    pub(crate) fn lock(&self) -> Result<Guard> {
        match self {
            Lock::Mutex(lock) => lock.lock(),
            Lock::Reentrant(lock) => lock.lock(),
        }
    }

    pub(crate) fn holder(&self) -> Result<Option<Holder>> {
        match self {
            Lock::Mutex(lock) => lock.holder(),
            Lock::Reentrant(lock) => lock.holder(),
        }
    }
}

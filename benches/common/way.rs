//! The kinds of lock, what is asked of them, and the ways to wait for them.

use std::time::Duration;

use leasehold::{
    FencingToken, Guard, Holder, LockClient, LockOptions, Mutex, Permit, ReadGuard, ReentrantLock,
    Result, RwLock, Semaphore, UpgradableReadGuard, Wait, WriteGuard,
};

use super::witness::Mark;

/// For how long a lock lingers that does.
const LINGER: Duration = Duration::from_secs(5);
/// The permits of a semaphore.
pub(crate) const PERMITS: u32 = 4;
/// Where some write, one call of so many does.
const WRITES: u32 = 20;

/// A kind of lock and a way to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Queue,
    /// The same, and the lease stays for a while.
    Linger,
    Spin,
    Notify,
    SpinReentrant,
    /// One permit of a semaphore.
    Permits,
    /// Three permits of it.
    ThreePermits,
    /// A read-write lock, to read.
    Reads,
    /// The same, and in one call of twenty to write.
    MostlyReads,
    /// The same, as the upgradable reader.
    Upgradable,
    /// The same, to write.
    Writes,
}

impl Way {
    pub(crate) const ALL: [Way; 11] = [
        Way::Queue,
        Way::Linger,
        Way::Spin,
        Way::Notify,
        Way::SpinReentrant,
        Way::Permits,
        Way::ThreePermits,
        Way::Reads,
        Way::MostlyReads,
        Way::Upgradable,
        Way::Writes,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Way::Queue => "mutex queue",
            Way::Linger => "mutex linger",
            Way::Spin => "mutex spin",
            Way::Notify => "reentrant notify",
            Way::SpinReentrant => "reentrant spin",
            Way::Permits => "permits",
            Way::ThreePermits => "three permits",
            Way::Reads => "reads",
            Way::MostlyReads => "reads 95%",
            Way::Upgradable => "upgradable reads",
            Way::Writes => "writes",
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
            Way::Permits | Way::ThreePermits => client.semaphore(name, PERMITS).map(|lock| {
                Lock::Semaphore { lock, permits: if self == Way::Permits { 1 } else { 3 } }
            }),
            Way::Reads => client.rw_lock(name).map(|lock| Lock::ReadWrite { lock, writes: 0 }),
            Way::MostlyReads => {
                client.rw_lock(name).map(|lock| Lock::ReadWrite { lock, writes: 1 })
            }
            Way::Upgradable => client.rw_lock(name).map(Lock::Upgradable),
            Way::Writes => {
                client.rw_lock(name).map(|lock| Lock::ReadWrite { lock, writes: WRITES })
            }
        }
    }
}

/// A lock of any kind.
#[derive(Debug)]
pub(crate) enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantLock),
    Semaphore {
        lock: Semaphore,
        /// How many permits a call takes.
        permits: u32,
    },
    Upgradable(RwLock),
    ReadWrite {
        lock: RwLock,
        /// How many calls of [`WRITES`] are to write.
        writes: u32,
    },
}

impl Lock {
    pub(crate) fn lock(&self) -> Result<Held> {
        match self {
            Lock::Mutex(lock) => lock.lock().map(Held::Alone),
            Lock::Reentrant(lock) => lock.lock().map(Held::Alone),
            Lock::Semaphore { lock, permits } => lock.acquire_many(*permits).map(Held::Permit),
            Lock::Upgradable(lock) => lock.upgradable_read().map(Held::Upgradable),
            Lock::ReadWrite { lock, writes } if fastrand::u32(..WRITES) < *writes => {
                lock.write().map(Held::Write)
            }
            Lock::ReadWrite { lock, .. } => lock.read().map(Held::Read),
        }
    }

    /// One that holds it.
    pub(crate) fn holder(&self) -> Result<Option<Holder>> {
        match self {
            Lock::Mutex(lock) => lock.holder(),
            Lock::Reentrant(lock) => lock.holder(),
            Lock::Semaphore { lock, .. } => lock.holders().map(|mut holders| holders.pop()),
            Lock::Upgradable(lock) | Lock::ReadWrite { lock, .. } => {
                lock.holders().map(|mut holders| holders.pop())
            }
        }
    }
}

/// A hold of any kind.
#[derive(Debug)]
pub(crate) enum Held {
    Alone(Guard),
    Permit(Permit),
    Read(ReadGuard),
    Upgradable(UpgradableReadGuard),
    Write(WriteGuard),
}

impl Held {
    pub(crate) fn fencing_token(&self) -> FencingToken {
        match self {
            Held::Alone(guard) => guard.fencing_token(),
            Held::Permit(permit) => permit.fencing_token(),
            Held::Read(guard) => guard.fencing_token(),
            Held::Upgradable(guard) => guard.fencing_token(),
            Held::Write(guard) => guard.fencing_token(),
        }
    }

    pub(crate) fn release(self) -> Result<()> {
        match self {
            Held::Alone(guard) => guard.release(),
            Held::Permit(permit) => permit.release(),
            Held::Read(guard) => guard.release(),
            Held::Upgradable(guard) => guard.release(),
            Held::Write(guard) => guard.release(),
        }
    }

    /// Who must not be met while it is held.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            // No two upgradable readers meet. Where others read too, they leave no mark.
            Held::Alone(_) | Held::Upgradable(_) => Mark::Alone,
            Held::Permit(permit) => Mark::Slot(permit.slot()),
            Held::Read(_) => Mark::Reader,
            Held::Write(_) => Mark::Writer,
        }
    }
}

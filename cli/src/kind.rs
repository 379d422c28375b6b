//! The kinds of lock, by the words of this command.

use clap::ValueEnum;
use leasehold::ListedLock;

/// A kind that the user names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Mutex,
    Reentrant,
    Semaphore,
    #[value(alias = "rw")]
    ReadWrite,
    Election,
}

impl Kind {
    /// That of a lock; `None` if this version does not know it.
    pub(crate) fn of(lock: &ListedLock) -> Option<Kind> {
        match lock.lock_kind() {
            leasehold::Kind::Mutex => Some(Kind::Mutex),
            leasehold::Kind::ReentrantLock => Some(Kind::Reentrant),
            leasehold::Kind::Semaphore => Some(Kind::Semaphore),
            leasehold::Kind::RwLock => Some(Kind::ReadWrite),
            leasehold::Kind::Election => Some(Kind::Election),
            _ => None,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Reentrant => "reentrant",
            Kind::Semaphore => "semaphore",
            Kind::ReadWrite => "read-write",
            Kind::Election => "election",
        }
    }
}

/// The word for the kind of a lock; of one that this version does not know, the library's.
pub(crate) fn word_of(lock: &ListedLock) -> &'static str {
    Kind::of(lock).map_or(lock.kind(), Kind::word)
}

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
}

impl Kind {
    /// The kind that the library calls like this.
    pub(crate) fn of(library: &str) -> Option<Kind> {
        match library {
            "mutex" => Some(Kind::Mutex),
            "reentrant lock" => Some(Kind::Reentrant),
            "semaphore" => Some(Kind::Semaphore),
            "read-write lock" => Some(Kind::ReadWrite),
            _ => None,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Reentrant => "reentrant",
            Kind::Semaphore => "semaphore",
            Kind::ReadWrite => "read-write",
        }
    }
}

/// The word for the kind of a lock; of one that this version does not know, the library's.
pub(crate) fn word_of(lock: &ListedLock) -> &'static str {
    Kind::of(lock.kind()).map_or(lock.kind(), Kind::word)
}

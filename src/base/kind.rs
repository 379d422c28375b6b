//! The kinds of lock, by what users call them.

use std::fmt;

/// A kind of lock.
///
/// Events, metrics, the index and the command's JSON carry its [name](Kind::name).
///
/// ```
/// use leasehold::Kind;
///
/// assert_eq!(Kind::RwLock.name(), "read-write lock");
/// assert_eq!(Kind::named("read-write lock"), Some(Kind::RwLock));
/// assert_eq!(Kind::named("lock of a later version"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A [`Mutex`](crate::Mutex), of one server or of a quorum.
    Mutex,
    /// A [`ReentrantLock`](crate::ReentrantLock).
    ReentrantLock,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// A [`RwLock`](crate::RwLock).
    RwLock,
    /// An [`Election`](crate::Election).
    Election,
}

impl Kind {
    const ALL: [Kind; 5] =
        [Kind::Mutex, Kind::ReentrantLock, Kind::Semaphore, Kind::RwLock, Kind::Election];

    /// Its name: `mutex`, `reentrant lock`, `semaphore`, `read-write lock` or `election`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::ReentrantLock => "reentrant lock",
            Kind::Semaphore => "semaphore",
            Kind::RwLock => "read-write lock",
            Kind::Election => "election",
        }
    }

    /// The kind of this name; `None` if this version does not know it.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Its name.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

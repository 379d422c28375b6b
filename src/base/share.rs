//! How much of a lock a call asks for. The kinds whose locks have one holder ask for all of it.

use std::fmt;

use crate::base::sync::Arc;

/// The weight of a whole read-write lock, and so its limit.
pub(crate) const ALL: u64 = 1 << 32;

/// The numbers of a hold's permits; `None` if it has none.
pub(crate) type PermitNumbers = Option<Arc<[u32]>>;

/// How much of a lock a call asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    /// All of a lock that has one holder.
    #[default]
    Whole,
    /// This many permits of a semaphore, whose limit the user declares.
    Permits { count: u32, limit: u32 },
    /// A read-write lock, in this way.
    Access(Access),
    /// All of an election. Only its owner's value says so.
    Lead,
}

/// How a read-write lock is held. Each way is greater than those before it.
///
/// ```
/// # use leasehold::Access;
/// assert_eq!(Access::UpgradableRead.to_string(), "upgradable reader");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Access {
    /// To read, beside other readers.
    Read,
    /// To read, beside other readers, and to be the next writer if it wishes.
    UpgradableRead,
    /// To write, alone.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "reader",
            Access::UpgradableRead => "upgradable reader",
            Access::Write => "writer",
        })
    }
}

impl Share {
    /// The limit that the user declares; `None` for a lock that has one holder.
    pub(crate) fn limit(self) -> Option<u64> {
        match self {
            Share::Whole | Share::Lead => None,
            Share::Permits { limit, .. } => Some(limit.into()),
            Share::Access(_) => Some(ALL),
        }
    }

    /// How a read-write lock is asked for; `None` for another lock.
    pub(crate) fn access(self) -> Option<Access> {
        match self {
            Share::Access(access) => Some(access),
            Share::Whole | Share::Permits { .. } | Share::Lead => None,
        }
    }

    /// Whether both can be held at a time, by the same process or not.
    pub(crate) fn fits_beside(self, other: Share) -> bool {
        self.limit().is_some_and(|limit| self.weight() + other.weight() <= limit)
    }

    /// How much of the limit it takes.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Share::Whole | Share::Lead | Share::Access(Access::Write) => ALL,
            Share::Permits { count, .. } => count.into(),
            Share::Access(Access::Read) => 1,
            // More than half, so that there is one of them, and room for readers.
            Share::Access(Access::UpgradableRead) => ALL / 2 + 1,
        }
    }
}

impl Access {
    /// How scripts call it.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Access::Read => b'r',
            Access::UpgradableRead => b'u',
            Access::Write => b'w',
        }
    }
}

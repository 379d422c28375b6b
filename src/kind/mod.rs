//! The kinds of lock as their users see them, and the guards of their holds.

/// A module for each kind, with the texts of its scripts.
macro_rules! compose {
    ($($kind:ident { $($script:ident: $($file:literal),+;)+ })+) => {
        $(pub(crate) mod $kind {
            $(pub(crate) const $script: &str = concat!($(include_str!($file)),+);)+
        })+
    };
}

mod composition;
pub(crate) mod election;
mod guard;
mod handle;
mod hold;
mod hold_method;
mod method;
pub(crate) mod multi;
pub(crate) mod mutex;
mod once;
mod owned;
mod owned_method;
mod owner_value;
pub(crate) mod reentrant;
mod reentry;
mod rw_lock;
pub(crate) mod semaphore;
#[cfg(test)]
mod tests;
mod view_method;
mod watch;
pub(crate) mod weighted;

use crate::protocol::lock_kind::LockKind;

pub use election::{Election, Leader, Leadership, Observation, Observed};
pub use guard::Guard;
pub(crate) use handle::Handle;
pub use multi::{MultiGuard, Part, PartGuard};
pub use mutex::Mutex;
pub use once::{Begun, LastRun, Missed, Once, Period, Run, RunEnd, RunOutcome, RunResult};
pub use owned::OwnedLease;
pub use reentrant::ReentrantLock;
pub(crate) use reentry::waits_for_itself;
pub use rw_lock::{ReadGuard, RwLock, UpgradableReadGuard, WriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use watch::LeaseWatch;

/// The kinds of lock on one server that have one holder.
pub(crate) const KINDS: &[&dyn LockKind] =
    &[&mutex::MutexKind, &reentrant::ReentrantKind, &election::ElectionKind];

/// The kinds of lock on one server that several may hold at a time.
pub(crate) static SHARED_KINDS: [&dyn LockKind; 2] = [&weighted::SEMAPHORE, &weighted::RW_LOCK];

/// The kinds of lock on a majority of several servers.
#[cfg(test)]
pub(crate) const QUORUM_KINDS: &[&dyn LockKind] = &[&mutex::quorum::QuorumKind];

//! The kinds of lock as their users see them, and what they have in their hands while they hold one.

/// A script made of files of this folder, one after the other.
macro_rules! script {
    ($($file:literal),+) => {
        $crate::wire::script::Script::new(concat!($(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/kind/",
            $file
        ))),+))
    };
}

mod guard;
mod handle;
mod method;
pub(crate) mod mutex;
mod owned;
pub(crate) mod reentrant;
#[cfg(test)]
mod tests;
mod watch;

#[cfg(test)]
use crate::protocol::lock_kind::LockKind;

pub use guard::Guard;
pub(crate) use handle::Handle;
pub use mutex::Mutex;
pub use owned::OwnedLease;
pub use reentrant::ReentrantLock;
pub use watch::LeaseWatch;

/// Every kind of a lock that one server has at a time.
#[cfg(test)]
pub(crate) const KINDS: &[&dyn LockKind] = &[&mutex::MutexKind, &reentrant::ReentrantKind];

/// Every kind of a lock that a majority of several servers has.
#[cfg(test)]
pub(crate) const QUORUM_KINDS: &[&dyn LockKind] = &[&mutex::quorum::QuorumKind];

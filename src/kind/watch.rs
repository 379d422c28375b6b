//! A view of a hold for other threads.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::token::FencingToken;
use crate::engine::holding::Holding;
use crate::kind::{Guard, OwnedLease};

/// Tells whether a hold is still valid, on any thread.
///
/// [`Guard::lease_watch`] makes it, for threads that help with the work under a lock while its guard stays with
/// the thread that took it. A watch keeps nothing locked: once the lock is released or lost, it is no longer
/// valid. It can be cloned and sent.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex, parts: Vec<u32>) -> leasehold::Result<()> {
/// let guard = lock.lock()?;
/// let watch = guard.lease_watch();
/// std::thread::scope(|scope| {
///     for part in parts {
///         let watch = watch.clone();
///         scope.spawn(move || {
///             if watch.is_valid() {
///                 // … work on this part …
/// #               let _ = part;
///             }
///         });
///     }
/// });
/// guard.release()
/// # }
/// ```
#[derive(Clone)]
pub struct LeaseWatch(Holding);

impl Guard {
    /// A view of this hold for other threads.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) {
    /// let watch = guard.lease_watch();
    /// std::thread::spawn(move || while watch.is_valid() { /* … help … */ });
    /// # }
    /// ```
    pub fn lease_watch(&self) -> LeaseWatch {
        // The watch shares the lease, but is no hold: it has no count and releases nothing when it
        // is dropped. So a forgotten watch keeps memory, and no lock.
        LeaseWatch(self.holding().clone())
    }
}

impl OwnedLease {
    /// A view of this hold for other threads, like [`Guard::lease_watch`].
    ///
    /// ```
    /// # fn demo(owned: &leasehold::OwnedLease) {
    /// println!("{:?} are left", owned.lease_watch().remaining());
    /// # }
    /// ```
    pub fn lease_watch(&self) -> LeaseWatch {
        LeaseWatch(self.holding().clone())
    }
}

impl LeaseWatch {
    /// Whether the hold is still valid, like [`Guard::is_valid`]. No I/O.
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// while watch.is_valid() {
    ///     // … one more step …
    /// #   break;
    /// }
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the hold is still valid, like [`Guard::remaining`]; zero once it was released or lost. No I/O.
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// println!("{:?} are left", watch.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Why the lock was lost, or `None` if it was not: it is held, or was released. No I/O.
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// if let Some(loss) = watch.loss() {
    ///     eprintln!("stopped: {loss}");
    /// }
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.0.loss()
    }

    /// The token of the hold, like [`Guard::fencing_token`].
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// println!("the work goes on with token {}", watch.fencing_token());
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        self.0.lease.terms.token
    }

    /// The same, by a shorter name.
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// assert_eq!(watch.token(), watch.fencing_token());
    /// # }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.fencing_token()
    }
}

// It only reads, so a panic of its user leaves nothing half changed.
impl UnwindSafe for LeaseWatch {}
impl RefUnwindSafe for LeaseWatch {}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseWatch")
            .field("lock", self.0.slot.target())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

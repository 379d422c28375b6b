//! A view of a hold for other threads.

use crate::base::share::Access;
use crate::base::token::FencingToken;
use crate::engine::holding::Holding;
use crate::kind::view_method::view_methods;

/// Tells whether a hold is still valid, on any thread.
///
/// [`Guard::lease_watch`](crate::Guard::lease_watch) makes it, for threads that help with the work under a lock while its guard stays with
/// the thread that took it. A watch keeps nothing locked: once the lock is released or lost, it is no longer
/// valid. The watch of a writer is not valid while its hold is a reader's, and valid again if that becomes the writer
/// once more. It can be cloned and sent.
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
pub struct LeaseWatch {
    holding: Holding,
    /// As what a read-write lock was held when this was made.
    access: Option<Access>,
}

view_methods! {
    LeaseWatch {
        /// The token of the hold, the same as that of its [guard](crate::Guard::fencing_token). No I/O.
        fencing_token
    }
}

impl LeaseWatch {
    /// A view of a hold as what its guard is: a reader's guard outlives the writer's of the same thread.
    pub(super) fn of(holding: &Holding, access: Option<Access>) -> LeaseWatch {
        // The watch shares the lease, but is no hold: it has no count and releases nothing when it
        // is dropped. So a forgotten watch keeps memory, and no lock.
        let access = access.or_else(|| holding.hold.lease.access());
        LeaseWatch { holding: holding.clone(), access }
    }

    fn holding(&self) -> &Holding {
        &self.holding
    }

    fn access(&self) -> Option<Access> {
        self.access
    }

    /// The owner's value of the hold in Redis, as [`Holder::owner`](crate::Holder::owner) has it. No I/O.
    ///
    /// Another process can give the lock back with it when this one has died, as by
    /// [`Mutex::release_for`](crate::Mutex::release_for).
    ///
    /// ```
    /// # fn demo(watch: &leasehold::LeaseWatch) {
    /// println!("{}", watch.owner().escape_ascii());
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.holding().hold.lease.value.bytes
    }

    /// The same as [`fencing_token`](Self::fencing_token), by a shorter name.
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

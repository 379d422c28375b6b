//! The mutex.

mod lock_kind;
pub(crate) mod quorum;

use crate::kind::Handle;
use crate::kind::method::{kind_methods, lock_methods};
use crate::kind::owned_method::owned_methods;

pub(crate) use lock_kind::MutexKind;

/// A lock that one thread of one process holds at a time. The one to use.
///
/// **What it guarantees.** It is held by at most one holder inside that holder's validity window, on one Redis
/// that has lost no writes; see the [promise](crate#the-promise). It also excludes any client that does
/// `SET NX PX` on the same key.
///
/// **What breaks that.** A fail-over to a replica that missed the write, `FLUSHALL`, a forced release, a jump
/// of the server's clock, or a holder that is paused for longer than its lease. Then the
/// [fencing token](crate::Guard::fencing_token), checked at the resource, protects you.
/// [Limits](crate::guide::limits) has the whole list.
///
/// **How it differs from [`std::sync::Mutex`].** Taking it does I/O and can fail. It can be lost while it is
/// held. It contains no data. It is reentrant, unless [an option](crate::LockOptions::reentrant) says otherwise: a
/// thread that holds it can take it again without waiting. A panic does not poison it: the guard's drop releases it.
///
/// Handles are cheap to clone and to send. All handles of one name in one client are one lock.
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// let lock = client.mutex("orders:42")?;
/// let guard = lock.lock()?;
/// // … the work …
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex(Handle);

kind_methods!(Mutex, "let lock = client.mutex(\"orders:42\")?;");
lock_methods!(Mutex, "let lock = client.mutex(\"orders:42\")?;");
owned_methods! {
    Mutex, "let lock = client.mutex(\"orders:42\")?;", None, "", "lock";
    lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until
}

impl Mutex {
    /// Asks the present holder, in whatever process, to release the lock. Returns whether its
    /// process received the request, as far as Redis counts listeners: a client that listens at a
    /// replica of the server receives it, but is not counted.
    ///
    /// In the holder's process,
    /// [`on_release_request`](crate::LockClientBuilder::on_release_request) runs; a lease that only
    /// lingers is released at once. Only a client that listens receives the request: one that has
    /// such a callback, that has waited in the queue before, or whose locks linger. Nobody receives
    /// a request for a lock on several servers ([`QuorumClient`](crate::QuorumClient)).
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// if !lock.request_release()? {
    ///     println!("nobody received it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_release(&self) -> crate::Result<bool> {
        self.0.request_release()
    }

    /// Like [`force_release`](Self::force_release), but also deletes a string that does not look like a lock: one
    /// without a time to live that this library did not write.
    ///
    /// The caller states that the string is a lock. If it is data, the data is deleted.
    ///
    /// # Errors
    ///
    /// Those of `force_release`, but any string counts as a lock.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// // Another program took it by `SETNX`, and died.
    /// if lock.holder()?.is_some_and(|holder| holder.owner() == b"old-worker") {
    ///     lock.force_release_any()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn force_release_any(&self) -> crate::Result<bool> {
        self.0.force_release(true)
    }
}

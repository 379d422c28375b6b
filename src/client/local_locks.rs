//! Locks by key inside one process.

mod registry;
mod thread_hold;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::close_report::CloseReport;
use crate::base::error::Result;
use crate::base::inspection::Inspection;
use crate::base::name::Name;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock};
use crate::base::token::FencingToken;
use crate::client::DistributedLock;
use crate::kind::waits_for_itself;
use registry::Registry;
use thread_hold::Entry;

/// Locks by key inside this process, without Redis: for tests, and for a program that runs as one
/// process.
///
/// It has no thread of its own and does no I/O. Clones are the same locks.
///
/// Code that is written against [`DistributedLock`] sees what it would see over Redis:
///
/// - A lock is held by one thread at most, and that thread can take it again. Threads get it in
///   order of arrival.
/// - A fixed lease ends on this machine's monotonic clock, which on Linux counts through suspend.
///   Then the next thread gets the lock, and the [`unlock`](DistributedLock::unlock) of the thread
///   that had it [reports the loss](crate::Error::is_lost).
/// - A renewed lease lasts until the lock is released: the process that would renew it is there as
///   long as the lock.
/// - A thread that ends releases what it still holds.
/// - The same names and leases are refused as by a [`LockClient`](crate::LockClient) without a
///   prefix.
///
/// It does *not* keep out another process, which includes a fork of this one, or another
/// `LocalLocks`. Redis cannot fail here, so code that handles an outage is better tested with the
/// feature `testing`.
///
/// ```
/// use leasehold::{DistributedLock, Lease, LocalLocks, Result};
/// use std::time::Duration;
///
/// fn ship(locks: &dyn DistributedLock, order: &str) -> Result<&'static str> {
///     locks.with_lock(order, Duration::from_secs(2), Lease::default(), || "shipped")
/// }
///
/// # fn main() -> Result<()> {
/// let locks = LocalLocks::new();
/// assert_eq!(ship(&locks, "orders:42")?, "shipped");
///
/// // Somebody else has it: another thread.
/// std::thread::scope(|scope| {
///     assert!(locks.try_lock("orders:42", Duration::ZERO, Lease::default())?);
///     let busy = scope.spawn(|| locks.try_lock("orders:42", Duration::ZERO, Lease::default()));
///     assert!(!busy.join().unwrap()?);
///     locks.unlock("orders:42")
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct LocalLocks {
    registry: Arc<Registry>,
    once_per_thread: bool,
}

impl LocalLocks {
    /// New locks, of which none is held.
    ///
    /// ```
    /// use leasehold::{DistributedLock, LocalLocks};
    ///
    /// let locks = LocalLocks::new();
    /// assert!(!locks.is_held("orders:42"));
    /// ```
    pub fn new() -> LocalLocks {
        LocalLocks::with_clock(Arc::new(BootClock))
    }

    fn with_clock(clock: Arc<dyn Clock>) -> LocalLocks {
        LocalLocks { registry: Arc::new(Registry::new(clock)), once_per_thread: false }
    }

    /// The same locks through a handle with which the thread that has a lock may take it again, or not; default yes. It is
    /// [`reentrant_by_key`](crate::LockClientBuilder::reentrant_by_key) of a client.
    ///
    /// ```
    /// use leasehold::{DistributedLock, Lease, LocalLocks};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let locks = LocalLocks::new().reentrant_by_key(false);
    /// assert!(locks.try_lock("orders:42", Duration::ZERO, Lease::default())?);
    /// assert!(!locks.try_lock("orders:42", Duration::from_secs(2), Lease::default())?);
    /// locks.unlock("orders:42")
    /// # }
    /// ```
    #[must_use = "it returns the handle"]
    pub fn reentrant_by_key(self, reentrant: bool) -> LocalLocks {
        LocalLocks { once_per_thread: !reentrant, ..self }
    }

    /// The token of this thread's hold of the key; `None` if it does not hold the key, or has lost
    /// it.
    ///
    /// Tokens grow from hold to hold, whatever the keys. A token is at least this machine's time in
    /// microseconds. So tokens go on growing when the program starts again, or moves to locks on
    /// Redis, as long as no clock was set back meanwhile.
    ///
    /// ```
    /// use leasehold::{DistributedLock, Lease, LocalLocks};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let locks = LocalLocks::new();
    /// locks.with_lock("orders:42", Duration::ZERO, Lease::default(), || {
    ///     let token = locks.fencing_token("orders:42");
    ///     assert!(token.is_some());
    ///     // … a write that refuses a token below the highest that was seen …
    /// })?;
    /// assert_eq!(locks.fencing_token("orders:42"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        thread_hold::token(&self.registry, &name(key).ok()?)
    }

    /// Ends these locks, and lets work that is under way finish, like
    /// [`LockClient::close`](crate::LockClient::close). Nothing has to reach a server here, so
    /// `within` is not needed; it is there for code that changes from one to the other.
    ///
    /// ```
    /// use leasehold::{DistributedLock, Lease, LocalLocks};
    /// use std::time::Duration;
    ///
    /// let locks = LocalLocks::new();
    /// let report = locks.close(Duration::from_secs(25), Duration::from_secs(2));
    /// assert!(report.taken().is_empty());
    /// let error = locks.try_lock("orders:42", Duration::ZERO, Lease::default()).unwrap_err();
    /// assert!(error.is_cancelled() && locks.is_closed());
    /// ```
    pub fn close(&self, grace: Duration, within: Duration) -> CloseReport {
        self.registry.close(grace, within)
    }

    /// Whether these locks were closed: then no lock is granted any more.
    ///
    /// ```
    /// assert!(!leasehold::LocalLocks::new().is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.registry.is_closing()
    }
}

impl LocalLocks {
    /// Who holds the key, since when, and who waits for it: threads of this process, each with its own place. A
    /// renewed lease has no end here.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a key that is not allowed.
    ///
    /// ```
    /// use leasehold::{DistributedLock, Lease, LocalLocks};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let locks = LocalLocks::new();
    /// locks.with_lock("orders:42", Duration::ZERO, Lease::default(), || {
    ///     let token = locks.inspect("orders:42").unwrap().holders()[0].token();
    ///     assert_eq!(token, locks.fencing_token("orders:42"));
    /// })?;
    /// assert_eq!(locks.inspect("orders:42")?.to_string(), "free\nnobody waits");
    /// # Ok(())
    /// # }
    /// ```
    pub fn inspect(&self, key: &str) -> Result<Inspection> {
        Ok(self.registry.inspect(&name(key)?))
    }
}

with_lock!(LocalLocks, |_, key| Name::new(&[], key));

/// The name of a key, checked as by a client without a prefix.
fn name(key: &str) -> Result<Name> {
    Name::new(&[], key.as_bytes())
}

impl DistributedLock for LocalLocks {
    fn try_lock(&self, key: &str, wait: Duration, lease: Lease) -> Result<bool> {
        LockOptions::new().lease(lease).check()?;
        let name = name(key)?;
        // Before the queue, or a thread would wait for itself. It also finds out whether this
        // thread can keep a hold at all, so that nothing is acquired for a thread that is ending.
        match thread_hold::enter(&self.registry, &name, lease, self.once_per_thread)? {
            Entry::Entered => return Ok(true),
            Entry::Busy if self.registry.is_endless(wait) => {
                return Err(waits_for_itself("that hold is not reentrant").of(&name));
            }
            Entry::Busy => return Ok(false),
            Entry::Outside => {}
        }
        let grant = self.registry.acquire(&name, wait, lease)?;
        let once = self.once_per_thread;
        let adopt = |grant| thread_hold::adopt(&self.registry, name, grant, lease, once);
        Ok(grant.map(adopt).is_some())
    }

    fn unlock(&self, key: &str) -> Result<()> {
        thread_hold::leave(&self.registry, &name(key)?)
    }

    fn is_held(&self, key: &str) -> bool {
        self.fencing_token(key).is_some()
    }
}

impl Default for LocalLocks {
    fn default() -> LocalLocks {
        LocalLocks::new()
    }
}

// A panic leaves none of its locks poisoned.
impl UnwindSafe for LocalLocks {}
impl RefUnwindSafe for LocalLocks {}

impl fmt::Debug for LocalLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLocks").finish_non_exhaustive()
    }
}

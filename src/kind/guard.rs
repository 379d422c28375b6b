//! The guard of a thread's hold.

use crate::base::error::Result;
use crate::kind::hold::ThreadHeld;
use crate::kind::hold_method::hold_methods;

/// One hold of a lock, which releases the lock when it is dropped.
///
/// It belongs to the thread that took the lock: it is not [`Send`]. [`into_owned`](Guard::into_owned) makes an
/// [`OwnedLease`](crate::OwnedLease) of it, which can be sent to another thread.
///
/// A future that has a guard across an `.await` is not `Send`, and the compiler refuses to spawn it. Take an owned lease
/// there, by [`lock_owned`](crate::Mutex::lock_owned): see [Lock in async
/// code](crate::guide::recipes#lock-in-async-code).
///
/// It keeps alive what it needs, so it may outlive its lock and its client. When a thread holds a lock several
/// times, dropping the last guard releases it.
///
/// A drop makes one attempt to release, bounded by the client's time-outs, and repeats it once if the pooled
/// connection was dead. If that fails, it logs a warning and leaves the release to the client's worker;
/// [`release`](Guard::release) returns an error instead.
///
/// A panic does not poison the lock: unwinding drops the guard.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// let guard = lock.lock()?;
/// println!("valid for {:?}, with token {}", guard.remaining(), guard.fencing_token());
/// // Released here.
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the lock is released at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub struct Guard(pub(super) ThreadHeld);

hold_methods! {
    Guard {
        /// The token of this hold, greater than that of every hold before it. No I/O.
        ///
        /// Send it along with every write to the resource, and let the resource refuse a lower one than
        /// it has seen. That protects it even from a holder that was paused past its lease.
        fencing_token;
        /// The callback belongs to the hold: all guards of this thread's hold share it, and it goes along with
        /// [`into_owned`](Self::into_owned).
        on_loss;
        transaction;
        ///
        /// If the thread holds the lock several times, only the last release goes to Redis.
        release
    }
}

impl Guard {
    pub(crate) fn new(held: ThreadHeld) -> Guard {
        Guard(held)
    }

    #[cfg(test)]
    pub(crate) fn hold(&self) -> &crate::base::sync::Arc<crate::engine::hold::Hold> {
        &self.holding().hold
    }

    /// How many times this thread holds the lock. No I/O.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// let outer = lock.lock()?;
    /// let inner = lock.lock()?;
    /// assert_eq!(outer.hold_count(), 2);
    /// drop(inner);
    /// assert_eq!(outer.hold_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_count(&self) -> u32 {
        self.0.hold().count()
    }

    /// Its owner's value in Redis.
    pub(super) fn owner(&self) -> &[u8] {
        &self.holding().hold.lease.value.bytes
    }

    /// Releases as a drop does, but returns a loss, also one that may have been.
    pub(crate) fn finish(self) -> Result<()> {
        match self.release() {
            // The work was done under a valid hold, and its result must not be thrown away because
            // Redis did not confirm the release. After a loss it may be wrong, and the caller has
            // to know.
            Err(error) if !error.may_be_lost() => {
                log!(warn, "{error}; the worker goes on releasing it");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Leaves the hold to its thread, which releases it by key or at its end.
    pub(crate) fn keep(self) -> Result<()> {
        self.0.keep()
    }
}

//! A hold that can be sent to another thread.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::error::Result;
use crate::base::loss::Loss;
use crate::base::token::FencingToken;
use crate::engine::holding::Holding;
use crate::engine::thread_hold::adopt;
use crate::kind::Guard;

/// A hold that belongs to no thread, and can be sent to one.
///
/// [`Guard::into_owned`] makes it. It is renewed like any other hold, and released when it is dropped. No thread
/// can reenter it before [`into_guard`](OwnedLease::into_guard) has made it that thread's hold.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// let owned = lock.lock()?.into_owned().expect("held once");
/// std::thread::spawn(move || {
///     // … the rest of the work …
///     owned.release()
/// });
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the lock is released immediately"]
pub struct OwnedLease(Option<Holding>);

impl Guard {
    /// Takes the hold out of this thread, to send it to another thread.
    ///
    /// # Errors
    ///
    /// Returns the guard if the thread holds the lock more than once.
    ///
    /// ```
    /// # fn demo(guard: leasehold::Guard) {
    /// let owned = guard.into_owned().expect("held once");
    /// std::thread::spawn(move || {
    ///     let guard = owned.into_guard();
    ///     // … goes on with the work, and drops the guard …
    /// });
    /// # }
    /// ```
    pub fn into_owned(mut self) -> std::result::Result<OwnedLease, Guard> {
        match self.0.take() {
            // Only the last hold. With others left this thread would go on as a holder while the
            // new thread releases the lock.
            Some(hold) if hold.count() == 1 => {
                // Takes the hold out of this thread's table, so that a reentry here waits for the
                // lock like any other thread. The lease itself goes on.
                hold.leave();
                Ok(OwnedLease(Some(hold.holding().clone())))
            }
            // Put back, or the drop of the guard would find nothing to release.
            hold => {
                self.0 = hold;
                Err(self)
            }
        }
    }
}

impl OwnedLease {
    pub(super) fn holding(&self) -> &Holding {
        // Only methods that consume the lease take it.
        self.0.as_ref().expect("an owned lease is there until it is consumed")
    }

    /// Makes it the hold of the thread that calls this.
    ///
    /// ```
    /// # fn demo(owned: leasehold::OwnedLease, lock: leasehold::Mutex) {
    /// std::thread::spawn(move || {
    ///     let guard = owned.into_guard();
    ///     // This thread holds the lock now, and may take it again.
    ///     assert!(lock.is_held_by_current_thread());
    /// });
    /// # }
    /// ```
    pub fn into_guard(mut self) -> Guard {
        // Also for a lease that was lost on its way: the guard then reports the loss, where an
        // error here would leave the caller without anything to ask for its cause.
        let holding = self.0.take().expect("an owned lease is there until it is consumed");
        Guard::new(adopt(holding))
    }

    /// The token of this hold, like [`Guard::fencing_token`].
    ///
    /// ```
    /// # fn demo(owned: leasehold::OwnedLease) {
    /// let token = owned.fencing_token();
    /// std::thread::spawn(move || owned.release());
    /// println!("the work goes on with token {token}");
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        self.holding().lease.terms.token
    }

    /// Whether the lease is still valid, like [`Guard::is_valid`].
    ///
    /// ```
    /// # fn demo(jobs: std::sync::mpsc::Receiver<leasehold::OwnedLease>) {
    /// // A job that has waited for too long is not begun.
    /// for owned in jobs.iter().filter(|owned| owned.is_valid()) {
    ///     let guard = owned.into_guard();
    ///     // … the work …
    /// }
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease is still valid, like [`Guard::remaining`].
    ///
    /// ```
    /// # fn demo(owned: &leasehold::OwnedLease) {
    /// let deadline = std::time::Instant::now() + owned.remaining();
    /// println!("with a fixed lease it must be done by {deadline:?}");
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.holding().remaining()
    }

    /// Why the lock was lost, or `None` if it was not.
    ///
    /// ```
    /// # fn demo(owned: &leasehold::OwnedLease) {
    /// if let Some(loss) = owned.loss() {
    ///     eprintln!("lost before any thread took it over: {loss}");
    /// }
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.holding().loss()
    }

    /// Calls `callback` once if the lock is lost before its release, like [`Guard::on_loss`].
    ///
    /// ```
    /// # fn demo(owned: &leasehold::OwnedLease) {
    /// owned.on_loss(|loss| eprintln!("{loss}"));
    /// # }
    /// ```
    pub fn on_loss(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        self.holding().on_loss(Box::new(callback));
    }

    /// Releases it, and returns an error if that went wrong.
    ///
    /// # Errors
    ///
    /// The same as for [`Guard::release`].
    ///
    /// ```
    /// # fn demo(owned: leasehold::OwnedLease) -> leasehold::Result<()> {
    /// match owned.release() {
    ///     Err(error) if error.is_lost() => eprintln!("somebody else may have been here: {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self) -> Result<()> {
        // Taken, so that the drop at the end of this call does not release a second time.
        self.0.take().map_or(Ok(()), |holding| holding.release())
    }
}

// As for a guard: a panic leaves no hold half changed.
impl UnwindSafe for OwnedLease {}
impl RefUnwindSafe for OwnedLease {}

impl Drop for OwnedLease {
    fn drop(&mut self) {
        // Each error is logged, unlike in a guard's drop. No key releases an owned lease, so none
        // of them is the program's own doing.
        if let Some(holding) = self.0.take()
            && let Err(error) = holding.release()
        {
            log!(warn, "{error}");
        }
    }
}

impl fmt::Debug for OwnedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedLease")
            .field(&self.0.as_ref().map(|holding| holding.lease.terms.token))
            .finish()
    }
}

//! A hold that can be sent to another thread.

use crate::kind::Guard;
use crate::kind::hold::OwnedHold;
use crate::kind::hold_method::hold_methods;

/// A hold that belongs to no thread, and can be sent to one.
///
/// [`lock_owned`](crate::Mutex::lock_owned) and its variants take one, [`claim`](crate::LockClient::claim) takes several, and
/// [`Guard::into_owned`] makes one of a guard. It is renewed like any other hold, and released when it is dropped. No
/// thread can reenter it before [`into_guard`](OwnedLease::into_guard) has made it that thread's hold.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// let owned = lock.lock_owned()?;
/// std::thread::spawn(move || {
///     // … the rest of the work …
///     owned.release()
/// });
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the lock is released at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub struct OwnedLease(OwnedHold);

hold_methods! {
    OwnedLease {
        /// The token of this hold, the same as that of its [guard](Guard::fencing_token). No I/O.
        fencing_token;
        /// The callback belongs to the hold, and goes along with [`into_guard`](Self::into_guard).
        on_loss;
        transaction;
        release
    }
}

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
    pub fn into_owned(self) -> std::result::Result<OwnedLease, Guard> {
        self.0.into_owned().map(OwnedLease).map_err(Guard)
    }
}

impl OwnedLease {
    pub(crate) fn new(hold: OwnedHold) -> OwnedLease {
        OwnedLease(hold)
    }

    pub(super) fn into_hold(self) -> OwnedHold {
        self.0
    }

    /// The lock's name in Redis, the client's prefix included.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient, jobs: &[leasehold::Mutex]) -> leasehold::Result<()> {
    /// for lease in client.claim(jobs, 10)? {
    ///     println!("{} is mine", lease.name().escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        self.holding().name().as_bytes()
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
    pub fn into_guard(self) -> Guard {
        Guard(self.0.into_thread())
    }
}

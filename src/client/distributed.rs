//! Lock and unlock by key: the interface that many articles and other libraries have.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::option::Lease;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::client::{LockClient, QuorumClient};
use crate::kind::Guard;
use crate::kind::mutex::MutexKind;

/// Locking by key, for code that is ported from Jedis or Spring, or that swaps implementations.
///
/// A hold belongs to the thread that took it, and is reentrant, unless
/// [the client says otherwise](crate::LockClientBuilder::reentrant_by_key): each `try_lock` that returned
/// `true` needs its own `unlock`. When a thread ends, the client releases what the thread still
/// holds, as long as the process lives.
///
/// On a [`LockClient`] and a [`QuorumClient`] the keys are those of [`Mutex`](crate::Mutex).
/// [`LocalLocks`](crate::LocalLocks) needs no Redis, and excludes the threads of one process. An
/// implementation of your own makes its errors with [`Error::new`]. A reference to an
/// implementation, a `&`, a [`Box`] or an [`Arc`], is an implementation too.
///
/// ```
/// use leasehold::{DistributedLock, Lease, Result};
/// use std::time::Duration;
///
/// fn pay(locks: &dyn DistributedLock) -> Result<()> {
///     if locks.try_lock("orders:42", Duration::from_secs(2), Lease::default())? {
///         // … the work …
///         locks.unlock("orders:42")?;
///     }
///     locks.with_lock("orders:43", Duration::from_secs(2), Lease::default(), || {
///         // … released also if the work panics …
///     })
/// }
/// ```
pub trait DistributedLock {
    /// Waits for the lock of this key for at most `wait`. Returns `false` if somebody else had it
    /// all the time.
    ///
    /// A thread that holds the key already has at least this `lease` until the matching `unlock`: one that ends later
    /// makes that of the hold longer, and a renewed one is renewed. The hold keeps the later end.
    ///
    /// # Errors
    ///
    /// The same as for [`Mutex::try_lock_for`](crate::Mutex::try_lock_for). Also
    /// [`is_refused`](crate::Error::is_refused) in a destructor at the end of the thread, when the
    /// thread's holds have been released.
    ///
    /// ```
    /// # use leasehold::{DistributedLock, Lease};
    /// # use std::time::Duration;
    /// # fn demo(locks: &dyn DistributedLock) -> leasehold::Result<()> {
    /// if !locks.try_lock("orders:42", Duration::ZERO, Lease::default())? {
    ///     println!("somebody else has it");
    ///     return Ok(());
    /// }
    /// // … the work …
    /// locks.unlock("orders:42")?;
    /// # Ok(())
    /// # }
    /// ```
    fn try_lock(&self, key: &str, wait: Duration, lease: Lease) -> Result<bool>;

    /// Releases this thread's hold of the key.
    ///
    /// # Errors
    ///
    /// [`is_not_held`](crate::Error::is_not_held) if this thread does not hold the key, or has lost
    /// it; the key in Redis is then left alone. Otherwise the same as for [`Guard::release`].
    ///
    /// ```
    /// # use leasehold::DistributedLock;
    /// # fn demo(locks: &dyn DistributedLock) -> leasehold::Result<()> {
    /// match locks.unlock("orders:42") {
    ///     Err(error) if error.is_not_held() => eprintln!("it was not ours to the end: {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn unlock(&self, key: &str) -> Result<()>;

    /// Whether this thread holds the key and its lease is still valid. No I/O.
    ///
    /// ```
    /// # use leasehold::DistributedLock;
    /// /// The caller must hold the lock of the order.
    /// fn ship(locks: &dyn DistributedLock, order: &str) {
    ///     assert!(locks.is_held(order), "{order} is not locked");
    ///     // … the work …
    /// }
    /// ```
    fn is_held(&self, key: &str) -> bool;
}

/// The trait for references and smart pointers.
macro_rules! forwarded {
    ($($reference:ty),+) => {$(
        impl<L: DistributedLock + ?Sized> DistributedLock for $reference {
            fn try_lock(&self, key: &str, wait: Duration, lease: Lease) -> Result<bool> {
                (**self).try_lock(key, wait, lease)
            }

            fn unlock(&self, key: &str) -> Result<()> {
                (**self).unlock(key)
            }

            fn is_held(&self, key: &str) -> bool {
                (**self).is_held(key)
            }
        }
    )+};
}

forwarded!(&L, Box<L>, Arc<L>);

/// An inherent method instead of one of the trait: with its type parameters, a trait method could
/// not be called on a trait object, and its name would hide the inherent one there. Generic code
/// calls it on its `&L` as a `&dyn DistributedLock`.
macro_rules! with_lock {
    ($locks:ty, $name:expr) => {
        impl $locks {
            /// Does the work under the lock of this key, after waiting for it for at most `wait`.
            ///
            /// It releases the lock also if the work panics. `&dyn DistributedLock` has this method
            /// too; code that is generic over the trait calls it there.
            ///
            /// # Errors
            ///
            /// [`is_timeout`](crate::Error::is_timeout) if somebody else had the lock all the time;
            /// [`is_config`](crate::Error::is_config) if this thread has it, and locks by key are
            /// [not reentrant](crate::LockClientBuilder::reentrant_by_key);
            /// [`is_lost`](crate::Error::is_lost) if it was lost during the work, and
            /// [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if it may have been: a request for its release had
            /// no reply, and the next one did not find it; otherwise the same as for [`DistributedLock::try_lock`].
            ///
            /// ```
            /// # use leasehold::{DistributedLock, Lease, LocalLocks, LockClient, QuorumClient, Result};
            /// # use std::time::Duration;
            #[doc = concat!("# fn demo(locks: &(", stringify!($locks), ")) -> Result<()> {")]
            /// let soon = Duration::from_secs(2);
            /// let total = locks.with_lock("orders:42", soon, Lease::default(), || {
            ///     // … the work …
            ///     42
            /// })?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn with_lock<T>(
                &self,
                key: &str,
                wait: Duration,
                lease: Lease,
                work: impl FnOnce() -> T,
            ) -> Result<T> {
                let name: fn(&Self, &[u8]) -> Result<Name> = $name;
                let name = || name(self, key.as_bytes());
                $crate::client::distributed::with_lock(self, name, key, wait, lease, work)
            }
        }
    };
}

with_lock!(dyn DistributedLock + '_, |_, key| Name::new(&[], key));
with_lock!(dyn DistributedLock + Send + '_, |_, key| Name::new(&[], key));
with_lock!(dyn DistributedLock + Sync + '_, |_, key| Name::new(&[], key));
with_lock!(dyn DistributedLock + Send + Sync + '_, |_, key| Name::new(&[], key));

/// Runs the work under the lock. Errors name the lock by `name`.
pub(super) fn with_lock<T>(
    locks: &(impl DistributedLock + ?Sized),
    name: impl FnOnce() -> Result<Name>,
    key: &str,
    wait: Duration,
    lease: Lease,
    work: impl FnOnce() -> T,
) -> Result<T> {
    /// Releases the lock, also when the work panics.
    struct Held<'a, L: DistributedLock + ?Sized>(&'a L, &'a str);

    impl<L: DistributedLock + ?Sized> Held<'_, L> {
        fn unlock(&self) -> Result<()> {
            match self.0.unlock(self.1) {
                // The work was done under the lock, and its value must not be lost because the
                // release failed: the lease ends the lock. Only a loss is an error, since then the
                // work was not protected, and what may have been one.
                Err(error) if !error.is_not_held() && !error.may_be_lost() => {
                    log!(warn, "{error}; it ends with its lease at the latest");
                    Ok(())
                }
                outcome => outcome,
            }
        }
    }

    impl<L: DistributedLock + ?Sized> Drop for Held<'_, L> {
        fn drop(&mut self) {
            if let Err(error) = self.unlock() {
                log!(warn, "{error}");
            }
        }
    }

    if !locks.try_lock(key, wait, lease)? {
        let error = match locks.is_held(key) {
            // It did not wait: nobody but this thread could have ended that.
            true => Error::config(
                "reentry",
                "this thread holds the lock already, and locks by key are not reentrant here",
                "the release of that hold first",
            ),
            false => Error::timeout(format!(
                "timed out after {}, as another holder has it; wait longer or try again later",
                Span(wait)
            )),
        };
        // Another implementation may accept keys that are no valid names here.
        return Err(match name() {
            Ok(name) => error.of(&name),
            Err(_) => error,
        });
    }
    let held = Held(locks, key);
    let value = work();
    let outcome = held.unlock();
    // Its destructor would unlock once more: an outer hold of the same thread, or a logged error.
    std::mem::forget(held);
    outcome.map(|()| value)
}

/// The trait for a client, which finds its holds by key.
macro_rules! by_key {
    ($client:ty $(, $kind:expr)?) => {
        with_lock!($client, |client, key| {
            client.hold_of($($kind,)? key).map(|hold| hold.name().clone())
        });

        impl DistributedLock for $client {
            fn try_lock(&self, key: &str, wait: Duration, lease: Lease) -> Result<bool> {
                let lock = self.mutex_with(key, self.key_options().lease(lease))?;
                // `keep` leaves the hold with the thread, where `unlock` finds it. It fails if the
                // thread is ending: nobody could unlock such a hold any more.
                Ok(lock.try_lock_for(wait)?.map(Guard::keep).transpose()?.is_some())
            }

            fn unlock(&self, key: &str) -> Result<()> {
                self.hold_of($($kind,)? key.as_bytes())?.unlock()
            }

            fn is_held(&self, key: &str) -> bool {
                self.hold_of($($kind,)? key.as_bytes())
                    .is_ok_and(|hold| hold.is_held_by_current_thread())
            }
        }
    };
}

by_key!(LockClient, &MutexKind);
by_key!(QuorumClient);

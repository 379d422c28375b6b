//! The guards of a read-write lock.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::share::Access;
use crate::engine::slot::WaitLimit;
use crate::kind::OwnedLease;
use crate::kind::hold::ThreadHeld;
use crate::kind::hold_method::hold_methods;

/// A guard, and what all three have.
macro_rules! access_guard {
    (
        $(#[$doc:meta])*
        $guard:ident, $take:literal;
        $(#[$token:meta])* fencing_token
    ) => {
        $(#[$doc])*
        ///
        /// It belongs to the thread that took the lock: it is not [`Send`]. It keeps alive what it needs, so it may outlive
        /// its lock and its client. When a thread holds the lock several times, dropping the last guard releases it. A
        /// drop makes one attempt to release, as with a [`Guard`](crate::Guard). A panic does not poison the lock.
        ///
        /// ```
        /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
        #[doc = concat!("let guard = lock.", $take, "()?;")]
        /// println!("valid for {:?}", guard.remaining());
        /// guard.release()
        /// # }
        /// ```
        #[must_use = "if unused the lock is released at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
        pub struct $guard(pub(in crate::kind) ThreadHeld);

        hold_methods! {
            $guard {
                $(#[$token])*
                fencing_token;
                /// The callback belongs to the hold: all guards of this thread's hold share it.
                on_loss;
                /// The names of the keys must be arguments of the commands, and are asked for before, which is one more
                /// round trip. Numbers above 2<sup>53</sup> in replies lose digits. A script runs the commands, so one
                /// that no script may call, such as `EVAL`, is refused: see
                /// [Limits](crate::guide::limits#transactions-that-a-script-runs).
                transaction;
                ///
                /// If the thread holds the lock several times, only the last release gives it back.
                release
            }
        }

        impl $guard {
            pub(in crate::kind) fn new(held: ThreadHeld) -> $guard {
                $guard(held)
            }

            /// Takes the hold out of this thread, to send it to another thread.
            ///
            /// # Errors
            ///
            /// Returns the guard if the thread holds the lock more than once.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: leasehold::", stringify!($guard), ") {")]
            /// let owned = guard.into_owned().expect("held once");
            /// std::thread::spawn(move || {
            ///     // … the rest of the work …
            ///     owned.release()
            /// });
            /// # }
            /// ```
            pub fn into_owned(self) -> std::result::Result<OwnedLease, $guard> {
                self.0.into_owned().map(OwnedLease::new).map_err($guard)
            }
        }
    };
}

access_guard! {
    /// A hold of a [`RwLock`](crate::RwLock) by a reader, beside others.
    ReadGuard, "read";
    /// The token of this hold. No I/O.
    ///
    /// Tokens of readers say nothing about each other. A resource compares a reader's token with the last one of a
    /// [writer](crate::WriteGuard), and refuses a reader that is older.
    fencing_token
}
access_guard! {
    /// The hold of a [`RwLock`](crate::RwLock) by its writer, alone.
    WriteGuard, "write";
    /// The token of this hold, greater than that of every hold before it. No I/O.
    ///
    /// Send it along with every write to the resource, and let the resource refuse a lower one than it has seen of a
    /// writer. That protects it even from a writer that was paused past its lease.
    fencing_token
}
access_guard! {
    /// The hold of a [`RwLock`](crate::RwLock) by its upgradable reader: beside readers, and one at a time.
    UpgradableReadGuard, "upgradable_read";
    /// The token of this hold. No I/O.
    ///
    /// Tokens of readers say nothing about each other. A resource compares a reader's token with the last one of a
    /// [writer](crate::WriteGuard), and refuses a reader that is older.
    fencing_token
}

impl WriteGuard {
    /// Becomes a reader, and lets the readers in that wait before all others. One command.
    ///
    /// The hold goes on: it keeps its lease, its token and its callbacks. No writer can come between. If this thread
    /// writes by another guard too, the lock stays with the writer until that one is gone.
    ///
    /// From here on others read what this thread wrote. A [`transaction`](Self::transaction) whose outcome is
    /// unknown may still be applied while they read.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the lock had been lost. If Redis does not reply, this is a reader all the
    /// same, and the client's worker goes on to tell Redis.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
    /// use leasehold::WriteGuard;
    ///
    /// let guard = lock.write()?;
    /// // … rebuild the catalogue …
    /// let guard = WriteGuard::downgrade(guard)?;
    /// // … and read it, before the next one rebuilds it …
    /// guard.release()
    /// # }
    /// ```
    pub fn downgrade(guard: WriteGuard) -> Result<ReadGuard> {
        guard.0.downgrade(Access::Read).map(ReadGuard)
    }

    /// Becomes the upgradable reader, and lets readers in that wait before all others. One command.
    ///
    /// It is like [`downgrade`](Self::downgrade), but the hold can become the writer again.
    ///
    /// # Errors
    ///
    /// The same as for [`downgrade`](Self::downgrade).
    ///
    /// ```
    /// # fn demo(guard: leasehold::WriteGuard) -> leasehold::Result<()> {
    /// use leasehold::{UpgradableReadGuard, WriteGuard};
    ///
    /// let guard = WriteGuard::downgrade_to_upgradable(guard)?;
    /// // … readers are in …
    /// let guard = UpgradableReadGuard::upgrade(guard)?;
    /// // … and out again …
    /// guard.release()
    /// # }
    /// ```
    pub fn downgrade_to_upgradable(guard: WriteGuard) -> Result<UpgradableReadGuard> {
        guard.0.downgrade(Access::UpgradableRead).map(UpgradableReadGuard)
    }
}

impl UpgradableReadGuard {
    /// Waits without limit until all readers have left, and becomes the writer.
    ///
    /// It goes before all others that wait, and nobody is let in meanwhile, so that what it has read is still true. With
    /// [`Wait::spin`](crate::Wait::spin), as whose waiter nobody is seen, readers may be let in before it. The writer has
    /// a token of its own, above all before it.
    ///
    /// A process that dies at the moment at which it becomes the writer keeps all others out for the rest of its
    /// lease.
    ///
    /// # Errors
    ///
    /// The guard is gone then, and the lock released.
    ///
    /// - [`is_config`](crate::Error::is_config) if this thread reads by another guard too: it would wait for itself;
    /// - [`is_lost`](crate::Error::is_lost) if the lock is lost, also while it waits;
    /// - [`is_cancelled`](crate::Error::is_cancelled) if another thread ended the wait, or closes the client;
    /// - an error of the connection after an outage.
    ///
    /// ```
    /// # fn is_stale() -> bool { true }
    /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
    /// use leasehold::UpgradableReadGuard;
    ///
    /// let guard = lock.upgradable_read()?;
    /// if is_stale() {
    ///     let guard = UpgradableReadGuard::upgrade(guard)?;
    ///     // … rebuild …
    ///     guard.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(guard: UpgradableReadGuard) -> Result<WriteGuard> {
        match guard.0.upgrade(WaitLimit::FOR_EVER)? {
            Ok(held) => Ok(WriteGuard(held)),
            // A wait without an end does not end so.
            Err(held) => Err(held.endless_wait_error()),
        }
    }

    /// Waits for at most `wait` until all readers have left, and becomes the writer. Returns the guard as it was if the
    /// time is over.
    ///
    /// Zero is one attempt. If the time ends during an outage the guard is returned too, as long as its lease is valid.
    ///
    /// # Errors
    ///
    /// The same as for [`upgrade`](Self::upgrade).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(guard: leasehold::UpgradableReadGuard) -> leasehold::Result<()> {
    /// use leasehold::UpgradableReadGuard;
    ///
    /// match UpgradableReadGuard::try_upgrade_for(guard, Duration::from_secs(2))? {
    ///     Ok(guard) => guard.release(),
    ///     Err(guard) => {
    ///         println!("there are still readers");
    ///         guard.release()
    ///     }
    /// }
    /// # }
    /// ```
    pub fn try_upgrade_for(
        guard: UpgradableReadGuard,
        wait: Duration,
    ) -> Result<std::result::Result<WriteGuard, UpgradableReadGuard>> {
        let wait_limit = guard.holding().wait_limit(wait);
        Ok(guard.0.upgrade(wait_limit)?.map(WriteGuard).map_err(UpgradableReadGuard))
    }
}

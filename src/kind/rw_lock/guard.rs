//! The guards of a read-write lock.

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
        #[must_use = "if unused the lock is released immediately"]
        pub struct $guard(pub(in crate::kind) ThreadHeld);

        hold_methods! {
            $guard {
                $(#[$token])*
                fencing_token;
                /// The callback belongs to the hold: all guards of this thread's hold share it.
                on_loss;
                /// The names of the keys must be arguments of the commands, and are asked for before, which is one more
                /// round trip. Numbers above 2<sup>53</sup> in replies lose digits.
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

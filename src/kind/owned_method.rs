//! The public methods of the kinds of lock that take a hold for no thread.

/// These methods of a lock, with this access if it is a read-write lock. The texts say how the lock is held, and by which
/// method of a thread.
macro_rules! owned_methods {
    (
        $kind:ident, $open:literal, $access:expr, $how:literal, $of_thread:literal;
        $wait:ident, $once:ident, $span:ident, $until:ident
    ) => {
        impl $kind {
            #[doc = concat!("Waits without limit to hold the lock", $how, ", and takes it for no thread.")]
            ///
            /// The [`OwnedLease`](crate::OwnedLease) can be sent to another thread, or live in an asynchronous task. It
            /// is never a re-entry: any other call waits for it, also one of the thread that made this call.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", $of_thread, "`](Self::", $of_thread, "), and [`is_config`](crate::Error::is_config) at once if")]
            /// this thread holds the lock by a guard, so that it would wait for itself.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            #[doc = concat!("let lease = lock.", stringify!($wait), "()?;")]
            /// std::thread::spawn(move || {
            ///     // … the work …
            ///     lease.release()
            /// });
            /// # Ok(())
            /// # }
            /// ```
            pub fn $wait(&self) -> $crate::Result<$crate::OwnedLease> {
                let owned = self.0.own($access, $crate::engine::slot::WaitLimit::FOR_EVER)?;
                owned.map($crate::OwnedLease::new).ok_or_else(|| self.0.endless_wait_error())
            }

            #[doc = concat!("Tries in one attempt to hold the lock", $how, ", for no thread; `None` if somebody is in the way.")]
            ///
            /// That may be a guard of this thread.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", $of_thread, "`](Self::", $of_thread, "), at the first failure.")]
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            #[doc = concat!("if let Some(lease) = lock.", stringify!($once), "()? {")]
            ///     std::thread::spawn(move || lease.release());
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn $once(&self) -> $crate::Result<Option<$crate::OwnedLease>> {
                let owned = self.0.own($access, $crate::engine::slot::WaitLimit::TryOnce)?;
                Ok(owned.map($crate::OwnedLease::new))
            }

            #[doc = concat!("Waits for at most `wait` to hold the lock", $how, ", for no thread; `None` if somebody was in the way.")]
            ///
            /// Zero is one attempt. If a guard of this thread is in the way, that is `None` at once.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", $of_thread, "`](Self::", $of_thread, "), also when the time ends during an outage.")]
            ///
            /// ```
            /// # use std::time::Duration;
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            #[doc = concat!("let maybe = lock.", stringify!($span), "(Duration::from_secs(2))?;")]
            /// # Ok(())
            /// # }
            /// ```
            pub fn $span(
                &self,
                wait: ::std::time::Duration,
            ) -> $crate::Result<Option<$crate::OwnedLease>> {
                Ok(self.0.own($access, self.0.until(wait))?.map($crate::OwnedLease::new))
            }

            #[doc = concat!("Waits until `deadline` to hold the lock", $how, ", for no thread; `None` if somebody was in the way.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", stringify!($span), "`](Self::", stringify!($span), ").")]
            ///
            /// ```
            /// # use std::time::{Duration, Instant};
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let deadline = Instant::now() + Duration::from_secs(2);
            #[doc = concat!("let maybe = lock.", stringify!($until), "(deadline)?;")]
            /// # Ok(())
            /// # }
            /// ```
            pub fn $until(
                &self,
                deadline: ::std::time::Instant,
            ) -> $crate::Result<Option<$crate::OwnedLease>> {
                let owned = self.0.own($access, self.0.until_instant(deadline))?;
                Ok(owned.map($crate::OwnedLease::new))
            }
        }
    };
}

pub(super) use owned_methods;

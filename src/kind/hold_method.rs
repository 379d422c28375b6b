//! What a holder can do with its hold, whatever the kind of lock.

/// The public methods of a guard, a tuple struct of a [`ThreadHeld`](crate::kind::hold::ThreadHeld) or an
/// [`OwnedHold`](crate::kind::hold::OwnedHold). The doc comments before a name say what differs from guard to guard:
///
/// - `fencing_token`: how the tokens are ordered;
/// - `on_loss`: who shares a callback;
/// - `transaction`: what else is not allowed in it, if anything;
/// - `release`: when the release goes to Redis.
macro_rules! hold_methods {
    ($guard:ident {
        $(#[$token:meta])* fencing_token;
        $(#[$on_loss:meta])* on_loss;
        $(#[$transaction:meta])* transaction;
        $(#[$release:meta])* release
    }) => {
        $crate::kind::view_method::view_methods! { $guard { $(#[$token])* fencing_token } }

        impl $guard {
            pub(in crate::kind) fn holding(&self) -> &$crate::engine::holding::Holding {
                self.0.holding()
            }

            fn access(&self) -> Option<$crate::Access> {
                self.0.access()
            }

            /// A view of this hold for other threads.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") {")]
            /// let watch = guard.lease_watch();
            /// std::thread::spawn(move || while watch.is_valid() { /* … help … */ });
            /// # }
            /// ```
            pub fn lease_watch(&self) -> $crate::LeaseWatch {
                $crate::LeaseWatch::of(self.holding(), self.access())
            }

            /// How many wait for this lock, as far as this process knows: its own threads, and other processes that
            /// queue ([`Wait::queue`](crate::Wait::queue)). No I/O.
            ///
            /// The client learns of other processes once it listens: from its first wait on, with
            /// [`linger`](crate::LockOptions::linger) or
            /// [`on_release_request`](crate::LockClientBuilder::on_release_request), or from the first call
            /// of this on, which starts a thread. It learns of earlier waiters within a second, so call
            /// this now and then, not once. A process that gave up, or died, counts for up to three seconds more.
            ///
            /// **Not counted** are other processes that do not queue, because nobody announces them: those with
            /// [`Wait::spin`](crate::Wait::spin), those that wait for a [`ReentrantLock`](crate::ReentrantLock),
            /// Redisson's among them, and those that wait over several servers. For such locks only the threads of this
            /// process count.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") {")]
            /// if guard.waiters() > 10 {
            ///     println!("too much work is done under one lock");
            /// }
            /// # }
            /// ```
            pub fn waiters(&self) -> usize {
                self.holding().waiters()
            }

            /// Whether this process knows of anybody who waits for this lock: whether [`waiters`](Self::waiters) is
            /// above zero. No I/O.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: leasehold::", stringify!($guard), ") -> leasehold::Result<()> {")]
            /// // Between two parts of the work others may go first.
            /// if guard.is_contended() {
            ///     guard.release()?;
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn is_contended(&self) -> bool {
                self.waiters() > 0
            }

            /// Calls `callback` once if the lock is lost before its release.
            ///
            /// The guard is invalid by then. The callback runs on a thread of its own, so it may take its time; a panic
            /// in it is logged. If the lock is lost already, the callback runs at once, on such a thread too.
            ///
            $(#[$on_loss])*
            /// A release drops it without calling it, even if the lease goes on inside the process under the next hold.
            ///
            /// A hold may have several callbacks. They run in the order in which they were added, before
            /// [`LockClientBuilder::on_loss`](crate::LockClientBuilder::on_loss). Losses that are found at the same
            /// moment are reported one after the other, so a callback that does not return holds up the others.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") {")]
            /// use std::sync::Arc;
            /// use std::sync::atomic::{AtomicBool, Ordering};
            ///
            /// let stop = Arc::new(AtomicBool::new(false));
            /// let raised = Arc::clone(&stop);
            /// guard.on_loss(move |_loss| raised.store(true, Ordering::Relaxed));
            /// while !stop.load(Ordering::Relaxed) {
            ///     // … the work …
            /// #   break;
            /// }
            /// # }
            /// ```
            pub fn on_loss(&self, callback: impl FnOnce(&$crate::Loss) + Send + 'static) {
                self.holding().on_loss(Box::new(callback));
            }

            /// Asks Redis whether the lock is still this hold's. If its lease is over and
            /// [recoverable](crate::Lease::recoverable_for), this renews it, and the hold is valid again after `Ok`.
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) if it is not. An error of the connection if Redis cannot be asked,
            /// which says nothing about the lock.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") -> leasehold::Result<()> {")]
            /// guard.check()?;
            /// // A moment ago it was still ours.
            /// # Ok(())
            /// # }
            /// ```
            pub fn check(&self) -> $crate::Result<()> {
                self.holding().check()
            }

            /// Makes the lease last for at least `ttl` from now. It never makes the lease shorter.
            ///
            /// It is meant for [`Lease::fixed`](crate::Lease::fixed). `ttl` is allowed from 1 ms to 30 days. `max_hold`
            /// still ends the hold.
            ///
            /// # Errors
            ///
            /// - [`is_lost`](crate::Error::is_lost) if the lease is over, for however short a time;
            /// - [`is_config`](crate::Error::is_config) for a time to live that is not allowed;
            /// - an error of the connection if Redis cannot be asked. The holder may then rely on the lease for no longer
            ///   than before. A request that is stuck on its way may still make the lease longer in Redis, for as long
            ///   as the lock is this hold's.
            ///
            /// ```
            /// # use std::time::Duration;
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") -> leasehold::Result<()> {")]
            /// // The next step takes up to a second.
            /// if guard.remaining() < Duration::from_secs(1) {
            ///     guard.extend(Duration::from_secs(5))?;
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn extend(&self, ttl: ::std::time::Duration) -> $crate::Result<()> {
                self.holding().extend(ttl)
            }

            /// Runs commands that apply all together, and only if the lock is still this hold's. It is the check at
            /// the resource, if the resource is in the same Redis.
            ///
            /// The closure only says what to do; it reads nothing from Redis. The result has one value for each
            /// command. A command that fails by itself has an error value, and does not keep the others from applying.
            /// [`from_redis_value`](crate::redis::from_redis_value) converts a value.
            $(#[$transaction])*
            ///
            /// # Errors
            ///
            /// - [`is_config`](crate::Error::is_config) for a command about the connection, its subscriptions, or
            ///   transactions, such as `SELECT`, `AUTH`, `CLIENT`, `SUBSCRIBE`, `MULTI` or `WATCH`, because the connection
            ///   serves others afterwards. Nothing was sent.
            /// - [`is_lost`](crate::Error::is_lost) if the lock is no longer held. Nothing was applied.
            /// - [`is_refused`](crate::Error::is_refused) if Redis did not accept a command, or is out of memory;
            ///   [`is_denied`](crate::Error::is_denied) if the user may not run it, or not on its keys and channels;
            ///   [`is_unreachable`](crate::Error::is_unreachable) if the server takes no writes: it is a replica, or lacks
            ///   replicas or its disk. Nothing was applied.
            /// - [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if no reply came. The commands were applied, or
            ///   not, or may yet be, for as long as the lock is this hold's: a request that is stuck on its way has no
            ///   deadline.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($guard), ") -> leasehold::Result<()> {")]
            /// guard.transaction(|pipe| {
            ///     pipe.cmd("SET").arg("stock").arg(41).cmd("RPUSH").arg("sales").arg("one");
            /// })?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn transaction(
                &self,
                build: impl FnOnce(&mut $crate::redis::Pipeline),
            ) -> $crate::Result<Vec<$crate::redis::Value>> {
                // The user's closure runs before anything is sent, so that it neither prolongs the time on
                // a connection nor leaves one inside a transaction by a panic.
                let mut pipeline = $crate::wire::Pipeline::new();
                build(&mut pipeline);
                $crate::engine::transaction::apply(&[self.holding()], &pipeline)
            }

            /// Makes a short claim a whole lease now, for work that cannot stop before its end.
            ///
            /// A renewed lease that came from the [queue](crate::Wait::queue) is at first a claim of two seconds and a
            /// command time-out, and its first renewal makes it whole shortly after. Until then an outage costs the lock
            /// sooner. This is that renewal, done at once and by the calling thread: one command. Every other lease is
            /// whole, and then this costs no command and only looks whether the hold is still valid.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: leasehold::", stringify!($guard), ") -> leasehold::Result<()> {")]
            /// guard.confirm()?;
            /// println!("there are {:?} even if Redis goes away now", guard.remaining());
            /// // … work that cannot stop in the middle …
            /// guard.release()
            /// # }
            /// ```
            ///
            /// # Errors
            ///
            /// The same as for [`extend`](Self::extend), but for the length, which is the lease's own. After an error of
            /// the connection the lease is what it was, and the worker goes on renewing it.
            pub fn confirm(&self) -> $crate::Result<()> {
                self.holding().confirm()
            }

            /// Keeps the lock for at least this long, counted from the grant of this hold, even if the hold ends earlier. It
            /// is what ShedLock calls `lockAtLeastFor`: a job that is done sooner does not run once more on another machine
            /// whose clock is late.
            ///
            /// The lock then ends with its lease and not with the guard. A guard that is dropped or released earlier is over
            /// at once, and its lease is not renewed any more. But Redis keeps the lock until the time is over, whatever
            /// becomes of this process: if the lease is too short for that, this call makes it longer, which is one command.
            /// A time that is over already costs nothing and changes nothing, and of several calls the longest time counts.
            ///
            /// **Who waits.** Everybody: other clients, other threads of this process, and the thread that held it, as it
            /// holds nothing any more. When the time is over, this client releases the lock, and that wakes the waiters. If
            /// the process has ended by then, the lock ends with what was left of its lease, which may be later; waiters
            /// notice that within a second. So in a process that ends after its job, use a lease that is not much longer
            /// than this time. If the client is dropped earlier, its thread that renews and its connection stay until the
            /// time is over, to release the lock.
            ///
            /// **What ends it earlier.** [`force_release`](crate::Mutex::force_release), and what ends any lock: a deleted
            /// key, or a server that loses its memory. [`close`](crate::LockClient::close) and
            /// [`shutdown`](crate::LockClient::shutdown) take the hold, but neither release the lock before its time nor
            /// wait for that. `max_hold` ends the hold and not the time. [`holder`](crate::Mutex::holder) shows this client
            /// as the holder until then.
            ///
            /// ```
            /// # use std::time::Duration;
            #[doc = concat!("# fn demo(guard: Option<leasehold::", stringify!($guard), ">) -> leasehold::Result<()> {")]
            /// // Each machine tries this at midnight by its own clock, and one of them does the work.
            /// if let Some(guard) = guard {
            ///     guard.keep_for(Duration::from_secs(60))?;
            ///     // … the work, which may take a second only …
            /// }
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            ///
            /// - [`is_config`](crate::Error::is_config) for a time that is not allowed: less than 1 ms, more than 30 days,
            ///   or over several servers not below [`max_lease`](crate::QuorumClientBuilder::max_lease);
            /// - [`is_lost`](crate::Error::is_lost) if the hold is over;
            /// - an error of the connection if the lease could not be made longer. Then the guard releases the lock as if
            ///   this had not been called.
            pub fn keep_for(&self, least: ::std::time::Duration) -> $crate::Result<()> {
                self.holding().keep_for(least)
            }

            /// Releases this hold, and returns an error if that went wrong.
            $(#[$release])*
            ///
            /// # Errors
            ///
            /// [`is_lost`](crate::Error::is_lost) if the lock had been lost: what was done under it may have collided
            /// with another holder.
            ///
            /// [`is_unknown_outcome`](crate::Error::is_unknown_outcome) with a loss as its
            /// [source](std::error::Error::source) if a request had no reply, and the next one did not find the lock: it
            /// was released, or had been lost before.
            ///
            /// All other errors mean that the hold was valid until now, and that the worker goes on trying to release
            /// it, which its lease bounds: [`is_unknown_outcome`](crate::Error::is_unknown_outcome) or
            /// [`is_unreachable`](crate::Error::is_unreachable) if Redis did not reply,
            /// [`is_pool_exhausted`](crate::Error::is_pool_exhausted) or [`is_timeout`](crate::Error::is_timeout) if it
            /// was not asked, [`is_denied`](crate::Error::is_denied) or [`is_refused`](crate::Error::is_refused) if it
            /// refused.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: leasehold::", stringify!($guard), ") {")]
            /// match guard.release() {
            ///     Err(error) if error.is_lost() => { /* check what was done */ }
            ///     Err(error) => eprintln!("{error}"),
            ///     Ok(()) => {}
            /// }
            /// # }
            /// ```
            pub fn release(self) -> $crate::Result<()> {
                self.0.release()
            }
        }
    };
}

pub(super) use hold_methods;

//! The public methods of the kinds of lock, which are those of a [`Handle`](crate::kind::Handle).

/// The methods of every kind.
macro_rules! every_kind_methods {
    ($kind:ident, $open:literal) => {
        // Callbacks of the user take these away otherwise. A panic poisons no lock: unwinding
        // releases it.
        impl ::std::panic::UnwindSafe for $kind {}
        impl ::std::panic::RefUnwindSafe for $kind {}

        impl $kind {
            pub(crate) fn new(handle: $crate::kind::Handle) -> $kind {
                $kind(handle)
            }

            /// The name in Redis, the client's prefix included.
            ///
            /// ```
            /// # use leasehold::LockClient;
            /// # fn main() -> leasehold::Result<()> {
            /// let client = LockClient::builder("redis://localhost").name_prefix("shop:").build()?;
            #[doc = $open]
            /// assert_eq!(lock.name(), b"shop:orders:42");
            /// # Ok(())
            /// # }
            /// ```
            pub fn name(&self) -> &[u8] {
                self.0.name().as_bytes()
            }

            /// Asks Redis who holds the lock, since when, and who waits for it, in one round trip.
            ///
            /// Unknown facts are `None`, so a key that another library wrote can be looked at too. It reads and
            /// writes nothing, and works when memory is full. Text of other processes is shown without control
            /// characters.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or the key is no lock of this kind. Over several servers, when none of
            /// them can be asked.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// println!("{}", lock.inspect()?);
            /// # Ok(())
            /// # }
            /// ```
            pub fn inspect(&self) -> $crate::Result<$crate::Inspection> {
                self.0.inspect()
            }

            /// Releases what this owner holds, in its place, and returns whether it held anything. It is for a process
            /// that knows that the owner's process is dead, and need not wait for the end of its lease.
            ///
            /// The owner's value is what [`LeaseWatch::owner`](crate::LeaseWatch::owner) returned in the process that
            /// has died, or [`Holder::owner`](crate::Holder::owner). It stands for one lease of one process, and no
            /// other has it, so nobody else loses anything. The lock goes to the next waiter. If the owner lives, it
            /// goes on until it notices, and until then only the fencing token keeps it from doing harm.
            ///
            /// Nothing is released any more once the time for a call is over, however long the request was stuck, and
            /// no data is deleted: [Limits](crate::guide::limits#what-is-taken-for-a-lock) says how data is told from a
            /// lock. The user needs the permissions of a forced release.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or not in time.
            /// [`is_wrong_type`](crate::Error::is_wrong_type) if the key is no lock of this kind.
            /// [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if the request may have been served all the
            /// same; it can be made again.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient, dead: &[u8]) -> leasehold::Result<()> {
            #[doc = $open]
            /// if lock.release_for(dead)? {
            ///     println!("the next one has it now");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn release_for(&self, owner: &[u8]) -> $crate::Result<bool> {
                self.0.force_release_of(owner)
            }

            /// Ends all waits for this lock by threads of this client. Returns how many threads were waiting: each of them
            /// fails with [`is_cancelled`](crate::Error::is_cancelled), and gives back a lock that its last request still
            /// brings. One whose last request had no reply may tell that instead.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let waiting = lock.cancel_waits();
            /// println!("{waiting} threads no longer wait");
            /// # Ok(())
            /// # }
            /// ```
            pub fn cancel_waits(&self) -> usize {
                self.0.cancel_waits()
            }
        }
    };
}

/// The methods of a kind whose locks have one holder at a time.
macro_rules! kind_methods {
    ($kind:ident, $open:literal) => {
        $crate::kind::method::every_kind_methods!($kind, $open);

        impl $kind {
            /// Asks Redis whether anybody holds the lock at this moment.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or the key is no lock of this kind.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// if lock.is_locked()? {
            ///     println!("somebody has it");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn is_locked(&self) -> $crate::Result<bool> {
                self.0.is_locked()
            }

            /// Asks Redis who holds the lock at this moment.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or the key is no lock of this kind.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// match lock.holder()? {
            ///     Some(holder) => println!("held by {holder}"),
            ///     None => println!("free"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn holder(&self) -> $crate::Result<Option<$crate::Holder>> {
                self.0.holder()
            }

            /// Takes the lock from its holder at the moment of the call, and gives it to the first
            /// waiter. Returns whether a holder was evicted: `false` where nobody held it, or the holder
            /// has let go meanwhile.
            ///
            /// It evicts that holder and no other, and nobody once the time for a call is over, however long
            /// the request was stuck. It evicts owners of other libraries too; over several servers, the owner
            /// that has a majority. It does not delete data:
            /// [Limits](crate::guide::limits#what-is-taken-for-a-lock) says how data is told from a lock. A holder
            /// is one lease of one process: if the process meanwhile hands the lease off to another thread, or
            /// takes it again while it lingers, that hold is evicted.
            ///
            /// It is for people and for emergencies: the evicted holder goes on until it notices, and until
            /// then only the fencing token keeps it from doing harm.
            ///
            /// If its client listens, it gets a message and asks Redis at once, so the guard is
            /// lost within a round trip. A client listens once it has waited, or has had a lock
            /// that lingers, may be asked for, or was handed off to another thread. Locks on one
            /// server with `Wait::spin()` make no client listen. A holder without the message
            /// notices at its next renewal, which comes within a third of its lease, or at the end
            /// of a lease that is not renewed any more.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or not in time.
            /// [`is_wrong_type`](crate::Error::is_wrong_type) if the key is not a lock, or is a read-write lock of
            /// Redisson with several holders.
            /// [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if the request may have been served all
            /// the same.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// if let Some(holder) = lock.holder()? {
            ///     println!("taking it from {holder}");
            ///     lock.force_release()?;
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn force_release(&self) -> $crate::Result<bool> {
                self.0.force_release(false)
            }

            /// Takes the lock from this holder, and returns whether the holder still had it. Otherwise like
            /// [`force_release`](Self::force_release). On a read-write lock of Redisson, the other holders keep
            /// the lock.
            ///
            /// # Errors
            ///
            /// Those of `force_release`, but several holders are not an error.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// for holder in lock.inspect()?.holders() {
            ///     if holder.host() == Some("web-3") {
            ///         lock.force_release_of(holder)?;
            ///     }
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn force_release_of(&self, holder: &$crate::Holder) -> $crate::Result<bool> {
                self.0.force_release_of(holder.owner())
            }
        }
    };
}

/// The methods of a kind whose locks several may hold at a time.
macro_rules! shared_methods {
    ($kind:ident, $open:literal) => {
        impl $kind {
            /// Asks Redis who holds a part of it at this moment; the first thousand holders.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or the key is no lock of this kind.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// for holder in lock.holders()? {
            ///     println!("held by {holder}");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn holders(&self) -> $crate::Result<Vec<$crate::Holder>> {
                Ok(self.0.inspect()?.holders)
            }

            /// Takes from a holder what it holds, at the moment of the call, and gives it to those who wait. Returns
            /// whether it was a holder still.
            ///
            /// It is for people and for emergencies: the evicted holder goes on until it notices, and until then only
            /// the fencing token keeps it from doing harm. If its client listens, that is within a round trip, and at
            /// its next renewal otherwise.
            ///
            /// # Errors
            ///
            /// When Redis cannot be asked, or not in time.
            /// [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if the request may have been served all
            /// the same.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// for holder in lock.holders()?.iter().filter(|holder| holder.host() == Some("web-3")) {
            ///     lock.force_release(holder)?;
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn force_release(&self, holder: &$crate::Holder) -> $crate::Result<bool> {
                self.0.force_release_of(holder.owner())
            }

            /// The holder that was in the way when this thread's last call went without the lock: the one whose
            /// lease ends first, by the last reply. No I/O.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// if let Some(holder) = lock.last_blocker() {
            ///     println!("in the way: {holder}");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn last_blocker(&self) -> Option<$crate::Holder> {
                self.0.last_blocker()
            }
        }
    };
}

/// The further methods of a kind whose guard is a hold of one thread, which can take the lock
/// again.
macro_rules! lock_methods {
    ($kind:ident, $open:literal) => {
        impl From<&$kind> for $crate::kind::Part {
            fn from(lock: &$kind) -> $crate::kind::Part {
                $crate::kind::Part::new(lock.0.clone())
            }
        }

        impl $kind {
            /// Waits for the lock without limit, and takes it.
            ///
            /// A thread that holds it already takes it once more, unless
            /// [reentry is turned off](crate::LockOptions::reentrant). That costs no command and cannot fail, unless the
            /// options of this handle ask for a lease that ends later, or for other replicas or disks: see
            /// [what an inner call asks for](crate::guide::concepts#what-an-inner-call-asks-for). Threads that use one
            /// client get it in the order in which they came.
            ///
            /// The wait for a *holder* has no end. An outage of Redis that lasts longer than the client's
            /// `give_up_after` ends the wait with an error.
            ///
            /// # Errors
            ///
            /// - [`is_unreachable`](crate::Error::is_unreachable) after an outage;
            /// - [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if no reply said whether the lock
            ///   was taken;
            /// - [`is_lost`](crate::Error::is_lost) if this thread held the lock and has lost it;
            /// - [`is_cancelled`](crate::Error::is_cancelled) if another thread ended the wait;
            /// - [`is_config`](crate::Error::is_config) if this thread holds the lock and may not take it again;
            /// - [`is_crowded`](crate::Error::is_crowded) if as many threads wait as
            ///   [`max_waiters`](crate::LockOptions::max_waiters) allows;
            /// - [`is_timeout`](crate::Error::is_timeout) if the grant arrived when the lease or `max_hold` was
            ///   already over;
            /// - [`is_not_replicated`](crate::Error::is_not_replicated) and
            ///   [`is_not_fsynced`](crate::Error::is_not_fsynced) if the options ask for replicas or disks;
            /// - [`is_denied`](crate::Error::is_denied), [`is_refused`](crate::Error::is_refused) and
            ///   [`is_wrong_type`](crate::Error::is_wrong_type).
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let guard = lock.lock()?;
            /// // Nobody else is here.
            /// drop(guard);
            /// # Ok(())
            /// # }
            /// ```
            pub fn lock(&self) -> $crate::Result<$crate::Guard> {
                self.0.lock()
            }

            /// Tries to take the lock in one attempt; `None` if somebody else has it.
            ///
            /// A thread that holds it already takes it once more, as in [`lock`](Self::lock). The client's time-outs bound
            /// the attempt.
            ///
            /// # Errors
            ///
            /// The same as for [`lock`](Self::lock), at the first failure.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// match lock.try_lock()? {
            ///     Some(_guard) => println!("mine until the end of this block"),
            ///     None => println!("somebody else has it"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn try_lock(&self) -> $crate::Result<Option<$crate::Guard>> {
                self.0.try_lock()
            }

            /// Waits for the lock for at most `wait`; `None` if somebody else had it all the time.
            ///
            /// Zero is one attempt. A wait that is too long for the clock has no end. A thread that holds it already takes it
            /// once more, as in [`lock`](Self::lock), and `wait` bounds the request that this may need.
            ///
            /// # Errors
            ///
            /// The same as for [`lock`](Self::lock), also when the time ends during an outage. So `None` means
            /// that there is a holder: a thread of this process, or one that Redis named in its last reply. With
            /// [`max_waiters`](crate::LockOptions::max_waiters) it may come at once, as too many threads wait for that
            /// holder.
            ///
            /// ```
            /// # use std::time::Duration;
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// if let Some(_guard) = lock.try_lock_for(Duration::from_secs(2))? {
            ///     println!("mine");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn try_lock_for(
                &self,
                wait: ::std::time::Duration,
            ) -> $crate::Result<Option<$crate::Guard>> {
                self.0.try_lock_for(wait)
            }

            /// The holder that was in the way when this thread's last call for the lock went without it. No I/O.
            ///
            /// It is known from the reply that refused the lock, or from this process where a thread of it has
            /// the lock, and is as old as the end of that call. It is `None` after a call that got the lock,
            /// and where no reply named a holder. A thread remembers the last 64 locks that it went without.
            ///
            /// ```
            /// # use std::time::Duration;
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// if lock.try_lock_for(Duration::from_secs(2))?.is_none()
            ///     && let Some(holder) = lock.last_blocker()
            /// {
            ///     println!("{holder} has it, since {:?}", holder.since());
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn last_blocker(&self) -> Option<$crate::Holder> {
                self.0.last_blocker()
            }

            /// Waits for the lock until `deadline`; `None` if somebody else had it all the time.
            ///
            /// # Errors
            ///
            /// The same as for [`try_lock_for`](Self::try_lock_for).
            ///
            /// ```
            /// # use std::time::{Duration, Instant};
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let deadline = Instant::now() + Duration::from_secs(2);
            /// let maybe = lock.try_lock_until(deadline)?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn try_lock_until(
                &self,
                deadline: ::std::time::Instant,
            ) -> $crate::Result<Option<$crate::Guard>> {
                self.0.try_lock_until(deadline)
            }

            /// Waits for the lock, does the work, and releases the lock.
            ///
            /// # Errors
            ///
            /// Before the work the same as for [`lock`](Self::lock). After it
            /// [`is_lost`](crate::Error::is_lost) if the lock was lost in between, so a value that comes back
            /// was made under the lock, and [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if it may have been: a
            /// request for its release had no reply, and the next one did not find it. Any other release that does not
            /// get through is not an error here, just as when a guard is dropped.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let token = lock.with(|guard| guard.fencing_token())?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn with<T>(&self, work: impl FnOnce(&$crate::Guard) -> T) -> $crate::Result<T> {
                self.0.with(work)
            }

            /// Whether this thread holds the lock and the lease is still valid. No I/O.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let guard = lock.lock()?;
            /// assert!(lock.is_held_by_current_thread());
            /// guard.release()?;
            /// assert!(!lock.is_held_by_current_thread());
            /// # Ok(())
            /// # }
            /// ```
            pub fn is_held_by_current_thread(&self) -> bool {
                self.0.is_held_by_current_thread()
            }

            /// How many times this thread holds the lock; 0 if the lease is over. No I/O.
            ///
            /// ```
            /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
            #[doc = $open]
            /// let outer = lock.lock()?;
            /// let inner = lock.lock()?;
            /// assert_eq!(lock.hold_count(), 2);
            /// # Ok(())
            /// # }
            /// ```
            pub fn hold_count(&self) -> u32 {
                self.0.hold_count()
            }
        }
    };
}

pub(super) use {every_kind_methods, kind_methods, lock_methods, shared_methods};

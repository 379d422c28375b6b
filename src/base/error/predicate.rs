//! The predicates of errors.

use crate::base::error::{Error, ErrorKind};

impl Error {
    /// The kind of failure: for a `match`, or to count failures by kind.
    ///
    /// Of an error for which two predicates are true, this is the more precise one:
    /// [`ErrorKind::Lost`] is also
    /// [not held](Error::is_not_held), and an [`ErrorKind::UnknownOutcome`] may also be
    /// [unreachable](Error::is_unreachable).
    ///
    /// ```
    /// use leasehold::ErrorKind;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let error = client.mutex("").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later although nobody changes the program, its settings or
    /// the server.
    ///
    /// It depends on the kind alone; the table of [`ErrorKind`] says why. Locking again is always
    /// safe. Before another [`transaction`](crate::Guard::transaction) or [forced
    /// release](crate::Mutex::force_release), look at
    /// [`is_unknown_outcome`](Error::is_unknown_outcome).
    ///
    /// ```
    /// use leasehold::{DistributedLock, Lease, Result};
    /// use std::thread::sleep;
    /// use std::time::Duration;
    ///
    /// /// Locks for a job that can wait for the end of an outage of a minute.
    /// fn lock(locks: &dyn DistributedLock, key: &str) -> Result<bool> {
    ///     let mut tries = 6;
    ///     loop {
    ///         tries -= 1;
    ///         match locks.try_lock(key, Duration::from_secs(2), Lease::default()) {
    ///             Err(error) if error.is_transient() && tries > 0 => sleep(Duration::from_secs(10)),
    ///             outcome => return outcome,
    ///         }
    ///     }
    /// }
    /// ```
    pub fn is_transient(&self) -> bool {
        self.0.kind.is_transient()
    }

    /// The wait ended before the lock was free, or the grant arrived when the lease or `max_hold`
    /// was already over.
    ///
    /// The first happens only in calls that cannot return `Ok(None)`, as `try_lock_for` does. The
    /// second happens in any call, and asks for a longer lease or `max_hold`. A call about a lock
    /// also fails like this if its thread was kept from sending the command for as long as a call
    /// may take; then nothing was done.
    ///
    /// ```
    /// # use leasehold::{Lease, LockClient};
    /// # use std::time::Duration;
    /// # fn demo(client: &LockClient) -> leasehold::Result<()> {
    /// let soon = Duration::from_secs(2);
    /// match client.with_lock("orders:42", soon, Lease::default(), || { /* the work */ }) {
    ///     Err(error) if error.is_timeout() => println!("somebody else has it: try later"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::Timeout
    }

    /// The lock was held, and was lost before its release; [`Guard::loss`](crate::Guard::loss) has
    /// the cause.
    ///
    /// ```
    /// # fn demo(guard: leasehold::Guard) -> leasehold::Result<()> {
    /// match guard.release() {
    ///     Err(error) if error.is_lost() => eprintln!("somebody else may have been here: {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }

    /// Whether the lock was lost, or may have been: its release has an unknown outcome, and found it gone.
    pub(crate) fn may_be_lost(&self) -> bool {
        let cause = std::error::Error::source(self).and_then(|it| it.downcast_ref::<Error>());
        self.is_lost() || self.is_unknown_outcome() && cause.is_some_and(Error::is_lost)
    }

    /// This thread does not hold the lock: it never did, or it has lost it.
    ///
    /// ```
    /// use leasehold::DistributedLock;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // This thread never had it.
    /// let error = client.unlock("orders:42").unwrap_err();
    /// assert!(error.is_not_held() && !error.is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_not_held(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NotHeld | ErrorKind::Lost)
    }

    /// Redis could not be reached or could not serve (starting, read-only, stuck in a script).
    ///
    /// Nothing was done, unless [`is_unknown_outcome`](Error::is_unknown_outcome) is true as well:
    /// then an earlier request had no reply, or a message said that Redis granted the lock.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_unreachable() => println!("Redis is down: try later"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_unreachable(&self) -> bool {
        self.0.kind == ErrorKind::Unreachable || self.0.in_outage
    }

    /// The command was sent and no reply came: it may have been done or not. Or a message said that
    /// Redis granted the lock, and no reply confirmed the grant. A call that only reads does nothing, and so
    /// [`is_unreachable`](Error::is_unreachable) is true instead if no reply comes.
    ///
    /// A lock that the command may have taken is released in the background, and ends with its
    /// lease at the latest; after an [`extend`](crate::Guard::extend) without a reply, with the
    /// longer lease. The effects of a [`transaction`](crate::Guard::transaction) or a [forced
    /// release](crate::Mutex::force_release) are not undone.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) -> leasehold::Result<()> {
    /// match guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("sales")) {
    ///     Err(error) if error.is_unknown_outcome() => println!("look whether it was counted"),
    ///     outcome => println!("{:?}", outcome?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_unknown_outcome(&self) -> bool {
        self.0.kind == ErrorKind::UnknownOutcome
    }

    /// A setting or an argument is not allowed: `invalid <setting>: <what is wrong>, expected <what
    /// is allowed>`. The check comes before any I/O, unless only a server knows the answer.
    ///
    /// ```
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let error = client.mutex("").unwrap_err();
    /// assert!(error.is_config());
    /// assert!(error.to_string().contains("name"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_config(&self) -> bool {
        self.0.kind == ErrorKind::Config
    }

    /// Redis refused the user, the password, or the user's permissions.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// match LockClient::open("redis://:secret@127.0.0.1:6379") {
    ///     Err(error) if error.is_denied() => eprintln!("is the password right? {error}"),
    ///     outcome => println!("{:?}", outcome?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_denied(&self) -> bool {
        self.0.kind == ErrorKind::Denied
    }

    /// The key holds something that is not a lock of this kind.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.is_locked() {
    ///     Err(error) if error.is_wrong_type() => eprintln!("this key has other data: {error}"),
    ///     outcome => println!("locked: {}", outcome?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_wrong_type(&self) -> bool {
        self.0.kind == ErrorKind::WrongType
    }

    /// Another thread ended the wait, or closed the client: [`LockClient::is_closed`](crate::LockClient::is_closed)
    /// tells, and then no other wait succeeds.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_cancelled() => println!("told to go home"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.kind == ErrorKind::Cancelled
    }

    /// Every connection of the pool was in use for as long as `max_wait` allows, and the server
    /// replied meanwhile. If it did not, [`is_unreachable`](Error::is_unreachable) is true instead:
    /// a larger pool would not help.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.is_locked() {
    ///     Err(error) if error.is_pool_exhausted() => eprintln!("is max_size too small? {error}"),
    ///     outcome => println!("locked: {}", outcome?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_pool_exhausted(&self) -> bool {
        self.0.kind == ErrorKind::PoolExhausted
    }

    /// Fewer replicas than [`min_replicas`](crate::LockOptions::min_replicas) asks for had the lock
    /// in time, so it was released again.
    ///
    /// ```
    /// # use leasehold::LockOptions;
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let options = LockOptions::new().min_replicas(1, Duration::from_millis(100));
    /// match client.mutex_with("orders:42", options)?.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_not_replicated() => eprintln!("is a replica down? {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_not_replicated(&self) -> bool {
        self.0.kind == ErrorKind::NotReplicated
    }

    /// Fewer disks than [`min_fsyncs`](crate::LockOptions::min_fsyncs) asks for had the lock in
    /// time, so it was released again.
    ///
    /// ```
    /// # use leasehold::LockOptions;
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let options = LockOptions::new().min_fsyncs(true, 0, Duration::from_millis(900));
    /// match client.mutex_with("orders:42", options)?.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_not_fsynced() => eprintln!("is the disk slow? {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_not_fsynced(&self) -> bool {
        self.0.kind == ErrorKind::NotFsynced
    }

    /// As many threads of this client wait for the lock as [`max_waiters`] allows, so this call did not
    /// wait. The text names the holder, as far as it is known; [`last_blocker`] has the details.
    ///
    /// A call with a time limit returns `Ok(None)` instead, if a holder is known.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// use leasehold::LockOptions;
    ///
    /// let lock = client.mutex_with("report", LockOptions::new().max_waiters(8))?;
    /// match lock.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_crowded() => eprintln!("503, try later: {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`last_blocker`]: crate::Mutex::last_blocker
    /// [`max_waiters`]: crate::LockOptions::max_waiters
    pub fn is_crowded(&self) -> bool {
        self.0.kind == ErrorKind::Crowded
    }

    /// Redis returned an error that no other predicate covers, such as being out of memory; or the
    /// client refuses to work here, as in a fork. Nothing was done.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.with(|_guard| { /* the work */ }) {
    ///     Err(error) if error.is_refused() => eprintln!("is Redis out of memory? {error}"),
    ///     outcome => outcome?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_refused(&self) -> bool {
        self.0.kind == ErrorKind::Refused
    }
}

//! How a holder makes a lease last: whole at once, or longer than the hold.

use std::time::Duration;

use crate::base::error::Result;
use crate::kind::{Guard, OwnedLease};

impl Guard {
    /// Makes a short claim a whole lease now, for work that cannot stop before its end.
    ///
    /// A renewed lease that came from the [queue](crate::Wait::queue) is at first a claim of two seconds and a
    /// command time-out, and its first renewal makes it whole shortly after. Until then an outage costs the lock
    /// sooner. This is that renewal, done at once and by the calling thread: one command. Every other lease is
    /// whole, and then this costs no command and only looks whether the hold is still valid.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// let guard = lock.lock()?;
    /// guard.confirm()?;
    /// println!("there are {:?} even if Redis goes away now", guard.remaining());
    /// // … work that cannot stop in the middle …
    /// guard.release()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as for [`extend`](Guard::extend), but for the length, which is the lease's own. After an error of
    /// the connection the lease is what it was, and the worker goes on renewing it.
    pub fn confirm(&self) -> Result<()> {
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
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// // Each machine tries this at midnight by its own clock, and one of them does the work.
    /// if let Some(guard) = client.mutex("nightly-report")?.try_lock()? {
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
    pub fn keep_for(&self, least: Duration) -> Result<()> {
        self.holding().keep_for(least)
    }
}

impl OwnedLease {
    /// Makes a short claim a whole lease now, like [`Guard::confirm`].
    ///
    /// # Errors
    ///
    /// The same as there.
    ///
    /// ```
    /// # fn demo(owned: leasehold::OwnedLease) -> leasehold::Result<()> {
    /// owned.confirm()?;
    /// std::thread::spawn(move || {
    ///     let guard = owned.into_guard();
    ///     // … work that cannot stop in the middle …
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn confirm(&self) -> Result<()> {
        self.holding().confirm()
    }

    /// Keeps the lock for at least this long, even if the hold ends earlier, like [`Guard::keep_for`].
    ///
    /// # Errors
    ///
    /// The same as there.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(owned: leasehold::OwnedLease) -> leasehold::Result<()> {
    /// owned.keep_for(Duration::from_secs(60))?;
    /// owned.release()
    /// # }
    /// ```
    pub fn keep_for(&self, least: Duration) -> Result<()> {
        self.holding().keep_for(least)
    }
}

//! Several locks at once.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::time::Moment;
use crate::client::LockClient;
use crate::kind::multi::acquire_all;
use crate::kind::{MultiGuard, Part};

impl LockClient {
    /// Waits without limit for several locks of this client, and takes them: all or none.
    ///
    /// Locks that are all free are taken in one round trip for each thousand, in a cluster in one for each node at the
    /// same time.
    /// Otherwise the call waits for one lock after the other, in the order of their names; while it waits, it has those
    /// that come before. What it has is renewed meanwhile. A [fixed](crate::Lease::fixed) lease may end while the call
    /// waits for later locks, so use [renewed](crate::Lease::renewed) ones.
    ///
    /// **No deadlock.** Calls of any threads and processes never wait for each other in a circle, whatever order their
    /// parts are given in. That holds for threads that hold none of the locks when they call. A lock that this thread
    /// holds already is entered once more, and then the promise ends: a thread that holds `b` and calls this with `a` and
    /// `b` waits for a thread that has `a` and waits for `b`.
    ///
    /// A lock of each kind can be a [`Part`]. [`cancel_waits`](crate::Mutex::cancel_waits) of the lock that the call waits
    /// for ends it. A [`QuorumClient`](crate::QuorumClient) has no such call, because each of its locks takes a round of
    /// votes of its own.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for no part at all, more than 10,000, a lock that is named twice, or a
    ///   lock of another client. Nothing was sent.
    /// - [`is_lost`](crate::Error::is_lost) if one of the locks was lost while the call waited for another, or if this
    ///   thread held one and has lost it;
    /// - all others that [one lock](crate::Mutex::lock) has.
    ///
    /// The error names the lock that failed, and says what was given back, and what could not be given back yet. The
    /// client goes on with that.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let accounts = [client.mutex("account:2")?, client.mutex("account:1")?];
    /// let guard = client.lock_all(&accounts)?;
    /// // Nobody else is at either of them.
    /// guard.release()
    /// # }
    /// ```
    pub fn lock_all<P: Into<Part>>(
        &self,
        parts: impl IntoIterator<Item = P>,
    ) -> Result<MultiGuard> {
        // A wait until `FAR` returns no `None`. If that changed, an error would be safer than a panic.
        self.acquire_all(parts, Some(Moment::FAR))?
            .ok_or_else(|| Error::timeout("a wait without a deadline has ended"))
    }

    /// Tries to take several locks, in one attempt for each: all or none. `None` if somebody else has one of them.
    ///
    /// [`last_blocker`](crate::Mutex::last_blocker) of the locks says who was in the way.
    ///
    /// # Errors
    ///
    /// The same as for [`lock_all`](LockClient::lock_all), at the first failure.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let (from, to) = (client.mutex("account:1")?, client.mutex("account:2")?);
    /// if client.try_lock_all([&from, &to])?.is_none() {
    ///     println!("held by {:?}", from.last_blocker().or(to.last_blocker()));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_all<P: Into<Part>>(
        &self,
        parts: impl IntoIterator<Item = P>,
    ) -> Result<Option<MultiGuard>> {
        self.acquire_all(parts, None)
    }

    /// Waits for several locks for at most `wait`, and takes them: all or none. `None` if somebody else had one of
    /// them all the time.
    ///
    /// `wait` is for all of them together. Zero is one attempt.
    ///
    /// # Errors
    ///
    /// The same as for [`lock_all`](LockClient::lock_all), also when the time ends during an outage.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let (from, to) = (client.mutex("account:1")?, client.mutex("account:2")?);
    /// if let Some(_guard) = client.try_lock_all_for([&from, &to], Duration::from_secs(2))? {
    ///     println!("both are mine");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_all_for<P: Into<Part>>(
        &self,
        parts: impl IntoIterator<Item = P>,
        wait: Duration,
    ) -> Result<Option<MultiGuard>> {
        self.acquire_all(parts, Some(self.engine().now().after(wait)))
    }

    fn acquire_all<P: Into<Part>>(
        &self,
        parts: impl IntoIterator<Item = P>,
        deadline: Option<Moment>,
    ) -> Result<Option<MultiGuard>> {
        let parts = parts.into_iter().map(P::into).collect();
        acquire_all(parts, &self.engine().context, deadline)
    }
}

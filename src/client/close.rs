//! The early end of a client.

use std::time::Duration;

use crate::base::close_report::CloseReport;
use crate::base::error::Result;
use crate::client::{LockClient, QuorumClient};
use crate::engine::shutdown::close;

impl LockClient {
    /// Ends the client, and lets work that is under way finish: it grants no new lock, waits for at
    /// most `grace` until its holders have released theirs, takes the other locks, and releases
    /// them within the bound `within`. Returns as soon as nothing is held any more.
    ///
    /// **Waits** end: all calls that wait for a lock fail with
    /// [`is_cancelled`](crate::Error::is_cancelled), and so does each later call that waits or tries. A
    /// call in the middle of a request to Redis ends after that request; one that tries may still return
    /// that the lock is busy. That stays so, and [`is_closed`](LockClient::is_closed) returns true.
    ///
    /// **Holders** lose nothing during the grace. Their leases are renewed, and guards can be
    /// checked, extended and released. A thread that holds a lock can take *that* lock again,
    /// because this is no new lock: work that calls a function which locks again does not break in
    /// the middle. It cannot take *another* lock. The calling thread's own locks count too, so
    /// release them before this call. A hold of which the guard was forgotten, and a lock by key,
    /// last until their thread ends.
    ///
    /// **After the grace** renewals stop, and then the locks are released. Guards turn invalid with
    /// [`LossCause::ShutDown`]; calls on them fail with [`is_lost`](crate::Error::is_lost), and so
    /// does another lock by a thread that has one. Calls that only ask Redis about a lock, or force
    /// its release, still work.
    ///
    /// Leases that [linger](crate::LockOptions::linger) are released at once.
    ///
    /// A lock that [`keep_for`](crate::Guard::keep_for) keeps is not waited for, and stays until
    /// its time is over. A hold that was lost before has no holder any more, and its key in Redis
    /// may stay until its lease ends. A hold that `max_hold` has ended is released after the grace
    /// if a request to take it had no reply; otherwise it stays until its lease ends.
    ///
    /// Several calls at once are allowed: the shortest grace counts.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) {
    /// // The work takes up to 20 s, and the process is killed after 30 s.
    /// let report = client.close(Duration::from_secs(25), Duration::from_secs(2));
    /// println!("{report}");
    /// # }
    /// ```
    ///
    /// [`LossCause::ShutDown`]: crate::LossCause::ShutDown
    pub fn close(&self, grace: Duration, within: Duration) -> CloseReport {
        close(self.engine(), grace, within)
    }

    /// Whether [`close`](LockClient::close) or [`shutdown`](LockClient::shutdown) was called, even
    /// if it has not returned yet: then no lock is granted any more, and a wait that was
    /// [cancelled](crate::Error::is_cancelled) need not be tried again.
    ///
    /// ```
    /// # use leasehold::{LockClient, Mutex};
    /// # fn demo(client: &LockClient, lock: &Mutex) -> leasehold::Result<()> {
    /// loop {
    ///     match lock.with(|_guard| { /* the work */ }) {
    ///         Err(error) if error.is_cancelled() && client.is_closed() => return Ok(()),
    ///         outcome => outcome?,
    ///     }
    /// #   break Ok(());
    /// }
    /// # }
    /// ```
    pub fn is_closed(&self) -> bool {
        self.engine().is_closing()
    }

    /// Ends the client at once: [`close`](LockClient::close) without a grace, and without its
    /// report.
    ///
    /// # Errors
    ///
    /// [`is_unreachable`](crate::Error::is_unreachable) if not everything could be released in
    /// time; the text says how many locks, and names a few. The worker goes on trying, and all of
    /// it ends with its lease.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) {
    /// if let Err(error) = client.shutdown(Duration::from_secs(2)) {
    ///     eprintln!("{error}");
    /// }
    /// # }
    /// ```
    pub fn shutdown(&self, within: Duration) -> Result<()> {
        self.close(Duration::ZERO, within).into_result()
    }
}

impl QuorumClient {
    /// Ends the client, and lets work that is under way finish, like [`LockClient::close`]. A lock
    /// that an unreachable server may still have counts as not released.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::QuorumClient) {
    /// let report = client.close(Duration::from_secs(25), Duration::from_secs(2));
    /// println!("{report}");
    /// # }
    /// ```
    pub fn close(&self, grace: Duration, within: Duration) -> CloseReport {
        self.locks.close(grace, within)
    }

    /// Whether the client was closed or shut down, like [`LockClient::is_closed`].
    ///
    /// ```
    /// # fn demo(client: &leasehold::QuorumClient) {
    /// if client.is_closed() {
    ///     println!("no lock is granted any more");
    /// }
    /// # }
    /// ```
    pub fn is_closed(&self) -> bool {
        self.locks.is_closed()
    }

    /// Ends the client at once, like [`LockClient::shutdown`].
    ///
    /// # Errors
    ///
    /// The same as there. A lock that an unreachable server may still have counts as not released.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::QuorumClient) {
    /// if let Err(error) = client.shutdown(Duration::from_secs(2)) {
    ///     eprintln!("{error}");
    /// }
    /// # }
    /// ```
    pub fn shutdown(&self, within: Duration) -> Result<()> {
        self.locks.shutdown(within)
    }
}

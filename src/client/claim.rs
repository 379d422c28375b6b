//! As many of many locks as are free.

use crate::base::error::Result;
use crate::client::LockClient;
use crate::kind::multi::{claim, release_leases};
use crate::kind::{OwnedLease, Part};

impl LockClient {
    /// Takes those of many locks that are free, at most `most` of them, in the order in which they are given.
    ///
    /// It is for workers that share a table of jobs, shards or files, as `SELECT … FOR UPDATE SKIP LOCKED` is in SQL.
    /// Locks that somebody has are passed over. There may be fewer than `most`, and none: that is no error.
    ///
    /// It never waits for a holder, and it never re-enters: a lock that this thread has is not free. Each lease is a hold
    /// of its own, with its own [token](OwnedLease::fencing_token), renewed like any other. It belongs to no thread, and a
    /// drop releases it. [`release_all`](LockClient::release_all) releases several in one round trip.
    ///
    /// The locks are tried in pipelines: first as many as `most`, and as long as too few were free, as many as are likely to
    /// be enough, up to twice as many each time and 128. The iterator is asked only for what is tried. Locks that were
    /// granted beyond `most` are given back at once, in one more pipeline; for that moment others pass them over. Locks
    /// that threads of this client have cost no command.
    ///
    /// **Where to begin.** Workers that all begin with the same lock find the first ones taken, and try many to get a few.
    /// Give each worker another order, for example by a rotation of the list. A job that is done must not be claimed again:
    /// look at it once more under its lease, and fence what is written with the token of that lease.
    ///
    /// Each lock that can be a [`Part`] can be claimed. One that is given twice is claimed once, but permits and readers
    /// may be claimed again. A [`QuorumClient`](crate::QuorumClient) has no such call, because each of its locks takes a
    /// round of votes of its own.
    ///
    /// # Errors
    ///
    /// After an error nothing is kept: what was granted before is given back, and a request without a reply is undone in
    /// the background. The error names the lock that failed, and says what was given back.
    ///
    /// - [`is_config`](crate::Error::is_config) for a lock of another client;
    /// - all others that [`Mutex::try_lock`](crate::Mutex::try_lock) has.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient, ids: &[u64]) -> leasehold::Result<()> {
    /// let jobs = ids.iter().map(|id| client.mutex(format!("job:{id}")));
    /// let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
    /// let claimed = client.claim(&jobs, 10)?;
    /// for lease in &claimed {
    ///     println!("{} with token {}", lease.name().escape_ascii(), lease.fencing_token());
    /// }
    /// client.release_all(claimed)
    /// # }
    /// ```
    pub fn claim<P: Into<Part>>(
        &self,
        locks: impl IntoIterator<Item = P>,
        most: usize,
    ) -> Result<Vec<OwnedLease>> {
        claim(locks.into_iter().map(P::into), &self.engine().context, most)
    }

    /// Releases several leases in one round trip for each thousand, in a cluster in one for each node at the same time,
    /// and returns an error if that went wrong.
    ///
    /// # Errors
    ///
    /// Those that [one lease](OwnedLease::release) has; [`is_lost`](crate::Error::is_lost) if any of them had been lost.
    /// The text has the errors of the others, too. The leases without an error are released in any case.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient, jobs: &[leasehold::Mutex]) -> leasehold::Result<()> {
    /// let claimed = client.claim(jobs, 10)?;
    /// // … the work …
    /// client.release_all(claimed)
    /// # }
    /// ```
    pub fn release_all(&self, leases: impl IntoIterator<Item = OwnedLease>) -> Result<()> {
        release_leases(leases)
    }
}

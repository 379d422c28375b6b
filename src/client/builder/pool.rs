//! The settings of the pool.

use std::time::Duration;

use super::LockClientBuilder;

impl LockClientBuilder {
    /// How many idle connections the pool keeps ready; default 0, at most `max_size`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// // Two are ready before the first lock is taken.
    /// let client = LockClient::builder("redis://127.0.0.1:6379").min_idle(2).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_idle(mut self, connections: u32) -> LockClientBuilder {
        self.settings.pool.min_idle = connections;
        self
    }

    /// How many idle connections the pool keeps at most; default all, from `min_idle` to
    /// `max_size`.
    ///
    /// Set it above `min_idle` by as many connections as are in use at once: the pool makes one
    /// more whenever fewer than `min_idle` are idle, and closes those beyond `max_idle`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // Four of the sixteen stay open while nobody needs them.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_size(16)
    ///     .max_idle(4)
    ///     .build()?;
    /// let builder = LockClient::builder("redis://127.0.0.1:6379").max_size(4).max_idle(16);
    /// assert!(builder.build().unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_idle(mut self, connections: u32) -> LockClientBuilder {
        self.settings.pool.max_idle = Some(connections);
        self
    }

    /// How long a call waits while others use all connections; default 1 s, from 1 ms to 365 days.
    ///
    /// A call for which a connection is being made waits for the
    /// [`connect_timeout`](LockClientBuilder::connect_timeout) instead. It then has all of the
    /// [`command_timeout`](LockClientBuilder::command_timeout) for its reply. A caller that waits
    /// for less time than that, for example with [`try_lock_for`](crate::Mutex::try_lock_for), gets
    /// less.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // If all connections are in use, a call fails soon.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_wait(Duration::from_millis(200))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_wait(mut self, wait: Duration) -> LockClientBuilder {
        self.settings.pool.max_wait = wait;
        self
    }

    /// After how long an idle connection is closed; default 10 minutes, from 1 ms to 365 days,
    /// `None` for never. The pool looks every 30 s. While there are leases to renew, the connection
    /// for renewals is closed only once it has a successor.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // A load balancer on the way drops connections that are idle for two minutes.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .idle_timeout(Some(Duration::from_secs(60)))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> LockClientBuilder {
        self.settings.pool.idle_timeout = timeout;
        self
    }

    /// After how long a connection is replaced; default 30 minutes, from 1 ms to 365 days, `None`
    /// for never. The pool looks every 30 s. While there are leases to renew, the connection for
    /// renewals is closed only once it has a successor.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // A proxy that was added gets its share of the connections within five minutes.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_lifetime(Some(Duration::from_secs(300)))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_lifetime(mut self, lifetime: Option<Duration>) -> LockClientBuilder {
        self.settings.pool.max_lifetime = lifetime;
        self
    }

    /// Whether the pool tests a connection with a `PING` before each use; default no.
    ///
    /// This doubles the round trips and is seldom needed: a connection that failed is never used
    /// again, and a command that met a dead one is safely repeated.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // The same as `testOnBorrow` in Jedis.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .test_on_borrow(true)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn test_on_borrow(mut self, test: bool) -> LockClientBuilder {
        self.settings.pool.test_on_borrow = test;
        self
    }
}

//! Jobs that run once in a period.

use crate::base::error::Result;
use crate::base::option::LockOptions;
use crate::client::LockClient;
use crate::kind::mutex::MutexKind;
use crate::kind::{Once, Period};

impl LockClient {
    /// The job of this name, which runs successfully once in each period at most, over all machines.
    ///
    /// Its lock is the [mutex](LockClient::mutex) of this name. Do not call a job and a lock for something else by one name.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex`](LockClient::mutex), which also lists the reserved names, and
    /// [`is_config`](crate::Error::is_config) for a period that is not allowed.
    ///
    /// ```
    /// use leasehold::{LockClient, Period, Result, RunOutcome};
    /// use std::time::Duration;
    ///
    /// # fn report() {}
    /// fn nightly(client: &LockClient) -> Result<()> {
    ///     let nightly = Period::every(Duration::from_secs(86_400));
    ///     match client.once("nightly", nightly)?.run(|_guard| report())? {
    ///         RunOutcome::Ran(()) => println!("done"),
    ///         other => println!("{other}"), // "skipped: ran 8h ago (02:00:03 UTC) on web-3"
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn once(&self, name: impl AsRef<[u8]>, period: Period) -> Result<Once> {
        self.once_with(name, period, LockOptions::new())
    }

    /// The job of this name, with options for its lock.
    ///
    /// # Errors
    ///
    /// The same as for [`once`](LockClient::once) and [`mutex_with`](LockClient::mutex_with).
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions, Period};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // If this machine dies, another tries it after 10 s.
    /// let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(10)));
    /// let hourly = Period::every(Duration::from_secs(3_600));
    /// let job = client.once_with("hourly-report", hourly, options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_with(
        &self,
        name: impl AsRef<[u8]>,
        period: Period,
        options: LockOptions,
    ) -> Result<Once> {
        Once::new(self.handle(&MutexKind, name.as_ref(), options)?, period)
    }
}

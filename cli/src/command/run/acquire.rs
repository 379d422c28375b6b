//! Which lock a run takes, and how.

use std::time::Instant;

use leasehold::{LockClient, LockOptions, OwnedLease, Result};

/// A key may become another kind of lock in front of each attempt. One that is none of a run's kinds, this often in
/// a row, is something else.
const ROUNDS: usize = 5;

/// Who may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Alone,
    /// Others that read, too.
    Reading,
    /// So many of the permits of a semaphore.
    Permits {
        count: u32,
        of: u32,
    },
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: Vec<u8>,
    pub(crate) options: LockOptions,
    pub(crate) share: Share,
}

impl Request {
    /// Takes the lock. Returns nothing if it was not free until the deadline; none is for ever.
    pub(crate) fn acquire(
        &self,
        client: &LockClient,
        deadline: Option<Instant>,
    ) -> Result<Option<OwnedLease>> {
        match self.share {
            Share::Permits { count, of } => self.permits(client, deadline, count, of),
            Share::Alone => self
                .of_either_kind(|| self.mutex(client, deadline), || self.write(client, deadline)),
            Share::Reading => self.of_either_kind(
                || self.read(client, deadline),
                || {
                    // While a run that is alone has the mutex, there is no place for readers.
                    let Some(lease) = self.mutex(client, deadline)? else { return Ok(None) };
                    lease.release()?;
                    self.read(client, deadline)
                },
            ),
        }
    }

    /// A run that is alone takes the mutex, as programs do that use the library. Beside readers, it is the writer.
    /// Both are under one key, and the server tells which of them is there.
    fn of_either_kind(
        &self,
        usual: impl Fn() -> Result<Option<OwnedLease>>,
        other: impl Fn() -> Result<Option<OwnedLease>>,
    ) -> Result<Option<OwnedLease>> {
        let mut outcome = usual();
        for _ in 0..ROUNDS {
            for attempt in [&other as &dyn Fn() -> _, &usual] {
                match &outcome {
                    Err(error) if error.is_wrong_type() => outcome = attempt(),
                    _ => return outcome,
                }
            }
        }
        outcome
    }

    fn mutex(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<OwnedLease>> {
        let lock = client.mutex_with(&self.name, self.options)?;
        let guard = match deadline {
            None => Some(lock.lock()?),
            Some(deadline) => lock.try_lock_until(deadline)?,
        };
        // Held once: this thread has no other guard.
        Ok(guard.and_then(|guard| guard.into_owned().ok()))
    }

    fn write(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<OwnedLease>> {
        let lock = client.rw_lock_with(&self.name, self.options)?;
        let guard = match deadline {
            None => Some(lock.write()?),
            Some(deadline) => lock.try_write_until(deadline)?,
        };
        Ok(guard.and_then(|guard| guard.into_owned().ok()))
    }

    fn read(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<OwnedLease>> {
        let lock = client.rw_lock_with(&self.name, self.options)?;
        let guard = match deadline {
            None => Some(lock.read()?),
            Some(deadline) => lock.try_read_until(deadline)?,
        };
        Ok(guard.and_then(|guard| guard.into_owned().ok()))
    }

    fn permits(
        &self,
        client: &LockClient,
        deadline: Option<Instant>,
        count: u32,
        of: u32,
    ) -> Result<Option<OwnedLease>> {
        let semaphore = client.semaphore_with(&self.name, of, self.options)?;
        let permit = match deadline {
            None => Some(semaphore.acquire_many(count)?),
            Some(deadline) => {
                let wait = deadline.saturating_duration_since(Instant::now());
                semaphore.try_acquire_many_for(count, wait)?
            }
        };
        Ok(permit.and_then(|permit| permit.into_owned().ok()))
    }
}

//! The semaphore: a number of permits, each held by one holder at a time.

mod permit;

use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::option::check_span;
use crate::base::share::Share;
use crate::engine::slot::WaitLimit;
use crate::kind::method::{every_kind_methods, shared_methods};
use crate::kind::{Handle, Part};

pub use permit::Permit;

/// The most permits of one call. Lua writes no more at a time.
const MOST_PERMITS: u32 = 1_000;
/// The most permits of a semaphore. Above that, numbers stand for other things in Redis.
pub(crate) const HIGHEST_LIMIT: u32 = i32::MAX as u32;
/// How long a limit that was set by `resize` is kept after the last use.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// A number of permits that processes share, and so the largest number of holders at a time.
///
/// A [`Permit`] has a number, its [slot](Permit::slot), that no other living permit has: of four permits they are 0
/// to 3, so that users can divide GPUs, ports or shards by it.
///
/// **What it guarantees.** The permits that are held inside their validity windows are never more than the limit in
/// force when the last of them was granted, on one Redis that has lost no writes. Each permit is a lease of its own: it
/// is renewed, lost and granted again for itself, and the permits of a process that dies come back when their leases
/// end. Waiters get theirs in the order in which their processes came; one that asks for many is not overtaken by
/// those that ask for few.
///
/// **What breaks that.** The same as for a [`Mutex`](crate::Mutex): a fail-over to a replica that missed the write,
/// `FLUSHALL`, a jump of the server's clock, or a holder that is paused for longer than its lease. The resource of a
/// slot can then tell the late holder by the [token](Permit::fencing_token): those of one slot grow.
///
/// **How it differs from a semaphore in one process.** Taking a permit does I/O and can fail, and a permit can be lost
/// while it is held. It is not reentrant: each call takes further permits, and a thread may hold several. Two threads
/// that each hold some and wait for more can block each other, as with any semaphore: ask for all at once, by
/// [`acquire_many`](Semaphore::acquire_many).
///
/// The limit is stored with the lock while it is in use, and for one lease after. A client that declares another
/// one then gets an error ([`is_config`](crate::Error::is_config)) that names both. [`resize`](Semaphore::resize)
/// changes how many there are at run time, for an hour after the last use.
///
/// It is for one server, with sentinels or not, and for a cluster. A [`QuorumClient`](crate::QuorumClient) has none: a
/// majority of servers can agree on one holder, and not on who has which part.
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// let gpus = client.semaphore("gpu", 4)?;
/// let permit = gpus.acquire()?;
/// println!("work on GPU {}", permit.slot());
/// permit.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(Handle);

every_kind_methods!(Semaphore, "let lock = client.semaphore(\"orders:42\", 4)?;");
shared_methods!(Semaphore, "let lock = client.semaphore(\"orders:42\", 4)?;");

impl Semaphore {
    /// Waits for one permit without limit, and takes it.
    ///
    /// # Errors
    ///
    /// The same as for [`Mutex::lock`](crate::Mutex::lock), and [`is_config`](crate::Error::is_config) where another
    /// limit was declared for the name, or the limit in force is zero.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// let permit = gpus.acquire()?;
    /// println!("GPU {} is mine", permit.slot());
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1)
    }

    /// Tries to take one permit in one attempt; `None` if there is none.
    ///
    /// There is none either while somebody waits who came before.
    ///
    /// # Errors
    ///
    /// The same as for [`acquire`](Semaphore::acquire), at the first failure.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// match gpus.try_acquire()? {
    ///     Some(permit) => println!("GPU {} is mine", permit.slot()),
    ///     None => println!("all are busy"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1)
    }

    /// Waits for one permit for at most `wait`; `None` if there was none all the time.
    ///
    /// Zero is one attempt. A wait that is too long for the clock has no end.
    ///
    /// # Errors
    ///
    /// The same as for [`acquire`](Semaphore::acquire), also when the time ends during an outage.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// if let Some(permit) = gpus.try_acquire_for(Duration::from_secs(2))? {
    ///     println!("GPU {} is mine", permit.slot());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>> {
        self.try_acquire_many_for(1, wait)
    }

    /// Waits for one permit until `deadline`; `None` if there was none all the time.
    ///
    /// # Errors
    ///
    /// The same as for [`try_acquire_for`](Semaphore::try_acquire_for).
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// let permit = gpus.try_acquire_until(Instant::now() + Duration::from_secs(2))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        self.take(1, self.0.until_instant(deadline))
    }

    /// Waits for several permits at once, and takes them under one lease.
    ///
    /// They are granted together or not at all. Nobody who came later is granted meanwhile, so a call for all permits
    /// waits for the holders of the moment only.
    ///
    /// # Errors
    ///
    /// The same as for [`acquire`](Semaphore::acquire), and [`is_config`](crate::Error::is_config) for none, for more
    /// than 1,000, and for more than there are: before any I/O by the declared limit, and later by the one in force.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// let two = gpus.acquire_many(2)?;
    /// println!("GPUs {:?} are mine", two.slots());
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_many(&self, permits: u32) -> Result<Permit> {
        self.take(permits, WaitLimit::FOR_EVER)?
            // A wait without an end returns no `None`. If that changed, an error would be safer than a panic.
            .ok_or_else(|| Error::timeout("a wait without a deadline has ended").of(self.0.name()))
    }

    /// Tries to take several permits in one attempt; `None` if there are not enough.
    ///
    /// # Errors
    ///
    /// The same as for [`acquire_many`](Semaphore::acquire_many), at the first failure.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// if let Some(two) = gpus.try_acquire_many(2)? {
    ///     println!("GPUs {:?} are mine", two.slots());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        self.take(permits, WaitLimit::TryOnce)
    }

    /// Waits for several permits for at most `wait`; `None` if there were not enough all the time.
    ///
    /// # Errors
    ///
    /// The same as for [`acquire_many`](Semaphore::acquire_many), also when the time ends during an outage.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// let two = gpus.try_acquire_many_for(2, Duration::from_secs(2))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<Permit>> {
        self.take(permits, self.0.until(wait))
    }

    fn take(&self, count: u32, wait_limit: WaitLimit) -> Result<Option<Permit>> {
        Ok(self.0.take(self.share_of(count)?, wait_limit)?.map(Permit::new))
    }

    fn share_of(&self, count: u32) -> Result<Share> {
        let limit = self.declared();
        if count == 0 || count > MOST_PERMITS.min(limit) {
            let most = MOST_PERMITS.min(limit);
            let right = format_args!("1 to {most}, as the limit is {limit}");
            return Err(Error::config("permits", count, right).of(self.0.name()));
        }
        Ok(Share::Permits { count, limit })
    }

    /// This many permits as one [`Part`] of what [`lock_all`](crate::LockClient::lock_all) takes at once.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// use leasehold::Part;
    ///
    /// let (gpus, model) = (client.semaphore("gpu", 4)?, client.mutex("model:7")?);
    /// let guard = client.lock_all([gpus.permits(2), Part::from(&model)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self, count: u32) -> Part {
        match self.share_of(count) {
            Ok(share) => Part::new(self.0.for_share(share)),
            Err(error) => Part::refused(self.0.clone(), error),
        }
    }

    /// The limit with which this handle was made.
    fn declared(&self) -> u32 {
        match self.0.share() {
            Share::Permits { limit, .. } => limit,
            _ => HIGHEST_LIMIT,
        }
    }

    /// Asks Redis how many permits are free at this moment. Those who wait for one may be granted them first.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked, or the key is no semaphore.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// println!("{} of {} are free", gpus.available()?, gpus.limit()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn available(&self) -> Result<u32> {
        let permits = self.inspect()?.permits();
        Ok(permits.map_or(self.declared(), |it| it.limit().saturating_sub(it.used())))
    }

    /// Asks Redis for the limit in force: the one with which the semaphore was made, unless it was
    /// [resized](Semaphore::resize).
    ///
    /// # Errors
    ///
    /// The same as for [`available`](Semaphore::available).
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// println!("{} permits in all", gpus.limit()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(&self) -> Result<u32> {
        Ok(self.inspect()?.permits().map_or(self.declared(), |it| it.limit()))
    }

    /// Changes how many permits there are, at run time and for all clients, which go on declaring the limit that they
    /// declared before.
    ///
    /// With more than before, waiters are granted them at once. With fewer than are held, nobody is evicted and nobody
    /// is granted a permit until enough were released; permits with a [slot](Permit::slot) above the new limit live on
    /// until then. Waiters that ask for more than the new limit get an error
    /// ([`is_config`](crate::Error::is_config)).
    ///
    /// It lasts for an hour after the last use, or for one lease of this handle if that is longer;
    /// [`resize_for`](Semaphore::resize_for) names another time. Then the semaphore has the limit again that its next
    /// user declares. A permit that is held, a wait, and a request that is refused are uses. So a limit of zero, which
    /// stops all grants, lasts for as long as somebody asks at least once an hour.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a limit above 2<sup>31</sup> - 1, and where another limit than this
    /// handle's was declared; when Redis cannot be asked, or not in time.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// // Four more GPUs were plugged in.
    /// gpus.resize(8)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resize(&self, permits: u32) -> Result<()> {
        self.resize_for(permits, KEPT)
    }

    /// The same as [`resize`](Semaphore::resize) for `keep` after the last use, from 1 ms to 30 days.
    ///
    /// It lasts for one lease of this handle if that is longer, and at least for as long as the limit before it would
    /// have, unless nobody holds a permit or waits for one.
    ///
    /// # Errors
    ///
    /// The same as for [`resize`](Semaphore::resize), and [`is_config`](crate::Error::is_config) for a time out of these
    /// bounds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// // Nobody gets a GPU over the long weekend.
    /// gpus.resize_for(0, Duration::from_secs(4 * 24 * 60 * 60))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resize_for(&self, permits: u32, keep: Duration) -> Result<()> {
        if permits > HIGHEST_LIMIT {
            let right = format_args!("at most {HIGHEST_LIMIT}");
            return Err(Error::config("limit", permits, right).of(self.0.name()));
        }
        check_span("keep of resize_for", keep).map_err(|error| error.of(self.0.name()))?;
        self.0.resize(permits, self.declared(), keep)
    }
}

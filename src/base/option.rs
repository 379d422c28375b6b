//! How a lock is leased, waited for and released.

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::share::{Access, Share};
use crate::base::text::Span;

/// The shortest time to live.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const LIMITS: &str = "1ms to 30 days";
/// The clock skew in force is at most the lease divided by this.
const MOST_SKEW: u32 = 10;

/// How long Redis keeps a lock without a renewal, and whether the client renews it.
///
/// ```
/// use leasehold::Lease;
/// use std::time::Duration;
///
/// let renewed = Lease::default();
/// assert!(renewed.is_renewed());
/// assert_eq!(renewed.ttl(), Duration::from_secs(30));
///
/// let fixed = Lease::fixed(Duration::from_secs(5));
/// assert!(!fixed.is_renewed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    ttl: Duration,
    renewed: bool,
    tail: Duration,
    pub(crate) limit: Option<Duration>,
}

impl Lease {
    /// A lease that is renewed every third of `ttl` for as long as the lock is held.
    ///
    /// If the holder's machine dies, others wait for what remains of `ttl`.
    ///
    /// ```
    /// use leasehold::Lease;
    /// use std::time::Duration;
    ///
    /// // Renewed every 5 s. If the machine dies, others wait for 15 s at most.
    /// const LEASE: Lease = Lease::renewed(Duration::from_secs(15));
    /// assert!(LEASE.is_renewed());
    /// ```
    pub const fn renewed(ttl: Duration) -> Lease {
        Lease { ttl, renewed: true, tail: Duration::ZERO, limit: None }
    }

    /// A lease that ends `ttl` after it was taken, unless [`Guard::extend`] makes it longer.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// // The work takes a second, and nobody has to wait for more than five.
    /// let options = LockOptions::new().lease(Lease::fixed(Duration::from_secs(5)));
    /// ```
    ///
    /// [`Guard::extend`]: crate::Guard::extend
    pub const fn fixed(ttl: Duration) -> Lease {
        Lease { ttl, renewed: false, tail: Duration::ZERO, limit: None }
    }

    /// Lets a hold come back after its lease, within this time, as long as nobody else has taken the lock.
    ///
    /// A short lease frees the lock of a dead process soon, and loses that of a living one in each outage that is longer.
    /// This is for both. Redis keeps the lock for `tail` longer than the lease lasts. In that time the lock is free to the
    /// next client that asks for it, and still the holder's if nobody does: once Redis confirms a renewal, the hold is
    /// valid again, with the same token. Until then [`is_valid`](crate::Guard::is_valid) is `false` and
    /// [`loss`](crate::Guard::loss) is `None`. If somebody else has taken the lock, the hold is lost, with the cause
    /// [`Taken`](crate::LossCause::Taken).
    ///
    /// The work must stop, or at least write nothing that is not fenced, while the hold is not valid.
    /// [`check`](crate::Guard::check) asks Redis at once whether it can go on. A pause of the process is such a silence, too.
    ///
    /// Zero, the default, means that a hold is lost with its lease; otherwise from 1 ms to 30 days. Only for a renewed
    /// lease, of a [`Mutex`](crate::Mutex) or an [`Election`](crate::Election) on one server or in a cluster. Clients of
    /// versions that do not know this wait for the end of `tail`, too.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // If this process dies, others wait for 3 s. If Redis is away for 20 s, the hold goes on after that.
    /// let lease = Lease::renewed(Duration::from_secs(3)).recoverable_for(Duration::from_secs(27));
    /// let lock = client.mutex_with("orders:42", LockOptions::new().lease(lease))?;
    /// // A fixed lease is not renewed, so nothing would bring it back.
    /// let fixed = Lease::fixed(Duration::from_secs(3)).recoverable_for(Duration::from_secs(27));
    /// assert!(client.mutex_with("orders:42", LockOptions::new().lease(fixed)).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn recoverable_for(mut self, tail: Duration) -> Lease {
        self.tail = tail;
        self
    }

    /// Ends a hold after this time at the latest, however often its lease is renewed or extended.
    ///
    /// It is [`LockOptions::max_hold`] in the lease, so that
    /// [`DistributedLock`](crate::DistributedLock) has it too. The shorter of the two counts. The
    /// lease may last on in Redis, where it ends by itself. From 1 ms to 30 days.
    ///
    /// ```
    /// use leasehold::Lease;
    /// use std::time::Duration;
    ///
    /// // Renewed while the work goes on, but work that hangs loses the lock after an hour.
    /// const LEASE: Lease = Lease::renewed(Duration::from_secs(15)).at_most(Duration::from_secs(3600));
    /// assert!(LEASE.is_renewed());
    /// ```
    pub const fn at_most(mut self, limit: Duration) -> Lease {
        self.limit = Some(limit);
        self
    }

    /// The time to live.
    ///
    /// ```
    /// use leasehold::Lease;
    /// use std::time::Duration;
    ///
    /// let lease = Lease::fixed(Duration::from_secs(5));
    /// assert_eq!(lease.ttl(), Duration::from_secs(5));
    /// ```
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// For how long after its lease a hold can come back: what [`recoverable_for`](Lease::recoverable_for) was given, else
    /// zero.
    ///
    /// ```
    /// use leasehold::Lease;
    /// use std::time::Duration;
    ///
    /// let lease = Lease::renewed(Duration::from_secs(3)).recoverable_for(Duration::from_secs(27));
    /// assert_eq!(lease.tail(), Duration::from_secs(27));
    /// assert_eq!(Lease::default().tail(), Duration::ZERO);
    /// ```
    pub const fn tail(&self) -> Duration {
        self.tail
    }

    /// The time to live of the key beside a lease that lasts for `ttl` (rule 46).
    pub(crate) const fn key_ttl(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.tail)
    }

    /// Whether the lease is renewed.
    ///
    /// ```
    /// use leasehold::Lease;
    /// use std::time::Duration;
    ///
    /// let ttl = Duration::from_secs(15);
    /// assert!(Lease::renewed(ttl).is_renewed());
    /// assert!(!Lease::fixed(ttl).is_renewed());
    /// ```
    pub const fn is_renewed(&self) -> bool {
        self.renewed
    }
}

impl Default for Lease {
    /// Renewed, 30 s.
    fn default() -> Lease {
        Lease::renewed(Duration::from_secs(30))
    }
}

/// How a thread waits while another process has the lock.
///
/// ```
/// use leasehold::{LockOptions, Wait};
///
/// // On this server publish/subscribe is not allowed.
/// let options = LockOptions::new().wait(Wait::spin());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait(pub(crate) WaitKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitKind {
    Queue,
    Notify,
    Spin,
}

impl Wait {
    /// Queues in Redis, where a release hands the lock to the first living waiter. It is the default for a
    /// [`Mutex`](crate::Mutex), a [`Semaphore`](crate::Semaphore), a [`RwLock`](crate::RwLock) and an
    /// [`Election`](crate::Election) on one server or in a cluster. No other lock allows it.
    ///
    /// Processes are served in order of arrival. No process polls, and a hand-over takes one
    /// command for any number of waiters. A renewed lease that is handed over is
    /// [short at first](crate::guide::concepts#leases-and-renewal), until its first renewal.
    ///
    /// It needs publish/subscribe. If a user may subscribe but not publish, a waiter notices at its
    /// next heartbeat, within a second, that the lock is its own.
    ///
    /// ```
    /// use leasehold::{LockOptions, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let queued = LockOptions::new().wait(Wait::queue());
    /// let lock = client.mutex_with("orders:42", queued)?;
    /// // In Redisson's layout there is no queue.
    /// assert!(client.reentrant_with("orders:42", queued).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn queue() -> Wait {
        Wait(WaitKind::Queue)
    }

    /// Subscribes to the lock's channel and tries again at every release.
    ///
    /// It is the default for a [`ReentrantLock`](crate::ReentrantLock), because Redisson's waiters
    /// do the same on the same channel. It is also the default for the locks of a
    /// [`QuorumClient`](crate::QuorumClient), which subscribes at all servers and tries again after
    /// a short random pause. No other lock allows it.
    ///
    /// One thread of a process contends. There is no queue. A process that releases the lock while others
    /// are subscribed [pauses](crate::guide::waiting#beside-redisson) before it takes the lock again, also
    /// in [`try_lock`](crate::ReentrantLock::try_lock): until the others can have had their turns, or until
    /// nobody has taken the lock for some milliseconds. It needs publish/subscribe.
    ///
    /// ```
    /// use leasehold::{LockOptions, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let woken = LockOptions::new().wait(Wait::notify());
    /// let lock = client.reentrant_with("orders:42", woken)?;
    /// // On one server a mutex queues instead.
    /// assert!(client.mutex_with("orders:42", woken).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn notify() -> Wait {
        Wait(WaitKind::Notify)
    }

    /// Tries again after random pauses, up to 1 ms at first and up to 128 ms later.
    ///
    /// It never pauses past the caller's deadline, nor for longer than the time to live that Redis
    /// has just reported.
    ///
    /// There is no order among processes, and nothing bounds the wait: a thread gets the lock only if it
    /// asks at a moment at which nobody holds it and nobody queues. Beside processes that always queue,
    /// or one whose threads keep the lock busy, [it never has its turn](crate::guide::waiting#among-processes).
    /// The client receives no messages: a holder that is [evicted](crate::Mutex::force_release) notices at
    /// its next renewal. Use it on servers on which publish/subscribe is not allowed, in all processes that
    /// want the lock.
    ///
    /// ```
    /// use leasehold::{LockOptions, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let spinning = LockOptions::new().wait(Wait::spin());
    /// let mutex = client.mutex_with("orders:42", spinning)?;
    /// let reentrant = client.reentrant_with("invoices:42", spinning)?;
    /// # Ok(())
    /// # }
    /// ```
    pub const fn spin() -> Wait {
        Wait(WaitKind::Spin)
    }

    pub(crate) const fn shown(self) -> &'static str {
        match self.0 {
            WaitKind::Queue => "Wait::queue()",
            WaitKind::Notify => "Wait::notify()",
            WaitKind::Spin => "Wait::spin()",
        }
    }
}

/// How a lock is released in Redis. Both ways touch the key only if it is still the holder's.
///
/// ```
/// use leasehold::{LockOptions, Release, Wait};
///
/// let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Release(pub(crate) ReleaseKind);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ReleaseKind {
    #[default]
    Lua,
    Watch,
}

impl Release {
    /// By one script, in one round trip. The default.
    ///
    /// ```
    /// use leasehold::{LockOptions, Release};
    ///
    /// // The same as without this option.
    /// assert_eq!(LockOptions::new().release(Release::lua()), LockOptions::new());
    /// ```
    pub const fn lua() -> Release {
        Release(ReleaseKind::Lua)
    }

    /// By `WATCH`, `GET`, `MULTI`, `DEL`, `EXEC`, in three round trips, as many articles show it.
    /// Only for
    /// [`Mutex`](crate::Mutex) with [`Wait::spin`].
    ///
    /// If the worker must finish a release for a caller, it uses the script.
    ///
    /// ```
    /// use leasehold::{LockOptions, Release, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let watching = LockOptions::new().release(Release::watch());
    /// let lock = client.mutex_with("orders:42", watching.wait(Wait::spin()))?;
    /// // A mutex that queues needs the script, which hands it over.
    /// assert!(client.mutex_with("orders:42", watching).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn watch() -> Release {
        Release(ReleaseKind::Watch)
    }
}

/// The copies that a lock must have before it counts: in the memory of replicas (`WAIT`), or on
/// disks (`WAITAOF`). Also the copies that it has, as the server counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durability {
    pub(crate) on_disk: bool,
    /// On the disk of the master too.
    pub(crate) local: bool,
    pub(crate) replicas: u32,
    /// How long the copies may take.
    pub(crate) within: Duration,
}

impl Durability {
    /// Whether there are as many copies as `other` demands.
    pub(crate) fn covers(&self, other: &Durability) -> bool {
        self.replicas >= other.replicas && self.local >= other.local
    }

    /// Checks the values that do not depend on the client's settings.
    fn check(&self) -> Result<()> {
        // `WAIT 0` succeeds at once, so that a lock would seem to be replicated when nothing was
        // demanded.
        if !self.local && self.replicas == 0 {
            let (wrong, allowed) = if self.on_disk {
                ("no disk at all", "local = true, or at least 1 replica")
            } else {
                ("0 replicas", "at least 1")
            };
            return Err(Error::config(self.field(), wrong, allowed));
        }
        check_span(&self.time_out(), self.within)
    }

    /// The name of the setting.
    pub(crate) fn field(&self) -> &'static str {
        if self.on_disk { "min_fsyncs" } else { "min_replicas" }
    }

    /// The name of its argument `within` in errors.
    pub(crate) fn time_out(&self) -> String {
        format!("time-out of {}", self.field())
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Durability { on_disk, local, replicas, .. } = self;
        if !on_disk {
            return write!(f, "{replicas} replicas");
        }
        let local = if *local { "the disk" } else { "not the disk" };
        write!(f, "{local} of the master and the disks of {replicas} replicas")
    }
}

/// The options of one lock handle.
///
/// Handles of one name may have different options; each hold follows those of the handle that took
/// it, and a call inside a hold has [what it asks for](crate::guide::concepts#what-an-inner-call-asks-for).
/// [Options](crate::guide::options) has all of them in a table.
///
/// ```
/// use leasehold::{Lease, LockOptions};
/// use std::time::Duration;
///
/// let options = LockOptions::new()
///     .lease(Lease::renewed(Duration::from_secs(10)))
///     .max_hold(Duration::from_secs(300));
/// ```
#[must_use = "each setting returns new options, and leaves these as they are"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockOptions {
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
    pub(crate) wait: Option<Wait>,
    pub(crate) release: Release,
    local_handoffs: Option<u32>,
    pub(crate) linger: Duration,
    pub(crate) once_per_thread: OncePerThread,
    pub(crate) max_waiters: Option<u32>,
    /// Set by the kind of lock, and by no user.
    pub(crate) share: Share,
    /// The largest difference between the clocks of the servers. The client sets it, not the user.
    pub(crate) max_clock_skew: Duration,
    min_replicas: Option<Durability>,
    min_fsyncs: Option<Durability>,
}

/// What a request for a lock asks for, of the options of a handle. The owner's value keeps it.
///
/// This and [`HoldOptions`] together take less room than all options, and there is one of each for each lock that is held.
#[derive(Debug)]
pub(crate) struct RequestOptions {
    pub(crate) lease: Lease,
    pub(crate) wait: WaitKind,
    pub(crate) release: Release,
    pub(crate) share: Share,
    max_clock_skew: Duration,
}

impl RequestOptions {
    /// The clock skew in force for a lease of this length.
    pub(crate) fn clock_skew(&self, ttl: Duration) -> Duration {
        // At most a share of the lease, or a short lease would end before it began. The share is that of
        // the requested lease: a hand-over writes a shorter one at first, and a tenth of that would
        // protect less than the lease promises.
        self.max_clock_skew.min(self.lease.ttl.max(ttl) / MOST_SKEW)
    }

    /// Whether a handle with these options sends the same requests, so that a thread of it can take over an attempt or a
    /// lease that was asked for like this.
    pub(crate) fn requests_same_as(&self, other: &LockOptions) -> bool {
        self.lease == other.lease
            && self.wait == other.wait_kind()
            && self.release == other.release
            && self.share == other.share
    }
}

/// What each hold follows of the options of the handle whose thread has it (rule 17). It is kept in the process.
#[derive(Debug)]
pub(crate) struct HoldOptions {
    pub(crate) linger: Duration,
    pub(crate) most_handoffs: u32,
    pub(crate) once_per_thread: OncePerThread,
    /// Whether it renews its lease.
    pub(crate) is_renewed: bool,
    /// The copies that a lock must have before it counts. Usually there are none, and an empty list allocates nothing.
    pub(crate) durabilities: Box<[Durability]>,
}

/// Whether a thread holds the lock once at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OncePerThread(bool);

impl OncePerThread {
    /// Whether a thread that holds the lock in this way must not take it again. Readers are inside together anyway.
    pub(crate) fn forbids(self, access: Option<Access>) -> bool {
        self.0 && access != Some(Access::Read)
    }
}

impl LockOptions {
    /// The defaults: a renewed lease of 30 s without a cap.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    ///
    /// let options = LockOptions::new();
    /// assert_eq!(options, options.lease(Lease::default()));
    /// ```
    pub fn new() -> LockOptions {
        LockOptions::default()
    }

    /// The lease; default [`Lease::renewed`] of 30 s, allowed from 1 ms to 30 days.
    ///
    /// A lease shorter than ten command time-outs, or twenty [node
    /// time-outs](crate::QuorumClientBuilder::node_timeout), is allowed, but one slow reply may
    /// then cost the lock. The client logs a warning about the first such lease.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let short = LockOptions::new().lease(Lease::renewed(Duration::from_secs(10)));
    /// let lock = client.mutex_with("orders:42", short)?;
    /// // Refused before any I/O.
    /// let none = LockOptions::new().lease(Lease::fixed(Duration::ZERO));
    /// assert!(client.mutex_with("orders:42", none).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: Lease) -> LockOptions {
        self.lease = lease;
        self
    }

    /// How long one hold may last at most; default without limit, allowed from 1 ms to 30 days.
    ///
    /// When a hold reaches the limit it is lost with [`LossCause::MaxHold`], and renewal stops. So
    /// a thread that hangs, or a guard that was forgotten, cannot keep the lock for ever.
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // A report that hangs keeps the lock for an hour at most.
    /// let options = LockOptions::new().max_hold(Duration::from_secs(3600));
    /// let lock = client.mutex_with("search-index", options)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`LossCause::MaxHold`]: crate::LossCause::MaxHold
    pub fn max_hold(mut self, limit: Duration) -> LockOptions {
        self.max_hold = Some(limit);
        self
    }

    /// How many times the lease of one hold is renewed at most; default without limit.
    ///
    /// After the last renewal the lease runs out like a fixed one. With zero it is never renewed.
    /// This has no effect on [`Lease::fixed`].
    ///
    /// ```
    /// use leasehold::LockOptions;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // Renewed every 10 s: the sixth renewal comes after a minute, and the lease ends 30 s later.
    /// let options = LockOptions::new().max_renewals(6);
    /// let lock = client.mutex_with("search-index", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_renewals(mut self, limit: u32) -> LockOptions {
        self.max_renewals = Some(limit);
        self
    }

    /// How to wait; default [`Wait::notify`] for a [`ReentrantLock`](crate::ReentrantLock) and for all locks of a
    /// [`QuorumClient`](crate::QuorumClient), and [`Wait::queue`] for all others. Each kind of lock allows its default and
    /// [`Wait::spin`].
    ///
    /// ```
    /// use leasehold::{LockOptions, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().wait(Wait::spin());
    /// let lock = client.reentrant_with("orders:42", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, wait: Wait) -> LockOptions {
        self.wait = Some(wait);
        self
    }

    /// How to release; default [`Release::lua`].
    ///
    /// ```
    /// use leasehold::{LockOptions, Release, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    /// let lock = client.mutex_with("orders:42", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self, release: Release) -> LockOptions {
        self.release = release;
        self
    }

    /// How many times in a row the lease may be handed off to the next thread of the same process
    /// while another process is known to wait; default 16, zero for never.
    ///
    /// A hand-off takes no command. Only a renewed lease is handed off. This goes on for no longer
    /// than 50 ms while another process waits, and for no longer than 1 s while none is known to,
    /// because processes that do not queue cannot make themselves known. If the client receives no
    /// messages about waiters, as with any way to wait other than [`Wait::queue`], it assumes that
    /// one waits. A [`ReentrantLock`](crate::ReentrantLock) whose last releases had subscribers in
    /// other processes is handed off for 1 ms at most.
    ///
    /// ```
    /// use leasehold::LockOptions;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // Each release goes to Redis, where other processes wait too.
    /// let options = LockOptions::new().local_handoffs(0);
    /// let lock = client.mutex_with("orders:42", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_handoffs(mut self, most: u32) -> LockOptions {
        self.local_handoffs = Some(most);
        self
    }

    /// How long the process keeps the lease after the last unlock, so that it can lock again
    /// without a command; default zero, at most 30 days.
    ///
    /// A waiter of another process that queues ([`Wait::queue`]) ends the linger at once; if its
    /// message is lost, within a second of the next one. Waiters that do not queue, and other
    /// libraries, wait for the end of the linger. It lasts for half of the remaining lease at most.
    ///
    /// The process takes the lease again within a second of the last reply that confirmed it, and
    /// asks Redis otherwise: a lock that was deleted or taken meanwhile is noticed by then. While
    /// threads lock over and over, the worker renews the lease more than once a second for that. Once
    /// they stop, the lease may linger a quarter longer than it was told, and at most 100 ms longer.
    ///
    /// Only a renewed lease of a lock that queues lingers. A process that locks more than once a
    /// microsecond sends a command now and then, because no token runs ahead of the server's clock.
    ///
    /// Permits and readers that linger do not keep out their own process: when Redis refuses a call
    /// of the same client for their name, the client gives them back and asks again.
    ///
    /// The drop of the last client and lock releases what lingers. A process that ends without it, by
    /// [`std::process::exit`] or with the client in a `static`, leaves such a lock held until its lease ends: call
    /// [`close`](crate::LockClient::close) or [`shutdown`](crate::LockClient::shutdown) first.
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // For a loop that takes the lock a hundred times a second, while hardly anybody else does.
    /// let options = LockOptions::new().linger(Duration::from_millis(100));
    /// let lock = client.mutex_with("counter", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn linger(mut self, linger: Duration) -> LockOptions {
        self.linger = linger;
        self
    }

    /// Whether the thread that holds the lock may take it again, without waiting; default yes.
    ///
    /// Reentry belongs to a thread. Where a thread can come to *other* work in the midst of a section, two
    /// sections would be inside at once, under one token: a pool that steals work, such as rayon, or tasks that
    /// share a thread and await in a section. With `false` that cannot happen. A hold that was taken so is
    /// entered again through no handle of its name, whatever the options of that handle. A call through a
    /// handle with `false` does not enter a hold that was taken with other options, either.
    ///
    /// In the thread that has the lock, calls that wait for a time, or not at all, then return `None` at once,
    /// and [`last_blocker`](crate::Mutex::last_blocker) is the thread's own hold. A call that waits without an end
    /// would wait for itself, and so it is an error at once ([`is_config`](crate::Error::is_config)). That holds
    /// for [`lock_all`](crate::LockClient::lock_all) and its variants, too.
    ///
    /// Of a [`RwLock`](crate::RwLock) it is about writers and upgradable readers. Readers are inside together
    /// anyway, and a thread that reads may read once more. A [`Semaphore`](crate::Semaphore) is never reentrant.
    /// Locks by key have [a setting of the client](crate::LockClientBuilder::reentrant_by_key).
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let once = LockOptions::new().reentrant(false);
    /// let lock = client.mutex_with("orders:42", once)?;
    /// let guard = lock.lock()?;
    /// assert!(lock.try_lock_for(Duration::from_secs(2))?.is_none());
    /// assert!(lock.lock().unwrap_err().is_config());
    /// // Nor through another handle.
    /// assert!(client.mutex("orders:42")?.try_lock()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self, reentrant: bool) -> LockOptions {
        self.once_per_thread = OncePerThread(!reentrant);
        self
    }

    /// How many threads of one client may wait for the lock at a time; default without limit, at least 1.
    ///
    /// A call through this handle that would be one more does not wait, so that the threads of a server do not all
    /// end up behind one lock. It fails at once with [`is_crowded`](crate::Error::is_crowded). If it has a time limit,
    /// and the holder is known, it returns `None` at once. In both cases
    /// [`last_blocker`](crate::Mutex::last_blocker) is the holder, if it is known: in an outage it is not, nor before
    /// Redis has replied to the first thread that waits.
    ///
    /// All threads of the client that wait for the name count, also through handles with other options, and an
    /// upgrade too. Single attempts, such as [`try_lock`](crate::Mutex::try_lock), wait for no holder: they are
    /// neither counted nor refused. It costs no command. Zero is refused, because it means "without limit" to
    /// some and "nobody" to others: for the latter there is `try_lock`.
    ///
    /// ```
    /// use leasehold::LockOptions;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // Of 200 threads of a server at most eight stand behind this lock.
    /// let lock = client.mutex_with("report", LockOptions::new().max_waiters(8))?;
    /// let none = LockOptions::new().max_waiters(0);
    /// assert!(client.mutex_with("report", none).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiters(mut self, most: u32) -> LockOptions {
        self.max_waiters = Some(most);
        self
    }

    /// How many replicas must have the lock before it counts, and how long they may take to confirm
    /// it; default none. `within` is allowed from 1 ms to less than the client's command time-out,
    /// and comes on top of the caller's wait.
    ///
    /// Each time a thread takes the lock, `WAIT` follows on the same connection: two more commands.
    /// If too few replicas confirm, the lock is released again, and the call fails with
    /// [`is_not_replicated`](crate::Error::is_not_replicated). A thread that held the lock already holds it as before.
    ///
    /// This makes the loss of a lock in a fail-over less likely, but not impossible: another
    /// replica may be promoted, and renewals do not wait for replicas.
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let one = LockOptions::new().min_replicas(1, Duration::from_millis(100));
    /// let lock = client.mutex_with("orders:42", one)?;
    /// // It must be less than the command time-out, which is 1 s.
    /// let late = LockOptions::new().min_replicas(1, Duration::from_secs(2));
    /// assert!(client.mutex_with("orders:42", late).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_replicas(mut self, least: u32, within: Duration) -> LockOptions {
        self.min_replicas =
            Some(Durability { on_disk: false, local: false, replicas: least, within });
        self
    }

    /// On which disks the lock must be before it counts, and how long that may take; default none.
    /// `local` asks for the master's own disk, `replicas` for the disks of that many replicas, at
    /// least one disk in all. `within` is allowed from 1 ms to less than the client's command
    /// time-out, and comes on top of the caller's wait and of what
    /// [`min_replicas`](LockOptions::min_replicas) takes.
    ///
    /// Each time a thread takes the lock, `WAITAOF` follows on the same connection: two more
    /// commands. It returns when the append-only files are synced. With `appendfsync everysec` that
    /// is up to two seconds later, which `within` must allow for; with `appendfsync no` the
    /// operating system decides. If too few disks are in time, the lock is released again, and the
    /// call fails with
    /// [`is_not_fsynced`](crate::Error::is_not_fsynced).
    ///
    /// A granted lock then survives a crash and a restart of those servers and of their machines,
    /// if they load their append-only files. Renewals do not wait for disks. If the renewals of the
    /// last moments before a crash are missing, the lock may be granted anew before its holder's
    /// guard turns invalid; the fencing token then tells the two holds apart.
    ///
    /// It needs Redis 7.2 or Valkey, and for `local` a master with `appendonly yes`. Otherwise the
    /// call fails with [`is_config`](crate::Error::is_config).
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// // On the master's disk and on that of one replica.
    /// let options = LockOptions::new().min_fsyncs(true, 1, Duration::from_millis(900));
    /// ```
    pub fn min_fsyncs(mut self, local: bool, replicas: u32, within: Duration) -> LockOptions {
        self.min_fsyncs = Some(Durability { on_disk: true, local, replicas, within });
        self
    }

    /// The same options for calls that ask for this.
    pub(crate) fn for_share(self, share: Share) -> LockOptions {
        LockOptions { share, ..self }
    }

    /// The same options, for servers whose clocks may differ by this much.
    pub(crate) fn for_servers(self, max_clock_skew: Duration) -> LockOptions {
        LockOptions { max_clock_skew, ..self }
    }

    /// How a read-write lock is asked for.
    pub(crate) fn access(&self) -> Option<Access> {
        self.share.access()
    }

    /// The copies that a lock must have before it counts.
    pub(crate) fn durabilities(&self) -> impl Iterator<Item = Durability> {
        // Memory before disks: a replica has a write in memory first, so that the second wait is
        // shorter.
        [self.min_replicas, self.min_fsyncs].into_iter().flatten()
    }

    /// Those that go into its requests.
    pub(crate) fn of_request(&self) -> RequestOptions {
        let LockOptions { lease, release, share, max_clock_skew, .. } = *self;
        RequestOptions { lease, wait: self.wait_kind(), release, share, max_clock_skew }
    }

    /// Those that a hold follows.
    pub(crate) fn of_hold(&self) -> HoldOptions {
        HoldOptions {
            linger: self.linger,
            most_handoffs: self.most_handoffs(),
            once_per_thread: self.once_per_thread,
            is_renewed: self.is_renewed(),
            durabilities: self.durabilities().collect(),
        }
    }

    /// Whether a hold renews its lease. Only then may a grant be shorter than the lease at first.
    pub(crate) fn is_renewed(&self) -> bool {
        self.lease.is_renewed() && self.max_renewals != Some(0)
    }

    /// The way to wait. A handle fills in the default of its kind before it asks.
    pub(crate) fn wait_kind(&self) -> WaitKind {
        self.wait.unwrap_or(Wait::queue()).0
    }

    /// How long a hold may last.
    pub(crate) fn longest_hold(&self) -> Option<Duration> {
        [self.max_hold, self.lease.limit].into_iter().flatten().min()
    }

    pub(crate) fn most_handoffs(&self) -> u32 {
        self.local_handoffs.unwrap_or(16)
    }

    /// Checks every field, before any I/O.
    pub(crate) fn check(&self) -> Result<()> {
        check_span("lease", self.lease.ttl)?;
        self.max_hold.map_or(Ok(()), |limit| check_span("max_hold", limit))?;
        self.lease.limit.map_or(Ok(()), |limit| check_span("limit of the lease", limit))?;
        self.check_tail()?;
        self.durabilities().try_for_each(|wanted| wanted.check())?;
        if self.linger > LONGEST {
            let wrong = format!("{} is too long", Span(self.linger));
            return Err(Error::config("linger", wrong, "at most 30 days"));
        }
        if self.max_waiters == Some(0) {
            let allowed = "at least 1; `try_lock` waits for no holder";
            return Err(Error::config("max_waiters", 0, allowed));
        }
        Ok(())
    }

    fn check_tail(&self) -> Result<()> {
        let tail = self.lease.tail;
        if tail.is_zero() {
            return Ok(());
        }
        check_span(TAIL, tail)?;
        if !self.lease.renewed {
            let wrong =
                format_args!("{} after a fixed lease, which no renewal brings back", Span(tail));
            return Err(Error::config(TAIL, wrong, "Lease::renewed"));
        }
        Ok(())
    }
}

/// The name of the tail of a lease in errors.
pub(crate) const TAIL: &str = "recoverable_for";

/// The name of the argument of `extend` in errors.
pub(crate) const TTL_OF_EXTEND: &str = "ttl of extend";

/// Checks a span that becomes a time to live.
pub(crate) fn check_span(field: &str, span: Duration) -> Result<()> {
    // From 1 ms, because Redis deletes a key with a time to live of zero. Up to 30 days, so that
    // sums of moments, and numbers in Lua, stay far from their limits.
    check_bounds(field, span, LONGEST, LIMITS)
}

/// Checks that a `max_clock_skew` is not too long.
pub(crate) fn check_skew(skew: Duration) -> Result<()> {
    if skew > LONGEST {
        let wrong = format!("{} is too long", Span(skew));
        return Err(Error::config("max_clock_skew", wrong, "at most 30 days"));
    }
    Ok(())
}

/// Checks that a span is between a millisecond and `longest`. The text `limits` names both.
pub(crate) fn check_bounds(
    field: &str,
    span: Duration,
    longest: Duration,
    limits: &str,
) -> Result<()> {
    let shown = Span(span);
    if span < SHORTEST {
        Err(Error::config(field, format_args!("{shown} is too short"), limits))
    } else if span > longest {
        Err(Error::config(field, format_args!("{shown} is too long"), limits))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_out_of_bounds_names_field_value_and_bounds() {
        for (ttl, shown) in [
            (Duration::ZERO, "0s"),
            (Duration::from_micros(999), "999µs"),
            (LONGEST + SHORTEST, "30d is too long"),
            (Duration::MAX, "Duration::MAX"),
        ] {
            let error = LockOptions::new().lease(Lease::fixed(ttl)).check().unwrap_err();
            assert!(error.is_config());
            let text = error.to_string();
            assert!(
                text.contains("lease") && text.contains(shown) && text.contains(LIMITS),
                "{text}"
            );
            let error = LockOptions::new().max_hold(ttl).check().unwrap_err().to_string();
            assert!(error.contains("max_hold") && error.contains(shown), "{error}");
        }
        LockOptions::new().lease(Lease::fixed(SHORTEST)).max_hold(LONGEST).check().unwrap();
    }

    #[test]
    fn tail_is_for_renewed_leases_within_bounds() {
        let second = Duration::from_secs(1);
        let check =
            |lease: Lease, tail| LockOptions::new().lease(lease.recoverable_for(tail)).check();
        for tail in [Duration::ZERO, SHORTEST, LONGEST] {
            check(Lease::renewed(second), tail).unwrap();
        }
        check(Lease::fixed(second), Duration::ZERO).unwrap();
        for (lease, tail, shown) in [
            (Lease::fixed(second), second, "fixed lease"),
            (Lease::renewed(second), Duration::from_micros(1), "1µs is too short"),
            (Lease::renewed(second), LONGEST + SHORTEST, "30d is too long"),
        ] {
            let error = check(lease, tail).unwrap_err();
            let text = error.to_string();
            assert!(error.is_config() && text.contains(TAIL) && text.contains(shown), "{text}");
        }
    }

    #[test]
    fn skew_in_force_is_at_most_a_tenth_of_what_was_asked_for() {
        let ms = Duration::from_millis;
        let options = |lease| {
            LockOptions::new().lease(Lease::renewed(lease)).for_servers(ms(500)).of_request()
        };
        assert_eq!(options(ms(30_000)).clock_skew(ms(30_000)), ms(500));
        assert_eq!(options(ms(1_000)).clock_skew(ms(1_000)), ms(100));
        // A claim is shorter than its lease, an extension may be longer.
        assert_eq!(options(ms(30_000)).clock_skew(ms(3_500)), ms(500));
        assert_eq!(options(ms(1_000)).clock_skew(ms(3_000)), ms(300));
        assert_eq!(LockOptions::new().of_request().clock_skew(ms(30_000)), Duration::ZERO);
        check_skew(Duration::ZERO).and_then(|()| check_skew(LONGEST)).unwrap();
        let error = check_skew(Duration::MAX).unwrap_err();
        assert!(error.is_config() && error.to_string().contains("max_clock_skew"), "{error}");
    }
}

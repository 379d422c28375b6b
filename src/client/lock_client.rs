//! The client.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::option::{LockOptions, ReleaseKind, TAIL, Wait};
use crate::base::share::{Access, Share};
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::base::text::Span;
use crate::engine::Engine;
use crate::kind::election::ElectionKind;
use crate::kind::mutex::MutexKind;
use crate::kind::reentrant::ReentrantKind;
use crate::kind::semaphore::HIGHEST_LIMIT;
use crate::kind::weighted::{RW_LOCK, SEMAPHORE};
use crate::kind::{Election, Handle, Mutex, ReentrantLock, RwLock, Semaphore};
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::keys;

/// Makes locks on one Redis server, or in a cluster, each on the node of its slot.
///
/// Make one for each process. Clones are the same client. It has a pool of connections, and a few
/// [threads](crate::guide::operations#threads-and-connections) of its own that connect, renew and
/// listen. It ends when the last clone, lock and guard are dropped, and one thread stays for what is still to be
/// released then, such as a lock that is [kept](crate::Guard::keep_for).
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// client.mutex("orders:42")?.with(|guard| {
///     println!("token {}", guard.fencing_token());
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    engine: Arc<Engine>,
    name_prefix: Arc<[u8]>,
    address: Arc<str>,
    /// The largest difference between the clocks of any two servers.
    max_clock_skew: Duration,
    /// The options of locks by key, to which each call adds its lease.
    key_options: LockOptions,
    /// Whether a warning about a short lease was logged. Kept here and not in the slot: locking by
    /// key drops the slot after each use, so that every lock would log the warning again.
    warned: Arc<AtomicBool>,
}

impl LockClient {
    pub(crate) fn new(
        engine: Arc<Engine>,
        name_prefix: Vec<u8>,
        address: String,
        max_clock_skew: Duration,
    ) -> LockClient {
        LockClient {
            engine,
            name_prefix: name_prefix.into(),
            address: address.into(),
            max_clock_skew,
            key_options: LockOptions::new(),
            warned: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The same client with these options for locks by key.
    pub(super) fn with_key_options(self, key_options: LockOptions) -> LockClient {
        LockClient { key_options, ..self }
    }

    pub(super) fn key_options(&self) -> LockOptions {
        self.key_options
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn name_prefix(&self) -> &[u8] {
        &self.name_prefix
    }

    /// The mutex of this name, with default options.
    ///
    /// Any bytes up to 64 KiB are a name, except for reserved names. They are reserved so that no
    /// lock is a key of another lock. With the prefix, a reserved name
    ///
    /// - reads `{…}:word`, or has a hash tag and ends in `:tword`, where the word is one of
    ///   `fence`, `queue`, `beats`, `never` and some that are kept for later, such as `index`,
    ///   `limit` and `state`. The keys beside the lock `x` are `{x}:fence` and so on, those beside
    ///   `{x}` are `{x}:tfence` and so on;
    /// - or begins with `leasehold:`, with `redisson_lock__channel:`, or with another prefix of
    ///   Redisson.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for an empty, a too long or a reserved name; in a
    /// cluster also for a name whose braces would scatter the keys of the lock.
    ///
    /// ```
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let lock = client.mutex("orders:42")?;
    /// assert_eq!(lock.name(), b"orders:42");
    /// assert!(client.mutex("").unwrap_err().is_config());
    /// assert!(client.mutex("{orders:42}:fence").unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex> {
        self.mutex_with(name, LockOptions::new())
    }

    /// The mutex of this name, with options.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a name or an option that is not allowed.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().lease(Lease::fixed(Duration::from_secs(5)));
    /// let lock = client.mutex_with("orders:42", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex_with(&self, name: impl AsRef<[u8]>, options: LockOptions) -> Result<Mutex> {
        self.handle(&MutexKind, name.as_ref(), options).map(Mutex::new)
    }

    /// The reentrant lock of this name, with default options.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex`](LockClient::mutex), which also lists the reserved names.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let lock = client.reentrant("orders:42")?;
    /// if let Some(_guard) = lock.try_lock()? {
    ///     println!("no Java service has it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(&self, name: impl AsRef<[u8]>) -> Result<ReentrantLock> {
        self.reentrant_with(name, LockOptions::new())
    }

    /// The reentrant lock of this name, with options.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex_with`](LockClient::mutex_with).
    /// [`Release::watch`](crate::Release::watch) is only for a mutex.
    ///
    /// ```
    /// use leasehold::LockOptions;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().max_hold(Duration::from_secs(300));
    /// let lock = client.reentrant_with("orders:42", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant_with(
        &self,
        name: impl AsRef<[u8]>,
        options: LockOptions,
    ) -> Result<ReentrantLock> {
        self.handle(&ReentrantKind, name.as_ref(), options).map(ReentrantLock::new)
    }

    /// The semaphore of this name, with this many permits and default options.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex`](LockClient::mutex), which also lists the reserved names, and
    /// [`is_config`](crate::Error::is_config) for no permits, or more than 2<sup>31</sup> - 1. Another limit than
    /// that of other clients is found by the first call that asks Redis.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let gpus = client.semaphore("gpu", 4)?;
    /// let permit = gpus.acquire()?;
    /// println!("GPU {} is mine", permit.slot());
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Semaphore> {
        self.semaphore_with(name, permits, LockOptions::new())
    }

    /// The semaphore of this name, with options.
    ///
    /// # Errors
    ///
    /// The same as for [`semaphore`](LockClient::semaphore) and [`mutex_with`](LockClient::mutex_with).
    /// [`Release::watch`](crate::Release::watch) is only for a mutex.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(10)));
    /// let gpus = client.semaphore_with("gpu", 4, options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore_with(
        &self,
        name: impl AsRef<[u8]>,
        permits: u32,
        options: LockOptions,
    ) -> Result<Semaphore> {
        if permits == 0 || permits > HIGHEST_LIMIT {
            return Err(Error::config("permits", permits, format_args!("1 to {HIGHEST_LIMIT}")));
        }
        let share = Share::Permits { count: 1, limit: permits };
        self.handle(&SEMAPHORE, name.as_ref(), options.for_share(share)).map(Semaphore::new)
    }

    /// The read-write lock of this name, with default options.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex`](LockClient::mutex), which also lists the reserved names.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let catalog = client.rw_lock("catalog")?;
    /// let guard = catalog.read()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> Result<RwLock> {
        self.rw_lock_with(name, LockOptions::new())
    }

    /// The read-write lock of this name, with options.
    ///
    /// # Errors
    ///
    /// The same as for [`rw_lock`](LockClient::rw_lock) and [`mutex_with`](LockClient::mutex_with).
    /// [`Release::watch`](crate::Release::watch) is only for a mutex.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(10)));
    /// let catalog = client.rw_lock_with("catalog", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rw_lock_with(&self, name: impl AsRef<[u8]>, options: LockOptions) -> Result<RwLock> {
        let options = options.for_share(Share::Access(Access::Write));
        self.handle(&RW_LOCK, name.as_ref(), options).map(RwLock::new)
    }

    /// The election of this name, with default options.
    ///
    /// # Errors
    ///
    /// The same as for [`mutex`](LockClient::mutex), which also lists the reserved names.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign()?;
    /// leadership.proclaim("10.0.0.7:8080")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl AsRef<[u8]>) -> Result<Election> {
        self.election_with(name, LockOptions::new())
    }

    /// The election of this name, with options.
    ///
    /// # Errors
    ///
    /// The same as for [`election`](LockClient::election) and [`mutex_with`](LockClient::mutex_with).
    /// [`Release::watch`](crate::Release::watch) is only for a mutex.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // If the leader's machine dies, the next candidate leads after 10 s.
    /// let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(10)));
    /// let election = client.election_with("scheduler", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election_with(&self, name: impl AsRef<[u8]>, options: LockOptions) -> Result<Election> {
        // Of a term that began inside this process no observer would hear.
        let options = options.local_handoffs(0).linger(Duration::ZERO);
        self.handle(&ElectionKind, name.as_ref(), options).map(Election::new)
    }

    /// The name with its prefix, if the locks of this client can have it.
    pub(super) fn name(&self, kind: &'static dyn LockKind, name: &[u8]) -> Result<Name> {
        let name = Name::new(&self.name_prefix, name)?;
        self.engine.protocol.check_keys(&name, &keys(kind, &name))?;
        Ok(name)
    }

    /// A name that locks can have, for calls that are about no kind.
    pub(super) fn plain_name(&self, name: &[u8]) -> Result<Name> {
        Name::new(&self.name_prefix, name)
    }

    /// A lock of any kind. Checks its options.
    pub(crate) fn handle(
        &self,
        kind: &'static dyn LockKind,
        name: &[u8],
        options: LockOptions,
    ) -> Result<Handle> {
        options.check()?;
        let usual = kind.usual_wait();
        let wait = options.wait.unwrap_or(usual);
        // A kind has one way to be woken: its scripts either keep a queue or publish each release.
        if wait != usual && wait != Wait::spin() {
            return Err(Error::config(
                "wait",
                format_args!("{} for a {}", wait.shown(), kind.name()),
                format_args!("{} or Wait::spin()", usual.shown()),
            ));
        }
        let tail = options.lease.tail();
        if let Some(why) = kind.refuses_tail().filter(|_| !tail.is_zero()) {
            return Err(Error::config(
                TAIL,
                format_args!("{} for a {}, {why}", Span(tail), kind.name()),
                "a Mutex or an Election on one server or in a cluster, or a longer lease",
            ));
        }
        let watches = options.release.0 == ReleaseKind::Watch;
        if watches && !kind.can_be_watched() {
            return Err(Error::config(
                "release",
                format_args!("Release::watch() for a {}", kind.name()),
                "Release::lua(), or a Mutex",
            ));
        }
        // `DEL` in a transaction wakes nobody and hands nothing over: waiters in a queue would sit
        // until their next heartbeat.
        if watches && wait != Wait::spin() {
            return Err(Error::config(
                "release",
                format_args!("Release::watch() with {}", wait.shown()),
                "Release::lua(), or .wait(Wait::spin()) beside it",
            ));
        }
        // The server replies to `WAIT` only after `within`. With as much as the command time-out,
        // every wait that is not satisfied at once would look like a dead connection.
        let reply = self.engine.bounds.reply;
        if let Some(wanted) = options.durabilities().find(|wanted| wanted.within >= reply) {
            return Err(Error::config(
                &wanted.time_out(),
                format_args!("{} is too long", Span(wanted.within)),
                format_args!("less than command_timeout ({})", Span(reply)),
            ));
        }

        // From here on every handle has a way to wait, as `LockOptions::wait_kind` expects, and the clock skew
        // that shortens its validity.
        let options = options.wait(wait).for_servers(self.max_clock_skew);
        let name = self.name(kind, name)?;
        let slot = self.engine.slot(kind, name.clone());
        let ttl = options.lease.ttl();
        // Once for each client: a service that locks a thousand times a second would fill its log. Not for one that comes back.
        if options.lease.key_ttl(ttl) < reply * 10 && !self.warned.swap(true, Ordering::Relaxed) {
            log!(
                warn,
                "lock \"{name}\": a lease of {} is shorter than ten times the {} that a reply may take; \
                 one slow reply may cost the lock",
                Span(ttl),
                Span(reply)
            );
        }
        Ok(Handle::new(&self.engine, slot, options))
    }

    /// A lock handle for access to this thread's hold. Its options are not used.
    pub(super) fn hold_of(&self, kind: &'static dyn LockKind, name: &[u8]) -> Result<Handle> {
        let name = self.name(kind, name)?;
        Ok(Handle::new(&self.engine, self.engine.slot(kind, name), LockOptions::new()))
    }
}

// No lock is poisoned by a panic, and a panic in foreign code leaves the state of the client
// consistent. The derived answer would be no, because the client contains callbacks of the user.
impl UnwindSafe for LockClient {}
impl RefUnwindSafe for LockClient {}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").field("address", &self.address).finish_non_exhaustive()
    }
}

//! The read-write lock.

mod guard;

use crate::base::error::Result;
use crate::base::share::{Access, Share};
use crate::engine::slot::WaitLimit;
use crate::kind::method::{every_kind_methods, shared_methods};
use crate::kind::owned_method::owned_methods;
use crate::kind::{Handle, Part};

pub use guard::{ReadGuard, UpgradableReadGuard, WriteGuard};

/// A lock that many may hold to read, or one to write.
///
/// | holds | beside it |
/// | --- | --- |
/// | [`ReadGuard`] | other readers, and one upgradable reader |
/// | [`UpgradableReadGuard`] | readers; it can become the writer, before all others that wait |
/// | [`WriteGuard`] | nobody |
///
/// **What it guarantees.** Inside its validity window a writer is alone, on one Redis that has lost no writes; see the
/// [promise](crate#the-promise). Nobody starves: those that wait get the lock in the order in which their processes came,
/// so that a writer waits for the holders of the moment, and for one round of readers for each writer before it. Readers
/// that stand side by side come in together. Each reader's process has a lease of its own: when it dies, a waiting
/// writer gets the lock once that lease has ended.
///
/// **What breaks that.** The same as for a [`Mutex`](crate::Mutex): a fail-over to a replica that missed the write,
/// `FLUSHALL`, a forced release, a jump of the server's clock, or a holder that is paused for longer than its lease.
/// Then the [fencing token](WriteGuard::fencing_token), checked at the resource, protects you: the tokens of writers grow.
/// [Limits](crate::guide::limits) has the whole list.
///
/// **How it differs from [`std::sync::RwLock`].** Taking it does I/O and can fail. It can be lost while it is held. It
/// contains no data. A panic does not poison it. A thread may take it again where that cannot block: to read while it
/// holds it in any way, and in any way while it writes, at no command. What would wait for the thread itself is an error
/// at once ([`is_config`](crate::Error::is_config)): to write while it reads, or to be an upgradable reader while it is
/// any reader. Such a thread takes [`upgradable_read`](RwLock::upgradable_read) first.
///
/// It is for one server, with sentinels or not, and for a cluster. A [`QuorumClient`](crate::QuorumClient) has none: a
/// majority of servers can agree on one holder, and not on who reads.
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// let catalog = client.rw_lock("catalog")?;
/// let guard = catalog.read()?;
/// // … many processes read …
/// guard.release()?;
/// let guard = catalog.write()?;
/// // … and one of them rebuilds it …
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(Handle);

every_kind_methods!(RwLock, "let lock = client.rw_lock(\"orders:42\")?;");
shared_methods!(RwLock, "let lock = client.rw_lock(\"orders:42\")?;");

/// The methods that take the lock in one way.
macro_rules! access_methods {
    (
        $guard:ident, $access:ident, $what:literal;
        $(#[$doc:meta])* $wait:ident, $once:ident, $span:ident, $until:ident
    ) => {
        impl RwLock {
            #[doc = concat!("Waits without limit to hold the lock ", $what, ", and takes it.")]
            ///
            $(#[$doc])*
            ///
            /// # Errors
            ///
            /// The same as for [`Mutex::lock`](crate::Mutex::lock), and [`is_config`](crate::Error::is_config) where
            /// this thread would wait for itself.
            ///
            /// ```
            /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
            #[doc = concat!("let guard = lock.", stringify!($wait), "()?;")]
            /// // … the work …
            /// guard.release()
            /// # }
            /// ```
            pub fn $wait(&self) -> Result<$guard> {
                let guard = self.0.enter(Some(Access::$access), WaitLimit::FOR_EVER)?;
                guard.map($guard::new).ok_or_else(|| self.0.endless_wait_error())
            }

            #[doc = concat!("Tries in one attempt to hold the lock ", $what, "; `None` if somebody is in the way.")]
            ///
            /// A waiter that came earlier is in the way too.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", stringify!($wait), "`](Self::", stringify!($wait), "), at the first failure.")]
            ///
            /// ```
            /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
            #[doc = concat!("if lock.", stringify!($once), "()?.is_none() {")]
            ///     println!("in the way: {:?}", lock.last_blocker());
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn $once(&self) -> Result<Option<$guard>> {
                Ok(self.0.enter(Some(Access::$access), WaitLimit::TryOnce)?.map($guard::new))
            }

            #[doc = concat!("Waits for at most `wait` to hold the lock ", $what, "; `None` if somebody was in the way.")]
            ///
            /// Zero is one attempt.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", stringify!($wait), "`](Self::", stringify!($wait), "), also when the time ends during an outage.")]
            ///
            /// ```
            /// # use std::time::Duration;
            /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
            #[doc = concat!("if let Some(_guard) = lock.", stringify!($span), "(Duration::from_secs(2))? {")]
            ///     println!("taken");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn $span(&self, wait: ::std::time::Duration) -> Result<Option<$guard>> {
                Ok(self.0.enter(Some(Access::$access), self.0.until(wait))?.map($guard::new))
            }

            #[doc = concat!("Waits until `deadline` to hold the lock ", $what, "; `None` if somebody was in the way.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as for [`", stringify!($span), "`](Self::", stringify!($span), ").")]
            ///
            /// ```
            /// # use std::time::{Duration, Instant};
            /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
            /// let deadline = Instant::now() + Duration::from_secs(2);
            #[doc = concat!("let maybe = lock.", stringify!($until), "(deadline)?;")]
            /// # Ok(())
            /// # }
            /// ```
            pub fn $until(&self, deadline: ::std::time::Instant) -> Result<Option<$guard>> {
                let wait_limit = self.0.until_instant(deadline);
                Ok(self.0.enter(Some(Access::$access), wait_limit)?.map($guard::new))
            }
        }
    };
}

access_methods! {
    ReadGuard, Read, "as a reader, beside others";
    /// A thread that holds the lock in any way takes it once more, as in [`Mutex::lock`](crate::Mutex::lock).
    read, try_read, try_read_for, try_read_until
}
access_methods! {
    WriteGuard, Write, "as the writer, alone";
    /// A thread that writes takes it once more, as in [`Mutex::lock`](crate::Mutex::lock).
    write, try_write, try_write_for, try_write_until
}
access_methods! {
    UpgradableReadGuard, UpgradableRead, "as the upgradable reader, beside readers";
    /// There is one at a time.
    upgradable_read, try_upgradable_read, try_upgradable_read_for, try_upgradable_read_until
}

owned_methods! {
    RwLock, "let lock = client.rw_lock(\"orders:42\")?;", Some(Access::Read), " as a reader, beside others", "read";
    read_owned, try_read_owned, try_read_owned_for, try_read_owned_until
}
owned_methods! {
    RwLock, "let lock = client.rw_lock(\"orders:42\")?;", Some(Access::Write), " as the writer, alone", "write";
    write_owned, try_write_owned, try_write_owned_for, try_write_owned_until
}

impl RwLock {
    /// A hold as a reader, as one [`Part`] of what [`lock_all`](crate::LockClient::lock_all) takes at once.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let (prices, stock) = (client.rw_lock("prices")?, client.rw_lock("stock")?);
    /// let guard = client.lock_all([prices.for_read(), stock.for_write()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_read(&self) -> Part {
        Part::new(self.0.for_share(Share::Access(Access::Read)))
    }

    /// A hold as the writer, as one [`Part`] of what [`lock_all`](crate::LockClient::lock_all) takes at once.
    ///
    /// ```
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// let (from, to) = (client.rw_lock("shelf:1")?, client.rw_lock("shelf:2")?);
    /// let guard = client.lock_all([from.for_write(), to.for_write()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_write(&self) -> Part {
        Part::new(self.0.for_share(Share::Access(Access::Write)))
    }

    /// Asks Redis whether anybody holds the lock at this moment, to read or to write.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked, or the key is no lock of this kind.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::RwLock) -> leasehold::Result<()> {
    /// if lock.is_locked()? {
    ///     println!("somebody has it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_locked(&self) -> Result<bool> {
        self.holders().map(|holders| !holders.is_empty())
    }
}

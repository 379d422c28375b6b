//! One of several locks, before and while it is held.

use crate::base::error::{Error, Result};
use crate::base::share::{Access, Share};
use crate::base::token::FencingToken;
use crate::engine::acquire::several::Wanted;
use crate::engine::context::Context;
use crate::engine::holding::Holding;
use crate::engine::release::release_all;
use crate::engine::slot::WaitLimit;
use crate::engine::thread_hold::adopt;
use crate::kind::hold::{OwnedHold, ThreadHeld};
use crate::kind::reentry::Reentry;
use crate::kind::{Guard, Handle, Permit, ReadGuard, UpgradableReadGuard, WriteGuard};

/// One lock for [`LockClient::lock_all`](crate::LockClient::lock_all), and what is asked of it.
///
/// A reference to a lock converts into it; [`Semaphore::permits`](crate::Semaphore::permits),
/// [`RwLock::for_read`](crate::RwLock::for_read) and [`RwLock::for_write`](crate::RwLock::for_write) make one. Where the
/// locks are of several kinds, the conversion has to be written:
///
/// ```
/// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
/// use leasehold::Part;
///
/// let (order, stock) = (client.mutex("orders:42")?, client.reentrant("stock")?);
/// let guard = client.lock_all([Part::from(&order), Part::from(&stock)])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Part {
    handle: Handle,
    /// Why it cannot be had.
    error: Option<Error>,
}

impl Part {
    pub(crate) fn new(handle: Handle) -> Part {
        Part { handle, error: None }
    }

    /// A part that makes the call fail with this error.
    pub(in crate::kind) fn refused(handle: Handle, error: Error) -> Part {
        Part { handle, error: Some(error) }
    }

    pub(super) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    pub(super) fn wanted(&self) -> Wanted<'_> {
        self.handle.wanted()
    }

    /// Whether it is a lock of the client with this context.
    pub(super) fn belongs_to(&self, context: &Context) -> bool {
        std::ptr::eq(self.wanted().slot.context(), context)
    }

    /// Enters a hold of this thread once more, if there is one.
    pub(super) fn reenter(&self, wait_limit: WaitLimit) -> Result<Reentry<PartGuard>> {
        let (share, access) = (self.handle.share(), self.access());
        // Permits belong to no thread: each call gets others.
        if let Share::Permits { .. } = share {
            return Ok(Reentry::Outside);
        }
        let reentry = self.handle.reenter(access, wait_limit)?;
        Ok(reentry.map(|held| PartGuard::of(held, access)))
    }

    /// The guard of this part, which was just acquired.
    pub(super) fn hold(&self, holding: Holding) -> PartGuard {
        let access = self.access();
        match self.handle.share() {
            Share::Permits { .. } => PartGuard::Permit(Permit::new(OwnedHold::new(holding))),
            _ => PartGuard::of(ThreadHeld::new(adopt(holding), access), access),
        }
    }

    fn access(&self) -> Option<Access> {
        match self.handle.share() {
            Share::Access(access) => Some(access),
            _ => None,
        }
    }
}

/// The guard of one lock of a [`MultiGuard`](crate::MultiGuard).
///
/// ```
/// # fn demo(guard: &leasehold::MultiGuard) {
/// for part in guard.guards() {
///     println!("{} has token {}", part.name().escape_ascii(), part.fencing_token());
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "if unused the lock is released at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub enum PartGuard {
    /// Of a [`Mutex`](crate::Mutex) or a [`ReentrantLock`](crate::ReentrantLock).
    Lock(Guard),
    /// Of a [`Semaphore`](crate::Semaphore).
    Permit(Permit),
    /// Of a reader of a [`RwLock`](crate::RwLock).
    Read(ReadGuard),
    /// Of the upgradable reader of a [`RwLock`](crate::RwLock).
    UpgradableRead(UpgradableReadGuard),
    /// Of the writer of a [`RwLock`](crate::RwLock).
    Write(WriteGuard),
}

impl PartGuard {
    fn of(held: ThreadHeld, access: Option<Access>) -> PartGuard {
        match access {
            None => PartGuard::Lock(Guard(held)),
            Some(Access::Read) => PartGuard::Read(ReadGuard::new(held)),
            Some(Access::UpgradableRead) => {
                PartGuard::UpgradableRead(UpgradableReadGuard::new(held))
            }
            Some(Access::Write) => PartGuard::Write(WriteGuard::new(held)),
        }
    }

    pub(super) fn holding(&self) -> &Holding {
        match self {
            PartGuard::Lock(guard) => guard.holding(),
            PartGuard::Permit(permit) => permit.holding(),
            PartGuard::Read(guard) => guard.holding(),
            PartGuard::UpgradableRead(guard) => guard.holding(),
            PartGuard::Write(guard) => guard.holding(),
        }
    }

    /// As what it holds a read-write lock, which may be less than its thread does.
    pub(super) fn access(&self) -> Option<Access> {
        match self {
            PartGuard::Lock(_) | PartGuard::Permit(_) => None,
            PartGuard::Read(_) => Some(Access::Read),
            PartGuard::UpgradableRead(_) => Some(Access::UpgradableRead),
            PartGuard::Write(_) => Some(Access::Write),
        }
    }

    /// Ends the hold. Returns the lock if it is to be released now.
    pub(super) fn leave(self) -> Result<Option<Holding>> {
        match self {
            PartGuard::Lock(guard) => guard.0.leave(),
            PartGuard::Permit(permit) => Ok(permit.0.leave()),
            PartGuard::Read(guard) => guard.0.leave(),
            PartGuard::UpgradableRead(guard) => guard.0.leave(),
            PartGuard::Write(guard) => guard.0.leave(),
        }
    }

    /// The lock's name in Redis, the client's prefix included.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// let of_orders = guard.guards().iter().filter(|part| part.name().starts_with(b"orders:"));
    /// println!("{} orders are locked", of_orders.count());
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        self.holding().name().as_bytes()
    }

    /// The token of this part. No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// if let Some(part) = guard.get("orders:42") {
    ///     println!("UPDATE orders SET … WHERE token <= {}", part.fencing_token());
    /// }
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        self.holding().hold.token()
    }
}

/// The error of several releases, if any failed: the first, and in its text the others.
pub(super) fn combined(outcomes: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
    // A loss first: what was done may be wrong, while the other releases go on.
    errors.sort_by_key(|error| (!error.is_lost(), !error.may_be_lost()));
    let first =
        errors.into_iter().reduce(|first, other| first.with_consequence(&other.to_string()));
    first.map_or(Ok(()), Err)
}

/// Releases guards, in one exchange. Returns the name and the outcome of each that its thread no longer holds.
pub(super) fn give_back(guards: Vec<PartGuard>) -> Vec<(Vec<u8>, Result<()>)> {
    let mut outcomes = Vec::new();
    let mut last = Vec::new();
    for guard in guards {
        let name = guard.name().to_vec();
        match guard.leave() {
            Ok(Some(holding)) => last.push(holding),
            Ok(None) => {}
            Err(error) => outcomes.push((name, Err(error))),
        }
    }
    let released = last.iter().map(|holding| holding.name().as_bytes().to_vec());
    outcomes.extend(released.zip(release_all(&last)));
    outcomes
}

//! The methods that all kinds of lock share.

use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::inspection::{Holder, Inspection};
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::share::{Access, Share};
use crate::base::sync::Arc;
use crate::base::time::{Moment, moment_of};
use crate::engine::Engine;
use crate::engine::acquire::several::Wanted;
use crate::engine::acquire::{acquire, refused_error};
use crate::engine::blocked_call;
use crate::engine::context::Context;
use crate::engine::slot::{Slot, WaitLimit};
use crate::engine::thread_hold::{adopt, find};
use crate::kind::Guard;
use crate::kind::hold::{OwnedHold, ThreadHeld};
use crate::kind::reentry::{Reentry, is_own_way_free, reenter};
use crate::protocol::Protocol;
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::View;
use crate::protocol::request::{ForceRequest, ResizeRequest};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::{Cmd, Value};

/// One name with one set of options.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    /// Kept alive: what lingers is released once no client and no lock is left.
    engine: Arc<Engine>,
    slot: Arc<Slot>,
    options: LockOptions,
}

impl Handle {
    pub(crate) fn new(engine: &Arc<Engine>, slot: Arc<Slot>, options: LockOptions) -> Handle {
        Handle { engine: Arc::clone(engine), slot, options }
    }

    pub(crate) fn name(&self) -> &Name {
        self.slot.target().name()
    }

    pub(crate) fn lock(&self) -> Result<Guard> {
        self.acquire(WaitLimit::FOR_EVER)?.ok_or_else(|| self.endless_wait_error())
    }

    /// A wait without an end returns no `None`. If that changed, an error would be safer than a panic.
    pub(crate) fn endless_wait_error(&self) -> Error {
        Error::timeout("a wait without a deadline has ended").of(self.name())
    }

    pub(crate) fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(WaitLimit::TryOnce)
    }

    pub(crate) fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.acquire(self.until(wait))
    }

    pub(crate) fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard>> {
        self.acquire(self.until_instant(deadline))
    }

    /// The limit of a wait that begins now.
    pub(crate) fn until(&self, wait: Duration) -> WaitLimit {
        let now = self.slot.context().now();
        WaitLimit::until(now.after(wait), now)
    }

    pub(crate) fn until_instant(&self, deadline: Instant) -> WaitLimit {
        // An `Instant` stands still in suspend on Linux, and the client's clock does not. Converted
        // once, here, the deadline then counts through suspend.
        let now = self.slot.context().now();
        WaitLimit::until(moment_of(deadline, now), now)
    }

    /// The share that its calls request by default.
    pub(crate) fn share(&self) -> Share {
        self.options.share
    }

    /// Takes a part of a lock that several may hold. The hold belongs to no thread.
    pub(crate) fn take(&self, share: Share, wait_limit: WaitLimit) -> Result<Option<OwnedHold>> {
        acquire(&self.slot, &self.options.for_share(share), wait_limit, OwnedHold::new)
    }

    /// Takes the lock for no thread, with this access if it is a read-write lock. It is never a re-entry.
    pub(crate) fn own(
        &self,
        access: Option<Access>,
        wait_limit: WaitLimit,
    ) -> Result<Option<OwnedHold>> {
        let share = access.map_or(self.options.share, Share::Access);
        match is_own_way_free(&self.slot, &self.options.for_share(share), wait_limit)? {
            true => self.take(share, wait_limit),
            false => Ok(None),
        }
    }

    /// Enters a hold of this thread once more, if there is one, with this access if it is a read-write lock.
    pub(super) fn reenter(&self, access: Option<Access>, wait_limit: WaitLimit) -> Result<Reentry> {
        reenter(&self.slot, &self.options, access, wait_limit)
    }

    /// Sets the limit in force of a semaphore with the declared limit, for `keep` after the last use, or for the
    /// lease of this handle if that is longer.
    pub(crate) fn resize(&self, limit: u32, declared: u32, keep: Duration) -> Result<()> {
        let target = self.slot.target();
        let keep = keep.max(self.options.lease.ttl());
        let request = ResizeRequest { limit, declared, keep };
        // It may be in force long before its reply is here.
        self.slot.on_resized();
        let outcome = self.ask(|it, deadline| it.server()?.resize(target, request, deadline));
        // Also without a reply the limit may be set, and permits may have been granted before it was.
        self.slot.on_resized();
        outcome?.map_or(Ok(()), |other| {
            let share = Share::Permits { count: 1, limit: declared };
            Err(refused_error(share, other, other).of(self.name()))
        })
    }

    /// The same lock, of which each call asks for this.
    pub(super) fn for_share(&self, share: Share) -> Handle {
        let (engine, slot) = (Arc::clone(&self.engine), Arc::clone(&self.slot));
        Handle { engine, slot, options: self.options.for_share(share) }
    }

    /// This lock as one of several.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted { slot: &self.slot, options: &self.options }
    }

    pub(super) fn acquire(&self, wait_limit: WaitLimit) -> Result<Option<Guard>> {
        Ok(self.enter(None, wait_limit)?.map(Guard::new))
    }

    /// Takes the lock for this thread, with this access if it is a read-write lock.
    pub(crate) fn enter(
        &self,
        access: Option<Access>,
        wait_limit: WaitLimit,
    ) -> Result<Option<ThreadHeld>> {
        // Before any I/O, and before the slot: this thread would wait there for itself.
        match self.reenter(access, wait_limit)? {
            Reentry::Entered(held) => return Ok(Some(held)),
            Reentry::Busy => return Ok(None),
            Reentry::Outside => {}
        }
        let share = access.map_or(self.options.share, Share::Access);
        acquire(&self.slot, &self.options.for_share(share), wait_limit, |holding| {
            ThreadHeld::new(adopt(holding), access)
        })
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock()?;
        // If `work` panics, the drop of the guard releases the lock.
        let value = work(&guard);
        guard.finish()?;
        Ok(value)
    }

    pub(crate) fn is_locked(&self) -> Result<bool> {
        let holders = self.holders(self.shortest_view())?;
        // The shortest view has no times, and does not tell that a lease is over whose key is in its tail.
        let kind = self.slot.target().kind();
        let has_tail = holders.iter().any(|holder| !kind.tail(&holder.owner).is_zero());
        let holders = if has_tail { self.holders(View::Holders)? } else { holders };
        Ok(holders.iter().any(|holder| holder.overdue.is_none()))
    }

    /// The cheapest view that tells whether the key is a lock.
    fn shortest_view(&self) -> View {
        let tells_locks = self.slot.target().kind().look_tells_locks();
        if tells_locks { View::Owners } else { View::Holders }
    }

    pub(crate) fn holder(&self) -> Result<Option<Holder>> {
        Ok(self.holders(View::Holders)?.first().map(|holder| self.identify(holder)))
    }

    /// The description of a holder for people.
    pub(super) fn identify(&self, holder: &ReportedHolder) -> Holder {
        let identity = self.slot.context().protocol.identity();
        holder.identify(self.slot.target().kind(), identity)
    }

    /// Whether this owner has the lock.
    pub(super) fn is_owned_by(&self, owner: &[u8]) -> Result<bool> {
        Ok(self.holders(View::Owners)?.iter().any(|holder| *holder.owner == *owner))
    }

    /// Makes a call that only reads at the server of the lock.
    pub(super) fn look(&self, call: &Call) -> Result<Value> {
        self.ask(|it, deadline| it.server()?.look(self.slot.target(), call, deadline))
    }

    /// Sends a command to the server of this key, once.
    pub(super) fn call_once(&self, key: &[u8], command: &Cmd) -> Result<Value> {
        self.ask(|it, deadline| it.server()?.query(key, command, deadline))
    }

    /// Asks Redis within one exchange. The error names the lock.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&dyn Protocol, Moment) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        self.slot.context().ask(ask).map_err(|failure| Error::from(failure).of(self.name()))
    }

    /// What the slots of its client share.
    pub(super) fn context(&self) -> &Context {
        self.slot.context()
    }

    /// The present moment.
    pub(super) fn now(&self) -> Moment {
        self.slot.context().now()
    }

    fn holders(&self, view: View) -> Result<Vec<ReportedHolder>> {
        self.ask(|it, deadline| it.holders(self.slot.target(), view, deadline))
    }

    pub(crate) fn inspect(&self) -> Result<Inspection> {
        self.ask(|it, deadline| it.inspect(self.slot.target(), View::Waiters, deadline))
    }

    /// Who has the lock, and what its kind says of that.
    pub(super) fn inspect_holders(&self) -> Result<Inspection> {
        self.ask(|it, deadline| it.inspect(self.slot.target(), View::Holders, deadline))
    }

    pub(crate) fn last_blocker(&self) -> Option<Holder> {
        blocked_call::last_blocker(&self.slot)
    }

    pub(crate) fn is_held_by_current_thread(&self) -> bool {
        self.hold_count() > 0
    }

    /// Whether a hold of this thread is not lost: it is valid, or may be again.
    pub(super) fn has_hold(&self) -> bool {
        find(&self.slot).is_some_and(|it| self.slot.context().now() < it.holding().hold.lost_at())
    }

    pub(crate) fn hold_count(&self) -> u32 {
        // Zero for a lost hold, although its guards are there: a caller that counts wants to know
        // whether it is protected.
        find(&self.slot)
            .filter(|hold| hold.holding().hold.is_valid_at(self.slot.context().now()))
            .map_or(0, |hold| hold.count())
    }

    pub(crate) fn unlock(&self) -> Result<()> {
        match find(&self.slot) {
            // A guard for the moment of its release. The thread's other guards stay, and find the
            // count lowered.
            Some(hold) => {
                let inner = hold.take_kept();
                ThreadHeld::inner(hold, None, inner).release()
            }
            None => Err(Error::not_held(
                "not held by this thread: it has not locked it, has unlocked it already, or has made its \
                 guard an OwnedLease; unlock it in the thread that locked it, or release the OwnedLease",
            )
            .of(self.name())),
        }
    }

    /// Takes the lock from its only holder. `takes_any` means that the user says that the key is a lock.
    pub(crate) fn force_release(&self, takes_any: bool) -> Result<bool> {
        let holders = self.holders(self.shortest_view())?;
        // The owner's value is part of the request. Without it, the holder might release
        // between the two calls, and the next holder would lose the lock for nothing.
        match holders.as_slice() {
            [] => Ok(false),
            [holder] => self.force(&holder.owner, takes_any),
            holders => Err(Error::wrong_type(format!(
                "it is a read-write lock of Redisson that {} hold; name one of them with force_release_of",
                holders.len()
            ))
            .of(self.name())),
        }
    }

    /// Takes from this owner its part of the lock.
    pub(crate) fn force_release_of(&self, owner: &[u8]) -> Result<bool> {
        self.force(owner, false)
    }

    fn force(&self, owner: &[u8], takes_any: bool) -> Result<bool> {
        let request = ForceRequest { owner, takes_any };
        let forced =
            self.ask(|it, deadline| it.force_release(self.slot.target(), &request, deadline));
        forced.map_err(|error| match error.is_unknown_outcome() {
            // Trying again is no advice here: a second call could evict the next holder.
            true => error.with_consequence("look whether the holder still has the lock"),
            false => error,
        })
    }

    pub(crate) fn request_release(&self) -> Result<bool> {
        self.ask(|it, deadline| it.request_release(self.slot.target(), deadline))
    }

    pub(crate) fn cancel_waits(&self) -> usize {
        self.slot.cancel()
    }
}

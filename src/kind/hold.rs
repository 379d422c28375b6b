//! A hold as its guard has it: released once, when the guard is dropped at the latest.

use std::marker::PhantomData;
use std::rc::Rc;

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::share::Access;
use crate::engine::holding::Holding;
use crate::engine::inner_call::InnerCall;
use crate::engine::slot::WaitLimit;
use crate::engine::thread_hold::{ThreadHold, adopt, has_other, is_kept};

/// What a hold leaves behind when it ends.
enum Left {
    Nothing,
    /// The thread holds the lock further on.
    Inner(Rc<ThreadHold>),
    /// Its lock is to be released.
    Last(Rc<ThreadHold>),
}

/// Stands first in what the compiler says of a guard that another thread is to get, as across an `.await`: its name is the
/// advice.
struct UseAnOwnedLeaseInstead;

/// One of the times that this thread holds a lock.
pub(crate) struct ThreadHeld {
    _advice: PhantomData<*const UseAnOwnedLeaseInstead>,
    hold: Option<Rc<ThreadHold>>,
    /// As what it holds a read-write lock this time.
    access: Option<Access>,
    /// What it asks for beyond the hold that it entered.
    inner: Option<Box<InnerCall>>,
}

impl ThreadHeld {
    pub(super) fn new(hold: Rc<ThreadHold>, access: Option<Access>) -> ThreadHeld {
        ThreadHeld::inner(hold, access, None)
    }

    /// One more of them, which asks for this.
    pub(super) fn inner(
        hold: Rc<ThreadHold>,
        access: Option<Access>,
        inner: Option<Box<InnerCall>>,
    ) -> ThreadHeld {
        ThreadHeld { _advice: PhantomData, hold: Some(hold), access, inner }
    }

    pub(super) fn hold(&self) -> &Rc<ThreadHold> {
        // Only methods that consume it take it.
        self.hold.as_ref().expect("a guard has its hold until it is consumed")
    }

    pub(super) fn holding(&self) -> &Holding {
        self.hold().holding()
    }

    pub(super) fn access(&self) -> Option<Access> {
        self.access
    }

    /// Makes it a lesser one of a read-write lock, and the hold too, unless another guard needs more.
    pub(super) fn downgrade(mut self, to: Access) -> Result<ThreadHeld> {
        self.hold().recount(self.access, to);
        self.access = Some(to);
        let outcome = self.holding().downgrade(self.hold().needs());
        self.unless_failed(outcome).map(|(held, ())| held)
    }

    /// Makes it the writer of a read-write lock. Returns it unchanged if the wait is over.
    pub(super) fn upgrade(
        mut self,
        wait_limit: WaitLimit,
    ) -> Result<std::result::Result<ThreadHeld, ThreadHeld>> {
        let hold = self.hold();
        if hold.holding().hold.lease.access() < Some(Access::Write) {
            if hold.count() > 1 || has_other(hold) {
                return Err(waits_for_itself(hold.holding().name(), Access::Read, Access::Write));
            }
            let outcome = hold.holding().upgrade(wait_limit);
            let (held, is_writer) = self.unless_failed(outcome)?;
            if !is_writer {
                return Ok(Err(held));
            }
            self = held;
        }
        self.hold().recount(self.access, Access::Write);
        self.access = Some(Access::Write);
        Ok(Ok(self))
    }

    /// Goes on with the hold, unless that failed.
    fn unless_failed<T>(self, outcome: Result<T>) -> Result<(ThreadHeld, T)> {
        match outcome {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                // Here and not by the drop, which logs: the caller gets the one error that counts.
                let _ = self.release();
                Err(error)
            }
        }
    }

    /// A wait without an end has ended, which cannot be.
    pub(super) fn endless_wait_error(&self) -> Error {
        Error::timeout("a wait without a deadline has ended").of(self.holding().name())
    }

    /// Takes the hold out of this thread. Returns it unchanged if the thread holds the lock more than once.
    pub(super) fn into_owned(mut self) -> std::result::Result<OwnedHold, ThreadHeld> {
        match self.hold.take() {
            // Only the last hold. With others left this thread would go on as a holder while the
            // new thread releases the lock.
            Some(hold) if hold.count() == 1 => {
                // Takes the hold out of this thread's table, so that a reentry here waits for the
                // lock like any other thread. The lease itself goes on.
                hold.leave(self.access);
                let inner = self.inner.take();
                Ok(OwnedHold { holding: Some(hold.holding().clone()), inner })
            }
            // Put back, or the drop would find nothing to release.
            hold => {
                self.hold = hold;
                Err(self)
            }
        }
    }

    /// Counts one hold less, and releases the lock with the last one.
    pub(super) fn release(self) -> Result<()> {
        self.leave()?.map_or(Ok(()), |last| last.release())
    }

    /// Counts one hold less. Returns the lock if that was the last, so that the caller releases it.
    pub(super) fn leave(mut self) -> Result<Option<Holding>> {
        match self.count_down()? {
            Left::Last(hold) => Ok(Some(hold.holding().clone())),
            // Its work under this hold may have collided with another holder, and the caller of an inner
            // release may be the only one that can undo it.
            Left::Inner(hold) => {
                hold.holding().make_valid().map_err(|error| error.of(hold.holding().name()))?;
                Ok(None)
            }
            Left::Nothing => Ok(None),
        }
    }

    fn count_down(&mut self) -> Result<Left> {
        // Taken first: whatever happens next, the drop that follows finds nothing to release again.
        let Some(hold) = self.hold.take() else { return Ok(Left::Nothing) };
        // Before a release: what it asked for is nothing to the next hold of the lease.
        self.inner = None;
        if hold.count() == 0 {
            // Released by key, or left to the worker at the end of the thread. The lock may be
            // another's by now.
            return Err(hold.holding().not_live_error().of(hold.holding().name()));
        }
        // Not checked for validity if others remain: reading the clock would be most of the cost of
        // an inner drop, which returns nothing anyway. `leave` does check.
        if hold.leave(self.access) {
            return Ok(Left::Last(hold));
        }
        // The guards that are left may need less of a read-write lock.
        if self.access > Some(Access::Read) {
            hold.holding().downgrade(hold.needs())?;
        }
        Ok(Left::Inner(hold))
    }

    /// Leaves the hold to its thread, which releases it by key or at its end.
    pub(super) fn keep(mut self) -> Result<()> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        // A thread whose thread-local storage is gone has no table of holds. Kept there, the lock
        // would be renewed for as long as the process lives, and nobody could release it.
        if is_kept(&hold) {
            hold.keep(self.inner.take());
            return Ok(());
        }
        self.inner = None;
        // By the worker and not by a drop, which logs its failures: many loggers use thread-local
        // storage, and panic at the end of a thread.
        if hold.leave(self.access) {
            hold.holding().release_in_background();
        }
        let text =
            "this thread is ending and cannot keep the lock; hold a guard instead of detaching it";
        Err(Error::refused(text).of(hold.holding().name()))
    }
}

impl Drop for ThreadHeld {
    fn drop(&mut self) {
        let outcome = match self.count_down() {
            Ok(Left::Last(hold)) => hold.holding().release_dropped(),
            outcome => outcome.map(drop),
        };
        match outcome {
            // A loss is worth a line even here: nobody else may report it. A guard whose hold was
            // released by key is not, as the program did that itself.
            Err(error) if !error.is_not_held() || error.is_lost() => log!(warn, "{error}"),
            _ => {}
        }
    }
}

/// The error of a thread that would wait for its own hold of a read-write lock (rule 38).
pub(super) fn waits_for_itself(name: &Name, held: Access, wanted: Access) -> Error {
    let article = |access| if access == Access::UpgradableRead { "an" } else { "a" };
    let (one, other) = (article(held), article(wanted));
    let wrong = format_args!(
        "this thread is {one} {held} already, and as {other} {wanted} it would wait for itself"
    );
    let right =
        "one hold, of what is needed in the end: `write`, or `upgradable_read` and then `upgrade`";
    Error::config("access", wrong, right).of(name)
}

/// A hold that belongs to no thread.
pub(crate) struct OwnedHold {
    holding: Option<Holding>,
    /// What the call asked for whose guard it was, if that entered a hold.
    inner: Option<Box<InnerCall>>,
}

impl OwnedHold {
    pub(super) fn new(holding: Holding) -> OwnedHold {
        OwnedHold { holding: Some(holding), inner: None }
    }

    pub(super) fn holding(&self) -> &Holding {
        // Only methods that consume it take it.
        self.holding.as_ref().expect("a hold is there until it is consumed")
    }

    pub(super) fn access(&self) -> Option<Access> {
        // It is not changed while it belongs to no thread.
        None
    }

    /// Makes it the hold of the thread that calls this.
    pub(super) fn into_thread(mut self) -> ThreadHeld {
        // Also for a lease that was lost on its way: the guard then reports the loss, where an
        // error here would leave the caller without anything to ask for its cause.
        let inner = self.inner.take();
        let holding = self.take().expect("a hold is there until it is consumed");
        let access = holding.hold.lease.access();
        ThreadHeld::inner(adopt(holding), access, inner)
    }

    /// Ends it. The caller releases the lock.
    pub(super) fn leave(mut self) -> Option<Holding> {
        self.take()
    }

    pub(super) fn release(mut self) -> Result<()> {
        // Taken, so that the drop at the end of this call does not release a second time.
        self.take().map_or(Ok(()), |holding| holding.release())
    }

    fn take(&mut self) -> Option<Holding> {
        // Before a release: what it asked for is nothing to the next hold of the lease.
        self.inner = None;
        self.holding.take()
    }
}

impl Drop for OwnedHold {
    fn drop(&mut self) {
        // Each error is logged, unlike for a thread's hold. No key releases this one, so none of them
        // is the program's own doing.
        if let Some(holding) = self.take()
            && let Err(error) = holding.release_dropped()
        {
            log!(warn, "{error}");
        }
    }
}

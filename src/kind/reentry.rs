//! What a thread finds that asks for a lock that it holds already: it enters its hold once more, or is in its own way.

use crate::base::error::{Error, Result};
use crate::base::option::LockOptions;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::engine::acquire::end_behind;
use crate::engine::holding::Holding;
use crate::engine::slot::{Slot, WaitLimit};
use crate::engine::thread_hold::{ThreadHold, find};
use crate::kind::hold::{self, ThreadHeld};

/// The error of a thread that would wait without an end for a hold of its own (rule 38).
pub(crate) fn waits_for_itself(why: &str) -> Error {
    let wrong =
        format_args!("this thread holds the lock already and would wait for itself, because {why}");
    let right = "the release of that hold first, or a call that waits for a limited time";
    Error::config("reentry", wrong, right)
}

/// The consequence of a call that asks for more than the hold of its thread has, and did not get it.
const AS_BEFORE: &str = "this thread holds the lock as before, and not once more";

/// What a thread finds that asks for a lock.
pub(super) enum Reentry<H = ThreadHeld> {
    /// It holds the lock once more.
    Entered(H),
    /// It does not hold the lock.
    Outside,
    /// It is in its own way, and does not wait for itself.
    Busy,
}

impl Reentry {
    /// The same with what the caller makes of the hold.
    pub(super) fn map<H>(self, make: impl FnOnce(ThreadHeld) -> H) -> Reentry<H> {
        match self {
            Reentry::Entered(held) => Reentry::Entered(make(held)),
            Reentry::Outside => Reentry::Outside,
            Reentry::Busy => Reentry::Busy,
        }
    }
}

/// Enters the hold of this thread once more, if it has one, by a call with these options, and with this access if it is a
/// read-write lock.
pub(super) fn reenter(
    slot: &Arc<Slot>,
    options: &LockOptions,
    access: Option<Access>,
    wait_limit: WaitLimit,
) -> Result<Reentry> {
    let Some(hold) = find(slot) else { return Ok(Reentry::Outside) };
    let name = slot.target().name();
    // A lost hold is not taken anew. The outer section of this thread believes that it has
    // held the lock all along, and would go on over what another holder has changed.
    if let Err(error) = hold.holding().make_valid_within(wait_limit) {
        return Err(error.of(name));
    }
    let (outer, held) = (&hold.holding().hold, hold.holding().hold.lease.access());
    // Both sections must allow it: either may be the one that must be alone in its thread.
    if outer.options.once_per_thread.forbids(held) || options.once_per_thread.forbids(access) {
        let why = match outer.options.once_per_thread.forbids(held) {
            true => "that hold is not reentrant",
            false => "this handle is not reentrant",
        };
        return end_in_own_way(&hold, options, wait_limit, why).map(|()| Reentry::Busy);
    }
    if let (Some(held), Some(wanted)) = (held, access)
        && held < Access::Write
        && wanted > Access::Read
    {
        return Err(hold::waits_for_itself(name, held, wanted));
    }
    // Usually no command: the count lives in this thread, and reentry must not fail because Redis is away. But for a hold
    // whose lease is over and may come back, about which Redis was asked above (rule 51), and for a call that asks for more
    // than the hold has (rule 62). An observer that is told of its requests may give the hold up, so that comes last.
    let under_way = hold.holding().begin_call();
    let inner = match hold.holding().enter(options, wait_limit) {
        Ok(inner) => inner,
        Err(error) if error.is_lost() => return Err(error.of(name)),
        Err(error) => return Err(error.with_consequence(AS_BEFORE).of(name)),
    };
    if !hold.enter(access) {
        let expected = "a smaller one; release the guards";
        return Err(Error::config("hold count", u32::MAX, expected).of(name));
    }
    drop(under_way);
    hold.holding().reentered(access);
    Ok(Reentry::Entered(ThreadHeld::inner(hold, access, inner)))
}

/// Whether a call that enters no hold may wait, for the share of these options. It returns an error where it would wait
/// for a hold of this thread without an end.
pub(super) fn is_own_way_free(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
) -> Result<bool> {
    let Some(hold) = find(slot) else { return Ok(true) };
    // One that is lost is in nobody's way.
    if hold.holding().check_valid().is_err() && !hold.holding().hold.is_live() {
        return Ok(true);
    }
    let fits = hold.holding().hold.lease.share().fits_beside(options.share);
    if fits && wait_limit != WaitLimit::FOR_EVER {
        return Ok(true);
    }
    let why = match fits {
        // It would wait for the writer, and the writer for the hold of this thread.
        true => "a writer may wait between the two",
        false => "an owned lease enters no hold",
    };
    end_in_own_way(&hold, options, wait_limit, why).map(|()| false)
}

/// Ends a call because a hold of its own thread is in its way: with an error if it would wait for that without an end.
fn end_in_own_way(
    hold: &ThreadHold,
    options: &LockOptions,
    wait_limit: WaitLimit,
    why: &str,
) -> Result<()> {
    let Holding { slot, hold } = hold.holding();
    if wait_limit == WaitLimit::FOR_EVER {
        return Err(waits_for_itself(why).of(slot.target().name()));
    }
    end_behind(slot, options, hold);
    Ok(())
}

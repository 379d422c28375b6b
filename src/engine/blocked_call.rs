//! The holder that was in the way when a thread went without a lock.

use std::cell::RefCell;

use crate::base::inspection::Holder;
use crate::base::sync::{Arc, Weak, thread_local};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::slot::Slot;

/// A thread remembers the blockers of this many locks.
const REMEMBERED: usize = 64;

/// The holder in the way of a thread at the end of a wait.
struct BlockedCall {
    slot: Weak<Slot>,
    blocker: Blocker,
    at: Moment,
}

thread_local! {
    static BLOCKED_CALLS: RefCell<Vec<BlockedCall>> = RefCell::default();
}

/// This thread goes without the lock, because of this holder.
pub(crate) fn remember(slot: &Arc<Slot>, blocker: Blocker) {
    let call = BlockedCall { slot: Arc::downgrade(slot), blocker, at: slot.context().now() };
    // While the thread ends nobody asks any more.
    let forgotten = BLOCKED_CALLS.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        calls.push(call);
        (calls.len() > REMEMBERED).then(|| calls.remove(0))
    });
    drop(forgotten);
}

/// Forgets the blocker of an earlier call: this thread asks for the lock anew.
pub(crate) fn forget(slot: &Arc<Slot>) {
    let forgotten = BLOCKED_CALLS.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        let index =
            calls.iter().position(|it| std::ptr::eq(it.slot.as_ptr(), &raw const **slot))?;
        Some(calls.remove(index))
    });
    drop(forgotten);
}

/// The holder that was in the way when this thread's last call for the lock went without it.
pub(crate) fn last_blocker(slot: &Arc<Slot>) -> Option<Holder> {
    let (blocker, at) = BLOCKED_CALLS
        .try_with(|calls| {
            let calls = calls.borrow();
            let found =
                calls.iter().find(|it| std::ptr::eq(it.slot.as_ptr(), &raw const **slot))?;
            Some((found.blocker.clone(), found.at))
        })
        .ok()??;
    let identity = slot.context().protocol.identity();
    Some(blocker.identify(slot.target().kind(), identity, at))
}

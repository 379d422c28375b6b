//! Who was in the way when a thread went without a lock.

use std::cell::RefCell;

use crate::base::inspection::Holder;
use crate::base::sync::{Arc, Weak, thread_local};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::slot::Slot;

/// So many locks that it went without a thread remembers.
const REMEMBERED: usize = 64;

/// Who was in the way of a thread at the end of a wait.
struct Refusal {
    slot: Weak<Slot>,
    blocker: Blocker,
    at: Moment,
}

thread_local! {
    static REFUSALS: RefCell<Vec<Refusal>> = RefCell::default();
}

/// This thread goes without the lock, because of this holder.
pub(crate) fn remember(slot: &Arc<Slot>, blocker: Blocker) {
    let refusal = Refusal { slot: Arc::downgrade(slot), blocker, at: slot.context().now() };
    // While the thread ends nobody asks any more.
    let forgotten = REFUSALS.try_with(|refusals| {
        let mut refusals = refusals.borrow_mut();
        refusals.push(refusal);
        (refusals.len() > REMEMBERED).then(|| refusals.remove(0))
    });
    drop(forgotten);
}

/// This thread asks for the lock anew: what it was told before counts no longer.
pub(crate) fn forget(slot: &Arc<Slot>) {
    let forgotten = REFUSALS.try_with(|refusals| {
        let mut refusals = refusals.borrow_mut();
        let index =
            refusals.iter().position(|it| std::ptr::eq(it.slot.as_ptr(), &raw const **slot))?;
        Some(refusals.remove(index))
    });
    drop(forgotten);
}

/// Who was in the way when this thread's last call for the lock went without it.
pub(crate) fn last_blocker(slot: &Arc<Slot>) -> Option<Holder> {
    let (blocker, at) = REFUSALS
        .try_with(|refusals| {
            let refusals = refusals.borrow();
            let found =
                refusals.iter().find(|it| std::ptr::eq(it.slot.as_ptr(), &raw const **slot))?;
            Some((found.blocker.clone(), found.at))
        })
        .ok()??;
    let identity = slot.context().protocol.identity();
    Some(blocker.identify(slot.target().kind(), identity, at))
}

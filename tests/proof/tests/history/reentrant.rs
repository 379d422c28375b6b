//! A reentrant lock: its thread takes it again, up to three deep.

use leasehold::{Guard, ReentrantLock};

use crate::worker::Worker;

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = worker.options();
    let lock = worker.client.locks().reentrant_with(object, options).expect("valid settings");
    let (once, wait) = (worker.rng.u8(..8) == 0, worker.wait());
    let take = || if once { lock.try_lock() } else { lock.try_lock_for(wait) };
    if let Some(guard) =
        worker.acquire("acquire", object, format_args!(""), take, |_| String::new())
    {
        let depth = worker.rng.u8(..3);
        inside(worker, &lock, object, guard, depth);
    }
}

/// A hold, with as many more inside it.
fn inside(worker: &mut Worker<'_>, lock: &ReentrantLock, object: &str, guard: Guard, depth: u8) {
    if depth > 0 {
        let count = |_: &Guard| format!(" count={}", lock.hold_count());
        let inner = worker.acquire("acquire", object, format_args!(""), || lock.try_lock(), count);
        if let Some(inner) = inner {
            inside(worker, lock, object, inner, depth - 1);
        }
    }
    worker.change(object, guard.fencing_token().get());
    worker.stay(object, &guard);
    worker.release("release", object, guard);
}

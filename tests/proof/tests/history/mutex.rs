//! A mutex: taken in every way, and released.

use leasehold::{Guard, Mutex};

use crate::worker::Worker;

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = worker.mutex_options();
    let lock = worker.client.mutex_with(object, options).expect("valid settings");
    if let Some(guard) = take(worker, &lock, object) {
        worker.change(object, guard.fencing_token().get());
        worker.stay(object, &guard);
        worker.release("release", object, guard);
    }
}

/// Asks for it once, for some time, or for as long as it takes.
pub(crate) fn take(worker: &mut Worker<'_>, lock: &Mutex, object: &str) -> Option<Guard> {
    let (way, wait) = (worker.rng.u8(..16), worker.wait());
    let take = || match way {
        0 | 1 => lock.try_lock(),
        2 | 3 => lock.lock().map(Some),
        _ => lock.try_lock_for(wait),
    };
    worker.acquire("acquire", object, format_args!(""), take, |_| String::new())
}

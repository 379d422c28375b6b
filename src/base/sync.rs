//! Every lock, thread, thread-local and channel of the crate comes through this file, so that a
//! model checker can take their place.

pub(crate) use crossbeam_channel as channel;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, OnceLock, Weak};
pub(crate) use std::thread_local;

use std::time::Duration;

/// Starts a named background thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Lets this thread do nothing for a while.
pub(crate) fn sleep(span: Duration) {
    std::thread::sleep(span);
}

//! Every lock, thread, thread-local and channel of the crate comes through this file, so that a
//! model checker can take their place.

pub(crate) use crossbeam_channel as channel;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
/// A cell whose value is computed without waiting for another thread, the same under a model checker: it may
/// outlive a schedule.
pub(crate) use std::sync::OnceLock as StaticCell;
/// A counter that nobody waits for, the same under a model checker: it may outlive a schedule.
pub(crate) use std::sync::atomic::AtomicU32 as Tally;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock, Weak};
#[cfg(any(test, feature = "testing"))]
pub(crate) use std::thread::ThreadId;
pub(crate) use std::thread_local;

use std::time::Duration;

/// Starts a named background thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Which thread this is.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn current() -> ThreadId {
    std::thread::current().id()
}

/// Lets this thread do nothing for a while.
pub(crate) fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// For a crowd that is woken at once: the standard library's `notify_all` takes one system call,
/// where parking_lot's wakes one, which wakes the next.
pub(crate) mod contended {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use std::sync::{Condvar, MutexGuard};

    /// A mutex that a panic does not poison.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Waits to be notified, for no longer than this.
    pub(crate) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        span: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_timeout(guard, span).unwrap_or_else(PoisonError::into_inner).0
    }
}

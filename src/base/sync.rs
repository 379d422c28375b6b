//! Every lock, thread, thread-local and channel of the crate comes through this file, so that a
//! model checker can replace them all. `tests/it/layer.rs` refuses imports past it.
//!
//! # Memory orderings
//!
//! One rule for each of three uses:
//!
//! | use | ordering |
//! | --- | --- |
//! | two threads agree by it, together with another atomic: one writes the first and reads the second, the other the other way round | `SeqCst` |
//! | a flag that publishes what was written before it | `Release` to write it, `Acquire` to read it |
//! | a number for people, a hint, or a draw of numbers, from which no thread concludes anything about other memory | `Relaxed` |
//!
//! A use that could be two of them takes the stronger one. The model checker explores sequentially consistent atomics
//! only, so a weaker order is argued for where it stands.

pub(crate) use crossbeam_channel as channel;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
/// A cell for a static, whose value is computed without waiting for another thread. It is the same
/// under a model checker, because a static outlives a schedule and a modelled cell does not.
pub(crate) use std::sync::OnceLock as StaticCell;
/// A counter for a static that no thread waits for. It is the same under a model checker, as above.
pub(crate) use std::sync::atomic::AtomicU32 as Tally;
/// The same, for what 32 bits do not count.
pub(crate) use std::sync::atomic::AtomicU64 as LongTally;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock, Weak};
#[cfg(any(test, feature = "testing"))]
pub(crate) use std::thread::ThreadId;
pub(crate) use std::thread::panicking;
pub(crate) use std::thread_local;

use std::time::Duration;

/// Starts a named background thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // Detached: no thread may wait for another to end when a client is dropped, because the last
    // reference may be dropped on that very thread. The error is passed on, since `thread::spawn`
    // would panic where the system allows no more threads.
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// The id of this thread.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn current() -> ThreadId {
    std::thread::current().id()
}

/// Lets this thread sleep.
pub(crate) fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// For many threads that are woken at once: the standard library's `notify_all` wakes all by one
/// system call. That of parking_lot moves them to the mutex, and each of them wakes the next one.
///
/// And for what the worker shares with all callers, which must not hold it up. A mutex of parking_lot and a channel of
/// crossbeam yield the processor up to seven times before they block, and on a busy machine each yield lasts until every
/// other thread has had its turn: a worker that only counted the attempts to connect was late by a second. This mutex
/// spins for a microsecond, and then blocks.
pub(crate) mod contended {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use std::sync::{Condvar, MutexGuard};

    /// A mutex that a panic does not poison.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Mutex<T> {
            Mutex(std::sync::Mutex::new(value))
        }

        // As parking_lot: a panic of one thread must not become a panic of all the others.
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Waits to be notified. It may return early for no reason.
    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for no longer than this.
    pub(crate) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        span: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_timeout(guard, span).unwrap_or_else(PoisonError::into_inner).0
    }
}

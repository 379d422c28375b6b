//! The replacement of `sync.rs` while schedules are explored: the same names, under a model
//! checker.
//!
//! At every lock, wait, channel and atomic here the checker may switch to another thread. All
//! atomics are sequentially consistent: weaker orders are not explored.
//!
//! | module | what it has |
//! | --- | --- |
//! | `time` | the time of the model, and the threads that wait for a moment |
//! | `lock` | mutexes and condition variables, also for a crowd |
//! | `channel` | channels like those of `crossbeam-channel` |

#![allow(dead_code, unused_imports)] // It offers what sync.rs offers, of which tests use a part.

pub(crate) mod channel;
mod lock;
pub(crate) mod time;

pub(crate) use lock::{Condvar, Mutex, MutexGuard, contended};
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use shuttle::sync::{Arc, Weak};
pub(crate) use shuttle::thread::ThreadId;
pub(crate) use shuttle::thread_local;
pub(crate) use std::sync::OnceLock as StaticCell;
pub(crate) use std::sync::atomic::{AtomicU32 as Tally, AtomicU64 as LongTally};
pub(crate) use std::thread::panicking;

use std::time::Duration;

/// Starts a named background thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    shuttle::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// The id of this thread.
pub(crate) fn current() -> ThreadId {
    shuttle::thread::current().id()
}

/// Lets this thread sleep in the model's time.
pub(crate) fn sleep(span: Duration) {
    time::sleep(span);
}

/// A cell that is written once. That of the standard library would block the only real thread, and
/// no other modelled thread could finish the initialisation.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    gate: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> OnceLock<T> {
        OnceLock { value: std::sync::OnceLock::new(), gate: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.value.get().is_none() {
            // The modelled lock is the place to switch threads. Checked again behind it: another
            // thread may have written meanwhile.
            let _gate = self.gate.lock();
            if self.value.get().is_none() {
                let made = make();
                return self.value.get_or_init(|| made);
            }
        }
        self.value.get().expect("it was written")
    }
}

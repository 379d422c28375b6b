//! What stands in for `sync.rs` while schedules are explored: the same names, under a model checker.
//!
//! Every lock, wait, channel and atomic here is a place where the checker may let another thread go
//! on. All atomics count as sequentially consistent: weaker orders are not explored.
//!
//! | module | what it has |
//! | --- | --- |
//! | `time` | the time of the model, and whoever waits for a moment |
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
pub(crate) use std::sync::atomic::AtomicU32 as Tally;

use std::time::Duration;

/// Starts a named background thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    shuttle::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Which thread this is.
pub(crate) fn current() -> ThreadId {
    shuttle::thread::current().id()
}

/// Lets this thread do nothing for a while of the model's time.
pub(crate) fn sleep(span: Duration) {
    time::sleep(span);
}

/// A cell that is written once. The standard library's would stop the one real thread for good.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    gate: Mutex<()>,
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
            let _gate = self.gate.lock();
            if self.value.get().is_none() {
                let made = make();
                return self.value.get_or_init(|| made);
            }
        }
        self.value.get().expect("it was written")
    }
}

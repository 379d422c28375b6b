//! The one place where panics are caught: those of a user's callbacks, and of a user's logger,
//! which runs on every thread that writes a line.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Writes a line to the log by a macro of the crate `log`, as in `log!(warn, "lock {name} is …")`.
/// If the logger panics, only the line is lost. A panic here would end a background thread, or
/// abort the process if it happened in a destructor during another panic.
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        _ = ::std::panic::catch_unwind(::std::panic::AssertUnwindSafe(|| ::log::$level!($($text)+)))
    };
}

/// Runs work that may panic. Returns `None` and logs an error if it did.
pub(crate) fn catch_panic<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    // `AssertUnwindSafe` is sound here, because our locks are not poisoned: each caller must leave
    // its state consistent at every point at which foreign code runs. The payload of the panic is
    // dropped; the panic hook has shown it.
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    if outcome.is_none() {
        log!(error, "{what} panicked");
    }
    outcome
}

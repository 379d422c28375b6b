//! The one place where panics are caught: those of a user's callbacks, and of a user's logger, which runs on
//! whatever thread writes a line.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Writes a line to the log by a macro of the crate `log`, as in `log!(warn, "lock {name} is …")`. A logger that
/// panics loses its line, and nothing else: the thread may be a background thread, or may be unwinding.
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        _ = ::std::panic::catch_unwind(::std::panic::AssertUnwindSafe(|| ::log::$level!($($text)+)))
    };
}

/// Does work that may panic. `None` if it did, which is logged.
pub(crate) fn catch_panic<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    if outcome.is_none() {
        log!(error, "{what} panicked");
    }
    outcome
}

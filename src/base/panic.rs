//! The one place where panics of a user's callbacks are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

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

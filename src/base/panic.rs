//! The one place where panics are caught: those of a user's callbacks, and of a user's logger.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs work that may panic. Returns `None` if it did.
pub(crate) fn catch_silently<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Runs work that may panic. Returns `None` and logs an error if it did.
pub(crate) fn catch_panic<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    // `AssertUnwindSafe` is sound here, because our locks are not poisoned: each caller must leave
    // its state consistent at every point at which foreign code runs. The payload of the panic is
    // dropped; the panic hook has shown it.
    let outcome = catch_silently(work);
    if outcome.is_none() {
        log!(error, "{what} panicked");
    }
    outcome
}

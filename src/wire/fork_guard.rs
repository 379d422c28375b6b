//! Whether this process made the first client, or is a fork of a process that did.

use crate::base::sync::{AtomicU32, Ordering};
use crate::wire::failure::{Failure, NotSentReason};

/// The process in which the first client was made; 0 before that.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Checks that clients can be made and used here: not in a fork of a process that had one.
///
/// A fork lacks the client's threads, but has a copy of their entries in `parking_lot`'s table of
/// waiting threads. Its new threads may get the same addresses, and then miss wake-ups. A fork also
/// shares its parent's sockets: its commands would get mixed into the parent's stream.
pub(crate) fn check() -> Result<(), Failure> {
    // Asked at each exchange, not by `pthread_atfork`: that needs unsafe code, and an application
    // may fork by a system call that runs no handlers.
    let here = std::process::id();
    // `Relaxed`, and no exchange: the word guards no other data. Threads that race for the first
    // store write the same number, and a fork begins with the word as its parent had it.
    match FIRST.load(Ordering::Relaxed) {
        0 => FIRST.store(here, Ordering::Relaxed),
        first if first != here => return Err(Failure::NotSent(NotSentReason::Forked)),
        _ => {}
    }
    Ok(())
}

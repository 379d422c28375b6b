//! Whether this process made the first client, or is a fork of the one that did.

use crate::base::sync::{AtomicU32, Ordering};
use crate::wire::failure::{Failure, NotSentReason};

/// The process in which the first client was made; 0 before that.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Makes sure that clients can be made and used here: not in a fork of a process that had one.
///
/// Such a fork lacks the client's threads, but has a copy of what they wait for in `parking_lot`'s table. Threads
/// that it starts come to lie at the same addresses, and then miss wake-ups. It shares its parent's sockets too:
/// what it sent would be mixed into the parent's stream.
pub(crate) fn check() -> Result<(), Failure> {
    let here = std::process::id();
    match FIRST.load(Ordering::Relaxed) {
        0 => FIRST.store(here, Ordering::Relaxed),
        first if first != here => return Err(Failure::NotSent(NotSentReason::Forked)),
        _ => {}
    }
    Ok(())
}

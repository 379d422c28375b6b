//! The shutdown of a client: its waits are cancelled, its renewals stop, its locks are released.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::{self, Arc, Ordering};
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::holding::Holding;
use crate::protocol::target::Target;

/// How often to look at the exchanges of the user's threads.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Cancels all waits, takes all locks from their holders, and releases them. Waits for that at most
/// `within`.
pub(crate) fn shut_down(engine: &Engine, within: Duration) -> Result<()> {
    let deadline = engine.now().after(within);
    // Set before the slots are visited. A thread that enters a slot later finds the flag set, under the
    // lock of that slot; one that entered earlier is found there below.
    engine.shut_down.store(true, Ordering::SeqCst);
    // A release after `max_hold` is due only when the lease ends, so as not to let others in beside a
    // thread that is still at work. A shutdown takes the locks of such threads anyway.
    engine.worker.flush_releases();

    let left = loop {
        // Again and again: an exchange that is under way may still bring a lease, after the slot was
        // visited.
        let mut left = end_all(engine);
        // After the slots, because everything in a slot is recorded with the worker before it leaves the
        // slot. The other way round a lease could move from the one to the other between the two looks.
        left.extend(engine.worker.wait_released(deadline));
        if left.is_empty() || engine.now() >= deadline {
            break left;
        }
        // The threads of the user are in their own exchanges, and wake nobody when these end.
        sync::sleep(POLL_INTERVAL);
    };
    if left.is_empty() {
        return Ok(());
    }

    Err(Error::unreachable(format!(
        "{} could not be released within {} ({}); each ends with its lease, and the release goes on in \
         the background",
        if left.len() == 1 { "1 lock".to_owned() } else { format!("{} locks", left.len()) },
        Span(within),
        shown(&left)
    )))
}

/// Ends the waits and the leases of all slots. Returns the locks whose threads are in an exchange with
/// Redis.
fn end_all(engine: &Engine) -> Vec<Arc<Target>> {
    let mut talking = Vec::new();
    for slot in engine.table().all() {
        // First, so that no lease is passed on to a thread of the queue by a release that runs meanwhile.
        slot.cancel();
        for lease in slot.leases() {
            Holding::new(&slot, lease).shut_down();
        }
        // Dropped, which leaves the releases to the worker: it sends those of all slots together.
        drop(slot.end_lingers(Moment::FAR));
        if slot.is_in_exchange() {
            talking.push(Arc::clone(slot.target()));
        }
    }
    talking
}

/// The names of a few locks.
fn shown(targets: &[Arc<Target>]) -> String {
    const FEW: usize = 5;
    let mut names: Vec<String> =
        targets.iter().map(|target| format!("\"{}\"", target.name())).collect();
    names.sort();
    if names.len() > FEW {
        names.truncate(FEW);
        names.push("…".to_owned());
    }
    names.join(", ")
}

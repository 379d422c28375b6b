//! How a client ends before its time: no waits, no renewals, everything given back.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::{self, Arc, Ordering};
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::holding::Holding;
use crate::protocol::target::Target;

/// What is under way in threads of the user is looked at this often.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Calls off all waits, takes all locks from their holders, and gives them back, waiting for that at
/// most `within`.
pub(crate) fn shut_down(engine: &Engine, within: Duration) -> Result<()> {
    let deadline = engine.now().after(within);
    engine.shut_down.store(true, Ordering::SeqCst);
    // What `max_hold` ended is left alone for as long as its lease, which may be longer than this waits.
    engine.worker.flush_releases();
    let left = loop {
        // An exchange that is under way may still bring a lease.
        let mut left = end_all(engine);
        left.extend(engine.worker.wait_released(deadline));
        if left.is_empty() || engine.now() >= deadline {
            break left;
        }
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

/// Ends what slots have and wait for. Answers those whose threads are talking to Redis.
fn end_all(engine: &Engine) -> Vec<Arc<Target>> {
    let mut talking = Vec::new();
    for slot in engine.table().all() {
        slot.cancel();
        for lease in slot.leases() {
            Holding::new(&slot, lease).shut_down();
        }
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

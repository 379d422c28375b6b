//! Riding out an outage of Redis, as a wait for a lock does.

use std::cell::Cell;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::sleep;
use crate::base::time::Moment;
use crate::kind::Handle;

/// The pauses between two requests grow from the first to the second.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// How soon a pause notices that the client was closed.
const SLICE: Duration = Duration::from_millis(100);

/// Asks again while Redis gives no useful reply: for [`give_up_after`](crate::LockClientBuilder::give_up_after) from the
/// first failure on, and not beyond `end`, which may move. So a caller without time asks once.
pub(super) fn ride_out<T>(
    handle: &Handle,
    end: impl Fn() -> Moment,
    mut ask: impl FnMut() -> Result<T>,
) -> Result<T> {
    let context = handle.context();
    let mut outage = None;
    loop {
        let error = match ask() {
            Err(error) if error.is_transient() => error,
            outcome => return outcome,
        };
        let now = context.now();
        let since: Moment = *outage.get_or_insert(now);
        let last = since.after(context.bounds.give_up_after).min(end());
        if now >= last || context.is_closing() {
            return Err(error.in_outage());
        }
        pause(handle, now.after(pause_after(now.since(since))).min(last));
    }
}

/// The same for a write that may be repeated.
///
/// A later failure says nothing about an earlier request that had no reply. Then the outcome stays unknown, and that
/// failure is the source of the error.
pub(super) fn ride_out_writing(
    handle: &Handle,
    end: impl Fn() -> Moment,
    consequence: &str,
    mut write: impl FnMut() -> Result<()>,
) -> Result<()> {
    let is_unknown = Cell::new(false);
    let outcome = ride_out(handle, end, || {
        let outcome = write();
        let had_no_reply = outcome.as_ref().is_err_and(Error::is_unknown_outcome);
        is_unknown.set(is_unknown.get() || had_no_reply);
        outcome
    });
    outcome.map_err(|error| {
        if error.is_unknown_outcome() {
            return error.with_consequence(consequence);
        }
        if !is_unknown.get() {
            return error;
        }
        let why = error.text();
        let text = format!("a request had no reply, so {consequence}; the next try failed: {why}");
        let unknown = Error::unknown_outcome(text).of(handle.name());
        let unknown = if error.is_unreachable() { unknown.in_outage() } else { unknown };
        unknown.with_source(error)
    })
}

/// How long to pause in an outage that has lasted for so long. Machines that all met it at the same moment come back at
/// different ones, and the fewer the longer it lasts: they would keep down what tries to start.
fn pause_after(lasted: Duration) -> Duration {
    (lasted / 4).clamp(PAUSES[0], PAUSES[1]).mul_f64(0.5 + fastrand::f64() / 2.0)
}

fn pause(handle: &Handle, until: Moment) {
    let context = handle.context();
    while context.now() < until && !context.is_closing() {
        context.clock.wait_until(until, &mut |span| sleep(span.min(SLICE)));
    }
}

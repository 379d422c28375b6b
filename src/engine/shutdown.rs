//! How a client ends before its time.
//!
//! 1. The client is *closing*: it grants no lock any more. All waits are cancelled, and what lingers is given back.
//! 2. Until the grace is over, holders have time to release. They are renewed meanwhile.
//! 3. The client has *ended*: the other holds are taken, and the worker gives them back.
//! 4. What threads and the worker have under way is waited for, within a bound.
//!
//! The holds are those that the first step finds. A thread that was granted a lock at that moment either has its
//! hold in the slot by then, or finds the client closing and gives it back.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::close_report::CloseReport;
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::closing::Phase;
use crate::engine::holding::Holding;

/// Cancels all waits, lets holders release until `grace` is over, takes the other locks, and waits for at most
/// `within` until all are given back.
pub(crate) fn close(engine: &Engine, grace: Duration, within: Duration) -> CloseReport {
    let (closing, clock) = (&engine.closing, &*engine.clock);
    let end = engine.now().after(grace);
    closing.advance(Phase::Closing);
    let slots = engine.table().all();
    let (mut cancelled, mut holdings) = (0, Vec::new());
    for slot in &slots {
        let (waits, leases) = slot.close();
        cancelled += waits;
        holdings.extend(leases.into_iter().map(|lease| Holding::new(slot, lease)));
        drop(slot.end_lingers(Moment::FAR));
    }
    // Another call may have less patience.
    let works = |holding: &Holding| {
        closing.phase() != Phase::Ended && holding.lease.is_valid_at(engine.now())
    };
    drop(closing.wait(clock, end, &holdings, works));

    closing.advance(Phase::Ended);
    let deadline = engine.now().after(within);
    // What `max_hold` ended is left alone for as long as its lease, which may be longer than this waits.
    engine.worker.flush_releases();
    holdings.iter().for_each(Holding::shut_down);
    // What is under way may still leave something to the worker.
    let talking = closing.wait(clock, deadline, &slots, |slot| slot.is_in_exchange());
    let talking = talking.map(|slot| slot.target().name().clone());
    let mut left: Vec<_> = talking.collect();
    let owed = engine.worker.wait_released(deadline);
    left.extend(owed.iter().map(|target| target.name().clone()));
    CloseReport::new(cancelled, holdings.iter().map(Holding::loss), left, within)
}

//! The end of a client before its time.
//!
//! 1. The client is *closing*: it grants no lock any more. All waits are cancelled, and lingering leases are released.
//! 2. Until the grace is over, holders have time to release. They are renewed meanwhile.
//! 3. The client has *ended*: the other holds are lost, and the worker releases them.
//! 4. The call waits until threads and the worker have finished their exchanges, within a bound.
//!
//! The holds are those that the first step finds. A thread that was granted a lock at that moment either has its
//! hold in the slot by then, or finds the client closing and releases it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::close_report::CloseReport;
use crate::base::logging::{self, Hurry};
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::closing::ClosingPhase;
use crate::engine::holding::Holding;
use crate::engine::worker::Report;

/// Cancels all waits, lets holders release until `grace` is over, takes the other locks, and waits for at most
/// `within` until all are released.
pub(crate) fn close(engine: &Engine, grace: Duration, within: Duration) -> CloseReport {
    let (closing, clock) = (&engine.closing, &*engine.clock);
    let end = engine.now().after(grace);

    // Before the slots are visited. A thread that enters a slot later is refused, under the lock of that slot; one
    // that entered earlier is found there below.
    closing.advance(ClosingPhase::Closing);
    engine.signals.raise_all();
    let slots = engine.table().all();
    let (mut cancelled, mut holdings) = (0, Vec::new());
    for slot in &slots {
        let (waits, holds) = slot.close();
        cancelled += waits;
        holdings.extend(holds.into_iter().map(|hold| Holding::new(slot, hold)));
        // Dropped, which leaves the releases to the worker: it sends those of all slots together.
        drop(slot.end_lingers(Moment::FAR));
    }
    // Another call may have a shorter grace.
    let works = |holding: &Holding| {
        // One look for both: between two, a silent hold may become valid.
        closing.phase() != ClosingPhase::Ended && engine.now() < holding.hold.lost_at()
    };
    drop(closing.wait(clock, end, &holdings, works));

    closing.advance(ClosingPhase::Ended);
    let deadline = engine.now().after(within);
    // A release after `max_hold` is due only when the lease ends, so as not to let others in beside a
    // thread that is still at work. After the grace the locks of such threads are taken anyway.
    engine.worker.flush_releases();
    let mut report = Report::default();
    holdings.iter().filter_map(Holding::shut_down).for_each(|loss| report.lost(loss, 0));
    // The slots first, because everything in a slot is recorded with the worker before it leaves the slot. The
    // other way round a lease could move from the one to the other between the two looks.
    let busy = closing.wait(clock, deadline, &slots, |slot| slot.is_in_exchange());
    let mut left: Vec<_> = busy.map(|slot| slot.target().name().clone()).collect();
    let pending = engine.worker.wait_released(deadline);
    left.extend(pending.iter().map(|target| target.name().clone()));
    // Last, and from the queue: a logger may be slow, or block.
    let hurry = Hurry::begin();
    report.log(engine.now());
    drop(hurry);
    logging::flush();
    cancelled += closing.take_refused();
    CloseReport::new(cancelled, holdings.iter().map(Holding::loss), left, within)
}

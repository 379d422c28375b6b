//! When the worker is to look at a slot.
//!
//! The slot knows by when the worker looks, and asks for an earlier look only where that is too late. A lease
//! that is passed on inside the process, or taken again while it lingers, needs none: the entry of the hold
//! before serves the next. What the worker finds when it looks is what counts.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::holder::SlotHolder;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::{NextCheck, Step};

/// A count that people see follows within this time.
const SHOW_AFTER: Duration = Duration::from_millis(20);

impl SlotState {
    /// The worker looks at the slot. Returns the leases that threads have, live or not.
    pub(in crate::engine::slot) fn check(&mut self, step: &mut Step) -> Vec<Arc<HeldLease>> {
        self.check_at = Moment::FAR;
        // Also where its time is over by now: the caller may have looked for that a moment ago.
        if let Some(until) = self.holders.iter().filter_map(SlotHolder::lingers_until).min() {
            self.check_by(until, step);
        }
        self.leases()
    }

    /// The worker wants to look again then, which it does no later than when a lease ends. Returns the leases
    /// that it found.
    pub(in crate::engine::slot) fn check_again(
        &mut self,
        due: Moment,
        step: &mut Step,
    ) -> Vec<Arc<HeldLease>> {
        let leases = self.leases();
        let held = leases.iter().filter(|lease| lease.is_live());
        let ends = held.map(|lease| lease.valid_until().max(step.now));
        let ends = ends.chain(self.holders.iter().filter_map(SlotHolder::lingers_until)).min();
        if let Some(end) = ends {
            // The look before may have been cut short, by a panic of a logger, and then the slot still counts
            // on it.
            self.check_at = Moment::FAR;
            self.check_by(due.min(end), step);
        }
        leases
    }

    /// Makes the worker look when this lease needs it.
    pub(in crate::engine::slot) fn schedule_check(&mut self, lease: &HeldLease, step: &mut Step) {
        let due = lease.next_check();
        let shown = lease.hold_count.is_unshown().then(|| step.now.after(SHOW_AFTER));
        self.check_by(shown.map_or(due, |shown| shown.min(due)), step);
    }

    /// The same, by a moment.
    pub(super) fn check_by(&mut self, due: Moment, step: &mut Step) {
        if due < self.check_at {
            self.check_at = due;
            step.next_check = NextCheck::By(due);
        }
    }

    /// Spares the worker the look: there is no lease any more.
    pub(super) fn cancel_check(&mut self) -> NextCheck {
        let watched = std::mem::replace(&mut self.check_at, Moment::FAR) != Moment::FAR;
        if watched { NextCheck::Never } else { NextCheck::Unchanged }
    }
}

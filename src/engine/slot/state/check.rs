//! When the worker checks a slot.
//!
//! The slot knows when the worker will check it, and asks for an earlier check only where that is too
//! late. A lease that is passed on inside the process, or taken again while it lingers, needs none: the
//! entry of the hold before serves the next one. The worker decides by what it finds when it checks.
//!
//! A check also announces a slot that has been in use for a second, in the index of all locks in use. The
//! moments of announcements are whole seconds, so that those of all slots of a client fall into one turn of
//! the worker and take one command.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::holder::SlotHolder;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::{NextCheck, Step};

/// Within this time Redis shows a new hold count.
const SHOW_AFTER: Duration = Duration::from_millis(20);

/// What is in use for this long is announced,
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);
/// and announced again after this time: three times before it is dropped from the index.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
/// One second in which announcements are made together.
const TICK: Duration = Duration::from_secs(1);

impl SlotState {
    /// The worker checks the slot. Returns the leases that threads hold, live or not.
    pub(in crate::engine::slot) fn check(&mut self, step: &mut Step) -> Vec<Arc<HeldLease>> {
        // The worker has taken the entry out of its queue, so the slot has none until somebody asks
        // again.
        self.check_at = Moment::FAR;
        // Also if the linger is over by now: the worker ended those that were over by an earlier reading
        // of the clock, and one that ended since would have no entry.
        if let Some(until) = self.holders.iter().filter_map(SlotHolder::lingers_until).min() {
            self.check_by(until, step);
        }
        self.leases()
    }

    /// Schedules the next check for `due`, or for the end of a lease or a linger if that is earlier.
    /// Returns the leases that it looked at.
    pub(in crate::engine::slot) fn check_again(
        &mut self,
        due: Moment,
        step: &mut Step,
    ) -> Vec<Arc<HeldLease>> {
        let leases = self.leases();
        // A lease that is over needs no check: its loss or its release is somebody's task already.
        let held = leases.iter().filter(|lease| lease.is_live());
        let ends = held.map(|lease| lease.valid_until().max(step.now));
        let ends = ends.chain(self.holders.iter().filter_map(SlotHolder::lingers_until));
        let end = ends.min().unwrap_or(Moment::FAR).min(self.announce_at);
        if end != Moment::FAR {
            // A check that a panic cut short has left `check_at` at a moment for which the worker has no
            // entry. `check_by` would take that for early enough, and nobody would renew the lease.
            self.check_at = Moment::FAR;
            self.check_by(due.min(end), step);
        }
        leases
    }

    /// Makes the worker check the slot when this lease needs it.
    pub(in crate::engine::slot) fn schedule_check(&mut self, lease: &HeldLease, step: &mut Step) {
        let due = lease.next_check();
        let shown = lease.hold_count.is_unshown().then(|| step.now.after(SHOW_AFTER));
        self.check_by(shown.map_or(due, |shown| shown.min(due)), step);
    }

    /// Makes the worker check the slot by a moment.
    pub(super) fn check_by(&mut self, due: Moment, step: &mut Step) {
        // Only ever earlier. A check that comes too early finds nothing due and schedules the next; each
        // one that is not moved spares the lock of the task queue, and perhaps a wake-up, on the path of
        // a lock.
        if due < self.check_at {
            self.check_at = due;
            step.next_check = NextCheck::By(due);
        }
    }

    /// A thread holds the lock: the worker announces it if that lasts.
    pub(super) fn note_hold(&mut self, step: &mut Step) {
        self.begin_use(step);
        self.check_by(self.announce_at, step);
    }

    /// A thread waits for the lock, and Redis has replied that it is held elsewhere.
    pub(super) fn note_wait(&mut self, step: &mut Step) {
        // The first such reply is only noted. Most waits are over before a second one, a heartbeat later, and
        // would have woken the worker for nothing.
        if self.announce_at == Moment::FAR {
            self.begin_use(step);
        } else {
            self.check_by(self.announce_at, step);
        }
    }

    fn begin_use(&mut self, step: &Step) {
        if step.announces && self.announce_at == Moment::FAR {
            self.announce_at =
                step.now.after(ANNOUNCE_AFTER + TICK - Duration::from_nanos(1)).rounded_down(TICK);
        }
    }

    /// Whether the worker announces the slot now. Without room for it, the worker does so in the next second.
    pub(in crate::engine::slot) fn announce(&mut self, has_room: bool, step: &mut Step) -> bool {
        let in_use =
            self.acquirer.is_some() || self.holders.iter().any(|holder| !holder.is_abandoned());
        if !in_use || !step.announces {
            self.announce_at = Moment::FAR;
            return false;
        }
        let is_due = self.announce_at <= step.now;
        if is_due {
            let pause = if has_room { ANNOUNCE_EVERY } else { TICK };
            self.announce_at = step.now.after(pause).rounded_down(TICK);
        }
        self.check_by(self.announce_at, step);
        is_due && has_room
    }

    /// Cancels the check: there is no lease any more.
    pub(super) fn cancel_check(&mut self) -> NextCheck {
        self.announce_at = Moment::FAR;
        let watched = std::mem::replace(&mut self.check_at, Moment::FAR) != Moment::FAR;
        // Without an entry there is nothing to remove, and the lock of the task queue is not taken.
        if watched { NextCheck::Never } else { NextCheck::Unchanged }
    }
}

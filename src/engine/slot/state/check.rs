//! When the worker checks a slot.
//!
//! The slot knows when the worker will check it, and asks for an earlier check only where that is too
//! late. A lease that is passed on inside the process, or taken again while it lingers, needs none: the
//! entry of the hold before serves the next one. The worker decides by what it finds when it checks.
//!
//! A check also finds out whether the slot is to be announced, since it has been in use for a second. The
//! moments of announcements are whole seconds, so that those of all slots of a client fall into one turn of
//! the worker and take one command. A lease that lingers is not checked for that: if a thread takes it again
//! and holds it, the check that the lease itself needs comes soon enough.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::holder::SlotHolder;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::{NextCheck, Step};
use crate::engine::worker::ANNOUNCE_TICK;

/// Within this time Redis shows a new hold count.
const SHOW_AFTER: Duration = Duration::from_millis(20);

/// What is in use for this long is announced.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// What a check finds.
#[derive(Debug)]
pub(in crate::engine::slot) struct Checked {
    /// The leases that threads hold, live or not. The caller drops them once the slot is unlocked.
    pub(in crate::engine::slot) leases: Vec<Arc<HeldLease>>,
    /// Whether the time of a linger is over, so that the caller ends it.
    pub(in crate::engine::slot) linger_is_over: bool,
    /// Whether the slot is to be announced now.
    pub(in crate::engine::slot) is_announced: bool,
}

impl SlotState {
    /// The worker checks the slot, in a turn that began at `now`. This schedules the next check, and the next
    /// announcement after `announced_again` if one is due.
    pub(in crate::engine::slot) fn check(
        &mut self,
        now: Moment,
        announced_again: Duration,
        step: &mut Step,
    ) -> Checked {
        // The worker has taken the entry out of its queue, so the slot has none until somebody asks
        // again.
        self.check_at = Moment::FAR;
        // The lease for which it comes may be among them.
        self.forget_abandoned(step);
        let leases = self.leases();
        let lingers = || self.holders.iter().filter_map(SlotHolder::lingers_until);
        let linger_is_over = lingers().any(|until| until <= now);
        // What is due by now is dealt with in this turn. For a renewal the reply decides when the next check
        // is due.
        let checks = leases.iter().map(|lease| lease.next_check()).chain(lingers());
        let due = checks.filter(|&due| due > now).min();
        let is_announced = step.announces && self.announce_at <= now;
        if is_announced {
            self.announce_at = now.after(announced_again).rounded_down(ANNOUNCE_TICK);
        } else if !step.announces {
            self.announce_at = Moment::FAR;
        }
        let in_use = self.acquirer.is_some() || !leases.is_empty();
        let announce_at = if in_use { self.announce_at } else { Moment::FAR };
        self.check_by(due.map_or(announce_at, |due| due.min(announce_at)), step);
        Checked { leases, linger_is_over, is_announced }
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
        let held =
            leases.iter().map(|lease| lease.valid_until()).filter(|&end| end != Moment::PAST);
        let ends = held.map(|end| end.max(step.now));
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
    pub(in crate::engine::slot) fn check_by(&mut self, due: Moment, step: &mut Step) {
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

    /// A lease begins to linger.
    pub(super) fn note_linger(&mut self, until: Moment, renew_at: Moment, step: &mut Step) {
        self.check_by(until, step);
        // A check for the announcement alone is put off until the lease needs one. The worker would otherwise
        // lock each slot that a thread takes again and again, and wait for a thread that has no processor.
        if self.check_at == self.announce_at && self.holders.len() == 1 && self.acquirer.is_none() {
            self.check_at = until.min(renew_at);
            step.next_check = NextCheck::At(self.check_at);
        }
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
            let wait = ANNOUNCE_AFTER + ANNOUNCE_TICK - Duration::from_nanos(1);
            self.announce_at = step.now.after(wait).rounded_down(ANNOUNCE_TICK);
        }
    }

    /// Cancels the check: there is no lease any more.
    pub(super) fn cancel_check(&mut self) -> NextCheck {
        self.announce_at = Moment::FAR;
        let watched = std::mem::replace(&mut self.check_at, Moment::FAR) != Moment::FAR;
        // Without an entry there is nothing to remove, and the lock of the task queue is not taken.
        if watched { NextCheck::Never } else { NextCheck::Unchanged }
    }
}

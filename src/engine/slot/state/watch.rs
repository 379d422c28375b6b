//! When the worker comes to a slot.
//!
//! It comes to the leases of a slot without the slot: `lease::timer` lists for what. The slot looks when it will come, and asks
//! for an earlier moment only where that is too late. A lease that is passed on inside the process, or taken again while
//! it lingers, needs none.
//!
//! A slot that has been in use for a second is announced. The moments of announcements are whole seconds, so that those of
//! all slots of a client fall into one turn of the worker and take one command. A lease has the moment of its slot, so that
//! it needs no further timer; a slot in which threads only wait has one of its own. A lease that lingers is not looked at
//! for that: if a thread takes it again and holds it, its next moment comes soon enough.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::Lease;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::engine::worker::ANNOUNCE_TICK;

/// A lock that has been in use for this long is announced.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

impl SlotState {
    /// The worker asks whether the slot is to be announced, in a turn that began at `now`. The next announcement is after
    /// `again`, if one is due.
    pub(in crate::engine::slot) fn announce(
        &mut self,
        now: Moment,
        again: Duration,
        step: &mut Step,
    ) -> bool {
        self.forget_abandoned(step);
        let leases: Vec<Arc<Lease>> = self.held_leases().collect();
        if self.slot_due <= now {
            self.slot_due = Moment::FAR;
        }
        if !step.announces || (leases.is_empty() && self.acquirer.is_none()) {
            self.announce_at = Moment::FAR;
        }
        let is_announced = self.announce_at <= now;
        if is_announced {
            self.announce_at = now.after(again).rounded_down(ANNOUNCE_TICK);
        }
        for lease in &leases {
            lease.announce_by(self.announce_at);
            step.watch(lease);
        }
        if leases.is_empty() {
            self.announce_by_itself(step);
        }
        is_announced
    }

    /// A thread holds a lease: its slot is announced if that lasts.
    pub(super) fn note_hold(&mut self, lease: &Arc<Lease>, step: &mut Step) {
        self.begin_use(step);
        if self.announce_at != lease.announce_at() {
            lease.announce_by(self.announce_at);
        }
        step.watch(lease);
    }

    /// A thread waits for the lock, and Redis has replied that it is held elsewhere.
    pub(super) fn note_wait(&mut self, step: &mut Step) {
        // The first such reply is only noted. Most waits are over before a second one, a heartbeat later, and
        // would have woken the worker for nothing.
        if self.announce_at == Moment::FAR {
            self.begin_use(step);
        } else if self.entries.is_empty() {
            self.announce_by_itself(step);
        }
    }

    /// The slot has no lease with which it would be announced.
    fn announce_by_itself(&mut self, step: &mut Step) {
        if self.announce_at < self.slot_due {
            self.slot_due = self.announce_at;
            step.announced_at = Some(self.slot_due);
        }
    }

    fn begin_use(&mut self, step: &Step) {
        if step.announces && self.announce_at == Moment::FAR {
            let wait = ANNOUNCE_AFTER + ANNOUNCE_TICK - Duration::from_nanos(1);
            self.announce_at = step.now.after(wait).rounded_down(ANNOUNCE_TICK);
        }
    }

    /// The slot has no entry any more, and is not announced unless somebody still waits there.
    pub(super) fn end_use(&mut self, step: &mut Step) {
        self.announce_at = Moment::FAR;
        if self.slot_due != Moment::FAR {
            self.slot_due = Moment::FAR;
            step.announced_at = Some(Moment::FAR);
        }
    }

    fn held_leases(&self) -> impl Iterator<Item = Arc<Lease>> {
        self.entries.iter().filter(|it| it.is_held()).filter_map(|it| it.lease.upgrade())
    }
}

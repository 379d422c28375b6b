//! How threads share the entry of a reader: each has a hold of its own, of one attempt.
//!
//! The holds of one entry have the same owner's value. One of them is renewed for all, and hands that on when it ends.
//! What one of them ends with (a time for which Redis is to keep the lock, a renewal without a reply) goes to another,
//! and the last one gives the entry back.

use crate::base::option::LockOptions;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::lease::HeldLease;
use crate::engine::slot::door::Entry;
use crate::engine::slot::holder::{HoldState, SlotHolder};
use crate::engine::slot::state::{EnterOutcome, SlotState};
use crate::engine::slot::step::Step;
use crate::engine::slot::waiter::{Admission, EnterRequest};

impl SlotState {
    /// A thread that wants to read comes in by the door, if it is not shut.
    pub(super) fn enter_by_door(
        &mut self,
        request: &EnterRequest,
        asks: bool,
        step: &mut Step,
    ) -> Option<EnterOutcome> {
        // Not past a thread that waits here.
        if request.options.access() != Some(Access::Read) || !self.queue.is_empty() {
            return None;
        }
        match self.door.entry(step.now) {
            Entry::Open(number) => {
                let lease = self.join(number, &request.options, step)?;
                Some(EnterOutcome::Now(Admission::Held(lease)))
            }
            Entry::Stale(number) if asks && self.acquirer.is_none() => {
                let lease = self.join(number, &request.options, step)?;
                // It asks for all: those that come meanwhile wait for its reply.
                self.acquire(request, step.now);
                Some(EnterOutcome::Now(Admission::Ask(lease, request.number)))
            }
            Entry::Stale(_) | Entry::Shut => None,
        }
    }

    /// The threads at the head of the queue that want to read come in together.
    pub(super) fn admit_readers(&mut self, number: u64, step: &mut Step) {
        while let Some(next) = self.queue.front().map(Arc::clone)
            && next.request.options.access() == Some(Access::Read)
            && self.upgrader.is_none()
            && let Some(lease) = self.join(number, &next.request.options, step)
        {
            self.queue.pop_front();
            step.admit(&next, Admission::Held(lease));
        }
    }

    /// One more hold of the entry with this number, if a thread with these options can have one.
    fn join(
        &mut self,
        number: u64,
        options: &LockOptions,
        step: &mut Step,
    ) -> Option<Arc<HeldLease>> {
        let mut of_entry = self.holders.iter().enumerate().filter(|(_, it)| it.number == number);
        let (index, lease) = of_entry.find_map(|(index, holder)| match &holder.hold {
            HoldState::Held(lease) => {
                let lease = lease.upgrade()?;
                step.leases.push(Arc::clone(&lease));
                lease.is_live().then_some((index, lease))
            }
            HoldState::Lingering { lease, .. } => Some((index, Arc::clone(lease))),
            HoldState::Releasing { .. } => None,
        })?;
        let next = lease.sibling(options, step.now)?;
        let hold = HoldState::Held(Arc::downgrade(&next));
        let blocker = Blocker::local(&next, step.now);
        let holder = &mut self.holders[index];
        if holder.lingers() {
            next.take_over(&lease);
            // It has what may be the last references to the old lease and to the slot.
            step.dropped = Some(std::mem::replace(&mut holder.hold, hold));
            holder.blocker = blocker;
        } else {
            let SlotHolder { demand, granted_at, passed, .. } = *holder;
            self.holders.push(SlotHolder { number, hold, blocker, demand, granted_at, passed });
        }
        self.schedule_check(&next, step);
        self.note_hold(step);
        Some(next)
    }

    /// The acquirer has asked whether somebody waits, by a request that was sent at `sent`, and nobody does: it goes on
    /// with the hold by which it asked. Returns false if its wait was cancelled.
    pub(in crate::engine::slot) fn asked(
        &mut self,
        lease: &Arc<HeldLease>,
        sent: Moment,
        step: &mut Step,
    ) -> bool {
        let is_cancelled = self.acquirer.take().is_some_and(|acquirer| acquirer.cancelled);
        if let Some(number) = self.holders.iter().find(|it| it.has(lease)).map(|it| it.number) {
            self.door.counted(number, sent, 0);
            self.admit_readers(number, step);
        }
        self.admit_next(step);
        !is_cancelled
    }

    /// Ends a hold of an entry that other threads share. Returns whether they do: the last one gives it back.
    pub(in crate::engine::slot) fn leave_entry(
        &mut self,
        lease: &Arc<HeldLease>,
        step: &mut Step,
    ) -> bool {
        let Some(index) = self.holders.iter().position(|holder| holder.has(lease)) else {
            return false;
        };
        let number = self.holders[index].number;
        let is_other = |(at, holder): (usize, &SlotHolder)| {
            (at != index && holder.number == number).then(|| holder.lease())?
        };
        let others: Vec<_> = self.holders.iter().enumerate().filter_map(is_other).collect();
        let Some(next) = others.iter().find(|it| it.is_live()).or(others.first()) else {
            return false;
        };
        next.take_over(lease);
        self.schedule_check(next, step);
        self.holders.remove(index);
        step.leases.extend(others);
        true
    }

    /// A hold of this entry is gone that nobody gave back, and perhaps it was renewed for all: another is, at once.
    pub(super) fn renew_another(&mut self, number: u64, step: &mut Step) {
        let of_entry = self.holders.iter().filter(|holder| holder.number == number);
        let others: Vec<_> = of_entry.filter_map(SlotHolder::lease).collect();
        if let Some(next) = others.iter().find(|it| it.is_live()) {
            next.renew_by(step.now);
            self.schedule_check(next, step);
        }
        step.leases.extend(others);
    }

    /// The other leases of the same entry: those that threads hold, or that linger. The caller drops them once the slot
    /// is unlocked.
    pub(in crate::engine::slot) fn siblings(&self, lease: &Arc<HeldLease>) -> Vec<Arc<HeldLease>> {
        let leases = self.holders.iter().filter_map(|holder| match &holder.hold {
            HoldState::Held(lease) => lease.upgrade(),
            HoldState::Lingering { lease, .. } => Some(Arc::clone(lease)),
            HoldState::Releasing { .. } => None,
        });
        // All of them are returned to the caller, since each may be the last reference.
        leases.filter(|other| !Arc::ptr_eq(other, lease)).collect()
    }
}

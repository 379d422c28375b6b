//! How threads share the entry of a reader: each has a hold of its own, and all have one lease.

use crate::base::loss::Loss;
use crate::base::option::LockOptions;
use crate::base::share::Access;
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::door::DoorState;
use crate::engine::slot::entry::EntryPhase;
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
        match self.door.at(step.now) {
            DoorState::Open(number) => {
                let hold = self.join(number, &request.options, step)?;
                Some(EnterOutcome::Now(Admission::Held(hold)))
            }
            DoorState::Stale(number) if asks && self.acquirer.is_none() => {
                let hold = self.join(number, &request.options, step)?;
                // It asks for all: those that come meanwhile wait for its reply.
                self.acquire(request, step.now);
                Some(EnterOutcome::Now(Admission::Ask(hold, request.number)))
            }
            DoorState::Stale(_) | DoorState::Shut => None,
        }
    }

    /// The threads at the head of the queue that want to read come in together.
    pub(super) fn admit_readers(&mut self, number: u64, step: &mut Step) {
        while let Some(next) = self.queue.front().map(Arc::clone)
            && next.request.options.access() == Some(Access::Read)
            && self.upgrader.is_none()
            && let Some(hold) = self.join(number, &next.request.options, step)
        {
            self.queue.pop_front();
            step.admit(&next, Admission::Held(hold));
        }
    }

    /// One more hold of the entry with this number, if a thread with these options can have one.
    fn join(&mut self, number: u64, options: &LockOptions, step: &mut Step) -> Option<Arc<Hold>> {
        let entry = self.entries.iter_mut().find(|entry| entry.is_attempt(number))?;
        // One that all its threads are giving back is not shared any more. The first is usually live, and many may read.
        let is_live = entry.lingering().is_some()
            || entry.holds().any(|hold| {
                let is_live = hold.is_live();
                step.holds.push(hold);
                is_live
            });
        let lease = entry.lease.upgrade().filter(|_| is_live)?;
        let hold = Hold::beside(&lease, options, step.now)?;
        match &mut entry.phase {
            EntryPhase::Held(holds) => holds.push(Arc::downgrade(&hold)),
            EntryPhase::Lingering { .. } => entry.retake(&hold, step.now),
            EntryPhase::Releasing { .. } => return None,
        }
        self.note_hold(&lease, step);
        Some(hold)
    }

    /// The acquirer has asked whether somebody waits, by a request that was sent at `sent`, and nobody does: it goes on
    /// with the hold by which it asked. Returns false if its wait was cancelled.
    pub(in crate::engine::slot) fn asked(
        &mut self,
        lease: &Arc<Lease>,
        sent: Moment,
        step: &mut Step,
    ) -> bool {
        let is_cancelled = self.acquirer.take().is_some_and(|acquirer| acquirer.cancelled);
        if let Some(number) = self.entries.iter().find(|it| it.has(lease)).map(|it| it.number) {
            self.door.counted(number, sent, 0);
            self.admit_readers(number, step);
        }
        self.admit_next(step);
        !is_cancelled
    }

    /// Ends a hold of an entry that other threads share. Returns whether they do: the last one gives it back.
    pub(in crate::engine::slot) fn leave_entry(
        &mut self,
        hold: &Arc<Hold>,
        step: &mut Step,
    ) -> bool {
        let entry = self.entries.iter_mut().find(|entry| entry.has(&hold.lease));
        let Some(entry) = entry else { return false };
        let EntryPhase::Held(holds) = &mut entry.phase else { return false };
        let is_other = |other: &Weak<Hold>| other.as_ptr() != Arc::as_ptr(hold);
        if !holds.iter().any(|other| is_other(other) && other.strong_count() > 0) {
            return false;
        }
        holds.retain(is_other);
        // Without a limit it was not the one by which the lease ends first. Many may read, so they are looked at only then.
        if hold.limit() != Moment::FAR {
            let others: Vec<_> = entry.holds().collect();
            hold.lease.leave(first_limit(others.iter()));
            step.holds.extend(others);
        }
        true
    }

    /// Ends what is over of a lease: the holds whose `max_hold` is over, or all of them if the lease was lost, and that of
    /// the finder, which is lost already. Returns them, each with its loss, and whether that was all of the entry.
    pub(in crate::engine::slot) fn end_over(
        &mut self,
        lease: &Arc<Lease>,
        finder: Option<&Arc<Hold>>,
        step: &mut Step,
    ) -> (Vec<(Arc<Hold>, Loss)>, bool) {
        let Some(entry) = self.entries.iter_mut().find(|it| it.has(lease)) else {
            return (Vec::new(), false);
        };
        let all: Vec<_> = entry.holds().collect();
        let EntryPhase::Held(holds) = &mut entry.phase else { return (Vec::new(), false) };
        let (mut lost, mut left) = (Vec::new(), Vec::new());
        for hold in &all {
            match hold.expire(step.now) {
                Some(loss) => lost.push((Arc::clone(hold), loss)),
                // One that another thread gives back, or has found lost, comes here by itself.
                None if finder.is_none_or(|finder| !Arc::ptr_eq(finder, hold)) => left.push(hold),
                None => {}
            }
        }
        holds.retain(|it| left.iter().any(|hold| std::ptr::eq(it.as_ptr(), Arc::as_ptr(hold))));
        lease.leave(first_limit(left.iter().copied()));
        let is_all = left.is_empty();
        step.holds.extend(all);
        if !is_all {
            step.watch(lease);
        }
        (lost, is_all)
    }
}

/// When `max_hold` ends the first of these holds.
fn first_limit<'a>(holds: impl Iterator<Item = &'a Arc<Hold>>) -> Moment {
    let live = holds.filter(|hold| hold.is_live());
    live.map(|hold| hold.limit()).min().unwrap_or(Moment::FAR)
}

//! How a lease is given up: passed on to the next thread, kept for a while, or given back.

use std::time::Duration;

use crate::base::option::WaitKind;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::fairness::PASS_ON_WHILE_LISTENED;
use crate::engine::slot::holder::{HoldState, KeepAlive, SlotHolder};
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::engine::slot::waiter::Admission;

/// How long a lease is passed on from thread to thread while another process waits.
const PASS_ON_WHILE_WANTED: Duration = Duration::from_millis(50);
/// The same while none is known to: those that do not queue cannot make themselves known.
const PASS_ON_UNCONTENDED: Duration = Duration::from_secs(1);

/// What becomes of a lease that its thread gives up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unlocked {
    /// Another thread has it.
    ToThread,
    /// Nobody has it, and the worker ends that.
    Lingering,
    /// It goes back to Redis; [`SlotState::remove`] is owed afterwards.
    Releasing,
}

impl SlotState {
    /// A thread gives its lease up: the next thread has it, or the process keeps it for a while, if that may
    /// be; else it is to be given back.
    pub(in crate::engine::slot) fn unlock(
        &mut self,
        lease: &Arc<HeldLease>,
        keep: KeepAlive,
        step: &mut Step,
    ) -> Unlocked {
        let Some(index) = self.holders.iter().position(|holder| holder.has(lease)) else {
            return Unlocked::Releasing;
        };
        let holder = &self.holders[index];
        let next = self.queue.front().filter(|_| self.may_pass(holder, lease, step));
        if let Some(successor) =
            next.and_then(|next| lease.successor(&next.request.options, step.now))
            && let Some(next) = self.queue.pop_front()
        {
            self.holders[index].pass_on(&successor, step.now);
            self.schedule_check(&successor, step);
            step.admit(&next, Admission::Held(successor));
            return Unlocked::ToThread;
        }
        if let Some(until) = self.may_linger(holder, lease, step) {
            self.holders[index].hold =
                HoldState::Lingering { lease: Arc::clone(lease), until, _keep: keep };
            self.check_by(until, step);
            return Unlocked::Lingering;
        }
        self.holders[index].hold =
            HoldState::Releasing { lease: Arc::downgrade(lease), since: step.now };
        self.fairness.begin_release();
        if self.holders.len() == 1 {
            step.next_check = self.cancel_check();
        }
        Unlocked::Releasing
    }

    /// Bounded in number and time while another process waits, in time alone while none is known to. Where
    /// nothing could be heard of one, it is taken for granted.
    fn may_pass(&self, holder: &SlotHolder, lease: &HeldLease, step: &Step) -> bool {
        let held = step.now.since(holder.granted_at);
        let options = &lease.terms.options;
        let hears = options.wait_kind() == WaitKind::Queue && step.hears;
        if holder.demand.wanted || !hears {
            let most = if self.fairness.has_listeners(step.now) {
                PASS_ON_WHILE_LISTENED
            } else {
                PASS_ON_WHILE_WANTED
            };
            holder.passed < options.most_handoffs() && held < most
        } else {
            options.most_handoffs() > 0 && held < PASS_ON_UNCONTENDED
        }
    }

    /// Until when a lease that its thread gives up may linger, if it may.
    fn may_linger(&self, holder: &SlotHolder, lease: &HeldLease, step: &Step) -> Option<Moment> {
        let options = &lease.terms.options;
        let linger = options.linger.min(lease.leased_until().since(step.now) / 2);
        let revocable = options.wait_kind() == WaitKind::Queue && step.hears;
        // A thread that locks again has the same options as a rule, and one without renewals cannot use it.
        let useful = options.is_renewed() && lease.may_last(step.now);
        let allowed = revocable
            && self.queue.is_empty()
            && !holder.demand.wanted
            && useful
            && !step.shut_down;
        (allowed && !linger.is_zero()).then(|| step.now.after(linger))
    }

    /// Ends a linger of which this is true. Its lease is to be given back, and [`remove`](Self::remove) is owed
    /// afterwards.
    pub(in crate::engine::slot) fn end_linger(
        &mut self,
        which: impl Fn(&SlotHolder) -> bool,
        step: &mut Step,
    ) -> Option<Arc<HeldLease>> {
        let index = self.holders.iter().position(|holder| holder.lingers() && which(holder))?;
        let HoldState::Lingering { lease, .. } = &self.holders[index].hold else { return None };
        let lease = Arc::clone(lease);
        let releasing = HoldState::Releasing { lease: Arc::downgrade(&lease), since: step.now };
        step.dropped = Some(std::mem::replace(&mut self.holders[index].hold, releasing));
        if self.holders.len() <= 1 {
            step.next_check = self.cancel_check();
        }
        Some(lease)
    }
}

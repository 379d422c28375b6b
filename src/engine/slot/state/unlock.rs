//! How a lease is given up: passed on to the next thread, kept for a while, or released.

use std::time::Duration;

use crate::base::option::WaitKind;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::HeldLease;
use crate::engine::slot::acquirer::Acquirer;
use crate::engine::slot::fairness::PASS_ON_WHILE_LISTENED;
use crate::engine::slot::holder::{HoldState, KeepAlive, SlotHolder};
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::engine::slot::waiter::Admission;

/// How long after its grant a lease is passed on between threads while another process waits.
const PASS_ON_WHILE_WANTED: Duration = Duration::from_millis(50);
/// The same while none is known to wait. There is a bound even then, because waiters that do not queue
/// cannot report themselves.
const PASS_ON_UNCONTENDED: Duration = Duration::from_secs(1);

/// What happens to a lease that its thread gives up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unlocked {
    /// Another thread got it.
    ToThread,
    /// The process keeps it, until the worker ends that.
    Lingering,
    /// The caller releases it, and then calls [`SlotState::remove`].
    Releasing,
}

impl SlotState {
    /// A thread gives its lease up: the next thread gets it, or the process keeps it for a while, or the
    /// caller must release it.
    pub(in crate::engine::slot) fn unlock(
        &mut self,
        lease: &Arc<HeldLease>,
        keep: KeepAlive,
        step: &mut Step,
    ) -> Unlocked {
        let Some(index) = self.holders.iter().position(|holder| holder.has(lease)) else {
            // Not a holder here any more. To release it is right whatever happened: the script does
            // nothing for a value that is not the owner.
            return Unlocked::Releasing;
        };
        if self.overlaps
            && let Some(successor) = self.successor_of_acquirer(&self.holders[index], lease, step)
            && let Some(acquirer) = &mut self.acquirer
        {
            self.holders[index].pass_on(&successor, step.now);
            acquirer.inherit(Arc::clone(&successor));
            step.wakes_acquirer = true;
            self.schedule_check(&successor, step);
            return Unlocked::ToThread;
        }
        let holder = &self.holders[index];
        // The thread leaves the queue only once it has its lease: without one it keeps its place, and
        // acquires after the release. Only the first is asked, so that none overtakes it.
        let next = self.queue.front().filter(|_| {
            self.acquirer.as_ref().is_none_or(Acquirer::is_asking)
                && self.may_pass(holder, lease, step)
        });
        if let Some(successor) =
            next.and_then(|next| lease.successor(&next.request.options, step.now))
            && let Some(next) = self.queue.pop_front()
        {
            self.holders[index].pass_on(&successor, step.now);
            self.schedule_check(&successor, step);
            step.admit(&next, Admission::Held(successor));
            return Unlocked::ToThread;
        }
        // No thread waits, or the first one cannot use the lease.
        if let Some(until) = self.may_linger(holder, lease, step) {
            self.holders[index].hold =
                HoldState::Lingering { lease: Arc::clone(lease), until, _keep: keep };
            self.note_linger(until, lease.renew_at(), step);
            return Unlocked::Lingering;
        }

        self.holders[index].hold =
            HoldState::Releasing { lease: Arc::downgrade(lease), since: step.now };
        // Before the release is sent: its message may reach this client before its reply.
        self.fairness.begin_release();
        // The only lease, and a lease that is being released is not renewed. Other holders share the
        // entry.
        if self.holders.len() == 1 {
            step.next_check = self.cancel_check();
        }
        Unlocked::Releasing
    }

    /// The lease for the acquirer, if it may be passed on to it. Where holds may overlap, the first thread that
    /// waits is the acquirer, with a place in the queue of Redis, which goes to the next thread.
    fn successor_of_acquirer(
        &self,
        holder: &SlotHolder,
        lease: &HeldLease,
        step: &Step,
    ) -> Option<Arc<HeldLease>> {
        let options = self.acquirer.as_ref()?.inherits()?;
        // Nor to a reader that waits: somebody must be ahead of it.
        let reads = options.access() == Some(Access::Read);
        let may_pass = !reads && self.may_pass(holder, lease, step);
        may_pass.then(|| lease.successor(options, step.now))?
    }

    /// Whether the lease may be passed on. This is bounded in number and time while another process
    /// waits, and in time alone while none is known to wait. Where the client could not learn of a
    /// waiter, one is assumed.
    fn may_pass(&self, holder: &SlotHolder, lease: &HeldLease, step: &Step) -> bool {
        // The thread that closes is about to cancel those that wait here.
        if step.closing {
            return false;
        }
        // An upgrade waits before all others (rule 37).
        if self.upgrader.is_some() {
            return false;
        }
        let held = step.now.since(holder.granted_at);
        let options = &lease.terms.options;
        // Only waiters in the queue send messages, and only a client that listens receives them.
        let hears = options.wait_kind() == WaitKind::Queue && step.hears;
        let is_wanted = holder.demand.wanted || !hears;
        // Not past those who wait elsewhere: with several holders their turn comes more often, and each lease
        // that is kept from them would cost them one.
        if self.overlaps && is_wanted {
            return false;
        }
        if is_wanted {
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

    /// Until when the lease may linger, if it may.
    fn may_linger(&self, holder: &SlotHolder, lease: &HeldLease, step: &Step) -> Option<Moment> {
        let options = &lease.terms.options;
        // Nobody renews a lease that lingers. With half of the rest to spare, the next thread gets a
        // lease that can still be renewed, and the release at the end of the linger finds its owner.
        let linger = options.linger.min(lease.leased_until().since(step.now) / 2);
        // A waiter elsewhere must be able to end the linger by a message. One that came before is in the
        // demand, which is why that is never reset (rule 18).
        let revocable = options.wait_kind() == WaitKind::Queue && step.hears;
        // The thread that locks again usually has the same options. Without renewals it could not use the
        // rest of a lease (rule 9), so a linger would only keep others waiting.
        let useful = options.is_renewed() && lease.may_last(step.now);
        // The entry of a reader lingers behind its door: a thread that takes it may have to ask.
        let is_shut = options.access() == Some(Access::Read) && !self.door.is_of(holder.number);
        let waits_here = self.has_waiters() || is_shut;
        let allowed = revocable && !waits_here && !holder.demand.wanted && useful && !step.closing;
        (allowed && !linger.is_zero()).then(|| step.now.after(linger))
    }

    /// Ends a linger that matches. The caller releases its lease, and then calls
    /// [`remove`](Self::remove).
    pub(in crate::engine::slot) fn end_linger(
        &mut self,
        which: impl Fn(&SlotHolder) -> bool,
        step: &mut Step,
    ) -> Option<Arc<HeldLease>> {
        let index = self.holders.iter().position(|holder| holder.lingers() && which(holder))?;
        let HoldState::Lingering { lease, .. } = &self.holders[index].hold else { return None };
        let lease = Arc::clone(lease);
        let releasing = HoldState::Releasing { lease: Arc::downgrade(&lease), since: step.now };
        // The holder stays, as releasing: a free slot would let the next thread ask Redis before the
        // release does, and a shutdown would see nothing under way.
        step.dropped = Some(std::mem::replace(&mut self.holders[index].hold, releasing));
        if self.holders.len() <= 1 {
            step.next_check = self.cancel_check();
        }
        Some(lease)
    }
}

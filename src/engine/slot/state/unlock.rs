//! How a lease is given up: passed on to the next thread, kept for a while, or released.

use std::time::Duration;

use crate::base::option::WaitKind;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::acquirer::{Acquirer, AcquirerPhase};
use crate::engine::slot::entry::{Entry, EntryPhase, KeepAlive};
use crate::engine::slot::fairness::PASS_ON_WHILE_LISTENED;
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
    /// A thread gives its hold up: the next thread gets it, or the process keeps it for a while, or the
    /// caller must release it.
    pub(in crate::engine::slot) fn unlock(
        &mut self,
        hold: &Arc<Hold>,
        keep: KeepAlive,
        step: &mut Step,
    ) -> Unlocked {
        let lease = &hold.lease;
        let Some(index) = self.entries.iter().position(|entry| entry.has(lease)) else {
            // Not an entry here any more. To release it is right whatever happened: the script does
            // nothing for a value that is not the owner.
            return Unlocked::Releasing;
        };
        if self.overlaps
            && let Some(next) = self.next_of_acquirer(&self.entries[index], hold, step)
            && let Some(acquirer) = &mut self.acquirer
        {
            self.entries[index].pass_on(&next, step.now);
            acquirer.phase = AcquirerPhase::Given(next);
            step.wakes_acquirer = true;
            step.watch(lease);
            return Unlocked::ToThread;
        }
        let entry = &self.entries[index];
        // The thread leaves the queue only once it has its hold: without one it keeps its place, and
        // acquires after the release. Only the first is asked, so that none overtakes it.
        let next = self.queue.front().filter(|_| {
            self.acquirer.as_ref().is_none_or(Acquirer::is_asking)
                && self.may_pass(entry, hold, step)
        });
        if let Some(hold) = next.and_then(|next| Hold::next(lease, &next.request.options, step.now))
            && let Some(next) = self.queue.pop_front()
        {
            self.entries[index].pass_on(&hold, step.now);
            step.watch(lease);
            step.admit(&next, Admission::Held(hold));
            return Unlocked::ToThread;
        }
        // No thread waits, or the first one cannot use the lease.
        if let Some(until) = self.may_linger(entry, hold, step) {
            self.entries[index].phase =
                EntryPhase::Lingering { lease: Arc::clone(lease), _keep: keep };
            lease.linger(until);
            step.watch(lease);
            return Unlocked::Lingering;
        }

        self.entries[index].pass_demand_to(lease);
        self.entries[index].phase = EntryPhase::Releasing { since: step.now };
        // Before the release is sent: its message may reach this client before its reply.
        self.fairness.begin_release();
        step.forget(lease);
        if self.entries.len() == 1 {
            self.end_use(step);
        }
        Unlocked::Releasing
    }

    /// The lease for the acquirer, if it may be passed on to it. Where holds may overlap, the first thread that
    /// waits is the acquirer, with a place in the queue of Redis, which goes to the next thread.
    fn next_of_acquirer(&self, entry: &Entry, hold: &Hold, step: &Step) -> Option<Arc<Hold>> {
        let options = self.acquirer.as_ref()?.inherits()?;
        // Nor to a reader that waits: somebody must be ahead of it.
        let reads = options.access() == Some(Access::Read);
        let may_pass = !reads && self.may_pass(entry, hold, step);
        may_pass.then(|| Hold::next(&hold.lease, options, step.now))?
    }

    /// Whether the lease may be passed on. This is bounded in number and time while another process
    /// waits, and in time alone while none is known to wait. Where the client could not learn of a
    /// waiter, one is assumed.
    fn may_pass(&self, entry: &Entry, hold: &Hold, step: &Step) -> bool {
        // The thread that closes is about to cancel those that wait here.
        if step.closing {
            return false;
        }
        // An upgrade waits before all others (rule 37).
        if self.upgrader.is_some() {
            return false;
        }
        let held = step.now.since(entry.granted_at);
        // Only waiters in the queue send messages, and only a client that listens receives them.
        let hears = hold.lease.value.options.wait == WaitKind::Queue && step.hears;
        let is_wanted = entry.demand.wanted || !hears;
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
            entry.passed < hold.options.most_handoffs && held < most
        } else {
            hold.options.most_handoffs > 0 && held < PASS_ON_UNCONTENDED
        }
    }

    /// Until when the lease may linger, if it may.
    fn may_linger(&self, entry: &Entry, hold: &Hold, step: &Step) -> Option<Moment> {
        let asked = &hold.lease.value.options;
        // Nobody renews a lease that lingers. With half of the rest to spare, the next thread gets a
        // lease that can still be renewed, and the release at the end of the linger finds its owner.
        let linger = hold.options.linger.min(hold.lease.leased_until().since(step.now) / 2);
        // A waiter elsewhere must be able to end the linger by a message. One that came before is in the
        // demand, which is why that is never reset (rule 18).
        let revocable = asked.wait == WaitKind::Queue && step.hears;
        // The thread that locks again usually has the same options. Without renewals it could not use the
        // rest of a lease (rule 9), so a linger would only keep others waiting.
        let useful = hold.options.is_renewed && hold.lease.may_last(step.now);
        // The entry of a reader lingers behind its door: a thread that takes it may have to ask.
        let is_shut = asked.share.access() == Some(Access::Read) && !self.door.is_of(entry.number);
        let waits_here = self.has_waiters() || is_shut;
        let may_be_taken = useful && !step.closing && !step.is_left;
        let allowed = revocable && !waits_here && !entry.demand.wanted && may_be_taken;
        (allowed && !linger.is_zero()).then(|| step.now.after(linger))
    }

    /// Ends the lingers that match. The caller releases their leases, and then calls [`remove`](Self::remove) for each.
    pub(in crate::engine::slot) fn end_lingers(
        &mut self,
        which: impl Fn(&Entry, &Lease) -> bool,
        step: &mut Step,
    ) -> Vec<Arc<Lease>> {
        let mut ended = Vec::new();
        for entry in &mut self.entries {
            let Some(lease) = entry.lingering().filter(|lease| which(entry, lease)).map(Arc::clone)
            else {
                continue;
            };
            entry.pass_demand_to(&lease);
            // The entry stays, as releasing: a free slot would let the next thread ask Redis before the
            // release does, and a shutdown would see nothing under way.
            entry.phase = EntryPhase::Releasing { since: step.now };
            step.forget(&lease);
            ended.push(lease);
        }
        if !ended.is_empty() && self.entries.len() <= 1 {
            self.end_use(step);
        }
        ended
    }
}

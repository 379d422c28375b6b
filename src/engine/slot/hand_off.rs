//! How a lease that its thread gives up is passed on to the next of this process.

use std::time::Duration;

use crate::base::option::WaitKind;
use crate::base::sync::{Arc, Ordering};
use crate::base::time::Moment;
use crate::engine::lease::LiveLease;
use crate::engine::slot::courtesy::PASSED_ON_WHILE_LISTENED;
use crate::engine::slot::waiter::Turn;
use crate::engine::slot::{Inner, Slot, State};

/// How long a lease is passed on from thread to thread while another process waits.
const PASSED_ON_WHILE_WANTED: Duration = Duration::from_millis(50);
/// The same while none is known to: those that do not queue cannot make themselves known.
const PASSED_ON: Duration = Duration::from_secs(1);
/// Where a turn took no longer than this, who comes after the next is woken ahead of its own: to wake a
/// thread takes longer than such a hold.
const BRISK: Duration = Duration::from_micros(50);

/// What becomes of a lease that its thread gives up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PassedOn {
    /// Another thread has it.
    ToThread,
    /// Nobody has it, and the worker ends that.
    Lingering,
    /// It goes back to Redis; [`Slot::vacate`] is owed afterwards.
    No,
}

impl Slot {
    /// Passes a lease that its thread gives up on to the next thread, or keeps it for a while, if
    /// that may be.
    pub(crate) fn pass_on(self: &Arc<Slot>, lease: &Arc<LiveLease>) -> PassedOn {
        let mut inner = self.inner.lock();
        let now = self.context.now();
        let next = inner.queue.front().filter(|_| self.may_pass(&inner, lease, now));
        if let Some(successor) = next.and_then(|next| lease.successor(&next.options, now))
            && let Some(next) = inner.queue.pop_front()
        {
            inner.passed = inner.passed.saturating_add(1);
            inner.state = State::Held(Arc::downgrade(&successor));
            let brisk = now.since(std::mem::replace(&mut inner.passed_at, now)) <= BRISK;
            let after = inner.queue.front().filter(|_| brisk).map(Arc::clone);
            let wake = self.watch(&mut inner, &successor);
            next.assign(Turn::Held(successor));
            drop(inner);
            next.woken.notify_one();
            if let Some(after) = after {
                after.soon.store(true, Ordering::Relaxed);
                after.woken.notify_one();
            }
            self.context.worker.wake_if(wake);
            self.context.listen_for_waiters(lease.options());
            return PassedOn::ToThread;
        }
        if let Some(until) = self.may_linger(&inner, lease, now) {
            inner.state = State::Lingering(Arc::clone(lease), Arc::clone(self));
            inner.linger_until = until;
            let wake = self.look_by(&mut inner, until);
            drop(inner);
            self.context.worker.wake_if(wake);
            return PassedOn::Lingering;
        }
        self.unwatch(&mut inner);
        inner.state = State::Releasing;
        inner.asked_at = Some(now);
        inner.courtesy.begin_release();
        PassedOn::No
    }

    /// Bounded in number and time while another process waits, in time alone while none is known
    /// to. Where nothing could be heard of one, it is taken for granted.
    fn may_pass(&self, inner: &Inner, lease: &LiveLease, now: Moment) -> bool {
        let held = now.since(inner.granted_at);
        let queues = lease.options().wait_kind() == WaitKind::Queue;
        let heard = queues && self.context.hub.is_live();
        if mutated!("hand-off-bound-ignored") {
            return true;
        }
        if inner.wanted || !heard {
            let most = if inner.courtesy.is_listened_to(now) {
                PASSED_ON_WHILE_LISTENED
            } else {
                PASSED_ON_WHILE_WANTED
            };
            let brief = held < most || mutated!("hand-off-time-ignored");
            inner.passed < lease.options().local_handoffs_option() && brief
        } else {
            lease.options().local_handoffs_option() > 0 && held < PASSED_ON
        }
    }
}

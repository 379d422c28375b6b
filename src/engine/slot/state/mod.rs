//! The state machine of a slot: events in, effects out. It does no I/O, waits for nothing and starts nothing;
//! `Slot` is the lock around it and carries out its step.
//!
//! A slot has **zero or more holders and at most one acquirer**. The kind says whether holds may overlap; an
//! exclusive lock is the case of one holder, during which nobody acquires.
//!
//! | part | state | meaning |
//! | --- | --- | --- |
//! | acquirer | none | no thread asks Redis |
//! | | asking | one thread asks Redis, or waits for the reply to its first request |
//! | | held elsewhere | Redis has told that thread of a holder, and it waits |
//! | holder | held | a thread has the lease |
//! | | lingering | no thread has the lease, and the process keeps it for a while |
//! | | releasing | the lease is being given back |
//! | queue | | threads that wait, in the order in which they came |
//!
//! | event | from | to | effects |
//! | --- | --- | --- | --- |
//! | `enter` | nobody acquires, and no hold is in the way | asking | the thread acquires |
//! | | lingering, with suitable options | held | the thread holds |
//! | | lingering, with others | asking | the thread gives the old lease back and acquires |
//! | | any other | queued, or busy if it makes one attempt only | |
//! | `held_elsewhere` | asking | held elsewhere | threads with one attempt are told that it is busy |
//! | `granted` | asking, held elsewhere | held | those too; the worker looks at the lease |
//! | `stop_acquiring` | asking, held elsewhere | no acquirer, or the next thread asks | the next takes the place in the queue along |
//! | `unlock` | held | held by the next thread, lingering or releasing | the next thread holds; the worker looks |
//! | `remove` | held (lost), releasing (done) | no holder | the next thread acquires |
//! | `end_linger` | lingering | releasing | the caller gives the lease back |
//! | `on_grant` | asking, held elsewhere | same, with a grant | the acquirer wakes |
//! | `request_retry` | asking, held elsewhere | same, to ask at once | the acquirer wakes |
//! | `on_wanted`, `on_evicted` | any | same, noted for that attempt | the worker looks, where it is a holder's |
//! | `cancel` | any | the queue is empty | all who wait are told, the acquirer too |
//! | `time_out` | queued | not queued | |
//!
//! A thread that makes one attempt waits for no holder, but it does wait for the acquirer's first reply, for a
//! fresh one, or for a release under way: before that it could not tell a holder from an outage.

mod check;
mod message;
#[cfg(test)]
mod tests;
pub(super) mod unlock;

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::lease::HeldLease;
use crate::engine::slot::acquirer::{Acquirer, ReceivedGrant};
use crate::engine::slot::attempt::Attempt;
use crate::engine::slot::fairness::Fairness;
use crate::engine::slot::holder::{HoldState, SlotHolder};
use crate::engine::slot::step::Step;
use crate::engine::slot::wait_limit::WaitLimit;
use crate::engine::slot::waiter::{Admission, EnterRequest, Waiter};

/// A reply that takes no longer than this is not missed yet.
pub(crate) const USUAL_REPLY_TIME: Duration = Duration::from_millis(200);
/// Word of a holder that is older than this does not answer a new question.
const MAX_HOLDER_AGE: Duration = Duration::from_millis(50);

/// What a thread does that comes to the slot.
#[derive(Debug)]
pub(super) enum EnterOutcome {
    /// It has its turn, or goes without.
    Now(Admission),
    /// It waits to be told.
    Wait(Arc<Waiter>),
    /// It gives back this lease, which lingered, before it has its turn.
    After(Arc<HeldLease>, Admission),
}

/// One name in one process.
#[derive(Debug)]
pub(super) struct SlotState {
    /// Whether several holds of this process may exist at once.
    overlaps: bool,
    acquirer: Option<Acquirer>,
    holders: Vec<SlotHolder>,
    queue: VecDeque<Arc<Waiter>>,
    /// When somebody was last known to have the lock: the acquirer was told so, or it was a thread here.
    last_held_at: Moment,
    pub(super) fairness: Fairness,
    /// By when the worker looks at the slot; [`Moment::FAR`] while nobody wants it to.
    check_at: Moment,
}

impl SlotState {
    pub(super) fn new(overlaps: bool) -> SlotState {
        SlotState {
            overlaps,
            acquirer: None,
            holders: Vec::new(),
            queue: VecDeque::new(),
            last_held_at: Moment::PAST,
            fairness: Fairness::default(),
            check_at: Moment::FAR,
        }
    }

    /// A thread wants the lock.
    pub(super) fn enter(&mut self, request: EnterRequest, step: &mut Step) -> EnterOutcome {
        let once = request.wait_limit == WaitLimit::TryOnce;
        if step.shut_down {
            return EnterOutcome::Now(Admission::Cancelled);
        }
        self.forget_abandoned(step);
        if let Some(entered) = self.reuse_linger(&request, step) {
            return entered;
        }
        if self.may_acquire() {
            return EnterOutcome::Now(self.acquire(&request, step.now));
        }
        match &mut self.acquirer {
            None if once && self.holders.iter().any(SlotHolder::is_held) => {
                return EnterOutcome::Now(Admission::Busy(self.blocker()));
            }
            Some(acquirer) if once && acquirer.held_elsewhere => {
                if step.now.since(self.last_held_at) <= MAX_HOLDER_AGE {
                    let blocker = acquirer.blocker.clone();
                    return EnterOutcome::Now(Admission::Busy(blocker));
                }
                // What was true then is no reply now: the acquirer asks for both.
                acquirer.retry_now = true;
                step.wakes_acquirer = true;
            }
            _ => {}
        }
        // The acquirer may have to end its pause.
        step.wakes_acquirer |= self.fairness.yields_at(step.now);
        let waiter = Arc::new(Waiter::new(request));
        self.queue.push_back(Arc::clone(&waiter));
        EnterOutcome::Wait(waiter)
    }

    /// A thread that comes while a lease lingers takes that, or has it given back where it is in the way.
    fn reuse_linger(&mut self, request: &EnterRequest, step: &mut Step) -> Option<EnterOutcome> {
        let index = self.holders.iter().position(SlotHolder::lingers)?;
        let HoldState::Lingering { lease, .. } = &self.holders[index].hold else { return None };
        let Some(next) = lease.successor(&request.options, step.now) else {
            if self.overlaps {
                return None;
            }
            let HoldState::Lingering { lease, .. } = self.take_out(index, step).hold else {
                return None;
            };
            return Some(EnterOutcome::After(lease, self.acquire(request, step.now)));
        };
        let held = HoldState::Held(Arc::downgrade(&next));
        step.dropped = Some(std::mem::replace(&mut self.holders[index].hold, held));
        self.holders[index].blocker = Blocker::local(&next, step.now);
        self.schedule_check(&next, step);
        Some(EnterOutcome::Now(Admission::Held(next)))
    }

    fn may_acquire(&self) -> bool {
        self.acquirer.is_none() && (self.overlaps || self.holders.is_empty())
    }

    fn acquire(&mut self, request: &EnterRequest, now: Moment) -> Admission {
        let yield_until = self.fairness.yields_at(now).then_some(self.fairness.until);
        let asked_at = yield_until.is_none().then_some(now);
        self.acquirer = Some(Acquirer::new(request, asked_at));
        Admission::Acquire { number: request.number, yield_until }
    }

    /// The time of a thread that waits since then is over.
    pub(super) fn time_out(
        &mut self,
        waiter: &Arc<Waiter>,
        since: Moment,
        now: Moment,
    ) -> Admission {
        self.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        match self.silence(since, now) {
            Some(silence) => Admission::NoReply(silence),
            None => Admission::Busy(self.blocker()),
        }
    }

    /// Who is in the way of those that wait here, as far as is known.
    pub(super) fn blocker(&self) -> Option<Blocker> {
        let here = self.holders.last().map(|holder| &holder.blocker);
        here.or_else(|| self.acquirer.as_ref()?.blocker.as_ref()).cloned()
    }

    /// Where a thread stands among those that wait here, the acquirer included.
    pub(super) fn place(&self, waiter: &Arc<Waiter>) -> Option<usize> {
        let before = self.queue.iter().position(|other| Arc::ptr_eq(other, waiter))?;
        Some(before + usize::from(self.acquirer.is_some()) + 1)
    }

    /// For how long Redis has not replied to a thread that waits since then, if that is longer than usual:
    /// one acquirer, or several that failed in turn.
    fn silence(&self, since: Moment, now: Moment) -> Option<Duration> {
        let lately = since.max(now.before(HEARTBEAT * 2));
        let is_told = self.acquirer.as_ref().is_none_or(|acquirer| acquirer.held_elsewhere)
            || self.last_held_at >= lately;
        let releasing = || self.holders.iter().filter_map(SlotHolder::releasing_since).min();
        let asked_at = match &self.acquirer {
            Some(acquirer) => acquirer.asked_at,
            None => releasing(),
        };
        let silence = now.since(if is_told { asked_at? } else { since });
        (silence > USUAL_REPLY_TIME).then_some(silence)
    }

    /// The acquirer begins another attempt: what was heard of the earlier one no longer counts.
    pub(super) fn restart(&mut self, number: u64) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.restart(number);
        }
    }

    /// The acquirer was told that another process has the lock.
    pub(super) fn held_elsewhere(&mut self, blocker: Option<Blocker>, step: &mut Step) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.held_elsewhere = true;
            acquirer.blocker = blocker;
            acquirer.asked_at = None;
        }
        self.last_held_at = step.now;
        self.fairness.end(true, step.now);
        self.fail_try_lockers(step);
    }

    fn fail_try_lockers(&mut self, step: &mut Step) {
        if self.queue.is_empty() {
            return;
        }
        let blocker = self.blocker();
        self.queue.retain(|waiter| {
            let once = waiter.request.wait_limit == WaitLimit::TryOnce;
            if once {
                step.admit(waiter, Admission::Busy(blocker.clone()));
            }
            !once
        });
    }

    /// The grant that was heard for the acquirer's attempt. If there is none and `asks`, it asks Redis.
    pub(super) fn take_grant(&mut self, asks: bool, now: Moment) -> Option<ReceivedGrant> {
        let acquirer = self.acquirer.as_mut()?;
        let grant = acquirer.grant.take();
        if grant.is_none() && asks {
            acquirer.asked_at.get_or_insert(now);
        }
        grant
    }

    /// The acquirer has the lease now, and so many wait in other processes.
    pub(super) fn granted(&mut self, lease: &Arc<HeldLease>, waiters: u32, step: &mut Step) {
        let Some(mut acquirer) = self.acquirer.take() else { return };
        acquirer.demand.add(waiters);
        self.holders.reserve_exact(1);
        self.holders.push(SlotHolder {
            number: acquirer.number,
            hold: HoldState::Held(Arc::downgrade(lease)),
            blocker: Blocker::local(lease, step.now),
            demand: acquirer.demand,
            granted_at: step.now,
            passed: 0,
        });
        self.fairness.end(false, step.now);
        if acquirer.evicted {
            lease.doubt(step.now);
            self.check_by(step.now, step);
        } else {
            self.schedule_check(lease, step);
        }
        if self.overlaps {
            self.admit_next(step);
        } else {
            self.fail_try_lockers(step);
        }
    }

    /// The acquirer goes without the lease: the next thread has its turn, with the place in the queue if it
    /// can use that. Returns the attempt if nobody can.
    pub(super) fn stop_acquiring(
        &mut self,
        attempt: Option<Attempt>,
        step: &mut Step,
    ) -> Option<Attempt> {
        let Some(before) = self.acquirer.take() else { return attempt };
        self.fairness.forget_pause();
        match (attempt, self.queue.front()) {
            (Some(attempt), Some(next))
                if attempt.queued
                    && attempt.can_serve(&next.request.options, next.request.wait_limit) =>
            {
                step.admit(next, Admission::TakeOver(attempt));
                self.queue.pop_front();
                self.acquirer = Some(before.taken_over());
                None
            }
            (attempt, _) => {
                self.admit_next(step);
                attempt
            }
        }
    }

    /// The first thread that waits acquires, if nothing is in the way.
    fn admit_next(&mut self, step: &mut Step) {
        if self.may_acquire()
            && let Some(next) = self.queue.pop_front()
        {
            let admission = self.acquire(&next.request, step.now);
            step.admit(&next, admission);
        }
    }

    /// The outage has lasted for longer than anybody waits for its end.
    pub(super) fn give_up(&mut self, silence: Duration, step: &mut Step) {
        self.queue.drain(..).for_each(|waiter| step.admit(&waiter, Admission::NoReply(silence)));
    }

    /// A lease is no longer this process's: it was lost or given back.
    pub(super) fn remove(&mut self, lease: &Arc<HeldLease>, step: &mut Step) {
        let Some(index) = self.holders.iter().position(|holder| holder.has(lease)) else { return };
        step.dropped = Some(self.take_out(index, step).hold);
        self.last_held_at = step.now;
        self.admit_next(step);
    }

    fn take_out(&mut self, index: usize, step: &mut Step) -> SlotHolder {
        let holder = self.holders.remove(index);
        if self.holders.is_empty() {
            step.next_check = self.cancel_check();
        }
        holder
    }

    /// Forgets the leases that nobody has and nobody gives back: a guard was left to its thread, which was
    /// past that.
    fn forget_abandoned(&mut self, step: &mut Step) {
        while let Some(index) = self.holders.iter().position(SlotHolder::is_abandoned) {
            self.take_out(index, step);
        }
    }

    /// Calls off all waits. Returns how many there were.
    pub(super) fn cancel(&mut self, step: &mut Step) -> usize {
        let waiting = self.queue.len();
        self.queue.drain(..).for_each(|waiter| step.admit(&waiter, Admission::Cancelled));
        let Some(acquirer) = &mut self.acquirer else { return waiting };
        // A thread that makes one attempt does not wait, but a shutdown ends it all the same.
        acquirer.cancelled |= acquirer.waits || step.shut_down;
        step.wakes_acquirer = true;
        waiting + usize::from(acquirer.waits)
    }

    /// Whether the acquirer has no reason to end its pause.
    pub(super) fn is_quiet(&self) -> bool {
        self.acquirer.as_ref().is_none_or(Acquirer::is_quiet)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.acquirer.as_ref().is_some_and(|acquirer| acquirer.cancelled)
    }

    /// The acquirer is about to ask after a pause: what it was nudged for is done by that.
    pub(super) fn end_pause(&mut self) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.retry_now = false;
        }
    }

    /// Whether a thread waits that has no more time than until then, and would not be told of the lock.
    pub(super) fn is_out_of_time_by(&self, until: Moment) -> bool {
        let is_short = |wait_limit| matches!(wait_limit, WaitLimit::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.request.wait_limit))
    }

    /// Whether anybody here waits for the lock.
    pub(super) fn has_waiters(&self) -> bool {
        self.acquirer.is_some() || !self.queue.is_empty()
    }

    /// Whether a thread here takes the lock or gives it back at the moment. Once all that is held was taken
    /// away, what still looks held is about to be given back.
    pub(super) fn is_in_exchange(&self, shut_down: bool) -> bool {
        let releases = self.holders.iter().any(|holder| holder.releasing_since().is_some());
        let holds = self.holders.iter().any(|holder| !holder.is_abandoned());
        self.acquirer.is_some() || releases || (shut_down && holds)
    }

    /// The leases that threads here have.
    pub(super) fn leases(&self) -> Vec<Arc<HeldLease>> {
        self.holders.iter().filter_map(SlotHolder::lease).collect()
    }

    /// How many are known to wait, here and in other processes.
    pub(super) fn waiters(&self) -> usize {
        let remote = self.holders.iter().map(|holder| holder.demand.remote).max();
        self.queue.len() + remote.unwrap_or(0) as usize
    }
}

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
//! | `leave` | held | held by the next thread, lingering or releasing | the next thread holds; the worker looks |
//! | `remove` | held (lost), releasing (done) | no holder | the next thread acquires |
//! | `end_linger` | lingering | releasing | the caller gives the lease back |
//! | `hear_grant` | asking, held elsewhere | same, with a grant | the acquirer wakes |
//! | `nudge` | asking, held elsewhere | same, to ask at once | the acquirer wakes |
//! | `hear_wanted`, `hear_evicted` | any | same, noted for that attempt | the worker looks, where it is a holder's |
//! | `cancel` | any | the queue is empty | all who wait are told, the acquirer too |
//! | `time_out` | queued | not queued | |
//!
//! A thread that makes one attempt waits for no holder, but it does wait for the acquirer's first reply, for a
//! fresh one, or for a release under way: before that it could not tell a holder from an outage.

pub(super) mod leave;
mod look;
mod notice;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::lease::LiveLease;
use crate::engine::slot::acquirer::{Acquirer, Heard};
use crate::engine::slot::bid::Bid;
use crate::engine::slot::courtesy::Courtesy;
use crate::engine::slot::holder::{Hold, Holder};
use crate::engine::slot::patience::Patience;
use crate::engine::slot::step::Step;
use crate::engine::slot::waiter::{Request, Turn, Waiter};

/// A reply that takes no longer than this is not missed yet.
pub(crate) const USUAL_ANSWER: Duration = Duration::from_millis(200);
/// Word of a holder that is older than this does not answer a new question.
const FRESH: Duration = Duration::from_millis(50);

/// What a thread does that comes to the slot.
#[derive(Debug)]
pub(super) enum Entered {
    /// It has its turn, or goes without.
    Now(Turn),
    /// It waits to be told.
    Wait(Arc<Waiter>),
    /// It gives back this lease, which lingered, before it has its turn.
    After(Arc<LiveLease>, Turn),
}

/// One name in one process.
#[derive(Debug)]
pub(super) struct SlotState {
    /// Whether several holds of this process may exist at once.
    overlaps: bool,
    acquirer: Option<Acquirer>,
    holders: Vec<Holder>,
    queue: VecDeque<Arc<Waiter>>,
    /// When somebody was last known to have the lock: the acquirer was told so, or it was a thread here.
    told_at: Moment,
    pub(super) courtesy: Courtesy,
    /// By when the worker looks at the slot; [`Moment::FAR`] while nobody wants it to.
    look_at: Moment,
}

impl SlotState {
    pub(super) fn new(overlaps: bool) -> SlotState {
        SlotState {
            overlaps,
            acquirer: None,
            holders: Vec::new(),
            queue: VecDeque::new(),
            told_at: Moment::PAST,
            courtesy: Courtesy::default(),
            look_at: Moment::FAR,
        }
    }

    /// A thread wants the lock.
    pub(super) fn enter(&mut self, request: Request, step: &mut Step) -> Entered {
        let once = request.patience == Patience::Once;
        if step.shut_down {
            return Entered::Now(Turn::Cancelled);
        }
        self.forget_abandoned(step);
        if let Some(entered) = self.reuse_linger(&request, step) {
            return entered;
        }
        if self.may_acquire() {
            return Entered::Now(self.acquire(&request, step.now));
        }
        match &mut self.acquirer {
            None if once && self.holders.iter().any(Holder::is_held) => {
                return Entered::Now(Turn::Busy(self.blocker()));
            }
            Some(acquirer) if once && acquirer.held_elsewhere => {
                if step.now.since(self.told_at) <= FRESH {
                    let blocker = acquirer.blocker.clone();
                    return Entered::Now(Turn::Busy(blocker));
                }
                // What was true then is no reply now: the acquirer asks for both.
                acquirer.nudged = true;
                step.wakes_acquirer = true;
            }
            _ => {}
        }
        // The acquirer may have to end its pause.
        step.wakes_acquirer |= self.courtesy.is_left_at(step.now);
        let waiter = Arc::new(Waiter::new(request));
        self.queue.push_back(Arc::clone(&waiter));
        Entered::Wait(waiter)
    }

    /// A thread that comes while a lease lingers takes that, or has it given back where it is in the way.
    fn reuse_linger(&mut self, request: &Request, step: &mut Step) -> Option<Entered> {
        let index = self.holders.iter().position(Holder::lingers)?;
        let Hold::Lingering { lease, .. } = &self.holders[index].hold else { return None };
        let Some(next) = lease.successor(&request.options, step.now) else {
            if self.overlaps {
                return None;
            }
            let Hold::Lingering { lease, .. } = self.take_out(index, step).hold else {
                return None;
            };
            return Some(Entered::After(lease, self.acquire(request, step.now)));
        };
        let held = Hold::Held(Arc::downgrade(&next));
        step.spent = Some(std::mem::replace(&mut self.holders[index].hold, held));
        self.holders[index].blocker = Blocker::local(&next, step.now);
        self.watch(&next, step);
        Some(Entered::Now(Turn::Held(next)))
    }

    fn may_acquire(&self) -> bool {
        self.acquirer.is_none() && (self.overlaps || self.holders.is_empty())
    }

    fn acquire(&mut self, request: &Request, now: Moment) -> Turn {
        let left_until = self.courtesy.is_left_at(now).then_some(self.courtesy.until);
        let asked_at = left_until.is_none().then_some(now);
        self.acquirer = Some(Acquirer::new(request, asked_at));
        Turn::Acquire { number: request.number, left_until }
    }

    /// The time of a thread that waits since then is over.
    pub(super) fn time_out(&mut self, waiter: &Arc<Waiter>, since: Moment, now: Moment) -> Turn {
        self.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        match self.silence(since, now) {
            Some(silence) => Turn::Unanswered(silence),
            None => Turn::Busy(self.blocker()),
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
            || self.told_at >= lately;
        let releasing = || self.holders.iter().filter_map(Holder::releasing_since).min();
        let asked_at = match &self.acquirer {
            Some(acquirer) => acquirer.asked_at,
            None => releasing(),
        };
        let silence = now.since(if is_told { asked_at? } else { since });
        (silence > USUAL_ANSWER).then_some(silence)
    }

    /// The acquirer begins another attempt: what was heard of the earlier one no longer counts.
    pub(super) fn begin(&mut self, number: u64) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.begin(number);
        }
    }

    /// The acquirer was told that another process has the lock.
    pub(super) fn held_elsewhere(&mut self, blocker: Option<Blocker>, step: &mut Step) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.held_elsewhere = true;
            acquirer.blocker = blocker;
            acquirer.asked_at = None;
        }
        self.told_at = step.now;
        self.courtesy.end(true, step.now);
        self.fail_try_lockers(step);
    }

    fn fail_try_lockers(&mut self, step: &mut Step) {
        if self.queue.is_empty() {
            return;
        }
        let blocker = self.blocker();
        self.queue.retain(|waiter| {
            let once = waiter.request.patience == Patience::Once;
            if once {
                step.tell(waiter, Turn::Busy(blocker.clone()));
            }
            !once
        });
    }

    /// The grant that was heard for the acquirer's attempt. If there is none and `asks`, it asks Redis.
    pub(super) fn take_grant(&mut self, asks: bool, now: Moment) -> Option<Heard> {
        let acquirer = self.acquirer.as_mut()?;
        let grant = acquirer.grant.take();
        if grant.is_none() && asks {
            acquirer.asked_at.get_or_insert(now);
        }
        grant
    }

    /// The acquirer has the lease now, and so many wait in other processes.
    pub(super) fn granted(&mut self, lease: &Arc<LiveLease>, waiters: u32, step: &mut Step) {
        let Some(mut acquirer) = self.acquirer.take() else { return };
        acquirer.demand.add(waiters);
        self.holders.reserve_exact(1);
        self.holders.push(Holder {
            number: acquirer.number,
            hold: Hold::Held(Arc::downgrade(lease)),
            blocker: Blocker::local(lease, step.now),
            demand: acquirer.demand,
            granted_at: step.now,
            passed: 0,
        });
        self.courtesy.end(false, step.now);
        if acquirer.evicted {
            lease.doubt(step.now);
            self.look_by(step.now, step);
        } else {
            self.watch(lease, step);
        }
        if self.overlaps {
            self.admit_next(step);
        } else {
            self.fail_try_lockers(step);
        }
    }

    /// The acquirer goes without the lease: the next thread has its turn, with the place in the queue if it
    /// can use that. Returns the attempt if nobody can.
    pub(super) fn stop_acquiring(&mut self, bid: Option<Bid>, step: &mut Step) -> Option<Bid> {
        let Some(before) = self.acquirer.take() else { return bid };
        self.courtesy.forget_pause();
        match (bid, self.queue.front()) {
            (Some(bid), Some(next))
                if bid.queued && bid.suits(&next.request.options, next.request.patience) =>
            {
                step.tell(next, Turn::TakeOver(bid));
                self.queue.pop_front();
                self.acquirer = Some(before.succeeded());
                None
            }
            (bid, _) => {
                self.admit_next(step);
                bid
            }
        }
    }

    /// The first thread that waits acquires, if nothing is in the way.
    fn admit_next(&mut self, step: &mut Step) {
        if self.may_acquire()
            && let Some(next) = self.queue.pop_front()
        {
            let turn = self.acquire(&next.request, step.now);
            step.tell(&next, turn);
        }
    }

    /// The outage has lasted for longer than anybody waits for its end.
    pub(super) fn give_up(&mut self, silence: Duration, step: &mut Step) {
        self.queue.drain(..).for_each(|waiter| step.tell(&waiter, Turn::Unanswered(silence)));
    }

    /// A lease is no longer this process's: it was lost or given back.
    pub(super) fn remove(&mut self, lease: &Arc<LiveLease>, step: &mut Step) {
        let Some(index) = self.holders.iter().position(|holder| holder.has(lease)) else { return };
        step.spent = Some(self.take_out(index, step).hold);
        self.told_at = step.now;
        self.admit_next(step);
    }

    fn take_out(&mut self, index: usize, step: &mut Step) -> Holder {
        let holder = self.holders.remove(index);
        if self.holders.is_empty() {
            step.look = self.unwatch();
        }
        holder
    }

    /// Forgets the leases that nobody has and nobody gives back: a guard was left to its thread, which was
    /// past that.
    fn forget_abandoned(&mut self, step: &mut Step) {
        while let Some(index) = self.holders.iter().position(Holder::is_abandoned) {
            self.take_out(index, step);
        }
    }

    /// Calls off all waits. Returns how many there were.
    pub(super) fn cancel(&mut self, step: &mut Step) -> usize {
        let waiting = self.queue.len();
        self.queue.drain(..).for_each(|waiter| step.tell(&waiter, Turn::Cancelled));
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
            acquirer.nudged = false;
        }
    }

    /// Whether a thread waits that has no more time than until then, and would not be told of the lock.
    pub(super) fn is_short_of_time(&self, until: Moment) -> bool {
        let is_short = |patience| matches!(patience, Patience::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.request.patience))
    }

    /// Whether anybody here waits for the lock.
    pub(super) fn is_waited_for(&self) -> bool {
        self.acquirer.is_some() || !self.queue.is_empty()
    }

    /// Whether a thread here takes the lock or gives it back at the moment. Once all that is held was taken
    /// away, what still looks held is about to be given back.
    pub(super) fn is_talking(&self, shut_down: bool) -> bool {
        let releases = self.holders.iter().any(|holder| holder.releasing_since().is_some());
        let holds = self.holders.iter().any(|holder| !holder.is_abandoned());
        self.acquirer.is_some() || releases || (shut_down && holds)
    }

    /// The leases that threads here have.
    pub(super) fn leases(&self) -> Vec<Arc<LiveLease>> {
        self.holders.iter().filter_map(Holder::lease).collect()
    }

    /// How many are known to wait, here and in other processes.
    pub(super) fn waiters(&self) -> usize {
        let remote = self.holders.iter().map(|holder| holder.demand.remote).max();
        self.queue.len() + remote.unwrap_or(0) as usize
    }
}

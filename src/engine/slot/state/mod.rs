//! The state machine of a slot: events in, effects out. It does no I/O, waits for nothing and starts
//! nothing. `Slot` is the lock around it, and carries out its effects.
//!
//! A slot has **zero or more entries and at most one acquirer**. An entry is what this process has of an owner's value
//! that has the lock. The kind says whether entries may overlap; an exclusive lock is the case of one entry, during which
//! nobody acquires.
//!
//! | part | phase | has | meaning |
//! | --- | --- | --- | --- |
//! | acquirer | none | | no thread asks Redis |
//! | | arriving | | one thread is about to ask Redis: it yields to others first, or takes the attempt of another thread over |
//! | | asking | since when | it waits for the first reply |
//! | | resting | | Redis has replied that the lock is held, and it waits |
//! | | asking again | since when | it has asked once more |
//! | | given | a hold | another thread has passed its lease on to it |
//! | | taken | | it has taken that lease, and is about to leave |
//! | | ending | | it is about to ask, or gives up |
//! | entry | held | one hold; several that share it to read | threads have the lock |
//! | | lingering | its lease, and the slot | no thread holds it, and the process keeps it for a while |
//! | | releasing | since when | it is being released |
//! | queue | | | threads that wait, first come first served |
//!
//! The acquirer *waits* while it is resting, asking again or ending.
//!
//! | event | from | to | effects |
//! | --- | --- | --- | --- |
//! | `enter` | nobody acquires, and no entry is in the way | asking, or arriving if it yields | the thread acquires |
//! | | lingering, with suitable options | held | the thread holds |
//! | | lingering, with others | asking | the thread releases the old entry and acquires |
//! | | any other | queued; or busy if it makes one attempt only, or crowded if as many wait as its options allow | |
//! | `try_enter` | as for `enter` | as for `enter`, but never queued | |
//! | `take_received`, `take_passed` | arriving | asking | |
//! | | resting | asking again, or ending with a grant | |
//! | | given | taken, with the hold | |
//! | `held_elsewhere` | asking, asking again | resting | threads with one attempt get *busy*; if leases lingered, they are releasing instead, and the caller releases them and asks again |
//! | `granted` | any acquirer | held | these too; the worker watches the lease |
//! | `take_along` | asking | the same, with companions: threads of the queue whose requests travel along | |
//! | `granted_along` | asking, with that companion | its thread holds, beside others | the thread holds; the worker watches the lease |
//! | `end_along` | asking | the same, without companions | |
//! | `stop_acquiring` | any acquirer | no acquirer; or the next thread, resting or arriving | the next takes the place in the queue along |
//! | `unlock` | held | held by the next thread, lingering or releasing | the next thread holds; an acquirer that rests is given |
//! | `end_over` | held | held by those whose time is not over | losses; the caller removes an entry without a hold |
//! | `remove` | held (lost), releasing (done) | no entry | the next thread acquires; the worker forgets the lease |
//! | `end_lingers` | lingering | releasing | the caller releases the lease |
//! | `on_grant` | any acquirer | same, with a grant | the acquirer wakes |
//! | `request_retry` | any acquirer | same, to ask at once | the acquirer wakes |
//! | `on_wanted`, `want_held`, `on_evicted` | any | same, noted for that attempt, and `on_wanted` for all where holds overlap | after an eviction the worker asks about the lease |
//! | `on_clock_fault` | any | same, noted for all leases | the worker asks about those that are held, and the acquirer asks again |
//! | `take_news` | any | same, with what replies have counted | before each other event |
//! | `cancel` | any | the queue is empty | all waiters are cancelled, and the acquirer |
//! | `enter`, to read | the door is open | held, beside others of the same entry | |
//! | | the door is stale, and nobody acquires | held and asking | the thread asks whether somebody waits |
//! | `asked` | held and asking | held | the readers at the head of the queue come in; the next thread acquires |
//! | `leave_entry` | held, beside others of the same entry | held by the others | |
//! | `begin_upgrade` | held, by an upgradable reader | the same, with an upgrader | lingering entries end |
//! | `announce` | in use for a second | the same | the worker announces the slot |
//! | any, while the client is closing | | | `enter` and `granted` are refused, nothing is passed on or lingers, and the thread that closes the client wakes |
//! | `time_out` | queued | not queued | |
//!
//! Where entries may overlap, there may be an acquirer beside entries, and it is the first thread that waits: a lease
//! is passed on to it. Its place in the queue of Redis then goes to the next thread, which rests until a heartbeat is
//! due. While it waits for its first reply, the first thread of the queue gets the lease.
//!
//! A thread that makes one attempt does not wait for a holder. It does wait for the acquirer's first
//! reply, for a fresh reply, or for a release under way: before that it could not tell a holder from an
//! outage.

mod companion;
mod message;
mod share;
#[cfg(test)]
mod tests;
pub(super) mod unlock;
mod watch;

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::slot::acquirer::{
    Acquirer, AcquirerPhase, Companion, Heard, Received, Standing, Upgrader,
};
use crate::engine::slot::attempt::Attempt;
use crate::engine::slot::door::Door;
use crate::engine::slot::entry::{Demand, Entry};
use crate::engine::slot::fairness::Fairness;
use crate::engine::slot::step::Step;
use crate::engine::slot::wait_limit::{HELD_FOR, REPLY_GRACE, WaitLimit};
use crate::engine::slot::waiter::{Admission, EnterRequest, Waiter};

/// A reply may take this long before its absence counts as silence.
pub(crate) const USUAL_REPLY_TIME: Duration = Duration::from_millis(200);
/// How old a reply that found a holder may be to count for a new single attempt.
const MAX_HOLDER_AGE: Duration = Duration::from_millis(50);

/// The outcome of `enter`.
#[derive(Debug)]
pub(super) enum EnterOutcome {
    /// The thread is admitted, or gives up.
    Now(Admission),
    /// The thread waits for its admission.
    Wait(Arc<Waiter>),
    /// The thread releases these leases, which lingered, and then goes on.
    After(Vec<Arc<Lease>>, Admission),
}

/// One name in one process.
#[derive(Debug)]
pub(super) struct SlotState {
    /// Whether several holds of this process may exist at once.
    overlaps: bool,
    acquirer: Option<Acquirer>,
    /// The owner's values of this process that have the lock.
    entries: Vec<Entry>,
    /// The thread here that waits to become the writer. Apart, as few slots ever have one.
    pub(super) upgrader: Option<Box<Upgrader>>,
    queue: VecDeque<Arc<Waiter>>,
    /// Those of them whose requests travel with that of the acquirer.
    companions: Vec<Companion>,
    /// The entry of a reader that threads here share.
    door: Door,
    /// When the lock was last known to be held: by a reply to the acquirer, or by a thread here.
    last_held_at: Moment,
    /// When a thread here last gave a lock up that only one may have.
    given_up_at: Moment,
    /// When Redis last replied to a thread here, and when it last did not.
    replied_at: Moment,
    silent_at: Moment,
    pub(super) fairness: Fairness,
    /// When the worker announces the slot; [`Moment::FAR`] while it is not in use.
    announce_at: Moment,
    /// When the worker comes to the slot itself; [`Moment::FAR`] if it does not.
    slot_due: Moment,
}

impl SlotState {
    pub(super) fn new(overlaps: bool) -> SlotState {
        SlotState {
            overlaps,
            acquirer: None,
            entries: Vec::new(),
            upgrader: None,
            queue: VecDeque::new(),
            companions: Vec::new(),
            door: Door::SHUT,
            last_held_at: Moment::PAST,
            given_up_at: Moment::PAST,
            replied_at: Moment::PAST,
            silent_at: Moment::PAST,
            fairness: Fairness::default(),
            announce_at: Moment::FAR,
            slot_due: Moment::FAR,
        }
    }

    /// A thread asks for the lock.
    pub(super) fn enter(&mut self, request: EnterRequest, step: &mut Step) -> EnterOutcome {
        if let Some(entered) = self.try_enter(&request, true, step) {
            return entered;
        }
        // An acquirer that yields to listeners looks at the queue again: if this thread has less time
        // than the pause, the pause ends, or the thread would time out without anybody having asked
        // Redis.
        step.wakes_acquirer |= self.fairness.yields_at(step.now);

        self.shut_door_for(&request);
        let waiter = Arc::new(Waiter::new(request));
        self.queue.push_back(Arc::clone(&waiter));
        EnterOutcome::Wait(waiter)
    }

    /// The same for a thread that does not wait. Returns nothing if it would have to. `asks` says whether it may ask
    /// Redis, or have the acquirer ask, before it is admitted.
    pub(super) fn try_enter(
        &mut self,
        request: &EnterRequest,
        asks: bool,
        step: &mut Step,
    ) -> Option<EnterOutcome> {
        let once = request.wait_limit == WaitLimit::TryOnce;
        if step.closing {
            return Some(EnterOutcome::Now(Admission::Cancelled));
        }
        // First: an abandoned holder would be in the way for ever, since no thread is left to remove it.
        self.forget_abandoned(step);
        if let Some(entered) = self.enter_by_door(request, asks, step) {
            return Some(entered);
        }
        // Before `may_acquire`, for which a lingering lease is a holder in the way.
        if let Some(entered) = self.reuse_linger(request, step) {
            return Some(entered);
        }
        // Also for a thread that would be the acquirer: an upgrade may wait beside it.
        if self.is_crowded_for(request) {
            // A holder of before an outage is none that this call may name.
            let is_known = self.is_known_to_be_held(step.now, step.now);
            let blocker = self.blocker().filter(|_| is_known);
            return Some(EnterOutcome::Now(Admission::Crowded(blocker)));
        }
        if self.may_acquire() {
            self.fairness.come(step.now);
            return Some(EnterOutcome::Now(self.acquire(request, step.now)));
        }

        match &mut self.acquirer {
            None if once && self.entries.iter().any(Entry::is_held) => {
                return Some(EnterOutcome::Now(Admission::Busy(self.blocker())));
            }
            Some(acquirer) if once && acquirer.has_reply() && acquirer.answers_for(request) => {
                if step.now.since(self.last_held_at) <= MAX_HOLDER_AGE {
                    let blocker = acquirer.blocker.clone();
                    return Some(EnterOutcome::Now(Admission::Busy(blocker)));
                }
                // The holder may have released the lock since. A single attempt promises a fresh look, so
                // the acquirer asks at once, and the reply serves both threads. Not for one that does not wait
                // for that reply: a claim of many locks would make as many of them ask.
                if asks {
                    acquirer.retry_now = true;
                    step.wakes_acquirer = true;
                }
            }
            _ => {}
        }
        None
    }

    /// A thread that enters while a lease lingers takes it. If it cannot, and the lease is in its way, it
    /// will release the lease.
    fn reuse_linger(&mut self, request: &EnterRequest, step: &mut Step) -> Option<EnterOutcome> {
        // Where holds may overlap, several leases may linger. A thread that waits for more than one of them has
        // is not overtaken. An entry of readers has its door.
        let is_behind = self.acquirer.as_ref().is_some_and(|acquirer| acquirer.waits)
            || request.options.access() == Some(Access::Read);
        let retaken = self.entries.iter().enumerate().find_map(|(index, entry)| {
            // What Redis has not confirmed for a heartbeat may have been deleted, and be another's by now.
            let lease = entry.lingering().filter(|it| !is_behind && it.is_fresh(step.now))?;
            Some((index, Hold::next(lease, &request.options, step.now)?))
        });
        let Some((index, hold)) = retaken else { return self.end_lingers_before(request, step) };

        // The hold has the lease by now, and the caller has the slot, so neither is dropped here.
        self.entries[index].retake(&hold, step.now);
        step.watch(&hold.lease);
        Some(EnterOutcome::Now(Admission::Held(hold)))
    }

    /// The leases that linger and are in the way of a thread go first.
    fn end_lingers_before(
        &mut self,
        request: &EnterRequest,
        step: &mut Step,
    ) -> Option<EnterOutcome> {
        let share = request.options.share;
        let is_in_way = |lease: &&Arc<Lease>| !lease.value.options.share.fits_beside(share);
        if self.acquirer.is_some() {
            // Another thread asks Redis at this moment. The worker ends them, before this one's turn.
            for lease in self.entries.iter().filter_map(Entry::lingering).filter(is_in_way) {
                lease.linger(step.now);
                step.watch(lease);
            }
            return None;
        }
        let mut leases = Vec::new();
        let lingering = |entry: &Entry| entry.lingering().filter(is_in_way).map(Arc::clone);
        while let Some((index, lease)) =
            self.entries.iter().enumerate().find_map(|(index, it)| Some((index, lingering(it)?)))
        {
            self.take_out(index, step);
            leases.push(lease);
        }
        // This thread becomes the acquirer before the old leases are released. Between the two the slot
        // has no holder, and another thread would otherwise ask Redis ahead of the release.
        (!leases.is_empty()).then(|| EnterOutcome::After(leases, self.acquire(request, step.now)))
    }

    fn may_acquire(&self) -> bool {
        self.acquirer.is_none() && (self.overlaps || self.entries.is_empty())
    }

    /// Whether as many threads wait here as the options of this one allow.
    fn is_crowded_for(&self, request: &EnterRequest) -> bool {
        let Some(most) = request.options.max_waiters else { return false };
        // A single attempt waits for no holder, but for a reply at most.
        if request.wait_limit == WaitLimit::TryOnce {
            return false;
        }
        let acquirer = self.acquirer.as_ref().is_some_and(Acquirer::is_waiting);
        let ahead = usize::from(acquirer) + usize::from(self.upgrader.is_some());
        let waits = |waiter: &&Arc<Waiter>| waiter.request.wait_limit != WaitLimit::TryOnce;
        // No further than the bound: thousands may wait by handles without one.
        let most = most as usize;
        ahead + self.queue.iter().filter(waits).take(most).count() >= most
    }

    /// A thread that waits here, and not to read, shuts the door: those that come later wait behind it.
    fn shut_door_for(&mut self, request: &EnterRequest) {
        let reads = request.options.access() == Some(Access::Read);
        if request.wait_limit != WaitLimit::TryOnce && !reads {
            self.door.shut();
        }
    }

    fn acquire(&mut self, request: &EnterRequest, now: Moment) -> Admission {
        self.shut_door_for(request);
        let yield_until = self.fairness.yields_at(now).then_some(self.fairness.until);
        let phase = match yield_until {
            None => AcquirerPhase::Asking { since: now },
            // It asks nobody yet: its pause must not count as silence of Redis.
            Some(_) => AcquirerPhase::Arriving,
        };
        self.acquirer = Some(Acquirer::new(request, phase));
        Admission::Acquire { number: request.number, yield_until }
    }

    /// The time of a thread that has waited since `since` is over.
    pub(super) fn time_out(
        &mut self,
        waiter: &Arc<Waiter>,
        since: Moment,
        now: Moment,
    ) -> Admission {
        self.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        match self.silence(since, now) {
            Some(_) if self.has_replied(since, now) => Admission::NoTurn,
            // It was held up before its wait, or it would have waited for the time of a reply at least: see `wait_end`.
            Some(silence) if silence < REPLY_GRACE => Admission::NoTurn,
            Some(silence) => Admission::NoReply(silence),
            None => Admission::Busy(self.blocker()),
        }
    }

    /// The holder in the way of the threads that wait here, as far as is known.
    pub(super) fn blocker(&self) -> Option<Blocker> {
        let here = self.entries.last().map(|entry| &entry.blocker);
        let elsewhere = self.acquirer.as_ref().and_then(|acquirer| acquirer.blocker.as_ref());
        // Where holds may overlap, a hold of this process need not be the one that is in the way.
        if self.overlaps { elsewhere.or(here) } else { here.or(elsewhere) }.cloned()
    }

    /// Where a thread stands among those that wait here, the acquirer included.
    pub(super) fn place(&self, waiter: &Arc<Waiter>) -> Option<usize> {
        let before = self.queue.iter().position(|other| Arc::ptr_eq(other, waiter))?;
        Some(before + usize::from(self.acquirer.is_some()) + 1)
    }

    /// How long Redis has been silent for a thread that has waited since `since`; `None` if a holder is known, and Redis
    /// has not been silent for longer than usual.
    fn silence(&self, since: Moment, now: Moment) -> Option<Duration> {
        let releasing = || self.entries.iter().filter_map(Entry::releasing_since).min();
        let asked_at = match &self.acquirer {
            Some(acquirer) => acquirer.asked_at(),
            None => releasing(),
        };
        if !self.is_known_to_be_held(since, now) {
            // However short the wait was: `None` would say that somebody has the lock, which nobody has said.
            return Some(now.since(asked_at.map_or(since, |asked_at| asked_at.min(since))));
        }
        Some(now.since(asked_at?)).filter(|&silence| silence > USUAL_REPLY_TIME)
    }

    /// Whether Redis has replied to other threads while a thread has waited since `since`, the last time a moment ago.
    fn has_replied(&self, since: Moment, now: Moment) -> bool {
        self.replied_at >= since && now.since(self.replied_at) <= USUAL_REPLY_TIME
    }

    /// Until when a thread waits for its turn. A single attempt gets an exchange, and another for each reply to those
    /// before it. However short any other wait is, the reply to a request that is under way gets the time that a reply
    /// usually takes.
    pub(super) fn wait_end(
        &self,
        waiter: &Waiter,
        (since, deadline): (Moment, Moment),
        exchange: Duration,
        now: Moment,
    ) -> Moment {
        match waiter.request.wait_limit {
            WaitLimit::TryOnce => deadline.max(self.replied_at.after(exchange)),
            WaitLimit::Until(_) if self.is_known_to_be_held(since, now) => deadline,
            WaitLimit::Until(_) => deadline.after(REPLY_GRACE),
        }
    }

    /// Whether somebody has said lately that the lock is held: a reply, or a thread here that has it, or has had it while
    /// another waited since `since`.
    fn is_known_to_be_held(&self, since: Moment, now: Moment) -> bool {
        let had = Some(self.given_up_at).filter(|&at| at >= since).unwrap_or(Moment::PAST);
        self.acquirer.is_none() || self.last_held_at.max(had) >= now.before(HELD_FOR)
    }

    /// The acquirer begins another attempt: messages for the earlier one no longer count.
    pub(super) fn restart(&mut self, number: u64) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.restart(number);
        }
    }

    /// Redis has replied to the acquirer that the lock is held. `queued` is its place, if it stands in the
    /// queue now. Returns the leases that lingered: the caller releases them, and the acquirer asks again.
    pub(super) fn held_elsewhere(
        &mut self,
        blocker: Option<Blocker>,
        queued: Option<Standing<'_>>,
        step: &mut Step,
    ) -> Vec<Arc<Lease>> {
        // What no thread has must not keep this process out. None lingers anew while a thread acquires.
        let ended = self.end_lingers(|_, _| true, step);
        if let Some(acquirer) = &mut self.acquirer {
            if self.overlaps && acquirer.queued.is_none() {
                acquirer.queued = queued.map(|standing| Box::new(*standing.options));
            }
            acquirer.rest(blocker);
            if acquirer.waits {
                self.note_wait(step);
            }
        }
        self.note_those_ahead(queued, step.now);
        if !ended.is_empty() {
            // The reply to the next request is the one for the single attempts behind it.
            return ended;
        }
        self.last_held_at = step.now;
        self.replied_at = step.now;
        // Another client has the lock: the pause for listeners was worth it, and none is due any more.
        self.fairness.end(true, step.now);
        self.fail_try_lockers(step);
        ended
    }

    /// Those that stand before the acquirer are of other processes. Their message may have come while its own request
    /// was under way: then this process took itself off a count in which it was not, and missed one.
    fn note_those_ahead(&mut self, queued: Option<Standing<'_>>, now: Moment) {
        // But for an upgrade of this process, which stands before everybody.
        let own = u32::from(self.upgrader.is_some());
        let others = queued.map_or(0, |standing| standing.ahead).saturating_sub(own);
        if others > 0 {
            self.door.shut();
            self.entries.iter_mut().for_each(|entry| entry.demand.add(others, now));
        }
    }

    fn fail_try_lockers(&mut self, step: &mut Step) {
        if self.queue.is_empty() {
            return;
        }
        let blocker = self.blocker();
        let acquirer = self.acquirer.as_ref();
        self.queue.retain(|waiter| {
            // A waiter whose time is over has only waited for this.
            let ends = waiter.request.wait_limit.is_over(step.now)
                && acquirer.is_none_or(|acquirer| acquirer.answers_for(&waiter.request));
            if ends {
                step.admit(waiter, Admission::Busy(blocker.clone()));
            }
            !ends
        });
    }

    /// Takes what was received for the acquirer. If there is nothing and `asks` is true, notes that the
    /// acquirer asks Redis now.
    pub(super) fn take_received(&mut self, asks: bool, now: Moment) -> Option<Received> {
        let acquirer = self.acquirer.as_mut()?;
        let hold = acquirer.end_rest().map(Received::Hold);
        let received = hold.or_else(|| acquirer.heard.grant.take().map(Received::Grant));
        if received.is_none() && asks {
            acquirer.ask(now);
        }
        received
    }

    /// Takes the hold that was passed on to the acquirer, if one was.
    pub(super) fn take_passed(&mut self) -> Option<Arc<Hold>> {
        self.acquirer.as_mut()?.end_rest()
    }

    /// The acquirer has the lease now, unless the client is closing. `waiters` is how many wait in other
    /// processes. Returns whether it has.
    pub(super) fn granted(&mut self, hold: &Arc<Hold>, waiters: u32, step: &mut Step) -> bool {
        // Decided here, under the lock of the slot: `close` finds either a holder, who is told of the lease,
        // or an acquirer, who gives it back. So no hold is counted or lost that nobody has. In the same way `cancel`
        // counts no thread that has the lock afterwards.
        if step.closing || self.is_cancelled() {
            return false;
        }
        let Some(acquirer) = self.acquirer.take() else { return false };
        let (number, demand) = self.add_entry(acquirer.heard, hold, waiters, step);
        self.replied_at = step.now;
        self.fairness.end(false, step.now);

        let lease = &hold.lease;
        if lease.access() == Some(Access::Read) {
            // Also by an upgrade of this process, which may not be heard of elsewhere yet.
            match demand.wanted || self.upgrader.is_some() {
                true => self.door.shut(),
                false => self.door.open(number, lease.grant.sent),
            }
            // Those that have stood behind it come in with it, also before others: one round of readers.
            self.admit_readers(number, step);
        }
        // Where holds may overlap the next thread acquires now, and need not wait for this holder.
        if self.overlaps {
            self.admit_next(step);
        } else {
            self.fail_try_lockers(step);
        }
        true
    }

    /// Adds the entry of an attempt that was granted. Returns its number, and the waiters that are known.
    fn add_entry(
        &mut self,
        heard: Heard,
        hold: &Arc<Hold>,
        waiters: u32,
        step: &mut Step,
    ) -> (u64, Demand) {
        // What messages said about this attempt before the reply came stays valid (rule 18).
        let Heard { number, mut demand, is_doubted, .. } = heard;
        demand.add(waiters, step.now);
        // Almost always the only element. A vector would reserve four, in each of what may be 100,000
        // slots.
        if self.entries.is_empty() {
            self.entries.reserve_exact(1);
        }
        self.entries.push(Entry::new(number, hold, demand, step.now));
        let lease = &hold.lease;
        if is_doubted {
            // An eviction is later than the grant, though its message came first. Only Redis can say
            // whether it is true, so the lease is in doubt from the start, and the worker asks now.
            lease.doubt(step.now);
        }
        self.note_hold(lease, step);
        (number, demand)
    }

    /// The acquirer gives up, and the next thread acquires. That thread takes over the attempt, with its
    /// place in the queue of Redis, if it can use it; otherwise the attempt is returned.
    pub(super) fn stop_acquiring(
        &mut self,
        attempt: Option<Attempt>,
        step: &mut Step,
    ) -> Option<Attempt> {
        let Some(before) = self.acquirer.take() else { return attempt };
        self.fairness.forget_pause();
        let is_idle = self.entries.is_empty();

        match (attempt, self.queue.front()) {
            // Only the first thread is asked. Another one further back that could use the attempt would
            // overtake it.
            (Some(attempt), Some(next))
                if attempt.queued
                    && attempt.can_serve(&next.request.options, next.request.wait_limit) =>
            {
                // Only where a lease was passed on to the thread before: any other gave up in the middle of a
                // heartbeat, or asked a moment ago.
                let age = step.now.since(self.last_held_at);
                let is_fresh =
                    before.queued.is_some() && before.asked_at().is_none() && age < HEARTBEAT;
                let pause = if is_fresh { HEARTBEAT - age } else { Duration::ZERO };
                step.admit(next, Admission::TakeOver(attempt, pause));
                self.queue.pop_front();
                self.acquirer = Some(before.taken_over(is_fresh));
                None
            }
            (attempt, _) => {
                if is_idle {
                    self.end_use(step);
                }
                // The next thread acquires before the caller removes this attempt. Its attempt has a
                // value of its own, so the two do not mix, and it need not wait for that exchange.
                self.admit_next(step);
                attempt
            }
        }
    }

    /// A thread that holds the lock waits to become the writer, unless the client is closing. Returns whether it
    /// does.
    pub(super) fn begin_upgrade(&mut self, number: u64, step: &Step) -> bool {
        if !step.closing {
            self.upgrader = Some(Box::new(Upgrader { number, retry_now: false, cancelled: false }));
            self.door.shut();
        }
        !step.closing
    }

    /// The upgrade of this number waits no more. Returns whether it was cancelled.
    pub(super) fn end_upgrade(&mut self, number: u64) -> bool {
        let upgrader = self.upgrader.take_if(|upgrader| upgrader.number == number);
        upgrader.is_some_and(|upgrader| upgrader.cancelled)
    }

    /// The first thread in the queue acquires, if nothing is in its way.
    fn admit_next(&mut self, step: &mut Step) {
        if self.may_acquire()
            && let Some(next) = self.queue.pop_front()
        {
            let admission = self.acquire(&next.request, step.now);
            step.admit(&next, admission);
        }
    }

    /// The outage has lasted longer than the client rides one out: all waits end.
    pub(super) fn give_up(&mut self, silence: Duration, step: &mut Step) {
        // All of them, and not only the acquirer: the next acquirer would ride the same outage out from
        // its start, and the last thread of the queue would wait as many times that long.
        self.queue.drain(..).for_each(|waiter| step.admit(&waiter, Admission::NoReply(silence)));
    }

    /// Removes the entry of a lease that was lost or released.
    pub(super) fn remove(&mut self, lease: &Arc<Lease>, step: &mut Step) {
        // By the lease itself. A loss may be reported after the slot has another entry, which must stay.
        let Some(index) = self.entries.iter().position(|entry| entry.has(lease)) else { return };
        self.take_out(index, step);
        step.forget(lease);
        // A thread here had the lock until now. To the threads in the queue that is as good as a reply of
        // Redis, unless there may have been enough for them besides.
        if !self.overlaps {
            self.given_up_at = step.now;
        }
        self.admit_next(step);
    }

    fn take_out(&mut self, index: usize, step: &mut Step) -> Entry {
        let entry = self.entries.remove(index);
        if let Some(lease) = entry.lingering() {
            step.forget(lease);
        }
        if self.entries.is_empty() {
            self.end_use(step);
        }
        entry
    }

    /// Removes the entries that no thread has any more and that nobody will release.
    fn forget_abandoned(&mut self, step: &mut Step) {
        while let Some(index) = self.entries.iter().position(Entry::is_abandoned) {
            // Dropped here, under the lock: all that is left of it is weak references.
            self.take_out(index, step);
        }
    }

    /// Takes up what replies have counted, before the next event.
    pub(super) fn take_news(&mut self) {
        for index in 0..self.entries.len() {
            let lease = self.entries[index].lease.upgrade();
            if let Some(count) = lease.and_then(|lease| lease.news.take()) {
                self.on_counted(index, count);
            }
        }
    }

    /// Cancels all waits. Returns how many there were, without those that were cancelled before.
    pub(super) fn cancel(&mut self, step: &mut Step) -> usize {
        let waiting = self.queue.len();
        self.queue.drain(..).for_each(|waiter| step.admit(&waiter, Admission::Cancelled));
        let upgrades =
            self.upgrader.as_mut().is_some_and(|it| !std::mem::replace(&mut it.cancelled, true));
        step.wakes_acquirer |= upgrades;
        waiting + usize::from(upgrades) + usize::from(self.cancel_acquirer(step))
    }

    /// Returns whether that cancels a wait.
    pub(super) fn cancel_acquirer(&mut self, step: &mut Step) -> bool {
        // A lease that was passed on to the acquirer is a hold, whether its thread has taken it yet or not.
        let acquirer = self.acquirer.as_mut().filter(|acquirer| !acquirer.is_served());
        let Some(acquirer) = acquirer else { return false };
        let waits = acquirer.waits && !acquirer.cancelled;
        // The acquirer is not removed: it may be in an exchange, which may bring a lease. It is only
        // marked, and ends by itself. `cancel_waits` spares a thread that makes one attempt, since that
        // does not wait; a client that closes does not.
        acquirer.cancelled |= acquirer.waits || step.closing;
        step.wakes_acquirer = true;
        waits
    }

    /// Whether the acquirer has a reason to go on pausing.
    pub(super) fn is_quiet(&self) -> bool {
        self.acquirer.as_ref().is_none_or(Acquirer::is_quiet)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.acquirer.as_ref().is_some_and(|acquirer| acquirer.cancelled)
    }

    /// The acquirer is about to ask after a pause, which is the retry that a message requested.
    pub(super) fn end_pause(&mut self) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.retry_now = false;
        }
    }

    /// Whether the time of a waiting thread ends by then.
    pub(super) fn is_out_of_time_by(&self, until: Moment) -> bool {
        let is_short = |wait_limit| matches!(wait_limit, WaitLimit::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.request.wait_limit))
    }

    /// Whether a thread that makes one attempt waits for the reply to the acquirer.
    pub(super) fn has_single_attempt(&self) -> bool {
        self.queue.iter().any(|waiter| waiter.request.wait_limit == WaitLimit::TryOnce)
    }

    /// Whether a thread here asks Redis, or is about to.
    pub(super) fn is_acquiring(&self) -> bool {
        self.acquirer.is_some()
    }

    /// Whether a thread here waits for the lock.
    pub(super) fn has_waiters(&self) -> bool {
        self.acquirer.is_some() || self.upgrader.is_some() || !self.queue.is_empty()
    }

    /// Whether a thread here is acquiring the lock or releasing it.
    pub(super) fn is_in_exchange(&self, ended: bool) -> bool {
        let releases = self.entries.iter().any(|entry| entry.releasing_since().is_some());
        // The end of a client ends all leases first. A holder that it still finds is a thread between the end of
        // the validity and its next step in the slot, and its release is not recorded anywhere yet.
        let holds = self.entries.iter().any(|entry| !entry.is_abandoned());
        self.acquirer.is_some() || self.upgrader.is_some() || releases || (ended && holds)
    }

    /// Whether it has the entry of this lease.
    pub(super) fn has_entry(&self, lease: &Arc<Lease>) -> bool {
        self.entries.iter().any(|entry| entry.has(lease))
    }

    /// The holds of threads here.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.entries.iter().flat_map(Entry::holds).collect()
    }

    /// How many waiters are known, here and in other processes.
    pub(super) fn waiters(&self, now: Moment) -> usize {
        // The maximum and not the sum: each holder counts the same waiters.
        let remote = self.entries.iter().map(|entry| entry.demand.remote(now)).max();
        // Beside a holder there is an acquirer only where holds may overlap.
        let acquirer = self.acquirer.as_ref().is_some_and(Acquirer::is_waiting);
        let here = self.queue.len() + usize::from(acquirer) + usize::from(self.upgrader.is_some());
        here + remote.unwrap_or(0) as usize
    }
}

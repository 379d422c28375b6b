//! One name in one process: which of its threads acquires, holds or waits.
//!
//! The states and their transitions are in `state`, which does no I/O and never blocks. A slot is the
//! lock around that state: it makes threads wait, and carries out the effects.

mod acquirer;
mod attempt;
mod background_release;
mod door;
mod entry;
mod fairness;
mod message;
mod pause;
mod share;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod upgrade;
mod wait_limit;
mod waiter;
mod watch;

use std::fmt;
use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard, Ordering};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::closing::ClosingPhase;
use crate::engine::context::Context;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::long_wait::{LongWait, Place};
use crate::engine::slot_table::SlotTable;
use crate::protocol::target::Target;

pub(crate) use acquirer::{Received, ReceivedGrant, Standing};
pub(crate) use attempt::Attempt;
use entry::KeepAlive;
pub(crate) use fairness::ListenerCount;
pub(crate) use pause::Paused;
pub(crate) use state::USUAL_REPLY_TIME;
pub(crate) use state::unlock::Unlocked;
use state::{EnterOutcome, SlotState};
use step::Step;
pub(crate) use wait_limit::{HELD_FOR, REPLY_GRACE, WaitLimit};
pub(crate) use waiter::Admission;
use waiter::{EnterRequest, Waiter};
pub(crate) use watch::EndedLinger;

/// One name, one kind, one client.
pub(crate) struct Slot {
    context: Arc<Context>,
    /// The table that it leaves when it is dropped.
    table: Arc<SlotTable<Slot>>,
    target: Arc<Target>,
    state: Mutex<SlotState>,
    /// Where the acquirer pauses.
    pause: Condvar,
}

impl Slot {
    pub(super) fn new(
        context: Arc<Context>,
        table: Arc<SlotTable<Slot>>,
        target: Arc<Target>,
    ) -> Slot {
        let state = Mutex::new(SlotState::new(target.kind().overlaps()));
        Slot { context, table, target, state, pause: Condvar::new() }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn shared_context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    fn begin_step(&self) -> Step {
        // Called while the slot is locked, so that the moments of successive steps are in order, and so
        // that a client that closes either finds a thread in the slot or is seen by that thread here.
        let (hears, closing) = (self.context.listener.is_live(), self.context.is_closing());
        let mut step = Step::new(self.context.now(), hears, closing);
        step.is_left = self.context.is_left.load(Ordering::SeqCst);
        step.announces = self.context.worker.announces();
        step
    }

    /// Changes the state by an event, and carries out the effects.
    fn transition<T>(self: &Arc<Slot>, event: impl FnOnce(&mut SlotState, &mut Step) -> T) -> T {
        self.transition_of(self.state.lock(), event)
    }

    /// The same once the state is locked.
    fn transition_of<T>(
        self: &Arc<Slot>,
        mut state: MutexGuard<'_, SlotState>,
        event: impl FnOnce(&mut SlotState, &mut Step) -> T,
    ) -> T {
        let mut step = self.begin_step();
        state.take_news();
        let outcome = event(&mut state, &mut step);
        // The slot is unlocked in here, while `step` lives on: it may have the last reference to a lease
        // or a slot, whose destructor must run under no lock.
        self.carry_out(state, &step);
        outcome
    }

    /// Carries out the effects of a step, and unlocks the slot.
    fn carry_out(self: &Arc<Slot>, state: MutexGuard<'_, SlotState>, step: &Step) {
        // Still under the lock, because the order counts. Of two steps that ran one after the other, the
        // first may want a check and the second may cancel it. The other way round, the worker would keep
        // an entry for a slot without a lease, or have none for a lease, which then runs out.
        let wakes_worker = self.tell_worker(step);
        // The threads are woken without the lock: they need it first of all, and to wake one takes a
        // system call. The admissions stand in the waiters already, so none can be missed.
        drop(state);
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
        step.wake();
        self.context.worker.wake_if(wakes_worker);
        if step.closing {
            self.context.closing.tell();
        }
    }

    /// Passes on when the worker has to come. Returns whether the caller must wake the worker once the slot is
    /// unlocked.
    fn tell_worker(self: &Arc<Slot>, step: &Step) -> bool {
        let worker = &self.context.worker;
        let mut wakes = false;
        for (lease, due) in step.watched.iter() {
            wakes |= worker.watch(lease, self, *due);
        }
        step.forgotten.iter().for_each(|lease| worker.forget(lease));
        match step.announced_at {
            None => {}
            Some(Moment::FAR) => worker.forget_slot(&**self),
            Some(due) => wakes |= worker.watch_slot(self, due),
        }
        wakes
    }

    /// Waits until this thread is admitted.
    pub(crate) fn enter(
        self: &Arc<Slot>,
        options: &LockOptions,
        wait_limit: WaitLimit,
        long_wait: &mut LongWait,
    ) -> Admission {
        // Drawn before the lock. A thread that acquires nothing wastes a number, and numbers are
        // plentiful.
        let number = self.context.protocol.identity().next_attempt();
        let mut state = self.state.lock();
        let mut step = self.begin_step();
        state.take_news();
        let entered =
            state.enter(EnterRequest { options: *options, wait_limit, number }, &mut step);

        let waiter = match entered {
            EnterOutcome::Now(admission) => {
                self.carry_out(state, &step);
                return admission;
            }
            EnterOutcome::After(leases, admission) => {
                self.carry_out(state, &step);
                self.release_lingering(&leases, wait_limit);
                return admission;
            }
            EnterOutcome::Wait(waiter) => waiter,
        };
        // `carry_out` would unlock, and the wait below begins with the lock. Nobody was admitted, and
        // no thread is woken. The worker may be: a linger is to end.
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
        let wakes_worker = self.tell_worker(&step);
        self.context.worker.wake_if(wakes_worker);
        // A thread that makes one attempt waits here for the reply to another thread's request, or for
        // the end of a release. Both take one exchange at most.
        let deadline = wait_limit.end().unwrap_or_else(|| self.context.exchange_deadline());
        self.wait(state, &waiter, deadline, long_wait)
    }

    /// Enters without waiting for other threads. Returns nothing if it would have to wait.
    pub(crate) fn try_enter(
        self: &Arc<Slot>,
        options: &LockOptions,
        wait_limit: WaitLimit,
    ) -> Option<Admission> {
        let number = self.context.protocol.identity().next_attempt();
        let request = EnterRequest { options: *options, wait_limit, number };
        let entered = self.transition(|state, step| {
            // To yield to others is a wait, too.
            if state.fairness.yields_at(step.now) {
                None
            } else {
                state.try_enter(&request, false, step)
            }
        })?;
        match entered {
            EnterOutcome::Now(admission) => Some(admission),
            EnterOutcome::After(leases, admission) => {
                self.release_lingering(&leases, wait_limit);
                Some(admission)
            }
            EnterOutcome::Wait(_) => None,
        }
    }

    /// Releases leases that lingered, and are in the way of this thread.
    fn release_lingering(&self, leases: &[Arc<Lease>], wait_limit: WaitLimit) {
        // This thread is the acquirer by now, so no other asks Redis meanwhile. The old leases
        // go first, or the new attempt would find its own process as the holder. What does not
        // get through within the caller's time is left to the worker.
        let end = wait_limit.end().unwrap_or(Moment::FAR);
        let deadline = self.context.exchange_deadline().min(end);
        leases.iter().for_each(|lease| self.release_now(lease, deadline));
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, SlotState>,
        waiter: &Arc<Waiter>,
        deadline: Moment,
        long_wait: &mut LongWait,
    ) -> Admission {
        let since = self.context.now();
        long_wait.wait_here(|| state.blocker());
        loop {
            // Before the deadline is looked at: an admission that came at the last moment makes this
            // thread the acquirer, or a holder. A thread that left it here would leave the slot without
            // either for ever.
            if let Some(admission) = waiter.take() {
                return admission;
            }
            let now = self.context.now();
            let deadline =
                state.wait_end(waiter, (since, deadline), self.context.bounds.exchange, now);
            let until = deadline.min(long_wait.due);
            if until == Moment::FAR {
                // Without an end, and not in slices as the clock would wait: slices are there so that a
                // deadline is not missed after a suspend, and would wake thousands of idle waiters every
                // second.
                waiter.woken.wait(&mut state);
                continue;
            }
            if deadline <= now {
                // The lock is still that of the look at the admission, so none can come in between.
                return state.time_out(waiter, since, now);
            }
            if long_wait.due <= now {
                long_wait.blocker = state.blocker();
                let place = state.place(waiter).map(Place::AmongThreads);
                // A logger may take its time, or lock this very slot.
                drop(state);
                long_wait.log_if_slow(&self.context, &self.target, place);
                state = self.state.lock();
                continue;
            }
            self.context.wait_until(until, &mut |left| {
                waiter.woken.wait_for(&mut state, left);
            });
        }
    }

    /// Ends the waits of all threads, since the outage has lasted longer than the client rides one out.
    pub(crate) fn give_up(self: &Arc<Slot>, silence: Duration) {
        self.transition(|state, step| state.give_up(silence, step));
    }

    /// The acquirer begins another attempt: messages for an earlier one no longer count.
    pub(crate) fn restart(&self, number: u64) {
        self.state.lock().restart(number);
    }

    /// Redis has replied to the acquirer that the lock is held. `queued` is its place, if it stands in the queue now.
    /// Returns the leases that lingered here and may be in its way: the caller releases them and asks again.
    pub(crate) fn held_elsewhere(
        self: &Arc<Slot>,
        blocker: Option<Blocker>,
        queued: Option<Standing<'_>>,
    ) -> Vec<EndedLinger> {
        let ended = self.transition(|state, step| state.held_elsewhere(blocker, queued, step));
        ended.into_iter().map(|lease| self.ended_linger(lease)).collect()
    }

    /// Takes what was received for the acquirer. If there is nothing and `asks` is true, notes that the
    /// acquirer asks Redis now.
    pub(crate) fn take_received(&self, asks: bool) -> Option<Received> {
        self.state.lock().take_received(asks, self.context.now())
    }

    /// Takes the hold that was passed on to the acquirer, if one was.
    pub(crate) fn take_passed(&self) -> Option<Arc<Hold>> {
        self.state.lock().take_passed()
    }

    /// The acquirer has the lease now, and the worker watches it. Returns false if the client is closing: then
    /// it has not.
    pub(crate) fn granted(self: &Arc<Slot>, hold: &Arc<Hold>, waiters: u32) -> bool {
        let is_granted = self.transition(|state, step| {
            let is_granted = state.granted(hold, waiters, step);
            // The thread that closes may not have come to this slot yet, and the wait is over when it does.
            if !is_granted && state.cancel_acquirer(step) {
                self.context.closing.note_refused();
            }
            is_granted
        });
        self.doubt_if_broken(&hold.lease, is_granted);
        is_granted
    }

    /// Doubts a lease that was granted, if the connections to the server have ended since its request was sent.
    fn doubt_if_broken(self: &Arc<Slot>, lease: &Arc<Lease>, is_granted: bool) {
        // The worker has the lease by now: it finds this one when it looks through all, or the break is known here.
        let since = self.context.protocol.unbroken_since(&self.target);
        if is_granted && lease.doubt_unless_confirmed(since) {
            self.watch(lease);
        }
    }

    /// The acquirer asks for the first time: returns the attempts of other threads that travel along, by number, with
    /// their options.
    pub(crate) fn take_along(
        &self,
        options: &LockOptions,
        deadline: Moment,
    ) -> Vec<(u64, LockOptions)> {
        let (identity, now) = (self.context.protocol.identity(), self.context.now());
        self.state.lock().take_along(options, now, deadline, || identity.next_attempt())
    }

    /// The request of this attempt was granted. Returns whether its thread has the hold.
    pub(crate) fn granted_along(
        self: &Arc<Slot>,
        hold: &Arc<Hold>,
        number: u64,
        waiters: u32,
    ) -> bool {
        let is_granted =
            self.transition(|state, step| state.granted_along(hold, number, waiters, step));
        self.doubt_if_broken(&hold.lease, is_granted);
        is_granted
    }

    /// No other thread's attempt travels along any more. `is_silent` says that the request had no reply.
    pub(crate) fn end_along(&self, is_silent: bool) {
        self.state.lock().end_along(is_silent, self.context.now());
    }

    /// The acquirer gives up, and the next thread acquires. An attempt that this thread cannot use goes to
    /// `clean_up`.
    pub(crate) fn stop_acquiring(
        self: &Arc<Slot>,
        attempt: Attempt,
        clean_up: impl FnOnce(Attempt),
    ) {
        let (unused, closing) = self.transition(|state, step| match step.closing {
            true => (Some(attempt), true),
            false => (state.stop_acquiring(Some(attempt), step), false),
        });
        unused.map(clean_up);
        // Only now, because nobody takes the attempt over: `close` must find the acquirer for as long as the
        // removal of its attempt is not recorded with the worker.
        if closing {
            self.transition(|state, step| state.stop_acquiring(None, step));
        }
    }

    /// A thread gives its hold up: the next thread gets the lease, or it lingers, or the caller must release
    /// it.
    pub(crate) fn unlock(self: &Arc<Slot>, hold: &Arc<Hold>) -> Unlocked {
        // The slot is not locked during this wait. The next thread that takes the lease, now or after a linger, needs a
        // token.
        hold.lease.wait_for_next_token();
        let unlocked =
            self.transition(|state, step| state.unlock(hold, Arc::clone(self) as KeepAlive, step));
        if unlocked == Unlocked::ToThread {
            // From now on waiters elsewhere should be able to report themselves. Without a listener they
            // count as present, and passing on stays short.
            self.context.listen_for_waiters(hold.lease.value.options.wait);
        }
        unlocked
    }

    /// Removes a lease that was lost or released. The next thread acquires.
    pub(crate) fn remove(self: &Arc<Slot>, lease: &Arc<Lease>) {
        self.transition(|state, step| state.remove(lease, step));
    }

    /// Removes a lease after its release was sent, and notes how many clients received that.
    pub(crate) fn released(
        self: &Arc<Slot>,
        lease: &Arc<Lease>,
        listener_count: Option<ListenerCount>,
    ) {
        self.transition(|state, step| {
            // First the count: `remove` makes the next thread the acquirer, whose pause depends on it.
            if let Some(listener_count) = listener_count {
                state.fairness.released(listener_count, step.now);
            }
            state.remove(lease, step);
        });
    }

    /// Whether the wait of the acquirer was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.lock().is_cancelled()
    }

    /// Whether a thread here is acquiring the lock or releasing it.
    pub(crate) fn is_in_exchange(&self) -> bool {
        self.state.lock().is_in_exchange(self.context.closing.phase() == ClosingPhase::Ended)
    }

    /// The holds of threads here.
    #[cfg(test)]
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.state.lock().holds()
    }

    /// How many waiters are known, here and in other processes.
    pub(crate) fn waiters(&self) -> usize {
        let mut state = self.state.lock();
        state.take_news();
        state.waiters(self.context.now())
    }

    /// Cancels all waits of this process for this name. Returns how many there were.
    pub(crate) fn cancel(self: &Arc<Slot>) -> usize {
        self.transition(|state, step| state.cancel(step))
    }

    /// The same as the client is closing, with the holds of threads here: there will be no others.
    pub(crate) fn close(self: &Arc<Slot>) -> (usize, Vec<Arc<Hold>>) {
        self.transition(|state, step| (state.cancel(step), state.holds()))
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.target)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.context.worker.forget_slot(self);
        self.table.forget(self.target.name());
    }
}

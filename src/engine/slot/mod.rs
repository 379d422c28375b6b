//! One name in one process: whose turn it is among its threads.
//!
//! The states and their transitions are in `state`, which only computes. A slot is the lock around them: it
//! has the threads wait, and carries out the effects.

mod acquirer;
mod attempt;
mod background_release;
mod check;
mod fairness;
mod holder;
mod message;
mod pause;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod wait_limit;
mod waiter;

use std::fmt;
use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::context::Context;
use crate::engine::lease::HeldLease;
use crate::engine::long_wait::{LongWait, Place};
use crate::engine::slot_table::SlotTable;
use crate::protocol::target::Target;

pub(crate) use acquirer::ReceivedGrant;
pub(crate) use attempt::Attempt;
pub(crate) use fairness::ListenerCount;
use holder::KeepAlive;
pub(crate) use pause::Paused;
pub(crate) use state::USUAL_REPLY_TIME;
pub(crate) use state::unlock::Unlocked;
use state::{EnterOutcome, SlotState};
use step::{NextCheck, Step};
pub(crate) use wait_limit::WaitLimit;
pub(crate) use waiter::Admission;
use waiter::{EnterRequest, Waiter};

/// One name, one kind, one client.
pub(crate) struct Slot {
    context: Arc<Context>,
    /// From which it takes itself out.
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

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    fn begin_step(&self) -> Step {
        Step::new(self.context.now(), self.context.listener.is_live(), self.context.is_shut_down())
    }

    /// Changes the state by an event, and carries out what follows from it.
    fn transition<T>(self: &Arc<Slot>, event: impl FnOnce(&mut SlotState, &mut Step) -> T) -> T {
        let mut state = self.state.lock();
        let mut step = self.begin_step();
        let outcome = event(&mut state, &mut step);
        self.carry_out(state, &step);
        outcome
    }

    /// The worker is told under the lock, so that it has an entry for the slot exactly while that has a lease.
    fn carry_out(self: &Arc<Slot>, state: MutexGuard<'_, SlotState>, step: &Step) {
        let wakes_worker = self.schedule_worker(step.next_check);
        drop(state);
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
        step.wake();
        self.context.worker.wake_if(wakes_worker);
    }

    /// Returns whether the worker is to be woken once the slot is unlocked.
    fn schedule_worker(self: &Arc<Slot>, next_check: NextCheck) -> bool {
        match next_check {
            NextCheck::Unchanged => false,
            NextCheck::By(due) => self.context.worker.check_at(self, due),
            NextCheck::Never => {
                self.context.worker.forget(&**self);
                false
            }
        }
    }

    /// Waits for this thread's turn.
    pub(crate) fn enter(
        self: &Arc<Slot>,
        options: &LockOptions,
        wait_limit: WaitLimit,
        long_wait: &mut LongWait,
    ) -> Admission {
        let number = self.context.protocol.identity().next_attempt();
        let mut state = self.state.lock();
        let mut step = self.begin_step();
        let entered =
            state.enter(EnterRequest { options: *options, wait_limit, number }, &mut step);
        let waiter = match entered {
            EnterOutcome::Now(admission) => {
                self.carry_out(state, &step);
                return admission;
            }
            EnterOutcome::After(lease, admission) => {
                self.carry_out(state, &step);
                let end = wait_limit.end().unwrap_or(Moment::FAR);
                self.release_now(&lease, self.context.exchange_deadline().min(end));
                return admission;
            }
            EnterOutcome::Wait(waiter) => waiter,
        };
        if step.wakes_acquirer {
            self.pause.notify_all();
        }
        self.schedule_worker(step.next_check);
        let deadline = wait_limit.end().unwrap_or_else(|| self.context.exchange_deadline());
        self.wait(state, &waiter, deadline, long_wait)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, SlotState>,
        waiter: &Arc<Waiter>,
        deadline: Moment,
        long_wait: &mut LongWait,
    ) -> Admission {
        let since = self.context.now();
        loop {
            if let Some(admission) = waiter.take() {
                return admission;
            }
            let until = deadline.min(long_wait.due);
            if until == Moment::FAR {
                waiter.woken.wait(&mut state);
                continue;
            }
            let now = self.context.now();
            if deadline <= now {
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

    /// The outage has lasted for longer than anybody waits for its end.
    pub(crate) fn give_up(self: &Arc<Slot>, silence: Duration) {
        self.transition(|state, step| state.give_up(silence, step));
    }

    /// The acquirer begins another attempt: what was heard of an earlier one no longer counts.
    pub(crate) fn restart(&self, number: u64) {
        self.state.lock().restart(number);
    }

    /// The acquirer was told that another process has the lock.
    pub(crate) fn held_elsewhere(self: &Arc<Slot>, blocker: Option<Blocker>) {
        self.transition(|state, step| state.held_elsewhere(blocker, step));
    }

    /// The grant that was heard for the acquirer's attempt. If there is none and `asks`, it asks Redis.
    pub(crate) fn take_grant(&self, asks: bool) -> Option<ReceivedGrant> {
        self.state.lock().take_grant(asks, self.context.now())
    }

    /// The acquirer has the lease now, and the worker renews it.
    pub(crate) fn granted(self: &Arc<Slot>, lease: &Arc<HeldLease>, waiters: u32) {
        self.transition(|state, step| state.granted(lease, waiters, step));
    }

    /// The acquirer goes without the lease, and the next thread has its turn. Returns the attempt if that
    /// cannot use it.
    pub(crate) fn stop_acquiring(self: &Arc<Slot>, attempt: Option<Attempt>) -> Option<Attempt> {
        self.transition(|state, step| state.stop_acquiring(attempt, step))
    }

    /// A thread gives its lease up. The next thread has it, or it lingers, or it is to be given back.
    pub(crate) fn unlock(self: &Arc<Slot>, lease: &Arc<HeldLease>) -> Unlocked {
        let unlocked =
            self.transition(|state, step| state.unlock(lease, Arc::clone(self) as KeepAlive, step));
        if unlocked == Unlocked::ToThread {
            self.context.listen_for_waiters(&lease.terms.options);
        }
        unlocked
    }

    /// A lease is no longer this process's: it was lost or given back. The next thread has its turn.
    pub(crate) fn remove(self: &Arc<Slot>, lease: &Arc<HeldLease>) {
        self.transition(|state, step| state.remove(lease, step));
    }

    /// The same once its release is done, as far as it can be, where so many heard it.
    pub(crate) fn released(
        self: &Arc<Slot>,
        lease: &Arc<HeldLease>,
        listener_count: Option<ListenerCount>,
    ) {
        self.transition(|state, step| {
            if let Some(listener_count) = listener_count {
                state.fairness.released(listener_count, step.now);
            }
            state.remove(lease, step);
        });
    }

    /// Whether a thread here takes the lock or gives it back at the moment.
    pub(crate) fn is_in_exchange(&self) -> bool {
        self.state.lock().is_in_exchange(self.context.is_shut_down())
    }

    /// The leases that threads here have.
    pub(crate) fn leases(&self) -> Vec<Arc<HeldLease>> {
        self.state.lock().leases()
    }

    /// How many are known to wait, here and in other processes.
    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().waiters()
    }

    /// Calls off all waits of this process for this name. Returns how many there were.
    pub(crate) fn cancel(self: &Arc<Slot>) -> usize {
        self.transition(|state, step| state.cancel(step))
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.target)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.context.worker.forget(self);
        self.table.forget(self.target.name());
    }
}

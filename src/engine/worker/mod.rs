//! The thread that keeps leases alive: one per client, with its own connection, or a caller's while it can
//! have none.
//!
//! It renews leases without their slots, which threads may have locked for long: `lease::timer` lists for what it comes to
//! one. The task queue has one timer for each lease, however often that is taken again or passed on inside the process.
//! A release removes it. So the queue is bounded by the live leases, the pending releases, and the losses that were not
//! reported yet.
//!
//! A caller that adds work learns from the task queue whether it is due before the worker would wake by itself.
//! Usually it is not, and nobody is woken: to wake a thread costs more than a lock.
//!
//! The worker never waits for the lock of a slot, and sleeps at a lock that does not yield the processor. On a machine with
//! more busy threads than processors a yield lasts for tens of milliseconds, and 64 looks of several yields each were
//! longer than a lease.
//!
//! A lease that is doubted is asked about: after a message that it was evicted, after a step of the server's clock, and after
//! the connections to the server have ended, because it may have come back without its memory. There may be a lease for each
//! of 100,000 locks, so a turn asks about a thousand at most, when its renewals are done.
//!
//! In each turn everything that is due goes out as one pipeline. A lease whose end is much nearer than
//! that of the others goes before them, in a pipeline of its own. A turn takes what is due when it
//! begins, so that others cannot make it longer, and only some of the releases, so that renewals do not
//! wait for them. Due times are rounded down to ticks of a fraction of the lease, so that tasks that are
//! due about the same time travel together.
//!
//! Work takes these forms:
//!
//! | type | what it is |
//! | --- | --- |
//! | `ScheduledTask` | a task of the queue; with its due time it is a `TimedTask` |
//! | `WorkerRequest` | a task that is due and needs Redis, with the lease that its reply is about |
//! | `LeaseRequest` | the request itself: the lock, the owner, and a `LeaseCommand` to renew or to release |

mod removal;
mod report;
mod runner;
mod scheduled_task;
mod task_queue;
#[cfg(test)]
mod tests;
mod timers;
mod worker_request;

use std::time::Duration;

use crate::base::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{Callbacks, Notification};
use crate::engine::lease::Lease;
use crate::protocol::Protocol;
use crate::protocol::target::Target;

pub(crate) use removal::Removal;
pub(crate) use report::Report;
pub(crate) use runner::ANNOUNCE_TICK;
use runner::Runner;
pub(crate) use scheduled_task::WatchedSlot;
use task_queue::TaskQueue;
pub(crate) use worker_request::SHORTEST_RETRY;

/// A client's handle of its worker.
#[derive(Debug)]
pub(crate) struct Worker {
    task_queue: Arc<TaskQueue>,
    clock: Arc<dyn Clock>,
    threads: Threads,
    started: AtomicBool,
    /// The thread's state, until the thread has started.
    runner: Arc<Mutex<Option<Runner>>>,
}

impl Worker {
    /// Makes a worker. Its thread starts with the first task.
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        exchange: Duration,
        callbacks: Callbacks,
    ) -> Worker {
        let task_queue = Arc::new(TaskQueue::new());
        let threads = protocol.identity().threads();

        let runner = Runner {
            protocol,
            clock: Arc::clone(&clock),
            exchange,
            callbacks,
            threads,
            task_queue: Arc::clone(&task_queue),
            in_progress: Vec::new(),
            report: Report::default(),
            connects: None,
            announces_from: Moment::PAST,
        };
        let runner = Arc::new(Mutex::new(Some(runner)));
        Worker { task_queue, clock, threads, started: AtomicBool::new(false), runner }
    }

    /// Whether it announces the locks that are in use for longer than a second.
    pub(crate) fn announces(&self) -> bool {
        self.task_queue.announces.load(Ordering::Relaxed)
    }

    /// Makes it announce them from now on.
    pub(crate) fn begin_announcing(&self) {
        self.task_queue.announces.store(true, Ordering::Relaxed);
    }

    /// What the servers call when the connections to one of them have ended: the worker asks about the leases there.
    pub(crate) fn on_break(&self) -> impl Fn() + Send + Sync + 'static {
        let (task_queue, clock) = (Arc::clone(&self.task_queue), Arc::clone(&self.clock));
        move || task_queue.note_break(clock.now())
    }

    /// Makes the worker come to a lease by a moment. Returns whether the caller must call
    /// [`wake`](Self::wake), once it has nothing locked.
    pub(crate) fn watch<S: WatchedSlot + 'static>(
        &self,
        lease: &Arc<Lease>,
        slot: &Arc<S>,
        due: Moment,
    ) -> bool {
        self.task_queue.watch(lease, Arc::<S>::downgrade(slot), due)
    }

    /// The same for a slot in which threads only wait.
    pub(crate) fn watch_slot<S: WatchedSlot + 'static>(&self, slot: &Arc<S>, due: Moment) -> bool {
        let slot: Arc<dyn WatchedSlot> = Arc::<S>::clone(slot);
        self.task_queue.watch_slot(&slot, due)
    }

    /// Nothing is to be done for a lease any more.
    pub(crate) fn forget(&self, lease: &Lease) {
        self.task_queue.forget(lease);
    }

    /// The same of a slot in which threads wait.
    pub(crate) fn forget_slot<S: WatchedSlot>(&self, slot: &S) {
        self.task_queue.forget_slot(slot);
    }

    /// Removes an owner's value from Redis. The worker repeats that until Redis has replied to a request
    /// that was sent after the value settled, or until the value has surely expired.
    pub(crate) fn release_in_background(&self, task: Removal) {
        self.wake_if(self.task_queue.release_in_background(self.clock.now(), Arc::new(task)));
    }

    /// The same, but not before a moment, because a thread may still be at work. A shutdown does not wait
    /// for that moment.
    pub(crate) fn release_later(&self, due: Moment, task: Removal) {
        self.wake_if(self.task_queue.release_later(due, Arc::new(task)));
    }

    /// Makes all pending releases due now, also those that are added later. Those that failed are still
    /// repeated only after a pause.
    pub(crate) fn flush_releases(&self) {
        self.wake_if(self.task_queue.flush_releases(self.clock.now()));
    }

    /// Waits until all pending releases are done, or the deadline. Returns the locks that are not
    /// released.
    pub(crate) fn wait_released(&self, deadline: Moment) -> Vec<Arc<Target>> {
        self.task_queue.wait_released(&*self.clock, deadline)
    }

    /// Calls the user back.
    pub(crate) fn notify(&self, notifications: Notification) {
        self.wake_if(self.task_queue.notify(self.clock.now(), notifications));
    }

    /// Whether it sleeps until a moment.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_waiting_for_time(&self) -> bool {
        self.task_queue.sleeps_until().is_some_and(|until| until != Moment::FAR)
    }

    /// The moment until which it sleeps, which may be [`Moment::FAR`]; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.task_queue.next()
    }

    /// Whether everything that is due is done.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.started.load(Ordering::Acquire) || self.task_queue.is_at_rest(self.clock.now())
    }

    /// Its thread never starts, so that a test finds what it would do.
    #[cfg(test)]
    pub(crate) fn stand_still(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// How many looks, releases and notifications there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize, usize) {
        self.task_queue.len()
    }

    /// Wakes the worker if that is necessary.
    pub(crate) fn wake_if(&self, unreleased: bool) {
        if unreleased {
            self.wake();
        }
    }

    /// Wakes the worker, and starts its thread if that is not running.
    pub(crate) fn wake(&self) {
        if !self.started.load(Ordering::Acquire) {
            self.start();
        }
        self.task_queue.rouse();
    }

    /// Starts the thread. If that fails, the next task tries again.
    fn start(&self) {
        // Held until `started` is set: two callers must not start two threads, and the new thread waits
        // for the runner in its first line.
        let runner = self.runner.lock();
        if self.started.load(Ordering::Acquire) {
            return;
        }
        let shared = Arc::clone(&self.runner);
        let body = move || {
            let runner = shared.lock().take();
            if let Some(mut runner) = runner {
                runner.run();
            }
        };

        let outcome = self.threads.spawn(Role::Worker, body);
        self.started.store(outcome.is_ok(), Ordering::Release);
        // Before the line is logged: a logger is code of the user, and may use this client.
        drop(runner);
        if let Err(error) = outcome {
            log!(error, "no thread for renewals could be started, leases run out: {error}");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task_queue.abandon();
    }
}

//! The thread that keeps leases alive: one per client, with its own connection.
//!
//! The work stands in a task queue with one entry for each slot that has a lease, however often the lease is
//! taken again or passed on inside the process. A release takes the entry out. So the queue is bounded by the
//! leases that live, the pending releases, and the losses that the user has yet to be told.
//!
//! The channel holds one request at a time: to wake, because something is due before the worker would
//! wake by itself. A caller that puts work in learns from the task queue whether that is so, and most of the
//! time it is not: to wake a thread costs more than a lock.
//!
//! Each turn, all that is due goes out as one pipeline. A lease whose end is much nearer than that of the
//! others travels before them, in one of its own. A turn takes what is due when it begins, so that others
//! cannot make it longer, and of what is given back only a part, so that renewals do not wait for it. Due
//! times are rounded down to ticks of a fraction of the lease, so that what falls due about the same time
//! travels together.
//!
//! Work takes these forms:
//!
//! | type | what it is |
//! | --- | --- |
//! | `ScheduledTask` | a task of the queue; with its due time it is a `TimedTask` |
//! | `WorkerRequest` | a task that is due and goes to Redis, with the lease that its reply is about |
//! | `LeaseRequest` | the request itself: the lock, the owner, and a `LeaseCommand` to renew or to release |

mod report;
mod runner;
mod scheduled_task;
mod task_queue;
#[cfg(test)]
mod tests;
mod timers;
mod worker_request;

use std::time::Duration;

use crate::base::sync::channel::{Sender, bounded};
use crate::base::sync::{self, Arc, AtomicBool, Mutex, Ordering};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{Callbacks, Notification};
use crate::protocol::Protocol;
use crate::protocol::target::Target;

use report::Report;
use runner::Runner;
pub(crate) use scheduled_task::{PendingRelease, RenewableSlot};
use task_queue::TaskQueue;

/// The handle that callers have.
#[derive(Debug)]
pub(crate) struct Worker {
    task_queue: Arc<TaskQueue>,
    wake_sender: Sender<()>,
    clock: Arc<dyn Clock>,
    threads: Threads,
    started: AtomicBool,
    /// Until its thread has started.
    runner: Arc<Mutex<Option<Runner>>>,
}

impl Worker {
    /// Makes a worker, whose thread starts with the first work for it.
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        exchange: Duration,
        callbacks: Callbacks,
    ) -> Worker {
        let (wake_sender, wake_receiver) = bounded(1);
        let task_queue = Arc::new(TaskQueue::new());
        let threads = protocol.identity().threads();
        let runner = Runner {
            protocol,
            clock: Arc::clone(&clock),
            exchange,
            callbacks,
            threads,
            wake_receiver,
            task_queue: Arc::clone(&task_queue),
            in_progress: Vec::new(),
            report: Report::default(),
        };
        let runner = Arc::new(Mutex::new(Some(runner)));
        Worker { task_queue, wake_sender, clock, threads, started: AtomicBool::new(false), runner }
    }

    /// Makes the worker look at a slot by then. Returns whether [`wake`](Self::wake) is owed, which is
    /// for when the caller has no lock.
    pub(crate) fn check_at<S: RenewableSlot + 'static>(&self, slot: &Arc<S>, due: Moment) -> bool {
        self.task_queue.check_at(slot, due)
    }

    /// Spares the worker the look at a slot.
    pub(crate) fn forget<S: RenewableSlot>(&self, slot: &S) {
        self.task_queue.forget(slot);
    }

    /// Takes an owner's value out of Redis: again and again until Redis has answered to a request
    /// sent after it settled, or it has surely expired.
    pub(crate) fn release_in_background(&self, task: PendingRelease) {
        self.wake_if(self.task_queue.release_in_background(self.clock.now(), Arc::new(task)));
    }

    /// The same, but not before a moment, as its thread may still be at work; a shutdown does not wait
    /// for that.
    pub(crate) fn release_later(&self, due: Moment, task: PendingRelease) {
        self.wake_if(self.task_queue.release_later(due, Arc::new(task)));
    }

    /// Gives back at once what is owed, also what is owed from now on. What failed is still tried again
    /// only after a pause.
    pub(crate) fn flush_releases(&self) {
        self.wake_if(self.task_queue.flush_releases(self.clock.now()));
    }

    /// Waits until everything is given back, or the deadline. Returns the locks that are not.
    pub(crate) fn wait_released(&self, deadline: Moment) -> Vec<Arc<Target>> {
        self.task_queue.wait_released(&*self.clock, deadline)
    }

    /// Calls the user back.
    pub(crate) fn notify(&self, notifications: Notification) {
        self.wake_if(self.task_queue.notify(self.clock.now(), notifications));
    }

    /// Whether it waits for a moment.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_waiting_for_time(&self) -> bool {
        self.task_queue.sleeps_until().is_some_and(|until| until != Moment::FAR)
    }

    /// The moment for which it waits, which may be [`Moment::FAR`]; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.task_queue.next()
    }

    /// Whether everything is done that is due.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_at_rest(&self) -> bool {
        let sleeps = self.task_queue.next().is_some_and(|next| next > self.clock.now());
        !self.started.load(Ordering::Acquire) || (sleeps && self.wake_sender.is_empty())
    }

    /// How many checks, releases and notifications there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize, usize) {
        self.task_queue.len()
    }

    /// Does what is owed where work was put on the task queue.
    pub(crate) fn wake_if(&self, unreleased: bool) {
        if unreleased {
            self.wake();
        }
    }

    /// Wakes the worker, whose thread starts if it has not yet.
    pub(crate) fn wake(&self) {
        if !self.started.load(Ordering::Acquire) {
            self.start();
        }
        // Where there is a request already, the worker has yet to see it.
        let _ = self.wake_sender.try_send(());
    }

    /// Starts the thread; if that cannot be, the next work tries again.
    fn start(&self) {
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
        let outcome = sync::spawn(&self.threads.name(Role::Worker), body);
        self.started.store(outcome.is_ok(), Ordering::Release);
        drop(runner);
        if let Err(error) = outcome {
            log!(error, "no thread for renewals could be started, leases run out: {error}");
        }
    }
}

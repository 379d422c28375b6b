//! The thread that keeps leases alive: one per client, with its own connection.
//!
//! Callers put work into an unbounded channel and do not wake the worker for it, which would cost
//! more than a lock: they ring a bell, a channel of one, only when their work is due before the
//! worker would wake by itself, or when much has piled up. A lease that is released in the
//! meantime is thrown away unseen, by callers too where the worker does not come to it: who locks
//! again and again while Redis keeps the worker waiting must not fill the memory.
//!
//! Each turn, all that is due goes out as one pipeline. A lease whose end is much nearer than that of the
//! others travels before them, in one of its own. Due times are rounded down to ticks of a fraction of
//! the lease, so that what falls due about the same time travels together.
//!
//! One piece of work has four names on its way:
//!
//! | name | what it is | where |
//! | --- | --- | --- |
//! | `Duty` | what callers ask for; with the moment when it is due, an `Entry` of the agenda | `duty` |
//! | `Job` | a duty that is due and goes to Redis, with the lease kept for its answer | `job` |
//! | `Errand` | the request of a job: for which lock and owner | `protocol` |
//! | `Task` | what an errand asks for: to renew, or to release | `protocol` |

mod duty;
mod job;
mod runner;

use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::base::sync::channel::{Receiver, Sender, bounded, unbounded};
use crate::base::sync::{self, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::base::time::{Clock, Moment};
use crate::engine::Callbacks;
use crate::engine::callback::News;
use crate::engine::lease::LiveLease;
use crate::engine::slot::Slot;
use crate::protocol::{Protocol, Target};

use duty::{Duty, Entry};
use runner::Runner;

/// More work than this wakes the worker, so that what is over is thrown away.
const PILE: usize = 1024;
/// More than this, and callers throw away too.
const HEAP: usize = 4 * PILE;
/// Counts that people see follow within this time.
const SHOW_AFTER: Duration = Duration::from_millis(20);

/// An owner's value that must not stay in Redis.
#[derive(Debug)]
pub(crate) struct GiveBack {
    pub(crate) target: Arc<Target>,
    pub(crate) owner: Arc<[u8]>,
    /// Requests for it may run until then, so that an answer to an earlier one is not the last
    /// word (rule 6).
    pub(crate) settled: Moment,
    /// How long it lives after the last request for it.
    pub(crate) ttl: Duration,
    /// The last token used, where that is not the one minted.
    pub(crate) last_token: Option<u64>,
}

/// The owners' values that are still to be taken out of Redis, and their locks.
#[derive(Debug, Default)]
struct Unreturned {
    owners: Mutex<HashMap<Arc<[u8]>, Arc<Target>>>,
    fewer: Condvar,
}

impl Unreturned {
    fn add(&self, duty: &GiveBack) {
        self.owners.lock().insert(Arc::clone(&duty.owner), Arc::clone(&duty.target));
    }

    fn remove(&self, duty: &GiveBack) {
        let removed = self.owners.lock().remove(&duty.owner);
        self.fewer.notify_all();
        drop(removed);
    }
}

/// The handle that callers have.
#[derive(Debug)]
pub(crate) struct Worker {
    sender: Sender<Entry>,
    receiver: Arc<Receiver<Entry>>,
    bell: Sender<()>,
    wakes_at: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    started: AtomicBool,
    unreturned: Arc<Unreturned>,
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
        let (bell, rung) = bounded(1);
        let (sender, receiver) = unbounded();
        let receiver = Arc::new(receiver);
        let wakes_at = Arc::new(AtomicU64::new(AWAKE));
        let unreturned = Arc::new(Unreturned::default());
        let runner = Runner {
            protocol,
            clock: Arc::clone(&clock),
            exchange,
            callbacks,
            receiver: Arc::clone(&receiver),
            rung,
            wakes_at: Arc::clone(&wakes_at),
            agenda: BinaryHeap::new(),
            purged: 0,
            hand: Vec::new(),
            suspects: 0,
            unreturned: Arc::clone(&unreturned),
        };
        let runner = Arc::new(Mutex::new(Some(runner)));
        let started = AtomicBool::new(false);
        Worker { unreturned, sender, receiver, bell, wakes_at, clock, started, runner }
    }

    /// Renews a lease as its options say, and finds out when it is lost.
    pub(crate) fn watch(&self, lease: &Arc<LiveLease>) {
        self.put(lease.next_look(), Duty::Watch(Arc::downgrade(lease)));
        if lease.is_unshown() {
            self.show(lease);
        }
    }

    /// Shows a hold count soon.
    pub(crate) fn show(&self, lease: &Arc<LiveLease>) {
        self.put(self.clock.now().after(SHOW_AFTER), Duty::Show(Arc::downgrade(lease)));
    }

    /// Asks at once whether it is still its owner's, which shows its hold count besides.
    pub(crate) fn look_into(&self, lease: &Arc<LiveLease>) {
        self.put(self.clock.now(), Duty::Show(Arc::downgrade(lease)));
    }

    /// Takes an owner's value out of Redis: again and again until Redis has answered to a request
    /// sent after it settled, or it has surely expired.
    pub(crate) fn give_back(&self, duty: GiveBack) {
        self.give_back_at(self.clock.now(), duty);
    }

    /// The same, but not before a moment.
    pub(crate) fn give_back_at(&self, due: Moment, duty: GiveBack) {
        self.unreturned.add(&duty);
        self.put(due, Duty::GiveBack(Arc::new(duty)));
    }

    /// Waits until everything is given back, or the deadline. Answers the locks that are not.
    pub(crate) fn wait_given_back(&self, deadline: Moment) -> Vec<Arc<Target>> {
        let mut owners = self.unreturned.owners.lock();
        loop {
            if owners.is_empty() || deadline <= self.clock.now() {
                return owners.values().map(Arc::clone).collect();
            }
            self.clock.doze(deadline, &mut |left| {
                self.unreturned.fewer.wait_for(&mut owners, left);
            });
        }
    }

    /// Ends a linger when its time is over.
    pub(crate) fn look_at_linger(&self, slot: &Arc<Slot>, until: Moment) {
        self.put(until, Duty::LookAtLinger(Arc::downgrade(slot)));
    }

    /// Calls the user back.
    pub(crate) fn announce(&self, news: News) {
        self.put(self.clock.now(), Duty::Announce(news));
    }

    /// Whether it waits for a moment.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_dozing(&self) -> bool {
        self.wakes_at.load(Ordering::SeqCst) < IDLE
    }

    /// The moment for which it waits, which may be [`Moment::FAR`]; `None` while it is awake.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn next_due(&self) -> Option<Moment> {
        match self.wakes_at.load(Ordering::SeqCst) {
            _ if !self.started.load(Ordering::Acquire) => Some(Moment::FAR),
            AWAKE => None,
            IDLE => Some(Moment::FAR),
            at => Some(Moment::from_nanos(at)),
        }
    }

    /// Whether everything is done that is due.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_at_rest(&self) -> bool {
        let wakes_at = self.wakes_at.load(Ordering::SeqCst);
        let sleeps = wakes_at != AWAKE && wakes_at > self.clock.now().as_nanos();
        !self.started.load(Ordering::Acquire) || (sleeps && self.bell.is_empty())
    }

    fn put(&self, due: Moment, duty: Duty) {
        if !self.started.load(Ordering::Acquire) {
            self.start();
        }
        let waiting = self.hand_in(Entry { due, duty });
        if waiting > HEAP && !mutated!("pile-without-end") {
            self.throw_away();
        }
    }

    /// Two for each that comes, so that the pile does not grow.
    fn throw_away(&self) {
        for _ in 0..2 {
            if let Ok(entry) = self.receiver.try_recv()
                && !entry.duty.is_over()
                && !mutated!("live-thrown-away")
            {
                self.hand_in(entry);
            }
        }
    }

    /// Answers how much waits for the worker now.
    fn hand_in(&self, entry: Entry) -> usize {
        let due = entry.due;
        // Somebody receives for as long as this lives, or will once the thread could be started.
        let _ = self.sender.send(entry);
        let waiting = self.sender.len();
        if due.as_nanos() < self.wakes_at.load(Ordering::SeqCst) || waiting > PILE {
            let _ = self.bell.try_send(());
        }
        waiting
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
        let outcome = sync::spawn("leasehold-worker", body);
        self.started.store(outcome.is_ok(), Ordering::Release);
        drop(runner);
        if let Err(error) = outcome {
            log::error!("no thread for renewals could be started, leases run out: {error}");
        }
    }
}

/// What [`Runner::wakes_at`] says while the worker is awake: whoever comes then rings.
const AWAKE: u64 = u64::MAX;
/// What it says while there is nothing to wake for.
const IDLE: u64 = AWAKE - 1;

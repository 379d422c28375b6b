//! The thread that keeps leases alive: one per client, with its own connection.
//!
//! Callers put work into an unbounded channel and do not wake the worker for it, which would cost
//! more than a lock: they ring a bell, a channel of one, only when their work is due before the
//! worker would wake by itself, or when much has piled up. A lease that is released in the
//! meantime is thrown away unseen, by callers too where the worker does not come to it: who locks
//! again and again while Redis keeps the worker waiting must not fill the memory.
//!
//! Each turn, all that is due goes out as one pipeline. Due times are rounded down to ticks of a
//! fraction of the lease, so that what falls due about the same time travels together.

use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::time::Duration;

use crate::base::sync::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use crate::base::sync::{self, Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{News, survive};
use crate::engine::lease::{LiveLease, UnderWay};
use crate::engine::release::{cause, giving_back, lost, taken};
use crate::engine::slot::Slot;
use crate::engine::{Callbacks, DEAD_AFTER};
use crate::protocol::{Errand, Protocol, Target, Task, Told, Verdict};
use crate::wire::failure::Failure;

/// More work than this wakes the worker, so that what is over is thrown away.
const PILE: usize = 1024;
/// More than this, and callers throw away too.
const HEAP: usize = 4 * PILE;
/// What failed is tried again after this share of its lease, within these bounds.
const RETRIES_PER_LEASE: u32 = 30;
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// Counts that people see follow within this time.
const SHOW_AFTER: Duration = Duration::from_millis(20);
/// Showing a count must not lengthen a lease.
const NO_LONGER: Duration = Duration::from_millis(1);

/// Work for the worker.
#[derive(Debug)]
enum Duty {
    /// Renew it, and find out when it is lost.
    Watch(Weak<LiveLease>),
    /// Show its hold count.
    Show(Weak<LiveLease>),
    /// Give it back for a thread that could not or need not do so itself.
    GiveBack(Arc<GiveBack>),
    /// End a linger whose time is over.
    LookAtLinger(Weak<Slot>),
    /// Call the user back.
    Announce(News),
}

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
    }

    /// Shows a hold count soon.
    pub(crate) fn show(&self, lease: &Arc<LiveLease>) {
        self.put(self.clock.now().after(SHOW_AFTER), Duty::Show(Arc::downgrade(lease)));
    }

    /// Takes an owner's value out of Redis: again and again until Redis has answered to a request
    /// sent after it settled, or it has surely expired.
    pub(crate) fn give_back(&self, duty: GiveBack) {
        self.unreturned.add(&duty);
        self.put(self.clock.now(), Duty::GiveBack(Arc::new(duty)));
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

/// The worker's thread.
struct Runner {
    protocol: Arc<dyn Protocol>,
    clock: Arc<dyn Clock>,
    exchange: Duration,
    callbacks: Callbacks,
    receiver: Arc<Receiver<Entry>>,
    rung: Receiver<()>,
    /// When the worker wakes by itself, in nanoseconds.
    wakes_at: Arc<AtomicU64>,
    agenda: BinaryHeap<Entry>,
    /// What is being done, put back on the agenda if that panics.
    hand: Vec<Duty>,
    /// So many turns have only one duty each, so that one that panics again keeps no other from
    /// being done.
    suspects: usize,
    unreturned: Arc<Unreturned>,
}

impl Runner {
    fn run(&mut self) {
        loop {
            match survive("the renewal worker, which goes on,", || self.turn()) {
                Some(true) => {}
                Some(false) => return,
                None => self.put_back(),
            }
        }
    }

    /// Puts what was being done back on the agenda. The duty that panicked alone waits longest.
    fn put_back(&mut self) {
        let duties = std::mem::take(&mut self.hand);
        let culprit = self.suspects > 0 && duties.len() == 1;
        let pause = if culprit { LONGEST_RETRY } else { SHORTEST_RETRY };
        self.suspects = if culprit { self.suspects - 1 } else { duties.len() };
        let due = self.clock.now().after(pause);
        self.agenda.extend(duties.into_iter().filter(|duty| !duty.is_over()).map(|duty| {
            let due = due.min(duty.latest().max(self.clock.now()));
            Entry { due, duty }
        }));
    }

    /// Does what is due and sleeps until more is. Answers whether to go on.
    fn turn(&mut self) -> bool {
        self.collect();
        let now = self.clock.now();
        let most = if self.suspects > 0 { 1 } else { usize::MAX };
        while let Some(entry) = self.agenda.peek()
            && entry.due <= now
            && self.hand.len() < most
        {
            self.hand.extend(self.agenda.pop().map(|entry| entry.duty));
        }
        let taken = self.hand.len();
        self.carry_out(now);
        self.suspects = self.suspects.saturating_sub(taken);
        self.hand.clear();
        self.sleep()
    }

    fn collect(&mut self) {
        while let Ok(entry) = self.receiver.try_recv() {
            if !entry.duty.is_over() {
                self.agenda.push(entry);
            }
        }
    }

    fn sleep(&mut self) -> bool {
        let next = self.agenda.peek().map_or(Moment::FAR, |entry| entry.due);
        self.wakes_at.store(next.as_nanos().min(IDLE), Ordering::SeqCst);
        // Work that came before that was stored may not have rung.
        let heard = if !self.receiver.is_empty() {
            Ok(())
        } else if next == Moment::FAR {
            self.rung.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            let mut heard = Ok(());
            self.clock.doze(next, &mut |left| heard = self.rung.recv_timeout(left));
            heard
        };
        self.wakes_at.store(AWAKE, Ordering::SeqCst);
        if heard != Err(RecvTimeoutError::Disconnected) {
            return true;
        }
        // The client is gone. Leases keep it alive, so only what was left to us remains.
        self.collect();
        self.agenda.retain(|entry| !entry.duty.is_over());
        match self.agenda.peek() {
            None => false,
            Some(entry) => {
                self.clock.doze(entry.due, &mut sync::sleep);
                true
            }
        }
    }

    fn carry_out(&mut self, now: Moment) {
        let mut jobs = Vec::new();
        let mut news = Vec::new();
        let mut follow = Vec::new();
        let mut ended = Vec::new();
        for duty in &self.hand {
            match duty {
                Duty::Watch(lease) => {
                    let Some(lease) = live(lease) else { continue };
                    if let Some(loss) = lease.expire(now) {
                        lost(&lease, loss);
                    } else if lease.renew_at() <= now {
                        jobs.push(Job::Renew(lease.command()));
                    } else {
                        follow.push(watch(&lease, lease.next_look()));
                    }
                }
                Duty::Show(lease) => {
                    jobs.extend(live(lease).map(|lease| Job::Show(lease.command())));
                }
                // A place in the queue may outlive a short lease.
                Duty::GiveBack(duty) if now < duty.settled.after(duty.ttl.max(DEAD_AFTER)) => {
                    jobs.push(Job::GiveBack(Arc::clone(duty)));
                }
                // It has expired by itself.
                Duty::GiveBack(duty) => self.unreturned.remove(duty),
                Duty::LookAtLinger(slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    let (lease, again) = slot.look_at_linger(now);
                    let look = || Duty::LookAtLinger(Arc::downgrade(&slot));
                    follow.extend(again.map(|due| Entry { due, duty: look() }));
                    ended.extend(lease.map(|lease| Arc::new(giving_back(&lease))));
                }
                Duty::Announce(told) => news.push(told.clone()),
            }
        }
        // Told once, whatever happens next.
        self.hand.retain(|duty| !matches!(duty, Duty::Announce(_)));
        for duty in ended {
            self.unreturned.add(&duty);
            self.hand.push(Duty::GiveBack(Arc::clone(&duty)));
            jobs.push(Job::GiveBack(duty));
        }
        self.agenda.extend(self.call_back(news, now));
        if !jobs.is_empty() {
            let told = self.ask(&jobs, now);
            let now = self.clock.now();
            for (job, told) in jobs.into_iter().zip(told) {
                let gives_back = job.gives_back();
                let next = job.settle(told, now);
                if let Some(duty) = gives_back
                    && next.is_none()
                {
                    self.unreturned.remove(&duty);
                }
                follow.extend(next);
            }
        }
        self.agenda.extend(follow);
    }

    /// Runs all errands as one pipeline, which takes no longer than a third of the shortest lease in
    /// it: when Redis is silent, its end must not be noticed late.
    fn ask(&self, jobs: &[Job], now: Moment) -> Vec<Result<Told, Failure>> {
        let errands: Vec<Errand<'_>> = jobs.iter().map(Job::errand).collect();
        let shortest = jobs.iter().filter_map(Job::ttl).min().unwrap_or(Duration::MAX);
        let most = self.exchange.min((shortest / 3).max(SHORTEST_RETRY));
        let told = self.protocol.run(&errands, now.after(most)).into_iter();
        // A refusal does not tell when it was asked for, but that was not before now.
        told.map(|told| told.or_else(|failure| Ok(Told { verdict: taken(failure)?, sent: now })))
            .collect()
    }

    /// Tells the user. Answers what could not be told yet.
    fn call_back(&self, mut news: Vec<News>, now: Moment) -> Vec<Entry> {
        news.retain(|news| self.callbacks.want(news));
        if news.is_empty() {
            return Vec::new();
        }
        let news: Arc<[News]> = news.into();
        let Err(error) = self.callbacks.call(Arc::clone(&news)) else { return Vec::new() };
        log::error!("no thread for a callback could be started: {error}");
        let due = now.after(LONGEST_RETRY);
        news.iter().map(|news| Entry { due, duty: Duty::Announce(news.clone()) }).collect()
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("agenda", &self.agenda.len()).finish_non_exhaustive()
    }
}

/// Something that is part of a pipeline.
enum Job {
    Renew(UnderWay),
    Show(UnderWay),
    GiveBack(Arc<GiveBack>),
}

impl Job {
    fn errand(&self) -> Errand<'_> {
        let of_lease =
            |lease: &'_ LiveLease, ttl| Task::Renew { ttl, count: lease.show_hold_count() };
        match self {
            Job::Renew(lease) => Errand {
                target: lease.slot().target(),
                owner: lease.owner(),
                task: of_lease(lease, lease.ttl()),
            },
            Job::Show(lease) => Errand {
                target: lease.slot().target(),
                owner: lease.owner(),
                task: of_lease(lease, NO_LONGER),
            },
            Job::GiveBack(duty) => {
                let task = Task::Release { ttl: duty.ttl, last_token: duty.last_token };
                Errand { target: &duty.target, owner: &duty.owner, task }
            }
        }
    }

    fn gives_back(&self) -> Option<Arc<GiveBack>> {
        match self {
            Job::GiveBack(duty) => Some(Arc::clone(duty)),
            Job::Renew(_) | Job::Show(_) => None,
        }
    }

    fn ttl(&self) -> Option<Duration> {
        match self {
            Job::Renew(lease) => Some(lease.ttl()),
            Job::Show(_) | Job::GiveBack(_) => None,
        }
    }

    /// Draws the conclusions from an answer. Answers what is to be done later.
    fn settle(self, told: Result<Told, Failure>, now: Moment) -> Option<Entry> {
        match (self, told) {
            (Job::Renew(lease), Ok(Told { verdict: Verdict::Done, sent })) => {
                lease.renewed(sent);
                lease.is_live().then(|| watch(&lease, lease.next_look()))
            }
            (Job::Renew(lease) | Job::Show(lease), Ok(Told { verdict, .. })) => {
                if verdict != Verdict::Done
                    && let Some(loss) = lease.lose(cause(verdict), now)
                {
                    lost(&lease, loss);
                }
                None
            }
            (Job::Renew(lease), Err(failure)) => {
                lease.renewal_failed();
                log::warn!("lock {:?} was not renewed: {failure}", lease.slot().target().name());
                let due = now.after(retry_after(lease.ttl())).min(lease.valid_until());
                lease.is_live().then(|| watch(&lease, due))
            }
            // The next renewal shows it too.
            (Job::Show(_), Err(_)) => None,
            (Job::GiveBack(duty), Ok(told))
                if told.sent >= duty.settled || mutated!("leave-sent-once") =>
            {
                None
            }
            (Job::GiveBack(duty), Ok(_)) => {
                Some(Entry { due: duty.settled, duty: Duty::GiveBack(duty) })
            }
            (Job::GiveBack(duty), Err(_)) => {
                let due = now.after(retry_after(duty.ttl));
                Some(Entry { due, duty: Duty::GiveBack(duty) })
            }
        }
    }
}

impl Duty {
    /// When it must be looked at, whatever happens: the end of a lease is never told late.
    fn latest(&self) -> Moment {
        match self {
            Duty::Watch(lease) => lease.upgrade().map_or(Moment::FAR, |lease| lease.valid_until()),
            _ => Moment::FAR,
        }
    }

    /// Whether there is nothing to do any more.
    fn is_over(&self) -> bool {
        match self {
            Duty::Watch(lease) | Duty::Show(lease) => live(lease).is_none(),
            Duty::LookAtLinger(slot) => slot.strong_count() == 0,
            Duty::GiveBack(_) | Duty::Announce(_) => false,
        }
    }
}

/// The lease, unless it is over. A guard may still have one that was lost or given back, which must
/// not be renewed once more.
fn live(lease: &Weak<LiveLease>) -> Option<Arc<LiveLease>> {
    lease.upgrade().filter(|lease| lease.is_live())
}

fn watch(lease: &Arc<LiveLease>, due: Moment) -> Entry {
    Entry { due, duty: Duty::Watch(Arc::downgrade(lease)) }
}

fn retry_after(ttl: Duration) -> Duration {
    (ttl / RETRIES_PER_LEASE).clamp(SHORTEST_RETRY, LONGEST_RETRY)
}

/// Work and when it is due; the soonest is the greatest, as the heap wants it.
#[derive(Debug)]
struct Entry {
    due: Moment,
    duty: Duty,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

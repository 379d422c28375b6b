//! The task queue, the turns of the worker, and their log lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use super::report::Report;
use super::runner::{
    ANNOUNCE_EVERY, ANNOUNCE_TICK, MAX_ANNOUNCED, MAX_ANNOUNCED_BYTES, Runner, need,
};
use super::scheduled_task::{ScheduledTask, Watched};
use super::task_queue::{
    BREAK_TICK, IDLE_AFTER, MAX_ASKED, MAX_RELEASE_REQUESTS, MAX_RELEASES_PER_RUN, TaskQueue,
};
use super::worker_request::{LeaseNeed, Next, WorkerRequest};
use super::{Removal, WatchedSlot, Worker};
use crate::base::id::Identity;
use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::option::{Lease as LeaseOption, LockOptions};
use crate::base::sync::channel::{Sender, unbounded};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, OnceLock, Ordering, Weak, thread_local};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::{Clock, Moment};
use crate::engine::callback::Notification;
use crate::engine::heartbeat::DEAD_AFTER;
use crate::engine::hold::Hold;
use crate::engine::holding::Holding;
use crate::engine::lease::{Grant, Lease};
use crate::engine::long_wait::LongWait;
use crate::engine::owner_value::OwnerValue;
use crate::engine::slot::{Slot, WaitLimit};
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::mutex::MutexKind;
use crate::observe::{Exchange, Observer, Renewed};
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::protocol::script_protocol::ScriptProtocol;
use crate::protocol::target::Target;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::link::{Delivery, FaultyLink};
use crate::topology::memory::server::MemoryServer;
use crate::wire::failure::Failure;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn task(number: u64) -> Arc<Removal> {
    thread_local!(static VALUES: RefCell<HashMap<u64, Arc<OwnerValue>>> = RefCell::default());
    let new = || {
        let target = Target::new(&MutexKind, Name::new(b"", b"x").unwrap());
        let options = LockOptions::new().lease(LeaseOption::fixed(SECOND));
        OwnerValue::new(target, number.to_le_bytes(), options)
    };
    let value = VALUES.with(|it| Arc::clone(it.borrow_mut().entry(number).or_insert_with(new)));
    Arc::new(Removal::of_attempt(&value, Moment::PAST))
}

/// Leases of a slot of a client whose clock stands, and the moment that it shows.
fn leases(count: u32) -> (Arc<Slot>, Vec<Arc<Lease>>, Moment) {
    let (clock, engine, _) = on_a_standing_clock();
    let now = clock.now();
    let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
    let lease = |number: u32| {
        let options = LockOptions::new().lease(LeaseOption::renewed(SECOND * 6));
        let value = OwnerValue::new(Arc::clone(slot.target()), number.to_le_bytes(), options);
        Lease::new(value, Arc::clone(&engine.clock), Grant::test(SECOND * 6, now), &options)
    };
    let leases = (0..count).map(lease).collect();
    (slot, leases, now)
}

/// Makes the worker come to a lease.
fn watch(task_queue: &TaskQueue, lease: &Arc<Lease>, slot: &Arc<Slot>, due: Moment) -> bool {
    task_queue.watch(lease, Arc::<Slot>::downgrade(slot), due)
}

#[test]
fn a_turn_takes_all_leases_and_some_pending_releases() {
    let (slot, leases, now) = leases(500);
    let task_queue = TaskQueue::new();
    (0..2_000)
        .for_each(|number| _ = task_queue.release_in_background(now.before(SECOND), task(number)));
    for lease in &leases {
        watch(&task_queue, lease, &slot, now);
        watch(&task_queue, lease, &slot, now.after(SECOND));
        assert_eq!(lease.due(), now, "the earlier moment stays");
    }
    assert_eq!(task_queue.len(), (500, 2_000, 0));
    let mut in_progress = Vec::new();
    task_queue.take(now, &mut in_progress);
    let looks = in_progress.iter().filter(|task| matches!(task, ScheduledTask::Look(..))).count();
    assert_eq!((looks, in_progress.len()), (500, 500 + MAX_RELEASES_PER_RUN));
}

#[test]
fn a_turn_asks_about_a_thousand_leases_those_that_end_first() {
    let (slot, leases, now) = leases(MAX_ASKED as u32 + 1);
    let task_queue = TaskQueue::new();
    let ask = |lease| task_queue.ask(lease, Arc::<Slot>::downgrade(&slot));
    let [last, others @ ..] = leases.as_slice() else { unreachable!() };
    last.lengthen(now, HOUR);
    ask(last);
    others.iter().chain(others).for_each(ask);
    let rest = now.after(SECOND);
    task_queue.rest_asks(rest);
    assert!(task_queue.take_asks(now).is_empty());
    assert_eq!(task_queue.sleep(now), rest);
    assert_eq!(task_queue.take_asks(rest).len(), MAX_ASKED);
    assert!(
        matches!(task_queue.take_asks(rest).as_slice(), [(lease, _)] if lease.as_ptr() == Arc::as_ptr(last))
    );
    // One that is released needs no reply.
    ask(last);
    task_queue.forget(last);
    assert!(task_queue.take_asks(rest).is_empty());
    assert_eq!(task_queue.sleep(rest), Moment::FAR);
}

#[test]
fn leases_are_looked_through_once_in_a_second_after_a_break() {
    let (slot, leases, now) = leases(2);
    let task_queue = TaskQueue::new();
    leases.iter().for_each(|lease| _ = watch(&task_queue, lease, &slot, now.after(HOUR)));
    assert!(task_queue.begin_sifting(now).is_empty(), "nothing has ended");
    task_queue.note_break(now);
    assert_eq!(task_queue.sleep(now), now);
    assert_eq!(task_queue.begin_sifting(now).len(), 2);
    task_queue.note_break(now.after(SECOND / 4));
    task_queue.note_break(now.after(SECOND / 2));
    assert!(task_queue.begin_sifting(now.after(SECOND / 2)).is_empty());
    assert_eq!(task_queue.sleep(now.after(SECOND / 2)), now.after(BREAK_TICK));
    assert_eq!(task_queue.begin_sifting(now.after(BREAK_TICK)).len(), 2);
    assert!(task_queue.begin_sifting(now.after(HOUR)).is_empty(), "it was done");
}

#[test]
fn a_lock_taken_over_and_over_wakes_the_worker_once() {
    let (slot, leases, now) = leases(2);
    let [lease, other] = [&leases[0], &leases[1]];
    let task_queue = TaskQueue::new();
    let first = now.after(SECOND);
    assert_eq!(task_queue.sleep(now), Moment::FAR);
    assert!(watch(&task_queue, lease, &slot, first), "the worker slept for ever");
    task_queue.wake();
    for number in 0..4 {
        task_queue.forget(lease);
        assert_eq!(lease.due(), Moment::FAR);
        assert_eq!(task_queue.sleep(now), first);
        let due = first.after(SECOND * number);
        assert!(!watch(&task_queue, lease, &slot, due), "it wakes in time");
        task_queue.wake();
    }
    // An earlier look does wake it, and is not slept through.
    task_queue.sleep(now);
    assert!(watch(&task_queue, other, &slot, now.after(SECOND / 2)), "it sleeps beyond this");
    task_queue.wake();
    assert_eq!(task_queue.sleep(now), now.after(SECOND / 2));
    // Nor is one that was added while it was awake.
    task_queue.wake();
    assert!(!watch(&task_queue, other, &slot, now.after(SECOND / 4)), "it is awake");
    assert_eq!(task_queue.sleep(now), now.after(SECOND / 4));
    task_queue.wake();
    // A client that is idle by then wakes no more.
    task_queue.forget(lease);
    task_queue.forget(other);
    assert_eq!(task_queue.sleep(first), Moment::FAR);
}

#[test]
fn an_idle_worker_soon_forgets_a_look_of_tomorrow() {
    let (slot, leases, now) = leases(1);
    let task_queue = TaskQueue::new();
    task_queue.sleep(now);
    assert!(watch(&task_queue, &leases[0], &slot, now.after(24 * HOUR)));
    task_queue.wake();
    task_queue.forget(&leases[0]);
    assert_eq!(task_queue.sleep(now), now.after(IDLE_AFTER));
    // Another turn does not put that off.
    task_queue.wake();
    assert_eq!(task_queue.sleep(now.after(SECOND)), now.after(IDLE_AFTER));
    task_queue.wake();
    assert_eq!(task_queue.sleep(now.after(IDLE_AFTER)), Moment::FAR);
}

#[test]
fn pending_release_is_listed_once_until_done() {
    let task_queue = TaskQueue::new();
    let clock = Busy::new();
    let (first, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
    task_queue.release_in_background(later, task(1));
    task_queue.release_in_background(first, task(1));
    assert_eq!(task_queue.len().1, 1);
    let mut in_progress = Vec::new();
    task_queue.take(first, &mut in_progress);
    assert_eq!((in_progress.len(), task_queue.len().1), (1, 0));
    // Another release of the same value is added while the first is under way.
    task_queue.release_in_background(later, task(1));
    task_queue.release_done(&task(1));
    assert_eq!(task_queue.wait_released(&clock, Moment::PAST).len(), 1);
    task_queue.take(later, &mut in_progress);
    task_queue.release_done(&task(1));
    assert!(task_queue.wait_released(&clock, Moment::PAST).is_empty());
}

#[test]
fn a_shutdown_waits_for_no_thread_that_is_at_work() {
    let task_queue = TaskQueue::new();
    let now = Moment::from_nanos(5);
    let later = now.after(HOUR);
    task_queue.release_later(later, task(1));
    task_queue.sleep(now);
    assert!(task_queue.flush_releases(now), "the worker sleeps on");
    task_queue.release_later(later, task(2));
    // A release that failed keeps its pause.
    task_queue.release_in_background(later, task(3));
    let mut in_progress = Vec::new();
    task_queue.take(now, &mut in_progress);
    assert_eq!((in_progress.len(), task_queue.len().1), (2, 1));
}

#[test]
fn kept_value_is_owed_when_its_time_is_over_and_not_before() {
    let task_queue = TaskQueue::new();
    let clock = ManualClock::new(false);
    let now = clock.now();
    let until = now.after(HOUR);
    let kept = |until| Arc::new(Removal { kept_until: until, ..Arc::into_inner(task(1)).unwrap() });
    let unreleased = || task_queue.wait_released(&clock, Moment::PAST).len();
    let mut in_progress = Vec::new();
    task_queue.release_later(now.after(SECOND), kept(None));
    assert_eq!(unreleased(), 1);
    task_queue.release_in_background(now, kept(Some(until)));
    task_queue.flush_releases(now);
    task_queue.release_later(until.after(SECOND), task(1));
    task_queue.take(until.before(SECOND), &mut in_progress);
    assert_eq!((in_progress.len(), unreleased()), (0, 0));
    clock.put_forward(until);
    assert_eq!(unreleased(), 1);
    task_queue.take(until, &mut in_progress);
    // That failed, and it is tried again after a pause.
    task_queue.release_in_background(until.after(SECOND), kept(Some(until)));
    assert_eq!((in_progress.len(), unreleased()), (1, 1));
    task_queue.take(until.after(SECOND), &mut in_progress);
    task_queue.release_done(&task(1));
    assert_eq!((in_progress.len(), unreleased()), (2, 0));
}

/// Rule 6.
#[test]
fn reply_is_final_if_no_request_can_outlive_the_release() {
    let (task, sent) = (task(1), ManualClock::START);
    assert!(task.is_final(sent));
    task.value.unanswered_until(sent);
    assert!(task.is_final(sent) && !task.is_final(sent.before(Duration::from_nanos(1))));
}

#[test]
fn removal_waits_for_a_lock_that_is_kept_until_its_end() {
    let (_slot, leases, now) = leases(1);
    leases[0].keep_until(now);
    assert_eq!(Removal::of_lease(&leases[0], now).kept_until, None);
    let until = now.after(Duration::from_nanos(1));
    leases[0].keep_until(until);
    assert_eq!(Removal::of_lease(&leases[0], now).kept_until, Some(until));
}

#[test]
fn release_requests_in_the_queue_are_bounded() {
    let task_queue = TaskQueue::new();
    for _ in 0..MAX_RELEASE_REQUESTS * 2 {
        task_queue.notify(Moment::PAST, Notification::Requested(b"x".to_vec()));
    }
    assert_eq!(task_queue.len().2, MAX_RELEASE_REQUESTS);
}

/// A clock that adds a task whenever the worker reads it.
#[derive(Debug)]
struct Busy {
    checks: AtomicU64,
    task_queue: OnceLock<Weak<TaskQueue>>,
}

impl Busy {
    fn new() -> Busy {
        Busy { checks: AtomicU64::new(0), task_queue: OnceLock::new() }
    }
}

impl Clock for Busy {
    fn now(&self) -> Moment {
        let checks = self.checks.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(checks < 1_000, "the turn does not end");
        let now = Moment::from_nanos(checks);
        if let Some(task_queue) = self.task_queue.get().and_then(Weak::upgrade) {
            task_queue.notify(now, Notification::Requested(b"x".to_vec()));
        }
        now
    }

    fn wait_until(&self, _: Moment, _: &mut dyn FnMut(Duration)) {}
}

#[test]
fn a_turn_ends_although_more_falls_due_meanwhile() {
    let clock = Arc::new(Busy::new());
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = MemoryBackend::new(MemoryServer::new(as_clock()), Arc::new(Identity::new("")));
    let worker = Worker::new(
        Arc::new(ScriptProtocol::new(memory)),
        as_clock(),
        SECOND,
        Callbacks::default(),
    );
    let mut runner = worker.runner.lock().take().unwrap();
    worker.started.store(true, Ordering::Release);
    // A task that is due some day, so that the worker does not sleep without end.
    worker.task_queue.notify(Moment::FAR.before(HOUR), Notification::Requested(b"x".to_vec()));
    _ = clock.task_queue.get_or_init(|| Arc::downgrade(&worker.task_queue));
    for turn in 1..=10 {
        assert!(runner.run_due(), "{turn}");
    }
}

/// A slot that counts the looks at it, and may panic at each.
#[derive(Debug)]
struct Looked {
    panics: bool,
    looks: AtomicU64,
}

impl WatchedSlot for Looked {
    fn end_over(self: Arc<Self>, _: &Arc<Lease>) -> Option<Vec<Loss>> {
        Some(Vec::new())
    }

    fn announce(self: Arc<Self>, _: Moment, _: Duration) -> Option<Option<Arc<Target>>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "as a test wants");
        Some(None)
    }
}

#[test]
fn panic_in_one_look_does_not_stop_the_others() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let slots = [true, false].map(|panics| Arc::new(Looked { panics, looks: AtomicU64::new(0) }));
    for slot in &slots {
        let slot: Arc<dyn WatchedSlot> = Arc::<Looked>::clone(slot);
        engine.worker.task_queue.watch_slot(&slot, clock.now());
    }
    // The one that was cut short is repeated.
    for looks in [[1, 1], [2, 1]] {
        engine.worker.wake();
        assert!(runner.run_due());
        assert_eq!(slots.each_ref().map(|slot| slot.looks.load(Ordering::SeqCst)), looks);
        clock.put_forward(clock.now().after(ANNOUNCE_TICK));
    }
}

#[test]
fn look_cut_short_by_a_panic_is_repeated() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let Holding { hold, .. } = granted(&engine, "x", SECOND * 6);
    clock.put_forward(clock.now().after(SECOND * 3));
    engine.worker.task_queue.take(clock.now(), &mut runner.in_progress);
    assert_eq!(runner.in_progress.len(), 1);
    assert_eq!(hold.lease.due(), hold.valid_until(), "the end is not missed in any case");
    runner.put_back();
    assert!(hold.lease.due() < clock.now().after(SECOND), "its renewal comes too late");
}

/// The worker finds it held each time, and the next linger begins at once.
#[test]
fn lease_that_is_taken_over_and_over_keeps_its_timer() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let Holding { slot, hold: _hold } = granted(&engine, "x", SECOND * 30);
    let options = LockOptions::new().lease(LeaseOption::renewed(SECOND * 30)).linger(SECOND / 5);
    let value = OwnerValue::new(Arc::clone(slot.target()), *b"other", options);
    let grant = Grant::test(SECOND * 30, clock.now());
    let lease = Lease::new(value, Arc::clone(&engine.clock), grant, &options);
    let queue = &engine.worker.task_queue;
    let due = clock.now().after(SECOND / 5);
    lease.linger(due);
    watch(queue, &lease, &slot, due);
    lease.begin_hold(&options, Moment::FAR, clock.now());
    queue.take(due, &mut runner.in_progress);
    assert_eq!(lease.due(), due.after(SECOND / 5), "the thread would ask for a look");
    // A thread that keeps it is left alone from the second look on.
    queue.take(lease.due(), &mut runner.in_progress);
    assert_eq!(lease.due(), lease.renew_at());
}

/// Its thread has no processor, and others are due.
#[test]
fn slot_that_is_locked_keeps_no_lease_from_renewal() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let [one, other] = ["x", "y"].map(|name| granted(&engine, name, SECOND * 6));
    let before = [&one, &other].map(|holding| holding.hold.valid_until());
    clock.put_forward(clock.now().after(SECOND * 3));
    // The server in memory knows neither, so it is a fault that is looked for: each was asked about.
    one.slot.while_locked(|| {
        engine.worker.wake();
        assert!(runner.run_due());
        assert!(one.hold.lease.is_over() && other.hold.lease.is_over(), "{before:?}");
        assert!(!one.hold.is_valid_at(clock.now()));
    });
    assert!(one.hold.is_live() && other.hold.loss().is_some());
    clock.put_forward(clock.now().after(SECOND));
    engine.worker.wake();
    assert!(runner.run_due());
    assert!(one.hold.loss().is_some(), "nobody comes back to it");
}

thread_local! {
    /// The lines that this thread has logged.
    static LINES: RefCell<Vec<(log::Level, String)>> = const { RefCell::new(Vec::new()) };
}

/// A logger that keeps the lines of each thread.
struct Keeping;

impl log::Log for Keeping {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = (record.level(), record.args().to_string());
        LINES.with(|lines| lines.borrow_mut().push(line));
    }

    fn flush(&self) {}
}

/// The log lines of one turn of the worker: its warnings, and how many other lines there are.
fn written(runner: &mut Runner) -> (Vec<String>, usize) {
    let _ = log::set_logger(&Keeping);
    log::set_max_level(log::LevelFilter::Debug);
    LINES.with(|lines| lines.borrow_mut().clear());
    assert!(runner.run_due());
    let lines = LINES.with(|lines| lines.take());
    let all = lines.len();
    let is_warning = |(level, _): &(log::Level, String)| *level <= log::Level::Warn;
    let warnings: Vec<String> =
        lines.into_iter().filter(is_warning).map(|(_, line)| line).collect();
    let others = all - warnings.len();
    (warnings, others)
}

/// An outage lasts until all leases are over.
#[test]
fn thousand_failures_in_a_turn_log_one_warning() {
    const LOCKS: u32 = 1_000;
    let (clock, engine, mut runner, link) = behind_a_link();
    let worker = &engine.worker;
    let holdings: Vec<Holding> = (0..LOCKS)
        .map(|number| {
            let holding = granted(&engine, &format!("x{number}"), SECOND * 6);
            // Not all of them are acquired at the same moment.
            clock.put_forward(clock.now().after(Duration::from_micros(100)));
            holding
        })
        .collect();
    link.set_lasting(Some(Delivery::Refused));
    // One turn of the worker, which would otherwise sleep until something is due.
    let ring = |runner: &mut Runner| {
        worker.wake();
        written(runner)
    };
    let (mut turns, mut warned, mut others) = (0, 0, 0);
    clock.put_forward(clock.now().after(SECOND * 3));
    while holdings.iter().any(|holding| holding.hold.is_live()) {
        let (warnings, rest) = ring(&mut runner);
        if turns == 0 {
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            let line = &warnings[0];
            assert!(
                line.starts_with("1000 locks: lock \"x") && line.contains("\" was not renewed: "),
                "{line}"
            );
            assert!(line.contains("; first retry in "), "{line}");
            assert_eq!(rest, 1_000);
        }
        // One of renewals, and one of losses.
        assert!(warnings.len() <= 2, "{warnings:?}");
        turns += 1;
        warned += warnings.len();
        others += rest;
        let next = worker.task_queue.next_due();
        if next != Moment::FAR {
            // A turn takes some time.
            clock.put_forward(next.max(clock.now().after(Duration::from_millis(1))));
        }
    }
    assert!(warned < 1_000 && others > 90_000, "{warned} warnings, {others} others in {turns}");
}

#[test]
fn single_failure_and_single_loss_are_logged_once() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let Holding { hold, .. } = granted(&engine, "x", SECOND * 6);
    let name = Name::new(b"", b"x").unwrap();
    let mut report = Report::default();
    report.failed(&hold.lease, Failure::silent(), 1, Some(clock.now()));
    report.lost(Loss::new(name, hold.token(), LossCause::Taken, true), 0);
    report.renewed(&hold.lease, 0);
    runner.report = report;
    engine.worker.wake();
    let (warnings, others) = written(&mut runner);
    let is_of_one = |line: &String| !line.contains("locks:");
    assert!(warnings.len() == 2 && warnings.iter().all(is_of_one), "{warnings:?}");
    assert_eq!(others, 0);
}

/// A worker whose turns are run by the test, on a clock that stands still.
fn on_a_standing_clock() -> (Arc<ManualClock>, Arc<Engine>, Runner) {
    let (clock, engine, runner, _) = behind_a_link();
    (clock, engine, runner)
}

/// The same, with its link to the server.
fn behind_a_link() -> (Arc<ManualClock>, Arc<Engine>, Runner, Arc<FaultyLink>) {
    let clock = Arc::new(ManualClock::new(false));
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = MemoryBackend::new(MemoryServer::new(as_clock()), Arc::new(Identity::new("")));
    let link = Arc::clone(memory.link());
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None };
    let engine = Engine::new(
        Arc::new(ScriptProtocol::new(memory)),
        as_clock(),
        bounds,
        Callbacks::default(),
    );
    let runner = engine.worker.runner.lock().take().unwrap();
    engine.worker.started.store(true, Ordering::Release);
    (clock, engine, runner, link)
}

/// A lock that was granted just now.
fn granted(engine: &Engine, name: &str, ttl: Duration) -> Holding {
    granted_for(engine, name, LeaseOption::renewed(ttl))
}

/// The same with this lease.
fn granted_for(engine: &Engine, name: &str, lease: LeaseOption) -> Holding {
    let sent = engine.now();
    let options = LockOptions::new().lease(lease);
    let slot = engine.slot(&MutexKind, Name::new(b"", name.as_bytes()).unwrap());
    let value = OwnerValue::new(Arc::clone(slot.target()), name.as_bytes(), options);
    let grant = Grant::test(lease.ttl(), sent);
    let hold = Hold::first(value, Arc::clone(&engine.clock), grant, &options);
    slot.enter(
        &options,
        WaitLimit::TryOnce,
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    slot.granted(&hold, 0);
    Holding::new(&slot, hold)
}

/// A clock that panics when a turn reads it for the second time.
#[derive(Debug)]
struct Panicking(AtomicU64, Moment);

impl Clock for Panicking {
    fn now(&self) -> Moment {
        assert_ne!(self.0.fetch_add(1, Ordering::SeqCst), 1, "the test wants this panic");
        self.1
    }
}

#[test]
fn loss_of_a_turn_that_panics_is_logged_by_the_next() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let lost = granted(&engine, "short", SECOND);
    let _renewed = granted(&engine, "long", SECOND * 6);
    clock.put_forward(clock.now().after(SECOND * 3));
    runner.clock = Arc::new(Panicking(AtomicU64::new(0), clock.now()));
    let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.run_due()));
    assert!(turn.is_err() && !lost.hold.is_live());
    runner.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    runner.put_back();
    engine.worker.wake();
    let (warnings, _) = written(&mut runner);
    assert!(warnings.iter().any(|line| line.contains("short")), "{warnings:?}");
}

#[test]
fn renewal_that_fails_during_its_release_is_no_warning() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let Holding { slot, hold } = granted(&engine, "x", SECOND * 6);
    let (lease, slot) = (Arc::clone(&hold.lease), Arc::<Slot>::downgrade(&slot));
    let _under_way = lease.renewal();
    let watched = Watched { lease, slot };
    let request =
        WorkerRequest::Lease { need: LeaseNeed::Renew(hold.lease.ttl()), watched, _under_way };
    hold.lease.release();
    let mut report = Report::default();
    let protocol = &*engine.protocol;
    let next = request.handle_reply(Err(Failure::silent()), clock.now(), protocol, &mut report);
    assert!(matches!(next, Next::Nothing));
    runner.report = report;
    engine.worker.wake();
    let (warnings, others) = written(&mut runner);
    assert!(warnings.is_empty() && others == 1, "{warnings:?}, {others} others");
}

/// A slot that is in use all the time, and notes whether it was ever announced.
#[derive(Debug)]
struct Lasting {
    task_queue: Arc<TaskQueue>,
    target: Arc<Target>,
    was_announced: AtomicBool,
}

impl WatchedSlot for Lasting {
    fn end_over(self: Arc<Self>, _: &Arc<Lease>) -> Option<Vec<Loss>> {
        Some(Vec::new())
    }

    fn announce(self: Arc<Self>, now: Moment, again: Duration) -> Option<Option<Arc<Target>>> {
        self.was_announced.fetch_or(again == ANNOUNCE_EVERY, Ordering::SeqCst);
        let slot: Arc<dyn WatchedSlot> = Arc::<Lasting>::clone(&self);
        self.task_queue.watch_slot(&slot, now.after(again).rounded_down(ANNOUNCE_TICK));
        Some(Some(Arc::clone(&self.target)))
    }
}

/// Redis would keep the lock for a holder that has lost it.
#[test]
fn lease_is_renewed_before_its_end_and_not_at_it() {
    let (_slot, leases, _) = leases(1);
    let end = leases[0].lost_at();
    assert!(need(&leases[0], end, false).is_none());
    let before = need(&leases[0], end.before(Duration::from_nanos(1)), false);
    assert!(matches!(before, Some(LeaseNeed::Renew(ttl)) if ttl == leases[0].ttl()));
}

/// So many of that name.
fn lasting(runner: &Runner, count: usize, name: &[u8]) -> Vec<Arc<Lasting>> {
    let slot = |_| Lasting {
        task_queue: Arc::clone(&runner.task_queue),
        target: Target::new(&MutexKind, Name::new(b"", name).unwrap()),
        was_announced: AtomicBool::new(false),
    };
    (0..count).map(slot).map(Arc::new).collect()
}

/// Makes the worker come to these, at that moment.
fn watch_all(runner: &Runner, slots: &[Arc<Lasting>], due: Moment) {
    for slot in slots {
        let slot: Arc<dyn WatchedSlot> = Arc::<Lasting>::clone(slot);
        runner.task_queue.watch_slot(&slot, due);
    }
}

#[test]
fn one_command_announces_so_many_locks_and_bytes() {
    for (count, name) in [(MAX_ANNOUNCED + 100, vec![b'x']), (400, vec![b'x'; 1_000])] {
        let (clock, engine, mut runner) = on_a_standing_clock();
        let slots = lasting(&runner, count, &name);
        watch_all(&runner, &slots, clock.now());
        engine.worker.wake();
        assert!(runner.run_due());
        let announced = |it: &&Arc<Lasting>| it.was_announced.load(Ordering::SeqCst);
        let room = MAX_ANNOUNCED_BYTES.div_ceil(slots[0].target.key().len());
        assert_eq!(slots.iter().filter(announced).count(), MAX_ANNOUNCED.min(room));
    }
}

#[test]
fn slot_is_asked_at_the_moment_of_its_announcement() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let Holding { slot, hold } = granted(&engine, "x", SECOND * 60);
    let due = clock.now().after(SECOND);
    hold.lease.announce_by(due);
    watch(&runner.task_queue, &hold.lease, &slot, due);
    clock.put_forward(due);
    engine.worker.wake();
    assert!(runner.run_due());
    assert!(hold.lease.announce_at() > due, "and told a later one");
}

/// 20,000 have room in the time after which each is announced again.
#[test]
fn none_of_very_many_locks_is_never_announced() {
    let (clock, engine, mut runner) = on_a_standing_clock();
    let slots = lasting(&runner, 25_000, b"x");
    let start = clock.now().after(SECOND).rounded_down(SECOND);
    watch_all(&runner, &slots, start);
    for second in 0..120 {
        clock.put_forward(start.after(SECOND * second));
        engine.worker.wake();
        assert!(runner.run_due());
    }
    let announced = slots.iter().filter(|slot| slot.was_announced.load(Ordering::SeqCst)).count();
    assert!(announced > 22_000, "{announced}");
}

#[test]
fn workers_connection_is_ordered_once_halfway_to_its_first_look() {
    let (clock, _engine, mut runner, link) = behind_a_link();
    link.miss_worker_connection();
    let slots = lasting(&runner, 2, b"x");
    let begin = clock.now();
    let at = |seconds| begin.after(SECOND * seconds);
    let after = |runner: &mut Runner, seconds| {
        let next = runner.connect_early(at(seconds));
        (next, link.worker_connection_orders().expect("it is missing"))
    };
    assert_eq!(after(&mut runner, 0), (Moment::FAR, 0), "nothing is due");
    watch_all(&runner, &slots[..1], at(8));
    assert_eq!(after(&mut runner, 0), (at(4), 0));
    assert_eq!(after(&mut runner, 2), (at(4), 0));
    assert_eq!(after(&mut runner, 4), (Moment::FAR, 1));
    assert_eq!(after(&mut runner, 5), (Moment::FAR, 1), "it was ordered");
    watch_all(&runner, &slots[1..], at(7));
    assert_eq!(after(&mut runner, 5), (at(6), 1), "that was for another look");
}

/// Sends what it is told: of renewals their count, of an exchange nothing.
struct Told(Sender<Option<u32>>);

impl Observer for Told {
    fn exchange(&self, _: &Exchange) {
        self.0.send(None).unwrap();
    }

    fn renewed(&self, renewed: &Renewed) {
        self.0.send(Some(renewed.count)).unwrap();
    }
}

#[test]
fn observers_are_told_of_the_renewals_that_were_confirmed() {
    use Ownership::{Gone, Owned, Taken};
    let (clock, _engine, mut runner) = on_a_standing_clock();
    let (sender, told) = unbounded();
    runner.callbacks.observers.add(Arc::new(Told(sender)));
    for (ownerships, is_renewal) in
        [([Owned; 3], false), ([Gone, Taken, Taken], true), ([Owned, Owned, Gone], true)]
    {
        let sent = clock.now();
        let outcomes = ownerships.map(|ownership| Ok(OwnershipReply::new(ownership, sent)));
        runner.tell(&outcomes, [is_renewal; 3].into_iter(), sent);
    }
    let all: Vec<_> = (0..4).map(|_| told.recv().unwrap()).collect();
    assert_eq!(all, [None, None, None, Some(2)]);
}

/// A renewal that names the line is refused there for as long as the slot moves.
#[test]
fn silent_lease_insists_after_a_refusal_by_a_node_that_moves_its_slot() {
    for (refusal, insists) in [("TRYAGAIN the slot moves", true), ("OOM memory is full", false)] {
        let (clock, engine, _) = on_a_standing_clock();
        let lease = LeaseOption::renewed(SECOND * 6).recoverable_for(SECOND * 60);
        let Holding { slot, hold } = granted_for(&engine, "x", lease);
        let lease = &hold.lease;
        clock.put_forward(lease.valid_until());
        let slot: Weak<dyn WatchedSlot> = Arc::<Slot>::downgrade(&slot);
        let watched = Watched { lease: Arc::clone(lease), slot };
        let _under_way = lease.renewal();
        let request =
            WorkerRequest::Lease { need: LeaseNeed::Renew(hold.lease.ttl()), watched, _under_way };
        let reply = Err(Failure::refused(refusal));
        request.handle_reply(reply, clock.now(), &*engine.protocol, &mut Report::default());
        clock.put_forward(clock.now().after(DEAD_AFTER));
        assert_eq!(lease.yields_for().is_zero(), insists, "{refusal}");
    }
}

/// Counts how often it is read and waited on.
#[derive(Debug, Default)]
struct Waited {
    looks: AtomicU64,
    waits: AtomicU64,
}

impl Clock for Waited {
    fn now(&self) -> Moment {
        self.looks.fetch_add(1, Ordering::SeqCst);
        ManualClock::START
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        wait(until.since(ManualClock::START));
    }
}

/// The clock wakes a thread each second.
#[test]
fn wait_without_end_does_not_use_the_clock() {
    for (deadline, uses_clock) in [(ManualClock::START.after(HOUR), true), (Moment::FAR, false)] {
        let (task_queue, clock, removal) = (TaskQueue::new(), Waited::default(), task(1));
        task_queue.release_in_background(Moment::PAST, Arc::clone(&removal));
        task_queue.take(ManualClock::START, &mut Vec::new());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| task_queue.wait_released(&clock, deadline));
            // The waiter reads the clock with the queue locked, and unlocks that in its wait.
            while clock.looks.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            task_queue.release_done(&removal);
            assert!(waiter.join().unwrap().is_empty());
        });
        assert_eq!(clock.waits.into_inner() > 0, uses_clock, "{deadline:?}");
    }
}

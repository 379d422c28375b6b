//! The tokens of the next holds of a lease, and evictions that are reported early.

use std::fmt;
use std::time::Duration;

use crate::base::id::Identity;
use crate::base::loss::LossCause;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::share::{Access, Share};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::closing::ClosingPhase;
use crate::engine::hold::Hold;
use crate::engine::lease::Grant;
use crate::engine::long_wait::LongWait;
use crate::engine::owner_value::OwnerValue;
use crate::engine::slot::state::EnterOutcome;
use crate::engine::slot::waiter::EnterRequest;
use crate::engine::slot::{Admission, Slot, Unlocked, WaitLimit};
use crate::engine::worker::WatchedSlot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::mutex::MutexKind;
use crate::kind::weighted::RW_LOCK;
use crate::protocol::inspection::View;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;

const SECOND: Duration = Duration::from_secs(1);

/// A clock on which each reading takes `look` nanoseconds.
#[derive(Debug, Default)]
struct Ticking {
    nanos: AtomicU64,
    look: u64,
    /// Called by the next reading.
    next: Hook,
    /// How many readings were made while this slot was locked.
    of_locked: Mutex<(Weak<Slot>, usize)>,
}

impl Ticking {
    fn new(look: u64) -> Arc<Ticking> {
        Arc::new(Ticking { nanos: AtomicU64::new(1_000_000_000_000), look, ..Ticking::default() })
    }
}

#[derive(Default)]
struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Clock for Ticking {
    fn now(&self) -> Moment {
        let next = self.next.0.lock().take();
        if let Some(next) = next {
            next();
        }
        let (slot, count) = &mut *self.of_locked.lock();
        *count += usize::from(slot.upgrade().is_some_and(|slot| slot.state.try_lock().is_none()));
        Moment::from_nanos(self.nanos.fetch_add(self.look, Ordering::SeqCst))
    }
}

/// A lease that was granted just now with this token, at this time of the server in microseconds; with
/// its clock and its slot.
fn granted(look: u64, token: u64, micros: u64) -> (Arc<Ticking>, Arc<Slot>, Arc<Hold>) {
    granted_of(&MutexKind, LockOptions::new(), (look, token, micros))
}

/// The same of this kind, for these options.
fn granted_of(
    kind: &'static dyn LockKind,
    options: LockOptions,
    (look, token, micros): (u64, u64, u64),
) -> (Arc<Ticking>, Arc<Slot>, Arc<Hold>) {
    let clock = Ticking::new(look);
    let server = MemoryServer::new(Arc::<Ticking>::clone(&clock));
    let (slot, hold) = granted_by(server, &clock, kind, options, (token, micros));
    (clock, slot, hold)
}

/// The same by a server with this clock.
fn granted_by(
    server: Arc<MemoryServer>,
    clock: &Arc<Ticking>,
    kind: &'static dyn LockKind,
    options: LockOptions,
    (token, micros): (u64, u64),
) -> (Arc<Slot>, Arc<Hold>) {
    let as_clock = || Arc::clone(clock) as Arc<dyn Clock>;
    let memory = MemoryBackend::new(server, Arc::new(Identity::new("")));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None };
    let engine = Engine::new(
        Arc::new(ScriptProtocol::new(memory)),
        as_clock(),
        bounds,
        Callbacks::default(),
    );
    let slot = engine.slot(kind, Name::new(b"", b"x").unwrap());
    let now = clock.now();
    let grant = Grant { token, server_time: (micros, now), ..Grant::test(SECOND * 30, now) };
    let value = OwnerValue::new(Arc::clone(slot.target()), *b"owner", options);
    let hold = Hold::first(value, as_clock(), grant, &options);
    (slot, hold)
}

/// The tokens of the next holds of such a lease.
fn next_tokens(look: u64, token: u64, micros: u64, holds: usize) -> Vec<u64> {
    let (clock, _slot, hold) = granted(look, token, micros);
    let (options, begin) = (LockOptions::new(), clock.nanos.load(Ordering::SeqCst));
    let mut tokens = Vec::new();
    while tokens.len() < holds {
        hold.lease.wait_for_next_token();
        let Some(next) = Hold::next(&hold.lease, &options, clock.now()) else { break };
        let passed = (clock.nanos.load(Ordering::SeqCst) - begin + look) / 1_000;
        assert!(next.token().get() <= micros + passed, "ahead of the server's clock");
        tokens.push(next.token().get());
    }
    tokens
}

#[test]
fn a_token_that_is_a_microsecond_ahead_is_waited_for() {
    let tokens = next_tokens(50, 1_000, 1_000, 1_000);
    assert_eq!(tokens, (1_001..=2_000).collect::<Vec<_>>());
}

#[test]
fn a_token_that_is_far_ahead_is_not_waited_for() {
    assert!(next_tokens(50, 9_000, 1_000, 1).is_empty());
}

#[test]
fn a_clock_that_stands_still_is_not_waited_for() {
    assert!(next_tokens(0, 1_000, 1_000, 1).is_empty());
}

/// Another thread waits.
fn wait(slot: &Arc<Slot>) {
    let next =
        EnterRequest { options: LockOptions::new(), wait_limit: WaitLimit::FOR_EVER, number: 8 };
    let entered = slot.state.lock().enter(next, &mut slot.begin_step());
    assert!(matches!(entered, EnterOutcome::Wait(_)), "{entered:?}");
}

/// Another thread that comes meanwhile need not wait for the server's clock.
#[test]
fn slot_is_not_locked_while_its_thread_waits_for_a_token() {
    let (clock, slot, hold) = granted(0, 1_000, 1_000);
    let Admission::Acquire { .. } = enter(&slot, &LockOptions::new()) else {
        panic!("somebody has it")
    };
    slot.granted(&hold, 0);
    wait(&slot);
    clock.of_locked.lock().0 = Arc::downgrade(&slot);
    // The clock stands still, so that the wait is as long as it can be.
    assert_eq!(slot.unlock(&hold), Unlocked::Releasing, "ahead of the server's clock");
    let looks = clock.of_locked.lock().1;
    assert!(looks < 10, "{looks} looks at the clock while the slot is locked");
}

/// Waiters elsewhere should be able to report themselves from then on.
#[test]
fn client_listens_once_a_lease_goes_to_the_next_thread() {
    for (has_next, unlocked) in [(false, Unlocked::Releasing), (true, Unlocked::ToThread)] {
        let (_clock, slot, hold) = granted(50, 1_000, 1_000);
        let Admission::Acquire { .. } = enter(&slot, &LockOptions::new()) else {
            panic!("somebody has it")
        };
        slot.granted(&hold, 0);
        if has_next {
            wait(&slot);
        }
        assert_eq!(slot.unlock(&hold), unlocked);
        assert_eq!(slot.context().listener.is_started(), has_next);
    }
}

/// The reply with the grant is still on its way when the message comes.
#[test]
fn eviction_message_before_its_grant_makes_the_lease_doubted() {
    let (clock, slot, hold) = granted(50, 1_000, 1_000);
    let admission = slot.enter(
        &LockOptions::new(),
        WaitLimit::Until(Moment::FAR),
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    assert!(matches!(admission, Admission::Acquire { .. }), "{admission:?}");
    slot.restart(7);
    slot.on_evicted(7);
    slot.granted(&hold, 0);
    assert!(hold.lease.is_doubted() && !hold.lease.may_last(clock.now()));
}

/// As after a message of eviction: it is neither passed on nor lingers, and the worker asks about it.
#[test]
fn clock_that_was_set_makes_leases_doubted() {
    let (clock, slot, hold) = granted(50, 1_000, 1_000);
    let Admission::Acquire { .. } = enter(&slot, &LockOptions::new()) else {
        panic!("somebody has it")
    };
    slot.granted(&hold, 0);
    assert!(hold.lease.may_last(clock.now()));
    let mut step = slot.begin_step();
    slot.state.lock().on_clock_fault(&mut step);
    assert!(step.watched.iter().any(|(_, due)| *due < clock.now()), "nobody asks about it");
    assert!(hold.lease.is_doubted() && !hold.lease.may_last(clock.now()));
    assert!(hold.is_valid_at(clock.now()));
}

/// The reply with its grant may be from before.
#[test]
fn clock_that_was_set_during_a_request_makes_its_lease_doubted() {
    let (_clock, slot, hold) = granted(50, 1_000, 1_000);
    let Admission::Acquire { .. } = enter(&slot, &LockOptions::new()) else {
        panic!("somebody has it")
    };
    slot.on_clock_fault();
    slot.granted(&hold, 0);
    assert!(hold.lease.is_doubted());
}

/// The request ran before the connections ended, and its reply comes when the leases have been looked through.
#[test]
fn lease_that_is_granted_after_a_break_is_doubted_if_its_request_was_sent_before() {
    for breaks in [true, false] {
        let clock = Ticking::new(50);
        let server = MemoryServer::new(Arc::<Ticking>::clone(&clock));
        let options = LockOptions::new();
        let granted = granted_by(Arc::clone(&server), &clock, &MutexKind, options, (1_000, 1_000));
        let (slot, hold) = granted;
        let context = slot.context();
        context.worker.stand_still();
        let Admission::Acquire { .. } = enter(&slot, &options) else { panic!("somebody has it") };
        if breaks {
            server.break_connections();
        }
        // The next request finds it.
        context.ask(|it, deadline| it.holders(slot.target(), View::Owners, deadline)).unwrap();
        assert!(slot.granted(&hold, 0));
        assert_eq!(hold.lease.is_doubted(), breaks);
        assert_eq!(hold.lease.due() < clock.now(), breaks, "the worker comes at once");
    }
}

/// Its thread may have no processor.
#[test]
fn slot_that_is_locked_keeps_the_worker_for_no_longer_than_it_waits() {
    let (clock, slot, hold) = granted(50, 1_000, 1_000);
    let always = WaitLimit::Until(Moment::FAR);
    let long_wait = &mut LongWait::begin(slot.shared_context(), slot.target(), None);
    slot.enter(&LockOptions::new(), always, long_wait);
    slot.granted(&hold, 0);
    assert!(hold.lease.lose(LossCause::Taken, clock.now()));
    let locked = slot.state.lock();
    assert!(Arc::clone(&slot).end_over(&hold.lease).is_none());
    assert!(Arc::clone(&slot).announce(clock.now(), SECOND).is_none());
    assert!(!hold.is_valid_at(clock.now()), "its thread knows all the same");
    drop(locked);
    assert_eq!(Arc::clone(&slot).end_over(&hold.lease).map(|it| it.len()), Some(1));
    assert!(hold.loss().is_some() && slot.holds().is_empty());
}

/// The thread that closes has still to come to the slot.
#[test]
fn wait_that_ends_as_the_client_closes_is_counted_once() {
    let (_clock, slot, hold) = granted(50, 1_000, 1_000);
    let always = WaitLimit::Until(Moment::FAR);
    slot.enter(
        &LockOptions::new(),
        always,
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    let closing = &slot.context().closing;
    closing.set(ClosingPhase::Closing);
    assert!(!slot.granted(&hold, 0));
    assert_eq!((closing.take_refused(), slot.close().0), (1, 0));
}

#[test]
fn eviction_of_another_attempt_is_ignored() {
    let (clock, slot, hold) = granted(50, 1_000, 1_000);
    slot.enter(
        &LockOptions::new(),
        WaitLimit::Until(Moment::FAR),
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    slot.restart(7);
    slot.on_evicted(8);
    slot.granted(&hold, 0);
    assert!(!hold.lease.is_doubted() && hold.lease.may_last(clock.now()));
}

/// Two readers share an entry.
fn two_readers() -> (Arc<Ticking>, Arc<Slot>, [Arc<Hold>; 2]) {
    two_readers_of([None, None])
}

/// Each with this `max_hold`.
fn two_readers_of(limits: [Option<Duration>; 2]) -> (Arc<Ticking>, Arc<Slot>, [Arc<Hold>; 2]) {
    let options = LockOptions::new().for_share(Share::Access(Access::Read));
    let [of_first, of_second] = limits.map(|limit| match limit {
        Some(limit) => options.max_hold(limit),
        None => options,
    });
    let (clock, slot, first) = granted_of(&RW_LOCK, of_first, (50, 1_000, 1_000));
    let Admission::Acquire { .. } = enter(&slot, &of_first) else { panic!("somebody has it") };
    slot.restart(7);
    slot.granted(&first, 0);
    let Admission::Held(second) = enter(&slot, &of_second) else { panic!("the door is shut") };
    assert!(Arc::ptr_eq(&first.lease, &second.lease));
    (clock, slot, [first, second])
}

fn enter(slot: &Arc<Slot>, options: &LockOptions) -> Admission {
    let long_wait = &mut LongWait::begin(slot.shared_context(), slot.target(), None);
    slot.enter(options, WaitLimit::Until(Moment::FAR), long_wait)
}

/// Its thread has dropped it without a release.
#[test]
fn abandoned_reader_leaves_the_lease_to_another() {
    let (clock, slot, [first, second]) = two_readers();
    let due = first.lease.renew_at();
    drop(first);
    clock.nanos.store(due.as_nanos(), Ordering::SeqCst);
    assert!(second.lease.needs_renewal(clock.now(), false), "nobody renews it");
    assert!(!slot.leave_entry(&second), "the last one gives it back");
    let lease = Arc::downgrade(&second.lease);
    drop(second);
    assert!(lease.upgrade().is_none(), "it is renewed for nobody");
}

/// A message reports that their entry was evicted. Returns when the worker is asked to come, which it does not.
fn evicted(slot: &Arc<Slot>) -> Option<Moment> {
    let mut step = slot.begin_step();
    slot.state.lock().on_evicted(7, &mut step);
    step.watched.iter().map(|(_, due)| *due).next()
}

#[test]
fn eviction_of_an_entry_is_asked_for_while_a_reader_lives() {
    let (clock, slot, [first, second]) = two_readers();
    assert!(first.lose(LossCause::MaxHold, clock.now()).is_some());
    assert!(evicted(&slot).is_some_and(|due| due < clock.now()));
    assert!(second.lease.is_doubted());
}

#[test]
fn doubt_stays_when_a_reader_leaves() {
    let (clock, slot, [first, second]) = two_readers();
    assert!(evicted(&slot).is_some_and(|due| due < clock.now()));
    assert!(slot.leave_entry(&first));
    assert!(second.lease.is_doubted());
}

/// Its transaction may be applied for as long as the entry is there (rule 17).
#[test]
fn unanswered_command_of_a_reader_that_has_left_is_the_entrys() {
    let (clock, slot, [first, second]) = two_readers();
    first.lease.command().keep_pending();
    assert!(slot.leave_entry(&first));
    drop(first);
    assert!(!second.lease.may_last(clock.now()));
}

/// The last of its threads is on its way to release it.
#[test]
fn entry_that_is_being_given_back_is_not_shared() {
    let (_clock, slot, [first, second]) = two_readers();
    assert!(first.begin_release() && second.begin_release());
    assert!(slot.leave_entry(&first));
    let Admission::Acquire { .. } =
        enter(&slot, &LockOptions::new().for_share(Share::Access(Access::Read)))
    else {
        panic!("it shares it")
    };
    assert!(!slot.leave_entry(&second), "the last one gives it back");
}

#[test]
fn max_hold_ends_one_reader_and_leaves_the_other() {
    let (clock, slot, [first, second]) = two_readers_of([Some(SECOND), None]);
    let now = clock.now().after(SECOND);
    clock.nanos.store(now.as_nanos(), Ordering::SeqCst);
    assert!(second.lease.has_ended_by(now), "the worker does not come for it");
    let losses = Arc::clone(&slot).end_over(&second.lease).expect("it is not locked");
    assert_eq!(losses.iter().map(|loss| loss.cause()).collect::<Vec<_>>(), [LossCause::MaxHold]);
    assert!(first.loss().is_some() && second.is_valid_at(clock.now()));
    assert!(!second.lease.has_ended_by(clock.now()) && !second.lease.is_over());
    assert!(!slot.leave_entry(&second), "the last one gives it back");
}

#[test]
fn loss_of_an_entry_ends_each_reader() {
    let (clock, slot, [first, second]) = two_readers();
    assert!(first.lease.lose(LossCause::Deleted, clock.now()));
    assert!(!first.is_valid_at(clock.now()) && !second.is_valid_at(clock.now()));
    let Admission::Acquire { .. } =
        enter(&slot, &LockOptions::new().for_share(Share::Access(Access::Read)))
    else {
        panic!("it shares it")
    };
    assert_eq!(slot.end_holds(&first.lease, None).len(), 2);
    assert!(first.loss().is_some() && second.loss().is_some() && slot.holds().is_empty());
    assert!(slot.end_holds(&first.lease, None).is_empty(), "twice");
}

/// The reply to a renewal comes while a thread has the slot locked.
#[test]
fn reply_that_counts_a_waiter_shuts_the_door_for_the_next_reader() {
    let (clock, slot, [first, _second]) = two_readers();
    let locked = slot.state.lock();
    first.lease.counted(clock.now(), Some(1));
    drop(locked);
    let Admission::Acquire { .. } =
        enter(&slot, &LockOptions::new().for_share(Share::Access(Access::Read)))
    else {
        panic!("it passes a writer")
    };
}

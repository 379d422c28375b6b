//! The tokens of the next holds of a lease, and evictions that are reported early.

use std::fmt;
use std::time::Duration;

use crate::base::id::Identity;
use crate::base::loss::LossCause;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::share::{Access, Share};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::base::time::{Clock, Moment};
use crate::engine::closing::ClosingPhase;
use crate::engine::lease::{Grant, HeldLease};
use crate::engine::long_wait::LongWait;
use crate::engine::slot::{Admission, Slot, WaitLimit};
use crate::engine::worker::RenewableSlot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::mutex::MutexKind;
use crate::kind::weighted::RW_LOCK;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;

const SECOND: Duration = Duration::from_secs(1);

/// A clock on which each reading takes `look` nanoseconds.
#[derive(Debug)]
struct Ticking {
    nanos: AtomicU64,
    look: u64,
    /// Called by the next reading.
    next: Hook,
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
        Moment::from_nanos(self.nanos.fetch_add(self.look, Ordering::SeqCst))
    }
}

/// A lease that was granted just now with this token, at this time of the server in microseconds; with
/// its clock and its slot.
fn granted(look: u64, token: u64, micros: u64) -> (Arc<Ticking>, Arc<Slot>, Arc<HeldLease>) {
    granted_of(&MutexKind, LockOptions::new(), (look, token, micros))
}

/// The same of this kind, for these options.
fn granted_of(
    kind: &'static dyn LockKind,
    options: LockOptions,
    (look, token, micros): (u64, u64, u64),
) -> (Arc<Ticking>, Arc<Slot>, Arc<HeldLease>) {
    let clock =
        Arc::new(Ticking { nanos: AtomicU64::new(1_000_000_000_000), look, next: Hook::default() });
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = MemoryBackend::new(MemoryServer::new(as_clock()), Arc::new(Identity::new("")));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None };
    let engine = Engine::new(
        Arc::new(ScriptProtocol::new(memory)),
        as_clock(),
        bounds,
        Callbacks::default(),
    );
    let slot = engine.slot(kind, Name::new(b"", b"x").unwrap());
    let now = clock.now();
    let grant = Grant {
        owner: Arc::from(*b"owner"),
        token,
        ttl: SECOND * 30,
        sent: now,
        server_time: (micros, now),
        settled: Moment::PAST,
        slots: None,
    };
    let lease = HeldLease::new(Arc::clone(slot.target()), as_clock(), grant, options);
    (clock, slot, lease)
}

/// The tokens of the next holds of such a lease.
fn next_tokens(look: u64, token: u64, micros: u64, holds: usize) -> Vec<u64> {
    let (clock, _slot, mut lease) = granted(look, token, micros);
    let (options, begin) = (LockOptions::new(), clock.nanos.load(Ordering::SeqCst));
    let mut tokens = Vec::new();
    while tokens.len() < holds
        && let Some(next) = lease.successor(&options, clock.now())
    {
        let passed = (clock.nanos.load(Ordering::SeqCst) - begin + look) / 1_000;
        assert!(next.terms.token.get() <= micros + passed, "ahead of the server's clock");
        tokens.push(next.terms.token.get());
        lease = next;
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

/// The reply with the grant is still on its way when the message comes.
#[test]
fn eviction_message_before_its_grant_makes_the_lease_doubted() {
    let (clock, slot, lease) = granted(50, 1_000, 1_000);
    let admission = slot.enter(
        &lease.terms.options,
        WaitLimit::Until(Moment::FAR),
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    assert!(matches!(admission, Admission::Acquire { .. }), "{admission:?}");
    slot.restart(7);
    slot.on_evicted(7);
    slot.granted(&lease, 0);
    assert!(lease.is_doubted() && !lease.may_last(clock.now()));
}

/// Its thread may have no processor.
#[test]
fn worker_comes_back_to_a_slot_that_is_locked() {
    let (clock, slot, lease) = granted(50, 1_000, 1_000);
    let always = WaitLimit::Until(Moment::FAR);
    slot.enter(
        &lease.terms.options,
        always,
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    slot.granted(&lease, 0);
    slot.context().worker.forget(&*slot);
    let locked = slot.state.lock();
    assert!(Arc::clone(&slot).check(clock.now(), SECOND).0.is_empty());
    assert_eq!(slot.context().worker.len().0, 1, "nobody looks at it any more");
    drop(locked);
    assert_eq!(Arc::clone(&slot).check(clock.now(), SECOND).0.len(), 1);
}

/// The thread that closes has still to come to the slot.
#[test]
fn wait_that_ends_as_the_client_closes_is_counted_once() {
    let (_clock, slot, lease) = granted(50, 1_000, 1_000);
    let always = WaitLimit::Until(Moment::FAR);
    slot.enter(
        &lease.terms.options,
        always,
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    let closing = &slot.context().closing;
    closing.set(ClosingPhase::Closing);
    assert!(!slot.granted(&lease, 0));
    assert_eq!((closing.take_refused(), slot.close().0), (1, 0));
}

#[test]
fn eviction_of_another_attempt_is_ignored() {
    let (clock, slot, lease) = granted(50, 1_000, 1_000);
    slot.enter(
        &lease.terms.options,
        WaitLimit::Until(Moment::FAR),
        &mut LongWait::begin(slot.shared_context(), slot.target(), None),
    );
    slot.restart(7);
    slot.on_evicted(8);
    slot.granted(&lease, 0);
    assert!(!lease.is_doubted() && lease.may_last(clock.now()));
}

/// Two readers share an entry, and the first is renewed for both.
fn two_readers() -> (Arc<Ticking>, Arc<Slot>, [Arc<HeldLease>; 2]) {
    let options = LockOptions::new().for_share(Share::Access(Access::Read));
    let (clock, slot, first) = granted_of(&RW_LOCK, options, (50, 1_000, 1_000));
    let enter = || {
        let long_wait = &mut LongWait::begin(slot.shared_context(), slot.target(), None);
        slot.enter(&options, WaitLimit::Until(Moment::FAR), long_wait)
    };
    assert!(matches!(enter(), Admission::Acquire { .. }));
    slot.restart(7);
    slot.granted(&first, 0);
    let Admission::Held(second) = enter() else { panic!("the door is shut") };
    assert!(first.renew_at() < Moment::FAR && second.renew_at() == Moment::FAR);
    (clock, slot, [first, second])
}

/// Its thread has dropped it without a release.
#[test]
fn abandoned_reader_leaves_its_renewals_to_another() {
    let (clock, slot, [first, second]) = two_readers();
    let due = first.renew_at();
    drop(first);
    clock.nanos.store(due.as_nanos(), Ordering::SeqCst);
    let (checked, _) = Arc::clone(&slot).check(clock.now(), SECOND);
    assert_eq!(checked.len(), 1);
    assert!(second.renew_at() <= clock.now(), "nobody renews it");
}

#[test]
fn eviction_of_an_entry_is_asked_for_by_a_live_reader() {
    let (clock, slot, [first, second]) = two_readers();
    assert!(first.lose(LossCause::MaxHold, clock.now()).is_some());
    slot.on_evicted(7);
    assert!(second.is_doubted() && second.next_check() == Moment::PAST);
}

#[test]
fn doubt_of_a_reader_that_leaves_is_looked_at_at_once() {
    let (clock, slot, [first, second]) = two_readers();
    first.doubt(clock.now());
    assert!(slot.leave_entry(&first));
    assert!(second.is_doubted() && second.next_check() == Moment::PAST);
}

#[test]
fn unanswered_renewal_of_a_reader_that_has_left_concerns_the_others() {
    let (clock, slot, [first, second]) = two_readers();
    assert!(slot.leave_entry(&first));
    let until = clock.now().after(SECOND * 60);
    first.may_last_until(until);
    Arc::clone(&slot).not_renewed(&first);
    assert_eq!(second.perhaps_until(), until);
}

/// Its transaction may be applied for as long as the entry is there (rule 17).
#[test]
fn unanswered_command_of_a_reader_that_has_left_is_the_entrys() {
    let (clock, slot, [first, second]) = two_readers();
    first.command().keep_pending();
    assert!(second.may_last(clock.now()));
    assert!(slot.leave_entry(&first));
    assert!(!second.may_last(clock.now()));
}

/// It comes after the others were listed, by one that is not lost yet.
#[test]
fn reader_that_comes_as_its_entry_is_lost_is_found() {
    let (clock, slot, [first, second]) = two_readers();
    let third = Arc::new(Mutex::new(None));
    let comes = {
        let (third, slot, options) = (Arc::clone(&third), Arc::clone(&slot), second.terms.options);
        move || {
            let long_wait = &mut LongWait::begin(slot.shared_context(), slot.target(), None);
            let admission = slot.enter(&options, WaitLimit::Until(Moment::FAR), long_wait);
            let Admission::Held(lease) = admission else { panic!("the door is shut") };
            *third.lock() = Some(lease);
        }
    };
    assert!(first.lose(LossCause::Deleted, clock.now()).is_some());
    *clock.next.0.lock() = Some(Box::new(comes));
    slot.lose_siblings(&first, LossCause::Deleted);
    let third = third.lock().take().expect("it came");
    assert!(!second.is_live() && !third.is_live(), "nobody renews it");
}

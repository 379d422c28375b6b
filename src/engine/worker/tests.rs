//! What stands on the agenda, and what a turn takes from it.

use std::time::Duration;

use super::agenda::{Agenda, REQUESTS, RETURNS};
use super::duty::Duty;
use super::{GiveBack, Worker};
use crate::base::driven::DrivenClock;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::{Arc, AtomicU64, OnceLock, Ordering, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::News;
use crate::engine::lease::{Grant, LiveLease};
use crate::engine::{Bounds, Callbacks, Engine};
use crate::protocol::Target;
use crate::protocol::memory::client::Memory;
use crate::protocol::memory::server::Server as Inner;
use crate::protocol::mutex::MutexKind;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn duty(number: u64) -> Arc<GiveBack> {
    let name = Name::new(b"", b"x").unwrap();
    Arc::new(GiveBack {
        target: Target::new(&MutexKind, name),
        owner: Arc::from(number.to_le_bytes()),
        settled: Moment::PAST,
        ttl: SECOND,
        last_token: None,
    })
}

#[test]
fn a_turn_takes_all_slots_but_only_some_returns() {
    let clock = Arc::new(Busy::new());
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Inner::new(as_clock()), Arc::new(Identity::new("")));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND };
    let engine = Engine::new(Arc::new(memory), as_clock(), bounds, Callbacks::default());
    let name = |number: u32| Name::new(b"", &number.to_le_bytes()).unwrap();
    let slots: Vec<_> = (0..500).map(|number| engine.slot(&MutexKind, name(number))).collect();
    let agenda = Agenda::new();
    let now = Moment::from_nanos(1_000_000_000_000);
    (0..2_000).for_each(|number| _ = agenda.give_back(now.before(SECOND), duty(number)));
    for slot in &slots {
        agenda.look_at(slot, now);
        agenda.look_at(slot, now.after(SECOND));
    }
    assert_eq!(agenda.len(), (500, 2_000, 0));
    let mut hand = Vec::new();
    agenda.take(now, usize::MAX, &mut hand);
    let looks = hand.iter().filter(|duty| matches!(duty, Duty::Look(_))).count();
    assert_eq!((looks, hand.len()), (500, 500 + RETURNS));
    hand.clear();
    agenda.take(now, 1, &mut hand);
    assert_eq!(hand.len(), 1);
}

#[test]
fn a_value_is_owed_once_and_until_it_is_done() {
    let agenda = Agenda::new();
    let clock = Busy::new();
    let (first, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
    agenda.give_back(later, duty(1));
    agenda.give_back(first, duty(1));
    assert_eq!(agenda.len().1, 1);
    let mut hand = Vec::new();
    agenda.take(first, usize::MAX, &mut hand);
    assert_eq!((hand.len(), agenda.len().1), (1, 0));
    // While that is under way, it is to be given back once more.
    agenda.give_back(later, duty(1));
    agenda.is_given_back(&duty(1));
    assert_eq!(agenda.wait_given_back(&clock, Moment::PAST).len(), 1);
    agenda.take(later, usize::MAX, &mut hand);
    agenda.is_given_back(&duty(1));
    assert!(agenda.wait_given_back(&clock, Moment::PAST).is_empty());
}

#[test]
fn a_shutdown_waits_for_no_thread_that_is_at_work() {
    let agenda = Agenda::new();
    let now = Moment::from_nanos(5);
    let later = now.after(HOUR);
    agenda.give_back_later(later, duty(1));
    agenda.sleep();
    assert!(agenda.hurry(now), "the worker sleeps on");
    agenda.give_back_later(later, duty(2));
    // What failed is tried again after a pause.
    agenda.give_back(later, duty(3));
    let mut hand = Vec::new();
    agenda.take(now, usize::MAX, &mut hand);
    assert_eq!((hand.len(), agenda.len().1), (2, 1));
}

#[test]
fn requests_of_others_do_not_pile_up() {
    let agenda = Agenda::new();
    for _ in 0..REQUESTS * 2 {
        agenda.announce(Moment::PAST, News::Requested(b"x".to_vec()));
    }
    assert_eq!(agenda.len().2, REQUESTS);
}

/// A clock that others are as fast as: whenever the worker looks at it, something new is due.
#[derive(Debug)]
struct Busy {
    looks: AtomicU64,
    agenda: OnceLock<Weak<Agenda>>,
}

impl Busy {
    fn new() -> Busy {
        Busy { looks: AtomicU64::new(0), agenda: OnceLock::new() }
    }
}

impl Clock for Busy {
    fn now(&self) -> Moment {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(looks < 1_000, "the turn does not end");
        let now = Moment::from_nanos(looks);
        if let Some(agenda) = self.agenda.get().and_then(Weak::upgrade) {
            agenda.announce(now, News::Requested(b"x".to_vec()));
        }
        now
    }

    fn doze(&self, _: Moment, _: &mut dyn FnMut(Duration)) {}
}

#[test]
fn a_turn_ends_whatever_falls_due_meanwhile() {
    let clock = Arc::new(Busy::new());
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Inner::new(as_clock()), Arc::new(Identity::new("")));
    let worker = Worker::new(Arc::new(memory), as_clock(), SECOND, Callbacks::default());
    let mut runner = worker.runner.lock().take().unwrap();
    worker.started.store(true, Ordering::Release);
    // What is due one day keeps it from sleeping without end.
    worker.agenda.announce(Moment::FAR.before(HOUR), News::Requested(b"x".to_vec()));
    _ = clock.agenda.get_or_init(|| Arc::downgrade(&worker.agenda));
    for turn in 1..=10 {
        assert!(runner.turn(), "{turn}");
    }
}

/// As where a logger panics that was told of the loss of another lease.
#[test]
fn look_that_a_panic_cut_short_is_made_again() {
    let clock = Arc::new(DrivenClock::new(false));
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Inner::new(as_clock()), Arc::new(Identity::new("")));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND };
    let engine = Engine::new(Arc::new(memory), as_clock(), bounds, Callbacks::default());
    let worker = engine.worker();
    let mut runner = worker.runner.lock().take().unwrap();
    worker.started.store(true, Ordering::Release);
    let now = clock.now();
    let grant = Grant {
        owner: Arc::from(*b"owner"),
        token: 1,
        ttl: SECOND * 6,
        sent: now,
        server_time: (1_000_000, now),
        settled: Moment::PAST,
    };
    let options = LockOptions::new().lease(Lease::renewed(SECOND * 6));
    let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
    let lease = LiveLease::new(Arc::clone(&slot), grant, options);
    slot.granted(&lease, 0, now);
    clock.put_forward(now.after(SECOND * 3));
    worker.agenda.take(clock.now(), usize::MAX, &mut runner.hand);
    assert_eq!((runner.hand.len(), worker.agenda.len().0), (1, 0));
    runner.put_back();
    assert_eq!(worker.agenda.len().0, 1, "nobody looks at it any more");
}

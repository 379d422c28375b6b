//! Renewals and losses against releases.

use std::time::Duration;

use shuttle::thread::spawn;

use crate::base::sync::time::ModelClock;
use crate::base::sync::{Arc, Weak, sleep};
use crate::base::time::{Clock, Moment};
use crate::engine::Callbacks;
use crate::engine::hold::Hold;
use crate::tests::schedule::faults::{Count, FaultyBackend};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    World, assert_at_once, eventually, join, let_all_wait, released,
};
use crate::{Guard, Lease, LockOptions};

pub(super) const SCENARIOS: Group = &[
    ("a renewal against the release", 0, renewal_against_release),
    ("a renewal against passing on", 0, renewal_against_passing_on),
    ("a theft against the release", 0, theft_against_release),
    ("a theft against release and renewal", 0, theft_against_renewal),
    ("the end of a lease against the release", 4, expiry_against_release),
    ("max_hold against the release", 0, max_hold_against_release),
    ("renewals without an answer", 8, unanswered_renewals),
];

const SHORT: Duration = Duration::from_secs(3);

fn short() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(SHORT))
}

/// Sleeps until just when the worker wakes for a renewal.
fn sleep_until_renewal(guard: &Guard) {
    sleep(guard.hold().lease.renew_at().since(ModelClock.now()));
}

/// What `on_loss` was told of, and that the hold was over before.
#[derive(Clone, Default)]
pub(super) struct Losses {
    pub(super) count: Count,
    lease: Arc<std::sync::Mutex<Weak<Hold>>>,
}

impl Losses {
    pub(super) fn callbacks(&self) -> Callbacks {
        let losses = self.clone();
        Callbacks {
            on_loss: Some(Arc::new(move |loss| {
                let lease = losses.lease.lock().expect("one thread").upgrade();
                if let Some(lease) = lease {
                    assert!(!lease.is_valid_at(Moment::from_nanos(1)), "valid after {loss}");
                }
                losses.count.one_more();
            })),
            ..Callbacks::default()
        }
    }

    pub(super) fn watch(&self, guard: &Guard) {
        *self.lease.lock().expect("one thread") = Arc::downgrade(guard.hold());
    }

    /// Either it was released, or it was lost and that was told once.
    pub(super) fn check(&self, outcome: crate::Result<()>) {
        let expected = usize::from(outcome.is_err());
        if let Err(error) = outcome {
            assert!(error.is_lost(), "{error}");
        }
        eventually("the loss was not told", || self.count.get() >= expected);
        let_all_wait();
        assert_eq!(self.count.get(), expected);
    }
}

fn renewal_against_release() {
    let world = World::new();
    let mut renewals = Count::default();
    let process = world.process_with(Callbacks::default(), |memory| {
        let backend = FaultyBackend::before(memory);
        renewals = backend.renewals();
        backend
    });
    let mutex = process.mutex_with(short());
    let guard = mutex.lock().expect("granted");
    let lease = Arc::clone(guard.hold());
    sleep_until_renewal(&guard);
    released(guard.release());
    assert!(world.keys().iter().all(|key| key != "x"), "it is there after its release");
    // One may have been on its way.
    let_all_wait();
    assert!(world.keys().iter().all(|key| key != "x"), "a renewal made it anew");
    let sent = renewals.get();
    assert!(sent <= 1, "{sent} renewals");
    sleep(SHORT * 2);
    assert_eq!(renewals.get(), sent, "it is still renewed");
    assert_eq!(lease.valid_until(), Moment::PAST, "a late answer made it valid again");
    drop((lease, mutex));
    world.end([process]);
}

fn renewal_against_passing_on() {
    let world = World::new();
    let losses = Losses::default();
    let process = world.process_with(losses.callbacks(), FaultyBackend::before);
    let guard = process.mutex_with(short()).lock().expect("granted");
    // The next holds it across the time at which the first is renewed.
    let (next, witness) = (process.clone(), world.witness.clone());
    let successor = spawn(move || {
        let guard = next.mutex_with(short()).lock().expect("granted");
        witness.enter(&guard);
        sleep(SHORT * 2);
        assert!(guard.is_valid(), "it was not renewed");
        released(guard.release());
    });
    sleep_until_renewal(&guard);
    released(guard.release());
    join([successor]);
    assert_eq!(losses.count.get(), 0);
    world.end([process]);
}

fn theft_against_release() {
    let world = World::new();
    let losses = Losses::default();
    let holder = world.process_with(losses.callbacks(), FaultyBackend::before);
    let operator = world.process();
    let guard = holder.mutex().lock().expect("granted");
    losses.watch(&guard);
    let thief = operator.clone();
    let theft = spawn(move || thief.mutex().force_release().expect("an answer"));
    let outcome = guard.release();
    let stolen = theft.join().expect("no panic");
    assert_eq!(outcome.is_err(), stolen, "{outcome:?}");
    losses.check(outcome);
    assert_at_once();
    world.end([holder, operator]);
}

fn theft_against_renewal() {
    let world = World::new();
    let losses = Losses::default();
    let holder = world.process_with(losses.callbacks(), FaultyBackend::before);
    let operator = world.process();
    let guard = holder.mutex_with(short()).lock().expect("granted");
    losses.watch(&guard);
    let thief = operator.clone();
    let wait = guard.hold().lease.renew_at().since(ModelClock.now());
    let theft = spawn(move || {
        sleep(wait);
        thief.mutex().force_release().expect("an answer")
    });
    let (process, witness) = (operator.clone(), world.witness.clone());
    let next = spawn(move || {
        let guard = process.mutex_with(short()).lock().expect("granted");
        witness.visit(&guard);
        // The theft may be of this one.
        drop(guard);
    });
    sleep(wait);
    let outcome = guard.release();
    theft.join().expect("no panic");
    join([next]);
    losses.check(outcome);
    world.end([holder, operator]);
}

fn expiry_against_release() {
    let world = World::new();
    let losses = Losses::default();
    let holder = world.process_with(losses.callbacks(), FaultyBackend::before);
    let waiting = world.process();
    let span = Duration::from_millis(100);
    let options = LockOptions::new().lease(Lease::fixed(span));
    let Ok(guard) = holder.mutex_with(options).lock() else {
        // Time was in such a hurry that the lease was over when it came.
        return world.end([holder, waiting]);
    };
    losses.watch(&guard);
    let next = waiting.worker(LockOptions::new(), 1);
    world.witness.enter(&guard);
    sleep(guard.remaining());
    let outcome = guard.release();
    join([next]);
    let expected = usize::from(outcome.is_err());
    eventually("the loss was not told", || losses.count.get() >= expected);
    assert_eq!(losses.count.get(), expected, "{outcome:?}");
    world.end([holder, waiting]);
}

fn max_hold_against_release() {
    let world = World::new();
    let losses = Losses::default();
    let holder = world.process_with(losses.callbacks(), FaultyBackend::before);
    let most = Duration::from_millis(500);
    let guard = holder.mutex_with(short().max_hold(most)).lock().expect("granted");
    losses.watch(&guard);
    let next = holder.worker(short(), 1);
    world.witness.enter(&guard);
    sleep(guard.remaining());
    let outcome = guard.release();
    join([next]);
    losses.check(outcome);
    world.end([holder]);
}

fn unanswered_renewals() {
    let world = World::new();
    let losses = Losses::default();
    let holder = world.process_with(losses.callbacks(), |memory| {
        FaultyBackend::before(memory).deaf(usize::from(u8::MAX))
    });
    let waiting = world.process();
    let Ok(guard) = holder.mutex_with(short()).lock() else {
        return world.end([holder, waiting]);
    };
    losses.watch(&guard);
    let next = waiting.worker(short(), 1);
    world.witness.enter(&guard);
    while guard.loss().is_none() {
        sleep(Duration::from_millis(200));
    }
    let error = guard.release().expect_err("it was lost");
    assert!(error.is_lost(), "{error}");
    join([next]);
    eventually("the loss was not told", || losses.count.get() >= 1);
    assert_eq!(losses.count.get(), 1);
    world.end([holder, waiting]);
}

//! Leases with a tail: a hold that falls silent, against its renewals, its threads, its release, and those who want its lock.
//!
//! The process of the hold cannot reach the server until just when its worker asks again. All that a scenario is about begins
//! at that moment.

use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::error::Result;
use crate::base::sync::time::ModelClock;
use crate::base::sync::{Arc, sleep};
use crate::base::time::{Clock, Moment};
use crate::engine::Callbacks;
use crate::engine::hold::Hold;
use crate::observe::{ConfirmedAgain, Observer, Unconfirmed};
use crate::tests::schedule::faults::{Count, FaultyBackend, Link};
use crate::tests::schedule::loss::Losses;
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    NAME, Process, World, eventually, join, let_all_wait, released,
};
use crate::{Guard, Lease, LockOptions, OwnedLease};

pub(super) const SCENARIOS: Group = &[
    ("a silent hold against its renewal and its threads", 0, asked_about),
    ("a silent hold against another client", 0, wanted),
    ("a silent leader against a candidate", 0, wanted_leader),
    ("a silent hold against its release", 0, given_back),
    ("a silent hold against a thread of its process", 0, wanted_here),
    ("a silent hold at the end of its tail", 4, ended),
    ("close against a silent hold", 0, closed),
    ("shutdown against a silent hold", 0, shut_down),
];

const LEASE: Duration = Duration::from_secs(3);
const TAIL: Duration = Duration::from_secs(6);
/// The worker asks again after this at the latest.
const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// More than enough for a server that answers.
const ENOUGH: Duration = Duration::from_secs(5);

fn tailed() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(LEASE).recoverable_for(TAIL))
}

/// What observers were told of.
#[derive(Clone, Default)]
struct Silences {
    begun: Count,
    over: Count,
}

impl Observer for Silences {
    fn unconfirmed(&self, _: &Unconfirmed<'_>) {
        self.begun.one_more();
    }

    fn confirmed_again(&self, _: &ConfirmedAgain<'_>) {
        self.over.one_more();
    }
}

/// A process that is to fall silent, and what it was told.
struct Holder {
    process: Process,
    link: Link,
    renewals: Count,
    losses: Losses,
    silences: Silences,
}

impl Holder {
    fn new(world: &World) -> Holder {
        let (losses, silences) = (Losses::default(), Silences::default());
        let mut callbacks: Callbacks = losses.callbacks();
        callbacks.observers.add(Arc::new(silences.clone()));
        let (mut link, mut renewals) = (Link::default(), Count::default());
        let process = world.process_with(callbacks, |memory| {
            let backend = FaultyBackend::before(memory);
            (link, renewals) = (backend.link(), backend.renewals());
            backend
        });
        Holder { process, link, renewals, losses, silences }
    }

    /// Has the lock, and went in.
    fn guard(&self, world: &World, options: LockOptions) -> Guard {
        let guard = self.process.mutex_with(options).lock().expect("granted");
        self.losses.watch(&guard);
        world.witness.enter(&guard);
        guard
    }

    /// Falls silent. Returns how long it is until its worker asks again: then the caller restores the link.
    fn fall_silent(&self, hold: &Hold) -> Duration {
        self.link.cut();
        sleep(hold.valid_until().since(ModelClock.now()));
        assert!(!hold.is_valid_at(ModelClock.now()) && hold.loss().is_none(), "it is not silent");
        let rest = hold.lease.due().since(ModelClock.now());
        // While the worker asks, it has another moment.
        if rest > LONGEST_RETRY { Duration::ZERO } else { rest }
    }
}

/// A thread of another client that asks for the lock after this time, and once more if it got it.
fn rival(process: &Process, world: &World, after: Duration) -> JoinHandle<()> {
    let (process, witness) = (process.clone(), Arc::clone(&world.witness));
    spawn(move || {
        sleep(after);
        let mutex = process.mutex_with(tailed());
        if let Some(guard) = mutex.try_lock().expect("a reply") {
            witness.visit(&guard);
            released(guard.release());
        }
        let guard = mutex.lock().expect("granted");
        witness.visit(&guard);
        released(guard.release());
    })
}

/// Nobody else wants the lock, so each request finds the hold valid, and it stays valid.
fn asked_about() {
    let world = World::new();
    let holder = Holder::new(&world);
    let guard = holder.guard(&world, tailed());
    let hold = Arc::clone(guard.hold());
    let owned = Arc::new(guard.into_owned().expect("held once"));
    let rest = holder.fall_silent(&hold);
    let calls: [fn(&OwnedLease) -> Result<()>; 3] =
        [OwnedLease::check, OwnedLease::confirm, |lease| lease.extend(LEASE)];
    join(calls.map(|call| {
        let owned = Arc::clone(&owned);
        let link = holder.link.clone();
        spawn(move || {
            sleep(rest);
            link.restore();
            call(&owned).expect("nobody else wants it");
            assert!(owned.is_valid(), "a call has made it valid");
        })
    }));
    sleep(LEASE * 2);
    assert!(owned.is_valid() && owned.loss().is_none(), "{:?}", owned.loss());
    world.witness.is_still_inside(&hold, owned.fencing_token().get());
    // A silence that was over before the worker noticed it is not told.
    let Silences { begun, over } = &holder.silences;
    eventually("its return was not told", || over.get() == begun.get());
    assert!(begun.get() <= 1, "{begun:?}");
    let outcome = Arc::into_inner(owned).expect("no other thread has it").release();
    assert!(outcome.is_ok(), "{outcome:?}");
    holder.losses.check(outcome);
    drop(hold);
    world.end([holder.process]);
}

/// Either it comes back, and stays, or another has had the lock, and that is told once.
fn wanted() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let guard = holder.guard(&world, tailed());
    let rest = holder.fall_silent(guard.hold());
    let rivals = [(); 2].map(|()| rival(&other, &world, rest));
    sleep(rest);
    holder.link.restore();
    let outcome = guard.check();
    match &outcome {
        Ok(()) => assert!(guard.is_valid() && guard.loss().is_none()),
        Err(error) => assert!(error.is_lost(), "{error}"),
    }
    world.witness.is_still_inside(guard.hold(), guard.fencing_token().get());
    sleep(LEASE * 2);
    assert_eq!(guard.is_valid(), outcome.is_ok(), "{:?}", guard.loss());
    world.witness.is_still_inside(guard.hold(), guard.fencing_token().get());
    let end = guard.release();
    assert_eq!(end.is_ok(), outcome.is_ok(), "{end:?}");
    holder.losses.check(end);
    join(rivals);
    world.end([holder.process, other]);
}

/// The same for a leader.
fn wanted_leader() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let election =
        |process: &Process| process.client.election_with(NAME, tailed()).expect("allowed");
    let leadership = election(&holder.process).campaign().expect("granted");
    world.witness.enter_by(leadership.hold(), leadership.term().get());
    let rest = holder.fall_silent(leadership.hold());
    let (standing, witness) = (election(&other), Arc::clone(&world.witness));
    let candidate = spawn(move || {
        sleep(rest);
        let leadership = standing.campaign().expect("granted");
        witness.enter_by(leadership.hold(), leadership.term().get());
        released(leadership.resign());
    });
    sleep(rest);
    holder.link.restore();
    let outcome = leadership.proclaim("word");
    assert!(outcome.as_ref().is_ok_and(|()| leadership.is_valid()) || leadership.loss().is_some());
    world.witness.is_still_inside(leadership.hold(), leadership.term().get());
    let end = leadership.resign();
    assert_eq!(end.is_ok(), outcome.is_ok(), "{outcome:?}, {end:?}");
    holder.losses.check(end);
    join([candidate]);
    world.end([holder.process, other]);
}

/// Once it is given back, no reply makes it valid, and nothing is sent for it.
fn given_back() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let guard = holder.guard(&world, tailed());
    let hold = Arc::clone(guard.hold());
    let rest = holder.fall_silent(&hold);
    let next = rival(&other, &world, rest);
    sleep(rest);
    holder.link.restore();
    let outcome = guard.release();
    join([next]);
    let_all_wait();
    let sent = holder.renewals.get();
    sleep(LEASE * 2);
    assert_eq!(holder.renewals.get(), sent, "it is still renewed");
    assert_eq!(hold.lease.valid_until(), Moment::PAST, "a late reply made it valid again");
    holder.losses.check(outcome);
    drop(hold);
    world.end([holder.process, other]);
}

/// A lease that is over goes to no other thread, and does not linger: the next one has what the server has just granted.
fn wanted_here() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let options = tailed().linger(LEASE);
    let guard = holder.guard(&world, options);
    let here = [(); 2].map(|()| {
        let (process, witness) = (holder.process.clone(), Arc::clone(&world.witness));
        spawn(move || {
            let guard = process.mutex_with(options).lock().expect("granted");
            assert!(guard.is_valid(), "it has a lease that is over: {:?}", guard.loss());
            witness.visit(&guard);
            released(guard.release());
        })
    });
    eventually("nobody waits", || guard.waiters() == here.len());
    let rest = holder.fall_silent(guard.hold());
    let there = rival(&other, &world, rest);
    sleep(rest);
    holder.link.restore();
    holder.losses.check(guard.release());
    join(here.into_iter().chain([there]));
    world.end([holder.process, other]);
}

/// It is told as lost once, or it has come back and is not told.
fn ended() {
    let world = World::new();
    let holder = Holder::new(&world);
    let Ok(guard) = holder.process.mutex_with(tailed()).lock() else {
        // Time was in such a hurry that its answer came too late.
        return world.end([holder.process]);
    };
    holder.losses.watch(&guard);
    let hold = Arc::clone(guard.hold());
    let Ok(owned) = guard.into_owned() else { panic!("held once") };
    let owned = Arc::new(owned);
    holder.link.cut();
    let end = hold.lease.lost_at();
    sleep(end.since(ModelClock.now()).saturating_sub(Duration::from_millis(1)));
    holder.link.restore();
    join([(); 2].map(|()| {
        let owned = Arc::clone(&owned);
        spawn(move || {
            let outcome = owned.check();
            let is_known = outcome.is_ok() || owned.loss().is_some();
            assert!(
                is_known
                    || outcome.is_err_and(|error| {
                        // Time was in a hurry once more.
                        error.is_unreachable() || error.is_unknown_outcome()
                    })
            );
        })
    }));
    let loss = owned.loss();
    eventually("the loss was not told", || {
        holder.losses.count.get() >= usize::from(loss.is_some())
    });
    let lease = Arc::into_inner(owned).expect("no other thread has it");
    let was_lost = lease.loss().is_some();
    let outcome = lease.release();
    assert!(outcome.is_err() || !was_lost, "it was lost");
    let_all_wait();
    let told = usize::from(hold.loss().is_some());
    eventually("the loss was not told", || holder.losses.count.get() >= told);
    assert_eq!(holder.losses.count.get(), told, "{:?}", hold.loss());
    drop(hold);
    world.end([holder.process]);
}

/// A silent hold has the grace, as one that is valid.
fn closed() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let guard = holder.guard(&world, tailed());
    let rest = holder.fall_silent(guard.hold());
    let client = holder.process.client.clone();
    let closing = spawn(move || {
        sleep(rest);
        client.close(ENOUGH, ENOUGH)
    });
    let next = rival(&other, &world, rest);
    sleep(rest);
    holder.link.restore();
    let outcome = guard.check();
    assert!(outcome.is_ok() == guard.is_valid(), "{outcome:?}, {:?}", guard.loss());
    let end = guard.release();
    assert_eq!(end.is_ok(), outcome.is_ok(), "{end:?}");
    let report = closing.join().expect("no panic");
    assert!(report.taken().is_empty(), "{report}");
    assert!(report.lost().is_empty() || end.is_err(), "{report}");
    holder.losses.check(end);
    report.into_result().expect("given back in time");
    join([next]);
    world.end([holder.process, other]);
}

/// It is lost with the client, if it is not lost before, and does not come back.
fn shut_down() {
    let world = World::new();
    let (holder, other) = (Holder::new(&world), world.process());
    let guard = holder.guard(&world, tailed());
    let rest = holder.fall_silent(guard.hold());
    let client = holder.process.client.clone();
    let ending = spawn(move || {
        sleep(rest);
        client.shutdown(ENOUGH).expect("given back in time");
    });
    let next = rival(&other, &world, rest);
    sleep(rest);
    holder.link.restore();
    if let Err(error) = guard.check() {
        assert!(error.is_lost(), "{error}");
    }
    ending.join().expect("no panic");
    assert!(!guard.is_valid() && guard.loss().is_some(), "it is valid after the shutdown");
    holder.losses.check(guard.release());
    join([next]);
    world.end([holder.process, other]);
}

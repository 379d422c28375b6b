//! Claims of several locks, owned leases, and a bound on the threads that wait.

use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::sync::Arc;
use crate::base::sync::time::passed;
use crate::engine::Callbacks;
use crate::tests::schedule::faults::{Count, FaultyBackend};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    Process, Witness, World, assert_at_once, eventually, join, let_all_wait, released,
};
use crate::{LockOptions, Mutex, OwnedLease};

pub(super) const SCENARIOS: Group = &[
    ("claims of one list, two clients", 0, two_clients),
    ("claims against several locks at once", 0, against_several),
    ("claims, a reply that is lost", 0, lost_reply),
    ("claims against close", 0, closed),
    ("owned leases against guards", 0, owned),
    ("a bound on waiters", 0, bounded),
    ("a bound on waiters, two clients", 0, bounded_of_two),
    ("a bound on waiters against cancel_waits", 0, bounded_and_cancelled),
];

/// More than enough for a server that answers.
const ENOUGH: Duration = Duration::from_secs(5);

/// The locks of a scenario, with a witness for each.
#[derive(Clone)]
struct Jobs(Vec<(&'static str, Arc<Witness>)>);

impl Jobs {
    fn new(names: &[&'static str]) -> Jobs {
        Jobs(names.iter().map(|name| (*name, Arc::default())).collect())
    }

    fn locks(&self, process: &Process) -> Vec<Mutex> {
        let lock = |name: &str| process.client.mutex(name).expect("allowed");
        self.0.iter().map(|(name, _)| lock(name)).collect()
    }

    /// Works on one of them, alone.
    fn visit(&self, lease: OwnedLease) -> OwnedLease {
        let is_it = |(name, _): &&(&str, Arc<Witness>)| name.as_bytes() == lease.name();
        let (_, witness) = self.0.iter().find(is_it).expect("one of the list");
        let guard = lease.into_guard();
        witness.visit(&guard);
        guard.into_owned().expect("held once")
    }

    /// A thread that claims so many, and says how many it got.
    fn claimer(&self, process: &Process, most: usize, got: &Count) -> JoinHandle<()> {
        self.claimer_with(process, most, got, None)
    }

    fn claimer_with(
        &self,
        process: &Process,
        most: usize,
        got: &Count,
        failed: Option<&Count>,
    ) -> JoinHandle<()> {
        let (jobs, process) = (self.clone(), process.clone());
        let (got, failed) = (got.clone(), failed.cloned());
        spawn(move || match process.client.claim(&jobs.locks(&process), most) {
            Ok(claimed) => {
                assert!(claimed.len() <= most, "{} of {most}", claimed.len());
                claimed.iter().for_each(|_| got.one_more());
                let claimed: Vec<_> = claimed.into_iter().map(|lease| jobs.visit(lease)).collect();
                let outcome = process.client.release_all(claimed);
                let is_taken = process.client.is_closed();
                assert!(outcome.is_ok() || is_taken && outcome.is_err_and(|it| it.is_lost()));
            }
            Err(error) => {
                let is_closed = error.is_cancelled() && process.client.is_closed();
                // One attempt does not outwait a reply that is lost. Nothing is kept then.
                let is_lost = failed.is_some() && error.is_unknown_outcome();
                assert!(is_closed || is_lost, "{error}");
                failed.iter().for_each(Count::one_more);
            }
        })
    }

    /// All are free again.
    fn are_free(&self, process: &Process) {
        let claimed = process.client.claim(&self.locks(process), self.0.len()).expect("an answer");
        assert_eq!(claimed.len(), self.0.len());
        released(process.client.release_all(claimed));
    }
}

fn two_clients() {
    let (world, jobs) = (World::new(), Jobs::new(&["a", "b", "c"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let got = Count::default();
    join([jobs.claimer(one, 2, &got), jobs.claimer(one, 1, &got), jobs.claimer(other, 2, &got)]);
    // The first to ask gets some.
    assert!(got.get() > 0);
    assert_at_once();
    jobs.are_free(other);
    world.end(processes);
}

fn against_several() {
    let (world, jobs) = (World::new(), Jobs::new(&["a", "b", "c"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let got = Count::default();
    let all = [one, other].map(|process| {
        let (jobs, process) = (jobs.clone(), process.clone());
        spawn(move || {
            let guard = process.client.lock_all(&jobs.locks(&process)).expect("granted");
            for part in guard.into_guards() {
                let crate::PartGuard::Lock(guard) = part else { panic!("a mutex") };
                released(jobs.visit(guard.into_owned().expect("held once")).release());
            }
        })
    });
    join(all.into_iter().chain([jobs.claimer(one, 2, &got), jobs.claimer(other, 3, &got)]));
    assert_at_once();
    jobs.are_free(one);
    world.end(processes);
}

fn lost_reply() {
    let (world, jobs) = (World::new(), Jobs::new(&["a", "b"]));
    let process = world.process_with(Callbacks::default(), |memory| {
        FaultyBackend::before(memory).lost_pipelines(1)
    });
    let other = world.process();
    let (got, failed) = (Count::default(), Count::default());
    join([
        jobs.claimer_with(&process, 2, &got, Some(&failed)),
        jobs.claimer_with(&process, 2, &got, Some(&failed)),
        jobs.claimer(&other, 1, &got),
    ]);
    assert!(failed.get() <= 1, "{failed:?}");
    // Long before a lease of 30 s ends.
    eventually("a lock is kept", || {
        let claimed = other.client.claim(&jobs.locks(&other), 2).expect("an answer");
        claimed.len() == 2
    });
    assert!(passed() < ENOUGH * 2, "{:?}", passed());
    world.end([process, other]);
}

fn closed() {
    let (world, jobs) = (World::new(), Jobs::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [ending, other] = &processes;
    let got = Count::default();
    let threads = [
        jobs.claimer(ending, 2, &got),
        jobs.claimer(ending, 1, &got),
        jobs.claimer(other, 2, &got),
    ];
    let report = ending.client.close(Duration::ZERO, ENOUGH);
    assert_eq!(report.not_released().count(), 0, "{report}");
    let error = ending.client.claim(&jobs.locks(ending), 2).expect_err("it is closed");
    assert!(error.is_cancelled(), "{error}");
    join(threads);
    let_all_wait();
    assert_at_once();
    world.end(processes);
}

/// Each waits for the others, whatever its thread.
fn owned() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let owner = |process: &Process| {
        let (process, witness) = (process.clone(), Arc::clone(&world.witness));
        spawn(move || {
            let mutex = process.mutex();
            let lease = mutex.lock_owned().expect("granted");
            // Of its own thread too.
            assert!(mutex.try_lock().expect("an answer").is_none());
            let guard = lease.into_guard();
            witness.visit(&guard);
            assert!(mutex.try_lock_owned().expect("an answer").is_none());
            released(guard.release());
        })
    };
    join([
        owner(one),
        owner(one),
        owner(other),
        one.worker(LockOptions::new().reentrant(false), 2),
        other.worker(LockOptions::new(), 1),
    ]);
    assert_eq!(world.witness.visits(), 6);
    assert_at_once();
    world.end(processes);
}

/// A thread that goes in once, unless too many wait.
fn one_of_a_crowd(
    process: &Process,
    witness: &Arc<Witness>,
    most: u32,
    crowded: &Count,
) -> JoinHandle<()> {
    let (process, witness, crowded) = (process.clone(), Arc::clone(witness), crowded.clone());
    spawn(move || match process.mutex_with(LockOptions::new().max_waiters(most)).lock() {
        Ok(guard) => {
            // Those of another client may be known too.
            assert!(guard.waiters() <= most as usize + 1, "{} wait", guard.waiters());
            witness.visit(&guard);
            released(guard.release());
        }
        Err(error) => {
            assert!(error.is_crowded() || error.is_cancelled(), "{error}");
            crowded.one_more();
        }
    })
}

fn bounded() {
    let world = World::new();
    let process = world.process();
    let crowded = Count::default();
    join([(); 4].map(|()| one_of_a_crowd(&process, &world.witness, 1, &crowded)));
    // One that asks, and one behind it, are served in any schedule.
    assert_eq!(world.witness.visits() + crowded.get(), 4);
    assert!(world.witness.visits() >= 1);
    assert_at_once();
    world.end([process]);
}

fn bounded_of_two() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let crowded = Count::default();
    let threads = [(one, 2), (one, 2), (one, 2), (other, 1), (other, 1)];
    join(threads.map(|(process, most)| one_of_a_crowd(process, &world.witness, most, &crowded)));
    assert_eq!(world.witness.visits() + crowded.get(), 5);
    assert_at_once();
    world.end(processes);
}

fn bounded_and_cancelled() {
    let world = World::new();
    let process = world.process();
    let over = Count::default();
    let threads = [(); 3].map(|()| one_of_a_crowd(&process, &world.witness, 1, &over));
    process.mutex().cancel_waits();
    join(threads);
    assert_eq!(world.witness.visits() + over.get(), 3);
    assert_at_once();
    world.end([process]);
}

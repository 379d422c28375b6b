//! Several locks at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::sync::Arc;
use crate::engine::Callbacks;
use crate::tests::schedule::faults::{Count, FaultyBackend};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    Process, Witness, World, assert_at_once, join, let_all_wait, released,
};
use crate::{LockOptions, MultiGuard, Mutex, PartGuard, Result};

pub(super) const SCENARIOS: Group = &[
    ("several locks in opposite orders, threads of one client", 0, one_client),
    ("several locks in opposite orders, two clients", 0, two_clients),
    ("several locks against each alone", 0, against_each_alone),
    ("several locks that linger", 0, lingering),
    ("several locks, one attempt each", 0, one_attempt),
    ("several locks, a thread dies in the pipeline", 0, dies_in_the_pipeline),
    ("several locks, a reply that is lost", 0, lost_reply),
    ("several locks against cancel_waits", 0, cancelled),
    ("several locks against close", 0, closed),
];

/// More than enough for a server that answers.
const ENOUGH: Duration = Duration::from_secs(5);

/// The locks of a scenario, with a witness for each.
#[derive(Clone)]
struct Names(Vec<(&'static str, Arc<Witness>)>);

impl Names {
    fn new(names: &[&'static str]) -> Names {
        Names(names.iter().map(|name| (*name, Arc::default())).collect())
    }

    fn locks(&self, process: &Process, options: LockOptions) -> Vec<Mutex> {
        let lock = |name: &str| process.client.mutex_with(name, options).expect("allowed");
        self.0.iter().map(|(name, _)| lock(name)).collect()
    }

    /// Goes in with all of them.
    fn visit(&self, guard: &MultiGuard) {
        for (name, witness) in &self.0 {
            match guard.get(name) {
                Some(PartGuard::Lock(guard)) => witness.visit(guard),
                other => panic!("{other:?}"),
            }
        }
    }

    fn visits(&self) -> Vec<usize> {
        self.0.iter().map(|(_, witness)| witness.visits()).collect()
    }

    /// A thread that takes all of them so many times, in this order or the other way round.
    fn worker(&self, process: &Process, times: usize, is_reversed: bool) -> JoinHandle<()> {
        self.worker_with(process, LockOptions::new(), times, is_reversed, released)
    }

    fn worker_with(
        &self,
        process: &Process,
        options: LockOptions,
        times: usize,
        is_reversed: bool,
        end: impl Fn(Result<()>) + Send + 'static,
    ) -> JoinHandle<()> {
        let (names, process) = (self.clone(), process.clone());
        spawn(move || {
            let mut locks = names.locks(&process, options);
            if is_reversed {
                locks.reverse();
            }
            for _ in 0..times {
                let guard = process.client.lock_all(&locks).expect("granted");
                names.visit(&guard);
                end(guard.release());
            }
        })
    }

    /// A thread that takes one of them.
    fn single(&self, process: &Process, number: usize) -> JoinHandle<()> {
        let (name, witness) = self.0[number].clone();
        let process = process.clone();
        spawn(move || {
            let guard = process.client.mutex(name).expect("allowed").lock().expect("granted");
            witness.visit(&guard);
            released(guard.release());
        })
    }

    /// A thread that takes all of them, or is told that its wait is over.
    fn hasty(&self, process: &Process, over: &Count) -> JoinHandle<()> {
        let (names, process, over) = (self.clone(), process.clone(), over.clone());
        spawn(move || match process.client.lock_all(&names.locks(&process, LockOptions::new())) {
            Ok(guard) => {
                names.visit(&guard);
                let outcome: Result<()> = guard.release();
                assert!(outcome.is_ok() || outcome.is_err_and(|error| error.is_lost()));
            }
            Err(error) => {
                // A shutdown takes what it has, and cancels its wait.
                let is_taken = error.is_lost() && process.client.is_closed();
                assert!(error.is_cancelled() || is_taken, "{error}");
                over.one_more();
            }
        })
    }
}

fn one_client() {
    let (world, names) = (World::new(), Names::new(&["a", "b", "c"]));
    let process = world.process();
    join(
        [(2, false), (1, true), (1, false)]
            .map(|(times, is_reversed)| names.worker(&process, times, is_reversed)),
    );
    assert_eq!(names.visits(), [4; 3]);
    assert_at_once();
    world.end([process]);
}

fn two_clients() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    join([names.worker(one, 1, false), names.worker(one, 1, true), names.worker(other, 2, true)]);
    assert_eq!(names.visits(), [4; 2]);
    assert_at_once();
    world.end(processes);
}

fn against_each_alone() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    join([
        names.worker(one, 2, true),
        names.single(one, 1),
        names.single(other, 0),
        names.single(other, 1),
    ]);
    assert_eq!(names.visits(), [3, 4]);
    assert_at_once();
    world.end(processes);
}

fn lingering() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let options = LockOptions::new().linger(Duration::from_secs(5));
    join([
        names.worker_with(one, options, 2, false, released),
        names.worker_with(one, options, 1, true, released),
        names.worker(other, 1, false),
    ]);
    assert_eq!(names.visits(), [4; 2]);
    world.end(processes);
}

fn one_attempt() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let hasty = [0, 0, 1].map(|at| {
        let (names, process) = (names.clone(), processes[at].clone());
        spawn(move || {
            let locks = names.locks(&process, LockOptions::new());
            if let Some(guard) = process.client.try_lock_all(&locks).expect("an answer") {
                names.visit(&guard);
                released(guard.release());
            }
        })
    });
    join(hasty.into_iter().chain([names.worker(&processes[0], 1, true)]));
    assert_at_once();
    let locks = names.locks(&processes[1], LockOptions::new());
    drop(processes[1].client.try_lock_all(&locks).expect("an answer").expect("all are free"));
    drop(locks);
    world.end(processes);
}

fn dies_in_the_pipeline() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let process =
        world.process_with(Callbacks::default(), |memory| FaultyBackend::before(memory).panics(1));
    let (dying, all) = (process.clone(), names.clone());
    let died = Count::default();
    let count = died.clone();
    let dies = [(); 2].map(|()| {
        let (dying, all, count) = (dying.clone(), all.clone(), count.clone());
        spawn(move || {
            let locks = all.locks(&dying, LockOptions::new());
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let guard = dying.client.lock_all(&locks).expect("granted");
                all.visit(&guard);
            }));
            if outcome.is_err() {
                count.one_more();
            }
        })
    });
    // What it would have had is not lost to others.
    join(dies.into_iter().chain([names.single(&process, 0), names.single(&process, 1)]));
    assert!(died.get() <= 1, "{died:?}");
    world.end([process]);
}

fn lost_reply() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let process = world.process_with(Callbacks::default(), |memory| {
        FaultyBackend::before(memory).lost_pipelines(1)
    });
    let other = world.process();
    // The reply to the release may be the one that is lost: then its repetition finds no lock, and nobody knows why.
    let unless_unheard = |outcome: Result<()>| {
        assert!(outcome.is_ok() || outcome.is_err_and(|it| it.is_unknown_outcome()));
    };
    join([
        names.worker_with(&process, LockOptions::new(), 1, false, unless_unheard),
        names.single(&process, 1),
        names.worker(&other, 1, true),
    ]);
    assert_eq!(names.visits(), [2, 3]);
    world.end([process, other]);
}

fn cancelled() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let over = Count::default();
    let threads = [names.hasty(one, &over), names.hasty(one, &over), names.worker(other, 1, true)];
    let cancelling = one.clone();
    let cancels = spawn(move || {
        for name in ["b", "a"] {
            cancelling.client.mutex(name).expect("allowed").cancel_waits();
        }
    });
    join(threads.into_iter().chain([cancels]));
    assert_at_once();
    world.end(processes);
}

fn closed() {
    let (world, names) = (World::new(), Names::new(&["a", "b"]));
    let processes = [world.process(), world.process()];
    let [ending, other] = &processes;
    let over = Count::default();
    let threads =
        [names.hasty(ending, &over), names.hasty(ending, &over), names.worker(other, 1, true)];
    let report = ending.client.close(Duration::ZERO, ENOUGH);
    assert_eq!(report.not_released().count(), 0, "{report}");
    let locks = names.locks(ending, LockOptions::new());
    let error = ending.client.lock_all(&locks).expect_err("it is closed");
    assert!(error.is_cancelled(), "{error}");
    drop(locks);
    join(threads);
    let_all_wait();
    assert_at_once();
    world.end(processes);
}

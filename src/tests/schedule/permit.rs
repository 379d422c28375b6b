//! Scenarios of semaphores: several hold at a time, permits are passed on, and grants come meanwhile.

use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::sync::time::passed;
use crate::base::sync::{Arc, sleep};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    NAME, Process, Witness, World, assert_at_once, eventually, join, let_all_wait, released,
};
use crate::{LockOptions, Permit, Semaphore};

pub(super) const SCENARIOS: Group = &[
    ("permits of two processes, and two of one", 0, two_holders),
    ("permits passed on while a third waits", 0, third_waits),
    ("a permit passed on against a grant", 0, passed_against_grant),
    ("a permit passed on while the client closes", 0, passed_while_closing),
    ("a permit passed on as the wait ends", 4, passed_as_wait_ends),
    ("a permit passed on against a cancellation", 0, passed_against_cancel),
    ("all permits among single attempts", 0, large_among_single),
    ("fewer permits against passing on", 0, shrink),
];

/// The first time that nobody is helped by the end of a lease.
const SOON: Duration = Duration::from_secs(8);

/// The permits of a scenario, and who is inside each slot.
#[derive(Clone)]
struct Permits {
    slots: Arc<Vec<Witness>>,
    limit: u32,
}

impl Permits {
    fn new(limit: u32) -> Permits {
        let slots = (0..limit).map(|_| Witness::default()).collect();
        Permits { slots: Arc::new(slots), limit }
    }

    fn of(&self, process: &Process) -> Semaphore {
        let options = LockOptions::new().local_handoffs(1_000);
        process.client.semaphore_with(NAME, self.limit, options).expect("allowed")
    }

    /// Goes in at each of its slots, and lets others go on.
    fn visit(&self, permit: &Permit) {
        for slot in permit.slots() {
            self.slots[*slot as usize].enter_by(permit.hold(), permit.fencing_token().get());
        }
        sleep(Duration::ZERO);
    }

    fn visits(&self) -> usize {
        self.slots.iter().map(Witness::visits).sum()
    }

    /// A thread that takes one permit so many times.
    fn worker(&self, process: &Process, times: usize) -> JoinHandle<()> {
        let (permits, gpus) = (self.clone(), self.of(process));
        spawn(move || {
            for _ in 0..times {
                let permit = gpus.acquire().expect("granted");
                permits.visit(&permit);
                released(permit.release());
            }
        })
    }

    /// All permits come back, and long before a lease ends: none was left with nobody.
    fn all_come_back(&self, process: &Process) {
        let gpus = self.of(process);
        eventually("permits are left", || gpus.available().expect("a reply") == self.limit);
        assert!(passed() < SOON, "a permit came back after {:?}", passed());
    }
}

fn in_line(gpus: &Semaphore, count: usize) {
    let waiting = || gpus.inspect().expect("a reply").waiting();
    eventually("nobody stands in the line", || waiting() == Some(count));
}

fn two_holders() {
    let (world, permits) = (World::new(), Permits::new(2));
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    join(
        [permits.worker(one, 2), permits.worker(one, 1), permits.worker(one, 1)]
            .into_iter()
            .chain([permits.worker(other, 1)]),
    );
    assert_eq!(permits.visits(), 5);
    assert_at_once();
    permits.all_come_back(one);
    world.end(processes);
}

/// Nothing is passed on past the one that waits elsewhere, once that is known.
fn third_waits() {
    let (world, permits) = (World::new(), Permits::new(2));
    let processes = [world.process(), world.process()];
    let [busy, third] = &processes;
    let gpus = permits.of(busy);
    let held = [(); 2].map(|()| gpus.acquire().expect("granted"));
    let waits = permits.worker(third, 1);
    in_line(&gpus, 1);
    let threads = [(); 3].map(|()| permits.worker(busy, 1));
    let began = passed();
    held.into_iter().for_each(|permit| released(permit.release()));
    join(threads.into_iter().chain([waits]));
    assert!(passed() - began < Duration::from_millis(400), "somebody was not told");
    assert_eq!(permits.visits(), 4);
    permits.all_come_back(busy);
    drop(gpus);
    world.end(processes);
}

/// A thread of this process gives its permit up at the moment at which another process's release grants one to the
/// thread that waits here.
fn passed_against_grant() {
    let (world, permits) = (World::new(), Permits::new(2));
    let processes = [world.process(), world.process()];
    let [here, there] = &processes;
    let (gpus, theirs) = (permits.of(here), permits.of(there));
    let (ours, other) = (gpus.acquire().expect("granted"), theirs.acquire().expect("granted"));
    let threads = [(); 2].map(|()| permits.worker(here, 1));
    in_line(&gpus, 1);
    let releases = [ours, other].map(|permit| spawn(move || released(permit.release())));
    join(releases.into_iter().chain(threads));
    assert_eq!(permits.visits(), 2);
    permits.all_come_back(here);
    drop((gpus, theirs));
    world.end(processes);
}

fn passed_while_closing() {
    let (world, permits) = (World::new(), Permits::new(1));
    let (process, other) = (world.process(), world.process());
    let gpus = permits.of(&process);
    let held = gpus.acquire().expect("granted");
    let waits = {
        let (permits, gpus) = (permits.clone(), permits.of(&process));
        spawn(move || match gpus.acquire() {
            Ok(permit) => {
                permits.visit(&permit);
                // It may have been taken after the grace.
                drop(permit);
                true
            }
            Err(error) => {
                assert!(error.is_cancelled(), "{error}");
                false
            }
        })
    };
    in_line(&gpus, 1);
    let releases = spawn(move || drop(held));
    let report = process.client.close(Duration::from_secs(1), Duration::from_secs(5));
    let was_granted = waits.join().expect("no panic");
    releases.join().expect("no panic");
    // A thread that was granted its permit as the client began to close may have left before it was counted.
    assert!(report.cancelled() <= usize::from(!was_granted), "{report:?}");
    assert_eq!(report.not_released().count(), 0, "{report:?}");
    permits.all_come_back(&other);
    drop(gpus);
    world.end([process, other]);
}

/// The thread has the permit, or nobody has.
fn passed_as_wait_ends() {
    let (world, permits) = (World::new(), Permits::new(1));
    let processes = [world.process(), world.process()];
    let [here, there] = &processes;
    let gpus = permits.of(here);
    let held = gpus.acquire().expect("granted");
    let hurried = {
        let (permits, gpus) = (permits.clone(), permits.of(here));
        spawn(move || {
            // A reply may be missing when its time is over.
            if let Ok(Some(permit)) = gpus.try_acquire_for(Duration::from_millis(5)) {
                permits.visit(&permit);
                released(permit.release());
            }
        })
    };
    sleep(Duration::from_millis(4));
    released(held.release());
    hurried.join().expect("no panic");
    permits.all_come_back(there);
    drop(gpus);
    world.end(processes);
}

fn passed_against_cancel() {
    let (world, permits) = (World::new(), Permits::new(1));
    let processes = [world.process(), world.process()];
    let [here, there] = &processes;
    let gpus = permits.of(here);
    let held = gpus.acquire().expect("granted");
    let waits = [(); 2].map(|()| {
        let (permits, gpus) = (permits.clone(), permits.of(here));
        spawn(move || match gpus.acquire() {
            Ok(permit) => {
                permits.visit(&permit);
                released(permit.release());
            }
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        })
    });
    in_line(&gpus, 1);
    let cancels = {
        let gpus = permits.of(here);
        spawn(move || _ = gpus.cancel_waits())
    };
    released(held.release());
    join(waits.into_iter().chain([cancels]));
    permits.all_come_back(there);
    drop(gpus);
    world.end(processes);
}

fn large_among_single() {
    let (world, permits) = (World::new(), Permits::new(2));
    let processes = [world.process(), world.process()];
    let [here, there] = &processes;
    let large = {
        let (permits, gpus) = (permits.clone(), permits.of(here));
        spawn(move || {
            let both = gpus.acquire_many(2).expect("granted");
            permits.visit(&both);
            released(both.release());
        })
    };
    let single = [here, there, here].map(|process| {
        let (permits, gpus) = (permits.clone(), permits.of(process));
        spawn(move || {
            if let Some(permit) = gpus.try_acquire().expect("a reply") {
                permits.visit(&permit);
                released(permit.release());
            }
        })
    });
    join(single.into_iter().chain([large]));
    assert_at_once();
    permits.all_come_back(there);
    world.end(processes);
}

/// With one permit of two in force, a permit that is given up goes to nobody until the other is, too.
fn shrink() {
    let (world, permits) = (World::new(), Permits::new(2));
    let processes = [world.process(), world.process()];
    let [here, there] = &processes;
    let gpus = permits.of(here);
    let held = [(); 2].map(|()| gpus.acquire().expect("granted"));
    let waits = permits.worker(here, 1);
    in_line(&gpus, 1);
    // Nothing is left of it after the leases.
    permits.of(there).resize_for(1, Duration::from_secs(1)).expect("a reply");
    let_all_wait();
    let [first, second] = held;
    released(first.release());
    assert_eq!(gpus.holders().expect("a reply").len(), 1, "passed on over the limit");
    assert_eq!(permits.visits(), 0);
    released(second.release());
    join([waits]);
    assert_at_once();
    assert_eq!(gpus.limit().expect("a reply"), 1);
    drop(gpus);
    world.end(processes);
}

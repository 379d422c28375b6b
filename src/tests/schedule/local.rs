//! Scenarios within one process.

use std::time::Duration;

use shuttle::thread::spawn;

use crate::base::sync::sleep;
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{World, assert_at_once, join, let_all_wait, released};
use crate::{LockOptions, Wait};

pub(super) const SCENARIOS: Group = &[
    ("threads of one client", 0, threads),
    ("threads of one client, spinning", 0, spinning_threads),
    ("reentry, and a thread that ends", 0, reentry_and_thread_end),
    ("try_lock against lock", 0, try_lock_against_lock),
    ("a slot forgotten and asked for", 0, forgotten_slot),
    ("an owned lease changes threads", 0, owned_lease),
];

fn threads() {
    let world = World::new();
    let process = world.process();
    join([2, 1, 2].map(|times| process.worker(LockOptions::new(), times)));
    assert_eq!(world.witness.visits(), 5);
    assert_at_once();
    world.end([process]);
}

fn spinning_threads() {
    let world = World::new();
    let process = world.process();
    let options = LockOptions::new().wait(Wait::spin());
    join([2, 2].map(|times| process.worker(options, times)));
    assert_eq!(world.witness.visits(), 4);
    assert_at_once();
    world.end([process]);
}

fn reentry_and_thread_end() {
    let world = World::new();
    let process = world.process();
    let (holder, witness) = (process.clone(), world.witness.clone());
    let forgetful = spawn(move || {
        let mutex = holder.mutex();
        let outer = mutex.lock().expect("granted");
        witness.enter(&outer);
        let inner = mutex.try_lock().expect("granted").expect("its own");
        assert_eq!(mutex.hold_count(), 2);
        released(inner.release());
        sleep(Duration::ZERO);
        // Its thread has it still, and ends.
        outer.keep().expect("its thread goes on");
    });
    join([forgetful, process.worker(LockOptions::new(), 1)]);
    assert_eq!(world.witness.visits(), 2);
    assert_at_once();
    world.end([process]);
}

fn try_lock_against_lock() {
    let world = World::new();
    let (process, stranger) = (world.process(), world.process());
    let hasty = [process.clone(), process.clone(), stranger.clone()].map(|process| {
        let witness = world.witness.clone();
        spawn(move || {
            if let Some(guard) = process.mutex().try_lock().expect("an answer") {
                witness.visit(&guard);
                released(guard.release());
            }
        })
    });
    let patient = process.worker(LockOptions::new(), 1);
    join(hasty.into_iter().chain([patient]));
    assert_at_once();
    assert!(process.mutex().try_lock().expect("an answer").is_some(), "it was left to nobody");
    world.end([process, stranger]);
}

fn forgotten_slot() {
    let world = World::new();
    let process = world.process();
    let threads = [(); 3].map(|()| {
        let (process, witness) = (process.clone(), world.witness.clone());
        spawn(move || {
            for _ in 0..2 {
                // Each time the last handle of the name may go with this one.
                let guard = process.mutex().lock().expect("granted");
                witness.visit(&guard);
            }
        })
    });
    join(threads);
    assert_eq!(world.witness.visits(), 6);
    assert_at_once();
    world.end([process]);
}

fn owned_lease() {
    let world = World::new();
    let process = world.process();
    let guard = process.mutex().lock().expect("granted");
    let waiting = process.worker(LockOptions::new(), 1);
    let owned = guard.into_owned().expect("held once");
    let witness = world.witness.clone();
    let other = spawn(move || {
        let guard = owned.into_guard();
        witness.visit(&guard);
        released(guard.release());
    });
    // This thread does not have it any longer, and waits like any other.
    released(process.mutex().lock().expect("granted").release());
    join([waiting, other]);
    assert_at_once();
    let_all_wait();
    world.end([process]);
}

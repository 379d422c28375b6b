//! Waits that are called off, run out, or hear of a grant early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::LockOptions;
use crate::base::sync::time::passed;
use crate::base::sync::{Arc, sleep};
use crate::engine::Callbacks;
use crate::tests::schedule::faults::FaultyBackend;
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    Process, World, assert_at_once, eventually, join, let_all_wait, released,
};

pub(super) const SCENARIOS: Group = &[
    ("a wait called off against its grant", 0, cancel_against_grant),
    ("a wait called off before its pause", 0, cancel_before_pause),
    ("a wait called off within the process", 0, cancel_against_passing_on),
    ("a deadline against the grant", 3, deadline_against_grant),
    ("a deadline within the process", 3, deadline_against_passing_on),
    ("a grant before the answer to its join", 0, grant_before_reply),
    ("an answer that never came", 0, lost_answer),
    ("a stall before the request", 0, stall),
];

/// A thread that takes the lock unless it is called off.
fn takes_unless_cancelled(process: &Process, world: &World) -> JoinHandle<()> {
    let (process, witness) = (process.clone(), world.witness.clone());
    spawn(move || match process.mutex().lock() {
        Ok(guard) => {
            witness.visit(&guard);
            released(guard.release());
        }
        Err(error) => assert!(error.is_cancelled(), "{error}"),
    })
}

/// A thread that takes the lock unless its time runs out.
fn takes_within(process: &Process, world: &World, wait: Duration) -> JoinHandle<()> {
    let (process, witness) = (process.clone(), world.witness.clone());
    spawn(move || {
        match process.mutex().try_lock_for(wait) {
            Ok(Some(guard)) => {
                witness.visit(&guard);
                drop(guard);
            }
            Ok(None) => {}
            // Its time was over before it could ask anybody, or before a reply came to the thread that had asked.
            Err(error) => assert!(error.is_timeout() || error.is_unreachable(), "{error}"),
        }
    })
}

fn cancel_against_grant() {
    let world = World::new();
    let (holder, waiting, last) = (world.process(), world.process(), world.process());
    let guard = holder.mutex().lock().expect("granted");
    let mut threads = Vec::from([(); 2].map(|()| takes_unless_cancelled(&waiting, &world)));
    let_all_wait();
    let canceller = waiting.clone();
    threads.push(spawn(move || {
        canceller.mutex().cancel_waits();
    }));
    threads.push(last.worker(LockOptions::new(), 1));
    released(guard.release());
    join(threads);
    assert_at_once();
    world.end([holder, waiting, last]);
}

fn cancel_before_pause() {
    let world = World::new();
    let (holder, waiting) = (world.process(), world.process());
    let guard = holder.mutex().lock().expect("granted");
    let process = waiting.clone();
    let waiter = spawn(move || {
        let error = process.mutex().lock().expect_err("it is held all the time");
        assert!(error.is_cancelled(), "{error}");
    });
    let mutex = waiting.mutex();
    while mutex.cancel_waits() == 0 {
        sleep(Duration::from_millis(1));
    }
    join([waiter]);
    assert_at_once();
    released(guard.release());
    drop(mutex);
    world.end([holder, waiting]);
}

fn cancel_against_passing_on() {
    let world = World::new();
    let process = world.process();
    let guard = process.mutex().lock().expect("granted");
    let mut threads = Vec::from([(); 2].map(|()| takes_unless_cancelled(&process, &world)));
    let canceller = process.clone();
    threads.push(spawn(move || {
        canceller.mutex().cancel_waits();
    }));
    released(guard.release());
    join(threads);
    // A later caller is not called off.
    released(process.mutex().lock().expect("granted").release());
    assert_at_once();
    world.end([process]);
}

fn deadline_against_grant() {
    let world = World::new();
    let (holder, waiting, last) = (world.process(), world.process(), world.process());
    let guard = holder.mutex().lock().expect("granted");
    let waits = [Duration::from_millis(20), Duration::from_millis(30)];
    let mut threads = Vec::from(waits.map(|wait| takes_within(&waiting, &world, wait)));
    threads.push(last.worker(LockOptions::new(), 1));
    sleep(Duration::from_millis(20));
    drop(guard);
    join(threads);
    world.end([holder, waiting, last]);
}

fn deadline_against_passing_on() {
    let world = World::new();
    let process = world.process();
    let guard = process.mutex().lock().expect("granted");
    let waits = [Duration::from_millis(20), Duration::from_millis(30)];
    let mut threads = Vec::from(waits.map(|wait| takes_within(&process, &world, wait)));
    threads.push(process.worker(LockOptions::new(), 1));
    sleep(Duration::from_millis(20));
    drop(guard);
    join(threads);
    world.end([process]);
}

fn grant_before_reply() {
    let world = World::new();
    let holder = world.process();
    let joined = Arc::new(AtomicBool::new(false));
    let seen = joined.clone();
    let waiting = world.process_with(Callbacks::default(), |memory| {
        // The answer to the join comes when the grant was long heard.
        FaultyBackend::before(memory).late_join(move || {
            seen.store(true, Ordering::Relaxed);
            sleep(Duration::from_millis(150));
        })
    });
    let guard = holder.mutex().lock().expect("granted");
    let waiter = waiting.worker(LockOptions::new(), 1);
    eventually("nobody joins", || joined.load(Ordering::Relaxed));
    let began = passed();
    released(guard.release());
    join([waiter]);
    assert!(passed() - began < Duration::from_millis(400), "the grant was not kept");
    world.end([holder, waiting]);
}

fn lost_answer() {
    let world = World::new();
    let unlucky = world
        .process_with(Callbacks::default(), |memory| FaultyBackend::before(memory).lost_answers(2));
    let other = world.process();
    let options = LockOptions::new();
    join([unlucky.worker(options, 1), other.worker(options, 1)]);
    assert_eq!(world.witness.visits(), 2);
    world.end([unlucky, other]);
}

fn stall() {
    let world = World::new();
    let stalling =
        world.process_with(Callbacks::default(), |memory| FaultyBackend::before(memory).stalls(2));
    let other = world.process();
    let options = LockOptions::new();
    join([stalling.worker(options, 1), other.worker(options, 1)]);
    assert_eq!(world.witness.visits(), 2);
    world.end([stalling, other]);
}

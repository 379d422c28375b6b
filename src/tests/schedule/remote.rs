//! Scenarios of two processes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::thread::spawn;

use crate::LockOptions;
use crate::base::sync::time::passed;
use crate::base::sync::{Arc, sleep};
use crate::engine::Callbacks;
use crate::tests::schedule::faults::FaultyBackend;
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    NAME, World, assert_at_once, eventually, join, let_all_wait, released,
};

pub(super) const SCENARIOS: Group = &[
    ("threads of two clients", 0, two_clients),
    ("threads of two clients, reentrant locks", 0, two_clients_reentrant),
    ("passed on while another process waits", 0, bounded_passing_on),
    ("a linger, and its end", 0, linger),
    ("a linger runs out as it is asked for", 4, linger_runs_out),
    ("a forced release hands over", 0, forced_release),
    ("a request to let go", 0, request),
    ("a request to let go against a linger", 0, request_against_linger),
    ("a listener that must connect anew", 0, listener_connects_anew),
];

fn two_clients() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let options = LockOptions::new();
    let [one, other] = &processes;
    join([one.worker(options, 2), one.worker(options, 1), other.worker(options, 2)]);
    assert_eq!(world.witness.visits(), 5);
    assert_at_once();
    world.end(processes);
}

fn two_clients_reentrant() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let threads = [0, 0, 1].map(|at| {
        let (process, witness) = (processes[at].clone(), world.witness.clone());
        spawn(move || {
            let lock = process.client.reentrant(NAME).expect("allowed");
            let guard = lock.lock().expect("granted");
            witness.visit(&guard);
            released(guard.release());
        })
    });
    join(threads);
    assert_eq!(world.witness.visits(), 3);
    assert_at_once();
    world.end(processes);
}

/// At most so many local hand-overs in a row.
const PASSED_ON: u32 = 1;

fn bounded_passing_on() {
    let world = World::new();
    let (busy, waiting) = (world.process(), world.process());
    let options = LockOptions::new().local_handoffs(PASSED_ON);
    let first = waiting.mutex().lock().expect("granted");
    // They come to be the first in the queue, with one behind them.
    let mut threads = Vec::from([(); 3].map(|()| busy.worker(options, 1)));
    eventually("nobody queues", || world.queued() == 1);
    let visits_before = Arc::new(AtomicUsize::new(usize::MAX));
    let (process, witness, noted) = (world.process(), world.witness.clone(), visits_before.clone());
    threads.push(spawn(move || {
        let guard = process.mutex().lock().expect("granted");
        noted.store(witness.visits(), Ordering::Relaxed);
        witness.visit(&guard);
        released(guard.release());
    }));
    eventually("nobody queues behind", || world.queued() == 2);
    let began = passed();
    released(first.release());
    join(threads);
    assert!(passed() - began < Duration::from_millis(400), "somebody was not told");
    let before = visits_before.load(Ordering::Relaxed);
    assert!(before <= 1 + PASSED_ON as usize, "{before} holds came before a waiter's");
    assert_eq!(world.witness.visits(), 4);
    world.end([busy, waiting]);
}

fn linger() {
    let world = World::new();
    let (lingering, other) = (world.process(), world.process());
    let options = LockOptions::new().linger(Duration::from_secs(5));
    // It lingers only once it listens.
    released(lingering.mutex_with(options).lock().expect("granted").release());
    let_all_wait();
    let again = lingering.worker(options, 2);
    let stranger = other.worker(LockOptions::new(), 1);
    join([again, stranger]);
    assert_at_once();
    assert_eq!(world.witness.visits(), 3);
    world.end([lingering, other]);
}

fn linger_runs_out() {
    let world = World::new();
    let (lingering, other) = (world.process(), world.process());
    let options = LockOptions::new().linger(Duration::from_millis(5));
    let relock = {
        let (process, witness) = (lingering.clone(), world.witness.clone());
        spawn(move || {
            let mutex = process.mutex_with(options);
            for _ in 0..3 {
                let guard = mutex.lock().expect("granted");
                witness.visit(&guard);
                released(guard.release());
                sleep(Duration::from_millis(5));
            }
        })
    };
    join([relock, other.worker(LockOptions::new(), 1)]);
    assert_eq!(world.witness.visits(), 4);
    world.end([lingering, other]);
}

fn forced_release() {
    let world = World::new();
    let (holder, waiting) = (world.process(), world.process());
    let guard = holder.mutex().lock().expect("granted");
    let waiter = waiting.worker(LockOptions::new(), 1);
    let operator = spawn(move || {
        let_all_wait();
        assert!(waiting.mutex().force_release().expect("an answer"), "it was held");
    });
    join([waiter, operator]);
    assert_at_once();
    let error = guard.release().expect_err("another had it meanwhile");
    assert!(error.is_lost(), "{error}");
    world.end([holder]);
}

fn request() {
    let world = World::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let callbacks = Callbacks {
        on_release_request: Some(Arc::new(move |name: &[u8]| {
            assert_eq!(name, b"x");
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..Callbacks::default()
    };
    let holder = world.process_with(callbacks, FaultyBackend::before);
    let other = world.process();
    let guard = holder.mutex().lock().expect("granted");
    let_all_wait();
    let asking = other.clone();
    let asker = spawn(move || {
        assert!(asking.mutex().request_release().expect("an answer"), "the holder listens");
        released(asking.mutex().lock().expect("granted").release());
    });
    eventually("nobody heard it", || asked.load(Ordering::Relaxed) > 0);
    released(guard.release());
    join([asker]);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_at_once();
    world.end([holder, other]);
}

/// The lease begins to linger at about the moment at which its release is requested.
fn request_against_linger() {
    let world = World::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let callbacks = Callbacks {
        on_release_request: Some(Arc::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed))),
        ..Callbacks::default()
    };
    let holder = world.process_with(callbacks, FaultyBackend::before);
    let other = world.process();
    let options = LockOptions::new().linger(Duration::from_secs(5));
    released(holder.mutex_with(options).lock().expect("granted").release());
    let_all_wait();
    // It lingers only where others have been heard of from the start.
    let guard = holder.mutex_with(options).lock().expect("granted");
    let asking = other.clone();
    let asker = spawn(move || asking.mutex().request_release().expect("an answer"));
    released(guard.release());
    let is_heard = asker.join().expect("no panic");
    let_all_wait();
    if is_heard && asked.load(Ordering::Relaxed) == 0 {
        assert!(!other.mutex().is_locked().expect("an answer"), "neither told nor released");
    }
    world.end([holder, other]);
}

fn listener_connects_anew() {
    let world = World::new();
    let (holder, waiting) = (world.process(), world.process());
    let guard = holder.mutex().lock().expect("granted");
    let waiters = [(); 2].map(|()| waiting.worker(LockOptions::new(), 1));
    eventually("nobody queues", || world.queued() > 0);
    let began = passed();
    // The grant may be said to nobody.
    let server = world.server.clone();
    let breaks = spawn(move || server.disconnect(None));
    released(guard.release());
    join(waiters.into_iter().chain([breaks]));
    assert!(passed() - began < Duration::from_millis(400), "nobody asked after coming back");
    world.end([holder, waiting]);
}

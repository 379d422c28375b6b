//! Ends before their time: shutdown, panics, a client that goes first.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use shuttle::thread::spawn;

use crate::base::sync::time::passed;
use crate::base::sync::{Arc, sleep};
use crate::base::time::Moment;
use crate::engine::Callbacks;
use crate::tests::schedule::faults::{Count, FaultyBackend};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{
    World, assert_at_once, eventually, join, let_all_wait, released,
};
use crate::{Lease, LockOptions, LossCause};

pub(super) const SCENARIOS: Group = &[
    ("shutdown against holders and waiters", 0, shutdown),
    ("shutdown against a linger", 0, shutdown_while_lingering),
    ("close with a grace against holders and waiters", 0, close_with_a_grace),
    ("close against a shutdown", 0, close_against_shutdown),
    ("a kept lock against those who wait for it", 0, kept_against_waiters),
    ("a holder that panics", 0, holder_panics),
    ("a worker that panics at a renewal", 0, worker_panics_renewing),
    ("a worker that panics giving back", 0, worker_panics_giving_back),
    ("a client that goes before its work is done", 0, client_goes_first),
];

/// More than enough for a server that answers.
const ENOUGH: Duration = Duration::from_secs(5);

fn shutdown() {
    let world = World::new();
    let reported = Count::default();
    let count = reported.clone();
    let callbacks = Callbacks {
        on_loss: Some(Arc::new(move |loss| {
            assert_eq!(loss.cause(), LossCause::ShutDown);
            count.one_more();
        })),
        ..Callbacks::default()
    };
    let ending = world.process_with(callbacks, FaultyBackend::before);
    let other = world.process();
    let (lost, cancelled, over) = (Count::default(), Count::default(), Count::default());
    let threads = [(); 2].map(|()| {
        let (process, witness) = (ending.clone(), world.witness.clone());
        let (lost, cancelled, over) = (lost.clone(), cancelled.clone(), over.clone());
        spawn(move || match process.mutex().lock() {
            Ok(guard) => {
                witness.visit(&guard);
                let is_over = over.get() > 0;
                assert!(!is_over || !guard.is_valid(), "valid after the shutdown");
                if let Err(error) = guard.release() {
                    assert!(error.is_lost(), "{error}");
                    lost.one_more();
                }
            }
            Err(error) => {
                assert!(error.is_cancelled(), "{error}");
                cancelled.one_more();
            }
        })
    });
    let stranger = other.worker(LockOptions::new(), 1);
    ending.client.shutdown(ENOUGH).expect("given back in time");
    over.one_more();
    let error = ending.mutex().lock().expect_err("it is shut down");
    assert!(error.is_cancelled(), "{error}");
    join(threads.into_iter().chain([stranger]));
    // The thread that reports may have begun to wait for its turn a little after the others: it has its call before long.
    eventually("a loss is not reported", || reported.get() >= lost.get());
    let_all_wait();
    // A thread that did not get the lock has lost nothing.
    assert_eq!(lost.get(), reported.get(), "{cancelled:?} cancelled");
    assert_at_once();
    world.end([ending, other]);
}

fn shutdown_while_lingering() {
    let world = World::new();
    let (ending, other) = (world.process(), world.process());
    let options = LockOptions::new().linger(Duration::from_secs(5));
    released(ending.mutex_with(options).lock().expect("granted").release());
    let_all_wait();
    let relocking = ending.clone();
    let relock = spawn(move || match relocking.mutex_with(options).lock() {
        Ok(guard) => drop(guard),
        Err(error) => assert!(error.is_cancelled(), "{error}"),
    });
    ending.client.shutdown(ENOUGH).expect("given back in time");
    join([relock, other.worker(LockOptions::new(), 1)]);
    assert_at_once();
    world.end([ending, other]);
}

fn close_with_a_grace() {
    let world = World::new();
    let (ending, other) = (world.process(), world.process());
    let (granted, cancelled) = (Count::default(), Count::default());
    let threads = [(); 2].map(|()| {
        let (process, witness) = (ending.clone(), world.witness.clone());
        let (granted, cancelled) = (granted.clone(), cancelled.clone());
        spawn(move || match process.mutex().lock() {
            Ok(guard) => {
                granted.one_more();
                witness.visit(&guard);
                drop(process.mutex().lock().expect("it is this thread's"));
                released(guard.release());
            }
            Err(error) => {
                assert!(error.is_cancelled(), "{error}");
                cancelled.one_more();
                assert!(process.client.is_closed(), "it is still open");
            }
        })
    });
    let stranger = other.worker(LockOptions::new(), 1);
    // Nobody works for that long, so nothing is taken.
    let report = ending.client.close(ENOUGH, ENOUGH);
    assert!(report.taken().is_empty() && report.lost().is_empty(), "{report}");
    let error = ending.mutex().lock().expect_err("it is closed");
    assert!(error.is_cancelled(), "{error}");
    join(threads.into_iter().chain([stranger]));
    // Nothing is left to do, not even by a thread that stood still meanwhile.
    assert_eq!(ending.client.engine().worker.wait_released(Moment::PAST).len(), 0, "{report}");
    // The others had it before, or asked later.
    assert!(report.finished() <= granted.get() as usize, "{granted:?}, {report}");
    assert!(report.cancelled() <= cancelled.get() as usize, "{cancelled:?}, {report}");
    report.into_result().expect("given back in time");
    assert_at_once();
    world.end([ending, other]);
}

fn close_against_shutdown() {
    let world = World::new();
    let (ending, other) = (world.process(), world.process());
    let guard = ending.mutex().lock().expect("granted");
    world.witness.enter(&guard);
    let patient = ending.clone();
    let closing = spawn(move || {
        let report = patient.client.close(Duration::from_secs(3600), ENOUGH);
        // Nobody releases it, so a call without a grace has ended this one, or came first.
        assert!(report.finished() == 0 && report.taken().len() <= 1, "{report}");
    });
    let hasty = ending.clone();
    let shutdown = spawn(move || hasty.client.shutdown(ENOUGH).expect("given back in time"));
    join([closing, shutdown, other.worker(LockOptions::new(), 1)]);
    assert!(!guard.is_valid() && guard.release().is_err_and(|error| error.is_lost()));
    assert_at_once();
    world.end([ending, other]);
}

fn kept_against_waiters() {
    const KEPT: Duration = Duration::from_secs(2);
    let world = World::new();
    let (here, there) = (world.process(), world.process());
    let guard = here.mutex().lock().expect("granted");
    world.witness.enter(&guard);
    guard.keep_for(KEPT).expect("kept");
    let waiters = [&here, &there].map(|process| process.worker(LockOptions::new(), 1));
    let visits = world.witness.visits();
    released(guard.release());
    join(waiters);
    assert!(passed() >= KEPT, "somebody had it after {:?}", passed());
    assert_eq!(world.witness.visits(), visits + 2);
    world.end([here, there]);
}

fn holder_panics() {
    let world = World::new();
    let process = world.process();
    let panicking = process.clone();
    let panics = spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _guard = panicking.mutex().lock().expect("granted");
            resume_unwind(Box::new("planted"));
        }));
        assert!(outcome.is_err());
    });
    join([panics, process.worker(LockOptions::new(), 1)]);
    assert_at_once();
    world.end([process]);
}

fn worker_panics_renewing() {
    let world = World::new();
    let mut left = Count::default();
    let holder = world.process_with(Callbacks::default(), |memory| {
        let backend = FaultyBackend::before(memory).panics(2);
        left = backend.panics_left();
        backend
    });
    let waiting = world.process();
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(3)));
    let guard = holder.mutex_with(options).lock().expect("granted");
    let next = waiting.worker(options, 1);
    world.witness.enter(&guard);
    sleep(Duration::from_secs(5));
    assert!(guard.is_valid(), "{:?}", guard.loss());
    assert_eq!(left.get(), 0, "no panic came");
    released(guard.release());
    join([next]);
    world.end([holder, waiting]);
}

fn worker_panics_giving_back() {
    let world = World::new();
    let holder =
        world.process_with(Callbacks::default(), |memory| FaultyBackend::before(memory).panics(1));
    let waiting = world.process();
    let forgetting = holder.clone();
    let forgetful =
        spawn(move || forgetting.mutex().lock().expect("granted").keep().expect("kept"));
    join([forgetful, waiting.worker(LockOptions::new(), 1)]);
    holder.client.shutdown(ENOUGH).expect("given back in time");
    assert_at_once();
    world.end([holder, waiting]);
}

fn client_goes_first() {
    let world = World::new();
    let (leaving, waiting) = (world.process(), world.process());
    let next = waiting.worker(LockOptions::new(), 1);
    // The last handles go with this thread, and leave the lock to the client's worker.
    let last = spawn(move || leaving.mutex().lock().expect("granted").keep().expect("kept"));
    join([last, next]);
    assert_at_once();
    world.end([waiting]);
}

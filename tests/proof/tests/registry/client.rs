//! Faults of the processes and threads that use locks.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Guard, LossCause};
use leasehold_support::fault::network::AtOperation;
use leasehold_support::fault::process::{Killed, SignalStorm, Stopped};
use leasehold_support::fault::{Active, Operation};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Child};

use crate::acquire::garbage;
use crate::common::{SLACK, SOON, ask, exists, ms, pttl, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial, wait};

kinds! {
    stopped_at_hold "holder-stopped@hold" "A,S";
    killed_at_hold "holder-killed@hold" "L";
    killed_at_wait "waiter-killed@wait" "L";
    stopped_at_wait "waiter-stopped@wait" "S,L";
    storm_at_all "signal-storm@every-call" "E,S";
    forked_at_hold "forked@hold" "E,S";
    panic_at_hold "panic@hold" "S,L";
    exit_at_hold "thread-exit@hold" "L";
    thread_local_at_exit "thread-local@thread-exit" "L";
    forgotten_at_hold "forgotten@hold" "S,L";
    exhausted_at_acquire "pool-exhausted@acquire" "E,S";
    worker_panics_at_renew "worker-panics@renew" "S,L";
    worker_stalls_at_renew "worker-stalls@renew" "S,L";
    shut_down_at_hold "shut-down@hold" "S,L";
    shut_down_at_wait "shut-down@wait" "E,L";
}

fn child(trial: &Trial, role: &str) -> Child {
    let builder = Child::role(role).test("roles").env("URL", trial.server.url());
    builder.start().expect("a child")
}

/// A holder that is stopped for longer than its lease knows before any I/O, and is fenced.
fn stopped_at_hold(trial: &Trial) {
    let mut holder = child(trial, "holder");
    let token: u64 = holder.expect_line("held", SOON).parse().unwrap();
    let active = Stopped.begin(holder.pid());
    let next = trial.rival().try_lock_for(SOON).unwrap().expect("free");
    is_lost_to(trial, holder, token, active, &next);
}

/// The holder that was stopped goes on, and learns that this guard has had the lock since.
pub(crate) fn is_lost_to(
    trial: &Trial,
    mut holder: Child,
    token: u64,
    mut active: Active<'_>,
    next: &Guard,
) {
    trial.granted(next);
    assert!(next.fencing_token().get() > token);
    trial.prove(&active);
    active.heal();
    drop(active);
    holder.say("look");
    assert_eq!(holder.expect_line("valid", SOON), "false 0ns");
    holder.say("release");
    assert_eq!(holder.expect_line("released", SOON), "lost");
    next.check().unwrap();
}

/// A holder that forks: the fork is refused, and the holder goes on.
fn forked_at_hold(trial: &Trial) {
    let mut holder = child(trial, "forker");
    holder.expect_line("held", SOON);
    let line = holder.expect_line("fork", SOON);
    let (pid, answers) = line.split_once(' ').expect("a number and what it was told");
    assert_eq!(answers, "[true, true, true]");
    let another = u64::from(pid.parse::<u32>().unwrap() != holder.pid());
    trial.witnessed(1, another, "the fork's number");
    assert!(exists(&trial.server, KEY), "the fork gave back what its parent holds");
    assert!(trial.rival().try_lock().unwrap().is_none());
    holder.expect_line("well", SOON);
    trial.granted(&trial.rival().try_lock_for(SOON).unwrap().expect("free"));
}

/// The next grant comes when the dead one's lease is over, and not before.
fn killed_at_hold(trial: &Trial) {
    let rival = trial.rival();
    trial.granted(&rival.lock().unwrap());
    let holder = child(trial, "holder");
    let mut holder = holder;
    let token: u64 = holder.expect_line("held", SOON).parse().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = rival.try_lock_for(SOON).unwrap().expect("free");
            let granted = Instant::now();
            assert!(guard.fencing_token().get() > token);
            guard.release().unwrap();
            granted
        });
        until("it waits", || trial.waiting() == 1);
        let active = Killed.begin(holder.pid());
        let before = Instant::now();
        let left = Duration::from_millis(pttl(&trial.server, KEY).unsigned_abs());
        let begin = Instant::now();
        let granted = waiter.join().unwrap();
        let took = granted.duration_since(before);
        assert!(took + ms(50) > left, "{took:?} for {left:?}");
        // Judged with the other overruns: at most 50 ms.
        trial.overran(granted.spent_since(begin).saturating_sub(left));
        trial.prove(&active);
    });
}

/// A dead waiter before a live one: its channel has no subscriber, so it is skipped at once.
fn killed_at_wait(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let first = child(trial, "waiter");
    until("the first waits", || trial.waiting() == 1);
    thread::scope(|scope| {
        let second = scope.spawn(|| wait(trial, &lock));
        until("both wait", || trial.waiting() == 2);
        let listening = || ask::<Vec<String>>(&trial.server, &["PUBSUB", "CHANNELS"]).len();
        until("both listen", || listening() == 2);
        let active = Killed.begin(first.pid());
        trial.prove(&active);
        // The last of its threads closes its connections.
        until("the server sees it", || listening() == 1);
        let begin = Instant::now();
        held.release().unwrap();
        let took = second.join().unwrap().spent_since(begin);
        assert!(took < SLACK, "{took:?}");
    });
    trial.given_back();
    // The place of the dead is kept for twice the time after which it counts as dead (rule 11).
    trial.litters(ms(6_000));
}

/// A waiter that is stopped is given the lock for a while, then the next has it; when the first
/// goes on it has lost nothing but its turn.
fn stopped_at_wait(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let mut first = child(trial, "waiter");
    until("the first waits", || trial.waiting() == 1);
    thread::scope(|scope| {
        let second = scope.spawn(|| wait(trial, &lock));
        until("both wait", || trial.waiting() == 2);
        let mut active = Stopped.begin(first.pid());
        trial.prove(&active);
        let begin = Instant::now();
        held.release().unwrap();
        let took = second.join().unwrap().spent_since(begin);
        // The window of its claim, which is no longer than its lease, and a heartbeat.
        assert!(took < ms(LEASE + 1_300) + SLACK, "{took:?}");
        active.heal();
        first.expect_line("granted", SOON);
    });
    first.wait();
}

/// Up to a thousand signals a second: calls are interrupted, and their outcomes stay true.
fn storm_at_all(trial: &Trial) {
    let mut worker = child(trial, "worker");
    worker.expect_line("ready", SOON);
    let mut active = SignalStorm.begin(worker.pid());
    worker.say("go");
    until("it was often interrupted", || active.fired().injected > 100);
    worker.say("enough");
    let done: u64 = worker.expect_line("done", SOON * 3).parse().unwrap();
    active.heal();
    assert!(done > 0);
    trial.prove(&active);
    worker.wait();
    trial.given_back();
}

/// A panic unwinds through the guard: the lock is released once, without a second panic.
fn panic_at_hold(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let before = trial.server.command_calls(&["del"]);
    let ended = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            trial.granted(&guard);
            std::panic::resume_unwind(Box::new("planned"));
        });
        holder.join()
    });
    let panicked = ended.is_err_and(|panic| panic.downcast_ref() == Some(&"planned"));
    let released = trial.server.command_calls(&["del"]) - before;
    assert_eq!(released, 1);
    trial.witnessed(u64::from(panicked), released, "INFO commandstats");
    trial.granted(&trial.rival().try_lock().unwrap().expect("free"));
}

/// A thread ends and has forgotten its guard: the worker gives the lock back.
fn exit_at_hold(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let before = trial.server.command_calls(&["del"]);
    thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(lock.lock().unwrap()));
    });
    until("it is given back", || !exists(&trial.server, KEY));
    let released = trial.server.command_calls(&["del"]) - before;
    trial.witnessed(1, released, "INFO commandstats");
    trial.granted(&trial.rival().try_lock().unwrap().expect("free"));
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

/// The guard is dropped by the thread's end, when its other thread-locals may be gone.
fn thread_local_at_exit(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let before = trial.server.command_calls(&["del"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Before the crate's own, and in the other trials after it.
            KEPT.with(|kept| *kept.borrow_mut() = None);
            let guard = lock.lock().unwrap();
            trial.granted(&guard);
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
        });
    });
    until("it is given back", || !exists(&trial.server, KEY));
    let released = trial.server.command_calls(&["del"]) - before;
    trial.witnessed(1, released, "INFO commandstats");
    trial.granted(&trial.rival().try_lock().unwrap().expect("free"));
}

/// A guard that is never dropped: `max_hold` stops its renewal, and the next has the lock.
fn forgotten_at_hold(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE).max_hold(ms(500))).unwrap();
    let rival = trial.rival();
    let begin = Instant::now();
    thread::scope(|scope| {
        let (tell, acquired) = std::sync::mpsc::channel();
        let (over, wait) = std::sync::mpsc::channel::<()>();
        let holder = scope.spawn(move || {
            let guard = lock.lock().unwrap();
            trial.granted(&guard);
            let guard = std::mem::ManuallyDrop::new(guard);
            tell.send(()).unwrap();
            // It lives on, and so does its thread.
            let _ = wait.recv();
            (guard.is_valid(), guard.loss().map(|loss| loss.cause()))
        });
        acquired.recv().unwrap();
        let next = rival.try_lock_for(SOON).unwrap().expect("free");
        let took = begin.spent();
        trial.granted(&next);
        assert!(took < ms(500 + LEASE) + SLACK, "{took:?}");
        drop(over);
        let (valid, cause) = holder.join().unwrap();
        assert_eq!((valid, cause), (false, Some(LossCause::MaxHold)));
        trial.witnessed(1, u64::from(!valid), "the next grant");
    });
}

/// Every connection of the pool is stuck: an error in time, and renewals have their own.
fn exhausted_at_acquire(trial: &Trial) {
    let builder = trial.builder().max_size(1).max_wait(ms(100));
    let client = builder.connect_now(false).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    // To connect may take longer than that.
    until("it is connected", || lock.is_locked().is_ok());
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let stuck = client.mutex_with("stuck", renewed(LEASE)).unwrap();
    let other = client.mutex_with("other", renewed(LEASE)).unwrap();
    // Later commands on its connection are stuck too: no reply may be taken for another's.
    let silent = AtOperation::request("stuck", Operation::Acquire, Action::Hold);
    let active = trial.inject(&silent.containing("stuck").sticky());
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut last = None;
            for _ in 0..4 {
                last = trial.timed(COMMAND, || stuck.try_lock()).map(drop).err();
            }
            last
        });
        until("the connection is stuck", || active.fired().injected > 0);
        let mut exhausted = 0;
        while !holder.is_finished() {
            match trial.timed(COMMAND, || other.try_lock()) {
                Ok(guard) => drop(guard),
                Err(error) => {
                    assert!(!error.is_wrong_type() && !error.is_refused(), "{error:?}");
                    // The one connection waits for a reply, and so it is the server that is silent.
                    exhausted += u64::from(error.is_pool_exhausted() || error.is_unreachable());
                }
            }
        }
        let last = holder.join().unwrap().expect("an error");
        // A connection that is made in the place of a stuck one may take longer than `max_wait`.
        let is_expected =
            last.is_unknown_outcome() || last.is_pool_exhausted() || last.is_unreachable();
        assert!(is_expected, "{last:?}");
        assert!(exhausted > 0, "the pool never ran out; {last:?}");
    });
    // All of that may have taken less.
    until("a lease has passed", || begin.elapsed() > ms(LEASE));
    assert!(guard.is_valid());
    trial.heal(active);
    until("it is connected again", || lock.is_locked().is_ok());
    guard.release().unwrap();
    trial.given_back();
}

/// A process whose logger does harm when it is told that a renewal failed.
fn hurt(trial: &Trial, how: &str) -> Child {
    let builder = Child::role("hurt").test("roles").env("URL", trial.proxy.url()).env("HOW", how);
    // On a busy machine, printing the origin of the panic takes longer than a lease.
    let mut child = builder.env("RUST_BACKTRACE", "0").start().expect("a child");
    let token: u64 = child.expect_line("held", SOON).parse().unwrap();
    assert!(token > 0);
    let garbage = AtOperation::request("garbage", Operation::Renew, garbage());
    let active = trial.inject(&garbage);
    child.expect_line("hurt", SOON);
    trial.prove(&active);
    child
}

/// The logger panics. The worker goes on, and renews what it was at.
fn worker_panics_at_renew(trial: &Trial) {
    outlives_the_logger(trial, "panic");
}

/// The logger blocks for two leases. No thread that renews waits for it.
fn worker_stalls_at_renew(trial: &Trial) {
    outlives_the_logger(trial, "stall");
}

fn outlives_the_logger(trial: &Trial, how: &str) {
    let mut child = hurt(trial, how);
    thread::sleep(ms(LEASE * 3 / 2));
    assert!(trial.rival().try_lock().unwrap().is_none());
    child.say("look");
    assert!(child.expect_line("valid", SOON).starts_with("true"));
    child.say("release");
    assert_eq!(child.expect_line("released", SOON), "in time");
    trial.stays_away();
}

/// A client is shut down while a thread holds: the guard is invalid, and the lock is free.
fn shut_down_at_hold(trial: &Trial) {
    let client = trial.client();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let before = trial.server.command_calls(&["del"]);
    trial.timed(COMMAND, || client.shutdown(COMMAND)).unwrap();
    let released = trial.server.command_calls(&["del"]) - before;
    trial.witnessed(1, released, "INFO commandstats");
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::ShutDown);
    let next = trial.rival().try_lock().unwrap().expect("free");
    trial.granted(&next);
    assert!(guard.release().is_err());
    assert!(lock.try_lock().unwrap_err().is_cancelled());
    next.check().unwrap();
}

fn shut_down_at_wait(trial: &Trial) {
    let client = trial.client();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || trial.waiting() == 1);
        trial.timed(COMMAND, || client.shutdown(COMMAND)).unwrap();
        let begin = Instant::now();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(error.is_cancelled() && begin.spent() < SLACK, "{error:?}");
        until("it left the queue", || trial.waiting() == 0);
        trial.witnessed(1, 1 - trial.waiting(), "ZCARD");
    });
    held.release().unwrap();
    trial.stays_away();
}

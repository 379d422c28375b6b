//! Faults of the network at acquire.

use std::thread;
use std::time::Instant;

use leasehold::LockClient;
use leasehold_support::fault::network::{AtOperation, BlackHole, Refused, Reset, SILENCE, Slow};
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::{Action, Direction};

use crate::common::{SOON, ask, fixed, ms, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial, wait};

kinds! {
    request_cut_at_acquire "request-cut@acquire" "A,S"
        = acquired_again(&request("request-cut", Operation::Acquire, Action::Cut), 1);
    request_half_at_acquire "request-half@acquire" "A,S"
        = acquired_again(&request("request-half", Operation::Acquire, Action::CutHalf), 1);
    reply_lost_at_acquire "reply-lost@acquire" "A,S"
        = acquired_again(&request("reply-lost", Operation::Acquire, Action::LoseReply), 2);
    reply_half_at_acquire "reply-half@acquire" "A,S"
        = acquired_again(&request("reply-half", Operation::Acquire, Action::HalfReply), 2);
    garbage_at_acquire "garbage@acquire" "A,S"
        = acquired_again(&request("garbage", Operation::Acquire, garbage()), 2);
    dropped_at_acquire "dropped@acquire" "E,A"
        = acquire_unknown(&request("dropped", Operation::Acquire, Action::Drop));
    silent_at_acquire "silent@acquire" "E,A,S"
        = acquire_unknown(&request("silent", Operation::Acquire, SILENCE));
    late_reply_at_acquire "late-reply@acquire" "A,S";
    overtaken_at_acquire "overtaken@acquire" "A,S";
    // A network that delivers twice must not grant twice.
    doubled_at_acquire "doubled@acquire" "S"
        = acquired_again(&request("doubled", Operation::Acquire, Action::Twice), 2);
    slow_at_acquire "slow@acquire" "E,S";
    black_hole_at_acquire "black-hole@acquire" "E,A";
    black_hole_at_wait "black-hole@wait" "E,A";
    reset_at_acquire "reset@acquire" "A,S";
    refused_at_acquire "refused@acquire" "E,L" = outage(&Refused { cut: true });
    cut_at_hello "request-cut@connect" "E,L";
    silent_at_hello "silent@connect" "E,L";
    reply_lost_at_reentrant_acquire "reply-lost@reentrant-acquire" "A,S";
    silent_at_reentrant_acquire "silent@reentrant-acquire" "E,A,S";
}

fn request(name: &'static str, operation: Operation, action: Action) -> AtOperation {
    AtOperation::request(name, operation, action)
}

/// A reply that belongs to another command.
pub(crate) fn garbage() -> Action {
    Action::Garbage(b"*2\r\n:1\r\n:2\r\n".to_vec())
}

/// A connection broke: the same attempt is made again, and recognised where it was made before.
fn acquired_again(trial: &Trial, injector: &dyn Injector, executed: u64) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(injector);
    trial.server.reset_stats();
    let guard = trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("ours");
    trial.prove(&active);
    assert_eq!(trial.server.command_calls(&["eval", "evalsha"]), executed);
    trial.granted(&guard);
    let counter: u64 = ask(&trial.server, &["GET", "{k}:fence"]);
    assert_eq!(guard.fencing_token().get(), counter);
    assert_eq!(lock.hold_count(), 1);
    assert!(trial.rival().try_lock().unwrap().is_none());
    guard.check().unwrap();
    guard.release().unwrap();
    trial.stays_away();
}

/// No reply comes: the outcome is reported as unknown, in time, and the possible lock is released.
fn acquire_unknown(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(injector);
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(!lock.is_held_by_current_thread());
    trial.prove(&active);
    trial.given_back();
    let guard = lock.try_lock_for(SOON).unwrap().expect("free");
    trial.granted(&guard);
}

fn late_reply_at_acquire(trial: &Trial) {
    let client = trial.client();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let other = client.mutex_with("other", renewed(LEASE)).unwrap();
    let rival = crate::common::open(&trial.server).mutex_with("other", renewed(LEASE)).unwrap();
    let held = rival.lock().unwrap();
    let late = AtOperation::reply("late-reply", Operation::Acquire, Action::Delay(COMMAND * 2));
    let active = trial.inject(&late);
    assert!(trial.timed(COMMAND, || lock.try_lock()).unwrap_err().is_unknown_outcome());
    // The next commands must not read it.
    let begin = Instant::now();
    while begin.elapsed() < COMMAND * 2 {
        assert!(trial.timed(COMMAND, || other.try_lock()).unwrap().is_none());
        assert!(other.is_locked().unwrap());
        thread::sleep(ms(2));
    }
    trial.prove(&active);
    held.release().unwrap();
    trial.given_back();
}

/// The request runs only after its own clean-up has (rules 2 and 6).
fn overtaken_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&request("overtaken", Operation::Acquire, Action::Hold));
    assert!(trial.timed(COMMAND, || lock.try_lock()).unwrap_err().is_unknown_outcome());
    until("its clean-up has run", || {
        trial.proxy.tally(Direction::Request, Operation::Release).seen > 0
    });
    thread::sleep(COMMAND / 2);
    let before = trial.server.command_calls(&["eval", "evalsha"]);
    trial.heal(active);
    until("the request ran", || trial.server.command_calls(&["eval", "evalsha"]) > before);
    trial.stays_away();
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

/// A grant that took longer to come than its lease lasts is none.
fn slow_at_acquire(trial: &Trial) {
    let client = trial.builder().command_timeout(ms(1_000)).build().unwrap();
    let lock = client.mutex_with(KEY, fixed(250)).unwrap();
    assert!(!lock.is_locked().unwrap());
    let active = trial.inject(&Slow(ms(150)));
    let error = trial.timed(ms(1_000), || lock.try_lock()).unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    trial.heal(active);
    trial.given_back();
}

fn black_hole_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&BlackHole);
    for _ in 0..2 {
        let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
    }
    trial.heal(active);
    // The delayed request arrives now, and is too late or is cleaned up.
    trial.given_back();
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// The server falls silent while a thread waits in the queue: its own time still holds.
fn black_hole_at_wait(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    // The last reply must be old by then, also on a machine that stalled.
    let wait = ms(2_600);
    let active = thread::scope(|scope| {
        let waiter = scope.spawn(|| trial.timed(wait, || lock.try_lock_for(wait)).map(drop));
        until("it waits", || trial.waiting() == 1);
        let active = trial.inject(&BlackHole);
        let error = waiter.join().unwrap().expect_err("it was told nothing for too long");
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
        active
    });
    trial.heal(active);
    held.release().unwrap();
    trial.given_back();
}

/// All connections end while nothing is under way: the next call uses a new one.
fn reset_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    trial.granted(&lock.lock().unwrap());
    let active = trial.inject(&Reset);
    trial.prove(&active);
    let guard = trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("free");
    trial.granted(&guard);
    guard.release().unwrap();
    trial.stays_away();
}

/// A thread waits while nothing is served; it has the lock soon after the server is back.
pub(crate) fn outage(trial: &Trial, injector: &dyn Injector) {
    outage_for(trial, &trial.client(), injector);
}

/// The same, for a client that may be without a connection.
pub(crate) fn outage_for(trial: &Trial, client: &LockClient, injector: &dyn Injector) {
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let mut active = trial.inject(injector);
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        thread::sleep(ms(400));
        assert!(!waiter.is_finished());
        active.heal();
        let healed = Instant::now();
        trial.back(waiter.join().unwrap().saturating_duration_since(healed));
    });
    trial.prove(&active);
    trial.stays_away();
}

fn cut_at_hello(trial: &Trial) {
    drop(trial.client());
    let cut = request("request-cut", Operation::Hello, Action::Cut).sticky();
    let active = trial.inject(&cut);
    let lock = trial.builder().connect_now(false).build().unwrap();
    let lock = lock.mutex_with(KEY, renewed(LEASE)).unwrap();
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// The listener on the port never replies: a half-open server, or another program.
fn silent_at_hello(trial: &Trial) {
    let silent = request("silent", Operation::Hello, SILENCE).sticky();
    let active = trial.inject(&silent);
    let client = trial.builder().connect_now(false).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    trial.prove(&active);
    drop(active);
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

fn reply_lost_at_reentrant_acquire(trial: &Trial) {
    let lock = trial.client().reentrant_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&request("reply-lost", Operation::Acquire, Action::LoseReply));
    let guard = trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("ours");
    trial.prove(&active);
    trial.granted(&guard);
    let counts: Vec<u64> = ask(&trial.server, &["HVALS", KEY]);
    assert_eq!(counts, [1]);
    guard.release().unwrap();
    trial.stays_away();
}

fn silent_at_reentrant_acquire(trial: &Trial) {
    let lock = trial.client().reentrant_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&request("silent", Operation::Acquire, SILENCE));
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    trial.prove(&active);
    trial.given_back();
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

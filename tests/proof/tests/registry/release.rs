//! Faults of the network at release and renewal.

use std::thread;
use std::time::Instant;

use leasehold::{LockOptions, LossCause, Release, Wait};
use leasehold_support::fault::network::{AtOperation, BlackHole, SILENCE};
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::{Action, Direction};

use crate::acquire::garbage;
use crate::common::{SOON, exists, ms, renewed, until};
use crate::kind::kinds;
use crate::trial::{CALL, COMMAND, KEY, LEASE, Trial};

kinds! {
    request_cut_at_release "request-cut@release" "A,S";
    request_half_at_release "request-half@release" "A,S";
    reply_lost_at_release "reply-lost@release" "A,S";
    reply_half_at_release "reply-half@release" "A,S";
    garbage_at_release "garbage@release" "A,S"
        = released_again(&request("garbage", Operation::Release, garbage()), renewed(LEASE));
    dropped_at_release "dropped@release" "E,A"
        = repeated_in_silence(&request("dropped", Operation::Release, Action::Drop));
    silent_at_release "silent@release" "E,A"
        = repeated_in_silence(&request("silent", Operation::Release, SILENCE));
    overtaken_at_release "overtaken@release" "A,S";
    black_hole_at_release "black-hole@release" "E,A";
    request_cut_at_watch_release "request-cut@watch-release" "A,S";
    reply_lost_at_watch_release "reply-lost@watch-release" "A,S";
    request_cut_at_renew "request-cut@renew" "S,L"
        = renewed_again(&request("request-cut", Operation::Renew, Action::Cut));
    reply_lost_at_renew "reply-lost@renew" "S,L"
        = renewed_again(&request("reply-lost", Operation::Renew, Action::LoseReply));
    garbage_at_renew "garbage@renew" "S,L"
        = renewed_again(&request("garbage", Operation::Renew, garbage()));
    dropped_at_renew "dropped@renew" "S,L"
        = renewed_again(&request("dropped", Operation::Renew, Action::Drop));
    overtaken_at_renew "overtaken@renew" "A,S";
    black_hole_at_renew "black-hole@renew" "E,S";
    reply_lost_at_reentrant_release "reply-lost@reentrant-release" "A,S";
}

fn request(name: &'static str, operation: Operation, action: Action) -> AtOperation {
    AtOperation::request(name, operation, action)
}

/// A connection broke: the release is repeated, and the lock is free.
fn released_again(trial: &Trial, injector: &dyn Injector, options: LockOptions) {
    let lock = trial.client().mutex_with(KEY, options).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(injector);
    trial.released(trial.timed(COMMAND, || guard.release()));
    assert!(!exists(&trial.server, KEY));
    trial.prove(&active);
    let next = trial.rival().try_lock().unwrap().expect("free");
    trial.granted(&next);
    // Nothing of the first one's comes to the next.
    thread::sleep(ms(100));
    next.check().unwrap();
}

fn request_cut_at_release(trial: &Trial) {
    let cut = request("request-cut", Operation::Release, Action::Cut);
    released_again(trial, &cut, renewed(LEASE));
}

fn request_half_at_release(trial: &Trial) {
    let half = request("request-half", Operation::Release, Action::CutHalf);
    released_again(trial, &half, renewed(LEASE));
}

fn reply_lost_at_release(trial: &Trial) {
    let lost = request("reply-lost", Operation::Release, Action::LoseReply);
    released_again(trial, &lost, renewed(LEASE));
}

fn reply_half_at_release(trial: &Trial) {
    let half = request("reply-half", Operation::Release, Action::HalfReply);
    released_again(trial, &half, renewed(LEASE));
}

fn watched() -> LockOptions {
    renewed(LEASE).wait(Wait::spin()).release(Release::watch())
}

fn request_cut_at_watch_release(trial: &Trial) {
    let cut = request("request-cut", Operation::Transaction, Action::Cut).containing("EXEC");
    released_again(trial, &cut, watched());
}

fn reply_lost_at_watch_release(trial: &Trial) {
    let lost = request("reply-lost", Operation::Transaction, Action::LoseReply).containing("EXEC");
    released_again(trial, &lost, watched());
}

/// No reply comes to a release: it is repeated on another connection.
fn repeated_in_silence(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(injector);
    trial.released(trial.timed(CALL, || guard.release()));
    trial.prove(&active);
    drop(active);
    trial.given_back();
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// The first copy of a release arrives when the next one has the lock.
fn overtaken_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&request("overtaken", Operation::Release, Action::Hold));
    trial.released(trial.timed(CALL, || guard.release()));
    let next = trial.rival().try_lock_for(SOON).unwrap().expect("given back by the second copy");
    trial.granted(&next);
    trial.heal(active);
    thread::sleep(ms(100));
    next.check().unwrap();
}

/// Neither copy of a release arrives: that is reported in time, and finished in the background.
fn black_hole_at_release(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    assert!(trial.timed(CALL, || guard.release()).unwrap_err().is_unknown_outcome());
    trial.heal(active);
    trial.given_back();
}

/// One renewal fails: it is repeated, and the hold outlives its first lease.
fn renewed_again(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(injector);
    while begin.elapsed() < ms(LEASE + 200) {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        thread::sleep(ms(5));
    }
    trial.prove(&active);
    guard.check().unwrap();
    guard.release().unwrap();
    trial.stays_away();
}

/// A renewal that is delayed past the release must not bring the lock back.
fn overtaken_at_renew(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&request("overtaken", Operation::Renew, Action::Hold));
    until("a renewal is on its way", || active.fired().injected > 0);
    trial.timed(COMMAND, || guard.release()).unwrap();
    trial.heal(active);
    trial.stays_away();
    assert!(trial.proxy.tally(Direction::Request, Operation::Renew).late > 0);
}

/// No renewal gets through: the guard is invalid before another client can get the lock.
fn black_hole_at_renew(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let rival = trial.rival();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    let end = Instant::now() + guard.remaining();
    let next = rival.try_lock_for(SOON).unwrap().expect("free");
    assert!(!guard.is_valid() && Instant::now() >= end);
    trial.granted(&next);
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Unreachable);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    trial.heal(active);
    // Delayed renewals had no effect.
    thread::sleep(ms(100));
    next.check().unwrap();
}

fn reply_lost_at_reentrant_release(trial: &Trial) {
    let client = trial.client();
    let lock = client.reentrant_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&request("reply-lost", Operation::Release, Action::LoseReply));
    trial.released(trial.timed(COMMAND, || guard.release()));
    trial.prove(&active);
    trial.stays_away();
    trial.granted(&lock.try_lock().unwrap().expect("free"));
}

//! Faults during a holder's requests: a transaction, an extension, a check.

use std::thread;

use leasehold::redis::Pipeline;
use leasehold_support::Action;
use leasehold_support::fault::command::{DELETED, STOLEN};
use leasehold_support::fault::network::{AtOperation, BlackHole, SILENCE};
use leasehold_support::fault::{Injector, Operation};

use crate::common::{ask, fixed, ms, pttl, renewed};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial};

kinds! {
    request_cut_at_transaction "request-cut@transaction" "A" = undecided(Action::Cut, 0);
    reply_lost_at_transaction "reply-lost@transaction" "A" = undecided(Action::LoseReply, 1);
    silent_at_transaction "silent@transaction" "E,A" = undecided(SILENCE, 1);
    stolen_at_transaction "stolen@transaction" "S" = refused(&STOLEN);
    deleted_at_transaction "deleted@transaction" "S" = refused(&DELETED);
    request_cut_at_extend "request-cut@extend" "A" = extended_again(Action::Cut);
    reply_lost_at_extend "reply-lost@extend" "A" = extended_again(Action::LoseReply);
    silent_at_extend "silent@extend" "E,A";
    deleted_at_extend "deleted@extend" "S";
    black_hole_at_check "black-hole@check" "E";
    stolen_at_check "stolen@check" "S";
    request_cut_at_inspect "request-cut@inspect" "E" = inspected_again(Action::Cut);
    reply_lost_at_inspect "reply-lost@inspect" "E" = inspected_again(Action::LoseReply);
    silent_at_inspect "silent@inspect" "E";
}

fn count(pipe: &mut Pipeline) {
    pipe.cmd("INCR").arg("done").ignore();
    pipe.cmd("PEXPIRE").arg("done").arg(LEASE).ignore();
}

/// It only reads, so it is sent once more on another connection.
fn inspected_again(trial: &Trial, action: Action) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&AtOperation::request("", Operation::Inspect, action));
    let inspection = trial.timed(COMMAND, || lock.inspect()).unwrap();
    trial.prove(&active);
    assert_eq!(inspection.holders()[0].token(), Some(guard.fencing_token()));
    guard.release().unwrap();
}

fn silent_at_inspect(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&AtOperation::request("", Operation::Inspect, SILENCE));
    let error = trial.timed(COMMAND, || lock.inspect()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    trial.prove(&active);
    assert_eq!(lock.inspect().unwrap().holders()[0].token(), Some(guard.fencing_token()));
    guard.check().unwrap();
    guard.release().unwrap();
}

/// How often the transaction of a trial was carried out.
fn carried_out(trial: &Trial) -> u64 {
    ask::<Option<u64>>(&trial.server, &["GET", "done"]).unwrap_or(0)
}

/// The outcome is unknown: that is reported, and the request is not run a second time.
fn undecided(trial: &Trial, action: Action, times: u64) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let at_exec = AtOperation::request("", Operation::Transaction, action).containing("EXEC");
    let active = trial.inject(&at_exec);
    let error = trial.timed(COMMAND, || guard.transaction(count)).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    trial.prove(&active);
    thread::sleep(ms(100));
    assert_eq!(carried_out(trial), times);
    // The connection with the fault is not used again.
    guard.check().unwrap();
    guard.transaction(count).unwrap();
    assert_eq!(carried_out(trial), times + 1);
    guard.release().unwrap();
}

/// The lock is another's by now: nothing is done, and the guard knows.
fn refused(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(injector);
    trial.prove(&active);
    let error = trial.timed(COMMAND, || guard.transaction(count)).unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert_eq!(carried_out(trial), 0);
    assert!(!guard.is_valid() && guard.loss().is_some());
    trial.litters(ms(2_000));
}

/// An extension is repeated: twice the same is once.
fn extended_again(trial: &Trial, action: Action) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE / 2)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&AtOperation::request("", Operation::Renew, action));
    trial.timed(COMMAND, || guard.extend(ms(LEASE))).unwrap();
    trial.prove(&active);
    assert!(guard.remaining() > ms(LEASE / 2));
    assert!(guard.remaining().as_millis() <= pttl(&trial.server, KEY).unsigned_abs().into());
    guard.release().unwrap();
}

/// No reply comes: the guard's validity does not grow.
fn silent_at_extend(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let before = guard.remaining();
    let active = trial.inject(&AtOperation::request("", Operation::Renew, SILENCE));
    let error = trial.timed(COMMAND, || guard.extend(ms(LEASE * 2))).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    trial.prove(&active);
    assert!(guard.is_valid() && guard.remaining() < before);
    guard.release().unwrap();
    trial.litters(ms(LEASE * 2));
}

/// An extension does not create a missing key.
fn deleted_at_extend(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&DELETED);
    trial.prove(&active);
    assert!(trial.timed(COMMAND, || guard.extend(ms(LEASE))).unwrap_err().is_lost());
    assert!(!guard.is_valid());
    trial.stays_away();
}

fn black_hole_at_check(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    let error = trial.timed(COMMAND, || guard.check()).unwrap_err();
    assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
    assert!(guard.is_valid(), "not to know is no loss");
    trial.heal(active);
    guard.check().unwrap();
    guard.release().unwrap();
}

fn stolen_at_check(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, fixed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&STOLEN);
    trial.prove(&active);
    assert!(trial.timed(COMMAND, || guard.check()).unwrap_err().is_lost());
    assert!(!guard.is_valid());
    trial.litters(ms(2_000));
}

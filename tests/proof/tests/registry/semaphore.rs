//! Faults of the network at the requests of a semaphore.

use std::thread;
use std::time::Instant;

use leasehold::{LossCause, Permit, Semaphore};
use leasehold_support::fault::network::{AtOperation, BlackHole, SILENCE};
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::{Action, Direction};

use crate::acquire::garbage;
use crate::common::{SOON, ask, ms, open, pttl, renewed, until};
use crate::kind::kinds;
use crate::trial::{CALL, COMMAND, KEY, LEASE, Trial};

kinds! {
    request_cut_at_permit "request-cut@permit" "A,S"
        = acquired_again(&at("request-cut", Operation::Acquire, Action::Cut), 1);
    reply_lost_at_permit "reply-lost@permit" "A,S"
        = acquired_again(&at("reply-lost", Operation::Acquire, Action::LoseReply), 2);
    garbage_at_permit "garbage@permit" "A,S"
        = acquired_again(&at("garbage", Operation::Acquire, garbage()), 2);
    doubled_at_permit "doubled@permit" "S"
        = acquired_again(&at("doubled", Operation::Acquire, Action::Twice), 2);
    silent_at_permit "silent@permit" "E,A,S";
    overtaken_at_permit "overtaken@permit" "A,S";
    reply_lost_at_permit_join "reply-lost@permit-join" "A,L"
        = joined(&at("reply-lost", Operation::Acquire, Action::LoseReply).containing("join"));
    reply_lost_at_permit_beat "reply-lost@permit-beat" "A,L"
        = joined(&at("reply-lost", Operation::Beat, Action::LoseReply));
    dropped_at_permit_message "dropped@permit-message" "L" = granted_by_message(&message("dropped", Action::Drop));
    doubled_at_permit_message "doubled@permit-message" "S,L"
        = granted_by_message(&message("doubled", Action::Twice));
    late_at_permit_message "late@permit-message" "S,L"
        = granted_by_message(&message("late", Action::Delay(ms(200))));
    request_cut_at_permit_release "request-cut@permit-release" "A,S"
        = released_once(&at("request-cut", Operation::Release, Action::Cut));
    reply_lost_at_permit_release "reply-lost@permit-release" "A,S"
        = released_once(&at("reply-lost", Operation::Release, Action::LoseReply));
    silent_at_permit_release "silent@permit-release" "A,S"
        = released_once(&at("silent", Operation::Release, SILENCE));
    doubled_at_permit_release "doubled@permit-release" "S"
        = released_once(&at("doubled", Operation::Release, Action::Twice));
    overtaken_at_permit_release "overtaken@permit-release" "A,S";
    request_cut_at_permit_renew "request-cut@permit-renew" "S,L"
        = renewed_again(&at("request-cut", Operation::Renew, Action::Cut));
    reply_lost_at_permit_renew "reply-lost@permit-renew" "S,L"
        = renewed_again(&at("reply-lost", Operation::Renew, Action::LoseReply));
    doubled_at_permit_renew "doubled@permit-renew" "S"
        = renewed_again(&at("doubled", Operation::Renew, Action::Twice));
    overtaken_at_permit_renew "overtaken@permit-renew" "A,S";
    black_hole_at_permit_renew "black-hole@permit-renew" "E,S";
    request_cut_at_resize "request-cut@resize" "A"
        = resized(&at("request-cut", Operation::Resize, Action::Cut));
    reply_lost_at_resize "reply-lost@resize" "A"
        = resized(&at("reply-lost", Operation::Resize, Action::LoseReply));
    doubled_at_resize "doubled@resize" "S"
        = resized(&at("doubled", Operation::Resize, Action::Twice));
    overtaken_at_resize "overtaken@resize" "A,S";
}

const LIMIT: u32 = 2;

fn at(name: &'static str, operation: Operation, action: Action) -> AtOperation {
    AtOperation::request(name, operation, action)
}

fn message(name: &'static str, action: Action) -> AtOperation {
    AtOperation::reply(name, Operation::Message, action).containing("\r\ns ")
}

/// A semaphore behind the proxy, on a server that knows its scripts.
fn gpus(trial: &Trial) -> Semaphore {
    let warm = open(&trial.server).semaphore("warm", 1).unwrap();
    let permit = warm.acquire().unwrap();
    permit.extend(ms(LEASE)).unwrap();
    warm.resize(1).unwrap();
    permit.release().unwrap();
    ask::<()>(&trial.server, &["DEL", "warm", "{warm}:fence"]);
    trial.client().semaphore_with(KEY, LIMIT, renewed(LEASE)).unwrap()
}

/// The same semaphore of a client that the proxy does not trouble.
fn rival(trial: &Trial) -> Semaphore {
    open(&trial.server).semaphore_with(KEY, LIMIT, renewed(LEASE)).unwrap()
}

/// The sum in Redis is that of those who hold: so many.
#[track_caller]
fn sum_is(rival: &Semaphore, used: u32) {
    assert_eq!(rival.available().unwrap(), LIMIT - used);
    let holders = rival.holders().unwrap();
    assert_eq!(holders.iter().map(|holder| holder.slots().len()).sum::<usize>(), used as usize);
}

/// All permits come back before a lease ends, and none goes again.
#[track_caller]
fn given_back(trial: &Trial, rival: &Semaphore) {
    until("they are given back", || rival.available().unwrap() == LIMIT);
    let begin = Instant::now();
    while begin.elapsed() < ms(150) {
        assert_eq!(rival.available().unwrap(), LIMIT, "a ghost");
        thread::sleep(ms(5));
    }
    assert!(pttl(&trial.server, "{k}:line") < 0, "somebody waits");
    trial.litters(ms(LEASE * 3));
}

/// A slot is granted twice at a time to nobody, whatever came twice.
fn acquired_again(trial: &Trial, injector: &dyn Injector, executed: u64) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let active = trial.inject(injector);
    trial.server.reset_stats();
    let permit = trial.timed(COMMAND, || gpus.try_acquire()).unwrap().expect("ours");
    trial.prove(&active);
    assert_eq!(trial.server.command_calls(&["eval", "evalsha"]), executed);
    sum_is(&rival, 1);
    let other = rival.try_acquire().unwrap().expect("one is left");
    assert_eq!((permit.slot(), other.slot()), (0, 1));
    assert!(rival.try_acquire().unwrap().is_none());
    permit.check().unwrap();
    permit.release().unwrap();
    other.release().unwrap();
    given_back(trial, &rival);
}

fn silent_at_permit(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let active = trial.inject(&at("silent", Operation::Acquire, SILENCE));
    let error = trial.timed(COMMAND, || gpus.try_acquire_many(LIMIT)).map(drop).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    trial.prove(&active);
    given_back(trial, &rival);
    assert!(gpus.try_acquire_many_for(LIMIT, SOON).unwrap().is_some());
}

/// The request runs only after its own clean-up has (rules 2 and 6).
fn overtaken_at_permit(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let active = trial.inject(&at("overtaken", Operation::Acquire, Action::Hold));
    let error = trial.timed(COMMAND, || gpus.try_acquire()).map(drop).unwrap_err();
    assert!(error.is_unknown_outcome());
    until("its clean-up has run", || {
        trial.proxy.tally(Direction::Request, Operation::Release).seen > 0
    });
    thread::sleep(COMMAND / 2);
    let before = trial.server.command_calls(&["eval", "evalsha"]);
    trial.heal(active);
    until("the request ran", || trial.server.command_calls(&["eval", "evalsha"]) > before);
    given_back(trial, &rival);
}

/// A waiter whose request or reply was lost has one place, and gets its permits from there.
fn joined(trial: &Trial, injector: &dyn Injector) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let held = rival.acquire_many(LIMIT).unwrap();
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waits = scope.spawn(|| gpus.try_acquire_for(SOON).unwrap().expect("its turn"));
        trial.prove(&active);
        until("it waits", || rival.inspect().unwrap().waiting() == Some(1));
        held.release().unwrap();
        let permit = waits.join().unwrap();
        sum_is(&rival, 1);
        permit.release().unwrap();
    });
    given_back(trial, &rival);
}

/// The message of a grant is lost, late or doubled.
fn granted_by_message(trial: &Trial, injector: &dyn Injector) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let held = rival.acquire_many(LIMIT).unwrap();
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waits = scope.spawn(|| gpus.try_acquire_for(SOON).unwrap().expect("its turn"));
        until("it waits", || rival.inspect().unwrap().waiting() == Some(1));
        held.release().unwrap();
        let permit: Permit = waits.join().unwrap();
        trial.prove(&active);
        assert!(permit.is_valid());
        permit.check().unwrap();
        assert_eq!(rival.try_acquire().unwrap().expect("one is left").slot(), 1);
        permit.release().unwrap();
    });
    given_back(trial, &rival);
}

/// A release that runs twice, or after its reply was lost, takes its weight from the sum once.
fn released_once(trial: &Trial, injector: &dyn Injector) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let (permit, other) = (gpus.acquire().unwrap(), rival.acquire().unwrap());
    let active = trial.inject(injector);
    trial.released(trial.timed(CALL, || permit.release()));
    trial.prove(&active);
    sum_is(&rival, 1);
    assert_eq!(rival.try_acquire_many(1).unwrap().expect("it is free").slot(), 0);
    other.check().unwrap();
    other.release().unwrap();
    given_back(trial, &rival);
}

/// The first copy of a release arrives when another has the slot.
fn overtaken_at_permit_release(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let permit = gpus.acquire_many(LIMIT).unwrap();
    let active = trial.inject(&at("overtaken", Operation::Release, Action::Hold));
    trial.released(trial.timed(CALL, || permit.release()));
    let next = rival.try_acquire_many_for(LIMIT, SOON).unwrap().expect("given back");
    trial.heal(active);
    thread::sleep(ms(100));
    next.check().unwrap();
    sum_is(&rival, LIMIT);
    next.release().unwrap();
    given_back(trial, &rival);
}

fn renewed_again(trial: &Trial, injector: &dyn Injector) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let begin = Instant::now();
    let permit = gpus.acquire().unwrap();
    let active = trial.inject(injector);
    while begin.elapsed() < ms(LEASE + 200) {
        assert!(permit.is_valid(), "{:?}", permit.loss());
        thread::sleep(ms(5));
    }
    trial.prove(&active);
    permit.check().unwrap();
    sum_is(&rival, 1);
    permit.release().unwrap();
    given_back(trial, &rival);
}

/// A renewal that is delayed past the release makes no holder without a weight (rule 25).
fn overtaken_at_permit_renew(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let permit = gpus.acquire().unwrap();
    let active = trial.inject(&at("overtaken", Operation::Renew, Action::Hold));
    until("a renewal is on its way", || active.fired().injected > 0);
    trial.timed(COMMAND, || permit.release()).unwrap();
    trial.heal(active);
    until("it arrived", || trial.proxy.tally(Direction::Request, Operation::Renew).late > 0);
    given_back(trial, &rival);
}

/// No renewal gets through: the permit is invalid before another client can get it.
fn black_hole_at_permit_renew(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let permit = gpus.acquire_many(LIMIT).unwrap();
    let active = trial.inject(&BlackHole);
    let end = Instant::now() + permit.remaining();
    let next = rival.try_acquire_for(SOON).unwrap().expect("free");
    assert!(!permit.is_valid() && Instant::now() >= end);
    assert!(next.fencing_token() > permit.fencing_token());
    assert_eq!(permit.loss().expect("a loss").cause(), LossCause::Unreachable);
    let error = trial.timed(COMMAND, || permit.release()).unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    trial.heal(active);
    thread::sleep(ms(100));
    next.check().unwrap();
    next.release().unwrap();
    given_back(trial, &rival);
}

/// A resize that is repeated is the same resize. Where its reply was lost, the outcome may be unknown.
fn resized(trial: &Trial, injector: &dyn Injector) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let held = rival.acquire_many(LIMIT).unwrap();
    let active = trial.inject(injector);
    let outcome = trial.timed(COMMAND, || gpus.resize_for(LIMIT + 1, ms(LEASE)));
    trial.prove(&active);
    if let Err(error) = outcome {
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
        gpus.resize_for(LIMIT + 1, ms(LEASE)).unwrap();
    }
    assert_eq!(rival.limit().unwrap(), LIMIT + 1);
    assert_eq!(gpus.try_acquire().unwrap().expect("one more").slot(), LIMIT);
    held.check().unwrap();
    held.release().unwrap();
    trial.litters(ms(LEASE * 3));
}

/// A resize that arrives after its deadline does nothing to a later one.
fn overtaken_at_resize(trial: &Trial) {
    let (gpus, rival) = (gpus(trial), rival(trial));
    let permit = rival.acquire().unwrap();
    let active = trial.inject(&at("overtaken", Operation::Resize, Action::Hold));
    let error = trial.timed(CALL, || gpus.resize_for(1, ms(LEASE))).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    rival.resize_for(LIMIT + 2, ms(LEASE)).unwrap();
    // Past its deadline on the server's clock.
    thread::sleep(COMMAND * 2);
    trial.heal(active);
    thread::sleep(ms(100));
    assert_eq!(rival.limit().unwrap(), LIMIT + 2);
    permit.release().unwrap();
    trial.litters(ms(LEASE * 3));
}

//! Faults of holds whose lease has a tail: in the silence that follows, and at its end.

use std::thread;
use std::time::Duration;

use leasehold::{Guard, Lease, LockOptions, LossCause, Mutex};
use leasehold_support::fault::network::{AtOperation, BlackHole};
use leasehold_support::fault::process::{Killed, Stopped};
use leasehold_support::fault::{Active, Injector, Operation};
use leasehold_support::{Action, Child};

use crate::client::is_lost_to;
use crate::common::{SOON, ask, exists, ms, pttl, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, TAIL, Trial, wait};

kinds! {
    stopped_at_tail "holder-stopped@tail" "S,L";
    stopped_at_taken_tail "holder-stopped@tail-taken" "A,S,L";
    killed_at_tail "holder-killed@tail" "S,L";
    black_hole_at_tail "black-hole@tail" "A,S";
    black_hole_at_taken_tail "black-hole@tail-taken" "A,S,L";
    black_hole_at_tail_end "black-hole@tail-end" "A,S";
    late_renewal_at_tail "overtaken@tail-renew" "S,L";
    late_renewal_at_wanted_tail "overtaken@tail-renew-wanted" "S,L";
    request_cut_at_tail_check "request-cut@tail-check" "A,S"
        = asked_again(&renewal("request-cut", Action::Cut), Guard::check);
    reply_lost_at_tail_check "reply-lost@tail-check" "A,S"
        = asked_again(&renewal("reply-lost", Action::LoseReply), Guard::check);
    reply_lost_at_tail_extend "reply-lost@tail-extend" "A,S"
        = asked_again(&renewal("reply-lost", Action::LoseReply), |guard: &Guard| guard.extend(ms(LEASE)));
    request_cut_at_tail_release "request-cut@tail-release" "A,S"
        = released_again(&release("request-cut", Action::Cut));
    reply_lost_at_tail_release "reply-lost@tail-release" "A,S"
        = released_again(&release("reply-lost", Action::LoseReply));
    waiter_killed_at_tail "waiter-killed@tail" "L";
}

/// The fence lives as long as the key, and so does the line at least, with a place for a dead waiter.
const LITTER: Duration = ms(2 * (LEASE + TAIL));

fn renewal(name: &'static str, action: Action) -> AtOperation {
    AtOperation::request(name, Operation::Renew, action)
}

fn release(name: &'static str, action: Action) -> AtOperation {
    AtOperation::request(name, Operation::Release, action)
}

fn tailed() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(ms(LEASE)).recoverable_for(ms(TAIL)))
}

fn lock(trial: &Trial) -> Mutex {
    trial.litters(LITTER);
    trial.client().mutex_with(KEY, tailed()).unwrap()
}

fn child(trial: &Trial, role: &str) -> Child {
    trial.litters(LITTER);
    let builder = Child::role(role).test("roles").env("URL", trial.server.url()).env("TAIL", "1");
    builder.start().expect("a child")
}

/// Waits until the server counts a lease as over.
#[track_caller]
fn overdue(trial: &Trial) {
    until("its lease is over", || pttl(&trial.server, KEY) < TAIL as i64);
    assert!(exists(&trial.server, KEY));
}

/// Waits until a hold is confirmed again, and stays so.
#[track_caller]
fn confirmed(guard: &Guard, token: u64) {
    until("it is confirmed again", || guard.is_valid());
    assert!(guard.loss().is_none());
    assert_eq!(guard.fencing_token().get(), token);
    guard.check().unwrap();
}

/// Nobody asks meanwhile: it has its lock again, with the same token.
fn stopped_at_tail(trial: &Trial) {
    let mut holder = child(trial, "holder");
    let token: u64 = holder.expect_line("held", SOON).parse().unwrap();
    let mut active = Stopped.begin(holder.pid());
    overdue(trial);
    trial.prove(&active);
    active.heal();
    drop(active);
    until("it is renewed", || pttl(&trial.server, KEY) > TAIL as i64);
    holder.say("look");
    assert!(holder.expect_line("valid", SOON).starts_with("true"));
    assert!(trial.rival().try_lock().unwrap().is_none());
    holder.say("release");
    assert_eq!(holder.expect_line("released", SOON), "in time");
    let next = trial.rival().try_lock().unwrap().expect("free");
    assert!(next.fencing_token().get() > token);
    trial.granted(&next);
}

/// Another takes it when the lease is over, and not when the key is.
fn stopped_at_taken_tail(trial: &Trial) {
    let mut holder = child(trial, "holder");
    let token: u64 = holder.expect_line("held", SOON).parse().unwrap();
    let active = Stopped.begin(holder.pid());
    let left = ms(pttl(&trial.server, KEY).unsigned_abs().saturating_sub(TAIL));
    let rival = trial.rival();
    let next = trial.timed(left, || rival.try_lock_for(SOON).unwrap().expect("free"));
    is_lost_to(trial, holder, token, active, &next);
}

fn killed_at_tail(trial: &Trial) {
    let rival = trial.rival();
    trial.granted(&rival.lock().unwrap());
    let mut holder = child(trial, "holder");
    let token: u64 = holder.expect_line("held", SOON).parse().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = rival.try_lock_for(SOON).unwrap().expect("free");
            assert!(guard.fencing_token().get() > token);
            // By then only its own key is there.
            assert!(pttl(&trial.server, KEY) <= LEASE as i64);
            guard.release().unwrap();
        });
        until("it waits", || trial.waiting() == 1);
        let active = Killed.begin(holder.pid());
        let left = ms(pttl(&trial.server, KEY).unsigned_abs().saturating_sub(TAIL));
        trial.timed(left, || waiter.join().unwrap());
        trial.prove(&active);
    });
}

/// It is silent, and nobody is told of a loss. Once it is heard of, it is valid.
fn black_hole_at_tail(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    let token = guard.fencing_token().get();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    overdue(trial);
    assert!(!guard.is_valid() && guard.loss().is_none());
    let error = guard.check().unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
    trial.heal(active);
    confirmed(&guard, token);
    guard.release().unwrap();
    trial.stays_away();
}

fn black_hole_at_taken_tail(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    let next = trial.rival().try_lock_for(SOON).unwrap().expect("free");
    assert!(!guard.is_valid() && guard.loss().is_none());
    trial.granted(&next);
    trial.heal(active);
    until("it is told", || guard.loss().is_some());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Taken);
    let error = trial.timed(COMMAND, || guard.release()).unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    // Delayed renewals had no effect.
    thread::sleep(ms(100));
    next.check().unwrap();
}

/// It lasts for longer than the tail, too.
fn black_hole_at_tail_end(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&BlackHole);
    until("its key is gone", || !exists(&trial.server, KEY));
    until("it is told", || guard.loss().is_some());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    trial.heal(active);
    trial.stays_away();
    assert!(!guard.is_valid() && guard.release().unwrap_err().is_lost());
    trial.granted(&trial.rival().try_lock().unwrap().expect("free"));
}

/// Renewals that are stuck until the lease is over. Nobody waits, so that the first one brings the hold back.
fn late_renewal_at_tail(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    let token = guard.fencing_token().get();
    trial.granted(&guard);
    let active = trial.inject(&renewal("overtaken", Action::Hold).sticky());
    overdue(trial);
    assert!(!guard.is_valid() && guard.loss().is_none());
    trial.heal(active);
    confirmed(&guard, token);
    guard.release().unwrap();
    trial.stays_away();
}

/// The one that waits could ask all the time, and has the lock.
fn late_renewal_at_wanted_tail(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    trial.granted(&guard);
    let active = trial.inject(&renewal("overtaken", Action::Hold).sticky());
    let rival = trial.rival();
    wait(trial, &rival);
    trial.heal(active);
    until("it is told", || guard.loss().is_some());
    // The other has released it, and so the key is gone.
    assert!(guard.release().unwrap_err().is_lost());
    trial.stays_away();
}

/// A silent hold. The renewals of its worker do not arrive until the fault is dropped.
fn silent(trial: &Trial) -> (Guard, Active<'_>) {
    let guard = lock(trial).lock().unwrap();
    trial.granted(&guard);
    // They alone name the tail.
    let tail = format!("\r\n{TAIL}\r\n");
    let dropped = trial.inject(&renewal("dropped", Action::Drop).containing(tail).sticky());
    overdue(trial);
    until("it is silent", || !guard.is_valid());
    assert!(guard.loss().is_none());
    (guard, dropped)
}

/// A request that asks whether a silent hold can come back is repeated after a fault.
fn asked_again(
    trial: &Trial,
    injector: &dyn Injector,
    ask: impl Fn(&Guard) -> leasehold::Result<()>,
) {
    let (guard, dropped) = silent(trial);
    let token = guard.fencing_token().get();
    let active = trial.inject(injector);
    if let Err(error) = ask(&guard) {
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
        assert!(guard.loss().is_none());
        ask(&guard).unwrap();
    }
    assert!(guard.is_valid(), "it was asked about");
    trial.prove(&active);
    drop((active, dropped));
    confirmed(&guard, token);
    guard.release().unwrap();
    trial.stays_away();
}

/// A release of a silent hold. After its validity another may have had the lock between the two copies.
fn released_again(trial: &Trial, injector: &dyn Injector) {
    let (guard, dropped) = silent(trial);
    let active = trial.inject(injector);
    trial.released(guard.release());
    trial.prove(&active);
    drop((active, dropped));
    trial.given_back();
    trial.granted(&trial.rival().try_lock().unwrap().expect("free"));
}

/// It stands in the line and does not ask. It costs the silent holder some time, and not the lock.
fn waiter_killed_at_tail(trial: &Trial) {
    let guard = lock(trial).lock().unwrap();
    let token = guard.fencing_token().get();
    trial.granted(&guard);
    let waiter = child(trial, "waiter");
    until("it waits", || trial.waiting() == 1);
    let hole = trial.inject(&BlackHole);
    let active = Killed.begin(waiter.pid());
    trial.prove(&active);
    overdue(trial);
    trial.heal(hole);
    confirmed(&guard, token);
    guard.release().unwrap();
    // A line of skipped waiters alone lasts for a minute.
    let left: i64 = ask(&trial.server, &["PTTL", "{k}:queue"]);
    assert!((-2..=60_000).contains(&left) && left != -1, "{left}");
    ask::<()>(&trial.server, &["DEL", "{k}:queue", "{k}:beats"]);
}

//! Requests and answers that are lost, late or out of place.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold_support::{Action, Fault};

use crate::common::detour::Detour;
use crate::common::queue::{listens, wait_for, waiting};
use crate::common::{
    SOON, ask, behind_proxy, exists, fixed, hasty, ms, open, open_at, patient, renewed, server,
    until, warm,
};
use crate::queue::{foreign_hold, members, owner, until_waiting};

/// Rule 2: a request past its deadline neither takes nor joins.
#[test]
fn late_request_neither_takes_nor_joins() {
    let (server, proxy) = behind_proxy();
    // The request is kept on its way, or the server stands still.
    let round = |held: bool, stopped: bool| {
        let client = hasty(&proxy.url());
        listens(&server, &client);
        if held {
            foreign_hold(&server, "x", 60_000);
        }
        server.reset_stats();
        let hold = (!stopped).then(|| proxy.add(Fault::request("join", Action::Hold)));
        if stopped {
            server.pause();
        }
        let outcome = client.mutex("x").unwrap().try_lock_for(ms(100));
        assert!(outcome.is_err(), "held: {held}, stopped: {stopped}: {outcome:?}");
        thread::sleep(ms(150));
        match &hold {
            Some(hold) => hold.release(),
            None => server.resume(),
        }
        let begin = Instant::now();
        until("it has had its time", || {
            let there = owner(&server, "x");
            assert!(there.is_empty() || there == "foreign", "a ghost took it: {there}");
            assert_eq!(waiting(&server, "x"), 0, "a ghost joined");
            begin.elapsed() >= ms(200)
        });
        // It did run; the worker's own clean-up is the other one. A thread that a busy machine held up has sent nothing.
        let ran = server.command_calls(&["eval", "evalsha"]) >= 1;
        let was_sent = hold.is_none_or(|hold| {
            hold.remove();
            hold.fired() == 1
        });
        ask::<()>(&server, &["DEL", "x"]);
        ran && was_sent
    };
    for held in [false, true] {
        for stopped in [false, true] {
            until("a request is late", || round(held, stopped));
        }
    }
}

/// A client that has asked for nothing for a while knows the server's clock less well. That is no
/// reason to find its next request too late.
#[test]
fn first_request_after_a_long_silence_is_in_time() {
    let server = server();
    // The shorter a request may take, the shorter the silence that matters.
    let client = LockClient::builder(server.url()).command_timeout(ms(10)).build().unwrap();
    let lock = client.mutex("x").unwrap();
    until("it has asked once", || lock.try_lock().is_ok());
    thread::sleep(ms(1_600));
    if let Err(error) = lock.try_lock() {
        let slow = error.is_unknown_outcome() || error.is_unreachable();
        assert!(slow, "nobody has it, and it says {error}");
    }
}

/// Rules 1 to 3: the answer to a join is lost, and the attempt is recognised.
#[test]
fn join_with_a_lost_reply_keeps_its_place() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    listens(&server, &client);
    for action in [Action::LoseReply, Action::HalfReply, Action::Twice] {
        // Nobody has it: the grant was lost.
        let fault = proxy.add(Fault::request("join", action.clone()));
        let guard = client.mutex("x").unwrap().lock().unwrap();
        assert_eq!(fault.fired(), 1);
        let minted: u64 = ask(&server, &["GET", "{x}:fence"]);
        assert_eq!(guard.fencing_token().get(), minted, "{action:?}");
        guard.release().unwrap();
        assert!(!exists(&server, "x"), "{action:?}");

        // Somebody has it: the place was.
        let guard = open(&server).mutex("x").unwrap().lock().unwrap();
        let (lock, other) = (client.mutex("x").unwrap(), open(&server).mutex("x").unwrap());
        thread::scope(|scope| {
            let fault = proxy.add(Fault::request("join", action.clone()));
            let first = wait_for(scope, &lock);
            assert!(fault.wait_fired(SOON));
            until_waiting(&server, "x", 1);
            let place = members(&server, "x");
            let second = wait_for(scope, &other);
            until_waiting(&server, "x", 2);
            thread::sleep(ms(50));
            assert_eq!(members(&server, "x")[..1], place, "{action:?}: it joined twice");
            guard.release().unwrap();
            assert!(first.join().unwrap().1 < second.join().unwrap().1, "{action:?}");
        });
        until("all is given back", || !exists(&server, "x") && waiting(&server, "x") == 0);
    }
}

/// Rule 6: no ghost owner and no ghost waiter, whatever was lost.
#[test]
fn waits_that_ended_without_a_reply_leave_nothing() {
    let (server, proxy) = behind_proxy();
    for held in [false, true] {
        for cancelled in [false, true] {
            let client = hasty(&proxy.url());
            listens(&server, &client);
            let lock = client.mutex("x").unwrap();
            if held {
                foreign_hold(&server, "x", 60_000);
            }
            // The answer to whatever its attempt asks is lost, its leaving included.
            let fault = proxy.add(Fault::request("1q:", Action::LoseReply).sticky());
            thread::scope(|scope| {
                let wait = ms(if cancelled { 10_000 } else { 250 });
                let lock = &lock;
                let waiter = scope.spawn(move || lock.try_lock_for(wait).map(|g| g.is_some()));
                assert!(fault.wait_fired(SOON));
                if cancelled {
                    until("it is called off", || {
                        lock.cancel_waits();
                        waiter.is_finished()
                    });
                }
                assert!(!matches!(waiter.join().unwrap(), Ok(true)), "it was told nothing");
            });
            fault.remove();
            let mine = || owner(&server, "x").starts_with("1q:") || waiting(&server, "x") > 0;
            let what = format!("held: {held}, cancelled: {cancelled}: no ghost");
            until(&what, || !mine());
            let begin = Instant::now();
            until("it has had its time", || {
                assert!(!mine(), "{what}, but one came back");
                begin.elapsed() >= ms(200)
            });
            ask::<()>(&server, &["DEL", "x"]);
        }
    }
}

/// The answer to something else is not taken for a grant, whatever it looks like.
#[test]
fn misplaced_number_is_not_a_grant() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    listens(&server, &client);
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let numbers = [
        0,
        1,
        2,
        77,
        1_000_000,
        seconds,
        (seconds - 3_600) * 1_000_000,
        (seconds + 3_600) * 1_000_000,
    ];
    for number in numbers {
        let garbage = format!(":{number}\r\n").into_bytes();
        let other = open(&server).mutex("x").unwrap().lock().unwrap();
        // The worker takes back what the last round left unknown: that is not meant.
        let fault = proxy.add(Fault::request("\r\ntry\r\n", Action::Garbage(garbage)));
        let outcome = client.mutex("x").unwrap().try_lock();
        assert_eq!(fault.fired(), 1, "{outcome:?}");
        assert!(!matches!(outcome, Ok(Some(_))), "it took {number} for a grant: {outcome:?}");
        other.check().unwrap();
        other.release().unwrap();
        until("it is free", || !exists(&server, "x"));
    }
}

/// Rule 6: a join comes after the leave that was to undo it, and before its own deadline. So the
/// leave is repeated.
#[test]
fn join_that_overtakes_its_leave_is_undone() {
    let server = server();
    warm(&server);
    let detour = Detour::start(&server, LATE);
    for held in [false, true] {
        let client = late(&detour);
        listens(&server, &client);
        let lock = client.mutex_with("x", renewed(LEASE)).unwrap();
        let guard = held.then(|| open(&server).mutex("x").unwrap().lock().unwrap());
        detour.armed.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            // With an end, or a test that fails would wait for it, and it for the guard.
            let waiter = scope.spawn(|| lock.try_lock_for(SOON * 3).map(token_of));
            until("its join is on the way", || !detour.armed.load(Ordering::SeqCst));
            let begin = Instant::now();
            if let Some(guard) = &guard {
                until_waiting(&server, "x", 1);
                until("a ghost joins", || waiting(&server, "x") == 2);
                until("it has left again", || waiting(&server, "x") == 1);
                guard.check().unwrap();
                assert!(!waiter.is_finished());
                lock.cancel_waits();
                assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
            } else {
                // Another attempt had it meanwhile, and gave it back.
                let token = waiter.join().unwrap().unwrap();
                until("a ghost takes it", || last_token(&server) > token);
                until("it gives it back", || !exists(&server, "x"));
            }
            assert!(begin.elapsed() > LATE / 2, "the join was not late");
        });
        drop(guard);
        until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
    }
}

fn token_of(guard: Option<leasehold::Guard>) -> u64 {
    guard.expect("it ends in time").fencing_token().get()
}

/// It tells of a ghost that was gone before anybody looked.
fn last_token(server: &leasehold_support::Server) -> u64 {
    ask(server, &["GET", "{x}:fence"])
}

/// The same for an attempt that was granted when it was repeated, and is released before the request
/// that got stuck arrives.
#[test]
fn request_that_arrives_after_the_release_is_undone() {
    let server = server();
    warm(&server);
    let detour = Detour::start(&server, LATE);
    let lock = late(&detour).mutex_with("x", renewed(LEASE)).unwrap();
    detour.armed.store(true, Ordering::SeqCst);
    let guard = lock.try_lock().unwrap().expect("free");
    assert!(!detour.armed.load(Ordering::SeqCst), "nothing got stuck");
    let token = guard.fencing_token().get();
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
    until("a ghost takes it", || last_token(&server) > token);
    until("it gives it back", || !exists(&server, "x"));
}

/// Rules 6 and 30: the hold is lost before the request that got stuck arrives, and nobody gives its lease
/// back.
#[test]
fn request_that_arrives_after_the_loss_leaves_no_owner() {
    let server = server();
    warm(&server);
    let detour = Detour::start(&server, LATE);
    let lock = late(&detour).mutex_with("x", fixed(LEASE)).unwrap();
    detour.armed.store(true, Ordering::SeqCst);
    let guard = lock.try_lock().unwrap().expect("free");
    assert!(!detour.armed.load(Ordering::SeqCst), "nothing got stuck");
    ask::<()>(&server, &["DEL", "x"]);
    assert!(guard.check().unwrap_err().is_lost());
    until("a ghost takes it", || exists(&server, "x"));
    until("it is taken out", || !exists(&server, "x"));
    drop(guard);
}

/// A client whose requests are not too late, however late they are. A leave is repeated one exchange after such a request:
/// the wait for a connection, and the reply.
fn late(detour: &Detour) -> LockClient {
    let builder = patient(LockClient::builder(&detour.url)).command_timeout(LATEST);
    builder.max_wait(LATEST / 2).build().unwrap()
}

/// Longer than any wait here, in ms: what is left does not end by itself.
const LEASE: u64 = 3_600_000;
/// After this, what got stuck on the detour is too late.
const LATEST: Duration = ms(10_000);
/// So late it comes, which is longer than a machine stands still, and earlier than that.
const LATE: Duration = ms(2_000);

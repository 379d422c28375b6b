//! Injected faults of the network, the server and the holder. Each proves that its fault fired.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kind::KINDS;
use crate::common::queue::{listens, waiting};
use crate::common::{
    HASTE, SLACK, SOON, ask, behind_proxy, exists, fixed, hasty, ms, open, open_at, open_default,
    pttl, renewed, server, until, warm,
};
use leasehold::{Guard, LockClient};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Child, Fault, Proxy, Server};

/// In the place of an answer: nothing, and the connection stays.
const SILENCE: Action = Action::Garbage(Vec::new());
/// How long one call of a hasty client may take.
const BOUND: Duration = HASTE;

fn scripts(server: &Server) -> u64 {
    server.command_calls(&["eval", "evalsha"])
}

/// The key stays away, although there is time for whatever might bring it back.
fn stays_away(server: &Server, key: &str) {
    let begin = Instant::now();
    while begin.elapsed() < ms(250) {
        assert!(!exists(server, key), "a ghost, for {} ms more", pttl(server, key));
        thread::sleep(ms(5));
    }
}

/// The first request may have taken it, whatever the second is told.
#[test]
fn refusal_after_an_unanswered_request_is_unknown() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    let fault = proxy.add(Fault::reply("", SILENCE).at(Operation::Acquire));
    let error = thread::scope(|scope| {
        let asks = scope.spawn(|| lock.try_lock_for(SOON).unwrap_err());
        until("it is taken", || exists(&server, "x"));
        assert!(fault.wait_fired(SOON));
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
        proxy.cut();
        asks.join().unwrap()
    });
    assert_eq!(fault.fired(), 1);
    assert!(error.is_unknown_outcome() && error.to_string().contains("OOM"), "{error:?}");
    until("it is given back", || !exists(&server, "x"));
}

/// It may have been carried out, and then outlasts by far what its holder knows of.
#[test]
fn lease_left_by_an_unanswered_extension_is_released() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::builder(proxy.url()).command_timeout(HASTE).build().unwrap();
    for cut in [false, true] {
        let guard = client.mutex_with("x", fixed(2_500)).unwrap().lock().unwrap();
        let fault = proxy.add(Fault::reply("", SILENCE).at(Operation::Renew));
        assert!(guard.extend(ms(600_000)).unwrap_err().is_unknown_outcome());
        assert_eq!(fault.fired(), 1);
        assert!(pttl(&server, "x") > 500_000);
        if cut {
            proxy.refuse();
            proxy.cut();
            drop(guard);
            // Twice as long as the worker would try for the lease that is known of.
            thread::sleep(ms(6_000));
            proxy.heal();
        } else {
            until("it is lost", || guard.loss().is_some());
            assert!(exists(&server, "x"));
            assert!(guard.release().unwrap_err().is_lost());
        }
        until("it is given back", || !exists(&server, "x"));
    }
}

/// Runs with a lease that was just handed over to a client, and is not renewed yet. Where the machine stood still it is,
/// and is handed over again.
fn handed_over(server: &Server, client: &LockClient, test: impl FnOnce(&Guard)) {
    let mut test = Some(test);
    while test.is_some() {
        hand_over(server, client, &mut test);
    }
}

fn hand_over(server: &Server, client: &LockClient, test: &mut Option<impl FnOnce(&Guard)>) {
    let (other, begin) = (open(server).mutex("x").unwrap(), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = other.lock().unwrap();
            begin.wait();
            until("it waits", || waiting(server, "x") == 1);
            guard.release().unwrap();
        });
        begin.wait();
        let guard = client.mutex("x").unwrap().lock().unwrap();
        if guard.remaining() < CLAIM {
            test.take().expect("not yet")(&guard);
        }
    });
}

/// As long as Redis keeps the lock for the next in the queue: two heartbeats and a command time-out.
const CLAIM: Duration = ms(3_000);

/// It is renewed: once that is known, it lasts for longer than it was handed over for.
#[track_caller]
fn becomes_whole(guard: &Guard) {
    until("it is renewed", || {
        assert!(guard.loss().is_none(), "{:?}", guard.loss());
        guard.remaining() > CLAIM
    });
}

#[test]
fn handed_over_lease_survives_a_lost_renewal_reply() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
    listens(&server, &client);
    let fault = proxy.add(Fault::reply("", SILENCE).at(Operation::Renew));
    handed_over(&server, &client, |guard| {
        assert!(fault.wait_fired(SOON));
        becomes_whole(guard);
    });
}

/// It stands still before the first renewal, and comes back well before the end.
#[test]
fn handed_over_lease_survives_a_server_that_stops_for_a_while() {
    let (server, _proxy) = behind_proxy();
    // A claim is longer with a longer time-out.
    let client = open_default(&server);
    listens(&server, &client);
    let mut done = false;
    while !done {
        handed_over(&server, &client, |guard| {
            server.pause();
            let is_claim = guard.remaining() <= CLAIM;
            thread::sleep(ms(1_200));
            server.resume();
            // Where the machine stood still, it was renewed before, or too little was left.
            done = is_claim && guard.remaining() > ms(600);
            if done {
                becomes_whole(guard);
            }
        });
    }
}

/// Redis carried the renewals out, and has the lock for far longer than its holder knew.
#[test]
fn lease_left_by_unanswered_renewals_is_released() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
    listens(&server, &client);
    let fault = proxy.add(Fault::reply("", SILENCE).at(Operation::Renew).sticky());
    handed_over(&server, &client, |guard| {
        until("it is lost", || guard.loss().is_some());
        assert!(fault.fired() > 0);
        assert!(pttl(&server, "x") > 20_000, "no renewal was carried out");
    });
    until("it is given back", || !exists(&server, "x"));
}

/// Rule 3: a repeated grant has the same token, and a validity reckoned from the second request.
#[test]
fn repeated_grant_keeps_its_token_and_its_time_to_live() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let fault = proxy.add(Fault::request("ours", Action::LoseReply));
    let guard = client.mutex_with("ours", fixed(20_000)).unwrap().lock().unwrap();
    assert_eq!(fault.fired(), 1);
    // In this order: whatever comes between makes the second less.
    let (left, remaining) = (pttl(&server, "ours"), guard.remaining());
    assert!(remaining.as_millis() <= left.unsigned_abs().into(), "{remaining:?} of {left}");
    assert!(remaining > ms(10_000));
    guard.release().unwrap();
    // The first answer is missed only after a while, when the lock is as old as that.
    let client = hasty(&proxy.url());
    let fault = proxy.add(Fault::request("late", SILENCE));
    let guard = client.mutex_with("late", fixed(20_000)).unwrap().lock().unwrap();
    assert_eq!(fault.fired(), 1);
    let counter: u64 = ask(&server, &["GET", "{late}:fence"]);
    assert_eq!(guard.fencing_token().get(), counter);
    let (left, remaining) = (pttl(&server, "late"), guard.remaining());
    assert!(remaining.as_millis() <= left.unsigned_abs().into(), "{remaining:?} of {left}");
}

/// The validity is reckoned from before the request, and not from its answer.
#[test]
fn late_reply_makes_no_grant_valid_beyond_redis() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    for kind in KINDS {
        let late = Fault::reply("", Action::Delay(ms(450))).at(Operation::Acquire);
        let late = proxy.add(late);
        let guard = kind.with(&client, "slow", fixed(20_000)).lock().unwrap();
        let (left, remaining) = (pttl(&server, "slow"), guard.remaining());
        assert_eq!(late.fired(), 1);
        assert!(remaining.as_millis() <= left.unsigned_abs().into(), "{remaining:?} of {left}");
        guard.release().unwrap();
    }
}

#[test]
fn dropped_request_is_unknown_in_time_and_leaves_no_key() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    for (number, action) in [Action::Drop, Action::Cut, Action::CutHalf].into_iter().enumerate() {
        let name = format!("never-{number}");
        let fault = proxy.add(Fault::request(&name, action.clone()).sticky());
        // A call that the machine held up may have ended before its request was sent.
        let error = loop {
            let error = client.mutex(&name).unwrap().try_lock().unwrap_err();
            if fault.fired() > 0 {
                break error;
            }
        };
        assert!(error.is_unknown_outcome(), "{action:?}: {error:?}");
        assert!(!exists(&server, &name));
        fault.remove();
        stays_away(&server, &name);
    }
}

/// Regression, CURATOR-79: the wait is called off while the answer, a grant, is on its way.
#[test]
fn grant_to_a_cancelled_wait_is_released() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let lock = client.mutex("ghost").unwrap();
    let fault = proxy.add(Fault::request("ghost", SILENCE).sticky());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        assert!(fault.wait_fired(SOON));
        until("it is called off", || {
            lock.cancel_waits();
            waiter.is_finished()
        });
        assert!(waiter.join().unwrap().is_err());
    });
    fault.remove();
    until("the ghost is gone", || !exists(&server, "ghost"));
}

#[test]
fn garbage_reply_is_repeated_and_recognised() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    for (number, garbage) in
        ["?!\r\n", "+OK\r\n", ":77\r\n", "*2\r\n:1\r\n:2\r\n", "$-1\r\n", "*0\r\n", "\r\n"]
            .into_iter()
            .enumerate()
    {
        // A name each: the worker gives the one before back later on, and would meet the fault.
        let name = format!("garbage-{number}");
        let action = Action::Garbage(garbage.as_bytes().to_vec());
        let fault = Fault::request(&name, action.clone()).at(Operation::Acquire);
        let fault = proxy.add(fault);
        let guard = client.mutex(&name).unwrap().try_lock().unwrap().expect("ours");
        assert_eq!(fault.fired(), 1, "{garbage:?}");
        guard.check().unwrap();
        // Its release is repeated too, and finds no lock.
        let fault = proxy.add(Fault::request(&name, action).at(Operation::Release));
        let outcome = guard.release();
        assert_eq!(fault.fired(), 1, "{garbage:?}");
        assert!(outcome.is_err_and(|error| error.is_unknown_outcome()), "{garbage:?}");
        assert!(!exists(&server, &name), "{garbage:?}");
    }
}

#[test]
fn endless_garbage_is_unknown_and_leaves_no_owner() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let garbage = Action::Garbage(b"*1\r\n:9\r\n".to_vec());
    let fault = proxy.add(Fault::request("garbage", garbage).sticky());
    let error = client.mutex("garbage").unwrap().try_lock().unwrap_err();
    assert!(error.is_unknown_outcome() && fault.fired() > 0, "{error:?}");
    fault.remove();
    until("it is given back", || !exists(&server, "garbage"));
}

#[test]
fn black_hole_is_a_typed_error_in_time_for_every_call() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let lock = client.mutex_with("x", fixed(60_000)).unwrap();
    let guard = lock.lock().unwrap();
    let bounded = |call: &str, work: &dyn Fn() -> leasehold::Result<()>| {
        let begin = Instant::now();
        let error = work().expect_err(call);
        let took = begin.spent();
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{call}: {error:?}");
        assert!(took < BOUND + SLACK, "{call}: {took:?}");
    };
    proxy.black_hole();
    let other = client.mutex("y").unwrap();
    bounded("try_lock", &|| other.try_lock().map(drop));
    bounded("try_lock_for", &|| other.try_lock_for(ms(100)).map(drop));
    bounded("check", &|| guard.check());
    bounded("extend", &|| guard.extend(ms(60_000)));
    bounded("holder", &|| lock.holder().map(drop));
    bounded("force_release", &|| other.force_release().map(drop));
    let begin = Instant::now();
    assert!(guard.release().is_err());
    assert!(begin.spent() < BOUND + SLACK, "{:?}", begin.spent());
    proxy.heal();
    // What was sent meanwhile goes through now, and is too late or is cleaned up.
    until("all is given back", || !exists(&server, "x") && !exists(&server, "y"));
    stays_away(&server, "y");
    drop(other.try_lock_for(SOON).unwrap().expect("free"));
}

/// An answer comes twice, so that every later one on its connection is that of the command before.
#[test]
fn surplus_reply_ends_its_connection() {
    let (server, proxy) = behind_proxy();
    ask::<()>(&server, &["SET", "b", "stranger", "PX", "60000"]);
    let client = open_at(proxy.url());
    let (a, b, c) =
        (client.mutex("a").unwrap(), client.mutex("b").unwrap(), client.mutex("c").unwrap());
    for _ in 0..3 {
        let twice = proxy.add(Fault::reply("stranger", Action::Twice));
        assert!(b.is_locked().unwrap());
        assert_eq!(twice.fired(), 1);
        // A name is no answer to an attempt.
        let guard = a.try_lock().unwrap().expect("free");
        assert!(!c.is_locked().unwrap());
        assert_eq!(b.holder().unwrap().expect("a holder").owner(), b"stranger");
        guard.check().unwrap();
        guard.release().unwrap();
        until("it is given back", || !exists(&server, "a"));
    }
}

/// The request runs only after its own clean-up has: without a deadline of its own it would make
/// a lock that nobody has (rules 2 and 6).
#[test]
fn request_overtaken_by_its_clean_up_leaves_no_owner() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    for kind in KINDS {
        let name = format!("overtaken-{}", kind.name);
        let held = proxy.add(Fault::request(&name, Action::Hold).at(Operation::Acquire));
        let error = kind.open(&client, &name).try_lock().unwrap_err();
        assert!(error.is_unknown_outcome() && held.fired() == 1, "{error:?}");
        // The worker's clean-up goes before.
        let before = scripts(&server);
        until("its clean-up ran", || scripts(&server) > before);
        let before = scripts(&server);
        held.release();
        until("the request ran", || scripts(&server) > before);
        stays_away(&server, &name);
        assert!(client.mutex(&name).unwrap().try_lock().unwrap().is_some());
    }
}

/// A network so slow that the grant is old when it comes.
#[test]
fn grant_slower_than_its_lease_is_refused_and_released() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex_with("x", fixed(250)).unwrap();
    assert!(!lock.is_locked().unwrap());
    let slow = proxy.add(Fault::reply("", Action::Delay(ms(400))).at(Operation::Acquire));
    let error = lock.try_lock().unwrap_err();
    assert_eq!(slow.fired(), 1);
    assert!(error.is_timeout(), "{error:?}");
    assert!(!lock.is_held_by_current_thread());
    until("it is given back", || !exists(&server, "x"));
}

/// What a connection that breaks late leaves of a call's time is all that the repetition gets: a call has
/// its time-out for the reply, and as much for a connection.
#[test]
fn call_with_a_late_broken_connection_ends_in_time() {
    let server = server();
    warm(&server);
    let call = |what: &'static str| {
        let proxy = Proxy::start(&server).unwrap();
        let builder = LockClient::builder(proxy.url()).give_up_after(ms(3_000));
        let builder = builder.connect_timeout(ms(1_500)).command_timeout(ms(1_500));
        let client = builder.max_wait(ms(1_500)).build().unwrap();
        let lock = client.mutex_with(what, fixed(20_000)).unwrap();
        let guard = lock.lock().unwrap();
        let guard =
            if what == "try_lock" { guard.release().map(|()| None) } else { Ok(Some(guard)) };
        let mut guard = guard.unwrap();
        let (begin, held_up) = (Instant::now(), proxy.held_up());
        let outcome = thread::scope(|scope| {
            proxy.black_hole();
            scope.spawn(|| {
                thread::sleep(ms(1_000));
                proxy.cut();
            });
            let outcome = match (what, &guard) {
                ("extend", Some(guard)) => guard.extend(ms(30_000)),
                ("check", Some(guard)) => guard.check(),
                ("release", _) => guard.take().map_or(Ok(()), |guard| guard.release()),
                _ => lock.try_lock().map(drop),
            };
            (outcome, begin.elapsed(), begin.spent())
        });
        let (error, lasted, took) = (outcome.0.unwrap_err(), outcome.1, outcome.2);
        assert!(proxy.held_up() > held_up);
        let broke = lasted >= ms(1_000);
        assert!(broke, "{what} ended before its connection broke: {lasted:?}, {error}");
        assert!(took < ms(3_000) + SLACK, "{what}: {took:?} of 3 s, {error}");
        // A look changes nothing, so that it leaves no doubt.
        assert_eq!(error.is_unknown_outcome(), what != "check", "{what}: {error:?}");
        assert!(error.is_unknown_outcome() || error.is_unreachable(), "{what}: {error:?}");
        proxy.heal();
    };
    thread::scope(|scope| {
        for what in ["try_lock", "extend", "check", "release"] {
            scope.spawn(move || call(what));
        }
    });
}

/// The repetition of a request whose answer was lost cannot be sent: nobody can say what is done.
#[test]
fn request_lost_with_the_only_connection_is_unknown() {
    let (server, proxy) = behind_proxy();
    for what in ["try_lock", "extend", "release"] {
        let client = hasty(&proxy.url());
        let lock = client.mutex_with(what, fixed(6_000)).unwrap();
        let guard = match what {
            "try_lock" => None,
            _ => Some(lock.lock().unwrap()),
        };
        if guard.is_none() {
            client.mutex("other").unwrap().lock().unwrap().release().unwrap();
        }
        proxy.refuse();
        let fault = proxy.add(Fault::request(what, Action::LoseReply));
        let error = match (what, guard) {
            ("extend", Some(guard)) => {
                let error = guard.extend(ms(7_000)).unwrap_err();
                assert!(guard.is_valid(), "nobody took it");
                error
            }
            ("release", Some(guard)) => guard.release().unwrap_err(),
            _ => lock.try_lock().unwrap_err(),
        };
        assert_eq!(fault.fired(), 1);
        assert!(error.is_unknown_outcome(), "{what}: {error:?}");
        proxy.heal();
        until("nothing is left", || !exists(&server, what));
    }
}

fn holder(server: &Server, ttl: u64) -> (Child, u64) {
    let builder = Child::role("holder").test("fault::roles").env("URL", server.url());
    let mut child = builder.env("TTL", ttl.to_string()).start().expect("a child");
    let token = child.expect_line("held", SOON).parse().unwrap();
    (child, token)
}

#[test]
fn stopped_holder_knows_its_loss_before_io_and_is_fenced() {
    let server = server();
    let (mut child, token) = holder(&server, 3_000);
    child.stop();
    let next = open(&server).mutex("x").unwrap().try_lock_for(SOON).unwrap().expect("free");
    assert!(next.fencing_token().get() > token);
    // It is waiting to hear this, and looks at its guard first of all.
    child.say("look");
    server.pause();
    child.cont();
    assert_eq!(child.expect_line("valid", SOON), "false 0ns");
    server.resume();
    child.say("release");
    assert_eq!(child.expect_line("released", SOON), "lost");
    next.check().unwrap();
    assert_eq!(child.expect_line("reacquired", SOON), "none");
}

fn hold() {
    let client = open_at(std::env::var("URL").expect("a URL"));
    let ttl = std::env::var("TTL").expect("a lease").parse().unwrap();
    let lock = client.mutex_with("x", renewed(ttl)).unwrap();
    let guard = lock.lock().unwrap();
    tell(&format!("held {}", guard.fencing_token()));
    hear();
    let seen = (guard.is_valid(), guard.remaining());
    tell(&format!("valid {} {:?}", seen.0, seen.1));
    hear();
    let outcome = guard.release();
    tell(if outcome.is_err_and(|error| error.is_lost()) { "released lost" } else { "released ?" });
    let again = lock.try_lock().unwrap();
    tell(if again.is_none() { "reacquired none" } else { "reacquired some" });
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    match role().as_deref() {
        Some("holder") => hold(),
        Some(other) => panic!("unknown role {other}"),
        None => {}
    }
}

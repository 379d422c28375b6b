//! Waiting in Redis's queue, process by process. A client of its own stands for a process; where a
//! process must die or stop, it is a real one.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex as Shared, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::queue::{listens, wait_for, waiting};
use common::{
    SLACK, SOON, alone, ask, behind_proxy, exists, fixed, hasty, ms, no_key_is_immortal, open,
    pttl, renewed, server, together, until, warm, within,
};
use leasehold::{LockClient, LockOptions, Mutex, Release, Wait};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::lag::Spent as _;
use leasehold_support::stat::median;
use leasehold_support::{Action, Child, Fault, Proxy, Server};

/// Rule 8: a waiter says so this often, …
const HEARTBEAT: Duration = ms(1_000);
/// … is dead after this, …
const DEAD_AFTER: Duration = ms(3_000);
/// … and may claim a lock for this long (2 heartbeats + the command time-out).
const CLAIM: Duration = ms(3_000);
/// What came with a message, and was not found by the next heartbeat.
const AT_ONCE: Duration = ms(700);

fn members(server: &Server, name: &str) -> Vec<String> {
    ask(server, &["ZRANGE", &format!("{{{name}}}:queue"), "0", "-1"])
}

fn owner(server: &Server, name: &str) -> String {
    ask::<Option<String>>(server, &["GET", name]).unwrap_or_default()
}

/// Waits until so many stand in the queue.
#[track_caller]
fn until_waiting(server: &Server, name: &str, count: usize) {
    until("they queue up", || waiting(server, name) == count);
}

/// A lock that a foreign library or a shell holds.
fn foreign_hold(server: &Server, name: &str, ttl: u64) {
    ask::<()>(server, &["SET", name, "foreign", "NX", "PX", &ttl.to_string()]);
}

/// Checker C6: no inversions among live waiters; C2: tokens grow in the order of service.
#[test]
fn processes_are_served_in_the_order_in_which_they_came() {
    let _turn = together();
    const WAITERS: usize = 12;
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let served = Shared::new(vec![(usize::MAX, guard.fencing_token())]);
    let inside = AtomicU32::new(1);
    thread::scope(|scope| {
        for number in 0..WAITERS {
            let lock = open(&server).mutex("x").unwrap();
            let (served, inside) = (&served, &inside);
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                served.lock().unwrap().push((number, guard.fencing_token()));
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            until_waiting(&server, "x", number + 1);
        }
        no_key_is_immortal(&server);
        inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().unwrap();
    });
    let served = served.into_inner().unwrap();
    let order: Vec<usize> = served[1..].iter().map(|(number, _)| *number).collect();
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "{served:?}");
    assert!(!exists(&server, "x") && waiting(&server, "x") == 0);
}

/// Section 10: one command to queue, one to hand over, however many wait.
#[test]
fn a_hand_over_is_one_command_however_many_wait() {
    let _turn = together();
    const WAITERS: usize = 8;
    let server = server();
    warm(&server);
    let clients: Vec<LockClient> = (0..WAITERS).map(|_| open(&server)).collect();
    // They listen already, so that nothing but the queue is counted below.
    clients.iter().for_each(|client| listens(&server, client));
    let locks: Vec<Mutex> = clients.iter().map(|client| client.mutex("x").unwrap()).collect();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        server.reset_stats();
        for (number, lock) in locks.iter().enumerate() {
            scope.spawn(move || drop(lock.lock().unwrap()));
            until_waiting(&server, "x", number + 1);
        }
        guard.release().unwrap();
    });
    let scripts = server.command_calls(&["eval", "evalsha"]);
    // The first holder's release, and two for each; a slow machine adds heartbeats, and looks of those
    // who learn of their grant only by asking.
    let beats = 1 + begin.elapsed().as_secs();
    let most = 1 + 2 * WAITERS as u64 + beats * WAITERS as u64 / 2;
    assert!(scripts <= most, "{scripts} for {WAITERS} in {:?}", begin.elapsed());
}

/// Rule 4: newcomers never barge, and promote the first who waits when the lock is free.
#[test]
fn nobody_takes_it_before_those_who_wait() {
    let _turn = together();
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let newcomers = [
        open(&server).mutex("x").unwrap(),
        open(&server).mutex_with("x", LockOptions::new().wait(Wait::spin())).unwrap(),
        open(&server).mutex_with("x", fixed(20_000)).unwrap(),
    ];
    for round in 0..15 {
        let guard = newcomers[0].lock().unwrap();
        let earlier = guard.fencing_token().get();
        thread::scope(|scope| {
            let served = wait_for(scope, &waiter);
            until_waiting(&server, "x", 1);
            for newcomer in &newcomers[1..] {
                assert!(newcomer.try_lock().unwrap().is_none(), "held");
            }
            // For a moment it is nobody's.
            ask::<()>(&server, &["DEL", "x"]);
            let newcomer = &newcomers[1 + round % 2];
            let newcomers = newcomer.try_lock().unwrap().map(|guard| guard.fencing_token().get());
            let (_, token) = served.join().unwrap();
            assert!(newcomers.is_none_or(|newcomers| token < newcomers), "{round}: it barged");
            assert!(token > earlier);
        });
        assert!(guard.release().is_err(), "its key was deleted");
    }
}

/// A server that refuses to be written to has not taken a waiter out of its queue.
#[test]
fn a_waiter_that_the_server_would_not_let_go_leaves_as_soon_as_it_may() {
    let _turn = together();
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let outcome = scope.spawn(|| waiter.try_lock_for(ms(900)).map(|guard| guard.is_some()));
        until_waiting(&server, "x", 1);
        ask::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        // Where the machine is late its beat is refused too, which it may say.
        match outcome.join().unwrap() {
            Ok(had) => assert!(!had),
            Err(error) => assert!(error.is_unreachable(), "{error:?}"),
        }
    });
    assert_eq!(waiting(&server, "x"), 1, "it could not leave");
    ask::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // By itself its place ends after six seconds.
    within(ms(3_000), "it has left", || waiting(&server, "x") == 0);
    guard.release().unwrap();
    assert!(!exists(&server, "x"), "handed to {}", owner(&server, "x"));
}

/// Regression, redisson#5019: an entry was left in the queue after a time-out.
#[test]
fn a_waiter_whose_time_is_over_leaves_nothing_and_is_handed_nothing() {
    let _turn = together();
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    for cancelled in [false, true] {
        thread::scope(|scope| {
            let wait = if cancelled { SOON * 3 } else { ms(2_500) };
            let waiter = &waiter;
            let outcome = scope.spawn(move || waiter.try_lock_for(wait).map(|g| g.is_some()));
            until_waiting(&server, "x", 1);
            if cancelled {
                assert_eq!(waiter.cancel_waits(), 1);
                assert!(outcome.join().unwrap().unwrap_err().is_cancelled());
            } else {
                assert!(!outcome.join().unwrap().unwrap());
            }
        });
        // It left before it told its caller.
        assert_eq!(waiting(&server, "x"), 0);
        assert!(!exists(&server, "{x}:queue") && !exists(&server, "{x}:beats"));
    }
    guard.release().unwrap();
    assert!(!exists(&server, "x"), "handed to {}", owner(&server, "x"));
}

#[test]
fn a_wait_ends_when_the_caller_said() {
    let _turn = together();
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    for wait in [30, 200, 1_100] {
        let begin = Instant::now();
        let none = waiter.try_lock_for(ms(wait)).expect("somebody has it: that is no error");
        let (lasted, took) = (begin.elapsed(), begin.spent());
        assert!(none.is_none() && lasted >= ms(wait), "{wait}: {lasted:?}");
        assert!(took < ms(wait) + SLACK, "{wait}: {took:?}");
    }
}

/// `None` says that somebody has it. That the wake-ups are not connected in so short a time is no
/// reason to say that Redis is down.
#[test]
fn a_first_wait_too_short_to_connect_the_wake_ups_is_none_and_not_an_error() {
    let _turn = together();
    let server = server();
    warm(&server);
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    // An answer takes 160 ms; connecting takes several.
    proxy.delay(ms(80));
    for wait in [400, 500, 700] {
        let client = LockClient::open(proxy.url()).unwrap();
        let outcome = client.mutex("x").unwrap().try_lock_for(ms(wait));
        assert!(matches!(outcome, Ok(None)), "{wait} ms: {outcome:?}");
    }
}

/// Meaning, in the catalogue of faults: dead waiters are skipped at once, not one after another.
#[test]
fn three_killed_waiters_are_skipped_together() {
    let _turn = together();
    for monitored in [false, true] {
        let server = server();
        let guard = open(&server).mutex("x").unwrap().lock().unwrap();
        // Who listens to everything makes a message to the dead look heard (rule 12: a hint).
        let mut monitor = server.connection();
        if monitored {
            redis::cmd("PSUBSCRIBE").arg("leasehold:*").exec(&mut monitor).unwrap();
        }
        let mut dead: Vec<Child> = (0..3)
            .map(|number| {
                let child = waiter_process(&server, "x");
                until_waiting(&server, "x", number + 1);
                child
            })
            .collect();
        let next = open(&server).mutex("x").unwrap();
        let last = open(&server).mutex("x").unwrap();
        let took = thread::scope(|scope| {
            let next = wait_for(scope, &next);
            until_waiting(&server, "x", 4);
            let last = wait_for(scope, &last);
            until_waiting(&server, "x", 5);
            dead.iter_mut().for_each(Child::kill9);
            let begin = Instant::now();
            guard.release().unwrap();
            let (next, last) = (next.join().unwrap(), last.join().unwrap());
            assert!(next.0 < last.0 && next.1 < last.1, "each once, in order");
            next.0.spent_since(begin)
        });
        let bound = if monitored { DEAD_AFTER.max(CLAIM) + SLACK } else { AT_ONCE };
        assert!(took < bound, "monitored: {monitored}, {took:?}");
        until("it is free", || !exists(&server, "x"));
        no_key_is_immortal(&server);
    }
}

/// Rule 12: that a message was heard by nobody is a hint. Whoever looks for an heir of a free lock
/// and finds none but the dead must own it in Redis too, and not only believe so.
#[test]
fn who_finds_only_dead_waiters_owns_the_lock_in_redis_too() {
    let _turn = together();
    let server = server();
    for (round, newcomer) in ["try", "join"].into_iter().enumerate() {
        let name = format!("x{round}");
        foreign_hold(&server, &name, 60_000);
        let mut dead = waiter_process(&server, &name);
        until_waiting(&server, &name, 1);
        dead.kill9();
        // Its last sign of life is young, and the lock comes free without a release.
        ask::<()>(&server, &["DEL", &name]);
        let client = LockClient::builder(server.url()).label("newcomer").build().unwrap();
        let lock = client.mutex(&name).unwrap();
        if newcomer == "join" {
            listens(&server, &client);
        }
        let guard = match newcomer {
            "try" => lock.try_lock().unwrap().expect("only a dead one waits"),
            _ => lock.try_lock_for(SOON).unwrap().expect("only a dead one waits"),
        };
        assert!(
            owner(&server, &name).ends_with(":newcomer"),
            "{newcomer}: {}",
            owner(&server, &name)
        );
        guard.check().unwrap();
        assert!(pttl(&server, &name) > 20_000, "{newcomer}: {}", pttl(&server, &name));
        assert!(open(&server).mutex(&name).unwrap().try_lock().unwrap().is_none());
        guard.release().unwrap();
        assert!(!exists(&server, &name));
    }
}

/// The same for one who was in the queue behind the dead.
#[test]
fn who_waits_behind_a_killed_waiter_of_a_deleted_lock_owns_it_in_redis_too() {
    let _turn = together();
    let server = server();
    foreign_hold(&server, "x", 60_000);
    let mut dead = waiter_process(&server, "x");
    until_waiting(&server, "x", 1);
    let lock = open(&server).mutex_with("x", renewed(20_000)).unwrap();
    thread::scope(|scope| {
        let next = wait_for(scope, &lock);
        until_waiting(&server, "x", 2);
        dead.kill9();
        let begin = Instant::now();
        ask::<()>(&server, &["DEL", "x"]);
        let (served, _) = next.join().unwrap();
        assert!(served.spent_since(begin) < HEARTBEAT + SLACK);
    });
}

/// Rule 11: who was taken for dead keeps its place, and has it again once it is heard of.
#[test]
fn a_stopped_waiter_has_its_place_again_when_it_comes_back() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let mut stopped = waiter_process(&server, "x");
    let pid = stopped.pid();
    until_waiting(&server, "x", 1);
    stopped.stop();
    let second = open(&server).mutex("x").unwrap();
    // Where places are equal, Redis goes by the bytes: this one would come first.
    let before = members(&server, "x")[0].clone();
    let third = (0..200).map(|_| open(&server)).find(|client| {
        let _guard = client.mutex("y").unwrap().lock().unwrap();
        owner(&server, "y") < before
    });
    let third = third.expect("one of many").mutex("x").unwrap();
    thread::scope(|scope| {
        let handed = scope.spawn(|| {
            let guard = second.lock().unwrap();
            let begin = Instant::now();
            until("the stopped one is heard of", || {
                place(&server, "x", pid).is_some_and(|place| place > 0.0)
            });
            until("a third one waits", || waiting(&server, "x") == 2);
            guard.release().unwrap();
            begin
        });
        until_waiting(&server, "x", 2);
        dies(&server, "x", pid);
        let begin = Instant::now();
        guard.release().unwrap();
        until("it is skipped", || place(&server, "x", pid).is_some_and(|place| place < 0.0));
        let third = wait_for(scope, &third);
        until_waiting(&server, "x", 2);
        stopped.cont();
        let handed = handed.join().unwrap();
        assert!(handed.spent_since(begin) < AT_ONCE, "the living do not wait for the dead");
        let token: u64 = stopped.expect_line("has ", SOON).parse().unwrap();
        stopped.say("release");
        assert!(token < third.join().unwrap().1, "it lost its place");
    });
}

/// Rule 1: who is not in the queue any longer begins a new attempt.
#[test]
fn a_waiter_that_was_forgotten_queues_up_anew() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let served = wait_for(scope, &lock);
        until_waiting(&server, "x", 1);
        let before = members(&server, "x");
        ask::<()>(&server, &["DEL", "{x}:queue", "{x}:beats"]);
        within(HEARTBEAT + SLACK, "it is back", || waiting(&server, "x") == 1);
        assert_ne!(members(&server, "x"), before, "an attempt was used again");
        let begin = Instant::now();
        guard.release().unwrap();
        assert!(served.join().unwrap().0.spent_since(begin) < AT_ONCE);
    });
    no_key_is_immortal(&server);
}

/// Catalogue: kill -9 of the holder, next grant within the remaining time to live.
#[test]
fn the_first_waiter_has_it_when_the_lease_of_a_killed_holder_ends() {
    let _turn = together();
    let server = server();
    let mut holder = Child::role("holder")
        .test("roles")
        .env("URL", server.url())
        .env("NAME", "x")
        .start()
        .unwrap();
    holder.expect_line("has", SOON);
    let (first, second) = (open(&server).mutex("x").unwrap(), open(&server).mutex("x").unwrap());
    thread::scope(|scope| {
        let first = wait_for(scope, &first);
        until_waiting(&server, "x", 1);
        let second = wait_for(scope, &second);
        until_waiting(&server, "x", 2);
        holder.kill9();
        let (begin, left) = (Instant::now(), pttl(&server, "x"));
        assert!(left > 0);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        let (lasted, took) = (first.0.duration_since(begin), first.0.spent_since(begin));
        assert!(lasted + ms(100) >= ms(left.unsigned_abs()), "{lasted:?} of {left} ms");
        assert!(took < ms(left.unsigned_abs()) + SLACK, "{took:?} of {left} ms");
        assert!(first.1 < second.1);
    });
}

/// Design, section 5: tokens grow also after FLUSHALL; every waiter gets its turn all the same.
#[test]
fn waiters_survive_flushall_and_a_deleted_lock() {
    let _turn = together();
    let server = server();
    for words in [&["FLUSHALL"][..], &["DEL", "x"]] {
        let guard = open(&server).mutex("x").unwrap().lock().unwrap();
        let locks = [(); 4].map(|()| open(&server).mutex("x").unwrap());
        let mut tokens: Vec<u64> = thread::scope(|scope| {
            let waiters = locks.each_ref().map(|lock| {
                let before = waiting(&server, "x");
                let waiter = wait_for(scope, lock);
                until_waiting(&server, "x", before + 1);
                waiter
            });
            let begin = Instant::now();
            ask::<()>(&server, words);
            let served = waiters.map(|waiter| waiter.join().unwrap());
            let took = served.iter().map(|(at, _)| at.spent_since(begin)).max().unwrap();
            assert!(took < HEARTBEAT + CLAIM + SLACK, "{words:?}: {took:?}");
            served.into_iter().map(|(_, token)| token).collect()
        });
        assert!(tokens.iter().all(|&token| token > guard.fencing_token().get()), "{words:?}");
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 4, "{words:?}: a token was used twice");
        drop(guard);
        until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
    }
}

#[test]
fn a_forced_release_serves_the_first_who_waits() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let (first, second) = (open(&server).mutex("x").unwrap(), open(&server).mutex("x").unwrap());
    thread::scope(|scope| {
        let first = wait_for(scope, &first);
        until_waiting(&server, "x", 1);
        let second = wait_for(scope, &second);
        until_waiting(&server, "x", 2);
        let begin = Instant::now();
        assert!(open(&server).mutex("x").unwrap().force_release().unwrap());
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert!(first.0.spent_since(begin) < AT_ONCE);
        assert!(guard.fencing_token().get() < first.1 && first.1 < second.1);
    });
    assert!(guard.release().unwrap_err().is_lost());
}

/// A foreign holder tells nobody: the first who waits polls, and the others do not.
#[test]
fn a_lock_of_somebody_who_does_not_hand_over_is_had_soon_after_it_is_free() {
    let _turn = together();
    let server = server();
    let spin = LockOptions::new().wait(Wait::spin());
    for foreign in ["set", "spin", "watch"] {
        let locks = [(); 3].map(|()| open(&server).mutex("x").unwrap());
        let mut guard = None;
        match foreign {
            "set" => foreign_hold(&server, "x", 60_000),
            "spin" => guard = open(&server).mutex_with("x", spin).unwrap().try_lock().unwrap(),
            _ => {
                let options = spin.release(Release::watch());
                guard = open(&server).mutex_with("x", options).unwrap().try_lock().unwrap();
            }
        }
        thread::scope(|scope| {
            let waiters: Vec<_> = locks
                .iter()
                .enumerate()
                .map(|(number, lock)| {
                    let waiter = wait_for(scope, lock);
                    until_waiting(&server, "x", number + 1);
                    waiter
                })
                .collect();
            // By then the pauses are as long as they get.
            thread::sleep(ms(200));
            server.reset_stats();
            thread::sleep(ms(400));
            let polls = server.command_calls(&["eval", "evalsha"]);
            assert!(polls > 0 && polls < 40, "{foreign}: {polls} in 0.4 s");
            let begin = Instant::now();
            match guard.take() {
                Some(guard) => guard.release().unwrap(),
                None => ask::<()>(&server, &["DEL", "x"]),
            }
            let served: Vec<_> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
            let took = served[0].0.spent_since(begin);
            assert!(took < ms(128) + SLACK, "{foreign}: {took:?}");
            assert!(served.is_sorted_by(|a, b| a.1 < b.1), "{foreign}: out of order");
        });
    }
}

/// Rule 16: the release hands over also when memory is full.
#[test]
fn the_lock_is_handed_over_when_memory_is_full() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let client = LockClient::builder(server.url()).label("heir").build().unwrap();
    let lock = client.mutex_with("x", renewed(20_000)).unwrap();
    let looked = AtomicBool::new(false);
    thread::scope(|scope| {
        let heir = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let served = (Instant::now(), owner(&server, "x"));
            // The claim becomes whole: what renews does not need memory.
            until("the claim is renewed", || pttl(&server, "x") > 10_000);
            until("what ran was looked at", || looked.load(Ordering::SeqCst));
            guard.release().unwrap();
            served
        });
        until_waiting(&server, "x", 1);
        fill_memory(&server);
        server.reset_stats();
        let begin = Instant::now();
        guard.release().unwrap();
        let ran = server.commands();
        // It was written in and not deleted: the path that the rule is about.
        looked.store(true, Ordering::SeqCst);
        assert!(ran.calls("set") >= 1 && ran.calls("del") == 0, "{ran:?}");
        let (at, owner) = heir.join().unwrap();
        assert!(owner.ends_with(":heir"), "{owner}");
        assert!(at.spent_since(begin) < AT_ONCE);
    });
    assert!(!exists(&server, "x"));
}

/// Rule 16: beats fail when memory is full, and the waiter stays by rule 11. Its wait goes on.
#[test]
fn a_waiter_outlives_a_long_time_without_memory() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until_waiting(&server, "x", 1);
        dies(&server, "x", std::process::id());
        fill_memory(&server);
        guard.release().unwrap();
        let begin = Instant::now();
        while !waiter.is_finished() && begin.spent() < HEARTBEAT + SLACK {
            thread::sleep(ms(2));
        }
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
        let outcome = waiter.join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    });
}

/// Rule 16: where a hand-over fails, the lock is deleted, and an attempt that fails takes nothing.
#[test]
fn a_queue_of_another_type_keeps_no_lock() {
    let _turn = together();
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["SET", "{x}:queue", "not ours", "PX", "60000"]);
    let _ = guard.release();
    within(SLACK, "it is released", || !exists(&server, "x"));
    // Nobody can wait in such a queue, so whoever finds the lock free may have it.
    drop(lock.try_lock().unwrap().expect("free"));
    within(SLACK, "it is released again", || !exists(&server, "x"));
    let other = open(&server).mutex("x").unwrap();
    let _guard = other.lock().unwrap();
    let error = lock.try_lock_for(ms(200)).expect_err("there is no queue to wait in");
    assert!(error.is_wrong_type(), "{error:?}");
}

/// Rule 2: a request past its deadline neither takes nor joins.
#[test]
fn a_request_that_comes_too_late_neither_takes_nor_joins() {
    let _turn = alone();
    let (server, proxy) = behind_proxy();
    for held in [false, true] {
        // The request is kept on its way, or the server stands still.
        for stopped in [false, true] {
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
                Some(hold) => {
                    assert_eq!(hold.fired(), 1);
                    hold.release();
                }
                None => server.resume(),
            }
            let begin = Instant::now();
            while begin.elapsed() < ms(200) {
                let there = owner(&server, "x");
                assert!(there.is_empty() || there == "foreign", "a ghost took it: {there}");
                assert_eq!(waiting(&server, "x"), 0, "a ghost joined");
                thread::sleep(ms(3));
            }
            // It did run; the worker's own clean-up is the other one.
            assert!(server.command_calls(&["eval", "evalsha"]) >= 1);
            ask::<()>(&server, &["DEL", "x"]);
        }
    }
}

/// A client that has asked for nothing for a while knows the server's clock less well. That is no
/// reason to find its next request too late.
#[test]
fn the_first_request_after_a_long_silence_is_not_too_late() {
    let _turn = together();
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
fn a_join_whose_answer_was_lost_has_its_place() {
    let _turn = together();
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
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
fn nothing_is_left_of_waits_that_ended_without_an_answer() {
    let _turn = together();
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
            within(ms(4_000), &what, || !mine());
            let begin = Instant::now();
            while begin.elapsed() < ms(200) {
                assert!(!mine(), "{what}, but one came back");
                thread::sleep(ms(3));
            }
            ask::<()>(&server, &["DEL", "x"]);
        }
    }
}

/// The answer to something else is not taken for a grant, whatever it looks like.
#[test]
fn a_number_out_of_place_is_not_a_grant() {
    let _turn = together();
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
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
fn a_join_that_overtakes_its_leave_is_undone_in_the_end() {
    let _turn = together();
    let server = server();
    warm(&server);
    let detour = Detour::start(&server, ms(500));
    for held in [false, true] {
        // So that the join is not too late, however late it is.
        let client = LockClient::builder(&detour.url).command_timeout(LATEST).build().unwrap();
        listens(&server, &client);
        let lock = client.mutex("x").unwrap();
        let guard = held.then(|| open(&server).mutex("x").unwrap().lock().unwrap());
        detour.armed.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().map(drop));
            until("its join is on the way", || !detour.armed.load(Ordering::SeqCst));
            let begin = Instant::now();
            if let Some(guard) = &guard {
                until_waiting(&server, "x", 1);
                within(ms(500) + SLACK, "a ghost joins", || waiting(&server, "x") == 2);
                within(LATEST + ms(1_000), "it has left again", || waiting(&server, "x") == 1);
                guard.check().unwrap();
                assert!(!waiter.is_finished());
                lock.cancel_waits();
                assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
            } else {
                // Another attempt had it meanwhile, and gave it back.
                waiter.join().unwrap().unwrap();
                within(ms(500) + SLACK, "a ghost takes it", || exists(&server, "x"));
                within(LATEST + ms(1_000), "it gives it back", || !exists(&server, "x"));
            }
            assert!(begin.elapsed() > ms(400), "the join was not late");
        });
        drop(guard);
        until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
    }
}

/// The same for an attempt that was granted when it was repeated, and is released before the request
/// that got stuck arrives.
#[test]
fn a_request_that_comes_after_the_release_is_undone_in_the_end() {
    let _turn = together();
    let server = server();
    warm(&server);
    let detour = Detour::start(&server, ms(500));
    let client = LockClient::builder(&detour.url).command_timeout(LATEST).build().unwrap();
    let lock = client.mutex("x").unwrap();
    for _ in 0..2 {
        detour.armed.store(true, Ordering::SeqCst);
        let guard = lock.try_lock().unwrap().expect("free");
        assert!(!detour.armed.load(Ordering::SeqCst), "nothing got stuck");
        guard.release().unwrap();
        assert!(!exists(&server, "x"));
        within(ms(500) + SLACK, "a ghost takes it", || exists(&server, "x"));
        within(LATEST + ms(1_000), "it gives it back", || !exists(&server, "x"));
    }
}

/// After this, what got stuck on the detour is too late.
const LATEST: Duration = ms(3_000);

/// A way to the server on which one request gets stuck, while its connection is already cut.
struct Detour {
    url: String,
    armed: Arc<AtomicBool>,
}

impl Detour {
    fn start(server: &Server, late: Duration) -> Detour {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (socket, armed) = (server.socket().to_owned(), Arc::new(AtomicBool::new(false)));
        let trigger = Arc::clone(&armed);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&socket)) else {
                    return;
                };
                let trigger = Arc::clone(&trigger);
                thread::spawn(move || Detour::relay(client, server, &trigger, late));
            }
        });
        Detour { url, armed }
    }

    fn relay(client: TcpStream, server: UnixStream, trigger: &AtomicBool, late: Duration) {
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut client, mut server, mut chunk) = (client, server, vec![0; 64 * 1024]);
        while let Ok(length @ 1..) = client.read(&mut chunk) {
            let asks = chunk[..length]
                .windows(7)
                .any(|words| words == b"$4\r\njoi" || words == b"$3\r\ntry");
            if asks && trigger.swap(false, Ordering::SeqCst) {
                let _ = client.shutdown(Shutdown::Both);
                thread::sleep(late);
                let _ = server.write_all(&chunk[..length]);
                thread::sleep(ms(100));
                break;
            }
            if server.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }
}

/// Keys of a name: one cluster slot, and none of them for ever.
#[test]
fn all_keys_share_the_names_slot_and_end() {
    let _turn = together();
    let server = server();
    for (name, keys) in [
        ("x", ["x", "{x}:fence", "{x}:queue", "{x}:beats"]),
        ("{a}b", ["{a}b", "{a}b:tfence", "{a}b:tqueue", "{a}b:tbeats"]),
        ("{}c", ["{}c", "{{}c}:fence", "{{}c}:queue", "{{}c}:beats"]),
    ] {
        let guard = open(&server).mutex_with(name, renewed(3_000)).unwrap().lock().unwrap();
        let lock = open(&server).mutex_with(name, renewed(3_000)).unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            let all = || keys.iter().all(|key| exists(&server, key));
            until("all its keys are there", all);
            no_key_is_immortal(&server);
            guard.release().unwrap();
            waiter.join().unwrap();
        });
        let fences = |key: &Vec<u8>| key.ends_with(b"fence");
        assert!(server.keys().iter().all(fences), "{:?}", server.keys());
    }
    within(ms(3_000) + SLACK, "one lease later nothing is left", || server.keys().is_empty());
}

#[test]
fn a_queue_of_killed_waiters_ends_by_itself() {
    let _turn = together();
    let server = server();
    foreign_hold(&server, "x", 60_000);
    let mut dead: Vec<Child> = (0..2)
        .map(|number| {
            let child = waiter_process(&server, "x");
            until_waiting(&server, "x", number + 1);
            child
        })
        .collect();
    dead.iter_mut().for_each(Child::kill9);
    // One lease after the last of them was heard of.
    no_key_is_immortal(&server);
    for key in ["{x}:queue", "{x}:beats"] {
        assert!((1..=30_000).contains(&pttl(&server, key)), "{key}: {}", pttl(&server, key));
    }
}

/// Rule 9: a fixed lease is whole before the guard is returned, and its tokens outlive it.
#[test]
fn a_fixed_lease_that_was_handed_over_is_whole() {
    let _turn = together();
    let server = server();
    for short in [renewed(8_000), fixed(8_000)] {
        let guard = open(&server).mutex_with("x", short).unwrap().lock().unwrap();
        let lock = open(&server).mutex_with("x", fixed(20_000)).unwrap();
        thread::scope(|scope| {
            let server = &server;
            let waiter = scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let told = (guard.remaining(), pttl(server, "x"), pttl(server, "{x}:fence"));
                guard.release().unwrap();
                told
            });
            until_waiting(server, "x", 1);
            guard.release().unwrap();
            let (remaining, left, fence) = waiter.join().unwrap();
            assert!(left > 18_000 && remaining > ms(18_000), "{left} ms, {remaining:?}");
            // The last token is kept for as long as the lease that it was made for.
            assert!(
                fence >= left - 1_000,
                "the token is kept for {fence} ms, the lock for {left} ms"
            );
        });
    }
}

/// Rules 7 and 9: the window written is the next owner's, and its first renewal makes it whole.
#[test]
fn a_claim_is_the_next_owners_and_its_first_renewal_makes_it_whole() {
    let _turn = together();
    let server = server();
    for (ttl, most) in [(30_000, 3_000), (2_700, 2_700)] {
        let guard = open(&server).mutex_with("x", fixed(60_000)).unwrap().lock().unwrap();
        let client = open(&server);
        // One that has just begun to listen asks once more, which makes the claim whole at once.
        listens(&server, &client);
        let lock = client.mutex_with("x", renewed(ttl)).unwrap();
        thread::scope(|scope| {
            let (server, (tell, released)) = (&server, mpsc::channel());
            let waiter = scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let left = pttl(server, "x");
                let begin: Instant = released.recv().unwrap();
                // A machine that stood still meanwhile has let the first renewal come before the look.
                let late = begin.elapsed() > ms(700);
                assert!(left > 0 && (left <= most || late), "{left} ms of {most}");
                assert!(guard.remaining() <= ms(left.unsigned_abs() + 50), "more than Redis says");
                let whole = i64::try_from(ttl).unwrap() * 3 / 4;
                within(ms(1_000) + SLACK, "it is renewed", || pttl(server, "x") > whole);
                until("the holder knows", || guard.remaining() > ms(whole.unsigned_abs() - 200));
                guard.check().unwrap();
            });
            until_waiting(server, "x", 1);
            tell.send(Instant::now()).unwrap();
            guard.release().unwrap();
            waiter.join().unwrap();
        });
    }
}

/// `max_renewals` counts renewals; that a hand-over begins with a claim is not the user's doing.
#[test]
fn a_lease_that_is_never_renewed_is_whole_after_a_hand_over_too() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex_with("x", renewed(10_000).max_renewals(0)).unwrap();
    thread::scope(|scope| {
        let server = &server;
        let waiter = scope.spawn(move || {
            let guard = lock.lock().unwrap();
            within(HEARTBEAT + SLACK, "it is whole", || guard.remaining() > ms(5_000));
            guard.check().unwrap();
        });
        until_waiting(server, "x", 1);
        guard.release().unwrap();
        waiter.join().unwrap();
    });
}

/// A grant names its lock, and the waiter checks it.
#[test]
fn any_name_can_be_granted_by_message() {
    let _turn = together();
    let server = server();
    let (holder, heir) = (open(&server), open(&server));
    listens(&server, &heir);
    let names: [&[u8]; 7] = [
        b"a b  c ",
        b"\x00\xff\r\n",
        b"{tag}x",
        b"g 1 2 3 4 5 x",
        b"{",
        b"}",
        "\u{1f512}".as_bytes(),
    ];
    for name in names {
        let guard = holder.mutex(name).unwrap().lock().unwrap();
        let lock = heir.mutex(name).unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            until("it waits", || server.keys().iter().any(|key| key.ends_with(b"queue")));
            let begin = Instant::now();
            guard.release().unwrap();
            let (served, _) = waiter.join().unwrap();
            let took = served.spent_since(begin);
            assert!(took < AT_ONCE, "{}: {took:?}", name.escape_ascii());
        });
        assert!(server.keys().iter().all(|key| key != name), "{}", name.escape_ascii());
    }
}

#[test]
fn two_names_of_one_client_do_not_mix() {
    let _turn = together();
    let server = server();
    let (holder, client) = (open(&server), open(&server));
    let x = holder.mutex("x").unwrap().lock().unwrap();
    let y = holder.mutex("y").unwrap().lock().unwrap();
    let locks = ["x", "y"].map(|name| client.mutex(name).unwrap());
    thread::scope(|scope| {
        let [for_x, for_y] = locks.each_ref().map(|lock| wait_for(scope, lock));
        until_waiting(&server, "x", 1);
        until_waiting(&server, "y", 1);
        let begin = Instant::now();
        y.release().unwrap();
        assert!(for_y.join().unwrap().0.spent_since(begin) < AT_ONCE);
        thread::sleep(ms(50));
        assert!(!for_x.is_finished() && x.is_valid());
        x.check().unwrap();
        x.release().unwrap();
        for_x.join().unwrap();
    });
}

/// Section 3: handles of one name with different options share the slot; each hold follows its own.
#[test]
fn mixed_options_on_one_name_exclude_each_other_and_are_all_served() {
    let _turn = together();
    let server = server();
    let spin = LockOptions::new().wait(Wait::spin());
    let options = [
        LockOptions::new(),
        renewed(5_000),
        fixed(4_000),
        spin,
        spin.release(Release::watch()),
        renewed(5_000).linger(ms(20)),
        renewed(5_000).local_handoffs(0),
        renewed(5_000).max_hold(ms(4_000)),
    ];
    let clients = [open(&server), open(&server), open(&server)];
    let inside = AtomicU32::new(0);
    let tokens = Shared::new(Vec::new());
    thread::scope(|scope| {
        for client in &clients {
            for options in options {
                let lock = client.mutex_with("x", options).unwrap();
                let (inside, tokens) = (&inside, &tokens);
                scope.spawn(move || {
                    for _ in 0..12 {
                        let guard = lock.try_lock_for(ms(20_000)).unwrap().expect("a turn");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{options:?}");
                        tokens.lock().unwrap().push(guard.fencing_token());
                        assert!(guard.is_valid());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().unwrap();
                    }
                });
            }
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 3 * options.len() * 12);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens must grow from hold to hold");
    until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
}

/// Design, section 5; the counter itself may be flushed.
#[test]
fn tokens_grow_over_hand_overs_local_hand_offs_and_flushall() {
    let _turn = together();
    let server = server();
    let clients = [open(&server), open(&server)];
    let tokens = Shared::new(Vec::new());
    let flushes = AtomicU32::new(0);
    thread::scope(|scope| {
        for client in &clients {
            for thread in 0..3 {
                let lock = client.mutex_with("x", renewed(10_000)).unwrap();
                let (server, tokens, flushes) = (&server, &tokens, &flushes);
                scope.spawn(move || {
                    for round in 0..60 {
                        let guard = lock.lock().unwrap();
                        tokens.lock().unwrap().push(guard.fencing_token());
                        if thread == 0 && round % 10 == 5 {
                            // While it is ours: whoever waits is not in, and begins anew.
                            ask::<()>(server, &["DEL", "{x}:fence"]);
                            flushes.fetch_add(1, Ordering::SeqCst);
                        }
                        drop(guard);
                    }
                });
            }
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!((tokens.len(), flushes.into_inner()), (360, 12));
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens must grow from hold to hold");
}

/// Rule 5: where local threads still wait, the place moves to the next of them and nothing is sent.
#[test]
fn a_thread_that_gives_up_leaves_its_place_to_the_next_of_its_process() {
    let _turn = together();
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let (client, other) = (open(&server), open(&server).mutex("x").unwrap());
    listens(&server, &client);
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let hurried = scope.spawn(|| lock.try_lock_for(ms(3_000)).unwrap().is_none());
        until_waiting(&server, "x", 1);
        let place = members(&server, "x");
        let patient = wait_for(scope, &lock);
        let other = wait_for(scope, &other);
        until_waiting(&server, "x", 2);
        assert!(hurried.join().unwrap());
        thread::sleep(ms(100));
        assert_eq!(members(&server, "x")[..1], place, "the place was given up");
        guard.release().unwrap();
        assert!(patient.join().unwrap().1 < other.join().unwrap().1);
    });
}

// The scripts themselves, with a queue that no real crowd could fill in time.

const FEED: &str = "feed0000000000000000000000000000";

/// What a client sends when it queues for a lock, and when it releases one.
struct Bare {
    connection: redis::Connection,
    /// Listens for all the waiters that are made up.
    ear: redis::Connection,
    join: Vec<Vec<u8>>,
    release: Vec<Vec<u8>>,
}

impl Bare {
    fn new(server: &Server) -> Bare {
        let client = open(server);
        listens(server, &client);
        ask::<()>(server, &["SCRIPT", "FLUSH"]);
        let sent = monitored(server, || drop(client.mutex("x").unwrap().lock().unwrap()));
        let call = |has: &dyn Fn(&Vec<Vec<u8>>) -> bool| {
            let is_script = |words: &&Vec<Vec<u8>>| words[0].eq_ignore_ascii_case(b"EVAL");
            let found = sent.iter().filter(is_script).find(|words| has(words));
            found.expect("the script as it was sent").clone()
        };
        let joins = |words: &Vec<Vec<u8>>| words.iter().any(|word| word == b"join");
        let mut ear = server.connection();
        redis::cmd("SUBSCRIBE").arg(format!("leasehold:{FEED}")).exec(&mut ear).unwrap();
        let (join, release) = (call(&joins), call(&|words| !joins(words)));
        Bare { connection: server.connection(), ear, join, release }
    }

    fn attempt(number: usize) -> String {
        format!("1q:{FEED}:{number:x}:30000:1:host:")
    }

    /// Sends it for another attempt.
    fn run(&mut self, words: Vec<Vec<u8>>, number: usize) -> i64 {
        let mut command = redis::Cmd::new();
        for word in words {
            if word.starts_with(b"1q:") {
                command.arg(Bare::attempt(number));
            } else {
                command.arg(word);
            }
        }
        match command.query(&mut self.connection).expect("an answer") {
            redis::Value::Array(parts) => redis::from_redis_value(parts[0].clone()).unwrap(),
            redis::Value::Int(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Answers 0 if somebody else has it.
    fn join(&mut self, number: usize, mode: &str) -> i64 {
        let mut words = self.join.clone();
        let mine = words.iter().position(|word| word.starts_with(b"1q:")).expect("an attempt");
        words[mine + 2] = b"0".to_vec();
        words.iter_mut().filter(|word| **word == b"join").for_each(|word| *word = mode.into());
        self.run(words, number)
    }

    fn release(&mut self, number: usize) -> i64 {
        self.run(self.release.clone(), number)
    }

    /// Puts `count` waiters into the queue, who die in so many seconds.
    fn fill(&mut self, first: usize, count: usize, dies_in: i64) {
        let source = "
            local t = redis.call('TIME')
            local death = string.format('%.0f', t[1] * 1e6 + t[2] + ARGV[3] * 1e6)
            for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do
              local attempt = string.format('1q:%s:%x:30000:1:host:', ARGV[4], i)
              redis.call('ZADD', KEYS[1], i, attempt)
              redis.call('ZADD', KEYS[2], death, attempt)
            end
            redis.call('PEXPIRE', KEYS[1], 60000)
            redis.call('PEXPIRE', KEYS[2], 60000)";
        redis::cmd("EVAL")
            .arg(source)
            .arg(2)
            .arg("{x}:queue")
            .arg("{x}:beats")
            .arg(first)
            .arg(count)
            .arg(dies_in)
            .arg(FEED)
            .exec(&mut self.connection)
            .unwrap();
    }

    /// The next grant that was told: the attempt's number.
    fn granted(&mut self) -> usize {
        loop {
            let message = match self.ear.recv_response().expect("a message") {
                redis::Value::Array(parts) | redis::Value::Push { data: parts, .. } => parts,
                other => panic!("{other:?}"),
            };
            let Some(redis::Value::BulkString(payload)) = message.last() else { continue };
            let text = String::from_utf8_lossy(payload);
            let mut fields = text.split(' ');
            if fields.next() == Some("g") {
                return usize::from_str_radix(fields.next().unwrap(), 16).unwrap();
            }
        }
    }

    /// The median times of a hand-over, a join and a beat, in µs, in a queue of this length.
    fn times(&mut self, length: usize) -> [f64; 3] {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
        self.join(0, "join");
        self.fill(1, length + 200, 3_600);
        let mut spans = [const { Vec::new() }; 3];
        for number in 0..200 {
            let mut time = |index: usize, work: &mut dyn FnMut(&mut Bare)| {
                let begin = Instant::now();
                work(self);
                spans[index].push(begin.elapsed().as_secs_f64() * 1e6);
            };
            time(0, &mut |bare| assert_eq!(bare.release(number), 1));
            let newcomer = length + 1_000 + number;
            time(1, &mut |bare| assert_eq!(bare.join(newcomer, "join"), 0));
            time(2, &mut |bare| assert_eq!(bare.join(newcomer, "beat"), 0));
            assert_eq!(self.granted(), number + 1, "served out of order");
        }
        spans.map(|spans| median(&spans))
    }
}

#[test]
fn the_time_of_an_operation_does_not_grow_with_the_queue() {
    let _turn = alone();
    let server = server();
    let mut bare = Bare::new(&server);
    bare.times(10);
    // The best of three: the machine has its own moods.
    let ratios: Vec<[f64; 3]> = (0..3)
        .map(|_| {
            let (few, many) = (bare.times(10), bare.times(10_000));
            [0, 1, 2].map(|index| many[index] / few[index])
        })
        .collect();
    for (index, what) in ["hand-over", "join", "beat"].into_iter().enumerate() {
        let best = ratios.iter().map(|ratio| ratio[index]).fold(f64::INFINITY, f64::min);
        assert!(best < 3.0, "{what}: {ratios:?}");
    }
}

#[test]
fn ten_thousand_are_served_in_the_order_in_which_they_joined() {
    let _turn = together();
    const WAITERS: usize = 10_000;
    let server = server();
    let mut bare = Bare::new(&server);
    assert_ne!(bare.join(0, "join"), 0);
    for number in 1..=WAITERS {
        assert_eq!(bare.join(number, "join"), 0);
    }
    // Who joins again has its place already.
    assert_eq!(bare.join(1, "join"), 0);
    assert_eq!(waiting(&server, "x"), WAITERS);
    // Long ago it was quick to fill it, and they would be dead by now.
    let alive = "
        local t = redis.call('TIME')
        local death = string.format('%.0f', (t[1] + 3600) * 1e6)
        for _, attempt in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
          redis.call('ZADD', KEYS[1], death, attempt)
        end";
    redis::cmd("EVAL").arg(alive).arg(1).arg("{x}:beats").exec(&mut bare.connection).unwrap();
    for number in 0..WAITERS {
        assert_eq!(bare.release(number), 1);
        assert_eq!(bare.granted(), number + 1);
    }
    assert_eq!(bare.release(WAITERS), 1);
    assert!(!exists(&server, "x") && waiting(&server, "x") == 0);
}

#[test]
fn ten_thousand_dead_are_skipped_in_one_operation() {
    let _turn = together();
    const DEAD: usize = 10_000;
    let server = server();
    let mut bare = Bare::new(&server);
    bare.join(0, "join");
    bare.fill(1, DEAD, -1);
    bare.fill(DEAD + 1, 2, 3_600);
    let begin = Instant::now();
    assert_eq!(bare.release(0), 1);
    let first = begin.spent();
    assert_eq!(bare.granted(), DEAD + 1);
    assert_eq!(owner(&server, "x"), Bare::attempt(DEAD + 1));
    let begin = Instant::now();
    assert_eq!(bare.release(DEAD + 1), 1);
    let second = begin.elapsed();
    assert_eq!(bare.granted(), DEAD + 2);
    // They are not looked at again, and not thrown away yet (rule 11).
    assert!(second < first / 10, "{first:?}, then {second:?}");
    assert_eq!(waiting(&server, "x"), DEAD);
    // One of them comes back: it has the first place of all.
    assert_eq!(bare.join(7, "beat"), 0);
    bare.join(DEAD + 3, "join");
    assert_eq!(bare.release(DEAD + 2), 1);
    assert_eq!(bare.granted(), 7);
    no_key_is_immortal(&server);
}

/// What clients sent to the server meanwhile.
fn monitored(server: &Server, work: impl FnOnce()) -> Vec<Vec<Vec<u8>>> {
    let mut monitor = server.connection();
    redis::cmd("MONITOR").exec(&mut monitor).unwrap();
    work();
    ask::<String>(server, &["ECHO", "the end"]);
    let mut sent = Vec::new();
    loop {
        let line = match monitor.recv_response().expect("a line") {
            redis::Value::SimpleString(line) => line,
            other => panic!("{other:?}"),
        };
        let (from, words) = line.split_once("] ").expect("who sent it");
        if from.ends_with("lua") {
            continue;
        }
        let words = words_of(words);
        if words.last().is_some_and(|word| word == b"the end") {
            return sent;
        }
        sent.push(words);
    }
}

/// The words of a line of MONITOR, which puts them in quotes.
fn words_of(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.find(|&byte| byte == b'"').is_some() {
        let mut word = Vec::new();
        loop {
            match bytes.next().expect("a word ends") {
                b'"' => break,
                b'\\' => word.push(match bytes.next().expect("a letter") {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'x' => {
                        let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    letter => letter,
                }),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}

/// From now on every write that may be refused is.
fn fill_memory(server: &Server) {
    ask::<()>(server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    ask::<()>(server, &["CONFIG", "SET", "maxmemory", "1"]);
    let refused = redis::cmd("SET").arg("y").arg("1").exec(&mut server.connection()).unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
}

/// A process in the queue is taken for dead, as if it had been silent for long.
fn dies(server: &Server, name: &str, pid: u32) {
    let of_process = format!(":{pid}:");
    let attempts = members(server, name);
    let attempt = attempts.iter().find(|attempt| attempt.contains(&of_process)).expect("it waits");
    let (seconds, _): (u64, u64) = ask(server, &["TIME"]);
    let death = ((seconds - 1) * 1_000_000).to_string();
    ask::<()>(server, &["ZADD", &format!("{{{name}}}:beats"), &death, attempt]);
}

/// The place of a process in the queue.
fn place(server: &Server, name: &str, pid: u32) -> Option<f64> {
    let all: Vec<(String, f64)> =
        ask(server, &["ZRANGE", &format!("{{{name}}}:queue"), "0", "-1", "WITHSCORES"]);
    let of_process = format!(":{pid}:");
    all.into_iter().find(|(attempt, _)| attempt.contains(&of_process)).map(|(_, place)| place)
}

/// A process that waits for a lock and tells when it has it.
fn waiter_process(server: &Server, name: &str) -> Child {
    let builder = Child::role("waiter").test("roles").env("URL", server.url()).env("NAME", name);
    builder.start().unwrap()
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    let Some(role) = role() else { return };
    let (url, name) = (std::env::var("URL").unwrap(), std::env::var("NAME").unwrap());
    let client = LockClient::open(url).unwrap();
    match role.as_str() {
        "waiter" => {
            let guard = client.mutex(name).unwrap().lock().unwrap();
            tell(&format!("has {}", guard.fencing_token().get()));
            hear();
            guard.release().unwrap();
        }
        "holder" => {
            let guard = client.mutex_with(name, renewed(5_000)).unwrap().lock().unwrap();
            tell("has");
            hear();
            drop(guard);
        }
        other => panic!("unknown role {other}"),
    }
}

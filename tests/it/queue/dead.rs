//! Waiters that were killed, stopped or forgotten, and servers without memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use leasehold::LockClient;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Child, Monitor, Server};

use crate::common::queue::{listens, wait_for, waiting};
use crate::common::{
    SLACK, SOON, ask, exists, ms, no_key_is_immortal, open, patient, pttl, renewed, server, until,
    warm, within,
};
use crate::queue::{
    AT_ONCE, CLAIM, HEARTBEAT, foreign_hold, members, owner, until_waiting, waiter_process,
};

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

/// Meaning, in the catalogue of faults: dead waiters are skipped at once, not one after another.
#[test]
fn three_killed_waiters_are_skipped_together() {
    for monitored in [false, true] {
        let server = server();
        let guard = open(&server).mutex("x").unwrap().lock().unwrap();
        // Who listens to everything by a pattern does not make the dead look alive.
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
            // Else its message is heard by a connection that has yet to be closed.
            let heard = || ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]);
            until("the server sees it", || heard().len() == 2);
            let begin = Instant::now();
            guard.release().unwrap();
            let (next, last) = (next.join().unwrap(), last.join().unwrap());
            assert!(next.0 < last.0 && next.1 < last.1, "each once, in order");
            next.0.spent_since(begin)
        });
        assert!(took < AT_ONCE, "monitored: {monitored}, {took:?}");
        until("it is free", || !exists(&server, "x"));
        no_key_is_immortal(&server);
    }
}

/// Whoever looks for an heir of a free lock
/// and finds none but the dead must own it in Redis too, and not only believe so.
#[test]
fn newcomer_behind_dead_waiters_owns_the_lock_in_redis() {
    let server = server();
    for (round, newcomer) in ["try", "join"].into_iter().enumerate() {
        let name = format!("x{round}");
        foreign_hold(&server, &name, 60_000);
        let mut dead = waiter_process(&server, &name);
        until_waiting(&server, &name, 1);
        dead.kill9();
        // Its last sign of life is young, and the lock comes free without a release.
        ask::<()>(&server, &["DEL", &name]);
        let client = patient(LockClient::builder(server.url())).label("newcomer").build().unwrap();
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
fn waiter_behind_a_killed_one_owns_the_lock_in_redis() {
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
fn resumed_waiter_has_its_place_again() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let mut stopped = waiter_process(&server, "x");
    let pid = stopped.pid();
    until_waiting(&server, "x", 1);
    stopped.stop();
    let second = open(&server).mutex("x").unwrap();
    // Where places are equal, Redis goes by the bytes: this one would come first.
    let before = members(&server, "x")[0].clone();
    // The more may be tried, the less often none is.
    let third = (0..4_000).map(|_| open(&server)).find(|client| {
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
fn forgotten_waiter_queues_up_anew() {
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
fn first_waiter_gets_the_lock_of_a_killed_holder() {
    let server = server();
    let mut holder = Child::role("holder")
        .test("queue::roles")
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
fn queue_of_killed_waiters_expires() {
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

/// Keys of a name: one cluster slot, and none of them for ever.
#[test]
fn all_keys_share_the_names_slot_and_expire() {
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

/// From now on every write that may be refused is.
fn fill_memory(server: &Server) {
    ask::<()>(server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    ask::<()>(server, &["CONFIG", "SET", "maxmemory", "1"]);
    let refused = redis::cmd("SET").arg("y").arg("1").exec(&mut server.connection()).unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
}

/// Rule 16: the release hands over also when memory is full.
#[test]
fn the_lock_is_handed_over_when_memory_is_full() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let client = patient(LockClient::builder(server.url())).label("heir").build().unwrap();
    let lock = client.mutex_with("x", renewed(300_000)).unwrap();
    let looked = AtomicBool::new(false);
    thread::scope(|scope| {
        let heir = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let served = (Instant::now(), owner(&server, "x"));
            // The claim becomes whole: what renews does not need memory.
            until("the claim is renewed", || pttl(&server, "x") > 150_000);
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
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until_waiting(&server, "x", 1);
        dies(&server, "x", std::process::id());
        fill_memory(&server);
        guard.release().unwrap();
        let refused = server.error_count("OOM");
        let is_refused = || server.error_count("OOM") > refused;
        until("a beat is refused", || waiter.is_finished() || is_refused());
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
        let outcome = waiter.join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    });
}

/// Rule 16: where a hand-over fails, the lock is deleted, and an attempt that fails takes nothing.
#[test]
fn queue_key_of_another_type_does_not_block_the_lock() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["SET", "{x}:queue", "not ours", "PX", "60000"]);
    let _ = guard.release();
    within(SLACK, "it is released", || !exists(&server, "x"));
    // Nobody can wait in such a queue, so the next that finds the lock free may have it.
    drop(lock.try_lock().unwrap().expect("free"));
    within(SLACK, "it is released again", || !exists(&server, "x"));
    let other = open(&server).mutex("x").unwrap();
    let _guard = other.lock().unwrap();
    let error = lock.try_lock_for(ms(200)).expect_err("there is no queue to wait in");
    assert!(error.is_wrong_type(), "{error:?}");
}

/// The same for the beats of those who wait.
#[test]
fn beats_key_of_another_type_does_not_block_the_lock() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let waiter = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let outcome = scope.spawn(|| waiter.try_lock_for(ms(10_000)).map(|guard| guard.is_some()));
        until_waiting(&server, "x", 1);
        ask::<()>(&server, &["SET", "{x}:beats", "not ours", "PX", "60000"]);
        guard.release().unwrap();
        let error = outcome.join().unwrap().expect_err("it cannot wait there");
        assert!(error.is_wrong_type(), "{error:?}");
    });
    assert!(!exists(&server, "x"), "{} has it", owner(&server, "x"));
    assert_eq!(ask::<String>(&server, &["GET", "{x}:beats"]), "not ours");
    let end: i64 = ask(&server, &["PTTL", "{x}:beats"]);
    assert!(end > 10_000, "somebody else's key ends in {end} ms");
}

/// Rule 8: the last request of a wait comes when the time is over, and promises nothing beyond it.
#[test]
fn last_request_of_a_wait_promises_no_further_heartbeat() {
    let server = server();
    warm(&server);
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex("x").unwrap();
    let monitor = Monitor::start(&server);
    assert!(lock.try_lock_for(ms(300)).unwrap().is_none());
    let promised = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once("\"beat\" \"").or(line.split_once("\"join\" \""))?;
        rest.split('"').next()?.parse().ok()
    };
    // The monitor may be a little behind.
    ask::<String>(&server, &["ECHO", "the end"]);
    until("the server reports all", || !monitor.lines("the end").is_empty());
    let sent: Vec<u64> =
        monitor.lines("EVALSHA").iter().filter_map(|line| promised(&line.text)).collect();
    assert!(sent.len() > 1, "{sent:?}");
    assert!(sent.iter().all(|micros| *micros <= 400_000), "{sent:?}");
}

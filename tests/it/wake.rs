//! The messages that wake waiters, when they are lost, doubled, late or nonsense, and when they are
//! not allowed at all. Each test proves that its fault fired.

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::{wait_for, waiting};
use crate::common::{
    HASTE, SLACK, SOON, ask, behind_proxy, exists, fixed, ms, open, open_at, patient, renewed,
    server, until, warm, within,
};
use leasehold::{LockClient, LockOptions, Mutex, Wait};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

/// Rule 8.
const HEARTBEAT: Duration = ms(1_000);
const COMMAND_TIMEOUT: Duration = ms(1_000);
/// Rule 13: how long after the lock is free a waiter may wait whose message was lost.
const WORST: Duration = ms(1_000 + 3_000 + 1_000);
/// What came with a message, and was not found by the next heartbeat.
const AT_ONCE: Duration = ms(700);
/// The beginning of a message that was published, and of the grant in one.
const MESSAGE: &str = "message\r\n";
const GRANT: &str = "\r\ng ";

/// Holds a lock until `waiter` waits, and answers how long it took it after the release.
fn hand_over_to(server: &Server, waiter: &Mutex) -> Duration {
    let guard = open(server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let served = wait_for(scope, waiter);
        until("it waits", || waiting(server, "x") == 1);
        let begin = Instant::now();
        guard.release().unwrap();
        let (at, token) = served.join().unwrap();
        assert!(token > 0);
        at.spent_since(begin)
    })
}

/// Rule 13. Regression, redisson#5761: a message was missed, and the waiter slept a full lease.
#[test]
fn lost_messages_cost_a_heartbeat_or_a_claim_window() {
    let (server, proxy) = behind_proxy();
    let fault = proxy.add(Fault::reply(MESSAGE, Action::Drop).sticky());
    let locks = [(); 3].map(|()| open_at(proxy.url()).mutex("x").unwrap());
    for lease in [fixed(60_000), renewed(60_000)] {
        let guard = open(&server).mutex_with("x", lease).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let waiters = locks.each_ref().map(|lock| {
                let before = waiting(&server, "x");
                let waiter = wait_for(scope, lock);
                until("it waits", || waiting(&server, "x") == before + 1);
                waiter
            });
            let mut free = Instant::now();
            guard.release().unwrap();
            let mut last = 0;
            for waiter in waiters {
                let (at, token) = waiter.join().unwrap();
                assert!(token > last, "out of order");
                last = token;
                let took = at.spent_since(free);
                assert!(took < HEARTBEAT + COMMAND_TIMEOUT, "{took:?}, and {WORST:?} at worst");
                free = at;
            }
        });
    }
    // The last of them may be asked for before its message reaches the proxy.
    until("all messages were dropped", || fault.fired() >= 6);
    until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
}

#[test]
fn duplicate_late_and_reordered_messages_are_harmless() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    for (pattern, action, bound) in [
        (GRANT, Action::Twice, AT_ONCE),
        (MESSAGE, Action::Twice, AT_ONCE),
        (GRANT, Action::Delay(ms(200)), ms(200) + AT_ONCE),
        (GRANT, Action::Delay(ms(1_300)), HEARTBEAT + COMMAND_TIMEOUT),
        (MESSAGE, Action::Swap, HEARTBEAT + COMMAND_TIMEOUT),
    ] {
        let fault = proxy.add(Fault::reply(pattern, action.clone()).sticky());
        let took = hand_over_to(&server, &lock);
        fault.remove();
        assert!(fault.fired() > 0 && took < bound, "{action:?} of {pattern:?}: {took:?}");
        until("it is given back", || !exists(&server, "x"));
    }
}

/// What cannot be read ends the connection or is ignored, and another one is made.
#[test]
fn nonsense_on_the_wake_up_connection_is_harmless() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    for garbage in [
        &b"?!\r\n"[..],
        b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n",
        b">3\r\n:1\r\n:2\r\n:3\r\n",
        b"+OK\r\n",
        b"-ERR no\r\n",
    ] {
        let fault = proxy.add(Fault::reply(GRANT, Action::Garbage(garbage.to_vec())));
        let took = hand_over_to(&server, &lock);
        let shown = garbage.escape_ascii().to_string();
        assert!(fault.fired() == 1 && took < HEARTBEAT + COMMAND_TIMEOUT, "{shown}: {took:?}");
        until("it is given back", || !exists(&server, "x"));
    }
    within(SOON, "messages are heard again", || hand_over_to(&server, &lock) < AT_ONCE);
}

/// Anybody may publish anything on the client's channel.
#[test]
fn nonsense_in_a_message_is_ignored() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until("it waits", || waiting(&server, "x") == 1);
        let attempt: Vec<String> = ask(&server, &["ZRANGE", "{x}:queue", "0", "0"]);
        let mut parts = attempt[0].split(':');
        let (_, client, number) = (parts.next(), parts.next().unwrap(), parts.next().unwrap());
        let long = "x".repeat(100_000);
        let past = guard.fencing_token().get();
        let now = past + 3_600_000_000;
        for payload in [
            String::new(),
            "g".to_owned(),
            "g ".to_owned(),
            format!("g {number}"),
            format!("g {number} 1 2 3"),
            format!("g {number} x x x x x"),
            format!("g {number} 99999999999999999999999 {now} 3000 0 x"),
            // Another name, another attempt, and a server's time that cannot be.
            format!("g {number} {past} {past} 3000 0 y"),
            format!("g ffffffff {past} {past} 3000 0 x"),
            format!("g {number} {now} {now} 3000 0 x"),
            format!("g {number} {now} {} 3000 0 x", u64::MAX),
            format!("g {number} {now} 0 3000 0 x"),
            format!("g {number} {now} 18446744073709551615 18446744073709551615 0 x"),
            format!("w {number} 5 x"),
            format!("w {number} 99999999999 x"),
            format!("p {number} {now} x"),
            format!("p {number} x"),
            format!("r {number} x"),
            "r zz x".to_owned(),
            "z 1 2 3".to_owned(),
            long,
        ] {
            let heard: u64 = ask(&server, &["PUBLISH", &format!("leasehold:{client}"), &payload]);
            assert_eq!(heard, 1, "{payload:.60}");
            thread::sleep(ms(5));
            assert!(!waiter.is_finished(), "it believed {payload:.60}");
        }
        guard.check().unwrap();
        let begin = Instant::now();
        guard.release().unwrap();
        assert!(waiter.join().unwrap().0.spent_since(begin) < AT_ONCE);
    });
}

/// The connection is cut while somebody waits; it is made again, and all waiters ask again.
#[test]
fn cut_wake_up_connection_returns_and_wakes_all() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    for how in ["kill", "cut", "kill, released meanwhile"] {
        let guard = open(&server).mutex("x").unwrap().lock().unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            until("it waits", || waiting(&server, "x") == 1);
            let accepted = proxy.accepted();
            if how == "cut" {
                proxy.cut();
            } else {
                let killed: u64 = ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
                assert_eq!(killed, 1);
            }
            if how != "kill, released meanwhile" {
                until("it listens again", || {
                    let channels: Vec<String> =
                        ask(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]);
                    proxy.accepted() > accepted && channels.len() == 1
                });
            }
            let begin = Instant::now();
            guard.release().unwrap();
            let took = waiter.join().unwrap().0.spent_since(begin);
            // Woken by the message, or by the connection that came back.
            assert!(took < AT_ONCE, "{how}: {took:?}");
        });
    }
}

/// Rule 12: nobody joins who could not be told. What is told in an outage of the wake-ups alone?
#[test]
fn a_wait_goes_on_while_the_wake_up_connection_is_down() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until("it waits", || waiting(&server, "x") == 1);
        // Its next wake-up connections all fail; the others work.
        let fault = proxy.add(Fault::request("SUBSCRIBE", Action::Cut).sticky());
        ask::<u64>(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert!(fault.wait_fired(SOON));
        let place: Vec<String> = ask(&server, &["ZRANGE", "{x}:queue", "0", "0"]);
        server.reset_stats();
        until("it beats", || server.command_calls(&["evalsha"]) >= 2);
        let still: Vec<String> = ask(&server, &["ZRANGE", "{x}:queue", "0", "0"]);
        assert_eq!(place, still, "it lost its place");
        let begin = Instant::now();
        guard.release().unwrap();
        let took = waiter.join().unwrap().0.spent_since(begin);
        assert!(took < HEARTBEAT + COMMAND_TIMEOUT, "{took:?}");
        fault.remove();
    });
    within(SOON, "it is heard again", || hand_over_to(&server, &lock) < AT_ONCE);
}

/// The connection is there and silent. Waiters are served all the same, and it is replaced.
#[test]
fn a_half_open_wake_up_connection_is_noticed_and_replaced() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    assert!(hand_over_to(&server, &lock) < AT_ONCE);
    // Connections of another use may come at any time.
    let listening = || {
        let list: String = ask(&server, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines()
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = listening();
    let fault = proxy.add(Fault::reply(MESSAGE, Action::Hold));
    let begin = Instant::now();
    let took = hand_over_to(&server, &lock);
    assert!(fault.fired() == 1 && took < HEARTBEAT + COMMAND_TIMEOUT, "{took:?}");
    // Ten seconds of silence, three for a sign of life.
    until("another one is made", || listening().iter().any(|it| !before.contains(it)));
    assert!(begin.elapsed() > ms(5_000), "what held the messages did not hold them");
    within(SOON, "it is heard again", || hand_over_to(&server, &lock) < AT_ONCE);
    fault.remove();
}

/// Rules 5 and 6: the lock is granted to an attempt that its process has given up meanwhile.
#[test]
fn grant_to_an_abandoned_attempt_is_released() {
    let (server, proxy) = behind_proxy();
    let builder = LockClient::builder(proxy.url()).command_timeout(HASTE);
    let client = builder.max_wait(HASTE).connect_timeout(HASTE).build().unwrap();
    let lock = client.mutex("x").unwrap();
    assert!(hand_over_to(&server, &lock) < AT_ONCE);
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let other = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let gives_up = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || waiting(&server, "x") == 1);
        let next = wait_for(scope, &other);
        until("the other waits", || waiting(&server, "x") == 2);
        // Its leaving does not arrive, nor that the worker leaves for it.
        let deaf = proxy.add(Fault::request("EVALSHA", Action::Drop).sticky());
        let grant = proxy.add(Fault::reply(GRANT, Action::Delay(ms(100))));
        assert_eq!(lock.cancel_waits(), 1);
        assert!(gives_up.join().unwrap().unwrap_err().is_cancelled());
        // So it is taken for alive, and has the lock.
        let begin = Instant::now();
        guard.release().unwrap();
        assert!(grant.wait_fired(SOON) && deaf.fired() > 0);
        thread::sleep(ms(200));
        assert!(!next.is_finished() && exists(&server, "x"));
        deaf.remove();
        let took = next.join().unwrap().0.spent_since(begin);
        assert!(took < WORST, "{took:?}");
    });
    // The stale message does not make it an owner.
    until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
    assert!(hand_over_to(&server, &lock) < AT_ONCE);
}

/// The answer to a join overtakes nothing: a grant may come first (rule 10).
#[test]
fn grant_received_before_its_join_reply_is_kept() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    assert!(hand_over_to(&server, &lock) < AT_ONCE);
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let other = open(&server).mutex("x").unwrap();
    thread::scope(|scope| {
        let first = wait_for(scope, &other);
        until("one waits", || waiting(&server, "x") == 1);
        // "0", how long the holder's lease lasts, ...: the reply to a client that joins.
        let held = proxy.add(Fault::reply("*7\r\n:0\r\n", Action::Delay(ms(400))));
        let second = wait_for(scope, &lock);
        until("both wait", || waiting(&server, "x") == 2);
        let begin = Instant::now();
        guard.release().unwrap();
        first.join().unwrap();
        let took = second.join().unwrap().0.spent_since(begin);
        assert!(held.fired() == 1 && took < ms(400) + AT_ONCE - ms(200), "{took:?}");
    });
}

/// Checkers C1, C2, C4 and C5 over whatever the network does to requests, answers and messages.
#[test]
fn storm_of_faults_keeps_exclusion_and_leaves_nothing() {
    let server = server();
    warm(&server);
    let proxies = [(); 3].map(|()| Proxy::start(&server).unwrap());
    let clients = proxies.each_ref().map(|proxy| {
        let builder = LockClient::builder(proxy.url()).command_timeout(ms(150));
        builder.connect_timeout(ms(150)).max_wait(ms(150)).give_up_after(ms(500)).build().unwrap()
    });
    let (calm, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let holds = Shared::new(Vec::new());
    let fired = AtomicU64::new(0);
    thread::scope(|scope| {
        for (number, proxy) in proxies.iter().enumerate() {
            let (fired, calm) = (&fired, &calm);
            scope.spawn(move || {
                let mut dice = fastrand::Rng::with_seed(number as u64);
                while !calm.load(Ordering::SeqCst) {
                    let delay = Action::Delay(ms(dice.u64(10..300)));
                    // What TCP carries comes in order and whole, or the connection ends. Messages
                    // are another matter: the server drops what a slow listener does not take.
                    let fault = match dice.u32(0..3) {
                        0 => {
                            let all = [Action::Cut, Action::CutHalf, Action::LoseReply, delay];
                            let action = dice.choice(all).unwrap();
                            Fault::request(dice.choice(["1q:", "EVALSHA"]).unwrap(), action)
                        }
                        1 => {
                            let action =
                                dice.choice([Action::Cut, Action::HalfReply, delay]).unwrap();
                            Fault::reply(dice.choice(["*5\r\n", ":1\r\n", ":"]).unwrap(), action)
                        }
                        _ => {
                            let all = [Action::Drop, Action::Twice, Action::Swap, delay];
                            let action = dice.choice(all).unwrap();
                            Fault::reply(dice.choice([MESSAGE, GRANT]).unwrap(), action)
                        }
                    };
                    let fault = proxy.add(fault);
                    fault.wait_fired(ms(60));
                    thread::sleep(ms(dice.u64(0..30)));
                    fired.fetch_add(fault.fired(), Ordering::SeqCst);
                    fault.remove();
                }
            });
        }
        for number in 0..9 {
            let options = match number / 3 {
                0 => renewed(1_000),
                1 => renewed(1_000).linger(ms(20)),
                _ => fixed(1_000),
            };
            let lock = clients[number % 3].mutex_with("x", options).unwrap();
            let (holds, over) = (&holds, &over);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    match lock.try_lock_for(ms(1_500)) {
                        Ok(Some(guard)) => {
                            let begin = Instant::now();
                            let valid = Instant::now() + guard.remaining();
                            thread::sleep(ms(1));
                            let until = Instant::now().min(valid);
                            if guard.is_valid() {
                                holds.lock().unwrap().push((begin, until, guard.fencing_token()));
                            }
                            // It may have been lost, or its answer.
                            let _ = guard.release();
                        }
                        Ok(None) => {}
                        Err(error) => {
                            let outage = error.is_unreachable() || error.is_unknown_outcome();
                            assert!(outage || error.is_timeout(), "{error:?}");
                        }
                    }
                }
            });
        }
        let begin = Instant::now();
        let much = || holds.lock().unwrap().len() > 20 && fired.load(Ordering::SeqCst) > 20;
        within(SOON * 3, "much went wrong", || begin.elapsed() >= ms(3_000) && much());
        calm.store(true, Ordering::SeqCst);
        thread::sleep(ms(500));
        over.store(true, Ordering::SeqCst);
    });
    let mut holds = holds.into_inner().unwrap();
    holds.sort_unstable();
    let fired = fired.into_inner();
    assert!(holds.len() > 20 && fired > 20, "{} holds, {fired} faults", holds.len());
    for pair in holds.windows(2) {
        let late = pair[0].1.saturating_duration_since(pair[1].0);
        assert!(late.is_zero(), "two held it for {late:?}: {pair:?}");
        assert!(pair[0].2 < pair[1].2, "tokens must grow: {pair:?}");
    }
    until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
}

// What a user of the server may do; `acl.rs` tests the rules of the guide.

const COMMANDS: [&str; 17] = [
    "+eval", "+evalsha", "+time", "+get", "+set", "+del", "+exists", "+pttl", "+pexpire", "+zadd",
    "+zrem", "+zrange", "+zscore", "+zcard", "+zcount", "~shop:*", "~{shop:*",
];
const CHANNELS: [&str; 4] = ["&leasehold:*", "+publish", "+subscribe", "+unsubscribe"];

/// A client of a user with these rules and no others.
fn allowed(server: &Server, user: &str, rules: &[&str]) -> LockClient {
    let mut words = vec!["ACL", "SETUSER", user, "reset", "on", ">secret"];
    words.extend(COMMANDS);
    words.extend(rules);
    ask::<()>(server, &words);
    let url = format!("{}?user={user}&pass=secret", server.unix_url());
    patient(LockClient::builder(url)).name_prefix("shop:").connect_now(true).build().unwrap()
}

#[test]
fn denied_pubsub_fails_a_wait_but_not_spinning() {
    let server = server();
    for (user, rules) in [
        ("nothing", &[][..]),
        ("nochannel", &CHANNELS[1..]),
        ("nosubscribe", &["&leasehold:*", "+publish"]),
    ] {
        let client = allowed(&server, user, rules);
        let lock = client.mutex("x").unwrap();
        // Whoever need not wait needs no channel.
        drop(lock.lock().unwrap());
        let mine = lock.lock().unwrap();
        let other = allowed(&server, user, rules);
        let begin = Instant::now();
        let error = other.mutex("x").unwrap().lock().unwrap_err();
        let text = error.to_string();
        assert!(error.is_denied() && text.contains("Wait::spin()"), "{user}: {error:?}");
        assert!(text.contains("shop:x") && begin.spent() < ms(1_000) + SLACK, "{user}: {text}");
        assert!(other.mutex("x").unwrap().try_lock_for(SOON).unwrap_err().is_denied());
        assert!(other.mutex("x").unwrap().try_lock().unwrap().is_none());
        // Spinning works, against one that would hand over if it could.
        let spin = other.mutex_with("x", LockOptions::new().wait(Wait::spin())).unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &spin);
            server.reset_stats();
            until("it asks again and again", || server.command_calls(&["evalsha"]) > 3);
            assert!(!waiter.is_finished());
            mine.release().unwrap();
            waiter.join().unwrap();
        });
        until("nothing is left", || !exists(&server, "shop:x"));
        assert!(waiting(&server, "shop:x") == 0, "{user}: it queued, and could not be told");
    }
}

/// That one channel is forbidden is no reason to go deaf for all the others.
#[test]
fn forbidden_channel_of_one_kind_spares_the_other() {
    let server = server();
    let mut rules = CHANNELS.to_vec();
    rules.extend(["+hexists", "+hset", "+hlen", "+hkeys", "+hgetall", "~redisson_lock__channel:*"]);
    let client = allowed(&server, "locks", &rules);
    let other = allowed(&server, "locks", &rules);
    let lock = client.mutex("x").unwrap();
    let reentrant = client.reentrant("y").unwrap();
    let mine = other.mutex("x").unwrap().lock().unwrap();
    let _yours = other.reentrant("y").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || waiting(&server, "shop:x") == 1);
        let error = reentrant.try_lock_for(ms(3_000)).unwrap_err();
        assert!(error.is_denied() && error.to_string().contains("Wait::spin()"), "{error:?}");
        // The mutex is waited for as before, and waits that begin now work too.
        thread::sleep(ms(700));
        let third = allowed(&server, "locks", &CHANNELS).mutex("z").unwrap().lock().unwrap();
        let late = client.mutex("z").unwrap().try_lock_for(ms(300));
        let none = late.as_ref().map_or_else(|error| error.is_unknown_outcome(), Option::is_none);
        assert!(none, "{late:?}");
        drop(third);
        let begin = Instant::now();
        mine.release().unwrap();
        waiter.join().unwrap().unwrap();
        assert!(begin.spent() < AT_ONCE, "it heard nothing for {:?}", begin.spent());
    });
}

/// The line becomes slow. Reads time out before the refusal comes.
#[test]
fn slow_refusal_of_a_channel_is_reported() {
    let (server, proxy) = behind_proxy();
    let mut rules = CHANNELS.to_vec();
    rules.extend(["+hexists", "+hset", "+hlen", "+hkeys", "+hgetall", "~redisson_lock__channel:*"]);
    let other = allowed(&server, "locks", &rules);
    let _guards =
        (other.mutex("x").unwrap().lock().unwrap(), other.reentrant("y").unwrap().lock().unwrap());
    let url = proxy.url().replace("redis://", "redis://locks:secret@");
    let builder = patient(LockClient::builder(url)).name_prefix("shop:");
    let client = builder.build().unwrap();
    let lock = client.mutex("x").unwrap();
    until("it listens", || {
        match lock.try_lock_for(ms(30)) {
            Ok(guard) => assert!(guard.is_none()),
            // On a slow machine the wait may end before a reply.
            Err(error) => assert!(error.is_timeout() || error.is_unknown_outcome(), "{error:?}"),
        }
        !ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
    });
    proxy.delay(ms(700));
    let error = client.reentrant("y").unwrap().try_lock_for(SOON).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("Wait::spin()"), "{error:?}");
}

/// A client that is not allowed to listen does not knock for ever.
#[test]
fn refused_listener_retries_only_for_a_caller() {
    let server = server();
    let client = allowed(&server, "nothing", &[]);
    // An announcement would open one more connection.
    let other = patient(LockClient::builder(server.url())).announce(false).build().unwrap();
    let _guard = other.mutex("shop:x").unwrap().lock().unwrap();
    assert!(client.mutex("x").unwrap().lock().unwrap_err().is_denied());
    let connections = || -> u64 {
        let info: String = ask(&server, &["INFO", "stats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = connections();
    thread::sleep(ms(1_200));
    // The last look is one of them.
    let made = connections() - before;
    assert!(made <= 1, "{made} connections in a second, and nobody waits");
}

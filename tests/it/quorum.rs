//! Locks over several servers: what a majority grants, and what it takes to make it grant twice.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::log::warnings;
use crate::common::process::in_own_process;
use crate::common::several::{TIMEOUT, direct, open, proxies, servers, through};
use crate::common::{
    PATIENCE, SLACK, SOON, ask, exists, fixed, ms, names, pttl, renewed, until, within,
};
use leasehold::{
    DistributedLock, Lease, LockOptions, LossCause, QuorumClient, QuorumClientBuilder, Release,
    Wait,
};
use leasehold_support::fault::{Direction, Operation};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Injection, Proxy, Server, WallClock};

fn on(servers: &[Server], key: &str) -> usize {
    servers.iter().filter(|server| exists(server, key)).count()
}

#[test]
fn lock_is_taken_and_released_on_all_servers() {
    let servers = servers(5);
    let (client, other) = (open(direct(&servers)), open(direct(&servers)));
    let lock = client.mutex("orders:42").unwrap();
    // A server that was late to be connected to is not waited for the next time.
    until("all are connected", || lock.with(|_| on(&servers, "orders:42")).unwrap() == 5);
    let guard = lock.lock().unwrap();
    assert_eq!(on(&servers, "orders:42"), 5);
    guard.check().unwrap();
    let inner = lock.try_lock().unwrap().expect("reentrant");
    assert_eq!(lock.hold_count(), 2);
    inner.release().unwrap();
    let elsewhere = other.mutex("orders:42").unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    assert!(elsewhere.is_locked().unwrap());
    assert_eq!(elsewhere.holder().unwrap().unwrap().pid(), Some(std::process::id()));
    guard.extend(ms(25_000)).unwrap();
    guard.release().unwrap();
    assert_eq!(on(&servers, "orders:42"), 0);
    assert!(!elsewhere.is_locked().unwrap());
    let guard = elsewhere.try_lock().unwrap().expect("free");
    assert!(lock.force_release().unwrap());
    assert!(!lock.force_release().unwrap());
    assert!(guard.release().unwrap_err().is_lost());
}

#[test]
fn each_server_is_asked_once_to_lock_and_once_to_unlock() {
    let servers = servers(5);
    // So that none is left out for being late.
    let client = open(direct(&servers).node_timeout(SOON));
    let lock = client.mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    servers.iter().for_each(Server::reset_stats);
    for _ in 0..10 {
        lock.lock().unwrap().release().unwrap();
    }
    for server in &servers {
        // A look is an `info`, which the next look counts.
        let sent = || server.commands().client_commands(&["ping", "auth"]);
        until("all have come", || sent() >= 20);
        assert_eq!(sent(), 20);
    }
    // And twice where it has forgotten the scripts.
    for server in &servers {
        ask::<()>(server, &["SCRIPT", "FLUSH"]);
    }
    lock.lock().unwrap().release().unwrap();
}

#[test]
fn grant_slower_than_its_lease_is_refused_and_released() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let client = open(through(&proxies).node_timeout(PATIENCE));
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    proxies.iter().for_each(|proxy| proxy.delay(ms(40)));
    let error = client.mutex_with("x", fixed(60)).unwrap().try_lock().unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("longer lease"), "{error:?}");
    until("nothing is left", || on(&servers, "x") == 0);
}

/// It comes to it when the lock has long been given back.
#[test]
fn request_delayed_in_a_paused_server_does_nothing() {
    let servers = servers(5);
    let client = open(direct(&servers).node_timeout(TIMEOUT));
    let lock = client.mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    servers[4].pause();
    let guard = lock.try_lock().unwrap().expect("four of five");
    let token = guard.fencing_token();
    guard.release().unwrap();
    thread::sleep(TIMEOUT);
    servers[4].resume();
    // Answered after what was sent before.
    let fence: Option<u64> = ask(&servers[4], &["GET", "{x}:fence"]);
    assert!(fence.is_none_or(|fence| fence < token.get()), "{fence:?} {token}");
    assert_eq!(on(&servers, "x"), 0);
}

/// Each has its request before any of them replies.
#[test]
fn lock_and_unlock_take_one_round_as_on_one_server() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let client = open(through(&proxies).node_timeout(SOON * 2));
    let lock = client.mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    let rounds = [Operation::Acquire, Operation::Release].map(|operation| {
        let hold = |proxy: &Proxy| proxy.add(Fault::request("x", Action::Hold).at(operation));
        proxies.iter().map(hold).collect::<Vec<_>>()
    });
    thread::scope(|scope| {
        let pair = scope.spawn(|| lock.lock().unwrap().release().unwrap());
        for (round, held) in rounds.iter().enumerate() {
            assert!(held.iter().all(|it| it.wait_fired(SOON)), "round {round}");
            held.iter().for_each(Injection::release);
        }
        pair.join().unwrap();
    });
}

#[test]
fn two_dead_or_silent_of_five_cost_one_timeout_at_most() {
    const TIMEOUT: Duration = ms(1_500);
    for dead in [true, false] {
        let servers = servers(5);
        let proxies = proxies(&servers);
        let client = open(through(&proxies).node_timeout(TIMEOUT));
        let lock = client.mutex("x").unwrap();
        lock.lock().unwrap().release().unwrap();
        for number in [0, 3] {
            if dead {
                proxies[number].refuse();
                proxies[number].cut();
            } else {
                proxies[number].black_hole();
            }
        }
        let begin = Instant::now();
        let guard = lock.try_lock().unwrap().expect("three of five");
        guard.release().unwrap();
        let first = begin.spent();
        writeln!(std::io::stderr(), "two of five gone, dead: {dead}: {first:?}").unwrap();
        // One after the other, or in both calls, they would cost two.
        assert!(first < TIMEOUT * 3 / 2, "dead: {dead}: {first:?}");
        // A server that was silent is not waited for again.
        let begin = Instant::now();
        for _ in 0..10 {
            lock.try_lock().unwrap().expect("three of five").release().unwrap();
        }
        let ten = begin.spent();
        assert!(ten < TIMEOUT * 3 / 2, "dead: {dead}: {ten:?}");
        assert_eq!([1, 2, 4].map(|number| exists(&servers[number], "x")), [false; 3]);
        // When they are back they are asked again.
        proxies.iter().for_each(Proxy::heal);
        until("all five have it", || {
            let guard = lock.try_lock().unwrap().expect("free");
            let have = on(&servers, "x");
            guard.release().unwrap();
            have == 5
        });
        until("nothing is left", || on(&servers, "x") == 0);
    }
}

#[test]
fn redlock_py_6_no_majority_is_an_error_and_leaves_nothing() {
    const TIMEOUT: Duration = ms(1_500);
    for dead in [true, false] {
        let servers = servers(5);
        let proxies = proxies(&servers);
        let client = open(through(&proxies).node_timeout(TIMEOUT).give_up_after(ms(500)));
        let lock = client.mutex("x").unwrap();
        lock.lock().unwrap().release().unwrap();
        for number in [0, 2, 4] {
            if dead {
                servers[number].kill();
            } else {
                proxies[number].black_hole();
            }
        }
        for _ in 0..3 {
            let begin = Instant::now();
            let error = lock.try_lock().unwrap_err();
            let took = begin.spent();
            assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
            assert!(error.to_string().contains("3 of 5 servers must agree"), "{error}");
            writeln!(std::io::stderr(), "three of five gone, dead: {dead}: {took:?}").unwrap();
            assert!(took < TIMEOUT * 2 + SLACK, "{took:?}");
            assert_eq!([1, 3].map(|number| exists(&servers[number], "x")), [false; 2]);
        }
        let begin = Instant::now();
        let error = lock.lock().unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(begin.spent() < ms(500) + TIMEOUT * 2 + SLACK, "{:?}", begin.spent());
        let begin = Instant::now();
        let error = lock.try_lock_for(ms(100)).unwrap_err();
        assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
        assert!(begin.spent() < TIMEOUT * 2 + SLACK, "{:?}", begin.spent());
        for number in [1, 3] {
            until("nothing is left", || !exists(&servers[number], "x"));
        }
    }
}

/// Of those that hold their replies all have taken the lock.
#[test]
fn votes_given_without_a_reply_are_taken_back() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let client = open(through(&proxies));
    let lock = client.mutex("ghost").unwrap();
    lock.lock().unwrap().release().unwrap();
    let silent = || {
        let silence = Action::Garbage(Vec::new());
        Fault::request("ghost", silence).at(Operation::Acquire)
    };
    let faults: Vec<_> = [0, 1, 2].iter().map(|&number| proxies[number].add(silent())).collect();
    let error = lock.try_lock().unwrap_err();
    // Unless it was taken back everywhere before the call returned.
    let nothing = error.is_unreachable() && on(&servers, "ghost") == 0;
    assert!(error.is_unknown_outcome() || nothing, "{error:?}");
    assert!(faults.iter().all(|fault| fault.wait_fired(SOON)));
    assert!([3, 4].iter().all(|&number| !exists(&servers[number], "ghost")));
    // Long before the lease of 30 s.
    until("the worker has taken it back everywhere", || on(&servers, "ghost") == 0);
    drop(faults);
    // The same with a majority: the lock is had, and given back where it was not known to be. What
    // reaches the fifth too late, as on a machine that stood still, takes nothing there.
    until("the fifth has it", || {
        // Who was silent is not waited for before it has answered again.
        until("all five have it", || {
            let guard = lock.try_lock().unwrap().expect("free");
            let have = on(&servers, "ghost");
            guard.release().unwrap();
            have == 5
        });
        let fault = proxies[4].add(silent());
        let guard = lock.try_lock().unwrap().expect("a majority");
        assert!(fault.wait_fired(SOON));
        assert!(on(&servers, "ghost") >= 3);
        let has_it = exists(&servers[4], "ghost");
        guard.release().unwrap();
        until("the fifth is free too", || on(&servers, "ghost") == 0);
        has_it
    });
}

#[test]
fn dropped_lost_hold_leaves_no_vote() {
    let servers = servers(3);
    // Longer than any wait here: what is left does not end by itself.
    let client = open(direct(&servers).max_lease(SOON * 5));
    let lock = client.mutex_with("x", fixed(300_000)).unwrap();
    until("all are connected", || lock.with(|_| on(&servers, "x")).unwrap() == 3);
    let guard = lock.lock().unwrap();
    assert_eq!(on(&servers, "x"), 3);
    for server in &servers[..2] {
        ask::<()>(server, &["DEL", "x"]);
    }
    assert!(guard.check().unwrap_err().is_lost());
    drop(guard);
    until("nothing is left", || on(&servers, "x") == 0);
}

#[test]
fn a_connection_that_died_unnoticed_is_replaced_at_once() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let client = open(through(&proxies).node_timeout(PATIENCE));
    let lock = client.mutex("x").unwrap();
    for _ in 0..3 {
        let guard = lock.try_lock().unwrap().expect("free");
        proxies.iter().for_each(Proxy::cut);
        guard.release().unwrap();
        // A majority is free; one that is slow to connect to is left to the worker.
        until("it is free everywhere", || on(&servers, "x") == 0);
        proxies.iter().for_each(Proxy::cut);
    }
}

#[test]
fn two_contending_clients_exclude_and_both_progress() {
    const HOLDS: u64 = 60;
    let servers = servers(5);
    let (busy, highest) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = open(direct(&servers));
                let lock = client.mutex("one").unwrap();
                for _ in 0..HOLDS {
                    let guard = lock.try_lock_for(SOON * 3).unwrap().expect("my turn");
                    assert!(!busy.swap(true, Ordering::SeqCst), "two holders");
                    let token = guard.fencing_token().get();
                    assert!(highest.swap(token, Ordering::SeqCst) < token);
                    thread::yield_now();
                    busy.store(false, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    until("nothing is left", || on(&servers, "one") == 0);
}

#[test]
fn tokens_grow_with_another_minority_down_each_time() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let clients: Vec<_> = (0..3).map(|_| open(through(&proxies).node_timeout(PATIENCE))).collect();
    let mut last = 0;
    for (round, (first, second)) in
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3), (2, 4)].into_iter().enumerate()
    {
        for number in [first, second] {
            proxies[number].refuse();
            proxies[number].cut();
        }
        // What this majority keeps is lost where it may be lost: with the fence it has no memory.
        if round % 3 == 2 {
            let number = (0..5).find(|number| ![first, second].contains(number)).unwrap();
            ask::<()>(&servers[number], &["FLUSHALL"]);
        }
        for client in &clients {
            for _ in 0..2 {
                let lock = client.mutex("t").unwrap();
                let guard = lock.try_lock_for(SOON).unwrap().expect("free");
                let token = guard.fencing_token().get();
                assert!(token > last, "round {round}: {token} after {last}");
                last = token;
                guard.release().unwrap();
            }
        }
        proxies.iter().for_each(Proxy::heal);
    }
}

/// What an attempt took is taken back before the next one asks, and may be taken back late.
#[test]
fn late_release_of_a_failed_attempt_spares_the_next_one() {
    const TIMEOUT: Duration = ms(200);
    let servers = servers(3);
    let proxies = proxies(&servers);
    let client = open(through(&proxies).node_timeout(TIMEOUT));
    // It asks again long before the release comes.
    let lock = client.mutex_with("x", LockOptions::new().wait(Wait::spin())).unwrap();
    let owners = || -> Vec<Option<String>> {
        servers.iter().map(|server| ask(server, &["GET", "x"])).collect()
    };
    for _ in 0..5 {
        for server in &servers[1..] {
            ask::<()>(server, &["SET", "x", "1-:other", "PX", "30000"]);
        }
        let late = Fault::request("x", Action::Delay(TIMEOUT * 16)).at(Operation::Release);
        let late = proxies[0].add(late);
        let guard = thread::scope(|scope| {
            scope.spawn(|| {
                until("the first attempt has failed", || late.fired() == 1);
                // Its release is on the way; another, by the worker, has come.
                thread::sleep(TIMEOUT * 9);
                servers[1..].iter().for_each(|server| ask::<()>(server, &["DEL", "x"]));
            });
            lock.lock().unwrap()
        });
        let before = owners();
        // By then it has come.
        thread::sleep(TIMEOUT * 9);
        let after = owners();
        guard.check().unwrap();
        guard.release().unwrap();
        if before[0] == before[1] {
            assert_eq!(after, before);
            return;
        }
        until("nothing is left", || on(&servers, "x") == 0);
    }
    panic!("the first server never took part");
}

#[test]
fn a_late_release_leaves_the_next_holders_votes_alone() {
    let servers = servers(3);
    let (client, other) = (open(direct(&servers)), open(direct(&servers)));
    let late = client.mutex("x").unwrap().lock().unwrap();
    assert!(other.mutex("x").unwrap().force_release().unwrap());
    let guard = other.mutex("x").unwrap().try_lock_for(SOON).unwrap().expect("my turn");
    assert!(late.is_valid());
    assert!(late.release().unwrap_err().is_lost());
    assert_eq!(on(&servers, "x"), 3);
    guard.check().unwrap();
    guard.release().unwrap();
}

/// A refusal for its token brings the higher one along, and the next round is above that.
#[test]
fn token_exceeds_the_last_one_of_each_server_in_its_majority() {
    let servers = servers(5);
    let client = open(direct(&servers));
    let lock = client.mutex("t").unwrap();
    let first = lock.lock().unwrap();
    let now = first.fencing_token().get();
    first.release().unwrap();
    for (number, ahead) in [(1, 3_000_000_000_u64), (3, 5_000_000_000), (4, 4_000_000_000)] {
        let value = (now + ahead).to_string();
        ask::<()>(&servers[number], &["SET", "{t}:fence", &value, "PX", "60000"]);
    }
    let guard = lock.lock().unwrap();
    // Two of those that are ahead are in every majority.
    assert!(guard.fencing_token().get() > now + 4_000_000_000);
    // It is remembered until the clock of each server has come to it, and for the lease besides.
    assert!(pttl(&servers[0], "{t}:fence") > 33_000);
    guard.release().unwrap();
}

/// As a client far away beside one that is near and locks again and again: each request finds that the near one has just
/// had a higher token.
#[test]
fn client_outrun_each_time_reports_contention_not_an_outage() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let lock = open(through(&proxies).node_timeout(PATIENCE)).mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    let token = Arc::new(AtomicU64::new(guard.fencing_token().get() + 60_000_000));
    guard.release().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    for (proxy, server) in proxies.iter().zip(&servers) {
        let (token, over) = (Arc::clone(&token), Arc::clone(&over));
        let connection = Mutex::new(server.connection());
        proxy.watch(move |seen| {
            if seen.operation != Operation::Acquire
                || seen.direction != Direction::Request
                || over.load(Ordering::SeqCst)
            {
                return;
            }
            let token = token.fetch_add(1_000, Ordering::SeqCst);
            let mut accept = redis::cmd("SET");
            accept.arg("{x}:fence").arg(token).arg("PX").arg(60_000);
            accept.exec(&mut *connection.lock().unwrap()).unwrap();
        });
    }
    for _ in 0..2 {
        assert!(lock.try_lock().unwrap().is_none());
    }
    match lock.try_lock_for(ms(400)) {
        Ok(had) => assert!(had.is_none()),
        // So short a wait may end on a machine that stood still before a request was answered, which it says.
        Err(error) => assert!(error.is_transient(), "{error:?}"),
    }
    over.store(true, Ordering::SeqCst);
    lock.try_lock_for(SOON).unwrap().expect("free").release().unwrap();
}

/// The second round fails before it is sent.
#[test]
fn an_attempt_that_ends_in_an_error_leaves_no_votes_behind() {
    let servers = servers(3);
    let lock = open(direct(&servers)).mutex("x").unwrap();
    for server in &servers[1..] {
        ask::<()>(server, &["SET", "{x}:fence", &((1_u64 << 53) - 9).to_string()]);
    }
    let error = lock.try_lock().unwrap_err();
    names(&error, ["token", "", "clock of a server is ahead"]);
    assert_eq!(on(&servers, "x"), 0);
}

/// Its answers come last, and the others' clocks are read when theirs do.
#[test]
fn slow_server_does_not_delay_requests_to_the_others() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let lock = open(through(&proxies).node_timeout(ms(200))).mutex("x").unwrap();
    let lock_once = || lock.try_lock().map(|guard| guard.map(|guard| guard.release()));
    until("all are connected to", || matches!(lock_once(), Ok(Some(Ok(())))));
    proxies[0].delay(ms(90));
    // It is learned who is slow, and what goes wrong before is given back.
    let learned: Vec<_> = (0..4).map(|_| lock_once()).collect();
    // What is known of the clocks grows old, and less sure.
    thread::sleep(ms(2_500));
    let later = lock.try_lock();
    assert!(matches!(later, Ok(Some(_))), "{learned:?}, then {later:?}");
}

/// A fence runs out, and may be lost. The clocks go on.
#[test]
fn tokens_grow_after_all_servers_lost_them() {
    let servers = servers(3);
    let build = || open(direct(&servers).node_timeout(TIMEOUT));
    let clients = [build(), build()];
    let mut last = 0;
    for client in clients.iter().cycle().take(6) {
        let guard = client.mutex("t").unwrap().lock().unwrap();
        let token = guard.fencing_token().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.release().unwrap();
        // As long as a request may take to be too late.
        thread::sleep(TIMEOUT + ms(20));
        servers.iter().for_each(|server| ask::<()>(server, &["FLUSHALL"]));
    }
}

#[test]
fn holds_passed_on_inside_the_process_have_growing_tokens_too() {
    let servers = servers(3);
    let client = open(direct(&servers));
    let other = open(direct(&servers));
    let highest = AtomicU64::new(0);
    let holds = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let guard = client.mutex("t").unwrap().lock().unwrap();
                    let token = guard.fencing_token().get();
                    assert!(highest.swap(token, Ordering::SeqCst) < token);
                    holds.fetch_add(1, Ordering::SeqCst);
                    drop(guard);
                }
            });
        }
    });
    assert_eq!(holds.into_inner(), 400);
    let guard = other.mutex("t").unwrap().try_lock_for(SOON).unwrap().expect("free");
    assert!(guard.fencing_token().get() > highest.into_inner());
}

#[test]
fn a_lease_is_renewed_by_a_majority_and_lost_without_one() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let client = open(through(&proxies));
    let lock = client.mutex_with("x", renewed(9_000)).unwrap();
    let guard = lock.lock().unwrap();
    for number in [0, 3] {
        proxies[number].black_hole();
    }
    let (mut last, mut renewals) = (guard.remaining(), 0);
    until("it is renewed by three", || {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        let before = std::mem::replace(&mut last, guard.remaining());
        renewals += u32::from(last > before);
        renewals == 2
    });
    guard.check().unwrap();
    proxies[1].black_hole();
    let took = within(SOON, "it is lost", || !guard.is_valid());
    assert!(took <= ms(9_000) + SLACK, "{took:?}");
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
}

#[test]
fn majority_without_the_key_ends_a_hold_in_one_renewal() {
    let servers = servers(5);
    let client = open(direct(&servers));
    let guard = client.mutex_with("x", renewed(6_000)).unwrap().lock().unwrap();
    for server in &servers[..2] {
        ask::<()>(server, &["DEL", "x"]);
    }
    guard.check().unwrap();
    ask::<()>(&servers[2], &["DEL", "x"]);
    let took = within(ms(6_000), "it is lost", || guard.loss().is_some());
    assert!(took < ms(2_000) + SLACK * 2, "{took:?}");
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
}

/// Two of three servers forget whom they voted for while that holder is at work.
#[test]
fn empty_restarted_server_has_no_vote_for_its_longest_lease() {
    let servers = servers(3);
    let longest = ms(5_000);
    let build = |keeps: bool, longest: Duration| {
        let builder = direct(&servers).max_lease(longest).give_up_after(ms(30_000));
        builder.keeps_data(keeps).build().expect("a client")
    };
    let (holder, other) = (build(false, longest), build(false, longest));
    // They have only just started.
    let guard = holder.mutex_with("x", fixed(5_000)).unwrap().lock().unwrap();
    servers[0].restart();
    servers[1].restart();
    let restarted = Instant::now();
    assert_eq!(on(&servers, "x"), 1);
    let lock = other.mutex_with("x", fixed(5_000)).unwrap();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("restarted"), "{error:?}");
    let next = lock.lock().unwrap();
    assert!(restarted.elapsed() >= longest, "{:?}", restarted.elapsed());
    assert!(!guard.is_valid());
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().unwrap();
    // Without that rule it goes wrong, as this shows.
    let trusting = || build(true, ms(30_000)).mutex_with("x", fixed(30_000)).unwrap();
    let first = trusting().lock().unwrap();
    servers[0].restart();
    servers[1].restart();
    let second = trusting().try_lock().unwrap();
    assert!(first.is_valid() && second.is_some(), "the test has shown nothing");
}

/// Two of three forget whom they voted for, and say that they have run for an hour.
#[test]
fn repeated_contact_gives_a_restarted_server_no_vote() {
    const HOUR: i64 = 3_600_000_000;
    let clocks: Vec<_> = (0..3).map(|_| WallClock::new().expect("a clock")).collect();
    let start = |clock: &WallClock| Server::builder().envs(clock.variables()).start();
    let servers: Vec<_> = clocks.iter().map(|clock| start(clock).expect("a server")).collect();
    let uptime = |server: &Server| -> i64 {
        let info: String = ask(server, &["INFO", "server"]);
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        line.expect("its uptime").trim().parse().expect("a number")
    };
    let jump = |count: usize, hours: i64| {
        clocks[..count].iter().for_each(|clock| clock.set(hours * HOUR).expect("a jump"));
        let jumped = |server| uptime(server) >= 3_600;
        until("they say they are old", || servers[..count].iter().all(jumped));
    };
    // Nobody has met them before, so that this is believed.
    jump(3, 1);
    let longest = Duration::from_secs(600);
    let build = || open(direct(&servers).keeps_data(false).max_lease(longest));
    let (holder, rival) = (build(), build());
    let met = rival.mutex("y").unwrap();
    until("all are connected", || met.with(|_| on(&servers, "y")).unwrap() == 3);
    let guard = holder.mutex_with("x", fixed(600_000)).unwrap().lock().unwrap();
    servers[..2].iter().for_each(Server::restart);
    jump(2, 2);
    let lock = rival.mutex_with("x", fixed(600_000)).unwrap();
    for _ in 0..5 {
        until("both are met, and not believed", || match lock.try_lock() {
            Ok(Some(_)) => panic!("two holders, and the first is valid: {}", guard.is_valid()),
            Ok(None) => false,
            Err(error) => error.to_string().matches("was restarted").count() == 2,
        });
        // The next request needs new connections.
        for server in &servers[..2] {
            ask::<()>(server, &["CLIENT", "KILL", "TYPE", "normal"]);
        }
    }
    assert!(guard.is_valid());
}

/// The connection breaks while the request is on its way. The repetition finds another holder, and the
/// request arrives when that one is gone.
#[test]
fn unanswered_request_with_a_refused_repeat_leaves_no_vote() {
    const TIMEOUT: Duration = ms(3_000);
    let servers = servers(3);
    // The one breaks the connection, the other holds what was sent on it.
    let far = Proxy::start(&servers[0]).unwrap();
    let near = Proxy::to_addr(far.addr()).unwrap();
    let urls = [near.url(), servers[1].unix_url(), servers[2].unix_url()];
    let builder = QuorumClient::builder(urls).keeps_data(true).node_timeout(TIMEOUT);
    // Longer than any wait here: what is left does not end by itself.
    let client = open(builder.max_lease(SOON * 5));
    let lock = client.mutex_with("x", fixed(300_000)).unwrap();
    for _ in 0..5 {
        until("all are connected", || lock.with(|_| on(&servers, "x")).unwrap() == 3);
        ask::<()>(&servers[0], &["SET", "x", "1-:other", "PX", "30000"]);
        let held = far.add(Fault::request("x", Action::Hold).at(Operation::Acquire));
        let begin = Instant::now();
        thread::scope(|scope| {
            let taking = scope.spawn(|| lock.with(|_| ()));
            assert!(held.wait_fired(SOON));
            near.cut();
            taking.join().unwrap().expect("a majority");
        });
        ask::<()>(&servers[0], &["DEL", "x"]);
        held.release();
        let mut came = false;
        while !came && begin.elapsed() < TIMEOUT {
            came = exists(&servers[0], "x");
        }
        until("nothing is left", || on(&servers, "x") == 0);
        if came {
            return;
        }
    }
    panic!("the first sending never came in time");
}

/// One of three says of a release, or of an extension, what it had of the lock. Nobody can ask the others.
#[test]
fn release_on_a_minority_is_an_unknown_outcome() {
    let servers = servers(3);
    for (number, gone) in [(0, false), (1, true), (2, false), (3, true)] {
        let proxies = proxies(&servers);
        let client = open(through(&proxies).node_timeout(PATIENCE));
        let lock = client.mutex_with("x", fixed(30_000)).unwrap();
        until("all are connected", || lock.with(|_| on(&servers, "x")).unwrap() == 3);
        let guard = lock.lock().unwrap();
        for proxy in &proxies[1..] {
            proxy.refuse();
            proxy.cut();
        }
        // So that nothing is sent on a connection that is dead.
        until("both are known to be away", || {
            let error = lock.is_locked().unwrap_err();
            error.to_string().matches("the connection").count() == 2
        });
        until("the first can be asked", || exists(&servers[0], "x"));
        if gone {
            ask::<()>(&servers[0], &["DEL", "x"]);
        }
        let outcome = if number < 2 { guard.extend(ms(29_000)) } else { guard.release() };
        let error = outcome.unwrap_err();
        assert!(error.is_unknown_outcome(), "{number}: {error:?}");
        servers.iter().for_each(|server| ask::<()>(server, &["FLUSHALL"]));
    }
}

/// One of three says that nobody has the lock there. The others are sent the request, and do not reply.
#[test]
fn force_pending_on_two_servers_is_an_unknown_outcome() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let client = open(through(&proxies));
    let lock = client.mutex_with("x", fixed(30_000)).unwrap();
    until("all are connected", || lock.with(|_| on(&servers, "x")).unwrap() == 3);
    let guard = lock.lock().unwrap();
    assert_eq!(on(&servers, "x"), 3);
    ask::<()>(&servers[0], &["DEL", "x"]);
    let force = Fault::request("x", Action::Hold).at(Operation::Force);
    let held: Vec<_> = proxies[1..].iter().map(|proxy| proxy.add(force.clone())).collect();
    let error = lock.force_release().unwrap_err();
    assert!(held.iter().all(|held| held.wait_fired(SOON)));
    assert!(error.is_unknown_outcome(), "{error:?}");
    drop(guard);
}

#[test]
fn options_a_quorum_lacks_are_refused_with_the_reason() {
    let servers = servers(3);
    let client = open(direct(&servers));
    let with = |options: LockOptions| client.mutex_with("x", options).unwrap_err();
    names(&with(LockOptions::new().wait(Wait::queue())), ["wait", "Wait::queue()", "majority"]);
    names(&with(LockOptions::new().release(Release::watch())), ["release", "watch", "lua"]);
    let replicas = LockOptions::new().min_replicas(1, ms(10));
    names(&with(replicas), ["min_replicas", "set", "majority"]);
    let disks = LockOptions::new().min_fsyncs(true, 0, ms(10));
    names(&with(disks), ["min_fsyncs", "set", "majority"]);
    names(&with(fixed(30_001)), ["lease", "30s is too long", "max_lease"]);
    names(&with(fixed(0)), ["lease", "0s", "1ms to"]);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let error = guard
        .transaction(|pipe| {
            pipe.cmd("SET").arg("a").arg(1);
        })
        .unwrap_err();
    names(&error, ["transaction", "all of its servers", "fencing token"]);
    names(&guard.extend(ms(30_001)).unwrap_err(), ["ttl", "30s is too long", "max_lease"]);
    guard.check().unwrap();
    guard.release().unwrap();
}

#[test]
fn bad_settings_name_the_field_its_value_and_what_is_allowed() {
    let build = |urls: &[&str]| QuorumClient::builder(urls).build().unwrap_err();
    names(&build(&[]), ["urls", "empty", "at least one"]);
    names(&build(&["redis://a", "http://b"]), ["url scheme", "http", "redis://"]);
    names(&build(&["redis://a", "redis://b", "redis://a:6379/2"]), ["urls", "a:6379", "once"]);
    names(&build(&["redis://:x@a", "redis://b", "redis://:y@a"]), ["urls", "a:6379", "once"]);
    names(&build(&["redis://a"; 64]), ["urls", "64 servers", "at most 63"]);
    let three = || QuorumClient::builder(["redis://a", "redis://b", "redis://c"]);
    let cases: [(QuorumClientBuilder, [&str; 3]); 8] = [
        (three().quorum(0), ["quorum", "0", "2 to 3"]),
        (three().quorum(1), ["quorum", "1", "2 to 3"]),
        (three().quorum(4), ["quorum", "4", "2 to 3"]),
        (three().node_timeout(Duration::ZERO), ["node_timeout", "0s", "1ms to"]),
        (three().node_timeout(Duration::MAX), ["node_timeout", "Duration::MAX", "365 days"]),
        (three().max_lease(Duration::ZERO), ["max_lease", "0s", "1ms to"]),
        (three().give_up_after(Duration::ZERO), ["give_up_after", "0s", "1ms to"]),
        (three().max_size(0), ["max_size", "0", "at least 1"]),
    ];
    for (builder, parts) in cases {
        names(&builder.build().unwrap_err(), parts);
    }
    assert!(three().quorum(3).build().is_ok());
    assert!(!format!("{:?}", QuorumClient::builder(["redis://:s3cret@a"])).contains("s3cret"));
}

#[test]
fn two_addresses_of_one_server_are_refused_or_one_vote() {
    let servers = servers(2);
    let double = Server::builder().tcp().start().unwrap();
    let urls = [servers[0].unix_url(), double.unix_url(), servers[1].unix_url(), double.tcp_url()];
    let builder = QuorumClient::builder(&urls[1..]).node_timeout(ms(2_000));
    let error = builder.connect_now(true).build().unwrap_err();
    names(&error, ["urls", "127.0.0.1", "are one server"]);
    // Where nobody looked it has one vote all the same: of these, two servers and not three.
    let client =
        QuorumClient::builder(&urls).keeps_data(true).node_timeout(PATIENCE).build().unwrap();
    let guard = client.mutex_with("y", renewed(2_400)).unwrap().lock().unwrap();
    servers[0].kill();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    names(&error, ["urls", "127.0.0.1", "are one server"]);
    within(ms(2_400) + SLACK, "it is not renewed by two", || !guard.is_valid());
}

/// An even number of servers is allowed, and warned of.
#[test]
fn even_number_of_servers_warns() {
    in_own_process!();
    let count = || warnings(&["4 servers survive the loss of"]);
    assert_eq!(count(), 0);
    QuorumClient::builder(["redis://a", "redis://b", "redis://c"]).build().unwrap();
    assert_eq!(count(), 0);
    QuorumClient::builder(["redis://a", "redis://b", "redis://c", "redis://d"]).build().unwrap();
    assert_eq!(count(), 1);
}

#[test]
fn too_few_servers_at_the_start_are_an_error_that_names_them() {
    let servers = servers(5);
    for server in &servers[..3] {
        server.kill();
    }
    let error = QuorumClient::open(servers.iter().map(Server::unix_url)).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(error.to_string().contains("3 of 5 servers must agree"), "{error}");
    servers[2].restart();
    let builder = QuorumClient::builder(servers.iter().map(Server::unix_url));
    builder.node_timeout(ms(2_000)).connect_now(true).build().unwrap();
}

#[test]
fn key_of_another_type_on_a_majority_is_wrong_type() {
    let servers = servers(3);
    let client = open(direct(&servers));
    ask::<()>(&servers[0], &["LPUSH", "x", "1"]);
    let lock = client.mutex("x").unwrap();
    lock.try_lock().unwrap().expect("two of three").release().unwrap();
    ask::<()>(&servers[1], &["LPUSH", "x", "1"]);
    assert!(lock.try_lock().unwrap_err().is_wrong_type());
    assert!(!exists(&servers[2], "x"));
}

/// A client that does not have it says so, in each way of asking.
#[test]
fn lock_gone_on_one_and_retyped_on_another_is_lost() {
    let servers = servers(3);
    let guard = open(direct(&servers)).mutex("x").unwrap().lock().unwrap();
    servers[..2].iter().for_each(|server| ask::<()>(server, &["DEL", "x"]));
    ask::<()>(&servers[0], &["RPUSH", "x", "no lock"]);
    assert!(guard.extend(ms(20_000)).unwrap_err().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
    assert_eq!(ask::<String>(&servers[0], &["TYPE", "x"]), "list");
}

/// There is nothing of ours any longer.
#[test]
fn release_succeeds_where_another_key_type_took_its_place() {
    let servers = servers(3);
    let client = open(direct(&servers));
    let guard = client.mutex("x").unwrap().lock().unwrap();
    ask::<()>(&servers[2], &["DEL", "x"]);
    ask::<()>(&servers[2], &["RPUSH", "x", "no lock"]);
    guard.release().unwrap();
    client.shutdown(ms(1_500)).unwrap();
    assert_eq!(ask::<String>(&servers[2], &["TYPE", "x"]), "list");
}

#[test]
fn locks_by_key_and_shutdown_are_as_on_one_server() {
    let servers = servers(3);
    let client = open(direct(&servers).name_prefix("p:"));
    assert!(client.try_lock("x", SOON, Lease::default()).unwrap());
    assert!(client.is_held("x"));
    assert_eq!(on(&servers, "p:x"), 3);
    client.unlock("x").unwrap();
    assert_eq!(on(&servers, "p:x"), 0);
    let guard = client.mutex("y").unwrap().lock().unwrap();
    client.shutdown(ms(3_000)).unwrap();
    assert_eq!(guard.loss().unwrap().cause(), LossCause::ShutDown);
    assert_eq!(on(&servers, "p:y"), 0);
    drop(guard);
    assert!(client.mutex("y").unwrap().try_lock().unwrap_err().is_cancelled());
}

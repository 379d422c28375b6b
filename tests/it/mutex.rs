//! The mutex over a real server: exclusion, waiting, what stands in Redis.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::waiting;
use crate::common::{
    SOON, ask, exists, fixed, heavy, ms, no_key_is_immortal, open, open_at, patient, pttl, server,
    until,
};
use leasehold::LockClient;
use leasehold_support::child::{hear, role, tell};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Child, Fault, Proxy};

#[test]
fn one_holder_at_a_time() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let lock = client.mutex("orders:42").unwrap();
    let guard = lock.lock().unwrap();
    guard.check().unwrap();
    let elsewhere = other.mutex("orders:42").unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    guard.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

#[test]
fn names_are_independent() {
    let server = server();
    let client = open(&server);
    let _a = client.mutex("a").unwrap().lock().unwrap();
    let _b = client.mutex("b").unwrap().try_lock().unwrap().expect("free");
    let _tagged = client.mutex("{a}").unwrap().try_lock().unwrap().expect("free");
}

#[test]
fn try_lock_returns_none_for_a_holder_in_this_process() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let _guard = lock.lock().unwrap();
    server.reset_stats();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock().unwrap().is_none());
            assert!(lock.try_lock_for(Duration::ZERO).unwrap().is_none());
            assert!(lock.try_lock_until(Instant::now() - ms(1)).unwrap().is_none());
            assert!(lock.try_lock_for(ms(30)).unwrap().is_none());
        });
    });
    // The process knows by itself that it has the lock.
    assert_eq!(server.command_calls(&["eval", "evalsha"]), 0);
}

/// One attempt is made, and it may take as long as the client's time-outs say.
#[test]
fn a_wait_of_zero_is_one_attempt() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let lock = other.mutex("x").unwrap();
    server.reset_stats();
    assert!(lock.try_lock_for(Duration::ZERO).unwrap().is_none());
    assert_eq!(server.command_calls(&["eval", "evalsha"]), 1);
    assert!(!exists(&server, "{x}:queue"), "it queued");
    assert!(lock.try_lock_until(Instant::now()).unwrap().is_none());
    assert!(lock.try_lock_until(Instant::now() - ms(10)).unwrap().is_none());
    guard.release().unwrap();
    assert!(lock.try_lock_for(Duration::ZERO).unwrap().is_some());
    assert!(lock.try_lock_until(Instant::now() - ms(10)).unwrap().is_some());
}

/// A wait shorter than the way to Redis and back is worth no less than a wait of zero. Time passes only while an answer is
/// on its way.
#[cfg(feature = "testing")]
#[test]
fn a_very_short_wait_takes_a_free_lock() {
    const STEP: Duration = Duration::from_micros(100);
    let server = leasehold::testing::Server::standing_still();
    let client = server.connect(LockClient::builder("redis://memory").announce(false)).unwrap();
    let link = server.link(&client);
    link.delay_answers(1_000, STEP * 4);
    let lock = client.mutex("x").unwrap();
    let answered = AtomicU64::new(0);
    for nanos in [1, 1_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 3_000_000] {
        thread::scope(|scope| {
            let taker = scope.spawn(|| {
                for _ in 0..5 {
                    let guard = lock.try_lock_for(Duration::from_nanos(nanos));
                    answered.fetch_add(1, Ordering::SeqCst);
                    let guard = guard.unwrap_or_else(|error| panic!("{nanos} ns: {error}"));
                    guard.expect("nobody has it").release().unwrap();
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
            while !taker.is_finished() {
                if link.faults() > answered.load(Ordering::SeqCst) {
                    server.advance(STEP);
                }
                thread::yield_now();
            }
        });
    }
}

/// However its pauses fall: `None` says that there is a holder, an error that Redis has trouble. Time stands still while
/// nothing waits for it, so that no pause of the machine is a trouble of Redis.
#[cfg(feature = "testing")]
#[test]
fn wait_that_ends_while_another_holds_returns_none() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 60;
    let server = leasehold::testing::Server::standing_still();
    let (holder, waiter) = (server.client(), server.client());
    let locks: Vec<_> = (0..THREADS)
        .map(|number| {
            let guard = holder.mutex(format!("x{number}")).unwrap().lock().unwrap();
            (guard, waiter.mutex(format!("x{number}")).unwrap())
        })
        .collect();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let wait = |lock: &leasehold::Mutex| -> Vec<leasehold::Result<bool>> {
            let spans = (0..ROUNDS).map(|round| Duration::from_micros(10_000 + round * 97));
            spans.map(|span| lock.try_lock_for(span).map(|guard| guard.is_some())).collect()
        };
        let threads: Vec<_> =
            locks.iter().map(|(_, lock)| scope.spawn(move || wait(lock))).collect();
        server.run_until(|| threads.iter().all(thread::ScopedJoinHandle::is_finished));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.len() as u64, THREADS * ROUNDS);
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| !matches!(outcome, Ok(false))).collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), outcomes.len(), wrong[0]);
}

#[test]
fn a_wait_too_long_for_the_clock_has_no_end() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let lock = other.mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(Duration::MAX).unwrap().is_some());
        until("it waits", || waiting(&server, "x") == 1);
        assert!(!waiter.is_finished());
        guard.release().unwrap();
        assert!(waiter.join().unwrap());
    });
}

/// Regression, redisson#5761: a waiter that missed the unlock slept for a full lease.
#[test]
fn waiter_gets_the_lock_soon_after_its_release() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    // Far longer than this test waits for anything.
    let guard = client.mutex_with("x", fixed(3_600_000)).unwrap().lock().unwrap();
    let lock = other.mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| lock.try_lock_for(SOON).unwrap().expect("my turn").fencing_token());
        until("it waits", || waiting(&server, "x") == 1);
        let token = guard.fencing_token();
        guard.release().unwrap();
        assert!(waiter.join().unwrap() > token);
    });
}

/// Regression, redisson#6025: left-over wake-ups made waiters spin.
#[test]
fn a_waiter_asks_redis_at_a_bounded_rate() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let _guard = client.mutex("x").unwrap().lock().unwrap();
    server.reset_stats();
    let begin = Instant::now();
    assert!(!matches!(other.mutex("x").unwrap().try_lock_for(ms(1_000)), Ok(Some(_))));
    let (asked, seconds) = (server.command_calls(&["eval", "evalsha"]), begin.elapsed().as_secs());
    assert!(asked <= 80 * seconds.max(1), "{asked} commands in {seconds} s");
}

/// Regression, node-redlock#169: the expiry was reckoned from the first attempt.
#[cfg(feature = "testing")]
#[test]
fn validity_counts_from_the_attempt_that_was_granted() {
    let server = leasehold::testing::Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let lock = other.mutex_with("x", fixed(6_000)).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().remaining());
        until("it waits", || client.mutex("x").unwrap().inspect().unwrap().waiting() == Some(1));
        server.advance(ms(3_000));
        drop(guard);
        server.run_until(|| waiter.is_finished());
        // The lease, less 1 % and 2 ms, and not what is left of it after 3 s.
        assert_eq!(waiter.join().unwrap(), ms(6_000 - 62));
    });
}

#[test]
fn fixed_lease_frees_the_lock_exactly_at_its_end() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let begin = Instant::now();
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    let next = other.mutex("x").unwrap().lock().unwrap();
    assert!(begin.elapsed() >= ms(1_500));
    assert!(!guard.is_valid());
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.release().unwrap_err().is_lost());
    next.check().unwrap();
}

/// Threads of one process wait in line at their slot; only the first of them asks Redis.
#[test]
fn threads_of_one_process_are_served_in_order_of_arrival() {
    const THREADS: usize = 8;
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (lock, sender) = (lock.clone(), sender.clone());
            scope.spawn(move || {
                let _guard = lock.lock().unwrap();
                sender.send(number).unwrap();
            });
            until("it waits in line", || guard.waiters() == number + 1);
        }
        drop(guard);
    });
    drop(sender);
    assert_eq!(served.iter().collect::<Vec<_>>(), (0..THREADS).collect::<Vec<_>>());
}

/// Regression, redisson#5019: what a timed-out waiter left in the line held up the next.
#[test]
fn a_waiter_that_gave_up_leaves_no_place_in_line() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(lock.try_lock_for(ms(50)).unwrap().is_none()));
        }
    });
    thread::scope(|scope| {
        let last = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
        until("it waits", || guard.waiters() == 1);
        drop(guard);
        assert!(last.join().unwrap());
    });
    assert!(lock.try_lock().unwrap().is_some());
}

/// Regression, spring-integration#11049: the local lock was freed before the key was removed.
#[test]
fn try_lock_waits_for_a_release_under_way_in_its_process() {
    let server = server();
    crate::common::warm(&server);
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    let lock = client.mutex("x").unwrap();
    for _ in 0..5 {
        let guard = lock.lock().unwrap();
        let release = Fault::request("", Action::Delay(ms(50))).at(Operation::Release);
        let release = proxy.add(release);
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                assert!(release.wait_fired(SOON));
                lock.try_lock().unwrap().is_some()
            });
            guard.release().unwrap();
            assert!(next.join().unwrap(), "the lock was free, or about to be");
        });
    }
}

#[test]
fn foreign_set_nx_client_excludes_and_is_excluded() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let set = |server| -> Option<String> { ask(server, &["SET", "x", "me", "NX", "PX", "60000"]) };
    assert!(set(&server).is_some());
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().expect("a holder");
    assert_eq!((holder.owner(), holder.pid(), holder.host()), (&b"me"[..], None, None));
    assert_eq!(holder.to_string(), "me");
    ask::<()>(&server, &["PEXPIRE", "x", "100"]);
    let guard = lock.try_lock_for(SOON).unwrap().expect("it ends");
    assert!(set(&server).is_none());
    guard.release().unwrap();
    assert!(set(&server).is_some());
}

#[test]
fn foreign_value_without_ttl_is_a_holder_without_end() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let _: () = ask(&server, &["SET", "x", "me"]);
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lock.try_lock_for(ms(100)).unwrap().is_none());
    assert_eq!(pttl(&server, "x"), -1);
    let _: () = ask(&server, &["DEL", "x"]);
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

/// Milliseconds, and not seconds.
#[test]
fn the_time_to_live_in_redis_is_the_lease() {
    let server = server();
    let client = open(&server);
    for ttl in [1_500, 30_000, 30 * 24 * 60 * 60 * 1000] {
        let guard = client.mutex_with("x", fixed(ttl)).unwrap().lock().unwrap();
        let left = pttl(&server, "x");
        let ttl = i64::try_from(ttl).unwrap();
        assert!(left <= ttl && left > ttl - 1_000, "{left} of {ttl}");
        let remaining = i64::try_from(guard.remaining().as_millis()).unwrap();
        assert!(remaining <= left, "{remaining} of {left}");
        // What two clocks may differ by is not relied on: 1 % and 2 ms.
        assert!(remaining <= ttl - ttl / 100 - 2, "{remaining} of {ttl}");
    }
}

/// Regression, redisson#6510: 25 million keys of tokens that never ended. A counter of tokens may
/// outlive its lock, but not for ever.
#[test]
fn every_key_expires_within_a_lease_after_use() {
    let server = server();
    let client = open(&server);
    for number in 0..50 {
        let ttl = if number % 3 == 2 { 3_000 } else { 60_000 };
        let guard = client.mutex_with(format!("a{number}"), fixed(ttl)).unwrap().lock().unwrap();
        no_key_is_immortal(&server);
        match number % 3 {
            0 => guard.release().unwrap(),
            1 => drop(guard),
            _ => std::mem::forget(guard),
        }
    }
    let guard = client.reentrant_with("b", fixed(60_000)).unwrap().lock().unwrap();
    guard.extend(ms(60_500)).unwrap();
    no_key_is_immortal(&server);
    guard.release().unwrap();
    no_key_is_immortal(&server);
    until("only counters are left", || server.keys().iter().all(|key| key.ends_with(b"fence")));
    no_key_is_immortal(&server);
}

#[test]
fn lock_and_release_are_two_commands_and_reentry_none() {
    let server = server();
    crate::common::warm(&server);
    let lock = open(&server).mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let outer = lock.lock().unwrap();
        let inner = lock.try_lock().unwrap().expect("ours");
        let innermost = lock.try_lock_for(ms(10)).unwrap().expect("ours");
        assert_eq!((lock.hold_count(), outer.hold_count()), (3, 3));
        assert_eq!(inner.fencing_token(), outer.fencing_token());
        drop((innermost, inner));
        drop(outer);
    }
    let ran = server.commands();
    assert_eq!(ran.client_commands(&["ping", "select", "script|load", "publish"]), 20, "{ran:?}");
}

#[test]
fn holder_is_shown_by_label_host_and_process() {
    let server = server();
    let client =
        patient(LockClient::builder(server.url())).label("billing: nightly").build().unwrap();
    let lock = client.mutex("x").unwrap();
    assert!(lock.holder().unwrap().is_none() && !lock.is_locked().unwrap());
    let _guard = lock.lock().unwrap();
    let elsewhere = open(&server).mutex("x").unwrap();
    assert!(elsewhere.is_locked().unwrap());
    let holder = elsewhere.holder().unwrap().expect("a holder");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(holder.label(), Some("billing: nightly"));
    assert_eq!(holder.pid(), Some(std::process::id()));
    assert_eq!(holder.host(), Some(host.trim()));
    let owner: Vec<u8> = ask(&server, &["GET", "x"]);
    assert_eq!(holder.owner(), owner);
    let pid = std::process::id();
    assert_eq!(holder.to_string(), format!("billing: nightly, process {pid} on {}", host.trim()));
}

#[test]
fn every_attempt_has_a_value_of_its_own() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let owner = |server| -> Vec<u8> { ask(server, &["GET", "x"]) };
    let guard = lock.lock().unwrap();
    let first = owner(&server);
    guard.release().unwrap();
    let _guard = lock.lock().unwrap();
    assert_ne!(owner(&server), first);
}

#[test]
fn a_name_prefix_stands_before_every_name_in_redis() {
    let server = server();
    let client = patient(LockClient::builder(server.url())).name_prefix("shop:").build().unwrap();
    let lock = client.mutex("orders").unwrap();
    assert_eq!(lock.name(), b"shop:orders");
    let _guard = lock.lock().unwrap();
    assert!(exists(&server, "shop:orders") && !exists(&server, "orders"));
    assert!(open(&server).mutex("shop:orders").unwrap().try_lock().unwrap().is_none());
    assert!(open(&server).mutex("orders").unwrap().try_lock().unwrap().is_some());
}

#[test]
fn forced_release_frees_the_lock_and_is_a_loss() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let lock = client.mutex("x").unwrap();
    assert!(!lock.force_release().unwrap());
    let guard = lock.lock().unwrap();
    assert!(other.mutex("x").unwrap().force_release().unwrap());
    assert!(!other.mutex("x").unwrap().force_release().unwrap());
    let next = other.mutex("x").unwrap().try_lock().unwrap().expect("free");
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.check().unwrap_err().is_lost());
    assert!(!guard.is_valid());
    assert!(guard.release().unwrap_err().is_lost());
    next.check().unwrap();
}

/// The acquirer, which asks Redis, and those behind it.
#[test]
fn waits_are_cancelled_from_another_thread() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let lock = other.mutex("x").unwrap();
    assert_eq!(lock.cancel_waits(), 0);
    let cancelled = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let error = lock.lock().unwrap_err();
                assert!(error.is_cancelled() && error.to_string().contains("\"x\""), "{error}");
                cancelled.fetch_add(1, Ordering::SeqCst);
            });
        }
        // Who comes to wait only after a call is not called off by it.
        until("all waits are called off", || {
            lock.cancel_waits();
            cancelled.load(Ordering::SeqCst) == 3
        });
    });
    guard.check().unwrap();
    // What was called off holds up nobody.
    drop(guard);
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

/// A thread that is just asking Redis waits no less than one that pauses.
#[test]
fn cancel_counts_a_wait_whose_exchange_is_under_way() {
    let server = server();
    crate::common::warm(&server);
    let proxy = Proxy::start(&server).unwrap();
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open_at(proxy.url()).mutex("x").unwrap();
    let request = proxy.add(Fault::request("x", Action::Hold).at(Operation::Acquire));
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| lock.lock().unwrap_err())).collect();
        // One of them waits for its answer, and the others come to wait behind it.
        assert!(request.wait_fired(SOON));
        let mut counted = lock.cancel_waits();
        assert!(counted > 0, "the one that asks is not counted");
        until("all are counted", || {
            counted += lock.cancel_waits();
            counted >= 3
        });
        request.release();
        for waiter in waiters {
            assert!(waiter.join().unwrap().is_cancelled());
        }
        assert_eq!(counted, 3);
    });
}

/// Several processes and threads read a number, and write it back one greater.
#[test]
fn counter_is_exact_under_contention_of_processes() {
    const CHILDREN: usize = 3;
    let _turn = heavy();
    let server = server();
    let _: () = ask(&server, &["SET", "number", "0"]);
    let mut children: Vec<Child> = (0..CHILDREN)
        .map(|_| {
            let builder = Child::role("counter").test("mutex::roles").env("URL", server.url());
            builder.start().expect("a child")
        })
        .collect();
    for child in &mut children {
        child.expect_line("ready", SOON);
    }
    for child in &mut children {
        child.say("go");
    }
    let mut counted = 0;
    for child in &mut children {
        counted += child.expect_line("counted", SOON * 3).parse::<u64>().unwrap();
    }
    let number: u64 = ask(&server, &["GET", "number"]);
    assert!(counted > 0);
    assert_eq!(number, counted);
    // The tokens, in the order in which the lock was had.
    let tokens: Vec<u64> = ask(&server, &["LRANGE", "tokens", "0", "-1"]);
    assert_eq!(tokens.len() as u64, counted);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "tokens must grow");
}

fn count() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 40;
    let url = std::env::var("URL").expect("a URL");
    let client = open_at(&url);
    tell("ready");
    hear();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let raw = redis::Client::open(url.as_str()).unwrap();
                let mut raw = raw.get_connection().unwrap();
                let lock = client.mutex("counter").unwrap();
                start.wait();
                for _ in 0..ROUNDS {
                    let guard = lock.lock().unwrap();
                    let number: u64 = redis::cmd("GET").arg("number").query(&mut raw).unwrap();
                    thread::yield_now();
                    let mut pipe = redis::pipe();
                    pipe.cmd("SET").arg("number").arg(number + 1).ignore();
                    pipe.cmd("RPUSH").arg("tokens").arg(guard.fencing_token().get()).ignore();
                    pipe.query::<()>(&mut raw).unwrap();
                    guard.release().unwrap();
                }
            });
        }
    });
    tell(&format!("counted {}", THREADS * ROUNDS));
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    match role().as_deref() {
        Some("counter") => count(),
        Some(other) => panic!("unknown role {other}"),
        None => {}
    }
}

//! Who is served when, and how a wait ends.

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, LockOptions, Mutex, Release, Wait};
use leasehold_support::Proxy;
use leasehold_support::lag::{self, Spent as _};

use crate::common::queue::{all_have_left, listens, wait_for, waiting};
use crate::common::{
    SLACK, SOON, ask, exists, fixed, ms, no_key_is_immortal, open, open_at, renewed, server, until,
    warm,
};
use crate::queue::{AT_ONCE, foreign_hold, members, owner, until_waiting};

/// A reply that the machine delays for longer may be none to a request with little time.
const PAUSE: Duration = ms(10);

/// Checker C6: no inversions among live waiters; C2: tokens grow in the order of service.
#[test]
fn processes_are_served_in_order_of_arrival() {
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
fn hand_over_is_one_command_for_any_number_of_waiters() {
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
fn newcomers_do_not_overtake_waiters() {
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
fn waiter_with_a_refused_leave_leaves_later() {
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let outcome = scope.spawn(|| waiter.try_lock_for(ms(900)).map(|guard| guard.is_some()));
        until_waiting(&server, "x", 1);
        ask::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        // Its last request is refused, which it says; where the machine is late it was answered before.
        match outcome.join().unwrap() {
            Ok(had) => assert!(!had),
            Err(error) => assert!(error.is_unreachable(), "{error:?}"),
        }
    });
    assert_eq!(waiting(&server, "x"), 1, "it could not leave");
    ask::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // By itself its place ends after six seconds.
    until("it has left", || waiting(&server, "x") == 0);
    guard.release().unwrap();
    assert!(!exists(&server, "x"), "handed to {}", owner(&server, "x"));
}

/// Regression, redisson#5019: an entry was left in the queue after a time-out.
#[test]
fn timed_out_waiter_leaves_nothing_and_gets_nothing() {
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    for cancelled in [false, true] {
        thread::scope(|scope| {
            let wait = if cancelled { SOON * 3 } else { ms(2_500) };
            let waiter = &waiter;
            let outcome = scope.spawn(move || {
                let begin = Instant::now();
                (waiter.try_lock_for(wait).map(|g| g.is_some()), begin.elapsed())
            });
            until_waiting(&server, "x", 1);
            let begin = Instant::now();
            let late = if cancelled {
                assert_eq!(waiter.cancel_waits(), 1);
                assert!(outcome.join().unwrap().0.unwrap_err().is_cancelled());
                begin.elapsed()
            } else {
                let (outcome, lasted) = outcome.join().unwrap();
                assert!(!outcome.unwrap_or_else(|error| !error.is_unknown_outcome()));
                lasted - wait
            };
            all_have_left(&server, "x", late);
        });
    }
    guard.release().unwrap();
    assert!(!exists(&server, "x"), "handed to {}", owner(&server, "x"));
}

/// Regression, redisson#2099 and #1104: each waiter in the queue pushed the deadlines of others hours away.
#[test]
fn passing_waiters_delay_no_deadline() {
    let server = server();
    let guard = open(&server).mutex_with("x", renewed(60_000)).unwrap().lock().unwrap();
    // Each client is a process of its own to the queue.
    let clients: Vec<LockClient> = (0..6).map(|_| open(&server)).collect();
    let latest = || {
        let last: Vec<(String, f64)> =
            ask(&server, &["ZREVRANGE", "{x}:beats", "0", "0", "WITHSCORES"]);
        last.first().map(|(_, score)| *score)
    };
    // In the queue, or remembered to be.
    let queued = || {
        let count = |key| ask::<u64>(&server, &["ZCARD", key]);
        count("{x}:queue") + count("{x}:beats")
    };
    let patient = open(&server);
    thread::scope(|scope| {
        let patient = scope.spawn(|| patient.mutex("x").unwrap().lock().map(|_| Instant::now()));
        until("the patient one waits", || queued() == 2);
        let mut most = 0;
        // On a busy machine they may give up before they queue.
        for round in 0..500 {
            if round >= 5 && most > 2 {
                break;
            }
            let hasty = clients.iter().map(|client| {
                scope.spawn(|| {
                    client.mutex("x").unwrap().try_lock_for(ms(150)).is_ok_and(|g| g.is_some())
                })
            });
            let hasty: Vec<_> = hasty.collect();
            until("some of them wait, or all have given up", || {
                most = most.max(queued());
                hasty.iter().all(|hasty| hasty.is_finished())
            });
            assert!(hasty.into_iter().all(|hasty| !hasty.join().unwrap()));
            // A waiter counts as dead 3 s after it was last heard of, also where others wait.
            let deadline = latest().expect("the patient one waits") / 1e6;
            let (seconds, _): (f64, f64) = ask(&server, &["TIME"]);
            let away = deadline - seconds;
            // Where the machine stands still, it may be over.
            assert!((-60.0..=4.0).contains(&away), "it is {away} s away");
        }
        assert!(most > 2, "nobody ever waited beside the patient one");
        let begin = Instant::now();
        guard.release().unwrap();
        let took = patient.join().unwrap().unwrap().spent_since(begin);
        assert!(took < ms(1_000) + SLACK, "{took:?}");
    });
}

/// The first outcome of a wait that is none of a machine that stood still before a request was answered, which the wait
/// says. It is not so each time: somebody has the lock, and that is no error.
#[track_caller]
fn first_told<T>(mut wait: impl FnMut() -> leasehold::Result<T>) -> T {
    lag::watch();
    let mut tries = 20;
    loop {
        let begin = Instant::now();
        match wait() {
            Ok(outcome) => return outcome,
            Err(error) if error.is_transient() && tries > 0 => {
                // A try proves nothing while threads wait for a processor.
                tries -= u32::from(begin.spent() + PAUSE > begin.elapsed());
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn wait_ends_at_the_callers_deadline() {
    let server = server();
    let waiter = open(&server).mutex("x").unwrap();
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    for wait in [30, 200, 1_100] {
        let (none, lasted, took) = first_told(|| {
            let begin = Instant::now();
            let outcome = waiter.try_lock_for(ms(wait)).map(|guard| guard.map(drop));
            outcome.map(|guard| (guard, begin.elapsed(), begin.spent()))
        });
        assert!(none.is_none() && lasted >= ms(wait), "{wait}: {lasted:?}");
        assert!(took < ms(wait) + SLACK, "{wait}: {took:?}");
    }
}

/// `None` says that somebody has it. That the wake-ups are not connected in so short a time is no
/// reason to say that Redis is down.
#[test]
fn first_wait_too_short_to_subscribe_returns_none() {
    let server = server();
    warm(&server);
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    // An answer takes 160 ms; connecting takes several.
    proxy.delay(ms(80));
    for wait in [400, 500, 700] {
        let outcome = first_told(|| {
            // It does not listen yet.
            open_at(proxy.url()).mutex("x").unwrap().try_lock_for(ms(wait))
        });
        assert!(outcome.is_none(), "{wait} ms");
    }
}

/// Rule 5: where local threads still wait, the place moves to the next of them and nothing is sent.
#[test]
fn thread_that_gives_up_leaves_its_place_to_its_process() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let (client, other) = (open(&server), open(&server).mutex("x").unwrap());
    listens(&server, &client);
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        // Where the machine stalled, its last requests may have brought no answer, which it says.
        let hurried = scope.spawn(|| match lock.try_lock_for(ms(3_000)) {
            Ok(guard) => guard.is_none(),
            Err(error) => error.is_unknown_outcome(),
        });
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

#[test]
fn forced_release_serves_the_first_waiter() {
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
fn lock_of_a_foreign_holder_is_taken_soon_once_free() {
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

#[test]
fn two_names_of_one_client_do_not_mix() {
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
fn mixed_options_on_one_name_exclude_and_are_all_served() {
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
                            // While it is ours: each waiter is not in, and begins anew.
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

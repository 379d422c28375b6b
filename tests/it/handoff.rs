//! Leases passed on from thread to thread of one process, without a command.

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::{listens, waiting};
use crate::common::{
    AtLast, SOON, all_renewed, ask, exists, fixed, ms, open, patient, renewed, server, until, warm,
};
use leasehold::{LockClient, LockOptions, LossCause, Mutex, Release, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault, Proxy, Server};

/// How many scripts were sent: attempts, releases, renewals.
fn sent(server: &Server) -> u64 {
    server.command_calls(&["eval", "evalsha"])
}

/// A client that hears whether other processes wait. Only then is it free to pass on as it likes.
fn listener(server: &Server) -> LockClient {
    let client = open(server);
    listens(server, &client);
    client
}

/// Holds the lock while `count` threads queue up behind, each of which does `work` in its turn.
fn pass_through(lock: &Mutex, count: usize, work: impl Fn(usize, leasehold::Guard) + Sync) {
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        for number in 0..count {
            let (lock, work) = (lock.clone(), &work);
            scope.spawn(move || work(number, lock.lock().unwrap()));
            until("they queue up", || guard.waiters() == number + 1);
        }
        guard.release().unwrap();
    });
}

/// Section 10: contended inside one process.
#[test]
fn passing_on_sends_nothing_and_keeps_the_order() {
    const THREADS: usize = 60;
    let server = server();
    warm(&server);
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let served = Shared::new(Vec::new());
    server.reset_stats();
    let begin = Instant::now();
    pass_through(&lock, THREADS, |number, guard| {
        served.lock().unwrap().push((number, guard.fencing_token().get()));
        guard.release().unwrap();
    });
    let (commands, served) = (server.commands(), served.into_inner().unwrap());
    // One to take it, one to give it back; two more for each second that the machine took for all.
    let scripts = commands.calls("eval") + commands.calls("evalsha");
    let most = 4 + 2 * begin.elapsed().as_secs();
    assert!((2..=most).contains(&scripts) && commands.calls("publish") == 0, "{commands:?}");
    assert!(served.iter().map(|(number, _)| *number).eq(0..THREADS), "{served:?}");
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "{served:?}");
    // Rule 19: what was used last is what the next process goes on from.
    let last: u64 = ask(&server, &["GET", "{x}:fence"]);
    assert_eq!(last, served.last().unwrap().1);
    assert!(open(&server).mutex("x").unwrap().lock().unwrap().fencing_token().get() > last);
    assert!(!exists(&server, "x"));
}

/// Rule 19: the token that was written back counts, also where the server's clock is behind it.
#[test]
fn next_process_respects_a_written_back_token() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let last = Shared::new(0);
    pass_through(&lock, 3, |number, guard| {
        if number == 2 {
            *last.lock().unwrap() = guard.fencing_token().get();
        }
        guard.release().unwrap();
    });
    let last = last.into_inner().unwrap();
    assert_eq!(ask::<u64>(&server, &["GET", "{x}:fence"]), last);
    // An hour ahead, as after a clock that went back.
    let ahead = last + 3_600_000_000;
    ask::<()>(&server, &["SET", "{x}:fence", &ahead.to_string(), "PX", "60000"]);
    let next = open(&server).mutex("x").unwrap().lock().unwrap();
    assert_eq!(next.fencing_token().get(), ahead + 1);
    let ends: i64 = ask(&server, &["PTTL", "{x}:fence"]);
    assert!(ends > 3_600_000, "it is forgotten in {ends} ms, before the clock has come so far");
}

/// The same where it is given back by a transaction.
#[test]
fn a_release_by_watch_writes_the_last_token_back() {
    let server = server();
    let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    let lock = open(&server).mutex_with("x", options).unwrap();
    let scripts = || server.command_calls(&["eval", "evalsha"]);
    // Where nobody queues it is passed on for 50 ms only, in which a machine may stall.
    until("it is passed on to all", || {
        let (before, tokens) = (scripts(), Shared::new(Vec::new()));
        pass_through(&lock, 3, |_, guard| {
            tokens.lock().unwrap().push(guard.fencing_token().get());
            guard.release().unwrap();
        });
        let last = tokens.into_inner().unwrap().into_iter().max().unwrap();
        assert!(!exists(&server, "x"));
        assert_eq!(ask::<u64>(&server, &["GET", "{x}:fence"]), last);
        assert!(ask::<i64>(&server, &["PTTL", "{x}:fence"]) > 0);
        scripts() - before == 1
    });
}

/// Where the counter is ahead of the server's clock, local holds must not use up what the next
/// process would be given.
#[test]
fn tokens_grow_in_local_hand_offs_with_the_counter_ahead() {
    let server = server();
    let clients = [listener(&server), listener(&server)];
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let ahead = (seconds + 3_600) * 1_000_000;
    ask::<()>(&server, &["SET", "{x}:fence", &ahead.to_string(), "PX", "60000"]);
    let tokens = Shared::new(Vec::new());
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..3 {
                let (lock, tokens) = (client.mutex("x").unwrap(), &tokens);
                scope.spawn(move || {
                    for _ in 0..15 {
                        let guard = lock.lock().unwrap();
                        tokens.lock().unwrap().push(guard.fencing_token().get());
                    }
                });
            }
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(
        tokens.len() == 90 && tokens[0] > ahead && tokens.is_sorted_by(|a, b| a < b),
        "{tokens:?}"
    );
}

/// The same where the last of these holds ends without a word to Redis, as a killed process's does:
/// the next process must not be given its token once more.
#[test]
fn token_unknown_to_redis_is_not_given_again() {
    let server = server();
    let client = listener(&server);
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let ahead = (seconds + 3_600) * 1_000_000;
    ask::<()>(&server, &["SET", "{x}:fence", &ahead.to_string(), "PX", "60000"]);
    let last = Shared::new(0);
    pass_through(&client.mutex("x").unwrap(), 3, |number, guard| {
        if number == 2 {
            *last.lock().unwrap() = guard.fencing_token().get();
            ask::<()>(&server, &["DEL", "x"]);
            assert!(guard.release().unwrap_err().is_lost());
        }
    });
    let last = last.into_inner().unwrap();
    let next = open(&server).mutex("x").unwrap().lock().unwrap();
    assert!(
        last > ahead && next.fencing_token().get() > last,
        "{} after {last}",
        next.fencing_token()
    );
}

/// While another process waits: at most `local_handoffs` in a row, and it is never starved.
#[test]
fn passing_on_is_bounded_while_another_process_waits() {
    const MOST: u32 = 5;
    let server = server();
    let ours = listener(&server);
    let others = [listener(&server), listener(&server), listener(&server)];
    // Others have had their turns by then.
    let (end, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    let holds = Shared::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            let lock = ours.mutex_with("x", renewed(60_000).local_handoffs(MOST)).unwrap();
            let (holds, end) = (&holds, &end);
            scope.spawn(move || {
                while !end.load(Ordering::SeqCst) {
                    let _guard = lock.lock().unwrap();
                    holds.lock().unwrap().push(true);
                }
            });
        }
        // Three, so that there is always one who waits when ours get it.
        for other in &others {
            let lock = other.mutex_with("x", renewed(60_000)).unwrap();
            let (holds, end, turns) = (&holds, &end, &turns);
            scope.spawn(move || {
                while turns.fetch_add(1, Ordering::SeqCst) < 40 {
                    let _guard = lock.try_lock_for(SOON).unwrap().expect("a turn");
                    holds.lock().unwrap().push(false);
                    // So that the others are surely back in the queue.
                    thread::sleep(ms(5));
                }
                end.store(true, Ordering::SeqCst);
            });
        }
    });
    let holds = holds.into_inner().unwrap();
    let first = holds.iter().position(|&ours| !ours).unwrap();
    let last = holds.iter().rposition(|&ours| !ours).unwrap();
    let runs: Vec<usize> = holds[first..=last].split(|&ours| !ours).map(<[bool]>::len).collect();
    let most = runs.iter().copied().max().unwrap();
    assert!(most <= MOST as usize + 1, "{most} in a row");
    assert!(runs.contains(&(MOST as usize + 1)), "nothing was passed on: {runs:?}");
}

/// A process that comes while the lease goes round and round in another is let in at once.
#[test]
fn newcomer_ends_the_passing_on_in_a_busy_process() {
    let server = server();
    let ours = listener(&server);
    let done = AtomicBool::new(false);
    let holds = AtomicU32::new(0);
    thread::scope(|scope| {
        let _end = AtLast(&done);
        for _ in 0..4 {
            let lock = ours.mutex("x").unwrap();
            let (done, holds) = (&done, &holds);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let _guard = lock.lock().unwrap();
                    holds.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(ms(1));
                }
            });
        }
        until("it goes round", || holds.load(Ordering::SeqCst) > 20);
        let (quick, slow) = (listener(&server), open(&server));
        for client in [&quick, &quick, &slow] {
            let guard = client.mutex("x").unwrap().try_lock_for(SOON).unwrap().expect("a turn");
            drop(guard);
            let before = holds.load(Ordering::SeqCst);
            until("it goes round again", || holds.load(Ordering::SeqCst) > before + 20);
        }
    });
}

/// However many turns there may be in a row.
#[test]
fn passing_on_is_bounded_in_time_while_another_process_waits() {
    let server = server();
    let (ours, theirs) = (listener(&server), listener(&server));
    let done = AtomicBool::new(false);
    let holds = AtomicU32::new(0);
    thread::scope(|scope| {
        let _end = AtLast(&done);
        for _ in 0..4 {
            let lock = ours.mutex_with("x", renewed(60_000).local_handoffs(u32::MAX)).unwrap();
            let (done, holds) = (&done, &holds);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let _guard = lock.lock().unwrap();
                    holds.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(ms(20));
                }
            });
        }
        for _ in 0..3 {
            let before = holds.load(Ordering::SeqCst);
            until("it goes round", || holds.load(Ordering::SeqCst) > before + 4);
            let before = holds.load(Ordering::SeqCst);
            let guard = theirs.mutex("x").unwrap().try_lock_for(SOON).unwrap().expect("its turn");
            let passed = holds.load(Ordering::SeqCst) - before;
            drop(guard);
            assert!(passed <= 12, "{passed} turns of 20 ms before its own");
        }
    });
}

#[test]
fn lease_is_passed_on_only_to_compatible_options() {
    let server = server();
    warm(&server);
    let client = listener(&server);
    // What the thread that waits asks for, and whether it is what the holder has.
    let usual = renewed(20_000);
    for (holder, waiter, passed) in [
        (usual, usual, true),
        (usual, usual.max_hold(ms(10_000)).max_renewals(7).linger(ms(1)), true),
        // A hold that is never renewed needs a whole lease, and leaves one as good as any.
        (usual, usual.max_renewals(0), false),
        (usual.max_renewals(0), usual, true),
        (usual.local_handoffs(0), usual, false),
        (usual, renewed(20_001), false),
        (usual, fixed(20_000), false),
        (fixed(20_000), usual, false),
        (fixed(20_000), fixed(20_000), false),
        (usual, usual.wait(leasehold::Wait::spin()), false),
    ] {
        let guard = client.mutex_with("x", holder).unwrap().lock().unwrap();
        let lock = client.mutex_with("x", waiter).unwrap();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                let commands = sent(&server);
                guard.check().unwrap();
                guard.release().unwrap();
                commands
            });
            until("it waits", || guard.waiters() == 1);
            server.reset_stats();
            guard.release().unwrap();
            let commands = next.join().unwrap();
            // Else it is given back and taken anew.
            assert_eq!(commands, if passed { 0 } else { 2 }, "{holder:?} to {waiter:?}");
        });
        until("it is given back", || !exists(&server, "x"));
    }
}

/// Rule 17: a command that brought no answer may still run, and then in the next one's hold.
#[test]
fn lease_with_an_unanswered_command_is_not_passed_on() {
    let server = server();
    warm(&server);
    let play = |what| {
        let proxy = Proxy::start(&server).unwrap();
        // Shorter than a lease goes round in any case.
        let builder = patient(LockClient::builder(proxy.url())).command_timeout(ms(600));
        let client = builder.build().unwrap();
        listens(&server, &client);
        let lock = client.mutex("x").unwrap();
        let fault = match what {
            "acquire" => {
                let lost = Fault::request("EVALSHA", Action::LoseReply);
                proxy.add(lost.at(Operation::Acquire))
            }
            "extend" => proxy.add(Fault::request("39876", Action::Drop).sticky()),
            // The connection breaks, and the second request is answered (rule 31).
            "extend again" => proxy.add(Fault::request("39876", Action::LoseReply)),
            _ => proxy.add(Fault::request("GET", Action::Drop).sticky()),
        };
        let guard = lock.lock().unwrap();
        match what {
            "acquire" => {}
            "extend" => assert!(guard.extend(ms(39_876)).unwrap_err().is_unknown_outcome()),
            "extend again" => guard.extend(ms(39_876)).unwrap(),
            _ => assert!(guard.check().is_err()),
        }
        assert!(fault.fired() > 0, "{what}");
        fault.remove();
        let commands = thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                let commands = sent(&server);
                guard.release().unwrap();
                commands
            });
            until("it waits", || guard.waiters() == 1);
            server.reset_stats();
            guard.release().unwrap();
            next.join().unwrap()
        });
        until("it is given back", || !exists(&server, "x"));
        commands
    };
    // They give it back and take it anew, and the worker may make sure of what was lost.
    for what in ["acquire", "extend", "extend again"] {
        let commands = play(what);
        assert!(commands >= 2, "{commands} scripts after {what}");
    }
    // A check leaves nothing that could run late. A hold that lasts for long, as on a slow machine, is not passed on.
    assert!((0..5).any(|_| play("check") == 0), "it is never passed on");
}

/// `max_hold` counts per hold, and not from the first of them.
#[test]
fn max_hold_counts_for_each_hold() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex_with("x", renewed(60_000).max_hold(ms(2_000))).unwrap();
    let tokens = Shared::new(Vec::new());
    pass_through(&lock, 3, |number, guard| {
        tokens.lock().unwrap().push(guard.fencing_token());
        if number < 2 {
            // Two of these are longer than a hold may be.
            thread::sleep(ms(1_200));
            let _ = guard.release();
        } else {
            until("it ends", || !guard.is_valid());
            assert_eq!(guard.loss().unwrap().cause(), LossCause::MaxHold);
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b));
}

/// Each hold has its own number of renewals; what the one before used up is not taken from it.
#[test]
fn max_renewals_counts_for_each_hold() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex_with("x", renewed(6_000).max_renewals(1)).unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let (begin, token) = (Instant::now(), guard.fencing_token());
            until("its lease is over", || !guard.is_valid());
            (begin.elapsed(), token)
        });
        until("it waits", || guard.waiters() == 1);
        // That is its only one.
        all_renewed([&guard]);
        let token = guard.fencing_token();
        guard.release().unwrap();
        let (lasted, next) = next.join().unwrap();
        assert!(next > token);
        // One lease at least: it was renewed once in this hold.
        assert!(lasted > ms(5_900), "the hold lasted only {lasted:?}");
    });
}

/// Rule 9: a hold that is never renewed has a whole lease, and not the rest of another's.
#[test]
fn fixed_hold_is_not_passed_the_rest_of_a_lease() {
    let server = server();
    let client = listener(&server);
    let guard = client.mutex_with("x", renewed(6_000)).unwrap().lock().unwrap();
    let lock = client.mutex_with("x", renewed(6_000).max_renewals(0)).unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let begin = Instant::now();
            until("its lease is over", || !guard.is_valid());
            begin.elapsed()
        });
        until("it waits", || guard.waiters() == 1);
        // Not yet renewed, if the machine runs.
        until("a part of it is over", || guard.remaining() < ms(5_000));
        guard.release().unwrap();
        let lasted = next.join().unwrap();
        assert!(lasted > ms(5_600), "the hold lasted only {lasted:?}");
    });
}

/// A thread whose time is over is passed over, and one that is passed the lease has it.
#[test]
fn timed_out_waiter_never_swallows_a_hand_off() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let (mut some, mut none) = (0, 0);
    // Until both have happened.
    for round in 0.. {
        if round >= 60 && some > 0 && none > 0 {
            break;
        }
        assert!(round < 1_500, "{some} got it, {none} did not");
        let guard = lock.lock().unwrap();
        let wait = Duration::from_micros(10_000 + round % 3 * 100);
        thread::scope(|scope| {
            let (hurried, patient) = (&lock, &lock);
            let hurried = scope.spawn(move || {
                let begin = Instant::now();
                let got = match hurried.try_lock_for(wait) {
                    Ok(got) => got.is_some(),
                    // Its process was held up until its time was over.
                    Err(error) if error.is_timeout() || error.is_unknown_outcome() => false,
                    Err(error) => panic!("{error:?}"),
                };
                (got, begin.elapsed())
            });
            until("it waits", || guard.waiters() >= 1 || hurried.is_finished());
            let patient = scope.spawn(move || {
                patient.try_lock_for(SOON).unwrap().expect("its turn").release().unwrap();
            });
            // Close to its end, and well before.
            let before = [600, 4_000][usize::from(round % 4 == 3)];
            thread::sleep(wait.saturating_sub(Duration::from_micros(before)));
            guard.release().unwrap();
            let (got, took) = hurried.join().unwrap();
            *if got { &mut some } else { &mut none } += 1;
            assert!(got || took >= wait, "gave up after {took:?}");
            patient.join().unwrap();
        });
    }
    until("it is free", || !exists(&server, "x"));
}

#[test]
fn the_deadlines_of_threads_are_kept_while_the_lock_goes_round() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let wait = |wait| {
            let lock = &lock;
            scope.spawn(move || {
                let begin = Instant::now();
                (wait, lock.try_lock_for(wait).map(|got| got.is_some()), begin.elapsed())
            })
        };
        // By turns, so that those whose time ends stand between the others.
        let (short, long): (Vec<_>, Vec<_>) =
            (0..5).map(|number| (wait(ms(60 * number + 20)), wait(SOON))).unzip();
        for waiter in short {
            let (wait, got, lasted) = waiter.join().unwrap();
            match got {
                Ok(got) => assert!(!got && lasted >= wait, "{wait:?}: {got}, {lasted:?}"),
                // Its process was held up until its time was over.
                Err(error) => {
                    assert!(error.is_timeout() || error.is_unknown_outcome(), "{error:?}")
                }
            }
        }
        assert!(long.iter().all(|waiter| !waiter.is_finished()), "the lock is held");
        guard.release().unwrap();
        assert!(long.into_iter().all(|waiter| waiter.join().unwrap().1.unwrap()), "it is free");
    });
}

/// A cancellation reaches also the thread whose turn it has just become.
#[test]
fn cancellation_during_a_hand_off_is_not_lost() {
    let server = server();
    let client = listener(&server);
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = client.mutex("x").unwrap();
    for round in 0..30 {
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                // On a machine that stalls it may end without an answer.
                assert!(!matches!(lock.try_lock_for(ms(40)), Ok(Some(_))));
                // The other has its turn at this moment.
                lock.cancel_waits()
            });
            // Or has ended already, on a machine that stalls.
            until("the first one asks", || waiting(&server, "x") == 1 || first.is_finished());
            let second = scope.spawn(|| lock.lock().map(drop));
            let called_off = first.join().unwrap();
            until("it is called off", || {
                // One that was told of ends by itself.
                assert!(called_off <= 1, "round {round}: {called_off} waits");
                if called_off == 0 {
                    lock.cancel_waits();
                }
                second.is_finished()
            });
            assert!(second.join().unwrap().unwrap_err().is_cancelled());
        });
    }
}

#[test]
fn cancellation_reaches_all_waiters_and_spares_the_holder() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiters = [(); 8].map(|()| scope.spawn(|| lock.lock().unwrap_err()));
        until("they wait", || guard.waiters() == 8);
        assert_eq!(lock.cancel_waits(), 8);
        for waiter in waiters {
            assert!(waiter.join().unwrap().is_cancelled());
        }
    });
    assert_eq!((lock.cancel_waits(), guard.waiters()), (0, 0));
    guard.check().unwrap();
    guard.release().unwrap();
    drop(lock.try_lock().unwrap().expect("free"));
}

/// Also of those whose last request is under way.
#[test]
fn as_many_waits_fail_as_cancellations_counted() {
    let server = server();
    let client = listener(&server);
    let (lock, over) = (client.mutex("x").unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        let end = AtLast(&over);
        let takes = || {
            let mut cancelled = 0;
            while !over.load(Ordering::SeqCst) {
                match lock.lock() {
                    Ok(guard) => guard.release().unwrap(),
                    Err(error) => {
                        assert!(error.is_cancelled(), "{error:?}");
                        cancelled += 1;
                    }
                }
            }
            cancelled
        };
        let threads = [(); 3].map(|()| scope.spawn(takes));
        let mut counted = 0;
        while counted < 300 {
            assert!(threads.iter().all(|thread| !thread.is_finished()));
            counted += lock.cancel_waits();
            thread::yield_now();
        }
        drop(end);
        let failed: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(failed, counted);
    });
}

/// Who loses a lock does not keep it from those who wait beside it.
#[test]
fn lost_lock_goes_to_the_next_thread() {
    let server = server();
    let client = listener(&server);
    for options in [renewed(9_000), renewed(9_000).max_hold(ms(4_500)), fixed(4_500)] {
        let lock = client.mutex_with("x", options).unwrap();
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| {
                scope.spawn(|| {
                    let guard = lock.try_lock_for(SOON).unwrap().expect("a turn");
                    guard.check().unwrap();
                    guard.fencing_token()
                })
            });
            until("they wait", || guard.waiters() == 3);
            if options == renewed(9_000) {
                ask::<()>(&server, &["DEL", "x"]);
            }
            for waiter in waiters {
                assert!(waiter.join().unwrap() > guard.fencing_token());
            }
        });
        assert!(guard.release().unwrap_err().is_lost());
    }
}

#[test]
fn a_panic_of_a_holder_lets_the_next_thread_in() {
    let server = server();
    warm(&server);
    let client = listener(&server);
    let lock = client.mutex("x").unwrap();
    let served = AtomicU32::new(0);
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            until("they wait", || guard.waiters() == 3);
            server.reset_stats();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        until("it is held", || exists(&server, "x"));
        for _ in 0..3 {
            scope.spawn(|| {
                let guard = lock.try_lock_for(SOON).unwrap().expect("a turn");
                served.fetch_add(1, Ordering::SeqCst);
                guard.release().unwrap();
            });
        }
        assert!(holder.join().is_err());
    });
    assert_eq!(served.into_inner(), 3);
    until("it is free", || !exists(&server, "x"));
}

/// The end of a thread that forgot its guard.
#[test]
fn the_end_of_a_thread_lets_the_next_one_in() {
    let server = server();
    let client = listener(&server);
    let lock = client.mutex_with("x", renewed(600_000)).unwrap();
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            until("one waits", || guard.waiters() == 1);
            std::mem::forget(guard);
        });
        until("it is held", || exists(&server, "x"));
        // Long before the lease of the one that ended is over.
        let guard = lock.try_lock_for(SOON).unwrap().expect("a turn");
        guard.check().unwrap();
        holder.join().unwrap();
    });
}

/// Everything at once: threads of three processes with deadlines, cancellations and panics.
#[test]
fn threads_with_deadlines_and_panics_exclude_each_other() {
    let server = server();
    let clients = [listener(&server), open(&server), open(&server)];
    let inside = AtomicU32::new(0);
    let (some, none, off) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                clients[0].mutex("x").unwrap().cancel_waits();
                thread::sleep(ms(7));
            }
        });
        let threads: Vec<_> = (0..12)
            .map(|number: usize| {
                let options = match number % 4 {
                    0 => renewed(60_000).linger(ms(3)),
                    1 => renewed(60_000).local_handoffs(2),
                    2 => fixed(60_000),
                    _ => renewed(60_000),
                };
                let lock = clients[number % 3].mutex_with("x", options).unwrap();
                let (inside, some, none, off) = (&inside, &some, &none, &off);
                scope.spawn(move || {
                    for round in 0..120 {
                        let wait = if round % 3 == 0 { ms(2) } else { SOON };
                        let begin = Instant::now();
                        match lock.try_lock_for(wait) {
                            Ok(Some(_guard)) => {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                                some.fetch_add(1, Ordering::SeqCst);
                                inside.fetch_sub(1, Ordering::SeqCst);
                            }
                            Ok(None) => {
                                assert!(wait == ms(2), "a minute for a turn");
                                none.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) if error.is_cancelled() => {
                                off.fetch_add(1, Ordering::SeqCst);
                            }
                            // A machine that stands still leaves no time for a reply. One that blames the server has
                            // waited for a reply for longer than replies usually take.
                            Err(error) if wait == ms(2) => {
                                let unheard = error.is_unreachable() && begin.elapsed() > ms(20);
                                let is_true = error.is_timeout() || error.is_unknown_outcome();
                                assert!(is_true || unheard, "{:?}: {error:?}", begin.elapsed());
                                none.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                })
            })
            .collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        done.store(true, Ordering::SeqCst);
        canceller.join().unwrap();
        assert_eq!(failed, 0);
    });
    assert_eq!(some.load(Ordering::SeqCst) + none.into_inner() + off.into_inner(), 12 * 120);
    assert!(some.into_inner() > 500);
    until("nothing is left", || !exists(&server, "x") && waiting(&server, "x") == 0);
}

//! Bugs that libraries for locks have shipped, each as a story that must end well here.
//!
//! | reported as | what went wrong |
//! | --- | --- |
//! | redisson#7272 | renewal was called off before it had been armed, and went on for ever |
//! | redisson#7367, #4822 | a script that was sent again counted 2 |
//! | redisson#3714 | what was remembered of a lost hold kept the next from being renewed |
//! | redisson#5761 | a message was missed, and the waiter slept for a whole lease |
//! | redisson#2099, #1104 | each waiter in the queue pushed the deadlines of others hours away |
//! | redisson#3521, #6198 | the lock of a thread that had died was renewed for ever |
//! | redisson#6025 | wake-ups that came too late let the waiter spin |
//! | redisson#6510 | keys of tokens never ended, 25 million of them |
//! | redisson#5019 | who gave up stayed in the queue |
//! | redsync#71, #72 | an extension did not look at validity |
//! | redis-py#1031 | a release deleted another's lock: WATCH without MULTI |
//! | redis-py#4279 | a renewal to a lease of zero deleted the key |
//! | node-redlock#169 | the expiry was reckoned from the first attempt |
//! | ShedLock#2583 | the release did not look whose lock it was |
//! | spring-integration#11049 | threads were let in before the key was gone |
//! | CURATOR-604 | what a dying session had left was taken for one's own |
//! | CURATOR-79 | a call that was broken off after the server had done it left an orphan |
//! | rslock | `validity - 500` was unsigned: a short lease held for ever, and its key stayed |
//!
//! That of locks on several servers stands with them: redlock-py#6, in quorum.rs.

use std::thread;
use std::time::Instant;

use crate::common::queue::all_have_left;
use crate::common::{
    SLACK, SOON, ask, behind_proxy, exists, fixed, ms, no_key_is_immortal, open, pttl, renewed,
    server, until, warm,
};
use leasehold::{LockClient, LossCause, Release, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Server};

/// What a client sent since the last look at it.
fn scripts(server: &Server) -> u64 {
    let sent = server.command_calls(&["eval", "evalsha"]);
    server.reset_stats();
    sent
}

/// How many wait, or are remembered to.
fn queued(server: &Server, name: &str) -> u64 {
    let count = |part: &str| ask::<u64>(server, &["ZCARD", &format!("{{{name}}}:{part}")]);
    count("queue") + count("beats")
}

#[test]
fn redisson_7272_cancelled_lock_is_not_renewed() {
    let server = server();
    warm(&server);
    let client = open(&server);
    for number in 0..300 {
        let lock = client.mutex_with(format!("x{}", number % 7), renewed(2_100)).unwrap();
        let guard = lock.lock().unwrap();
        // The worker has not yet heard of it.
        if number % 3 == 0 {
            let owned = guard.into_owned().unwrap();
            thread::spawn(move || drop(owned)).join().unwrap();
        } else {
            drop(guard);
        }
    }
    // A hold of which the worker heard, and whose owner's value would be renewed if anything was.
    let guard = client.mutex_with("last", renewed(2_100)).unwrap().lock().unwrap();
    thread::sleep(ms(800));
    assert!(guard.is_valid());
    guard.release().unwrap();
    scripts(&server);
    thread::sleep(ms(900));
    assert_eq!(scripts(&server), 0, "something is renewed still");
}

#[test]
fn redisson_7367_a_script_that_is_sent_again_counts_once() {
    let (server, proxy) = behind_proxy();
    let lock = LockClient::open(proxy.url()).unwrap().reentrant("x").unwrap();
    for action in [Action::LoseReply, Action::Twice] {
        let fault = proxy.add(Fault::request("x", action).at(Operation::Acquire));
        let guard = lock.lock().unwrap();
        assert_eq!(fault.fired(), 1);
        assert_eq!(ask::<Vec<u32>>(&server, &["HVALS", "x"]), [1]);
        guard.release().unwrap();
        assert!(!exists(&server, "x"), "it was counted twice");
    }
}

#[test]
fn redisson_3714_lost_and_retaken_lock_is_renewed() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(2_400)).unwrap();
    let lost = lock.lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    until("it is lost", || lost.loss().is_some());
    drop(lost);
    let guard = lock.lock().unwrap();
    let begin = Instant::now();
    while begin.elapsed() < ms(5_000) {
        assert!(guard.is_valid() && exists(&server, "x"), "after {:?}", begin.elapsed());
        thread::sleep(ms(20));
    }
}

#[test]
fn redisson_5761_a_missed_message_does_not_cost_a_lease() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
    let dropped = proxy.add(Fault::reply("message\r\n", Action::Drop).sticky());
    let holder = open(&server);
    for queue in [true, false] {
        let long = renewed(60_000);
        thread::scope(|scope| {
            let guard = if queue {
                holder.mutex_with("x", long).unwrap().lock().unwrap()
            } else {
                holder.reentrant_with("y", long).unwrap().lock().unwrap()
            };
            let waiter = scope.spawn(|| {
                let guard = if queue {
                    client.mutex("x").unwrap().lock()
                } else {
                    client.reentrant("y").unwrap().lock()
                };
                guard.map(drop)
            });
            until("it waits", || {
                if queue { queued(&server, "x") == 2 } else { heard_on(&server, "y") == 1 }
            });
            let begin = Instant::now();
            guard.release().unwrap();
            waiter.join().unwrap().unwrap();
            assert!(begin.spent() < SOON, "{:?}", begin.spent());
        });
    }
    assert!(dropped.fired() >= 2, "{}", dropped.fired());
}

/// How many listen for the release of a reentrant lock.
fn heard_on(server: &Server, name: &str) -> u64 {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    ask::<(String, u64)>(server, &["PUBSUB", "NUMSUB", &channel]).1
}

#[test]
fn redisson_2099_passing_waiters_delay_no_deadline() {
    let server = server();
    let guard = open(&server).mutex_with("x", renewed(60_000)).unwrap().lock().unwrap();
    // Each client is a process of its own to the queue.
    let clients: Vec<LockClient> = (0..6).map(|_| open(&server)).collect();
    let latest = || {
        let last: Vec<(String, f64)> =
            ask(&server, &["ZREVRANGE", "{x}:beats", "0", "0", "WITHSCORES"]);
        last.first().map(|(_, score)| *score)
    };
    let patient = open(&server);
    thread::scope(|scope| {
        let patient = scope.spawn(|| patient.mutex("x").unwrap().lock().map(|_| Instant::now()));
        until("the patient one waits", || queued(&server, "x") == 2);
        let mut most = 0;
        for _ in 0..5 {
            let hasty = clients.iter().map(|client| {
                scope.spawn(|| {
                    client.mutex("x").unwrap().try_lock_for(ms(150)).is_ok_and(|g| g.is_some())
                })
            });
            let hasty: Vec<_> = hasty.collect();
            until("some of them wait, or all have given up", || {
                most = most.max(queued(&server, "x"));
                hasty.iter().all(|hasty| hasty.is_finished())
            });
            assert!(hasty.into_iter().all(|hasty| !hasty.join().unwrap()));
            // A waiter counts as dead 3 s after it was last heard of, also where others wait.
            let deadline = latest().expect("the patient one waits") / 1e6;
            let (seconds, _): (f64, f64) = ask(&server, &["TIME"]);
            let away = deadline - seconds;
            assert!((0.0..=4.0).contains(&away), "it is {away} s away");
        }
        assert!(most > 2, "nobody ever waited beside the patient one");
        let begin = Instant::now();
        guard.release().unwrap();
        let took = patient.join().unwrap().unwrap().spent_since(begin);
        assert!(took < ms(1_000) + SLACK, "{took:?}");
    });
}

#[test]
fn redisson_3521_lock_of_a_dead_thread_is_not_renewed() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(2_400)).unwrap();
    let other = lock.clone();
    thread::spawn(move || std::mem::forget(other.lock().unwrap())).join().unwrap();
    until("it is given back", || !exists(&server, "x"));
    // A panic is an end too.
    let other = lock.clone();
    let died = thread::spawn(move || {
        std::mem::forget(other.lock().unwrap());
        panic!("on purpose");
    });
    assert!(died.join().is_err());
    until("it is given back", || !exists(&server, "x"));
    scripts(&server);
    thread::sleep(ms(1_000));
    assert_eq!(scripts(&server), 0, "a dead thread's lock is renewed");
}

#[test]
fn redisson_6025_late_wake_ups_do_not_make_a_waiter_spin() {
    const LATE: u64 = 200;
    let server = server();
    warm(&server);
    let client = open(&server);
    let guard = open(&server).reentrant_with("x", renewed(60_000)).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.reentrant("x").unwrap().lock().map(drop));
        until("it listens", || heard_on(&server, "x") == 1);
        // To open a client, to lock, and to begin to wait are questions too.
        scripts(&server);
        let begin = Instant::now();
        for _ in 0..LATE {
            let channel = "redisson_lock__channel:{x}";
            assert_eq!(ask::<u64>(&server, &["PUBLISH", channel, "0"]), 1);
        }
        let mut woken = 0;
        until("the last is answered", || {
            thread::sleep(ms(500));
            let asked = scripts(&server);
            woken += asked;
            asked <= 2
        });
        // One for each at most, two now that it listens, and one for each heartbeat.
        let most = LATE + 2 + begin.elapsed().as_secs();
        assert!(woken <= most, "{woken} questions for {LATE} messages");
        let begin = Instant::now();
        thread::sleep(ms(2_000));
        let idle = scripts(&server);
        let most = 4 + begin.elapsed().as_secs();
        assert!((1..=most).contains(&idle), "{idle} questions in {:?}", begin.elapsed());
        guard.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn redisson_6510_no_key_of_a_token_is_immortal() {
    let server = server();
    let client = open(&server);
    for number in 0..500 {
        drop(client.mutex_with(format!("x{number}"), fixed(3_000)).unwrap().lock().unwrap());
        drop(client.reentrant_with(format!("y{number}"), fixed(3_000)).unwrap().lock().unwrap());
    }
    assert!(!server.keys().is_empty(), "there is nothing to end");
    no_key_is_immortal(&server);
    until("all of them have ended", || server.keys().is_empty());
}

#[test]
fn redisson_5019_waiter_that_gives_up_leaves_the_queue() {
    let server = server();
    let guard = open(&server).mutex_with("x", renewed(60_000)).unwrap().lock().unwrap();
    let client = open(&server);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let lock = client.mutex("x").unwrap();
            let begin = Instant::now();
            let outcome = lock.try_lock_for(ms(3_000));
            // Where the machine stalls, its last request brings no answer.
            let served =
                outcome.map_or_else(|error| !error.is_unknown_outcome(), |guard| guard.is_some());
            (served, begin.elapsed() - ms(3_000))
        });
        until("it waits", || queued(&server, "x") == 2);
        let (served, late) = waiter.join().unwrap();
        assert!(!served);
        all_have_left(&server, "x", late);
    });
    guard.release().unwrap();
    assert!(!exists(&server, "x"), "it was handed to somebody who is not there");
}

#[test]
fn redsync_71_expired_lock_is_not_extended() {
    let server = server();
    let client = open(&server);
    // Redis has it still.
    let guard = client.mutex_with("y", fixed(20_000).max_hold(ms(1_500))).unwrap();
    let guard = guard.lock().unwrap();
    until("it is over", || !guard.is_valid());
    assert!(guard.extend(ms(60_000)).unwrap_err().is_lost());
    assert!((10_000..=20_000).contains(&pttl(&server, "y")));
    // Redis has it no longer, and then another has.
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    until("the key is gone", || !exists(&server, "x"));
    assert!(guard.extend(ms(60_000)).unwrap_err().is_lost());
    assert!(!exists(&server, "x"), "it was brought back");
    let next = open(&server).mutex_with("x", fixed(10_000)).unwrap().lock().unwrap();
    assert!(guard.extend(ms(60_000)).unwrap_err().is_lost());
    assert!(pttl(&server, "x") <= 10_000);
    next.check().unwrap();
}

#[test]
fn redis_py_1031_release_by_watch_spares_a_new_owner() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
    let options = fixed(20_000).wait(Wait::spin()).release(Release::watch());
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    let between = proxy.add(Fault::request("MULTI", Action::Hold));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(between.wait_fired(SOON));
            ask::<()>(&server, &["SET", "x", "another", "PX", "60000"]);
            between.release();
        });
        assert!(guard.release().unwrap_err().is_lost());
    });
    assert_eq!(ask::<String>(&server, &["GET", "x"]), "another");
}

#[test]
fn redis_py_4279_zero_lease_is_rejected_and_deletes_nothing() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("x", fixed(30_000)).unwrap().lock().unwrap();
    for span in [ms(0), std::time::Duration::from_nanos(1)] {
        assert!(guard.extend(span).unwrap_err().is_config());
        assert!(client.mutex_with("y", renewed(0)).unwrap_err().is_config());
    }
    assert!(guard.is_valid() && pttl(&server, "x") > 20_000);
    guard.check().unwrap();
}

#[test]
fn node_redlock_169_validity_counts_from_the_granted_attempt() {
    let server = server();
    let client = open(&server);
    for wait in [Wait::queue(), Wait::spin()] {
        // The wait is longer than the lease that comes of it.
        let _holder = open(&server).mutex_with("x", fixed(4_500)).unwrap().lock().unwrap();
        let begin = Instant::now();
        let guard = client.mutex_with("x", fixed(3_000).wait(wait)).unwrap().lock().unwrap();
        assert!(begin.elapsed() > ms(3_000), "it was to wait");
        assert!(guard.is_valid() && guard.remaining() > ms(500), "{:?}", guard.remaining());
        let left = pttl(&server, "x");
        assert!(left <= 3_000, "{left}");
    }
}

#[test]
fn shedlock_2583_a_late_release_leaves_anothers_lock_alone() {
    let server = server();
    let client = open(&server);
    for release in [Release::lua(), Release::watch()] {
        let options = fixed(1_500).wait(Wait::spin()).release(release);
        let late = client.mutex_with("x", options).unwrap().lock().unwrap();
        let other = open(&server).mutex_with("x", fixed(20_000)).unwrap();
        let guard = other.try_lock_for(SOON).unwrap().expect("the lease ends");
        assert!(late.release().unwrap_err().is_lost());
        guard.check().unwrap();
        guard.release().unwrap();
    }
    // The same when only Redis knows that it is another's.
    let robbed = client.mutex_with("x", fixed(20_000)).unwrap().lock().unwrap();
    ask::<()>(&server, &["SET", "x", "another", "PX", "60000"]);
    assert!(robbed.is_valid());
    assert!(robbed.release().unwrap_err().is_lost());
    assert_eq!(ask::<String>(&server, &["GET", "x"]), "another");
}

#[test]
fn spring_integration_11049_thread_enters_after_the_delete() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::builder(proxy.url()).command_timeout(SOON).build().unwrap();
    // Nothing is passed on, so that the release goes to Redis.
    let lock = client.mutex_with("x", renewed(30_000).local_handoffs(0)).unwrap();
    let guard = lock.lock().unwrap();
    let release = proxy.add(Fault::request("x", Action::Hold).at(Operation::Release));
    let first = guard.fencing_token();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            assert!(release.wait_fired(SOON));
            // Neither is it told that somebody has the lock, nor is it let in.
            lock.try_lock().unwrap().map(|guard| (guard.fencing_token(), Instant::now()))
        });
        let freed = scope.spawn(|| {
            assert!(release.wait_fired(SOON));
            thread::sleep(ms(200));
            assert!(exists(&server, "x"), "its release is held up");
            let freed = Instant::now();
            release.release();
            freed
        });
        guard.release().unwrap();
        let (token, at) = next.join().unwrap().expect("the lock was about to be free");
        assert!(token > first && at > freed.join().unwrap());
    });
}

#[test]
fn curator_604_leftover_of_an_earlier_hold_is_not_ours() {
    let server = server();
    // No request is without a reply in time: the client would release what such a one may have taken.
    let client = LockClient::builder(server.url()).command_timeout(SOON).build().unwrap();
    // The hold ends before its lease, which goes on in Redis under the old hold's value.
    let lock = client.mutex_with("x", fixed(60_000).max_hold(ms(1_500))).unwrap();
    // Kept, as its end would release what is left; and not by this thread, which locks again.
    let old = lock.lock().unwrap().into_owned().unwrap();
    until("it is over", || !old.is_valid());
    assert_eq!(old.loss().unwrap().cause(), LossCause::MaxHold);
    let token = old.fencing_token();
    let owner: String = ask(&server, &["GET", "x"]);
    assert!(lock.try_lock().unwrap().is_none(), "the old hold's key was taken for a new one's");
    ask::<bool>(&server, &["PEXPIRE", "x", "1"]);
    let guard = lock.lock().unwrap();
    assert_ne!(ask::<String>(&server, &["GET", "x"]), owner);
    assert!(guard.fencing_token() > token);
}

#[test]
fn curator_79_grant_to_a_broken_off_call_is_released() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::builder(proxy.url()).command_timeout(ms(2_000)).build().unwrap();
    let lock = client.mutex_with("x", fixed(60_000)).unwrap();
    // The connection is there, so that the next answer is the one that grants.
    drop(lock.lock().unwrap());
    let late = proxy.add(Fault::reply("", Action::Hold).at(Operation::Acquire));
    thread::scope(|scope| {
        let call = scope.spawn(|| lock.try_lock().map(drop));
        until("the server has done it", || exists(&server, "x"));
        // The answer is there when nobody waits for it any more.
        let error = call.join().unwrap().unwrap_err();
        assert!(error.is_unknown_outcome(), "{error}");
    });
    assert_eq!(late.fired(), 1);
    late.release();
    until("the orphan is gone", || !exists(&server, "x"));
}

#[test]
fn rslock_too_short_lease_is_no_lock_and_leaves_no_key() {
    let server = server();
    let client = open(&server);
    // The drift allowance is more than the lease.
    for ttl in [1, 2] {
        assert!(client.mutex_with("x", fixed(ttl)).unwrap().try_lock().is_err());
        until("the key is gone", || !exists(&server, "x"));
    }
    // What is valid is so for less than the lease, and not for ever.
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    assert!(guard.remaining() < ms(1_500));
    until("it is over", || !guard.is_valid() && !exists(&server, "x"));
}

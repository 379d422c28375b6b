//! How a lease is given back: only if it is still the holder's, and by whatever way there is.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Shared, mpsc};
use std::thread;
use std::time::Instant;

use crate::common::{
    HASTE, SLACK, SOON, ask, behind_proxy, exists, fixed, hasty, ms, open, open_at, patient, pttl,
    renewed, server, until, warm,
};
use leasehold::{Guard, LockClient, LockOptions, LossCause, Release, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

const WAYS: [Release; 2] = [Release::lua(), Release::watch()];

/// What a callback owns is dropped when the lock is free, and may want it, or panic.
#[test]
fn values_of_a_callback_are_dropped_after_the_release() {
    struct AtItsEnd<F: FnMut()>(F);
    impl<F: FnMut()> Drop for AtItsEnd<F> {
        fn drop(&mut self) {
            self.0();
        }
    }
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let (sender, taken) = mpsc::channel();
    let again = lock.clone();
    let end = AtItsEnd(move || {
        let guard = again.try_lock().map(|guard| guard.is_some());
        sender.send(guard.is_ok_and(|taken| taken)).unwrap();
    });
    let guard = lock.lock().unwrap();
    guard.on_loss(move |_| drop(end));
    guard.release().unwrap();
    assert!(taken.recv().unwrap());
    let end = AtItsEnd(|| std::panic::resume_unwind(Box::new(())));
    let guard = lock.lock().unwrap();
    guard.on_loss(move |_| drop(end));
    assert!(catch_unwind(|| guard.release()).is_err());
    drop(lock.try_lock().unwrap().expect("free"));
}

#[test]
fn both_release_methods_delete_only_the_key() {
    let server = server();
    let client = open(&server);
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(20_000).wait(Wait::spin()).release(way)).unwrap();
        let _other = client.mutex("y").unwrap().lock().unwrap();
        let guard = lock.lock().unwrap();
        guard.release().unwrap();
        assert!(!exists(&server, "x") && exists(&server, "y"), "{way:?}");
        drop(lock.lock().unwrap());
        assert!(!exists(&server, "x"), "{way:?}");
    }
}

#[test]
fn release_by_watch_sends_no_script() {
    let server = server();
    let client = open(&server);
    let lock = client
        .mutex_with("x", LockOptions::new().wait(Wait::spin()).release(Release::watch()))
        .unwrap();
    let guard = lock.lock().unwrap();
    server.reset_stats();
    guard.release().unwrap();
    let ran = server.commands();
    assert_eq!(ran.client_commands(&[]), 0, "{ran:?}");
    assert_eq!((ran.calls("watch"), ran.calls("multi"), ran.calls("exec")), (1, 1, 1));
}

/// Regression, ShedLock#2583: unlock did not check the value.
#[test]
fn release_does_not_touch_another_owners_key() {
    let server = server();
    let client = open(&server);
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(20_000).wait(Wait::spin()).release(way)).unwrap();
        let guard = lock.lock().unwrap();
        ask::<()>(&server, &["SET", "x", "other", "PX", "60000"]);
        let error = guard.release().unwrap_err();
        assert!(error.is_lost() && error.is_not_held(), "{way:?}: {error}");
        assert!(error.to_string().contains("lock \"x\""), "{error}");
        let value: String = ask(&server, &["GET", "x"]);
        assert_eq!(value, "other");
        // A drop does not touch it either.
        ask::<()>(&server, &["DEL", "x"]);
        let guard = lock.lock().unwrap();
        ask::<()>(&server, &["SET", "x", "other", "PX", "60000"]);
        drop(guard);
        assert!(pttl(&server, "x") > 50_000);
        ask::<()>(&server, &["DEL", "x"]);
    }
}

#[test]
fn release_does_not_touch_a_key_of_another_type() {
    let server = server();
    let client = open(&server);
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(20_000).wait(Wait::spin()).release(way)).unwrap();
        let guard = lock.lock().unwrap();
        ask::<()>(&server, &["DEL", "x"]);
        ask::<()>(&server, &["LPUSH", "x", "other"]);
        assert!(guard.release().unwrap_err().is_lost(), "{way:?}");
        assert!(exists(&server, "x"));
        ask::<()>(&server, &["DEL", "x"]);
    }
    // Whatever finds out, it is a loss as any other: a lock of another kind has the name now.
    let lock = client.mutex_with("x", fixed(20_000)).unwrap();
    let other: &[&str] = &["HSET", "x", "other", "1"];
    for act in ACTS {
        taken(&server, lock.lock().unwrap(), other, act);
        ask::<()>(&server, &["DEL", "x"]);
    }
    assert!(lock.with(|_| takes(&server, other)).unwrap_err().is_lost());
    assert!(exists(&server, "x"));
    ask::<()>(&server, &["DEL", "x"]);
    let lock = client.reentrant_with("x", fixed(20_000)).unwrap();
    let other: &[&str] = &["SET", "x", "other"];
    for act in ACTS {
        taken(&server, lock.lock().unwrap(), other, act);
        ask::<()>(&server, &["DEL", "x"]);
    }
    assert!(lock.with(|_| takes(&server, other)).unwrap_err().is_lost());
    assert!(exists(&server, "x"));
}

const ACTS: [&str; 4] = ["release", "check", "extend", "transaction"];

/// Another takes the name, and has it when the holder asks.
#[track_caller]
fn taken(server: &Server, guard: Guard, other: &[&str], act: &str) {
    takes(server, other);
    let cause = Arc::new(Shared::new(None));
    let hears = Arc::clone(&cause);
    guard.on_loss(move |loss| *hears.lock().unwrap() = Some(loss.cause()));
    let outcome = match act {
        "check" => guard.check(),
        "extend" => guard.extend(ms(30_000)),
        "transaction" => guard.transaction(|pipe| _ = pipe.cmd("SET").arg("y").arg(1)).map(drop),
        _ => Ok(()),
    };
    assert!(act == "release" || !guard.is_valid(), "{act}");
    let error = outcome.and_then(|()| guard.release()).unwrap_err();
    assert!(error.is_lost() && !exists(server, "y"), "{act}: {error}");
    until("the callback ran", || cause.lock().unwrap().is_some());
    assert_eq!(*cause.lock().unwrap(), Some(LossCause::Taken), "{act}");
    assert!(exists(server, "x"), "{act}");
}

fn takes(server: &Server, other: &[&str]) {
    ask::<()>(server, &["DEL", "x"]);
    ask::<()>(server, other);
}

/// What is left to the worker to give back is done, too, once the name is another's.
#[test]
fn worker_stops_at_a_key_of_another_type() {
    let server = server();
    warm(&server);
    let lock = open(&server).mutex_with("x", fixed(20_000)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            std::mem::forget(lock.lock().unwrap());
            takes(&server, &["HSET", "x", "other", "1"]);
            server.reset_stats();
        });
    });
    let asked = || server.command_calls(&["eval", "evalsha"]);
    until("the worker has asked", || asked() > 0);
    // Long enough for what failed to be tried again.
    thread::sleep(ms(1_500));
    assert_eq!(asked(), 1);
    assert!(exists(&server, "x"));
}

/// A command of the user's on a key that is none of the lock's is no loss.
#[test]
fn wrong_type_error_in_a_transaction_is_no_loss() {
    let server = server();
    let guard = open(&server).mutex_with("x", fixed(20_000)).unwrap().lock().unwrap();
    ask::<()>(&server, &["SET", "list", "none"]);
    let commands = |pipe: &mut leasehold::redis::Pipeline| {
        pipe.cmd("LPUSH").arg("list").arg(1).cmd("SET").arg("y").arg(1);
    };
    let answers = guard.transaction(commands).unwrap();
    assert_eq!(answers.len(), 2);
    assert!(exists(&server, "y") && guard.is_valid());
    guard.release().unwrap();
}

#[test]
fn release_after_expiry_is_an_error_and_touches_no_key() {
    let server = server();
    let client = open(&server);
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(1_500).wait(Wait::spin()).release(way)).unwrap();
        let guard = lock.lock().unwrap();
        until("it is over", || !exists(&server, "x"));
        let next = open(&server).mutex("x").unwrap().try_lock().unwrap().expect("free");
        server.reset_stats();
        assert!(guard.release().unwrap_err().is_lost());
        // What is known to be over is not asked about.
        assert_eq!(server.command_calls(&["evalsha", "eval", "watch"]), 0);
        next.check().unwrap();
        next.release().unwrap();
    }
}

/// Regression, redis-py#1031: WATCH without MULTI deleted another's lock. The key changes owner
/// between the look and the transaction.
#[test]
fn release_by_watch_of_a_key_changed_meanwhile_is_a_loss() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    let options = fixed(20_000).wait(Wait::spin()).release(Release::watch());
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    let hold = proxy.add(Fault::request("MULTI", Action::Hold));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(hold.wait_fired(SOON));
            ask::<()>(&server, &["SET", "x", "other", "PX", "60000"]);
            hold.release();
        });
        let error = guard.release().unwrap_err();
        assert!(error.is_lost(), "{error}");
    });
    let value: String = ask(&server, &["GET", "x"]);
    assert_eq!(value, "other");
    // The connection is not left watching or within a transaction.
    assert!(client.mutex("y").unwrap().try_lock().unwrap().is_some());
}

/// The key ends between the look and the transaction, which Redis does not count as a change.
#[test]
fn release_by_watch_of_a_key_expired_meanwhile_is_a_loss() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    let options = fixed(20_000).wait(Wait::spin()).release(Release::watch());
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    let hold = proxy.add(Fault::request("MULTI", Action::Hold));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(hold.wait_fired(SOON));
            ask::<()>(&server, &["DEL", "x"]);
            hold.release();
        });
        let error = guard.release().unwrap_err();
        assert!(error.is_lost(), "{error}");
    });
}

/// A release whose answer is lost is repeated, and "not yours" then does not say whether it was done or the lock was lost
/// before (rule 15).
#[test]
fn release_with_a_lost_reply_is_unknown() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(20_000).wait(Wait::spin()).release(way)).unwrap();
        let guard = lock.lock().unwrap();
        let fault = match way {
            way if way == Release::watch() => Fault::request("EXEC", Action::LoseReply),
            _ => Fault::request("", Action::LoseReply).at(Operation::Release),
        };
        let fault = proxy.add(fault);
        let error = guard.release().unwrap_err();
        assert!(error.is_unknown_outcome(), "{error:?}");
        assert_eq!(fault.fired(), 1);
        assert!(!exists(&server, "x"));
    }
}

/// The repeated release must not touch who came between.
#[test]
fn repeated_release_does_not_touch_the_next_owner() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex_with("x", fixed(20_000)).unwrap();
    let guard = lock.lock().unwrap();
    let lost = proxy.add(Fault::request("x", Action::LoseReply));
    let held = proxy.add(Fault::request("x", Action::Hold).nth(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(held.wait_fired(SOON));
            ask::<()>(&server, &["SET", "x", "other", "NX", "PX", "60000"]);
            held.release();
        });
        let error = guard.release().unwrap_err();
        assert!(error.is_unknown_outcome(), "{error:?}");
    });
    assert_eq!((lost.fired(), held.fired()), (1, 1));
    let value: String = ask(&server, &["GET", "x"]);
    assert_eq!(value, "other");
}

#[test]
fn failed_release_is_reported_and_the_worker_finishes_it() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    for way in WAYS {
        let lock = client.mutex_with("x", renewed(30_000).wait(Wait::spin()).release(way)).unwrap();
        for dropped in [false, true] {
            let guard = lock.lock().unwrap();
            let token = guard.fencing_token();
            proxy.refuse();
            proxy.cut();
            let begin = Instant::now();
            if dropped {
                drop(guard);
            } else {
                let error = guard.release().unwrap_err();
                assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
            }
            // Two exchanges at most: the second where the first met a dead connection.
            assert!(begin.spent() < HASTE * 2 + SLACK, "{:?}", begin.spent());
            assert!(exists(&server, "x") && !lock.is_held_by_current_thread());
            proxy.heal();
            until("the worker has released it", || !exists(&server, "x"));
            let next = lock.try_lock_for(SOON).unwrap().expect("free");
            assert!(next.fencing_token() > token);
        }
    }
}

/// What the worker has to give back may live longer than its first lease.
#[test]
fn extended_lease_is_released_after_a_long_outage() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let guard = client.mutex_with("x", fixed(2_000)).unwrap().lock().unwrap();
    guard.extend(ms(60_000)).unwrap();
    proxy.refuse();
    proxy.cut();
    assert!(guard.release().is_err());
    thread::sleep(ms(3_000));
    proxy.heal();
    until("it is given back", || !exists(&server, "x"));
}

/// Regression, redisson#7272: a renewal that was cancelled before it was armed ran for ever.
#[cfg(feature = "testing")]
#[test]
fn a_release_right_after_the_grant_leaves_no_renewal_behind() {
    let server = leasehold::testing::Server::standing_still();
    let client = server.connect(LockClient::builder("redis://memory").announce(false)).unwrap();
    for number in 0..300 {
        let lock = client.mutex_with(format!("x{}", number % 7), renewed(2_100)).unwrap();
        lock.lock().unwrap().release().unwrap();
    }
    // Each request counts from now on, as its answer is delayed.
    let link = server.link(&client);
    link.delay_answers(1_000, std::time::Duration::from_micros(1));
    server.advance(ms(30_000));
    assert_eq!(link.faults(), 0);
}

/// A renewal that overtakes or follows the release makes no key.
#[test]
fn renewal_racing_the_release_makes_no_key() {
    let (server, proxy) = behind_proxy();
    let losses = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&losses);
    let builder = patient(LockClient::builder(proxy.url()));
    let client =
        builder.on_loss(move |_| _ = count.fetch_add(1, Ordering::SeqCst)).build().unwrap();
    let lock = client.mutex_with("x", renewed(2_400)).unwrap();
    let guard = lock.lock().unwrap();
    let renewal = proxy.add(Fault::request("x", Action::Hold).at(Operation::Renew));
    assert!(renewal.wait_fired(SOON));
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
    let before = server.command_calls(&["eval", "evalsha"]);
    renewal.release();
    until("the renewal ran", || server.command_calls(&["eval", "evalsha"]) > before);
    thread::sleep(ms(300));
    assert!(!exists(&server, "x"));
    assert_eq!(losses.load(Ordering::SeqCst), 0, "what was given back cannot be lost");
}

#[test]
fn a_release_reports_the_loss_it_finds_with_its_cause() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    let error = guard.release().unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("deleted"), "{error}");
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["SET", "x", "other"]);
    assert!(guard.check().unwrap_err().is_lost());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Taken);
    assert_eq!(guard.loss().expect("a loss").name(), b"x");
    assert_eq!(guard.loss().expect("a loss").fencing_token(), guard.fencing_token());
    assert!(guard.release().unwrap_err().to_string().contains("another holder"));
}

#[test]
fn with_releases_and_reports_a_loss() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    assert!(lock.with(|guard| guard.is_valid()).unwrap());
    assert!(!exists(&server, "x"));
    let error = lock.with(|_| ask::<()>(&server, &["DEL", "x"])).unwrap_err();
    assert!(error.is_lost(), "{error}");
    // Inside another hold it gives back only its own.
    let outer = lock.lock().unwrap();
    assert_eq!(lock.with(|guard| guard.hold_count()).unwrap(), 2);
    assert_eq!(outer.hold_count(), 1);
    assert!(exists(&server, "x"));
}

/// Rule 6: a request whose connection broke comes after the release, and before its own deadline;
/// the answer to the release comes after that deadline. It counts when the release was sent.
#[test]
fn request_that_ran_after_a_slow_release_leaves_no_owner() {
    let (server, proxy) = behind_proxy();
    let bound = ms(2_000);
    let client = LockClient::builder(proxy.url()).command_timeout(bound).build().unwrap();
    let lock = client.mutex("x").unwrap();
    let cut = proxy.add(Fault::request("1q:", Action::Cut).at(Operation::Acquire));
    let begin = Instant::now();
    let guard = lock.try_lock().unwrap().expect("it is free");
    assert_eq!(cut.fired(), 1);
    let owner: String = ask(&server, &["GET", "x"]);
    thread::sleep(bound / 4);
    let answer = proxy.add(Fault::reply(":1\r\n", Action::Hold));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(answer.wait_fired(SOON));
            assert!(!exists(&server, "x"));
            // The first request comes now, and does what it says.
            ask::<()>(&server, &["SET", "x", &owner, "NX", "PX", "30000"]);
            thread::sleep((bound + ms(100)).saturating_sub(begin.elapsed()));
            answer.release();
        });
        guard.release().unwrap();
    });
    until("the ghost is gone", || !exists(&server, "x"));
}

/// The first request never left: the second is the first, and its answer counts.
#[test]
fn loss_is_reported_by_a_release_on_a_dead_connection() {
    let server = server();
    let client = open(&server);
    for way in WAYS {
        let lock = client.mutex_with("x", fixed(20_000).wait(Wait::spin()).release(way)).unwrap();
        let guard = lock.lock().unwrap();
        // It comes back without the key.
        server.kill();
        server.restart();
        let error = guard.release().expect_err("it was lost");
        assert!(error.is_lost(), "{way:?}: {error}");
    }
}

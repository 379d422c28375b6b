//! Leases are renewed while they are held, and no longer; what is lost is told at once, and why.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    SLACK, SOON, ask, behind_proxy, exists, fixed, hasty, ms, open, patient, pttl, renewed, server,
    until, within,
};
#[cfg(feature = "testing")]
use leasehold::testing::Server as Memory;
use leasehold::{Guard, LockClient, Loss, LossCause};
use leasehold_support::{Action, Fault, Proxy, Server};

/// A lease that outlasts the pauses of a machine, where its renewal has to find something out, and when that is due.
const RENEWED: u64 = 6_000;
const A_THIRD: Duration = ms(RENEWED / 3);

/// A client, and what its callback is told.
fn listening(server: &Server) -> (LockClient, mpsc::Receiver<Loss>) {
    let (sender, losses) = mpsc::channel();
    // Its renewals are counted.
    let builder = patient(LockClient::builder(server.url())).announce(false);
    let client = builder.on_loss(move |loss| sender.send(loss.clone()).unwrap()).build().unwrap();
    (client, losses)
}

/// The hold is lost for this cause within this time, and the callback is told the same.
fn is_lost(guard: &Guard, losses: &mpsc::Receiver<Loss>, limit: Duration, cause: LossCause) {
    within(limit, "the guard is invalid", || !guard.is_valid());
    let reported = losses.recv_timeout(SOON).expect("the callback is called");
    let loss = guard.loss().expect("a loss");
    assert_eq!((loss.cause(), &reported), (cause, &loss));
    assert_eq!(loss.fencing_token(), guard.fencing_token());
    assert_eq!(guard.remaining(), Duration::ZERO);
    for error in [guard.check().unwrap_err(), guard.extend(ms(1_000)).unwrap_err()] {
        assert!(error.is_lost() && error.is_not_held(), "{error}");
    }
}

/// Waits until the lease was renewed so often, and looks at more all the time.
#[track_caller]
fn until_renewed(server: &Server, guard: &Guard, key: &str, times: u32, look: impl Fn()) {
    let (mut last, mut renewals) = (pttl(server, key), 0);
    until("it is renewed again and again", || {
        assert!(guard.is_valid() && exists(server, key), "{:?}", guard.loss());
        look();
        let left = pttl(server, key);
        renewals += u32::from(left > last);
        last = left;
        renewals >= times
    });
}

/// A server whose time stands still, a client of it, and what its callback is told.
#[cfg(feature = "testing")]
fn standing() -> (Memory, LockClient, mpsc::Receiver<Loss>) {
    let server = Memory::standing_still();
    let (sender, losses) = mpsc::channel();
    let builder = LockClient::builder("redis://memory").announce(false);
    let builder = builder.on_loss(move |loss| sender.send(loss.clone()).unwrap());
    let client = server.connect(builder).unwrap();
    (server, client, losses)
}

#[test]
fn a_held_lock_is_renewed_for_many_leases() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("x", renewed(6_000)).unwrap().lock().unwrap();
    let rival = open(&server).mutex("x").unwrap();
    until_renewed(&server, &guard, "x", 4, || {
        assert!(rival.try_lock().unwrap().is_none());
        assert!(guard.remaining() <= ms(6_000));
    });
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(rival.try_lock().unwrap().is_some());
}

/// Every third of the lease, and not more often.
#[cfg(feature = "testing")]
#[test]
fn renewal_is_one_command_every_third_of_the_lease() {
    let (server, client, _losses) = standing();
    let guard = client.mutex_with("x", renewed(2_100)).unwrap().lock().unwrap();
    let link = server.link(&client);
    // Each request counts, as its answer is delayed.
    link.delay_answers(20_000, Duration::from_micros(1));
    server.advance(ms(700 * 8 + 350));
    assert_eq!(link.faults(), 8);
    link.restore();
    guard.check().unwrap();
}

#[test]
fn fixed_lease_is_not_renewed_and_expires() {
    let server = server();
    let (client, losses) = listening(&server);
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    server.reset_stats();
    is_lost(&guard, &losses, ms(1_500) + SLACK, LossCause::Expired);
    assert_eq!(server.command_calls(&["eval", "evalsha"]), 0);
    until("the key is gone", || !exists(&server, "x"));
}

#[test]
fn max_hold_ends_the_hold_and_its_renewal() {
    let server = server();
    let (client, losses) = listening(&server);
    let options = renewed(6_000).max_hold(ms(3_500));
    let begin = Instant::now();
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    until("its time is nearly over", || {
        let valid = guard.is_valid();
        // Looked at before: between the two the machine may stand still.
        let over = begin.elapsed() >= ms(3_400);
        assert!(valid || over, "lost after {:?}", begin.elapsed());
        over
    });
    is_lost(&guard, &losses, ms(100) + SLACK, LossCause::MaxHold);
    assert!(begin.elapsed() >= ms(3_465));
    until("the key is gone", || !exists(&server, "x"));
}

/// Its guard is there still, and so was the worker's note of the next renewal.
#[test]
fn hold_ended_by_max_hold_is_not_renewed_again() {
    let server = server();
    let client = open(&server);
    // It ends right after a renewal, so that the next would be due before the key's end.
    let lock = client.mutex_with("x", renewed(4_500).max_hold(ms(1_800))).unwrap();
    let (guard, mut last) = loop {
        let guard = lock.lock().unwrap();
        until("it is over", || guard.loss().is_some());
        let left = pttl(&server, "x");
        // If the machine stood still, no renewal would have been due.
        if left > 1_800 {
            break (guard, left);
        }
    };
    until("the key is gone", || {
        let left = pttl(&server, "x");
        assert!(left <= last, "renewed from {last} to {left} ms");
        last = left;
        last <= 0
    });
    drop(guard);
}

#[cfg(feature = "testing")]
#[test]
fn max_hold_also_ends_a_longer_lease_and_extensions() {
    let (server, client, losses) = standing();
    let options = fixed(10_000).max_hold(ms(2_000));
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    assert!(guard.remaining() <= ms(2_000));
    guard.extend(ms(20_000)).unwrap();
    assert!(guard.remaining() <= ms(2_000));
    server.advance(ms(2_000));
    is_lost(&guard, &losses, SOON, LossCause::MaxHold);
}

/// Regression, CURATOR-604: what a dying session had left was taken for one's own.
#[test]
fn leftover_of_an_earlier_hold_is_not_ours() {
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

/// Each hold has its own span.
#[cfg(feature = "testing")]
#[test]
fn max_hold_counts_from_each_hold_anew() {
    let (server, client, losses) = standing();
    let lock = client.mutex_with("x", renewed(3_000).max_hold(ms(2_500))).unwrap();
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        server.advance(ms(2_400));
        guard.release().unwrap();
    }
    assert!(losses.try_recv().is_err());
}

#[cfg(feature = "testing")]
#[test]
fn max_renewals_lets_the_lease_run_out_after_the_last() {
    let (server, client, losses) = standing();
    let link = server.link(&client);
    for most in [0, 2] {
        let options = renewed(2_100).max_renewals(most);
        let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
        let before = link.faults();
        // Each request counts, as its answer is delayed.
        link.delay_answers(20_000, Duration::from_micros(1));
        let lasted = server.run_until(|| guard.loss().is_some());
        assert_eq!(link.faults() - before, u64::from(most));
        link.restore();
        // 1 % and 2 ms are kept for what two clocks may differ by. Time may pass by a second at once.
        let least = ms(2_100 + 700 * u64::from(most));
        assert!((least - ms(60)..=least + ms(1_000)).contains(&lasted), "{most}: {lasted:?}");
        is_lost(&guard, &losses, SOON, LossCause::RenewalsUsedUp);
        drop(guard);
        server.run_until(|| !server.keys().contains(&b"x".to_vec()));
    }
}

/// A third of the lease at most, and the key is not made again.
#[test]
fn deleted_key_is_a_loss_within_a_renewal_and_stays_away() {
    let server = server();
    let (client, losses) = listening(&server);
    for command in [["DEL", "x"].as_slice(), &["FLUSHALL"]] {
        let guard = client.mutex_with("x", renewed(RENEWED)).unwrap().lock().unwrap();
        ask::<()>(&server, command);
        is_lost(&guard, &losses, A_THIRD + SLACK, LossCause::Deleted);
        // The next renewal would be due by then.
        thread::sleep(A_THIRD + ms(100));
        assert!(server.keys().iter().all(|key| key.ends_with(b"fence")), "made again");
        assert!(guard.release().unwrap_err().is_lost());
    }
}

#[test]
fn key_of_another_owner_is_a_loss_and_is_not_touched() {
    let server = server();
    let (client, losses) = listening(&server);
    let lock = client.mutex_with("x", renewed(RENEWED)).unwrap();
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["SET", "x", "other", "PX", "60000"]);
    is_lost(&guard, &losses, A_THIRD + SLACK, LossCause::Taken);
    drop(guard);
    assert_eq!(ask::<String>(&server, &["GET", "x"]), "other");
    assert!(pttl(&server, "x") > 50_000);
    // Of another type it is another's all the more.
    ask::<()>(&server, &["DEL", "x"]);
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    ask::<()>(&server, &["HSET", "x", "other", "1"]);
    is_lost(&guard, &losses, A_THIRD + SLACK, LossCause::Taken);
}

#[test]
fn reentrant_lock_of_another_owner_is_a_loss() {
    let server = server();
    let (client, losses) = listening(&server);
    let guard = client.reentrant_with("x", renewed(RENEWED)).unwrap().lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    ask::<()>(&server, &["HSET", "x", "other", "1"]);
    is_lost(&guard, &losses, A_THIRD + SLACK, LossCause::Taken);
    drop(guard);
    assert_eq!(ask::<u64>(&server, &["HLEN", "x"]), 1);
}

#[test]
fn outage_as_long_as_the_lease_is_a_loss_at_its_end() {
    let server = server();
    let (client, losses) = listening(&server);
    let guard = client.mutex_with("x", renewed(RENEWED)).unwrap().lock().unwrap();
    server.pause();
    is_lost(&guard, &losses, ms(RENEWED) + SLACK, LossCause::Unreachable);
    server.resume();
}

#[test]
fn outage_shorter_than_the_lease_is_no_loss() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let client = hasty(&proxy.url());
    let guard = client.mutex_with("x", renewed(12_000)).unwrap().lock().unwrap();
    for round in 0..2 {
        if round == 0 {
            proxy.refuse();
            proxy.cut();
        } else {
            proxy.black_hole();
        }
        until("a renewal is due", || guard.remaining() < ms(7_500));
        proxy.heal();
        until("it is renewed", || pttl(&server, "x") > 9_000);
    }
    assert!(guard.is_valid());
    guard.release().unwrap();
}

/// First the guard, then the callback.
#[test]
fn the_callback_runs_after_the_guard_is_invalid() {
    let server = server();
    let key_held = Arc::new(StdMutex::new(None));
    let (sender, seen) = mpsc::channel();
    let held = Arc::clone(&key_held);
    let builder = patient(LockClient::builder(server.url()));
    let client = builder
        .on_loss(move |_| {
            let owned: std::sync::MutexGuard<'_, Option<leasehold::OwnedLease>> =
                held.lock().unwrap();
            sender.send(owned.as_ref().is_some_and(leasehold::OwnedLease::is_valid)).unwrap();
        })
        .build()
        .unwrap();
    for deleted in [true, false] {
        let options = if deleted { renewed(3_000) } else { fixed(1_500) };
        let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
        *key_held.lock().unwrap() = Some(guard.into_owned().expect("held once"));
        if deleted {
            ask::<()>(&server, &["DEL", "x"]);
        }
        assert!(!seen.recv_timeout(SOON).unwrap(), "valid when the callback ran");
        assert!(key_held.lock().unwrap().take().expect("there").release().unwrap_err().is_lost());
        until("the key is gone", || !exists(&server, "x"));
    }
    assert!(seen.recv_timeout(ms(200)).is_err(), "one loss, one call");
}

/// Neither the worker nor the next callback suffers, nor do renewals wait for one that takes long.
#[cfg(feature = "testing")]
#[test]
fn a_callback_that_panics_or_hangs_does_no_harm() {
    let server = Memory::standing_still();
    let calls = Arc::new(AtomicUsize::new(0));
    let (end, ended) = mpsc::channel::<()>();
    let (counted, ended) = (Arc::clone(&calls), StdMutex::new(ended));
    let builder = LockClient::builder("redis://memory").on_loss(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("on purpose");
        }
        // It hangs until the end of the test.
        let _ = ended.lock().unwrap().recv();
    });
    let client = server.connect(builder).unwrap();
    let kept = client.mutex_with("kept", renewed(3_000)).unwrap().lock().unwrap();
    for name in ["a", "b", "c"] {
        let guard = client.mutex_with(name, renewed(900)).unwrap().lock().unwrap();
        assert!(server.delete(name));
        server.run_until(|| !guard.is_valid());
    }
    until("two are told, and the second hangs", || calls.load(Ordering::SeqCst) >= 2);
    server.advance(ms(60_000));
    assert!(kept.is_valid());
    kept.check().unwrap();
    drop(end);
    until("all are told", || calls.load(Ordering::SeqCst) == 3);
}

#[cfg(feature = "testing")]
#[test]
fn released_lock_calls_no_callback() {
    let (server, client, losses) = standing();
    let lock = client.mutex_with("x", renewed(2_400)).unwrap();
    for round in 0..20 {
        let guard = lock.lock().unwrap();
        if round % 5 == 0 {
            server.advance(ms(850));
        }
        guard.release().unwrap();
    }
    server.advance(ms(10_000));
    assert!(losses.try_recv().is_err());
}

/// Regression, redisson#3714: after a loss, a stale local entry kept the new hold from renewal.
#[cfg(feature = "testing")]
#[test]
fn a_lock_that_was_lost_and_taken_again_is_renewed() {
    let (server, client, losses) = standing();
    let lock = client.mutex_with("x", renewed(2_400)).unwrap();
    let guard = lock.lock().unwrap();
    assert!(server.delete("x"));
    server.advance(ms(800));
    is_lost(&guard, &losses, SOON, LossCause::Deleted);
    assert!(guard.release().unwrap_err().is_lost());
    let guard = lock.lock().unwrap();
    server.advance(ms(60_000));
    assert!(guard.is_valid() && losses.try_recv().is_err());
    guard.release().unwrap();
}

/// Renewals have a connection of their own.
#[test]
fn renewal_is_not_starved_by_an_exhausted_pool() {
    let (server, proxy) = behind_proxy();
    let client = LockClient::builder(proxy.url())
        .max_size(2)
        .max_wait(ms(1_000))
        .command_timeout(SOON * 2)
        .build()
        .unwrap();
    let guard = client.mutex_with("kept", renewed(6_000)).unwrap().lock().unwrap();
    let stuck = proxy.add(Fault::request("stuck", Action::Hold).sticky());
    thread::scope(|scope| {
        for number in 0..2 {
            let lock = client.mutex(format!("stuck{number}")).unwrap();
            scope.spawn(move || lock.try_lock().map(drop));
        }
        until("all of the pool is in use", || stuck.fired() == 2);
        let error = client.mutex("other").unwrap().try_lock().unwrap_err();
        assert!(error.is_pool_exhausted() || error.is_unreachable(), "{error}");
        until_renewed(&server, &guard, "kept", 3, || {});
        stuck.remove();
    });
}

/// Regression, redsync#71 and #72: extend did not look at validity. It must neither bring back
/// what is over nor lengthen what another has.
#[test]
fn extend_after_expiry_is_a_loss_and_makes_no_key() {
    let server = server();
    let client = open(&server);
    // Redis has it still.
    let brief = client.mutex_with("y", fixed(60_000).max_hold(ms(1_500))).unwrap().lock().unwrap();
    until("it is over", || !brief.is_valid());
    assert!(brief.extend(ms(600_000)).unwrap_err().is_lost());
    assert!(pttl(&server, "y") <= 60_000);
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    until("it is over", || !guard.is_valid());
    assert!(guard.extend(ms(60_000)).unwrap_err().is_lost());
    until("the key is gone", || !exists(&server, "x"));
    let next = open(&server).mutex_with("x", fixed(30_000)).unwrap().lock().unwrap();
    assert!(guard.extend(ms(60_000)).unwrap_err().is_lost());
    assert!(pttl(&server, "x") <= 30_000);
    next.check().unwrap();
}

#[test]
fn extend_makes_a_lease_longer_and_never_shorter() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("x", fixed(60_000)).unwrap().lock().unwrap();
    guard.extend(ms(240_000)).unwrap();
    assert!(pttl(&server, "x") > 180_000 && guard.remaining() > ms(180_000));
    guard.extend(ms(100)).unwrap();
    assert!(pttl(&server, "x") > 180_000 && guard.remaining() > ms(180_000));
    ask::<()>(&server, &["SET", "x", "other", "PX", "80000"]);
    assert!(guard.extend(ms(240_000)).unwrap_err().is_lost());
    assert!(pttl(&server, "x") <= 80_000);
}

/// Regression, redis-py#4279: a lease of zero in a renewal deleted the key.
#[test]
fn extend_by_zero_is_rejected_and_deletes_nothing() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    for (span, shown) in [
        (Duration::ZERO, "0s"),
        (Duration::from_micros(999), "999µs"),
        (Duration::MAX, "Duration::MAX"),
    ] {
        crate::common::names(&guard.extend(span).unwrap_err(), ["ttl", shown, "1ms to 30 days"]);
    }
    assert!(exists(&server, "x") && guard.is_valid());
}

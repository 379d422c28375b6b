//! A lost hold is told to the hold's own callback, and to the client's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread;

use crate::common::log::texts;
use crate::common::queue::listens;
use crate::common::{
    SOON, all_renewed, ask, exists, fixed, ms, open, patient, renewed, server, until,
};
use leasehold::{Guard, LockClient, LockClientBuilder, Loss, LossCause, OwnedLease, Release, Wait};
use leasehold_support::Server;

/// What the hold's own callback is told.
fn losses_of(guard: &Guard) -> mpsc::Receiver<Loss> {
    let (sender, losses) = mpsc::channel();
    guard.on_loss(move |loss| drop(sender.send(loss.clone())));
    losses
}

/// A client, and what its callback is told.
fn heard(server: &Server) -> (LockClient, mpsc::Receiver<Loss>) {
    heard_by(patient(LockClient::builder(server.url())))
}

fn heard_by(builder: LockClientBuilder) -> (LockClient, mpsc::Receiver<Loss>) {
    let (sender, losses) = mpsc::sync_channel(1_024);
    let on_loss = move |loss: &Loss| drop(sender.try_send(loss.clone()));
    let client = builder.on_loss(on_loss).build().unwrap();
    (client, losses)
}

fn delete(server: &Server, key: &str) {
    assert_eq!(ask::<u64>(server, &["DEL", key]), 1);
}

/// What ends a hold.
type End = fn(&Server, &LockClient);

/// The callback is gone, and was not called, or not again.
#[track_caller]
fn ended<T: std::fmt::Debug + PartialEq>(losses: &mpsc::Receiver<T>) {
    assert_eq!(losses.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn deletion_and_theft_are_found_by_a_renewal() {
    let server = server();
    let (client, receiver) = heard(&server);
    for (command, cause) in [
        (["DEL", "x"].as_slice(), LossCause::Deleted),
        (&["SET", "x", "other", "PX", "60000"], LossCause::Taken),
    ] {
        let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
        let losses = losses_of(&guard);
        ask::<()>(&server, command);
        let loss = losses.recv_timeout(SOON).unwrap();
        assert!(!guard.is_valid());
        assert_eq!((loss.cause(), loss.fencing_token()), (cause, guard.fencing_token()));
        assert_eq!((Some(&loss), loss.name()), (guard.loss().as_ref(), b"x".as_slice()));
        assert_eq!(receiver.recv_timeout(SOON).as_ref(), Ok(&loss));
        drop(guard);
        ask::<()>(&server, &["DEL", "x"]);
    }
}

/// The key is gone again, and the last token tells it.
#[test]
fn deleted_lock_that_another_has_had_since_is_lost_to_it() {
    let server = server();
    let (here, there) = (open(&server), open(&server));
    let watching = || fixed(60_000).wait(Wait::spin()).release(Release::watch());
    let locks: [&dyn Fn(&LockClient) -> Guard; 3] = [
        &|client| client.mutex_with("x", fixed(60_000)).unwrap().lock().unwrap(),
        &|client| client.mutex_with("x", watching()).unwrap().lock().unwrap(),
        &|client| client.reentrant_with("x", fixed(60_000)).unwrap().lock().unwrap(),
    ];
    for lock in locks {
        for has_rival in [true, false] {
            for extends in [true, false] {
                let guard = lock(&here);
                let losses = losses_of(&guard);
                delete(&server, "x");
                if has_rival {
                    lock(&there).release().unwrap();
                }
                let outcome = if extends { guard.extend(ms(90_000)) } else { guard.release() };
                assert!(outcome.unwrap_err().is_lost());
                let cause = if has_rival { LossCause::Taken } else { LossCause::Deleted };
                assert_eq!(losses.recv_timeout(SOON).unwrap().cause(), cause);
            }
        }
    }
}

/// Ends of all causes: the callback finds the guard invalid.
#[test]
fn hold_is_invalid_before_its_loss_is_reported() {
    let server = server();
    // With the usual time-out, so that a renewal fails within a lease.
    let (client, receiver) = heard_by(LockClient::builder(server.url()));
    let cases: [(&str, _, End, _); 5] = [
        ("fixed", fixed(1_500), |_, _| {}, LossCause::Expired),
        ("max", renewed(3_000).max_hold(ms(1_500)), |_, _| {}, LossCause::MaxHold),
        ("gone", renewed(9_000), |server, _| delete(server, "gone"), LossCause::Deleted),
        (
            "dead",
            renewed(4_000),
            |server, _| {
                server.pause();
                // Longer than the lease: a renewal fails before it is over.
                thread::sleep(ms(5_000));
                server.resume();
            },
            LossCause::Unreachable,
        ),
        ("shut", renewed(9_000), |_, client| client.shutdown(SOON).unwrap(), LossCause::ShutDown),
    ];
    for (name, options, end, cause) in cases {
        let lock = client.mutex_with(name, options).unwrap();
        // Owned, so that the callback itself may look.
        let owned = Arc::new(lock.lock().unwrap().into_owned().unwrap());
        let (sender, answers) = mpsc::channel();
        let seen: std::sync::Weak<OwnedLease> = Arc::downgrade(&owned);
        owned.on_loss(move |loss| {
            let valid = seen.upgrade().map(|owned| owned.is_valid());
            sender.send((loss.cause(), valid)).unwrap();
        });
        end(&server, &client);
        let answer = answers.recv_timeout(SOON).unwrap();
        assert_eq!(answer, (cause, Some(false)), "{name}");
        assert_eq!(owned.loss().unwrap().cause(), cause);
        assert_eq!(receiver.recv_timeout(SOON).unwrap().cause(), cause);
        ended(&answers);
    }
}

/// Redis is silent: the end of validity needs no answer, and the news come at that moment.
#[cfg(feature = "testing")]
#[test]
fn outage_is_reported_when_validity_ends() {
    let server = leasehold::testing::Server::standing_still();
    let client = server.client();
    let guard = client.mutex_with("x", renewed(2_400)).unwrap().lock().unwrap();
    let losses = losses_of(&guard);
    server.link(&client).silence();
    let left = guard.remaining();
    let took = server.run_until(|| guard.loss().is_some());
    assert!(!guard.is_valid());
    // What remains is told in whole milliseconds.
    assert!(took >= left && took < left + ms(10), "{took:?} of {left:?}");
    assert_eq!(losses.recv_timeout(SOON).unwrap().cause(), LossCause::Unreachable);
}

/// The server replies, so it is not called unreachable. It is asked again in measured steps, and the log is short.
#[test]
fn renewals_that_the_server_refuses_are_told_as_refused() {
    const LEASE: u64 = 9_000;
    type Refusal = fn(&Server);
    let refusals: [(&str, &str, Refusal); 3] = [
        ("replicas", "NOREPLICAS", |server| {
            ask::<()>(server, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        }),
        ("denied", "denies this user", |server| {
            ask(server, &["ACL", "SETUSER", "default", "-pexpire"])
        }),
        ("disk", "MISCONF", |server| {
            ask::<()>(server, &["CONFIG", "SET", "save", "3600 1"]);
            let disk = server.directory().join("disk");
            std::fs::create_dir(&disk).unwrap();
            ask::<()>(server, &["CONFIG", "SET", "dir", disk.to_str().unwrap()]);
            std::fs::remove_dir(&disk).unwrap();
            ask::<String>(server, &["BGSAVE"]);
            until("the disk is full", || {
                ask::<String>(server, &["INFO", "persistence"])
                    .contains("rdb_last_bgsave_status:err")
            });
        }),
    ];
    texts(&[]);
    let refused = |(name, code, refuse): (&str, &str, Refusal)| {
        let server = Server::builder().arg("--enable-protected-configs").arg("yes");
        let server = server.start().unwrap();
        let (client, losses) = heard(&server);
        let guard = client.mutex_with(name, renewed(LEASE)).unwrap().lock().unwrap();
        refuse(&server);
        ask::<()>(&server, &["CONFIG", "RESETSTAT"]);
        let loss = losses.recv_timeout(SOON).unwrap();
        assert_eq!((loss.cause(), loss.name()), (LossCause::Refused, name.as_bytes()));
        let error = guard.check().unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("refused to renew"), "{error}");
        let source = std::error::Error::source(&error).expect("the reply").to_string();
        assert!(source.contains(code), "{source}");
        let stats: String = ask(&server, &["INFO", "commandstats"]);
        let scripts = stats.lines().filter(|line| line.starts_with("cmdstat_evalsha"));
        let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
        let calls: u64 = scripts.filter_map(calls).sum();
        assert!(calls < LEASE / 50, "{calls} scripts in {name}");
        let lines = |part| texts(&[&format!("{name:?}"), part]);
        // The thread that writes has no name until it runs.
        let said = ["was not renewed", "renewals failed, the last one: "];
        until("it is logged", || said.iter().all(|part| !lines(*part).is_empty()));
        assert_eq!(lines("was not renewed").len(), 1, "{:?}", lines("was not renewed"));
        assert_eq!(lines("renewals failed, the last one: ").len(), 1, "{:?}", lines("lost"));
    };
    thread::scope(|scope| refusals.map(|refusal| _ = scope.spawn(move || refused(refusal))));
}

#[test]
fn callbacks_of_a_hold_run_in_order_before_the_clients() {
    let server = server();
    let (sender, order) = mpsc::channel();
    let last = sender.clone();
    let builder = patient(LockClient::builder(server.url()));
    let client = builder.on_loss(move |_| last.send(3).unwrap()).build().unwrap();
    let lock = client.mutex_with("x", renewed(9_000)).unwrap();
    let outer = lock.lock().unwrap();
    let inner = lock.lock().unwrap();
    let (one, two) = (sender.clone(), sender);
    outer.on_loss(move |_| one.send(1).unwrap());
    // A second guard of the same hold.
    inner.on_loss(move |_| two.send(2).unwrap());
    drop(inner);
    delete(&server, "x");
    let called: Vec<i32> = (0..3).map(|_| order.recv_timeout(SOON).unwrap()).collect();
    assert_eq!(called, [1, 2, 3]);
    assert!(outer.release().unwrap_err().is_lost());
}

#[test]
fn callback_set_after_a_loss_runs_at_once() {
    let server = server();
    let (client, receiver) = heard(&server);
    let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
    delete(&server, "x");
    let loss = receiver.recv_timeout(SOON).unwrap();
    let here = thread::current().id();
    let (sender, called) = mpsc::channel();
    guard.on_loss(move |loss| sender.send((loss.clone(), thread::current().id())).unwrap());
    let (again, there) = called.recv_timeout(SOON).unwrap();
    assert_eq!(again, loss);
    assert_ne!(there, here);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
}

/// A lease that nobody has looked at since its end.
#[test]
fn callback_set_after_validity_ended_runs() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("x", fixed(1_500)).unwrap().lock().unwrap();
    until("it is over", || !guard.is_valid());
    assert_eq!(losses_of(&guard).recv_timeout(SOON).unwrap().cause(), LossCause::Expired);
}

#[test]
fn callback_is_dropped_uncalled_at_a_release() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(9_000)).unwrap();
    for way in 0..5 {
        let guard = lock.lock().unwrap();
        let losses = losses_of(&guard);
        match way {
            0 => drop(guard),
            1 => guard.release().unwrap(),
            2 => drop(guard.into_owned().unwrap()),
            3 => guard.into_owned().unwrap().release().unwrap(),
            _ => {
                // The end of a thread that forgot its guard.
                let owned = guard.into_owned().unwrap();
                thread::spawn(move || std::mem::forget(owned.into_guard())).join().unwrap();
            }
        }
        ended(&losses);
    }
    // By key.
    let guard = lock.lock().unwrap();
    let losses = losses_of(&guard);
    leasehold::DistributedLock::unlock(&client, "x").unwrap();
    ended(&losses);
    let after = losses_of(&guard);
    ended(&after);
}

#[test]
fn callback_moves_with_an_owned_lease() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
    let losses = losses_of(&guard);
    let owned = guard.into_owned().unwrap();
    thread::spawn(move || {
        let guard = owned.into_guard();
        delete(&server, "x");
        assert_eq!(losses.recv_timeout(SOON).unwrap().cause(), LossCause::Deleted);
        assert!(!guard.is_valid());
    })
    .join()
    .unwrap();
}

#[test]
fn a_callback_does_not_outlive_a_local_hand_off() {
    let server = server();
    let client = open(&server);
    // Else what is passed on is passed on for 50 ms only.
    listens(&server, &client);
    let lock = client.mutex_with("x", renewed(9_000)).unwrap();
    let guard = lock.lock().unwrap();
    let losses = losses_of(&guard);
    server.reset_stats();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let own = losses_of(&guard);
            delete(&server, "x");
            assert_eq!(own.recv_timeout(SOON).unwrap().cause(), LossCause::Deleted);
            guard.fencing_token()
        });
        until("the next waits", || guard.waiters() == 1);
        let first = guard.fencing_token();
        guard.release().unwrap();
        assert!(next.join().unwrap() > first);
    });
    // Passed on, not released and taken anew.
    assert_eq!(server.command_calls(&["set"]), 0);
    ended(&losses);
}

#[test]
fn a_callback_does_not_outlive_its_hold_in_a_linger() {
    let server = server();
    let client = open(&server);
    // It lingers only while it could be heard that another waits.
    let lock = client.mutex_with("x", renewed(9_000).linger(ms(4_000))).unwrap();
    until("it lingers", || {
        let guard = lock.lock().unwrap();
        let losses = losses_of(&guard);
        drop(guard);
        ended(&losses);
        exists(&server, "x")
    });
    let guard = lock.lock().unwrap();
    let losses = losses_of(&guard);
    delete(&server, "x");
    assert_eq!(losses.recv_timeout(SOON).unwrap().cause(), LossCause::Deleted);
}

/// The release is the first to find it out.
#[test]
fn loss_found_by_the_release_calls_the_callback() {
    let server = server();
    let (client, receiver) = heard(&server);
    let guard = client.mutex_with("x", fixed(60_000)).unwrap().lock().unwrap();
    let losses = losses_of(&guard);
    delete(&server, "x");
    assert!(guard.release().unwrap_err().is_lost());
    let loss = losses.recv_timeout(SOON).unwrap();
    assert_eq!(loss.cause(), LossCause::Deleted);
    assert_eq!(receiver.recv_timeout(SOON), Ok(loss));
}

#[test]
fn panicking_callback_stops_neither_others_nor_the_worker() {
    let server = server();
    let client = open(&server);
    let kept = client.mutex_with("kept", renewed(9_000)).unwrap().lock().unwrap();
    let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
    let panicked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&panicked);
    guard.on_loss(move |_| {
        flag.store(true, Ordering::SeqCst);
        panic!("on purpose");
    });
    let losses = losses_of(&guard);
    delete(&server, "x");
    assert!(losses.recv_timeout(SOON).is_ok());
    assert!(panicked.load(Ordering::SeqCst));
    (0..2).for_each(|_| all_renewed([&kept]));
    assert!(exists(&server, "kept"));
}

/// The callback may use the lock, and even ask again.
#[test]
fn callback_may_lock_and_set_callbacks() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(9_000)).unwrap();
    let owned = Arc::new(lock.lock().unwrap().into_owned().unwrap());
    let (sender, tokens) = mpsc::channel();
    let (again, next) = (Arc::downgrade(&owned), lock.clone());
    owned.on_loss(move |loss| {
        let token = next.lock().unwrap().fencing_token();
        assert!(token > loss.fencing_token());
        again.upgrade().unwrap().on_loss(move |_| sender.send(token).unwrap());
    });
    delete(&server, "x");
    tokens.recv_timeout(SOON).unwrap();
}

/// As the guide's recipe has it, whose sender is in the callback.
#[test]
fn channel_fed_by_on_loss_closes_with_its_client() {
    let server = server();
    let (client, losses) = heard(&server);
    let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
    drop(client);
    // The guard is what is left of the client.
    assert_eq!(losses.recv_timeout(ms(50)), Err(RecvTimeoutError::Timeout));
    drop(guard);
    ended(&losses);
}

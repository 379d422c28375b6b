//! A client that ends before its time: no renewals, everything given back, and told what could not
//! be, within the bound.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use crate::common::queue::waiting;
use crate::common::{
    SLACK, SOON, ask, behind_proxy, exists, hasty, ms, open, open_at, pttl, renewed, server, until,
};
use leasehold::{Guard, LockClient, LossCause, Mutex};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Server};

fn hold(client: &LockClient, count: usize, ttl: u64) -> Vec<Guard> {
    (0..count)
        .map(|number| client.mutex_with(format!("x{number}"), renewed(ttl)).unwrap())
        .map(|lock| lock.lock().unwrap())
        .collect()
}

fn locks(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.starts_with(b"x")).count()
}

#[test]
fn shutdown_releases_everything_before_it_returns() {
    let server = server();
    let client = open(&server);
    let guards = hold(&client, 200, 30_000);
    let list = client.reentrant("xlist").unwrap();
    let outer = list.lock().unwrap();
    let inner = list.lock().unwrap();
    let owned = client.mutex("xowned").unwrap().lock().unwrap().into_owned().unwrap();
    assert_eq!(locks(&server), 202);
    client.shutdown(SOON).unwrap();
    assert_eq!(locks(&server), 0);
    for guard in guards {
        assert!(!guard.is_valid());
        assert_eq!(guard.loss().unwrap().cause(), LossCause::ShutDown);
        assert!(guard.release().unwrap_err().is_lost());
    }
    assert!(!outer.is_valid() && inner.release().unwrap_err().is_lost());
    assert_eq!(owned.loss().unwrap().cause(), LossCause::ShutDown);
    let lock = client.mutex("x").unwrap();
    assert!(lock.lock().unwrap_err().is_cancelled());
    assert!(lock.try_lock().unwrap_err().is_cancelled());
    client.shutdown(SOON).unwrap();
    // Nobody else's business.
    assert!(open(&server).mutex("x").unwrap().try_lock().unwrap().is_some());
}

#[test]
fn shutdown_cancels_waits_in_a_queue() {
    let server = server();
    let client = open(&server);
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let waits: Vec<Mutex> = (0..8).map(|_| client.mutex("x").unwrap()).collect();
    thread::scope(|scope| {
        let waits: Vec<_> =
            waits.iter().map(|lock| scope.spawn(|| lock.lock().map(drop))).collect();
        until("they wait", || waiting(&server, "x") == 1);
        client.shutdown(SOON).unwrap();
        for wait in waits {
            assert!(wait.join().unwrap().unwrap_err().is_cancelled());
        }
    });
    // Its place is left, so that nobody waits for the dead.
    assert_eq!(waiting(&server, "x"), 0);
    guard.release().unwrap();
}

#[test]
fn shutdown_releases_a_lingering_lease() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(30_000).linger(ms(10_000))).unwrap();
    until("it lingers", || {
        drop(lock.lock().unwrap());
        exists(&server, "x")
    });
    client.shutdown(SOON).unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn failed_release_at_shutdown_is_reported_and_done_later() {
    let (server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let guards = hold(&client, 7, 20_000);
    proxy.black_hole();
    let begin = Instant::now();
    let error = client.shutdown(ms(500)).unwrap_err();
    assert!(begin.spent() < ms(500) + SLACK, "{:?}", begin.spent());
    assert!(error.is_unreachable(), "{error}");
    let text = error.to_string();
    assert!(text.contains("7 locks") && text.contains("\"x0\"") && text.contains('…'), "{text}");
    assert!(guards.iter().all(|guard| !guard.is_valid()));
    assert_eq!(locks(&server), 7);
    proxy.heal();
    until("the worker has done the rest", || locks(&server) == 0);
    client.shutdown(SOON).unwrap();
}

/// Renewals stop first: what cannot be given back is not kept alive either.
#[test]
fn shutdown_ends_all_renewals() {
    let server = server();
    let client = hasty(&server.url());
    let _guards = hold(&client, 3, 6_000);
    until("a renewal is soon", || pttl(&server, "x0") < 5_000);
    until("a renewal has been", || pttl(&server, "x0") > 5_000);
    // No release gets through; a renewal would.
    ask::<()>(&server, &["ACL", "SETUSER", "default", "-del"]);
    assert!(client.shutdown(ms(300)).unwrap_err().to_string().contains("3 locks"));
    let mut last = [0, 1, 2].map(|number| pttl(&server, &format!("x{number}")));
    until("all keys are gone", || {
        let now = [0, 1, 2].map(|number| pttl(&server, &format!("x{number}")));
        assert!(last.iter().zip(now).all(|(last, now)| now <= *last), "{last:?} {now:?}");
        last = now;
        last.iter().all(|left| *left <= 0)
    });
}

/// A thread that is being granted a lock at that moment must not keep it unbeknownst.
#[test]
fn shutdown_waits_for_an_attempt_under_way() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex_with("x", renewed(30_000)).unwrap();
    drop(lock.lock().unwrap());
    // The next answer: it has the lock, and does not know.
    let answer = proxy.add(Fault::reply("", Action::Delay(ms(700))).at(Operation::Acquire));
    thread::scope(|scope| {
        let attempt = scope.spawn(|| lock.try_lock().map(drop));
        until("it has the lock", || exists(&server, "x"));
        client.shutdown(SOON).unwrap();
        assert!(!exists(&server, "x") && answer.fired() == 1);
        assert!(attempt.join().unwrap().unwrap_err().is_cancelled());
    });
    thread::sleep(ms(100));
    assert!(!exists(&server, "x"));
}

#[test]
fn shutdown_reports_an_unanswered_attempt() {
    let (_server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex_with("stuck", renewed(30_000)).unwrap();
    let answer = proxy.add(Fault::request("stuck", Action::Hold));
    thread::scope(|scope| {
        let attempt = scope.spawn(|| lock.try_lock().map(drop));
        assert!(answer.wait_fired(SOON));
        let error = client.shutdown(ms(300)).unwrap_err();
        assert!(error.to_string().contains("\"stuck\""), "{error}");
        answer.release();
        assert!(attempt.join().unwrap().unwrap_err().is_cancelled());
    });
    client.shutdown(SOON).unwrap();
}

#[test]
fn shutdown_calls_slow_callbacks() {
    let server = server();
    let client = open(&server);
    let (sender, receiver) = mpsc::channel();
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let (end, ended) = mpsc::channel::<()>();
    guard.on_loss(move |loss| {
        sender.send(loss.cause()).unwrap();
        let _ = ended.recv();
    });
    // It does not wait for the callback's end.
    client.shutdown(SOON).unwrap();
    assert_eq!(receiver.recv_timeout(SOON), Ok(LossCause::ShutDown));
    drop(end);
}

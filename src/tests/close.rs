//! A client that is closed with a grace: what goes on until that is over, and what does not.

use std::time::Duration;

use super::double::until;
use crate::base::close_report::CloseReport;
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions, Wait};
use crate::base::sync;
use crate::base::sync::channel::{Receiver, RecvTimeoutError, unbounded};
use crate::base::sync::{Arc, AtomicU32, Ordering};
use crate::client::LockClient;
use crate::testing::Server;

const SOON: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(3);
/// Nothing of a test with a standing clock takes that long, unless it hangs.
const BRIEFLY: Duration = Duration::from_millis(100);

/// A thread that closes the client, and returns the report once it has. It waits for the end of the grace by then.
fn close(server: &Server, client: &LockClient, grace: Duration) -> Receiver<CloseReport> {
    let (sender, receiver) = unbounded();
    let closing = client.clone();
    let body = move || {
        // The thread that waits for it may have failed.
        let _ = sender.send(closing.close(grace, SOON));
    };
    sync::spawn("close", body).unwrap();
    until(|| server.is_awaited(grace));
    assert!(client.is_closed());
    receiver
}

/// A thread that waits for a lock, and returns why it did not get it.
fn waiter(client: &LockClient, name: &str) -> Receiver<crate::Error> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex(name).unwrap();
    let body = move || {
        let _ = lock.lock().map(drop).map_err(|error| sender.send(error));
    };
    sync::spawn("waiter", body).unwrap();
    receiver
}

fn has(server: &Server, key: &str) -> bool {
    server.keys().iter().any(|found| found == key.as_bytes())
}

#[test]
fn holder_goes_on_until_the_grace_is_over() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::renewed(SECOND));
    let lock = client.mutex_with("x", options).unwrap();
    let guard = lock.lock().unwrap();
    assert!(!client.is_closed());
    let report = close(&server, &client, GRACE);

    // Its lease is over by now unless it is renewed.
    server.advance(GRACE - SECOND / 10);
    assert!(guard.is_valid());
    guard.check().unwrap();
    guard.extend(SECOND).unwrap();
    let inner = lock.lock().unwrap();
    assert_eq!(guard.hold_count(), 2);
    inner.release().unwrap();
    let error = client.mutex("y").unwrap().try_lock().unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(report.recv_timeout(BRIEFLY).unwrap_err(), RecvTimeoutError::Timeout);

    server.advance(SECOND / 10);
    let report = report.recv().unwrap();
    assert_eq!((report.finished(), report.not_released().count()), (0, 0), "{report}");
    assert_eq!(report.taken(), [guard.loss().unwrap()]);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::ShutDown);
    assert!(!has(&server, "x"));
    assert!(lock.lock().unwrap_err().is_lost());
}

/// No time passes: nothing but the release ends the grace.
#[test]
fn last_release_ends_the_grace_at_once() {
    let server = Server::standing_still();
    let client = server.client();
    let guards = ["x", "y", "z"].map(|name| client.mutex(name).unwrap().lock().unwrap());
    let owned = client.mutex("owned").unwrap().lock().unwrap().into_owned().unwrap();
    let report = close(&server, &client, SECOND * 3600);
    for guard in guards {
        guard.release().unwrap();
    }
    assert_eq!(report.recv_timeout(BRIEFLY).unwrap_err(), RecvTimeoutError::Timeout);
    owned.into_guard().release().unwrap();
    let report = report.recv().unwrap();
    assert_eq!((report.finished(), report.taken().len()), (4, 0), "{report}");
    report.into_result().unwrap();
}

#[test]
fn waits_end_at_once_and_later_ones_are_refused() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let guard = client.mutex("here").unwrap().lock().unwrap();
    let _elsewhere = other.mutex("there").unwrap().lock().unwrap();
    let waiters = ["here", "here", "there", "there"].map(|name| waiter(&client, name));
    let (here, there) = (client.mutex("here").unwrap(), client.mutex("there").unwrap());
    until(|| guard.waiters() == 2 && has(&server, "{there}:queue"));
    // Two behind the holder here; one in the queue of Redis, and the other behind it in the process.
    let engine = client.engine();
    let slots = || engine.table().all().into_iter().map(|slot| slot.waiters()).sum::<usize>();
    until(|| slots() == 4);
    let report = close(&server, &client, SECOND * 3600);
    for waiter in waiters {
        assert!(waiter.recv().unwrap().is_cancelled());
    }
    let later = waiter(&client, "there").recv().unwrap();
    assert!(later.is_cancelled() && later.to_string().contains("was closed"), "{later}");
    assert!(there.try_lock_for(SECOND).unwrap_err().is_cancelled());
    // What the operator's thread cancels by hand is cancelled for that moment alone, and nothing is left to cancel.
    assert_eq!((here.cancel_waits(), there.cancel_waits()), (0, 0));
    until(|| !has(&server, "{there}:queue") && !has(&server, "{there}:beats"));
    guard.release().unwrap();
    let report = report.recv().unwrap();
    assert_eq!((report.cancelled(), report.finished()), (4, 1), "{report}");
    assert!(!has(&server, "here") && has(&server, "there"));
}

#[test]
fn cancel_waits_refuses_no_later_wait() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex("x").unwrap();
    let owned = lock.lock().unwrap().into_owned().unwrap();
    let waiter = waiter(&client, "x");
    until(|| lock.cancel_waits() == 1);
    assert!(waiter.recv().unwrap().is_cancelled());
    assert!(!client.is_closed());
    drop(owned);
    lock.lock().unwrap().release().unwrap();
}

#[test]
fn shutdown_takes_what_a_close_waits_for() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let patient = close(&server, &client, SECOND * 3600);
    client.shutdown(SOON).unwrap();
    assert_eq!(guard.loss().unwrap().cause(), LossCause::ShutDown);
    let patient = patient.recv().unwrap();
    assert_eq!((patient.finished(), patient.taken().len()), (0, 1), "{patient}");
    // A third call finds nothing.
    let third = client.close(SECOND * 3600, SOON);
    assert_eq!((third.finished(), third.taken().len()), (0, 0), "{third}");
}

/// It is carried out before the client closes, and its reply comes afterwards.
#[test]
fn grant_that_arrives_while_closing_is_given_back_untold() {
    let server = Server::standing_still();
    let losses = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&losses);
    let settings = LockClient::builder("redis://memory");
    let settings = settings.on_loss(move |_| _ = count.fetch_add(1, Ordering::SeqCst));
    let client = server.connect(settings).unwrap();
    let work = client.mutex("work").unwrap().lock().unwrap();
    let link = server.link(&client);
    link.delay_answers(1, SECOND / 2);
    let attempt = waiter(&client, "x");
    until(|| has(&server, "x") && link.faults() == 1);
    let report = close(&server, &client, GRACE);
    server.advance(SECOND / 2);
    assert!(attempt.recv().unwrap().is_cancelled());
    until(|| !has(&server, "x"));
    work.release().unwrap();
    let report = report.recv().unwrap();
    assert_eq!((report.finished(), report.taken().len()), (1, 0), "{report}");
    server.advance(SECOND);
    assert_eq!(losses.load(Ordering::SeqCst), 0);
}

#[test]
fn released_hold_does_not_linger_while_closing() {
    for closes in [false, true] {
        let server = Server::standing_still();
        let client = server.client();
        let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
        let work = client.mutex("work").unwrap().lock().unwrap();
        lock.lock().unwrap().release().unwrap();
        until(|| client.engine().listener.is_live());
        // It lingers only where others have been heard of from the start.
        server.advance(Duration::ZERO);
        let guard = lock.lock().unwrap();
        let report = closes.then(|| close(&server, &client, GRACE));
        guard.release().unwrap();
        assert_eq!(has(&server, "x"), !closes);
        work.release().unwrap();
        if let Some(report) = report {
            assert_eq!(report.recv().unwrap().finished(), 2);
        }
    }
}

/// The process may end with them, and then nobody would hear that others wait.
#[test]
fn what_lingers_ends_with_the_last_client_and_lock() {
    let (server, options) = (Server::standing_still(), LockOptions::new().linger(SOON));
    let lingering = || {
        let client = server.client();
        let lock = client.mutex_with("x", options).unwrap();
        lock.lock().unwrap().release().unwrap();
        until(|| client.engine().listener.is_live());
        // It lingers only where others have been heard of from the start.
        server.advance(Duration::ZERO);
        lock.lock().unwrap().release().unwrap();
        assert!(has(&server, "x"));
        (client, lock)
    };
    let (client, lock) = lingering();
    let (same, also) = (client.clone(), lock.clone());
    drop((client, lock, same));
    assert!(has(&server, "x"), "a thread may take it again");
    drop(also);
    assert!(!has(&server, "x"));

    let (client, lock) = lingering();
    drop((lock, client));
    assert!(!has(&server, "x"));

    // A guard may be the last.
    let (client, lock) = lingering();
    let guard = lock.lock().unwrap();
    drop((client, lock));
    assert!(has(&server, "x"));
    guard.release().unwrap();
    assert!(!has(&server, "x"));
}

#[test]
fn hold_that_is_lost_in_the_grace_is_reported_as_lost() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let fixed = LockOptions::new().lease(Lease::fixed(SECOND));
    let expired = client.mutex_with("y", fixed).unwrap().lock().unwrap();
    let report = close(&server, &client, GRACE);
    server.delete("x");
    assert!(guard.check().unwrap_err().is_lost());
    assert_eq!(report.recv_timeout(BRIEFLY).unwrap_err(), RecvTimeoutError::Timeout);
    server.advance(SECOND);
    let report = report.recv().unwrap();
    let mut causes: Vec<_> = report.lost().iter().map(|loss| (loss.name(), loss.cause())).collect();
    causes.sort_by_key(|(name, _)| *name);
    assert_eq!(causes, [(&b"x"[..], LossCause::Deleted), (b"y", LossCause::Expired)]);
    assert_eq!((report.finished(), report.taken().len()), (0, 0), "{report}");
    drop((guard, expired));
}

/// `max_hold` has ended the hold, and its thread may be at work until its lease ends, but not beyond the grace.
#[test]
fn rest_of_an_ended_hold_is_left_alone_in_the_grace() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).lose_answers(1);
    let options = LockOptions::new().max_hold(SECOND / 10);
    let owned = client.mutex_with("x", options).unwrap().lock().unwrap().into_owned().unwrap();
    let work = client.mutex("work").unwrap().lock().unwrap();
    server.advance(SECOND / 10);
    assert_eq!(owned.loss().unwrap().cause(), LossCause::MaxHold);
    let report = close(&server, &client, GRACE);
    server.advance(GRACE - SECOND / 10);
    assert!(has(&server, "x"));
    server.advance(SECOND / 10);
    let report = report.recv().unwrap();
    assert!(!has(&server, "x"), "{report}");
    assert_eq!(report.taken(), [work.loss().unwrap()]);
}

#[test]
fn every_way_to_wait_is_cancelled() {
    for wait in [Wait::queue(), Wait::spin(), Wait::notify()] {
        let server = Server::standing_still();
        let (client, other) = (server.client(), server.client());
        let options = LockOptions::new().wait(wait);
        let (sender, receiver) = unbounded();
        let _held = if wait == Wait::notify() {
            let lock = client.reentrant_with("x", options).unwrap();
            let body = move || _ = sender.send(lock.lock().map(drop).unwrap_err());
            let held = other.reentrant("x").unwrap().lock().unwrap().into_owned().unwrap();
            sync::spawn("waiter", body).unwrap();
            held
        } else {
            let lock = client.mutex_with("x", options).unwrap();
            let body = move || _ = sender.send(lock.lock().map(drop).unwrap_err());
            let held = other.mutex("x").unwrap().lock().unwrap().into_owned().unwrap();
            sync::spawn("waiter", body).unwrap();
            held
        };
        let engine = client.engine();
        let waits = || engine.table().all().iter().any(|slot| slot.is_in_exchange());
        until(waits);
        let report = client.close(SECOND * 3600, SOON);
        assert!(receiver.recv().unwrap().is_cancelled(), "{wait:?}");
        assert_eq!((report.cancelled(), report.finished()), (1, 0), "{wait:?}: {report}");
        assert!(!has(&server, "{x}:queue") && !has(&server, "{x}:beats"), "{wait:?}");
    }
}

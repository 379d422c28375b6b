//! A shutdown that comes while a lock is about to be given back.

use std::time::Duration;

use super::double::{patient, until};
use crate::base::loss::LossCause;
use crate::base::option::LockOptions;
use crate::base::sync;
use crate::base::sync::channel::{Receiver, RecvTimeoutError, unbounded};
use crate::base::time::Moment;
use crate::client::LockClient;
use crate::engine::slot::Unlocked;
use crate::testing::Server;

const SOON: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Its thread stands still between the end of validity and what becomes of the lease.
#[test]
fn shutdown_waits_for_a_release_which_then_does_not_linger() {
    let server = Server::new();
    let client = server.connect(patient()).unwrap();
    let engine = client.engine();
    let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
    let owned = lock.lock().unwrap().into_owned().unwrap();
    until(|| engine.listener.is_live());
    let slot = engine.table().all().pop().unwrap();
    let hold = slot.holds().pop().unwrap();
    assert!(hold.begin_release());
    let error = client.shutdown(POLL_INTERVAL * 50).unwrap_err();
    assert!(error.to_string().contains("\"x\""), "{error}");
    assert_eq!(slot.unlock(&hold), Unlocked::Releasing);
    hold.end();
    slot.release_in_background(&hold.lease);
    slot.remove(&hold.lease);
    client.shutdown(SOON * 60).unwrap();
    assert!(!server.keys().contains(&b"x".to_vec()));
    drop(owned);
}

/// The worker has just ended a linger whose time is over, and stands still.
#[test]
fn shutdown_waits_for_a_linger_the_worker_ends() {
    let server = Server::standing_still();
    let client = server.client();
    linger(&server, &client);
    let slot = client.engine().table().all().pop().unwrap();
    let ending = slot.end_lingers(client.engine().now().after(SOON * 2));
    assert_eq!(ending.len(), 1);
    let done = shut_down(client);
    assert_eq!(done.recv_timeout(POLL_INTERVAL * 100), Err(RecvTimeoutError::Timeout));
    drop((ending, slot));
    done.recv().unwrap();
    assert!(!server.keys().contains(&b"x".to_vec()));
}

/// The thread that listens gives back what lingered, as another process waits for it.
#[test]
fn shutdown_waits_for_a_linger_the_listener_ends() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    linger(&server, &here);
    let link = server.link(&here);
    link.delay_answers(1, POLL_INTERVAL * 500);
    let (has, had) = unbounded();
    let waiter = there.mutex("x").unwrap();
    let wait = move || {
        let owned = waiter.lock().unwrap().into_owned().unwrap();
        has.send(()).unwrap();
        drop(owned);
    };
    sync::spawn("waiter", wait).unwrap();
    until(|| link.faults() == 1);
    let done = shut_down(here);
    // It is carried out at once, and not answered yet.
    had.recv().unwrap();
    assert_eq!(done.recv_timeout(POLL_INTERVAL * 100), Err(RecvTimeoutError::Timeout));
    server.advance(POLL_INTERVAL * 500);
    done.recv().unwrap();
}

/// `max_hold` has ended a hold whose first request brought no answer. What Redis has of it is left alone
/// until its lease ends, as its thread may be at work, but a shutdown takes away what is at work.
#[test]
fn lease_left_after_max_hold_is_released_at_shutdown() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    link.lose_answers(1);
    let options = LockOptions::new().max_hold(POLL_INTERVAL * 100);
    let owned = client.mutex_with("x", options).unwrap().lock().unwrap().into_owned().unwrap();
    assert_eq!(link.faults(), 1);
    server.advance(POLL_INTERVAL * 100);
    assert_eq!(owned.loss().unwrap().cause(), LossCause::MaxHold);
    assert!(server.keys().contains(&b"x".to_vec()));
    let done = shut_down(client);
    until(|| !server.keys().contains(&b"x".to_vec()));
    // The request without an answer may arrive until its deadline is over.
    assert_eq!(done.recv_timeout(POLL_INTERVAL * 100), Err(RecvTimeoutError::Timeout));
    server.advance(POLL_INTERVAL * 1_000);
    done.recv().unwrap();
}

/// Redis has replied that the lock is gone, which is final: no request for it is open.
#[test]
fn linger_that_is_gone_is_released_by_one_request() {
    let server = Server::standing_still();
    let client = server.client();
    linger(&server, &client);
    server.delete("x");
    let link = server.link(&client);
    link.delay_requests(9, Duration::ZERO);
    let slot = client.engine().table().all().pop().unwrap();
    for ended in slot.end_lingers(Moment::FAR) {
        ended.release_now(client.engine().exchange_deadline());
    }
    // It waits for what the worker has still to release.
    client.shutdown(SOON).unwrap();
    assert_eq!(link.faults(), 1);
}

/// Leaves a lock that lingers.
fn linger(server: &Server, client: &LockClient) {
    let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
    lock.lock().unwrap().release().unwrap();
    until(|| client.engine().listener.is_live());
    // It lingers only where others have been heard of from the start.
    server.advance(Duration::ZERO);
    lock.lock().unwrap().release().unwrap();
    assert!(server.keys().contains(&b"x".to_vec()));
}

/// A thread that shuts the client down, and tells when it has.
fn shut_down(client: LockClient) -> Receiver<()> {
    let (sender, receiver) = unbounded();
    let body = move || {
        client.shutdown(SOON).unwrap();
        // The thread that waits for it may have failed.
        let _ = sender.send(());
    };
    sync::spawn("shutdown", body).unwrap();
    receiver
}

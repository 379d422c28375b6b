//! A shutdown that comes while a lock is about to be given back.

use std::time::Duration;

use super::Server;
use super::scenario::until;
use crate::base::option::LockOptions;
use crate::base::sync;
use crate::base::sync::channel::{RecvTimeoutError, unbounded};
use crate::engine::release::give_back;
use crate::engine::slot::PassedOn;

const SOON: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// Its thread stands still between the end of validity and what becomes of the lease.
#[test]
fn a_release_that_has_begun_is_waited_for_and_does_not_end_in_a_linger() {
    let server = Server::new();
    let client = server.client();
    let engine = client.engine();
    let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
    let owned = lock.lock().unwrap().into_owned().unwrap();
    until(|| engine.hub().is_live());
    let slot = engine.table().all().pop().unwrap();
    let lease = slot.lease().unwrap();
    assert!(lease.begin_release().is_some());
    let error = client.shutdown(LOOK * 50).unwrap_err();
    assert!(error.to_string().contains("\"x\""), "{error}");
    assert_eq!(slot.pass_on(&lease), PassedOn::No);
    lease.end();
    give_back(&lease);
    slot.vacate(None);
    client.shutdown(SOON).unwrap();
    assert!(!server.keys().contains(&b"x".to_vec()));
    drop(owned);
}

/// The thread that listens gives back what lingered, as another process waits for it.
#[test]
fn the_end_of_a_linger_is_waited_for() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let lock = here.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
    lock.lock().unwrap().release().unwrap();
    until(|| here.engine().hub().is_live());
    // It lingers only where others have been heard of from the start.
    server.advance(Duration::ZERO);
    lock.lock().unwrap().release().unwrap();
    assert!(server.keys().contains(&b"x".to_vec()));
    let link = server.link(&here);
    link.delay_answers(1, LOOK * 500);
    let (sender, receiver) = unbounded();
    let waiter = there.mutex("x").unwrap();
    let (has, had) = (sender.clone(), "the other has it");
    let wait = move || {
        let owned = waiter.lock().unwrap().into_owned().unwrap();
        has.send(had).unwrap();
        drop(owned);
    };
    sync::spawn("waiter", wait).unwrap();
    until(|| link.faults() == 1);
    let done = "it is shut down";
    let shut_down = move || {
        here.shutdown(SOON).unwrap();
        sender.send(done).unwrap();
    };
    sync::spawn("shutdown", shut_down).unwrap();
    // It is carried out at once, and not answered yet.
    assert_eq!(receiver.recv_timeout(SOON), Ok(had));
    assert_eq!(receiver.recv_timeout(LOOK * 100), Err(RecvTimeoutError::Timeout));
    server.advance(LOOK * 500);
    assert_eq!(receiver.recv_timeout(SOON), Ok(done));
}

//! A shutdown that comes while a thread is about to give a lock back.

use std::time::Duration;

use super::Server;
use crate::base::option::LockOptions;
use crate::base::sync;
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
    while !engine.hub().is_live() {
        sync::sleep(LOOK);
    }
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

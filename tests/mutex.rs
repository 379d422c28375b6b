//! The mutex over a real server.

use leasehold::LockClient;
use leasehold_support::Server;

#[test]
fn one_holder_at_a_time() {
    let server = Server::start().unwrap();
    let client = LockClient::open(server.url()).unwrap();
    let other = LockClient::open(server.url()).unwrap();
    let lock = client.mutex("orders:42").unwrap();
    let guard = lock.lock().unwrap();
    guard.check().unwrap();
    let elsewhere = other.mutex("orders:42").unwrap();
    assert!(elsewhere.try_lock().unwrap().is_none());
    guard.release().unwrap();
    assert!(elsewhere.try_lock().unwrap().is_some());
}

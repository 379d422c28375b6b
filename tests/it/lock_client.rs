//! A client's beginning and end: its threads and connections, and what ends with it.

use crate::common::process::in_own_process;
use crate::common::{
    SOON, all_renewed, ask, behind_proxy, exists, open, open_at, patient, renewed, server, until,
};
use leasehold::LockClient;

/// The threads of this process with these names.
fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// As those of the standard library: no lock is poisoned.
#[test]
fn public_types_are_unwind_safe() {
    fn assert<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    assert::<LockClient>();
    assert::<leasehold::QuorumClient>();
    assert::<leasehold::Mutex>();
    assert::<leasehold::ReentrantLock>();
    assert::<leasehold::Guard>();
    assert::<leasehold::OwnedLease>();
}

#[test]
fn client_ends_with_its_last_handle_lock_and_guard() {
    let (_server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.clone().mutex_with("x", renewed(2_400)).unwrap();
    let guard = lock.lock().unwrap();
    drop((client, lock));
    assert!(guard.is_valid() && proxy.connections() > 0);
    guard.release().unwrap();
    until("its connections are closed", || proxy.connections() == 0);
}

/// What was released long before the end must not keep the worker and its connections.
#[test]
fn client_with_a_long_lease_ends_at_its_drop() {
    let (_server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let guard = client.mutex_with("x", renewed(3_600_000)).unwrap().lock().unwrap();
    // Its connection comes before the renewal is due: then it has taken note of the lease.
    until("the worker has its connection", || proxy.connections() >= 2);
    guard.release().unwrap();
    drop(client);
    // Long before the renewal.
    until("its connections are closed", || proxy.connections() == 0);
}

/// The callback is the client's; what it owns must not be kept for longer.
#[test]
fn values_of_the_callback_are_dropped_with_the_client() {
    let (server, _proxy) = behind_proxy();
    let owned = std::sync::Arc::new(());
    let kept = std::sync::Arc::clone(&owned);
    let builder = patient(LockClient::builder(server.url()));
    let client = builder.on_loss(move |_| assert_eq!(*kept, ())).build().unwrap();
    let guard = client.mutex_with("x", renewed(2_400)).unwrap().lock().unwrap();
    guard.release().unwrap();
    drop(client);
    until("it is dropped", || std::sync::Arc::strong_count(&owned) == 1);
}

/// A drop that could not release leaves it to the worker, which must not end before.
#[test]
fn worker_finishes_releases_after_the_clients_end() {
    let (server, proxy) = behind_proxy();
    let client = crate::common::hasty(&proxy.url());
    let guard = client.mutex_with("x", renewed(20_000)).unwrap().lock().unwrap();
    drop(client);
    proxy.refuse();
    proxy.cut();
    drop(guard);
    assert!(exists(&server, "x"));
    proxy.heal();
    until("it is given back", || !exists(&server, "x"));
    until("its connections are closed", || proxy.connections() == 0);
}

#[test]
fn ended_clients_leave_no_threads_and_no_connections() {
    in_own_process!();
    let (server, proxy) = behind_proxy();
    for _ in 0..20 {
        let client = open_at(proxy.url());
        for number in 0..5 {
            let lock = client.mutex_with(format!("x{number}"), renewed(9_000)).unwrap();
            lock.lock().unwrap().release().unwrap();
        }
    }
    until("all connections are closed", || proxy.connections() == 0);
    assert_eq!(ask::<u64>(&server, &["EXISTS", "x0"]), 0);
    // Each client has one to connect; a few are those of the other tests.
    until("their threads end", || threads("lease-conn-") <= 8);
}

/// One worker and one connection, besides the pool, whatever the number of locks.
#[test]
fn a_client_has_few_connections_and_threads() {
    let (_server, proxy) = behind_proxy();
    let builder = patient(LockClient::builder(proxy.url())).max_size(3);
    let client = builder.build().unwrap();
    let guards: Vec<_> = (0..50)
        .map(|number| {
            let lock = client.mutex_with(format!("x{number}"), renewed(9_000)).unwrap();
            lock.lock().unwrap()
        })
        .collect();
    all_renewed(&guards);
    // The pool, the worker's, and later the subscriber's.
    assert!(proxy.connections() <= 5, "{}", proxy.connections());
}

#[test]
fn two_clients_of_one_process_exclude_each_other() {
    let server = server();
    let (one, two) = (open(&server), open(&server));
    let guard = one.mutex("x").unwrap().lock().unwrap();
    let lock = two.mutex("x").unwrap();
    assert!(!lock.is_held_by_current_thread());
    assert!(lock.try_lock().unwrap().is_none());
    drop(guard);
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

#[test]
fn clones_of_a_client_are_one_client() {
    let server = server();
    let client = open(&server);
    let outer = client.mutex("x").unwrap().lock().unwrap();
    let inner = client.clone().mutex("x").unwrap().try_lock().unwrap().expect("ours");
    assert_eq!((inner.hold_count(), inner.fencing_token()), (2, outer.fencing_token()));
}

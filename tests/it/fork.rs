//! A client in a fork of its process: every call says so at once, and the parent's connections are
//! not touched. A fork of a process that had no client makes its own.

use std::time::{Duration, Instant};

use crate::common::{SOON, exists, fixed, ms, open_at, patient, renewed, server, until};
use leasehold::{DistributedLock, Error, LockClient, QuorumClient};
use leasehold_support::child::{self, tell};
use leasehold_support::fork::fork;
use leasehold_support::{Child, Proxy};

/// No call in the fork may wait, however long the caller would.
/// That is long before a time-out of a patient client.
const AT_ONCE: Duration = Duration::from_secs(15);

#[test]
fn fork_gets_an_error_and_its_parent_goes_on() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let mut child = Child::role("forker")
        .test("fork::roles")
        .env("URL", proxy.url())
        .env("DIRECT", server.url())
        .start()
        .unwrap();
    child.expect_line("ready", SOON);
    until("the pool and the worker are connected", || proxy.accepted() == 2);
    child.say("fork");
    let refused = child.expect_line("refused", SOON * 3);
    // All calls were made, and by another process.
    assert_eq!(refused.parse::<u32>().unwrap(), 13);
    let pid: u32 = child.expect_line("fork", SOON).parse().unwrap();
    assert_ne!(pid, child.pid());
    assert!(exists(&server, "x"), "the fork's drop gave back what the parent holds");
    child.expect_line("parent is well", SOON * 2);
    // The parent went on with the connections that it had.
    assert_eq!(proxy.accepted(), 2);
    assert!(child.wait().success());
    until("the parent's lock is free", || !exists(&server, "x"));
}

#[test]
fn fork_before_the_first_client_makes_its_own() {
    let server = server();
    let mut child = Child::role("early forker")
        .test("fork::roles")
        .env("DIRECT", server.url())
        .start()
        .unwrap();
    for _ in 0..2 {
        child.expect_line("kept", SOON);
    }
    assert!(child.wait().success());
}

#[test]
fn roles() {
    match child::role().as_deref() {
        Some("forker") => fork_with_a_client(),
        Some("early forker") => fork_early(),
        _ => {}
    }
}

/// The fork and this process hold a lock each, with a client each.
fn fork_early() {
    let hold = |name: &str| {
        let client = open_at(std::env::var("DIRECT").unwrap());
        let guard = client.mutex_with(name, renewed(6_000)).unwrap().lock().unwrap();
        std::thread::sleep(ms(7_000));
        guard.check().unwrap();
        guard.release().unwrap();
        tell("kept");
    };
    let fork = fork(|| hold("fork's")).unwrap();
    hold("own");
    assert!(fork.wait().unwrap().success());
}

fn fork_with_a_client() {
    let client =
        patient(LockClient::builder(std::env::var("URL").unwrap())).max_size(1).build().unwrap();
    let lock = client.mutex_with("x", renewed(6_000)).unwrap();
    let guard = lock.lock().unwrap();
    tell("ready");
    // Both connections are there: the pool's and the worker's.
    child::hear();
    guard.check().unwrap();

    let fork = fork(|| in_fork(&client, &lock)).unwrap();
    let begin = Instant::now();
    let mut last = guard.fencing_token();
    // While the fork is at it, and for some leases.
    while begin.elapsed() < ms(7_000) {
        guard.check().unwrap();
        let token = client.mutex("other").unwrap().lock().unwrap().fencing_token();
        assert!(token > last);
        last = token;
        std::thread::sleep(ms(1));
    }
    assert!(fork.wait().unwrap().success());
    guard.check().unwrap();
    guard.release().unwrap();
    tell("parent is well");
}

fn delete(pipe: &mut redis::Pipeline) {
    pipe.cmd("DEL").arg("x");
}

fn in_fork(client: &LockClient, lock: &leasehold::Mutex) {
    let mut refused = 0;
    let mut is_refused = |error: Error, begin: Instant| {
        assert!(error.is_refused() && error.to_string().contains("fork"), "{error}");
        assert!(begin.elapsed() < AT_ONCE, "{:?}: {error}", begin.elapsed());
        refused += 1;
    };
    let other = client.mutex_with("mine", fixed(10_000)).unwrap();
    let begin = Instant::now();
    is_refused(other.lock().unwrap_err(), begin);
    is_refused(other.try_lock().unwrap_err(), begin);
    is_refused(other.try_lock_for(SOON * 6).unwrap_err(), begin);
    is_refused(client.reentrant("list").unwrap().lock().unwrap_err(), begin);
    is_refused(lock.holder().unwrap_err(), begin);
    is_refused(lock.force_release().unwrap_err(), begin);
    is_refused(other.request_release().unwrap_err(), begin);
    // The copy of the parent's hold.
    let copy = lock.lock().unwrap();
    is_refused(copy.check().unwrap_err(), begin);
    is_refused(copy.extend(ms(60_000)).unwrap_err(), begin);
    is_refused(copy.transaction(delete).unwrap_err(), begin);
    drop(copy);
    is_refused(DistributedLock::unlock(client, "x").unwrap_err(), begin);
    let url = std::env::var("DIRECT").unwrap();
    is_refused(LockClient::open(&url).unwrap_err(), begin);
    is_refused(QuorumClient::builder([&url]).build().unwrap_err(), begin);
    let begin = Instant::now();
    assert!(client.shutdown(ms(300)).is_err(), "the fork cannot give anything back");
    assert!(begin.elapsed() < ms(300) + AT_ONCE);
    tell(&format!("refused {refused}"));
    tell(&format!("fork {}", std::process::id()));
}

//! Leases that last, over real servers: kept beyond their hold, or made whole at once.

use std::thread;
use std::time::Instant;

use crate::common::kind::KINDS;
use crate::common::queue::{listens, waiting};
use crate::common::several::{direct, servers};
use crate::common::{
    SOON, exists, fixed, ms, open, open_at, patient, pttl, renewed, server, until, warm,
};
use leasehold::{LockClient, LockOptions};
use leasehold_support::Child;
use leasehold_support::child::{role, tell};

const KEPT: u64 = 2_500;

#[test]
fn kept_lock_of_every_kind_is_free_when_its_time_is_over() {
    let server = server();
    thread::scope(|scope| {
        for (number, kind) in KINDS.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let (here, there) = (open(server), open(server));
                let name = format!("x{number}");
                let begin = Instant::now();
                // Its lease is much longer, and waiters are woken all the same.
                let guard = kind.with(&here, &name, renewed(600_000)).lock().unwrap();
                guard.keep_for(ms(KEPT)).unwrap();
                drop(guard);
                assert!(exists(server, &name) && pttl(server, &name) > 60_000);
                let waits = [&here, &there].map(|client| {
                    let lock = kind.open(client, &name);
                    scope.spawn(move || {
                        let guard = lock.try_lock_for(SOON).unwrap();
                        guard.map(|_guard| begin.elapsed()).expect("long before its lease ends")
                    })
                });
                for wait in waits {
                    let waited = wait.join().unwrap();
                    assert!(waited >= ms(KEPT), "{}: {waited:?}", kind.name);
                }
                assert!(!exists(server, &name), "{}", kind.name);
            });
        }
    });
}

/// One command makes the lease longer where it is too short, and none does where it is not. The release is the
/// worker's.
#[test]
fn commands_of_a_kept_lock_are_counted() {
    let server = server();
    warm(&server);
    let client = open(&server);
    for (options, commands) in [(renewed(30_000), 0), (fixed(1_500), 1)] {
        let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
        server.reset_stats();
        guard.keep_for(ms(KEPT)).unwrap();
        guard.keep_for(ms(KEPT)).unwrap();
        assert_eq!(server.command_calls(&["evalsha"]), commands);
        assert!(pttl(&server, "x") > 2_000);
        guard.release().unwrap();
        assert_eq!(server.command_calls(&["evalsha"]), commands);
        until("its time is over", || !exists(&server, "x"));
        assert_eq!(server.command_calls(&["evalsha"]), commands + 1);
    }
}

#[test]
fn confirmation_of_a_claim_is_one_command_and_of_a_lease_none() {
    let server = server();
    warm(&server);
    // A claim is as long as two heartbeats and the time-out of who waits: a part of the lease.
    let builder = patient(LockClient::builder(server.url())).command_timeout(ms(5_000));
    let (here, there) = (open(&server), builder.build().unwrap());
    listens(&server, &there);
    let guard = here.mutex("x").unwrap().lock().unwrap();
    server.reset_stats();
    guard.confirm().unwrap();
    assert_eq!(server.command_calls(&["evalsha"]), 0);
    let lock = there.mutex("x").unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let claim = lock.lock().unwrap();
            server.reset_stats();
            let (before, short) = (claim.remaining(), pttl(&server, "x"));
            claim.confirm().unwrap();
            let commands = server.command_calls(&["evalsha"]);
            // Its first renewal came before this thread did, on a machine that stands still.
            let was_whole = before > ms(20_000);
            assert!(was_whole || short < 20_000 && commands == 1, "{before:?} {short} {commands}");
            assert!(claim.remaining() > ms(29_000) && pttl(&server, "x") > 29_000);
            claim.confirm().unwrap();
            assert_eq!(server.command_calls(&["evalsha"]), commands);
            claim.into_owned().unwrap().confirm().unwrap();
        });
        until("it waits", || waiting(&server, "x") == 1);
        guard.release().unwrap();
        next.join().unwrap();
    });
}

#[test]
fn majority_keeps_a_lock_within_its_longest_lease() {
    let servers = servers(3);
    let build = || direct(&servers).max_lease(ms(10_000)).build().unwrap();
    let (here, there) = (build(), build());
    let lock = here.mutex_with("x", renewed(2_000)).unwrap();
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    let error = guard.keep_for(ms(10_000)).unwrap_err();
    assert!(error.is_config(), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("invalid keep_for: 10s is too long") && text.contains("max_lease"),
        "{text}"
    );
    guard.keep_for(ms(KEPT)).unwrap();
    // A claim comes of a queue, which there is none of.
    guard.confirm().unwrap();
    drop(guard);
    let options = LockOptions::new().lease(leasehold::Lease::renewed(ms(2_000)));
    let other = there.mutex_with("x", options).unwrap();
    assert!(lock.try_lock().unwrap().is_none() && other.try_lock().unwrap().is_none());
    let next = other.lock().unwrap();
    assert!(begin.elapsed() >= ms(KEPT), "{:?}", begin.elapsed());
    next.check().unwrap();
}

/// A process that ends after its work: nobody but Redis knows of it any more.
#[test]
fn kept_lock_outlasts_a_process_that_ended() {
    let server = server();
    let begin = Instant::now();
    let builder = Child::role("keeper").test("keep::roles").env("URL", server.url());
    let mut child = builder.start().unwrap();
    assert!(child.wait().success(), "{}", child.output());
    // Its lease was one second. The first look may come late.
    let other = open(&server).mutex("x").unwrap();
    let is_free = other.try_lock().unwrap().is_some();
    assert!(!is_free || begin.elapsed() >= ms(3_000));
    until("its time is over", || other.try_lock().unwrap().is_some());
    assert!(begin.elapsed() >= ms(3_000));
}

#[test]
fn roles() {
    if role().as_deref() != Some("keeper") {
        return;
    }
    let client = open_at(std::env::var("URL").unwrap());
    let guard = client.mutex_with("x", fixed(1_000)).unwrap().lock().unwrap();
    guard.keep_for(ms(3_000)).unwrap();
    guard.release().unwrap();
    tell("kept");
}

//! What is in use is announced and listed: with the server in memory, whose clock stands still.

use std::time::Duration;

use super::double::{taker, until};
use crate::base::option::{Lease, LockOptions, Wait};
use crate::client::{LockClient, Locks};
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);
const INDEX: &[u8] = b"leasehold:index";

/// What is listed: the kind and the name of each, in order.
fn listed(locks: Locks) -> Vec<String> {
    let shown = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let mut all: Vec<String> = locks
        .map(|lock| lock.map(|lock| format!("{} {}", lock.kind(), shown(lock.name()))).unwrap())
        .collect();
    all.sort();
    all
}

fn has_index(server: &Server) -> bool {
    server.keys().iter().any(|key| key == INDEX)
}

#[test]
fn hold_is_announced_after_a_second_and_not_before() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let guard = client.mutex("a").unwrap().lock().unwrap();
    server.advance(SECOND - Duration::from_millis(1));
    assert!(!has_index(&server));
    server.advance(SECOND + Duration::from_millis(1));
    assert_eq!(listed(other.locks("*").unwrap()), ["mutex a"]);
    let lock = other.locks("a").unwrap().next().unwrap().unwrap();
    assert_eq!(lock.inspection().holders()[0].token(), Some(guard.fencing_token()));
    assert_eq!(lock.to_string(), format!("mutex a: {}", lock.inspection()));
    guard.release().unwrap();
    assert_eq!(listed(other.locks("*").unwrap()), [""; 0], "it is free");
}

#[test]
fn nothing_is_announced_while_nothing_lasts_a_second() {
    let server = Server::standing_still();
    let client = server.client();
    let (mutex, reentrant) = (client.mutex("a").unwrap(), client.reentrant("b").unwrap());
    for _ in 0..50 {
        let guards = (mutex.lock().unwrap(), reentrant.lock().unwrap());
        server.advance(SECOND * 9 / 10);
        drop(guards);
        server.advance(SECOND / 10);
    }
    assert!(!has_index(&server));
}

#[test]
fn entries_outlast_a_long_hold_and_not_by_more_than_a_minute() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::renewed(SECOND * 10));
    let guards = ["a", "b"].map(|name| client.mutex_with(name, options).unwrap().lock().unwrap());
    for _ in 0..60 {
        server.advance(SECOND * 3);
        assert_eq!(listed(client.locks("*").unwrap()), ["mutex a", "mutex b"]);
    }
    let [first, second] = guards;
    drop(second);
    server.advance(SECOND * 61);
    // Seen in the entries themselves, since `locks` leaves out what is free.
    let names: Vec<_> =
        client.engine().ask(|it, deadline| it.server()?.announced(deadline)).unwrap();
    assert_eq!(names, [("mutex".to_owned(), b"a".to_vec())]);
    drop(first);
    server.advance(SECOND * 61);
    assert!(!has_index(&server));
}

#[test]
fn wait_for_a_foreign_lock_is_announced_by_its_waiter() {
    let server = Server::standing_still();
    let client = server.client();
    server.steal("a", SECOND * 600);
    let waiter = taker(&client, true);
    until(|| server.is_queued_for("a"));
    server.advance(SECOND * 4);
    let lock = client.locks("*").unwrap().next().unwrap().unwrap();
    assert_eq!((lock.name(), lock.inspection().waiting()), (&b"a"[..], Some(1)));
    assert_eq!(lock.inspection().holders().len(), 1);
    server.delete("a");
    server.advance(SECOND * 4);
    waiter.recv().unwrap().unwrap().unwrap().release().unwrap();
}

#[test]
fn wait_that_has_ended_is_not_announced_again() {
    let server = Server::standing_still();
    let client = server.client();
    server.steal("a", SECOND * 600);
    let waiter = taker(&client, true);
    until(|| server.is_queued_for("a"));
    server.advance(SECOND * 4);
    assert!(has_index(&server));
    client.mutex("a").unwrap().cancel_waits();
    assert!(waiter.recv().unwrap().is_err());
    server.advance(SECOND * 61);
    assert!(!has_index(&server));
}

#[test]
fn client_that_does_not_announce_is_found_by_a_scan() {
    let server = Server::standing_still();
    let quiet = server.connect(LockClient::builder("redis://unused").announce(false)).unwrap();
    let guards =
        (quiet.mutex("a").unwrap().lock().unwrap(), quiet.reentrant("b").unwrap().lock().unwrap());
    server.steal("c", SECOND * 600);
    server.advance(SECOND * 30);
    assert!(!has_index(&server));
    assert_eq!(listed(quiet.locks("*").unwrap()), [""; 0]);
    let all = ["mutex a", "mutex c", "reentrant lock b"];
    assert_eq!(listed(quiet.locks("*").unwrap().with_scan()), all);
    assert_eq!(listed(quiet.locks("?").unwrap().with_scan()), all);
    assert_eq!(listed(quiet.locks("b*").unwrap().with_scan()), ["reentrant lock b"]);
    drop(guards);
}

#[test]
fn scan_finds_what_several_hold_and_no_other_sorted_set() {
    let server = Server::standing_still();
    let quiet = server.connect(LockClient::builder("redis://unused").announce(false)).unwrap();
    let permit = quiet.semaphore("gpu", 4).unwrap().acquire().unwrap();
    let reader = quiet.rw_lock("catalog").unwrap().read().unwrap();
    // Foreign, with a score that a lease could have.
    server.inner().call(&[b"ZADD", b"scores", b"9000000000000000", b"somebody"]).unwrap();
    let all = ["read-write lock catalog", "semaphore gpu"];
    assert_eq!(listed(quiet.locks("*").unwrap().with_scan()), all);
    drop((permit, reader));
}

#[test]
fn scan_repeats_nothing_that_was_announced() {
    let server = Server::standing_still();
    let client = server.client();
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    server.advance(SECOND * 2);
    assert_eq!(listed(client.locks("*").unwrap().with_scan()), ["mutex a"]);
}

#[test]
fn names_are_shown_without_the_prefix_of_the_client() {
    let server = Server::standing_still();
    let shop = server.connect(LockClient::builder("redis://unused").name_prefix("shop*:")).unwrap();
    let all = server.client();
    let _guards = ["shop", "all"].map(|name| {
        let client = if name == "shop" { &shop } else { &all };
        client.mutex(name).unwrap().lock().unwrap().into_owned().unwrap()
    });
    server.advance(SECOND * 2);
    for scans in [false, true] {
        let listed = |client: &LockClient| {
            let locks = client.locks("*").unwrap();
            listed(if scans { locks.with_scan() } else { locks })
        };
        assert_eq!(listed(&shop), ["mutex shop"]);
        assert_eq!(listed(&all), ["mutex all", "mutex shop*:shop"]);
    }
}

#[test]
fn full_memory_and_a_cut_link_only_delay_announcements() {
    let server = Server::standing_still();
    let client = server.client();
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    server.set_out_of_memory(true);
    server.advance(SECOND * 3);
    assert!(!has_index(&server));
    server.set_out_of_memory(false);
    server.advance(SECOND * 21);
    assert!(has_index(&server), "it was given up");
}

#[test]
fn foreign_value_in_place_of_the_index_ends_announcements() {
    let server = Server::standing_still();
    let client = server.client();
    server.steal(INDEX, SECOND * 100);
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    server.advance(SECOND * 3);
    assert!(client.locks("*").unwrap_err().is_wrong_type());
    server.delete(INDEX);
    server.advance(SECOND * 60);
    assert!(!has_index(&server));
}

#[test]
fn many_locks_are_announced_by_one_command_a_second() {
    let server = Server::standing_still();
    let client = server.client();
    let spinning = LockOptions::new().wait(Wait::spin());
    let _guards: Vec<_> = (0..2_500)
        .map(|number| {
            let lock = client.mutex_with(format!("lock {number}"), spinning).unwrap();
            lock.lock().unwrap().into_owned().unwrap()
        })
        .collect();
    for expected in [1_000, 2_000, 2_500, 2_500] {
        server.advance(SECOND);
        assert_eq!(listed(client.locks("lock *").unwrap()).len(), expected);
    }
}

/// How many entries the index has.
fn entries(client: &LockClient) -> usize {
    let engine = client.engine();
    engine.ask(|it, deadline| it.server()?.announced(deadline)).unwrap().len()
}

#[test]
fn announcement_without_a_reply_is_followed_by_a_rest() {
    let server = Server::standing_still();
    let client = server.client();
    let _first = client.mutex("a").unwrap().lock().unwrap();
    let link = server.link(&client);
    link.cut();
    server.advance(SECOND * 3);
    link.restore();
    let _second = client.mutex("b").unwrap().lock().unwrap();
    server.advance(SECOND * 10);
    assert!(!has_index(&server), "it does not rest");
    server.advance(SECOND * 30);
    assert_eq!(entries(&client), 2);
}

#[test]
fn entries_of_a_clock_that_was_set_back_are_dropped() {
    let server = Server::standing_still();
    let client = server.client();
    let ahead = (server.inner().micros() / 1_000_000 + 3_600).to_string();
    server.inner().call(&[b"ZADD", INDEX, ahead.as_bytes(), b"mutex:old"]).unwrap();
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    server.advance(SECOND * 3);
    assert_eq!(entries(&client), 1);
}

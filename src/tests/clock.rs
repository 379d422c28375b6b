//! A server's clock that is set while its clients have locks there.

use std::time::Duration;

use super::double::{listen, until};
use crate::OwnedLease;
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::client::LockClient;
use crate::kind::Guard;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

/// What a clock is set by, in milliseconds: more than is allowed for where there is one server.
const STEPS: [i64; 6] = [300, -300, 5_000, -5_000, 600_000, -600_000];

fn hold(client: &LockClient, name: &str, lease: Lease) -> Guard {
    client.mutex_with(name, LockOptions::new().lease(lease)).unwrap().lock().unwrap()
}

fn set(server: &Server, millis: i64) {
    server.set_clock(millis * 1_000);
}

/// Its reply to a renewal tells the time, and nothing else of the client does.
#[test]
fn quiet_client_learns_that_a_step_has_ended_a_lease() {
    let server = Server::standing_still();
    let client = server.client();
    let fixed = hold(&client, "fixed", Lease::fixed(HOUR));
    let renewed = hold(&client, "renewed", Lease::renewed(HOUR * 8));
    set(&server, 7_200_000);
    // The fixed lease is asked about by nobody, and would look valid for 50 minutes more.
    server.advance(SECOND);
    assert!(fixed.is_valid() && renewed.is_valid());
    let lock =
        client.mutex_with("another", LockOptions::new().lease(Lease::renewed(LONG))).unwrap();
    drop(lock.lock().unwrap());
    until(|| !fixed.is_valid());
    assert_eq!(fixed.loss().unwrap().cause(), LossCause::Deleted);
    assert!(renewed.is_valid(), "it lasts longer than the step");
}

#[test]
fn renewal_shows_the_step() {
    let server = Server::standing_still();
    let client = server.client();
    let fixed = hold(&client, "fixed", Lease::fixed(HOUR));
    let renewed = hold(&client, "renewed", Lease::renewed(HOUR / 60));
    set(&server, 7_200_000);
    server.advance(SECOND * 20);
    until(|| !fixed.is_valid());
    assert!(!renewed.is_valid());
}

/// A step ends no lease here. Each is asked about once, and what was asked for the new time.
#[test]
fn leases_that_a_step_leaves_are_asked_about_and_stay() {
    for step in STEPS.into_iter().filter(|step| *step <= 5_000) {
        let server = Server::standing_still();
        let client = server.client();
        let link = server.link(&client);
        let mut guards: Vec<_> =
            ["a", "b"].map(|name| hold(&client, name, Lease::renewed(LONG))).into();
        guards.push(hold(&client, "c", Lease::fixed(HOUR)));
        server.advance(SECOND);
        let quiet = link.exchanges();
        server.advance(SECOND);
        assert_eq!(link.exchanges(), quiet, "nothing is due");
        set(&server, step);
        drop(hold(&client, "d", Lease::renewed(LONG)));
        // The lock, the time, the release; the others are asked about together, or one after the other.
        until(|| link.exchanges() > quiet + 3);
        server.advance(SECOND * 60);
        assert!(guards.iter().all(Guard::is_valid), "{step}");
        guards.into_iter().for_each(|guard| guard.release().unwrap());
    }
}

/// The thread of a client that waits for a lock.
fn waiter(server: &Server, client: &LockClient) -> Receiver<OwnedLease> {
    let lock = client.mutex_with("x", LockOptions::new().lease(Lease::renewed(LONG))).unwrap();
    listen(client);
    let (sender, receiver) = unbounded();
    let body = move || _ = sender.send(lock.lock().unwrap().into_owned().unwrap());
    sync::spawn("waiter", body).unwrap();
    until(|| server.is_queued_for("x"));
    receiver
}

/// It has the lease of a claim, unless it asks.
#[test]
fn grant_by_message_is_not_believed_after_a_step() {
    for step in [0].into_iter().chain(STEPS) {
        let server = Server::standing_still();
        let client = server.client();
        let lock = server.client().mutex_with("x", LockOptions::new().lease(Lease::fixed(HOUR)));
        let guard = lock.unwrap().lock().unwrap();
        let waiter = waiter(&server, &client);
        let link = server.link(&client);
        let before = link.exchanges();
        set(&server, step);
        drop(hold(&client, "another", Lease::renewed(LONG)));
        if step != 0 {
            // The lock, the time, the release, and a beat at once.
            until(|| link.exchanges() >= before + 4);
            until(|| server.is_queued_for("x"));
        }
        guard.release().unwrap();
        let owned = waiter.recv().unwrap();
        let is_whole = owned.remaining() > LONG / 2;
        assert_eq!(is_whole, step != 0, "{step}: {:?}", owned.remaining());
    }
}

#[test]
fn waiter_asks_at_once_and_not_at_its_next_beat() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&server.client(), "x", Lease::renewed(LONG));
    let _waiter = waiter(&server, &client);
    let link = server.link(&client);
    let before = link.exchanges();
    drop(hold(&client, "another", Lease::renewed(LONG)));
    assert_eq!(link.exchanges(), before + 2, "the lock and its release");
    set(&server, -5_000);
    let before = link.exchanges();
    drop(hold(&client, "another", Lease::renewed(LONG)));
    // No time passes.
    until(|| link.exchanges() > before + 2);
    assert!(guard.is_valid());
}

#[test]
fn step_within_the_bound_is_none() {
    let server = Server::standing_still();
    let client =
        server.connect(LockClient::builder("redis://memory").max_clock_skew(SECOND)).unwrap();
    let link = server.link(&client);
    let guard = hold(&client, "a", Lease::fixed(HOUR));
    let before = link.exchanges();
    set(&server, 900);
    drop(hold(&client, "b", Lease::renewed(LONG)));
    set(&server, -900);
    drop(hold(&client, "b", Lease::renewed(LONG)));
    server.advance(SECOND * 5);
    assert_eq!(link.exchanges(), before + 4);
    assert!(guard.is_valid());
}

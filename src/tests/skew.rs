//! Clocks of servers that may differ: how much earlier a hold ends here, and how much longer Redis keeps it.

use std::time::Duration;

use super::double::{listen, until};
use crate::OwnedLease;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::unbounded;
use crate::base::time::drift_allowance;
use crate::client::{LockClient, LockClientBuilder};
use crate::kind::Guard;
use crate::testing::Server;
use crate::wire::{Cmd, Value};

const SECOND: Duration = Duration::from_secs(1);
const SKEW: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);

fn builder() -> LockClientBuilder {
    LockClient::builder("redis://memory")
}

fn client(server: &Server) -> LockClient {
    server.connect(builder().max_clock_skew(SKEW)).unwrap()
}

fn hold(client: &LockClient, lease: Lease) -> Guard {
    client.mutex_with("x", LockOptions::new().lease(lease)).unwrap().lock().unwrap()
}

/// What is left of a time to live, where this much is taken off for the clocks.
fn valid(ttl: Duration, skew: Duration) -> Duration {
    ttl - drift_allowance(ttl) - skew
}

/// For how long Redis keeps the lock, if nobody renews it.
fn kept(server: &Server, client: &LockClient) -> Duration {
    client.mutex("x").unwrap().holder().unwrap().and_then(|holder| holder.ttl()).unwrap_or_else(
        || {
            panic!("nobody holds it: {:?}", server.keys());
        },
    )
}

/// Hands the lock from a holder to this client by the queue.
fn claim(server: &Server, client: &LockClient, lease: Lease) -> OwnedLease {
    let guard = server.client().mutex("x").unwrap().lock().unwrap();
    let lock = client.mutex_with("x", LockOptions::new().lease(lease)).unwrap();
    listen(client);
    let (sender, receiver) = unbounded();
    let body = move || _ = sender.send(lock.lock().unwrap().into_owned().unwrap());
    sync::spawn("taker", body).unwrap();
    until(|| server.is_queued_for("x"));
    guard.release().unwrap();
    receiver.recv().unwrap()
}

#[test]
fn validity_ends_earlier_by_the_skew_or_a_tenth_of_the_lease() {
    for make in [Lease::renewed, Lease::fixed] {
        for (lease, skew) in [(LONG, SKEW), (SECOND, SECOND / 10)] {
            let server = Server::standing_still();
            let guard = hold(&client(&server), make(lease));
            assert_eq!(guard.remaining(), valid(lease, skew));
            let other = server.client();
            assert_eq!(kept(&server, &other), lease, "Redis keeps it for all of its lease");
            guard.release().unwrap();
            // One server's clock is one clock.
            assert_eq!(hold(&other, make(lease)).remaining(), valid(lease, Duration::ZERO));
        }
    }
}

#[test]
fn default_depends_on_whether_a_lock_can_move() {
    let one = builder();
    let group = LockClient::builder("redis://mymaster").sentinels(["redis://a:26379"]);
    let cluster = builder().cluster([""; 0]);
    let set = || builder().cluster([""; 0]).max_clock_skew(Duration::ZERO);
    for (settings, skew) in
        [(one, Duration::ZERO), (group, SKEW), (cluster, SKEW), (set(), Duration::ZERO)]
    {
        let server = Server::standing_still();
        let client = server.connect(settings).unwrap();
        assert_eq!(hold(&client, Lease::default()).remaining(), valid(LONG, skew));
    }
}

/// Nobody is promoted within ten seconds by a cluster or sentinels with their default settings.
#[test]
fn default_outage_outlasts_a_fail_over() {
    let group = || LockClient::builder("redis://mymaster").sentinels(["redis://a:26379"]);
    let cluster = || builder().cluster([""; 0]);
    for (settings, seconds) in [
        (builder(), 10),
        (group(), 60),
        (cluster(), 60),
        (group().give_up_after(SECOND * 5), 5),
        (cluster().give_up_after(SECOND * 5), 5),
    ] {
        let client = Server::standing_still().connect(settings).unwrap();
        assert_eq!(client.engine().context.bounds.give_up_after, SECOND * seconds);
    }
}

/// The hold ends when its holder says so, and the lock is free when Redis says so.
#[test]
fn hold_that_is_not_renewed_is_over_before_any_server_ends_it() {
    let server = Server::standing_still();
    let client = client(&server);
    let guard = hold(&client, Lease::fixed(LONG));
    server.advance(valid(LONG, SKEW) - Duration::from_millis(1));
    assert!(guard.is_valid());
    server.advance(Duration::from_millis(1));
    assert!(!guard.is_valid() && guard.check().unwrap_err().is_lost());
    let left = kept(&server, &server.client());
    assert!(left >= SKEW, "another server would have ended it: {left:?}");
}

#[test]
fn renewal_moves_the_end_by_as_much() {
    let server = Server::standing_still();
    let guard = hold(&client(&server), Lease::renewed(LONG));
    // Due after a third, less up to a sixteenth of it.
    server.advance(SECOND * 10);
    let since = LONG - kept(&server, &server.client());
    assert!(since < SECOND, "renewed {since:?} ago");
    assert_eq!(guard.remaining(), valid(LONG, SKEW) - since);
}

#[test]
fn extension_is_for_a_lease_of_its_own_length() {
    let server = Server::standing_still();
    let guard = hold(&client(&server), Lease::fixed(SECOND));
    guard.extend(LONG).unwrap();
    assert_eq!(guard.remaining(), valid(LONG, SKEW));
}

/// The window grows by what its validity loses. A tenth of the window would be less than what was promised
/// for the lease.
#[test]
fn claim_has_the_skew_of_its_lease_and_a_longer_window() {
    // Two heartbeats and a time-out.
    let least = SECOND * 3;
    for (lease, skew, window) in [
        (LONG, SKEW, least + SKEW),
        (SECOND * 4, SECOND * 4 / 10, least + SECOND * 4 / 10),
        // No claim: the lease is no longer than the window.
        (SECOND, SECOND / 10, SECOND),
    ] {
        let server = Server::standing_still();
        let client = client(&server);
        let owned = claim(&server, &client, Lease::renewed(lease));
        assert_eq!(kept(&server, &server.client()), window);
        let most = valid(window, skew);
        assert!(owned.remaining() <= most, "{:?} of {most:?}", owned.remaining());
        // The message was sent at the server's present, and is dated a little earlier.
        assert!(owned.remaining() + drift_allowance(SECOND) >= most, "{:?}", owned.remaining());
        owned.confirm().unwrap();
        assert_eq!(owned.remaining(), valid(lease, skew));
    }
}

/// A skew of many seconds, so that a tenth of the lease is in force.
#[test]
fn large_skew_leaves_a_claim_as_long_as_a_small_one() {
    let server = Server::standing_still();
    let client = server.connect(builder().max_clock_skew(SECOND * 3600)).unwrap();
    let owned = claim(&server, &client, Lease::renewed(LONG));
    assert_eq!(kept(&server, &server.client()), SECOND * 6);
    assert!(owned.remaining() > SECOND * 29 / 10, "{:?}", owned.remaining());
}

#[test]
fn kept_lock_lasts_at_a_server_whose_clock_is_ahead() {
    for (lease, least) in [(LONG, SECOND * 60), (SECOND, SECOND * 5), (SECOND, SECOND * 60)] {
        let server = Server::standing_still();
        let client = client(&server);
        let guard = hold(&client, Lease::fixed(lease));
        guard.keep_for(least).unwrap();
        let left = kept(&server, &server.client());
        // Of such a lease the tenth is the smaller one only below five seconds.
        assert!(left >= least + SKEW && left < least * 2, "{left:?} for {least:?}");
        assert!(guard.remaining() >= least);
    }
}

/// The release is tried for as long as a server whose clock is behind may have the lock.
#[test]
fn worker_gives_back_what_a_server_behind_still_has() {
    let skew = SECOND * 3;
    let server = Server::standing_still();
    let client = server.connect(builder().max_clock_skew(skew)).unwrap();
    let guard = hold(&client, Lease::fixed(LONG));
    let other = server.client();
    let ask = |command: &Cmd| other.query("x", command).unwrap();
    let Value::BulkString(owner) = ask(Cmd::new().arg("GET").arg("x")) else {
        panic!("nobody holds it")
    };
    server.link(&client).cut();
    drop(guard);
    server.advance(LONG + SECOND);
    assert!(!other.mutex("x").unwrap().is_locked().unwrap());
    // Two seconds are left of it there.
    ask(Cmd::new().arg("SET").arg("x").arg(&owner).arg("PX").arg(2_000));
    server.link(&client).restore();
    // A pause between two tries takes a second at most.
    server.advance(SECOND * 3 / 2);
    assert!(!other.mutex("x").unwrap().is_locked().unwrap(), "nobody gave it back");
}

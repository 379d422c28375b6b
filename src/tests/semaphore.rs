//! How long the limit of a semaphore is remembered, and what a refusal heals.

use std::time::Duration;

use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::unbounded;
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::testing::Server;
use crate::tests::double::{listen, until};

const SECOND: Duration = Duration::from_secs(1);
/// The longest that a test waits for what must come.
const SOON: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn limit_of_a_resize_lasts_for_an_hour_after_the_last_use() {
    let server = Server::standing_still();
    let gpus = server.client().semaphore("gpu", 2).unwrap();
    gpus.resize(0).unwrap();
    // Each request that is refused begins the hour anew.
    for _ in 0..3 {
        server.advance(59 * MINUTE);
        assert!(gpus.try_acquire().unwrap_err().is_config());
    }
    server.advance(61 * MINUTE);
    gpus.try_acquire().unwrap().unwrap().release().unwrap();

    gpus.resize(1).unwrap();
    server.advance(50 * MINUTE);
    let permit = gpus.acquire().unwrap();
    server.advance(50 * MINUTE);
    drop(permit);
    server.advance(50 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 1);
    server.advance(11 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 2);
}

#[test]
fn resize_for_names_the_time_and_no_lease_outlives_it() {
    let server = Server::standing_still();
    let client = server.client();
    let gpus = client.semaphore("gpu", 2).unwrap();
    for (keep, shown) in [
        (Duration::ZERO, "too short"),
        (Duration::from_secs(31 * 24 * 60 * 60), "too long"),
        (Duration::MAX, "too long"),
    ] {
        let error = gpus.resize_for(1, keep).unwrap_err();
        let text = error.to_string();
        assert!(error.is_config() && text.contains("keep") && text.contains(shown), "{text}");
    }
    assert!(gpus.resize_for(1 << 31, MINUTE).unwrap_err().is_config());
    gpus.resize_for(0, 7 * 24 * 60 * MINUTE).unwrap();
    server.advance(6 * 24 * 60 * MINUTE);
    assert!(gpus.try_acquire().unwrap_err().is_config());
    gpus.resize_for(1, 2 * MINUTE).unwrap();
    server.advance(3 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 2, "nobody used it, so the week is over, too");
    // The lease of the handle is longer.
    let lease = LockOptions::new().lease(Lease::renewed(10 * MINUTE));
    let slow = client.semaphore_with("slow", 2, lease).unwrap();
    slow.resize_for(1, MINUTE).unwrap();
    server.advance(9 * MINUTE);
    assert_eq!(slow.limit().unwrap(), 1);
    server.advance(2 * MINUTE);
    assert_eq!(slow.limit().unwrap(), 2);
}

/// A client that listens, so that its leases linger and it hears of waiters.
fn listening(server: &Server) -> LockClient {
    let client = server.client();
    listen(&client);
    // What lingers when the client begins to listen is given back with its next hold.
    server.advance(Duration::ZERO);
    client
}

/// One client's place in the line is before the other's, and its threads keep the lock busy.
#[test]
fn waiter_behind_the_holders_own_client_tells_the_holder() {
    let server = Server::standing_still();
    let (here, there) = (listening(&server), listening(&server));
    let gpus = here.semaphore("gpu", 1).unwrap();
    let held = gpus.acquire().unwrap();
    let (sender, taken) = unbounded();
    for (count, client) in [&here, &there].into_iter().enumerate() {
        let (waits, sender) = (client.semaphore("gpu", 1).unwrap(), sender.clone());
        spawn("waiter", move || {
            waits.acquire().unwrap().release().unwrap();
            sender.send(()).unwrap();
        })
        .unwrap();
        until(|| gpus.inspect().unwrap().waiting() == Some(count + 1));
    }
    // No heartbeat comes, as the time stands still.
    until(|| held.waiters() == 2);
    held.release().unwrap();
    for _ in 0..2 {
        taken.recv_timeout(SOON).unwrap();
    }
}

//! Two locks whose releases are published on one channel: `orders` and `{orders}` share Redisson's.

use std::time::Duration;

use super::double::until;
use crate::base::sync;
use crate::base::sync::channel::unbounded;
use crate::client::LockClient;
use crate::engine::listener::ReleaseListener;
use crate::testing::Server;

const NAMES: [&str; 2] = ["orders", "{orders}"];

/// How many locks the threads of a client wait for.
fn waits(client: &LockClient) -> usize {
    client.engine().table().all().iter().filter(|slot| slot.has_waiters()).count()
}

/// The clock stands still, so no waiter asks again unless a message wakes it.
#[test]
fn a_shared_channel_wakes_the_waiters_of_both_locks() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guards = NAMES.map(|name| here.reentrant(name).unwrap().lock().unwrap());
    let waiters = NAMES.map(|name| {
        let (sender, receiver) = unbounded();
        let lock = there.reentrant(name).unwrap();
        let body = move || {
            let _ = sender.send(lock.lock().and_then(|guard| guard.release()));
        };
        sync::spawn("waiter", body).unwrap();
        receiver
    });
    until(|| waits(&there) == 2);
    server.advance(Duration::ZERO);
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        guard.release().unwrap();
        waiter.recv().expect("the release wakes its waiter").unwrap();
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
}

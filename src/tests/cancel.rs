//! `cancel_waits`, while the last request of a wait is under way.

use std::time::Duration;

use super::double::until;
use crate::base::error::Result;
use crate::base::sync;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::client::LockClient;
use crate::kind::UpgradableReadGuard;
use crate::testing::Server;

const LATE: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

/// A way to wait for the lock `x`, and to cancel that.
struct Kind {
    name: &'static str,
    wait: fn(&LockClient) -> Result<()>,
    cancel: fn(&LockClient) -> Result<usize>,
}

const KINDS: [Kind; 8] = [
    Kind {
        name: "mutex",
        wait: |client| client.mutex("x")?.lock().map(drop),
        cancel: |client| Ok(client.mutex("x")?.cancel_waits()),
    },
    Kind {
        name: "mutex, for a time",
        wait: |client| client.mutex("x")?.try_lock_for(HOUR).map(drop),
        cancel: |client| Ok(client.mutex("x")?.cancel_waits()),
    },
    Kind {
        name: "reentrant lock",
        wait: |client| client.reentrant("x")?.lock().map(drop),
        cancel: |client| Ok(client.reentrant("x")?.cancel_waits()),
    },
    Kind {
        name: "semaphore",
        wait: |client| client.semaphore("x", 2)?.acquire_many(2).map(drop),
        cancel: |client| Ok(client.semaphore("x", 2)?.cancel_waits()),
    },
    Kind {
        name: "reader",
        wait: |client| client.rw_lock("x")?.read().map(drop),
        cancel: |client| Ok(client.rw_lock("x")?.cancel_waits()),
    },
    Kind {
        name: "writer",
        wait: |client| client.rw_lock("x")?.write().map(drop),
        cancel: |client| Ok(client.rw_lock("x")?.cancel_waits()),
    },
    Kind {
        name: "upgradable reader",
        wait: |client| client.rw_lock("x")?.upgradable_read().map(drop),
        cancel: |client| Ok(client.rw_lock("x")?.cancel_waits()),
    },
    Kind {
        name: "election",
        wait: |client| client.election("x")?.campaign().map(drop),
        cancel: |client| Ok(client.election("x")?.cancel_waits()),
    },
];

/// A thread that waits, and sends how its wait ended.
fn waiter(client: &LockClient, wait: fn(&LockClient) -> Result<()>) -> Receiver<Result<()>> {
    let (sender, outcomes) = unbounded();
    let client = client.clone();
    sync::spawn("waiter", move || _ = sender.send(wait(&client))).unwrap();
    outcomes
}

fn is_gone(server: &Server) -> bool {
    !server.keys().iter().any(|key| key == b"x")
}

/// The request is granted, and its reply is on the way.
#[test]
fn a_lock_that_comes_after_the_cancellation_is_given_back() {
    for Kind { name, wait, cancel } in KINDS {
        let server = Server::standing_still();
        let client = server.client();
        // It connects, and sends the script whole.
        wait(&client).unwrap();
        let link = server.link(&client);
        let before = link.faults();
        link.delay_answers(1, LATE);
        let outcome = waiter(&client, wait);
        until(|| link.faults() > before);
        assert_eq!(cancel(&client).unwrap(), 1, "{name}");
        assert_eq!(cancel(&client).unwrap(), 0, "{name}: it was counted");
        server.run_until(|| !outcome.is_empty());
        let outcome = outcome.recv().unwrap();
        assert!(outcome.as_ref().is_err_and(|error| error.is_cancelled()), "{name}: {outcome:?}");
        // Others get it, and only that wait was cancelled.
        for client in [server.client(), client] {
            let outcome = waiter(&client, wait);
            server.run_until(|| !outcome.is_empty());
            outcome.recv().unwrap().unwrap();
        }
    }
}

#[test]
fn an_upgrade_that_comes_after_the_cancellation_is_given_back() {
    let server = Server::standing_still();
    let client = server.client();
    let (sender, outcome) = unbounded();
    let (go, may_go) = unbounded();
    let lock = client.rw_lock("x").unwrap();
    let upgrades = lock.clone();
    let body = move || {
        // Once before, so that the script is known.
        for _ in 0..2 {
            let held = upgrades.upgradable_read().unwrap();
            may_go.recv().unwrap();
            let _ = sender.send(UpgradableReadGuard::upgrade(held).map(drop));
        }
    };
    sync::spawn("upgrade", body).unwrap();
    go.send(()).unwrap();
    outcome.recv().unwrap().unwrap();
    until(|| !is_gone(&server));
    let link = server.link(&client);
    let before = link.faults();
    until(|| lock.inspect().unwrap().holders().len() == 1);
    link.delay_answers(1, LATE);
    go.send(()).unwrap();
    until(|| link.faults() > before);
    assert_eq!(lock.cancel_waits(), 1);
    server.run_until(|| !outcome.is_empty());
    let outcome = outcome.recv().unwrap();
    assert!(outcome.as_ref().is_err_and(|error| error.is_cancelled()), "{outcome:?}");
    server.run_until(|| is_gone(&server));
}

/// Its wait was counted, so its thread asks no more, and nothing that it did is left.
#[test]
fn cancelled_wait_whose_last_request_fails_is_cancelled() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex("x").unwrap();
    drop(lock.lock().unwrap());
    // Of another type.
    let _permit = server.client().semaphore("x", 1).unwrap().acquire().unwrap();
    let link = server.link(&client);
    let before = link.faults();
    link.delay_answers(1, LATE);
    let outcome = waiter(&client, |client| client.mutex("x")?.lock().map(drop));
    until(|| link.faults() > before);
    assert_eq!(lock.cancel_waits(), 1);
    server.run_until(|| !outcome.is_empty());
    let outcome = outcome.recv().unwrap();
    assert!(outcome.as_ref().is_err_and(|error| error.is_cancelled()), "{outcome:?}");
    assert!(lock.try_lock().unwrap_err().is_wrong_type());
}

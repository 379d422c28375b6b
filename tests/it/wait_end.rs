//! The end of a wait: `None` says that somebody has the lock, and so needs to have been told.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, ms, open, server, until};
use leasehold::{Error, LockClient};
use leasehold_support::Server;

/// For how long the reply that named a holder counts.
const HELD_FOR: Duration = ms(2_000);

type Ask = Box<dyn Fn(Duration) -> Result<bool, Error> + Send + Sync>;

/// Each kind's call that waits, with whether it got the lock.
fn calls(client: &LockClient) -> Vec<(&'static str, Ask)> {
    let mutex = client.mutex("mutex").unwrap();
    let reentrant = client.reentrant("reentrant").unwrap();
    let permits = client.semaphore("permits", 1).unwrap();
    let [reads, writes, upgrades] =
        ["reads", "writes", "upgrades"].map(|name| client.rw_lock(name).unwrap());
    let all = [client.mutex("all").unwrap(), client.mutex("more").unwrap()];
    let several = client.clone();
    vec![
        ("mutex", Box::new(move |wait| Ok(mutex.try_lock_for(wait)?.is_some()))),
        ("reentrant", Box::new(move |wait| Ok(reentrant.try_lock_for(wait)?.is_some()))),
        ("permits", Box::new(move |wait| Ok(permits.try_acquire_for(wait)?.is_some()))),
        ("reads", Box::new(move |wait| Ok(reads.try_read_for(wait)?.is_some()))),
        ("writes", Box::new(move |wait| Ok(writes.try_write_for(wait)?.is_some()))),
        ("upgrades", Box::new(move |wait| Ok(upgrades.try_upgradable_read_for(wait)?.is_some()))),
        ("all", Box::new(move |wait| Ok(several.try_lock_all_for(&all, wait)?.is_some()))),
    ]
}

/// The same locks, held by another client.
fn hold_all(client: &LockClient) -> Vec<Box<dyn std::any::Any>> {
    let permits = client.semaphore("permits", 1).unwrap();
    let mut held: Vec<Box<dyn std::any::Any>> = vec![
        Box::new(client.mutex("mutex").unwrap().lock().unwrap()),
        Box::new(client.reentrant("reentrant").unwrap().lock().unwrap()),
        Box::new(permits.acquire().unwrap()),
        Box::new(client.mutex("all").unwrap().lock().unwrap()),
    ];
    for name in ["reads", "writes", "upgrades"] {
        held.push(Box::new(client.rw_lock(name).unwrap().write().unwrap()));
    }
    held
}

/// How many processes wait for a lock, or listen for its release.
fn waits(server: &Server) -> usize {
    ask::<String>(server, &["CLIENT", "LIST", "TYPE", "PUBSUB"]).lines().count()
}

/// A thread of the same process asks Redis before them: since before the outage, or from then on.
fn ends_in_error(asks_before: bool) {
    let server = server();
    let (holder, client) = (open(&server), open(&server));
    let _held = hold_all(&holder);
    let calls = calls(&client);
    thread::scope(|scope| {
        let ask_first = || {
            for (name, ask) in &calls {
                scope.spawn(move || assert!(!matches!(ask(ms(9_000)), Ok(true)), "{name}"));
            }
        };
        if asks_before {
            ask_first();
            until("they wait", || waits(&server) > 0);
        }
        for (name, ask) in &calls {
            // A wait may be too short to be told, on a busy machine.
            until("it is told that somebody has it", || match ask(ms(20)) {
                Ok(had) => {
                    assert!(!had, "{name}: somebody has it");
                    true
                }
                Err(error) => {
                    assert!(!error.is_lost(), "{name}: {error:?}");
                    false
                }
            });
        }
        server.pause();
        thread::sleep(HELD_FOR + ms(50));
        if !asks_before {
            ask_first();
        }
        for (name, ask) in &calls {
            scope.spawn(move || {
                for wait in [1, 20, 100, 200, 500, 2_000].map(ms) {
                    let begin = Instant::now();
                    let error = ask(wait).expect_err(name);
                    let is_outage = error.is_unreachable() || error.is_unknown_outcome();
                    assert!(is_outage, "{name} after {wait:?}: {error:?}");
                    assert!(begin.elapsed() >= wait, "{name}");
                }
            });
        }
    });
    server.resume();
    drop(calls);
    holder.shutdown(SOON).unwrap();
}

#[test]
fn wait_that_ends_in_an_outage_is_an_error_however_short_it_is() {
    ends_in_error(true);
}

#[test]
fn wait_behind_a_thread_that_came_in_the_outage_is_an_error_too() {
    ends_in_error(false);
}

//! What stands on the task queue of the worker while leases come and go.

use std::time::Duration;

use super::double::{patient, until};
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::unbounded;
use crate::client::LockClient;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// How many slots are on the task queue of a client.
fn looks(client: &LockClient) -> usize {
    client.engine().worker.len().0
}

fn lingering() -> LockOptions {
    LockOptions::new().linger(SECOND * 10)
}

/// Waits until a lease of this client may linger, which it may once others could be heard.
fn listen(server: &Server, client: &LockClient) {
    client.mutex_with("listens", lingering()).unwrap().lock().unwrap().release().unwrap();
    until(|| client.engine().listener.is_live());
    server.advance(Duration::ZERO);
}

#[test]
fn released_leases_leave_nothing_on_the_task_queue() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::fixed(HOUR));
    let locks: Vec<_> =
        (0..50).map(|number| client.mutex_with(format!("x{number}"), options).unwrap()).collect();
    for _ in 0..3 {
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        assert_eq!(looks(&client), 50);
        drop(guards);
        assert_eq!(looks(&client), 0);
    }
}

#[test]
fn a_lease_taken_again_has_one_entry_on_the_task_queue() {
    let server = Server::new();
    let client = server.connect(patient()).unwrap();
    listen(&server, &client);
    let lock = client.mutex_with("x", lingering()).unwrap();
    let before = looks(&client);
    for _ in 0..100 {
        lock.lock().unwrap().release().unwrap();
        assert_eq!(looks(&client), before + 1, "it did not linger, or left an entry each time");
    }
    // From several threads too.
    let (sender, over) = unbounded();
    for _ in 0..8 {
        let (lock, sender) = (client.mutex_with("x", lingering()).unwrap(), sender.clone());
        let body = move || {
            (0..100).for_each(|_| drop(lock.lock().unwrap()));
            // The thread that waits for it may have failed.
            let _ = sender.send(());
        };
        sync::spawn("relocks", body).unwrap();
    }
    (0..8).for_each(|_| over.recv().unwrap());
    assert_eq!(looks(&client), before + 1);
}

#[test]
fn a_lease_taken_again_is_renewed() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&server, &client);
    let lock = client.mutex_with("x", lingering()).unwrap();
    let token = lock.lock().unwrap().fencing_token().get();
    // By now the server's clock has come up to the next token.
    server.advance(SECOND / 2);
    let guard = lock.lock().unwrap();
    assert_eq!(guard.fencing_token().get(), token + 1, "it did not linger");
    server.advance(SECOND * 60);
    assert!(guard.is_valid(), "{:?}", guard.loss());
}

#[test]
fn a_linger_ends_on_time_however_often_it_began() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&server, &client);
    let before = looks(&client);
    let options = LockOptions::new().linger(SECOND * 2);
    let lock = client.mutex_with("x", options).unwrap();
    for _ in 0..5 {
        lock.lock().unwrap().release().unwrap();
        server.advance(SECOND);
    }
    server.advance(SECOND * 9 / 10);
    assert!(server.keys().contains(&b"x".to_vec()), "it ended with an earlier linger");
    server.advance(SECOND / 10);
    assert!(!server.keys().contains(&b"x".to_vec()));
    assert_eq!(looks(&client), before);
}

//! Changes of a read-write lock whose requests or replies are lost, with the server in memory, whose clock stands still.

use std::time::Duration;

use super::double::until;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::kind::{OwnedLease, RwLock, UpgradableReadGuard, WriteGuard};
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

fn lock(client: &LockClient) -> RwLock {
    client.rw_lock("a").unwrap()
}

/// An upgradable reader that tries to become the writer, and sends whether it is, with its hold.
fn upgrader(server: &Server, client: &LockClient, wait: Duration) -> Receiver<(bool, OwnedLease)> {
    let (sender, receiver) = unbounded();
    let here = lock(client);
    let body = move || {
        let guard = here.upgradable_read().unwrap();
        let (is_writer, owned) = match UpgradableReadGuard::try_upgrade_for(guard, wait).unwrap() {
            Ok(guard) => (true, guard.into_owned().unwrap()),
            Err(guard) => (false, guard.into_owned().unwrap()),
        };
        let _ = sender.send((is_writer, owned));
    };
    spawn("upgrader", body).unwrap();
    until(|| lock(client).inspect().unwrap().waiting() == Some(1));
    server.advance(Duration::ZERO);
    receiver
}

#[test]
fn downgrade_without_a_reply_is_sent_until_there_is_one() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = lock(&here).write().unwrap();
    server.link(&here).lose_requests(2);
    let guard = WriteGuard::downgrade(guard).unwrap();
    assert!(guard.is_valid() && lock(&there).try_read().unwrap().is_none());
    server.advance(SECOND);
    assert!(lock(&there).try_read().unwrap().is_some());
    guard.release().unwrap();
    assert!(!lock(&there).is_locked().unwrap());
}

#[test]
fn nobody_is_the_writer_while_the_downgrade_is_on_its_way() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (sender, done) = unbounded();
    let link = server.link(&here);
    let here = lock(&here);
    spawn("writer", move || {
        let guard = here.write().unwrap();
        sender.send(guard.lease_watch()).unwrap();
        // The request arrives, and its reply comes a second later.
        link.delay_answers(1, SECOND);
        drop(WriteGuard::downgrade(guard).unwrap());
    })
    .unwrap();
    let watch = done.recv().unwrap();
    until(|| lock(&there).try_read().unwrap().is_some());
    assert!(!watch.is_valid());
    server.advance(SECOND * 2);
    until(|| done.recv().is_err());
}

#[test]
fn end_of_an_upgrade_is_sent_until_there_is_a_reply() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let reader = lock(&there).read().unwrap();
    let upgrades = upgrader(&server, &here, SECOND / 2);
    // The last heartbeat, the end, and its repetition.
    server.link(&here).lose_requests(3);
    server.advance(SECOND / 2);
    let (is_writer, owned) = upgrades.recv().unwrap();
    assert!(!is_writer);
    let other = server.client();
    assert!(lock(&other).try_read().unwrap().is_none(), "nobody is let in before an upgrade");
    server.advance(SECOND / 2);
    assert!(lock(&other).try_read().unwrap().is_some());
    drop((reader, owned));
}

#[test]
fn upgrade_whose_message_is_lost_is_found_by_a_heartbeat() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let reader = lock(&there).read().unwrap();
    let upgrades = upgrader(&server, &here, SECOND * 60);
    server.link(&here).lose_messages(1);
    reader.release().unwrap();
    server.advance(SECOND);
    let (is_writer, owned) = upgrades.recv().unwrap();
    assert!(is_writer);
    // It is renewed like any other.
    server.advance(SECOND * 100);
    assert!(lock(&there).try_read().unwrap().is_none());
    owned.release().unwrap();
    assert!(lock(&there).try_read().unwrap().is_some());
}

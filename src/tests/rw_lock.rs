//! Changes of a read-write lock whose requests or replies are lost, with the server in memory, whose clock stands still.

use std::time::Duration;

use super::double::until;
use crate::base::loss::LossCause;
use crate::base::option::{LockOptions, Wait};
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
    let link = server.link(&here);
    // All of them until it is restored. The subscription stays: an upgrade that cannot be heard is passed over.
    link.lose_requests(1_000);
    server.advance(SECOND / 2);
    let (is_writer, owned) = upgrades.recv().unwrap();
    assert!(!is_writer);
    let other = server.client();
    assert!(lock(&other).try_read().unwrap().is_none(), "nobody is let in before an upgrade");
    link.restore();
    // It would count as dead only after three heartbeats.
    server.advance(SECOND * 2);
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

/// A reader's hold that belongs to no thread, so that threads can have several.
fn reader(lock: &RwLock) -> OwnedLease {
    lock.try_read().unwrap().expect("free").into_owned().unwrap_or_else(|_| panic!("held once"))
}

/// A thread that waits to write, and sends its hold.
fn writer(server: &Server, client: &LockClient) -> Receiver<OwnedLease> {
    let (sender, receiver) = unbounded();
    let here = lock(client);
    spawn("writer", move || {
        let _ = sender.send(here.write().unwrap().into_owned().unwrap());
    })
    .unwrap();
    until(|| lock(client).inspect().unwrap().waiting() == Some(1));
    server.advance(Duration::ZERO);
    receiver
}

fn entries(client: &LockClient) -> usize {
    lock(client).holders().unwrap().len()
}

#[test]
fn readers_of_a_process_share_one_entry() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (first, second) = (reader(&lock(&here)), reader(&lock(&here)));
    let third = reader(&lock(&there));
    assert_eq!((entries(&here), first.fencing_token() == second.fencing_token()), (2, true));
    first.release().unwrap();
    // The other one is renewed in its place.
    server.advance(SECOND * 100);
    assert!(second.is_valid() && entries(&there) == 2);
    second.release().unwrap();
    assert_eq!(entries(&there), 1);
    third.release().unwrap();
    assert_eq!(entries(&there), 0);
}

#[test]
fn message_of_a_writer_shuts_the_door() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (first, second) = (reader(&lock(&here)), reader(&lock(&here)));
    until(|| here.engine().listener.is_live());
    let writes = writer(&server, &there);
    // The time stands still, so that nothing but its message shuts the door.
    until(|| lock(&here).try_read().unwrap().is_none());
    first.release().unwrap();
    second.release().unwrap();
    writes.recv().unwrap().release().unwrap();
    assert_eq!(entries(&here), 0);
}

#[test]
fn door_of_a_process_that_hears_nothing_is_shut_by_a_renewal() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let mut held = vec![reader(&lock(&here)), reader(&lock(&here))];
    server.link(&here).lose_messages(100);
    let writes = writer(&server, &there);
    server.advance(SECOND - Duration::from_millis(1));
    held.push(reader(&lock(&here)));
    server.advance(Duration::from_millis(1));
    assert!(lock(&here).try_read().unwrap().is_none(), "a heartbeat is over");
    drop(held);
    server.advance(SECOND);
    writes.recv().unwrap().release().unwrap();
}

#[test]
fn door_opens_again_when_nobody_waits() {
    let server = Server::standing_still();
    let here = server.client();
    let first = reader(&lock(&here));
    for _ in 0..5 {
        server.advance(SECOND * 3 / 2);
        drop((reader(&lock(&here)), reader(&lock(&here))));
        assert_eq!(entries(&here), 1);
    }
    first.release().unwrap();
    assert_eq!(entries(&here), 0);
}

#[test]
fn entry_that_is_deleted_is_lost_for_all_its_readers() {
    let server = Server::standing_still();
    let here = server.client();
    let (first, second) = (reader(&lock(&here)), reader(&lock(&here)));
    assert!(server.delete("a"));
    assert!(first.check().unwrap_err().is_lost());
    assert_eq!(second.loss().unwrap().cause(), LossCause::Deleted);
    assert!(second.release().unwrap_err().is_lost());
    drop(first);
    reader(&lock(&here)).release().unwrap();
}

#[test]
fn hold_that_ends_by_its_limit_leaves_the_others_their_entry() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let options = LockOptions::new().max_hold(SECOND * 5);
    let first = reader(&here.rw_lock_with("a", options).unwrap());
    let second = reader(&lock(&here));
    server.advance(SECOND * 6);
    assert_eq!(first.loss().unwrap().cause(), LossCause::MaxHold);
    drop(first);
    server.advance(SECOND * 100);
    assert!(second.is_valid() && entries(&there) == 1);
    second.release().unwrap();
    assert_eq!(entries(&there), 0);
}

#[test]
fn entry_is_kept_for_as_long_as_one_of_its_readers_wanted() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (first, second) = (reader(&lock(&here)), reader(&lock(&here)));
    first.keep_for(SECOND * 20).unwrap();
    first.release().unwrap();
    second.release().unwrap();
    assert_eq!(entries(&there), 1);
    server.advance(SECOND * 21);
    assert_eq!(entries(&there), 0);
}

#[test]
fn entry_lingers_for_the_next_reader_and_not_past_a_writer() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let options = LockOptions::new().linger(SECOND * 5);
    let lingering = here.rw_lock_with("a", options).unwrap();
    // Only a lease of a client that listens lingers. By another lock: what lingers when the client begins to listen is
    // given back with its next hold, since a message may have been missed.
    here.mutex_with("listens", options).unwrap().lock().unwrap().release().unwrap();
    until(|| here.engine().listener.is_live());
    server.advance(Duration::ZERO);
    reader(&lingering).release().unwrap();
    assert_eq!(entries(&there), 1);
    server.advance(SECOND * 2);
    reader(&lingering).release().unwrap();
    assert_eq!(entries(&there), 1);
    // Of the same process: it goes at once.
    assert!(lock(&here).try_write().unwrap().is_some());
    reader(&lingering).release().unwrap();
    // Of another: its message ends the linger, as the time does not move.
    lock(&there).write().unwrap().release().unwrap();
}

#[test]
fn readers_behind_a_writer_of_their_process_come_in_together() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let other = reader(&lock(&there));
    let writes = writer(&server, &here);
    let (sender, reads) = unbounded();
    for _ in 0..3 {
        let (here, sender) = (lock(&here), sender.clone());
        spawn("reader", move || {
            let _ = sender.send(here.read().unwrap().into_owned().unwrap());
        })
        .unwrap();
    }
    until(|| here.engine().table().of_name(b"a").iter().any(|slot| slot.waiters() == 4));
    assert!(reads.try_recv().is_err());
    other.release().unwrap();
    writes.recv().unwrap().release().unwrap();
    let held: Vec<_> = (0..3).map(|_| reads.recv().unwrap()).collect();
    assert_eq!(entries(&there), 1, "{held:?}");
}

#[test]
fn door_is_open_from_the_sending_of_a_slow_request() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (sender, taken) = unbounded();
    let (slow, link) = (lock(&here), server.link(&here));
    link.delay_answers(1, SECOND / 2);
    spawn("reader", move || sender.send(reader(&slow)).unwrap()).unwrap();
    until(|| entries(&there) == 1);
    server.advance(SECOND / 2);
    let held = taken.recv().unwrap();
    link.lose_messages(100);
    let writes = writer(&server, &there);
    server.advance(SECOND / 2);
    assert!(lock(&here).try_read().unwrap().is_none(), "the grant is a heartbeat old");
    drop(held);
    server.advance(SECOND);
    writes.recv().unwrap().release().unwrap();
}

#[test]
fn thread_that_waits_to_write_shuts_the_door() {
    let server = Server::standing_still();
    let here = server.client();
    let first = reader(&lock(&here));
    // The message of its own writer would shut it too.
    server.link(&here).lose_messages(100);
    let writes = writer(&server, &here);
    assert!(lock(&here).try_read().unwrap().is_none());
    server.link(&here).restore();
    first.release().unwrap();
    writes.recv().unwrap().release().unwrap();
}

#[test]
fn hold_that_was_changed_does_not_linger() {
    let server = Server::standing_still();
    let here = server.client();
    let lingering = here.rw_lock_with("a", LockOptions::new().linger(SECOND * 5)).unwrap();
    until(|| {
        lingering.write().unwrap().release().unwrap();
        entries(&here) == 1
    });
    WriteGuard::downgrade(lingering.write().unwrap()).unwrap().release().unwrap();
    assert_eq!(entries(&here), 0);
}

#[test]
fn part_has_the_token_of_the_upgrade() {
    let server = Server::standing_still();
    let client = server.client();
    let here = lock(&client);
    let writer = UpgradableReadGuard::upgrade(here.upgradable_read().unwrap()).unwrap();
    let all = client.lock_all([here.for_write()]).unwrap();
    assert_eq!(all.fencing_tokens().next().unwrap().1, writer.fencing_token());
}

#[test]
fn watch_of_a_reader_outlives_the_write_around_it() {
    let server = Server::standing_still();
    let here = lock(&server.client());
    let (writer, read) = (here.write().unwrap(), here.read().unwrap());
    let (of_writer, of_read) = (writer.lease_watch(), read.lease_watch());
    drop(writer);
    assert!(read.is_valid() && of_read.is_valid() && !of_writer.is_valid());
}

#[test]
fn upgrade_beside_an_owned_read_of_its_thread_is_an_error() {
    let server = Server::standing_still();
    let client = server.client();
    let here = lock(&client);
    let owned = reader(&here);
    let upgradable = here.upgradable_read().unwrap();
    let read = owned.into_guard();
    let link = server.link(&client);
    let before = link.exchanges();
    let error = UpgradableReadGuard::try_upgrade_for(upgradable, Duration::ZERO).err();
    assert!(error.is_some_and(|error| error.is_config()));
    assert_eq!(link.exchanges() - before, 1, "only the upgradable read is given back");
    assert!(read.is_valid());
}

#[test]
fn permits_that_a_thread_forgets_are_all_released_at_its_end() {
    let server = Server::standing_still();
    let client = server.client();
    let gpus = client.semaphore("s", 2).unwrap();
    let both = [gpus.acquire().unwrap(), gpus.acquire().unwrap()];
    let (sender, done) = unbounded();
    spawn("keeper", move || {
        for permit in both {
            std::mem::forget(permit.into_owned().unwrap().into_guard());
        }
        sender.send(()).unwrap();
    })
    .unwrap();
    done.recv().unwrap();
    until(|| gpus.available().unwrap() == 2);
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn thread_that_asks_at_the_door_waits_no_longer_than_it_may() {
    let server = Server::standing_still();
    let client = server.client();
    let here = lock(&client);
    let read = reader(&here);
    server.advance(SECOND * 2);
    let (link, (sender, outcome)) = (server.link(&client), unbounded());
    link.silence();
    let before = link.exchanges();
    spawn("asks", move || sender.send(here.try_read_for(SECOND / 10).map(|_| ())).unwrap())
        .unwrap();
    until(|| link.exchanges() > before);
    let grace = Duration::from_millis(25);
    server.advance(SECOND / 10 + grace);
    // The one for an entry of its own.
    until(|| link.exchanges() > before + 1);
    server.advance(grace);
    assert!(outcome.recv().unwrap().is_err());
    link.restore();
    assert!(read.is_valid());
}

/// The requests of an upgrade are not longer than its caller waits, and the worker ends it.
#[test]
fn upgrade_in_an_outage_ends_with_the_callers_time() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let reader = lock(&there).read().unwrap();
    // One ends in its pause, the other in a request.
    for wait in [SECOND / 2, SECOND * 5 / 4] {
        let upgrades = upgrader(&server, &here, wait);
        server.link(&here).silence();
        server.advance(wait);
        server.advance(SECOND / 25);
        let (is_writer, owned) = upgrades.recv().expect("it waits on");
        assert!(!is_writer && owned.is_valid());
        server.link(&here).restore();
        server.advance(SECOND * 2);
        assert!(lock(&server.client()).try_read().unwrap().is_some(), "it is still waited for");
        owned.release().unwrap();
    }
    reader.release().unwrap();
}

#[test]
fn upgrade_that_spins_subscribes_to_nothing() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let reader = lock(&there).read().unwrap();
    let spins = here.rw_lock_with("a", LockOptions::new().wait(Wait::spin())).unwrap();
    let (sender, upgrades) = unbounded();
    let body = move || {
        let guard = spins.upgradable_read().unwrap();
        let writer = UpgradableReadGuard::upgrade(guard).unwrap();
        let _ = sender.send(writer.into_owned().unwrap());
    };
    spawn("upgrader", body).unwrap();
    until(|| lock(&there).inspect().unwrap().waiting() == Some(1));
    reader.release().unwrap();
    // It asks again by itself.
    let mut writer = None;
    until(|| {
        server.advance(SECOND / 10);
        writer = upgrades.try_recv().ok();
        writer.is_some()
    });
    assert!(!here.engine().listener.is_live());
}

#[test]
fn watch_of_a_part_is_of_what_the_part_is() {
    let server = Server::standing_still();
    let client = server.client();
    let here = lock(&client);
    let writer = here.write().unwrap();
    let all = client.lock_all([here.for_read()]).unwrap();
    let watch = all.lease_watches().remove(0);
    assert!(watch.is_valid());
    drop(writer);
    assert!(all.is_valid() && all.remaining() > SECOND && watch.is_valid());
}

#[test]
fn watch_of_a_writer_is_valid_again_after_an_upgrade() {
    let server = Server::standing_still();
    let writer = lock(&server.client()).write().unwrap();
    let watch = writer.lease_watch();
    let upgradable = WriteGuard::downgrade_to_upgradable(writer).unwrap();
    assert!(!watch.is_valid());
    let writer = UpgradableReadGuard::upgrade(upgradable).unwrap();
    assert!(watch.is_valid() && watch.token() == writer.fencing_token());
}

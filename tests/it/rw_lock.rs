//! Read-write locks on a real server: who may be in together, in which order, and what a thread may take again.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold::{Access, RwLock};

use crate::common::open;
use leasehold_support::Server;

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "catalog";

fn wait_for_waiters(lock: &RwLock, count: usize) {
    while lock.inspect().unwrap().waiting() != Some(count) {
        thread::yield_now();
    }
}

/// Takes the lock on a thread, says so, and releases it.
fn taken<G>(
    take: impl FnOnce() -> G + Send + 'static,
    what: &'static str,
    order: &mpsc::Sender<&'static str>,
) -> JoinHandle<()> {
    let order = order.clone();
    thread::spawn(move || {
        let guard = take();
        order.send(what).unwrap();
        drop(guard);
    })
}

#[test]
fn readers_hold_together_and_a_writer_alone() {
    let server = Server::start().unwrap();
    let here = open(&server).rw_lock(NAME).unwrap();
    let there = open(&server).rw_lock(NAME).unwrap();
    let (first, second) = (here.read().unwrap(), there.try_read().unwrap().unwrap());
    let third = thread::scope(|scope| {
        let here = &here;
        scope.spawn(move || here.try_upgradable_read().unwrap().map(|it| it.into_owned().unwrap()));
        scope.spawn(move || here.try_read().unwrap().unwrap().into_owned().unwrap()).join().unwrap()
    });
    assert!(
        thread::scope(|scope| scope.spawn(|| there.try_write().unwrap().is_none()).join()).unwrap()
    );
    drop((first, second, third));
    let writer = there.write().unwrap();
    assert!(here.try_read().unwrap().is_none() && here.try_write().unwrap().is_none());
    assert_eq!(here.last_blocker().unwrap().pid(), Some(std::process::id()));
    assert_eq!(here.holders().unwrap()[0].access(), Some(Access::Write));
    writer.release().unwrap();
    assert!(!here.is_locked().unwrap());
}

#[test]
fn reader_behind_a_waiting_writer_waits() {
    let server = Server::start().unwrap();
    let (here, there) = (open(&server), open(&server));
    let lock = here.rw_lock(NAME).unwrap();
    let first = lock.read().unwrap();
    let (sender, order) = mpsc::channel();
    let writer = there.rw_lock(NAME).unwrap();
    let writes = taken(move || writer.write().unwrap(), "write", &sender);
    wait_for_waiters(&lock, 1);
    let late = open(&server).rw_lock(NAME).unwrap();
    assert!(late.try_read().unwrap().is_none(), "overtaken by a reader that does not wait");
    let reads = taken(move || late.read().unwrap(), "read", &sender);
    wait_for_waiters(&lock, 2);
    first.release().unwrap();
    assert_eq!([order.recv().unwrap(), order.recv().unwrap()], ["write", "read"]);
    writes.join().unwrap();
    reads.join().unwrap();
}

#[test]
fn readers_of_a_writers_process_wait_behind_it() {
    let server = Server::start().unwrap();
    let (client, other) = (open(&server), open(&server));
    let first = other.rw_lock(NAME).unwrap().read().unwrap();
    let lock = client.rw_lock(NAME).unwrap();
    let (sender, order) = mpsc::channel();
    let writer = lock.clone();
    let writes = taken(move || writer.write().unwrap(), "write", &sender);
    wait_for_waiters(&lock, 1);
    assert!(lock.try_read().unwrap().is_none());
    let late = lock.clone();
    let reads = taken(move || late.read().unwrap(), "read", &sender);
    while first.waiters() == 0 {
        thread::yield_now();
    }
    first.release().unwrap();
    assert_eq!([order.recv().unwrap(), order.recv().unwrap()], ["write", "read"]);
    writes.join().unwrap();
    reads.join().unwrap();
}

#[test]
fn readers_side_by_side_come_in_together() {
    let server = Server::start().unwrap();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let writer = lock.write().unwrap();
    let together = std::sync::Arc::new(std::sync::Barrier::new(3));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lock = open(&server).rw_lock(NAME).unwrap();
            let together = std::sync::Arc::clone(&together);
            thread::spawn(move || {
                let guard = lock.read().unwrap();
                together.wait();
                guard.release().unwrap();
            })
        })
        .collect();
    wait_for_waiters(&lock, 3);
    writer.release().unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn one_upgradable_reader_at_a_time_beside_readers() {
    let server = Server::start().unwrap();
    let here = open(&server).rw_lock(NAME).unwrap();
    let there = open(&server).rw_lock(NAME).unwrap();
    let upgradable = here.upgradable_read().unwrap();
    assert!(there.try_upgradable_read().unwrap().is_none());
    assert!(there.try_read_for(SECOND).unwrap().is_some());
    assert!(there.try_write().unwrap().is_none());
    upgradable.release().unwrap();
    assert!(there.try_upgradable_read_for(SECOND).unwrap().is_some());
}

#[test]
fn thread_takes_again_what_cannot_block() {
    let server = Server::start().unwrap();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let writer = lock.write().unwrap();
    let inside = (lock.write().unwrap(), lock.read().unwrap(), lock.upgradable_read().unwrap());
    assert_eq!(lock.holders().unwrap().len(), 1);
    drop((inside, writer));
    assert!(!lock.is_locked().unwrap());
    let upgradable = lock.upgradable_read().unwrap();
    let inside = lock.read().unwrap();
    drop((upgradable, inside));
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn thread_that_would_wait_for_itself_gets_an_error() {
    let server = Server::start().unwrap();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let reader = lock.read().unwrap();
    let error = lock.try_write().map(|_| ()).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("reader already"), "{error}");
    assert!(lock.write().unwrap_err().is_config());
    assert!(lock.upgradable_read().unwrap_err().is_config());
    drop(reader);
    let upgradable = lock.upgradable_read().unwrap();
    assert!(lock.upgradable_read().unwrap_err().is_config());
    assert!(lock.write().unwrap_err().is_config());
    drop(upgradable);
    assert!(lock.try_write().unwrap().is_some());
}

#[test]
fn force_release_evicts_all_readers() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let (first, second) = (here.read().unwrap(), there.read().unwrap());
    for holder in here.holders().unwrap() {
        assert!(here.force_release(&holder).unwrap());
    }
    assert!(first.check().unwrap_err().is_lost() && second.check().unwrap_err().is_lost());
    assert!(here.read().unwrap_err().is_lost(), "the thread must learn of the loss first");
    drop((first, second));
    assert!(here.try_write().unwrap().is_some());
}

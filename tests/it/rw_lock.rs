//! Read-write locks on a real server: who may be in together, in which order, and what a thread may take again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold::{Access, Lease, LockOptions, OwnedLease, RwLock, UpgradableReadGuard, WriteGuard};

use crate::common::{SLACK, SOON, open, open_at, patient, server, until, warm, within};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Child, Line, Monitor, Server};

const SECOND: Duration = Duration::from_secs(1);
const HEARTBEAT: Duration = SECOND;
const NAME: &str = "catalog";

fn wait_for_waiters(lock: &RwLock, count: usize) {
    until("they stand in the line", || lock.inspect().unwrap().waiting() == Some(count));
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
    until("it waits", || first.waiters() > 0);
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
fn readers_behind_a_writer_come_in_by_one_script() {
    const READERS: usize = 3;
    let server = Server::start().unwrap();
    warm(&server);
    let lock = open(&server).rw_lock(NAME).unwrap();
    let first = lock.read().unwrap();
    let (sender, order) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (writer, acquired) = (open(&server).rw_lock(NAME).unwrap(), sender.clone());
    let writes = thread::spawn(move || {
        let guard = writer.write().unwrap();
        acquired.send("write").unwrap();
        released.recv().unwrap();
        guard.release().unwrap();
    });
    wait_for_waiters(&lock, 1);
    let reads: Vec<_> = (2..2 + READERS)
        .map(|waiters| {
            let late = open(&server).rw_lock(NAME).unwrap();
            let reads = taken(move || late.read().unwrap(), "read", &sender);
            wait_for_waiters(&lock, waiters);
            reads
        })
        .collect();
    first.release().unwrap();
    assert_eq!(order.recv().unwrap(), "write");
    let inspection = lock.inspect().unwrap();
    assert_eq!((inspection.holders().len(), inspection.waiting()), (1, Some(READERS)));
    let monitor = Monitor::start(&server);
    release.send(()).unwrap();
    writes.join().unwrap();
    assert_eq!([(); READERS].map(|()| order.recv().unwrap()), ["read"; READERS]);
    reads.into_iter().for_each(|reads| reads.join().unwrap());
    // The readers' releases come after their grants.
    let is_relevant = |line: &Line| line.text.contains("EVALSHA") || line.text.contains("\"g ");
    until("the server reports all", || monitor.lines("\"g ").len() >= READERS);
    let lines: Vec<Line> = monitor.lines("").into_iter().filter(is_relevant).collect();
    let is_grant = |line: &Line| !line.text.contains("EVALSHA");
    let begin = lines.iter().position(is_grant).unwrap();
    let grants = lines[begin..].iter().take_while(|line| is_grant(line)).count();
    assert_eq!(grants, READERS, "{lines:?}");
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
    let error = lock.upgradable_read().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("as an upgradable reader"), "{error}");
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

#[test]
fn downgrade_lets_readers_in_and_keeps_the_hold() {
    let server = Server::start().unwrap();
    let here = open(&server).rw_lock(NAME).unwrap();
    let writer = here.write().unwrap();
    let (watch, token) = (writer.lease_watch(), writer.fencing_token());
    let there = open(&server).rw_lock(NAME).unwrap();
    let (sender, order) = mpsc::channel();
    let reads = taken(move || there.read().unwrap(), "read", &sender);
    wait_for_waiters(&here, 1);
    let reader = WriteGuard::downgrade(writer).unwrap();
    assert_eq!(order.recv().unwrap(), "read");
    reads.join().unwrap();
    assert!(reader.is_valid() && reader.fencing_token() == token);
    assert!(!watch.is_valid(), "it watched a writer");
    reader.check().unwrap();
    reader.release().unwrap();
    assert!(!here.is_locked().unwrap());
}

#[test]
fn lock_is_held_as_its_guards_need_it() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let outer = here.write().unwrap();
    let inner = WriteGuard::downgrade(here.write().unwrap()).unwrap();
    assert!(there.try_read().unwrap().is_none(), "one still writes");
    outer.release().unwrap();
    assert!(there.try_read().unwrap().is_some());
    assert!(there.try_write().unwrap().is_none() && inner.is_valid());
    drop(inner);
    let upgradable = here.upgradable_read().unwrap();
    let inner = here.read().unwrap();
    drop(upgradable);
    assert!(there.try_upgradable_read().unwrap().is_some());
    assert!(here.try_write().unwrap_err().is_config());
    drop(inner);
    assert!(!here.is_locked().unwrap());
}

#[test]
fn upgrade_waits_for_readers_and_comes_before_a_writer() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let reader = there.read().unwrap();
    let (sender, order) = mpsc::channel();
    let writer = open(&server).rw_lock(NAME).unwrap();
    let upgrader = here.clone();
    let (begin, begins) = mpsc::channel();
    let acquired = sender.clone();
    let upgrades = thread::spawn(move || {
        let guard = upgrader.upgradable_read().unwrap();
        begin.send(guard.fencing_token()).unwrap();
        let guard = UpgradableReadGuard::upgrade(guard).unwrap();
        acquired.send("upgrade").unwrap();
        (guard.fencing_token(), guard.into_owned().unwrap())
    });
    let first = begins.recv().unwrap();
    wait_for_waiters(&there, 1);
    let writes = taken(move || writer.write().unwrap(), "write", &sender);
    wait_for_waiters(&there, 2);
    let late = open(&server).rw_lock(NAME).unwrap();
    assert!(late.try_read().unwrap().is_none(), "nobody is let in while an upgrade waits");
    reader.release().unwrap();
    let (token, owned) = upgrades.join().unwrap();
    assert_eq!(order.recv().unwrap(), "upgrade");
    assert!(token > first);
    assert!(there.try_read().unwrap().is_none(), "it is the writer");
    owned.release().unwrap();
    assert_eq!(order.recv().unwrap(), "write");
    writes.join().unwrap();
}

#[test]
fn upgrade_whose_time_is_over_lets_readers_in_again() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let reader = there.read().unwrap();
    let guard = loop {
        let guard = here.upgradable_read().unwrap();
        match UpgradableReadGuard::try_upgrade_for(guard, SECOND / 10) {
            Ok(upgraded) => break upgraded.unwrap_err(),
            // So short a wait may end on a machine that stood still before a request was answered, which it says.
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    };
    // Where the machine stood still at its end, the worker takes it out of the line. By itself it leaves after six seconds.
    let other = open(&server).rw_lock(NAME).unwrap();
    within(SECOND * 3, "readers are let in", || other.try_read().unwrap().is_some());
    assert!(here.last_blocker().is_some());
    reader.release().unwrap();
    let guard = UpgradableReadGuard::try_upgrade_for(guard, Duration::ZERO).unwrap().unwrap();
    assert!(there.try_read().unwrap().is_none());
    let guard = WriteGuard::downgrade_to_upgradable(guard).unwrap();
    assert!(there.try_read().unwrap().is_some());
    let guard = UpgradableReadGuard::upgrade(guard).unwrap();
    let guard = WriteGuard::downgrade(guard).unwrap();
    assert!(there.try_upgradable_read().unwrap().is_some());
    guard.release().unwrap();
}

#[test]
fn upgrade_of_a_thread_that_reads_too_is_an_error() {
    let server = Server::start().unwrap();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let guard = lock.upgradable_read().unwrap();
    let reader = lock.read().unwrap();
    assert!(UpgradableReadGuard::upgrade(guard).unwrap_err().is_config());
    reader.check().unwrap();
    drop(reader);
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn waiting_upgrade_ends_by_cancel_and_by_loss() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let reader = there.read().unwrap();
    for cancels in [true, false] {
        let upgrader = here.clone();
        let upgrades = thread::spawn(move || {
            UpgradableReadGuard::upgrade(upgrader.upgradable_read().unwrap()).map(drop)
        });
        wait_for_waiters(&there, 1);
        if cancels {
            assert_eq!(here.cancel_waits(), 1);
            assert!(upgrades.join().unwrap().unwrap_err().is_cancelled());
        } else {
            // Not the reader, whose end would let the upgrade in.
            let holders = here.holders().unwrap();
            let upgrader = holders.iter().find(|it| it.access() == Some(Access::UpgradableRead));
            assert!(here.force_release(upgrader.unwrap()).unwrap());
            assert!(upgrades.join().unwrap().unwrap_err().is_lost());
        }
        wait_for_waiters(&there, 0);
    }
    reader.check().unwrap();
}

/// A reader's hold that belongs to no thread, so that threads can have several.
fn reader(lock: &RwLock) -> OwnedLease {
    lock.read().unwrap().into_owned().unwrap_or_else(|_| panic!("held once"))
}

#[test]
fn reads_beside_another_of_the_process_cost_no_command() {
    let server = Server::start().unwrap();
    // To announce the lock takes a command.
    let client = patient(leasehold::LockClient::builder(server.url())).announce(false);
    let lock = client.build().unwrap().rw_lock(NAME).unwrap();
    let first = reader(&lock);
    // The first that joins may make the client listen, and each asks once a second.
    reader(&lock).release().unwrap();
    let begin = Instant::now();
    server.reset_stats();
    for _ in 0..1_000 {
        reader(&lock).release().unwrap();
    }
    let asked = server.command_calls(&["evalsha"]);
    assert!(asked <= begin.elapsed().as_secs() + 1, "{asked}, and one renewal a second at most");
    first.release().unwrap();
}

#[test]
fn contended_writes_cost_two_commands_each() {
    const WRITES: u64 = 200;
    let server = Server::start().unwrap();
    warm(&server);
    let locks = [(); 2]
        .map(|()| open(&server).rw_lock_with(NAME, LockOptions::new().local_handoffs(0)).unwrap());
    let writes = |times: u64| {
        thread::scope(|scope| {
            for lock in &locks {
                scope.spawn(move || {
                    (0..times).for_each(|_| lock.write().unwrap().release().unwrap())
                });
            }
        });
    };
    // Both listen from then on, and the scripts are there.
    writes(5);
    server.reset_stats();
    writes(WRITES);
    let calls = server.command_calls(&["evalsha"]);
    assert!(calls * 10 <= 2 * WRITES * 21, "{calls} for {} writes", 2 * WRITES);
}

#[test]
fn writer_is_not_starved_by_readers_of_another_process() {
    let server = Server::start().unwrap();
    let (here, there) =
        (open(&server).rw_lock(NAME).unwrap(), open(&server).rw_lock(NAME).unwrap());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3_u64 {
            let (here, stop) = (&here, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let guard = here.read().unwrap();
                    // At each moment one of them reads.
                    thread::sleep(Duration::from_millis(10 + 7 * number));
                    drop(guard);
                }
            });
        }
        wait_until_held(&here);
        for _ in 0..5 {
            let guard = there.try_write_for(SOON).unwrap();
            stop.fetch_or(guard.is_none(), Ordering::Relaxed);
            drop(guard.expect("a writer gets its turn"));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn wait_until_held(lock: &RwLock) {
    until("somebody holds it", || lock.is_locked().unwrap());
}

#[test]
fn writer_gets_in_after_a_killed_reader() {
    const ROLE: &str = "killed reader";
    const TTL: Duration = Duration::from_secs(3);
    const URL: &str = "LEASEHOLD_TEST_URL";
    if leasehold_support::child::role().as_deref() == Some(ROLE) {
        let client = open_at(std::env::var(URL).unwrap());
        let options = LockOptions::new().lease(Lease::renewed(TTL));
        let _guard = client.rw_lock_with(NAME, options).unwrap().read().unwrap();
        leasehold_support::child::hear();
        return;
    }
    let server = server();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let test = "rw_lock::writer_gets_in_after_a_killed_reader";
    let mut child = Child::role(ROLE).test(test).env(URL, server.url()).start().unwrap();
    wait_until_held(&lock);
    let writer = open(&server).rw_lock(NAME).unwrap();
    let writes = thread::spawn(move || {
        let guard = writer.write().unwrap();
        (Instant::now(), guard.into_owned().unwrap())
    });
    wait_for_waiters(&lock, 1);
    child.kill9();
    let killed = Instant::now();
    let left = lock.holders().unwrap()[0].ttl().unwrap();
    let (granted, _guard) = writes.join().unwrap();
    let took = (granted - killed).min(killed.spent());
    assert!(took < left + HEARTBEAT + SLACK, "{took:?}, {left:?} were left");
}

#[test]
fn read_that_came_as_an_owned_lease_is_known_when_the_other_ends() {
    let server = Server::start().unwrap();
    let lock = open(&server).rw_lock(NAME).unwrap();
    let first = lock.read().unwrap();
    let there = lock.clone();
    let read = thread::spawn(move || there.read().unwrap().into_owned().unwrap());
    let second = read.join().unwrap().into_guard();
    drop(first);
    assert!(lock.try_write().unwrap_err().is_config(), "it would wait for itself");
    drop(second);
    assert!(lock.try_write().unwrap().is_some());
}

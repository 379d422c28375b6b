//! Scenarios of a read-write lock: readers that share an entry, and changes of a hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::sync::{Arc, sleep};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{NAME, Process, World, assert_at_once, join, released};
use crate::{RwLock, UpgradableReadGuard, WriteGuard};

pub(super) const SCENARIOS: Group = &[
    ("readers and writers of two clients", 0, readers_and_writers),
    ("a reader comes in as the door is shut", 0, door_is_shut),
    ("readers leave an entry as others come", 0, readers_come_and_leave),
    ("an upgrade is given up as it is granted", 4, upgrade_given_up),
    ("upgrades and readers", 0, upgrades),
    ("a downgrade against a release", 0, downgrade_against_release),
    ("an entry is lost as a reader comes in", 0, entry_lost_as_a_reader_comes),
];

/// Who is inside: readers together, or one writer.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    visits: AtomicUsize,
}

impl Inside {
    fn read(&self) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        self.look();
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    fn write(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
        self.look();
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    fn look(&self) {
        for _ in 0..2 {
            let (readers, writers) =
                (self.readers.load(Ordering::SeqCst), self.writers.load(Ordering::SeqCst));
            assert!(writers == 0 || (writers == 1 && readers == 0), "{readers}, {writers}");
            sleep(Duration::ZERO);
        }
        self.visits.fetch_add(1, Ordering::SeqCst);
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

/// A thread of a process that does something with the lock.
fn thread(
    process: &Process,
    inside: &Arc<Inside>,
    body: impl FnOnce(RwLock, Arc<Inside>) + Send + 'static,
) -> JoinHandle<()> {
    let (process, inside) = (process.clone(), Arc::clone(inside));
    spawn(move || body(process.client.rw_lock(NAME).expect("allowed"), inside))
}

fn reads(lock: RwLock, inside: Arc<Inside>) {
    let guard = lock.read().expect("granted");
    inside.read();
    released(guard.release());
}

fn writes(lock: RwLock, inside: Arc<Inside>) {
    let guard = lock.write().expect("granted");
    inside.write();
    released(guard.release());
}

fn readers_and_writers() {
    let (world, inside) = (World::new(), Arc::default());
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    join([
        thread(one, &inside, reads),
        thread(one, &inside, writes),
        thread(other, &inside, reads),
        thread(other, &inside, writes),
    ]);
    assert_eq!(inside.visits(), 4);
    assert_at_once();
    world.end(processes);
}

fn door_is_shut() {
    let (world, inside) = (World::new(), Arc::default());
    let processes = [world.process(), world.process()];
    let [readers, writer] = &processes;
    join([
        thread(readers, &inside, |lock, inside| {
            let guard = lock.read().expect("granted");
            inside.read();
            // Others share it meanwhile.
            sleep(Duration::ZERO);
            inside.read();
            released(guard.release());
        }),
        thread(readers, &inside, reads),
        thread(readers, &inside, reads),
        thread(writer, &inside, writes),
    ]);
    assert_eq!(inside.visits(), 5);
    assert_at_once();
    world.end(processes);
}

fn readers_come_and_leave() {
    let (world, inside) = (World::new(), Arc::default());
    let process = world.process();
    join([(); 4].map(|()| thread(&process, &inside, reads)));
    assert_eq!(inside.visits(), 4);
    assert_at_once();
    world.end([process]);
}

fn upgrade_given_up() {
    let (world, inside) = (World::new(), Arc::default());
    let processes = [world.process(), world.process()];
    let [upgrader, reader] = &processes;
    join([
        thread(upgrader, &inside, |lock, inside| {
            let guard = lock.upgradable_read().expect("granted");
            let wait = Duration::from_millis(5);
            match UpgradableReadGuard::try_upgrade_for(guard, wait).expect("an outcome") {
                Ok(guard) => {
                    inside.write();
                    released(guard.release());
                }
                Err(guard) => {
                    inside.read();
                    released(guard.release());
                }
            }
        }),
        thread(reader, &inside, reads),
        thread(reader, &inside, reads),
    ]);
    assert_eq!(inside.visits(), 3);
    world.end(processes);
}

fn upgrades() {
    let (world, inside) = (World::new(), Arc::default());
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let upgrade = |lock: RwLock, inside: Arc<Inside>| {
        let guard = lock.upgradable_read().expect("granted");
        inside.read();
        let guard = UpgradableReadGuard::upgrade(guard).expect("granted");
        inside.write();
        let guard = WriteGuard::downgrade_to_upgradable(guard).expect("held");
        inside.read();
        released(guard.release());
    };
    join([
        thread(one, &inside, upgrade),
        thread(other, &inside, upgrade),
        thread(one, &inside, reads),
        thread(other, &inside, reads),
    ]);
    assert_eq!(inside.visits(), 8);
    assert_at_once();
    world.end(processes);
}

fn downgrade_against_release() {
    let (world, inside) = (World::new(), Arc::default());
    let processes = [world.process(), world.process()];
    let [one, other] = &processes;
    let downgrade = |lock: RwLock, inside: Arc<Inside>| {
        let guard = lock.write().expect("granted");
        inside.write();
        let guard = WriteGuard::downgrade(guard).expect("held");
        inside.read();
        released(guard.release());
    };
    join([
        thread(one, &inside, downgrade),
        thread(other, &inside, downgrade),
        thread(other, &inside, reads),
        thread(one, &inside, writes),
    ]);
    assert_eq!(inside.visits(), 6);
    assert_at_once();
    world.end(processes);
}

/// Its hold is lost too, or of another entry.
fn entry_lost_as_a_reader_comes() {
    let world = World::new();
    let process = world.process();
    let lock = process.client.rw_lock(NAME).expect("allowed");
    let read = |lock: &RwLock| {
        let guard = lock.read().expect("granted");
        guard.into_owned().unwrap_or_else(|_| unreachable!("held once"))
    };
    let (first, second) = (read(&lock), read(&lock));
    world.server.call(&[b"DEL", NAME.as_bytes()]).expect("a reply");
    let comes = {
        let lock = lock.clone();
        spawn(move || read(&lock))
    };
    let finds = spawn(move || {
        assert!(first.check().expect_err("it was deleted").is_lost());
        drop(first);
    });
    let third = comes.join().expect("no panic");
    finds.join().expect("no panic");
    assert!(!second.is_valid(), "it shares the entry");
    let is_held = !lock.holders().expect("a reply").is_empty();
    assert!(is_held || !third.is_valid(), "nobody renews it");
    drop((second, third, lock));
    world.end([process]);
}

//! Several processes.

use std::fs::{File, OpenOptions, read_to_string, remove_file, write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, Semaphore};
use leasehold_support::Child;
use leasehold_support::child::{hear, role, tell};
use leasehold_support::lag::Spent as _;

use super::take;
use crate::common::{SLACK, SOON, ask, exists, heavy, ms, open, open_at, renewed, server, until};

const HEARTBEAT: Duration = Duration::from_secs(1);

fn child(role: &str, test: &str, url: &str) -> Child {
    let test = format!("semaphore::process::{test}");
    Child::role(role).test(&test).env("LEASEHOLD_URL", url).start().unwrap()
}

fn client_of_child() -> LockClient {
    open_at(std::env::var("LEASEHOLD_URL").unwrap())
}

#[test]
fn permits_of_a_killed_process_are_granted_again() {
    if role().as_deref() == Some("holds") {
        let gpus = client_of_child().semaphore_with("gpu", 4, renewed(3_000)).unwrap();
        let _held = take(&gpus, 2);
        tell("held");
        hear();
        return;
    }
    let server = server();
    let test = "permits_of_a_killed_process_are_granted_again";
    let gpus = open(&server).semaphore("gpu", 4).unwrap();
    let ours = take(&gpus, 2);
    let mut child = child("holds", test, server.url().as_str());
    child.expect_line("held", SOON);
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| {
            let gpus = open(&server).semaphore("gpu", 4).unwrap();
            scope.spawn(move || (gpus.acquire().unwrap(), Instant::now()))
        });
        super::in_line(&gpus, 2);
        child.kill9();
        let killed = Instant::now();
        let dead = |holder: &leasehold::Holder| holder.pid() == Some(child.pid());
        let left = gpus.holders().unwrap().into_iter().filter(dead);
        let left = left.map(|holder| holder.ttl().unwrap()).max().unwrap();
        // Kept, or the second one would have the slot of the first.
        let mut granted_again = Vec::new();
        for wait in waits {
            let (permit, granted) = wait.join().unwrap();
            granted_again.push(permit);
            let took = granted - killed;
            let spent = took.min(killed.spent());
            assert!(spent < left + HEARTBEAT + SLACK, "{took:?}, {left:?} were left");
        }
        let mut slots: Vec<u32> = granted_again.iter().map(leasehold::Permit::slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [2, 3]);
    });
    for (slot, permit) in ours.into_iter().enumerate() {
        assert_eq!(permit.slot() as usize, slot);
        permit.check().unwrap();
        permit.release().unwrap();
    }
}

const PERMITS: u32 = 3;
const THREADS: usize = 4;

/// Whoever has a slot has its file alone, and a token above all that its file has seen.
fn work(gpus: &Semaphore, folder: &Path, rounds: usize) {
    for round in 0..rounds {
        let permit = match round % 5 {
            0 => gpus.acquire_many(2).unwrap(),
            _ => gpus.acquire().unwrap(),
        };
        let token = permit.fencing_token().get();
        for slot in permit.slots() {
            assert!(*slot < PERMITS);
            let (busy, last) =
                (folder.join(format!("busy{slot}")), folder.join(format!("last{slot}")));
            let held: std::io::Result<File> =
                OpenOptions::new().write(true).create_new(true).open(&busy);
            assert!(held.is_ok() || !permit.is_valid(), "two holders of slot {slot}");
            let before = read_to_string(&last).map_or(0, |text| text.parse::<u64>().unwrap());
            assert!(before < token || !permit.is_valid(), "slot {slot}: {token} after {before}");
            write(&last, token.to_string()).unwrap();
        }
        for slot in permit.slots() {
            remove_file(folder.join(format!("busy{slot}"))).unwrap();
        }
        permit.release().unwrap();
    }
}

/// Three processes with four threads each, and three permits.
#[test]
fn processes_and_threads_never_share_a_slot() {
    let _turn = heavy();
    if role().as_deref() == Some("works") {
        let folder = std::env::var("LEASEHOLD_FOLDER").unwrap();
        let gpus = client_of_child().semaphore("gpu", PERMITS).unwrap();
        tell("ready");
        hear();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| work(&gpus, Path::new(&folder), 60));
            }
        });
        return;
    }
    let server = server();
    let folder = server.directory().join("slots");
    std::fs::create_dir(&folder).unwrap();
    let mut children: Vec<Child> = (0..3)
        .map(|_| {
            Child::role("works")
                .test("semaphore::process::processes_and_threads_never_share_a_slot")
                .env("LEASEHOLD_URL", server.url())
                .env("LEASEHOLD_FOLDER", &folder)
                .start()
                .unwrap()
        })
        .collect();
    children.iter_mut().for_each(|child| drop(child.expect_line("ready", SOON)));
    children.iter_mut().for_each(|child| child.say("go"));
    for child in &mut children {
        let status = child.wait();
        assert!(status.success(), "{}", child.output());
    }
    let gpus = open(&server).semaphore("gpu", PERMITS).unwrap();
    assert_eq!(gpus.available().unwrap(), PERMITS);
    until("nobody waits", || !exists(&server, "{gpu}:line"));
    assert_eq!(ask::<usize>(&server, &["ZCARD", "gpu"]), 3, "limits and sum are left");
    assert!(gpus.try_acquire_many_for(PERMITS, ms(5_000)).unwrap().is_some());
}

//! Several processes, and the part that a child plays.

use std::fs;
use std::path::Path;
use std::thread;

use leasehold_support::Child;
use leasehold_support::child::{hear, tell};
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed};
use leasehold_topology_test::{Builder, Client, Topology};

use crate::{outage, tail};

const PROCESSES: usize = 2;
const THREADS: usize = 2;
const HOLDS: usize = 12;

/// They read a number from a file, and write it back one greater.
pub(crate) fn processes_exclude_each_other<T: Topology>(scene: &Scene<'_, T>) {
    let file = scene.servers()[0].directory().join(scene.test());
    fs::write(&file, "").unwrap();
    let name = String::from_utf8(scene.name("x")).unwrap();
    let start = || {
        let child = Child::role(std::any::type_name::<T>()).test("roles");
        let child = child.env("ADDRESS", scene.address()).env("NAME", &name).env("TALLY", &file);
        child.start().expect("a child")
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
    for child in &mut children {
        child.expect_line("ready", SOON);
    }
    for child in &mut children {
        child.say("go");
    }
    for child in &mut children {
        child.expect_line("done", SOON * 2);
    }
    let tokens = tokens(&file);
    assert_eq!(tokens.len(), PROCESSES * THREADS * HOLDS);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

/// A process that dies is not waited for longer than its lease.
pub(crate) fn lock_of_a_killed_process_is_free_after_its_lease<T: Topology>(scene: &Scene<'_, T>) {
    let name = String::from_utf8(scene.name("x")).unwrap();
    let child = Child::role(std::any::type_name::<T>()).test("roles");
    let child = child.env("ADDRESS", scene.address()).env("NAME", &name).env("LEASE", "3000");
    let mut child = child.start().expect("a child");
    let token: u64 = child.expect_line("holds", SOON).parse().unwrap();
    let lock = scene.lock();
    let holder = lock.holder().unwrap().expect("a holder");
    assert_eq!(holder.pid(), Some(child.pid()));
    assert!(lock.try_lock().unwrap().is_none());
    child.kill9();
    let guard = lock.try_lock_for(SOON).unwrap().expect("its lease is over");
    assert!(guard.fencing_token().get() > token);
}

/// What a child of this topology does.
pub(crate) fn play<T: Topology>() {
    let variable = |name| std::env::var(name);
    if let Ok(test) = variable("OUTAGE") {
        return outage::play::<T>(&test);
    }
    if let Ok(name) = variable("TAILED") {
        return tail::play::<T>(&variable("ADDRESS").unwrap(), &name);
    }
    let builder = T::builder(&variable("ADDRESS").unwrap()).timeout(ms(3_000));
    let client = builder.give_up_after(SOON * 2).build().unwrap();
    let name = variable("NAME").unwrap();
    if let Ok(ttl) = variable("LEASE") {
        let options = renewed(ttl.parse().unwrap());
        let guard = client.mutex_with(name.as_bytes(), options).unwrap().lock().unwrap();
        tell(&format!("holds {}", guard.fencing_token()));
        hear();
        return;
    }
    let file = variable("TALLY").unwrap();
    client.mutex(b"warm").unwrap().holder().unwrap();
    tell("ready");
    hear();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let lock = client.mutex(name.as_bytes()).unwrap();
                for _ in 0..HOLDS {
                    let guard = lock.lock().unwrap();
                    let mut tokens = tokens(Path::new(&file));
                    thread::yield_now();
                    tokens.push(guard.fencing_token().get());
                    let lines: Vec<String> = tokens.iter().map(u64::to_string).collect();
                    fs::write(&file, lines.join("\n")).unwrap();
                    guard.release().unwrap();
                }
            });
        }
    });
    tell("done");
}

fn tokens(file: &Path) -> Vec<u64> {
    fs::read_to_string(file).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

//! Faults of a cluster: slots that move, and nodes that are not there.

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::fault::server::Stopped;
use leasehold_support::fault::{Injector, Site};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Cluster, Proxy, Server};

use crate::common::{AtLast, SLACK, SOON, ask, exists, ms, renewed, until};
use crate::kind::kinds;
use crate::trial::{LEASE, Trial, shared};

/// How long a command may take: many servers share few processors.
const COMMAND: Duration = ms(1_000);

kinds! {
    moved_at_hold "slot-moved@hold" "S";
    moved_at_wait "slot-moved@wait" "S,L";
    moving_at_acquire "slot-moving@acquire" "E,L";
    storm_at_all "slot-moves@every-call" "S,L";
    down_at_acquire "cluster-down@acquire" "E,L";
}

/// One cluster for all, which each leaves as it was; one of them at a time.
fn cluster() -> MutexGuard<'static, Cluster> {
    static CLUSTER: OnceLock<Mutex<Cluster>> = OnceLock::new();
    shared(&CLUSTER, || Cluster::start(3, 0).expect("a cluster"))
}

fn builder(cluster: &Cluster) -> LockClientBuilder {
    let urls = cluster.urls();
    let builder = LockClient::builder(&urls[0]).cluster(&urls[1..]);
    builder.command_timeout(COMMAND).connect_timeout(COMMAND).max_wait(COMMAND)
}

fn lock(cluster: &Cluster, name: &str) -> leasehold::Mutex {
    let client = builder(cluster).give_up_after(SOON * 2).build().expect("a client");
    client.mutex_with(name, renewed(LEASE)).expect("a lock")
}

/// How often all nodes have answered with one of these errors.
fn error_count(cluster: &Cluster, codes: &[&str]) -> u64 {
    let of = |node: &Server| codes.iter().map(|code| node.error_count(code)).sum::<u64>();
    cluster.masters().iter().map(of).sum()
}

/// Nothing of a name is left anywhere one lease later (C5).
fn is_clean(cluster: &Cluster, name: &str) {
    let of_name = |key: &Vec<u8>| key.windows(name.len()).any(|part| part == name.as_bytes());
    until("nothing is left one lease later", || {
        !cluster.masters().iter().any(|node| node.keys().iter().any(of_name))
    });
}

/// The holder follows: its renewals and its release find the lock where it is now.
fn moved_at_hold(trial: &Trial) {
    let cluster = cluster();
    let name = cluster.name_at(0, "hold");
    let (lock, rival) = (lock(&cluster, &name), lock(&cluster, &name));
    let guard = lock.lock().unwrap();
    trial.minted(&guard);
    let before = error_count(&cluster, &["MOVED"]);
    cluster.migrate(cluster.slot(&name), 0, 1);
    let begin = Instant::now();
    while begin.elapsed() < ms(LEASE + 200) {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        if let Ok(Some(_)) = rival.try_lock() {
            // On a machine that stalls a lease may run out, and then its holder knows.
            assert!(!guard.is_valid(), "two holders");
            panic!("it was not kept: {:?}", guard.loss());
        }
        thread::sleep(ms(10));
    }
    assert!(exists(&cluster.nodes()[1], &name));
    guard.check().unwrap();
    trial.timed(COMMAND, || guard.release()).unwrap();
    trial.witnessed(1, error_count(&cluster, &["MOVED"]) - before, "errorstat_MOVED");
    let next = rival.try_lock_for(SOON).unwrap().expect("free");
    trial.minted(&next);
    next.release().unwrap();
    cluster.migrate(cluster.slot(&name), 1, 0);
    is_clean(&cluster, &name);
}

/// Somebody waits while the queue moves: he is handed the lock there.
fn moved_at_wait(trial: &Trial) {
    let cluster = cluster();
    let name = cluster.name_at(0, "wait");
    let (holder, waiter) = (lock(&cluster, &name), lock(&cluster, &name));
    let held = holder.lock().unwrap();
    trial.minted(&held);
    let before = error_count(&cluster, &["MOVED"]);
    let queue = format!("{{{name}}}:queue");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = waiter.try_lock_for(SOON).unwrap().expect("granted");
            let granted = Instant::now();
            trial.minted(&guard);
            guard.release().unwrap();
            granted
        });
        until("it waits", || ask::<u32>(&cluster.nodes()[0], &["ZCARD", &queue]) == 1);
        cluster.migrate(cluster.slot(&name), 0, 2);
        let begin = Instant::now();
        held.release().unwrap();
        let took = waiting.join().unwrap().spent_since(begin);
        // A heartbeat at the most.
        assert!(took < ms(1_300) + SLACK, "{took:?}");
    });
    trial.witnessed(1, error_count(&cluster, &["MOVED"]) - before, "errorstat_MOVED");
    cluster.migrate(cluster.slot(&name), 2, 0);
    is_clean(&cluster, &name);
}

/// A slot is being moved for long: no client gets a lock that may be at either end. That is
/// reported in time, and a caller with time left gets the lock at the end.
fn moving_at_acquire(trial: &Trial) {
    let cluster = cluster();
    let name = cluster.name_at(0, "moving");
    let slot = cluster.slot(&name);
    let lock = lock(&cluster, &name);
    let token = lock.lock().unwrap().fencing_token();
    let before = error_count(&cluster, &["ASK", "TRYAGAIN"]);
    cluster.open(slot, 0, 1);
    while cluster.carry(slot, 0, 1, 100) > 0 {}
    let error = trial.timed(COMMAND * 2, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
            let granted = Instant::now();
            assert!(guard.fencing_token() > token);
            trial.minted(&guard);
            guard.release().unwrap();
            granted
        });
        thread::sleep(ms(300));
        assert!(!waiter.is_finished());
        cluster.close(slot, 0, 1);
        let closed = Instant::now();
        let took = waiter.join().unwrap().saturating_duration_since(closed);
        assert!(took < ms(500) + SLACK, "{took:?}");
    });
    trial.witnessed(
        1,
        error_count(&cluster, &["ASK", "TRYAGAIN"]) - before,
        "errorstat_ASK, _TRYAGAIN",
    );
    cluster.migrate(slot, 1, 0);
    is_clean(&cluster, &name);
}

/// The slot goes round while two clients contend: no error, no overlap, tokens in order.
fn storm_at_all(trial: &Trial) {
    const ROUNDS: usize = 6;
    let cluster = cluster();
    let name = cluster.name_at(0, "storm");
    let slot = cluster.slot(&name);
    let before = error_count(&cluster, &["MOVED"]);
    let locks = [lock(&cluster, &name), lock(&cluster, &name)];
    // A token is noted while its lock is held, so that notes are in the order of the holds.
    let count = std::sync::atomic::AtomicU64::new(0);
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    thread::scope(|scope| {
        let _end = AtLast(&over);
        for lock in &locks {
            let (count, over) = (&count, &over);
            scope.spawn(move || {
                while !over.load(order) {
                    let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
                    trial.minted(&guard);
                    count.fetch_add(1, order);
                    guard.release().unwrap();
                }
            });
        }
        for round in 0..ROUNDS {
            let so_far = count.load(order);
            until("they go on", || count.load(order) > so_far + 5);
            cluster.migrate(slot, round % 3, (round + 1) % 3);
        }
    });
    let moved = error_count(&cluster, &["MOVED"]) - before;
    trial.witnessed(ROUNDS as u64, moved, "errorstat_MOVED");
    is_clean(&cluster, &name);
}

/// A node without a replica hangs: the others serve no calls any more, and report that.
fn down_at_acquire(trial: &Trial) {
    let cluster = cluster();
    let (dead, home) = (&cluster.nodes()[2], &cluster.nodes()[0]);
    let name = cluster.name_at(0, "down");
    let lock = lock(&cluster, &name);
    lock.lock().unwrap().release().unwrap();
    let proxy = Proxy::start(dead).expect("a proxy");
    let mut active = Stopped.inject(&Site::new(dead, &proxy, &name));
    until("the others notice", || {
        ask::<String>(home, &["CLUSTER", "INFO"]).contains("cluster_state:fail")
    });
    let before = home.error_count("CLUSTERDOWN");
    let error = trial.timed(COMMAND * 2, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
            trial.minted(&guard);
            guard.release().unwrap();
        });
        thread::sleep(ms(300));
        assert!(!waiter.is_finished());
        active.heal();
        waiter.join().unwrap();
    });
    trial.prove(&active);
    trial.witnessed(1, home.error_count("CLUSTERDOWN") - before, "errorstat_CLUSTERDOWN");
    until("all serve again", || {
        let serves =
            |node: &Server| ask::<String>(node, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
        cluster.nodes().iter().all(serves)
    });
    is_clean(&cluster, &name);
}

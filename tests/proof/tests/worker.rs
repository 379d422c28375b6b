//! The worker with much to do.

#[path = "../../it/common/mod.rs"]
mod common;

use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{behind_proxy, fixed, ms, open, renewed, server, warm};
use leasehold::{Guard, LockClient, Loss};

const LOCKS: usize = 2_000;

/// Each of these takes the whole machine, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn two_thousand_renewed_locks_are_all_kept_for_three_leases() {
    let _alone = alone();
    let server = server();
    warm(&server);
    let client = open(&server);
    let guards: Vec<Guard> = (0..LOCKS)
        .map(|number| {
            let lock = client.mutex_with(format!("x{number}"), renewed(3_000)).unwrap();
            lock.lock().unwrap()
        })
        .collect();
    thread::sleep(ms(9_000));
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "{:?}", guards.iter().find_map(Guard::loss));
    let there = server.keys().iter().filter(|key| key.starts_with(b"x")).count();
    assert_eq!(there, LOCKS);
}

/// Threads that take lingering leases again and again do not keep another lease from its renewal, which locks no slot.
///
/// A trial in which a thread that only sleeps woke more than 100 ms late is void: the machine had no processor for the
/// worker either.
#[test]
fn threads_that_relock_do_not_keep_another_lease_from_renewal() {
    let _alone = alone();
    let trials = std::env::var("LEASEHOLD_TRIALS").ok().and_then(|it| it.parse().ok()).unwrap_or(3);
    let (mut kept, mut void) = (0, 0);
    while kept < trials && void <= MOST_VOID {
        match loss_beside_relocks() {
            (_, late) if late > MOST_LATE => void += 1,
            (None, _) => kept += 1,
            (Some(loss), late) => panic!("{loss}; a thread that sleeps woke {late:?} late"),
        }
    }
    writeln!(io::stderr(), "kept in {kept} trials; {void} were void, as this machine is busy")
        .unwrap();
}

const MOST_LATE: Duration = Duration::from_millis(100);
const MOST_VOID: usize = 10;

/// The loss of a lease of a second beside 64 threads that take and release a lock each for 6 seconds, if there was one,
/// and how late a thread that only sleeps woke at most.
fn loss_beside_relocks() -> (Option<Loss>, Duration) {
    let server = server();
    warm(&server);
    let client = open(&server);
    let held = client.mutex_with("held", renewed(1_000)).unwrap().lock().unwrap();
    let options = renewed(30_000).linger(ms(200));
    let end = Instant::now() + ms(6_000);
    let mut late = Duration::ZERO;
    thread::scope(|scope| {
        for number in 0..64 {
            let lock = client.mutex_with(format!("relocked{number}"), options).unwrap();
            scope.spawn(move || {
                // Until the client listens, each release is a request. On a busy machine one may be late.
                while Instant::now() < end {
                    _ = lock.lock().and_then(Guard::release);
                }
            });
        }
        while Instant::now() < end {
            let due = Instant::now() + ms(10);
            thread::sleep(ms(10));
            late = late.max(due.elapsed());
        }
    });
    let loss = held.loss();
    drop(held);
    // Or its worker goes on in the next trial, without a server.
    _ = client.shutdown(ms(5_000));
    (loss, late)
}

/// The effect of an urgent lease on the others: a lease that is about to end must not cut short the
/// exchange that renews the rest.
#[test]
fn expiring_leases_do_not_cut_short_other_renewals() {
    let _alone = alone();
    let lost_alone = lost_beside(0);
    assert_eq!(lost_alone, 0, "the machine is too slow for this test");
    assert_eq!(lost_beside(16), 0);
}

/// Holds many renewed locks for two leases, beside threads that let fixed leases run out; answers
/// how many were lost. Redis is a little away: an answer takes 100 ms.
fn lost_beside(threads: usize) -> usize {
    let (_server, proxy) = behind_proxy();
    let client = LockClient::open(proxy.url()).unwrap();
    let guards: Vec<Guard> = (0..50)
        .map(|number| {
            let lock = client.mutex_with(format!("x{number}"), renewed(2_400)).unwrap();
            lock.lock().unwrap()
        })
        .collect();
    proxy.delay(ms(50));
    let end = Instant::now() + ms(4_800);
    thread::scope(|scope| {
        for number in 0..threads {
            let lock = client.mutex_with(format!("short{number}"), fixed(300)).unwrap();
            scope.spawn(move || {
                while Instant::now() < end {
                    // Held until its lease ends, as by a holder that is too slow.
                    if let Ok(Some(guard)) = lock.try_lock_for(ms(500)) {
                        while guard.is_valid() {
                            thread::sleep(ms(2));
                        }
                    }
                }
            });
        }
    });
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    proxy.heal();
    lost
}

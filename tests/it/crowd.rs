//! A bound on the threads that wait for a lock, over a real server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Instant;

use crate::common::{SOON, heavy, open, patient, server, until, warm};
use leasehold::{LockClient, LockOptions};

const MOST: usize = 8;
const THREADS: usize = 64;

/// Another process has the lock; one waits, and knows that. Then sixty-three come at once.
#[test]
fn sixty_four_threads_never_stand_behind_one_lock() {
    let _turn = heavy();
    let server = server();
    warm(&server);
    let holder = patient(LockClient::builder(server.url())).label("the holder").build().unwrap();
    let held = holder.mutex("x").unwrap().lock_owned().unwrap();
    let client = open(&server);
    let lock = client.mutex_with("x", LockOptions::new().max_waiters(MOST as u32)).unwrap();
    let (barrier, inside) = (Barrier::new(THREADS - 1), AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let enter = |waits_for_all: bool| {
            let (lock, sender, barrier, inside) = (&lock, sender.clone(), &barrier, &inside);
            scope.spawn(move || {
                if waits_for_all {
                    barrier.wait();
                }
                let outcome = lock.lock();
                if let Ok(guard) = &outcome {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    assert!(guard.waiters() < MOST, "{} wait", guard.waiters());
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                let blocker = lock.last_blocker().and_then(|it| it.label().map(str::to_owned));
                sender.send((outcome.map(drop), blocker)).unwrap();
            });
        };
        enter(false);
        let queued = || holder.mutex("x").unwrap().inspect().unwrap().waiters().len() == 1;
        until("the first one waits", queued);
        // A single attempt waits for a reply to the first one: the others are told of the holder that it names.
        assert!(lock.try_lock().unwrap().is_none());
        server.reset_stats();
        let begin = Instant::now();
        (1..THREADS).for_each(|_| enter(true));
        for _ in 0..THREADS - MOST {
            // While the lock is held.
            let (outcome, blocker) = receiver.recv_timeout(SOON).unwrap();
            let error = outcome.unwrap_err();
            assert!(error.is_crowded() && error.to_string().contains("the holder"), "{error}");
            assert_eq!(blocker.as_deref(), Some("the holder"));
        }
        assert!(receiver.try_recv().is_err(), "more than the others are told");
        // They asked nothing: only the heartbeats of the one that stands in the queue.
        let beats = server.command_calls(&["evalsha", "eval"]);
        assert!(beats <= 12 + 2 * begin.elapsed().as_secs(), "{beats} commands");
        held.release().unwrap();
        for _ in 0..MOST {
            receiver.recv_timeout(SOON).unwrap().0.unwrap();
        }
    });
    // And a call that waits for a time.
    let held = holder.mutex("x").unwrap().lock_owned().unwrap();
    let one = client.mutex_with("x", LockOptions::new().max_waiters(1)).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| one.lock().map(drop));
        until("the first one waits", || {
            holder.mutex("x").unwrap().inspect().unwrap().waiters().len() == 1
        });
        assert!(one.try_lock().unwrap().is_none());
        // At once, or the test would take an hour.
        assert!(one.try_lock_for(SOON * 60).unwrap().is_none());
        assert_eq!(one.last_blocker().unwrap().label(), Some("the holder"));
        held.release().unwrap();
        first.join().unwrap().unwrap();
    });
}

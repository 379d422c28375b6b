//! A client that is closed with a grace, over a real server: its work is finished, its waits end, nothing is left.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kind::KINDS;
use crate::common::queue::waiting;
use crate::common::several::{direct, servers};
use crate::common::{SOON, ask, exists, ms, open, renewed, server, until};
use leasehold::{CloseReport, DistributedLock, Guard, Lease, LocalLocks, LossCause};
use leasehold_support::Server;

/// The locks that the client works under, each with so many threads that wait for it in the process.
const WORKERS: usize = 4;
const BEHIND: usize = 3;
/// The locks of another client, for each of which one thread waits in the queue of Redis.
const THEIRS: usize = 8;
const WAITS: usize = WORKERS * BEHIND + THEIRS;

const GRACE: Duration = ms(3_000);
const WITHIN: Duration = ms(1_000);

/// What is in Redis besides the last tokens, which are kept for a while.
fn left(server: &Server) -> Vec<String> {
    let keys = server.keys().into_iter().map(|key| String::from_utf8(key).unwrap());
    let mut keys: Vec<String> = keys.filter(|key| !key.ends_with(":fence")).collect();
    keys.sort();
    keys
}

/// Works for this long, unless the lock is taken before. Returns whether it was.
fn is_cut(guard: &Guard, work: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < work && guard.is_valid() {
        thread::sleep(ms(2));
    }
    begin.elapsed() < work
}

/// What came of a client that was closed in the midst of its work.
struct Closed {
    report: CloseReport,
    took: Duration,
    /// When the last wait had ended, counted from the call.
    last_wait: Duration,
    cut: usize,
    /// The keys of this client when the call returned.
    left: Vec<String>,
}

/// Closes a client in the midst of four pieces of work of this length, while twenty threads wait.
fn close_in_the_midst_of(work: Duration) -> Closed {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    // A lease that is shorter than the grace, and is renewed in it.
    let lock = |name: String| client.mutex_with(name, renewed(2_400)).unwrap();
    let (jobs, theirs) = (|number| format!("job{number}"), |number| format!("their{number}"));
    let held: Vec<_> =
        (0..THEIRS).map(|number| other.mutex(theirs(number)).unwrap().lock().unwrap()).collect();
    let (begun, all_wait) = (Barrier::new(WORKERS + 1), Barrier::new(WORKERS + 1));
    let cut = AtomicUsize::new(0);
    let closed = thread::scope(|scope| {
        for number in 0..WORKERS {
            let (lock, cut, begun, all_wait) = (&lock, &cut, &begun, &all_wait);
            scope.spawn(move || {
                let lock = lock(jobs(number));
                let guard = lock.lock().unwrap();
                begun.wait();
                until("threads wait for it", || guard.waiters() == BEHIND);
                all_wait.wait();
                if is_cut(&guard, work) {
                    cut.fetch_add(1, Ordering::SeqCst);
                    assert!(guard.release().unwrap_err().is_lost());
                    return;
                }
                // What work does under a lock that it has: it looks, goes on, and locks once more.
                lock.lock().unwrap().check().unwrap();
                guard.extend(ms(5_000)).unwrap();
                guard.release().unwrap();
            });
        }
        begun.wait();
        let wanted = (0..WORKERS * BEHIND).map(|number| jobs(number % WORKERS));
        let waits: Vec<_> = wanted
            .chain((0..THEIRS).map(theirs))
            .map(|name| {
                let lock = lock(name);
                scope.spawn(move || {
                    let error = lock.lock().map(drop).unwrap_err();
                    assert!(error.is_cancelled(), "{error}");
                    Instant::now()
                })
            })
            .collect();
        until("they wait in Redis", || {
            (0..THEIRS).all(|number| waiting(&server, &theirs(number)) == 1)
        });
        all_wait.wait();

        let begin = Instant::now();
        let later = scope.spawn(|| {
            until("it is closing", || client.is_closed());
            lock("later".to_owned()).lock().map(drop).unwrap_err()
        });
        let report = client.close(GRACE, WITHIN);
        let took = begin.elapsed();
        let left = left(&server).into_iter().filter(|key| !held_elsewhere(key)).collect();
        let ends = waits.into_iter().map(|wait| wait.join().unwrap());
        let last_wait = ends.max().unwrap().saturating_duration_since(begin);
        assert!(later.join().unwrap().is_cancelled());
        Closed { report, took, last_wait, cut: 0, left }
    });
    held.into_iter().for_each(|guard| guard.release().unwrap());
    assert_eq!(left(&server), [""; 0]);
    Closed { cut: cut.into_inner(), ..closed }
}

/// Whether it is a lock of the other client, and not the queue for one.
fn held_elsewhere(key: &str) -> bool {
    key.starts_with("their")
}

#[allow(clippy::print_stdout, reason = "the figures are for people")]
fn show(work: &str, closed: &Closed) {
    let Closed { report, took, last_wait, cut, left } = closed;
    println!(
        "close(3s, 1s), jobs of {work}: returned after {took:?}: {report}; {cut} jobs cut; the last wait ended \
         after {last_wait:?}; keys left: {left:?}"
    );
}

#[test]
fn work_shorter_than_the_grace_is_finished() {
    let closed = close_in_the_midst_of(ms(1_000));
    show("1 s", &closed);
    let Closed { report, took, last_wait, cut, left } = closed;
    assert_eq!((cut, report.finished(), report.taken().len(), report.lost().len()), (0, 4, 0, 0));
    assert_eq!((report.cancelled(), report.not_released().count()), (WAITS, 0));
    assert_eq!(left, [""; 0]);
    // The waits end before the work does, and the work ends the call.
    assert!(last_wait < took, "{last_wait:?} {took:?}");
}

#[test]
fn work_longer_than_the_grace_is_cut_and_reported() {
    let closed = close_in_the_midst_of(ms(10_000));
    show("10 s", &closed);
    let Closed { report, took, last_wait, cut, left } = closed;
    assert_eq!((cut, report.finished(), report.lost().len()), (4, 0, 0));
    let mut taken: Vec<_> = report.taken().iter().map(|loss| (loss.name(), loss.cause())).collect();
    taken.sort_by_key(|(name, _)| *name);
    let jobs = [&b"job0"[..], b"job1", b"job2", b"job3"];
    assert_eq!(taken, jobs.map(|name| (name, LossCause::ShutDown)));
    assert_eq!((report.cancelled(), report.not_released().count()), (WAITS, 0));
    assert_eq!(left, [""; 0]);
    assert!(last_wait < GRACE && took >= GRACE, "{last_wait:?} {took:?}");
}

#[test]
fn holds_of_every_kind_are_waited_for() {
    let server = server();
    let client = open(&server);
    for (number, kind) in KINDS.iter().enumerate() {
        let client = open(&server);
        let name = format!("x{number}");
        let lock = kind.open(&client, &name);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let wait = scope.spawn(|| lock.lock().map(drop).unwrap_err());
            until("it waits", || guard.waiters() == 1);
            let closing = scope.spawn(|| client.close(SOON * 60, SOON));
            // Its wait and the hold are found at one moment.
            assert!(wait.join().unwrap().is_cancelled());
            guard.release().unwrap();
            let report = closing.join().unwrap();
            assert_eq!((report.finished(), report.taken().len()), (1, 0), "{}", kind.name);
        });
        assert!(!exists(&server, &name), "{}", kind.name);
    }
    assert!(!client.is_closed());
}

#[test]
fn quorum_client_waits_for_its_holds_and_takes_the_rest() {
    let servers = servers(3);
    let client = crate::common::several::open(direct(&servers));
    let lock = client.mutex("finished").unwrap();
    let finished = lock.lock().unwrap();
    let taken = client.mutex("taken").unwrap().lock().unwrap();
    let report = thread::scope(|scope| {
        let wait = scope.spawn(|| lock.lock().map(drop).unwrap_err());
        until("it waits", || finished.waiters() == 1);
        let closing = scope.spawn(|| client.close(GRACE, SOON));
        assert!(wait.join().unwrap().is_cancelled());
        finished.release().unwrap();
        assert!(client.mutex("later").unwrap().try_lock().unwrap_err().is_cancelled());
        taken.check().unwrap();
        closing.join().unwrap()
    });
    assert_eq!((report.finished(), report.taken()), (1, &[taken.loss().unwrap()][..]), "{report}");
    report.into_result().unwrap();
    for server in &servers {
        assert!(!exists(server, "finished") && !exists(server, "taken"));
    }
}

/// The server refuses every release, so nothing can be given back.
#[test]
fn locks_that_cannot_be_released_are_named() {
    let server = server();
    let client = open(&server);
    let _guards = ["a", "b"].map(|name| client.mutex(name).unwrap().lock().unwrap());
    ask::<()>(&server, &["ACL", "SETUSER", "default", "-del"]);
    let report = client.close(ms(50), ms(300));
    assert_eq!(report.taken().len(), 2);
    assert_eq!(report.not_released().collect::<Vec<_>>(), [b"a", b"b"]);
    ask::<()>(&server, &["ACL", "SETUSER", "default", "+del"]);
    until("the worker has done the rest", || left(&server).is_empty());
    assert_eq!(client.close(SOON, SOON).not_released().count(), 0);
}

#[test]
fn local_locks_are_closed_as_a_client_is() {
    let locks = LocalLocks::new();
    let now = Duration::ZERO;
    assert!(locks.try_lock("taken", now, Lease::default()).unwrap());
    let (held, closing) = (Barrier::new(2), Barrier::new(2));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            assert!(locks.try_lock("finished", now, Lease::default()).unwrap());
            held.wait();
            closing.wait();
            // It is this thread's own.
            assert!(locks.try_lock("finished", now, Lease::default()).unwrap());
            assert!(locks.try_lock("later", now, Lease::default()).unwrap_err().is_cancelled());
            locks.unlock("finished").unwrap();
            locks.unlock("finished").unwrap();
        });
        held.wait();
        let waits = ["taken", "finished"].map(|key| {
            scope.spawn(|| locks.try_lock(key, SOON * 60, Lease::default()).unwrap_err())
        });
        scope.spawn(|| {
            until("it is closing", || locks.is_closed());
            closing.wait();
        });
        let report = locks.close(GRACE, now);
        for wait in waits {
            let error = wait.join().unwrap();
            assert!(error.is_cancelled(), "{error}");
        }
        report
    });
    // The other hold may have been released before the call came to look at it.
    assert!(report.finished() <= 1 && report.lost().is_empty(), "{report}");
    assert_eq!(report.taken().iter().map(|loss| loss.name()).collect::<Vec<_>>(), [b"taken"]);
    assert!(!locks.is_held("taken"));
    let error = locks.unlock("taken").unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("its client was shut down"), "{error}");
}

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::base::error::Result;
use crate::base::testing::manual_clock::ManualClock;
use crate::client::{DistributedLock, LocalLocks};

const NOW: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Locks on a clock that stands still until it is put forward.
fn standing_still() -> (LocalLocks, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(false));
    (LocalLocks::with_clock(Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

impl Registry {
    fn look<T>(&self, key: &str, look: impl FnOnce(Option<&Lock>) -> T) -> T {
        look(self.state.lock().locks.get(key.as_bytes()))
    }

    fn waiting(&self, key: &str) -> usize {
        self.look(key, |lock| lock.map_or(0, |lock| lock.queue.len()))
    }

    fn has_holder(&self, key: &str) -> bool {
        let holder = self.look(key, |lock| lock.and_then(|lock| lock.holder));
        holder.is_some_and(|holder| self.is_valid(holder))
    }

    fn is_empty(&self) -> bool {
        self.state.lock().locks.is_empty()
    }
}

impl ManualClock {
    fn pass(&self, span: Duration) {
        self.put_forward(self.now().after(span));
    }
}

/// Work on another thread, which ends after it.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    leasehold_support::until("what must come", is_so);
}

/// Another thread could have it at this moment.
fn is_free(locks: &LocalLocks) -> bool {
    elsewhere(|| {
        let is_free = locks.try_lock("x", NOW, Lease::default()).unwrap();
        if is_free {
            locks.unlock("x").unwrap();
        }
        is_free
    })
}

#[test]
fn fixed_lease_ends_at_its_time_and_not_before() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    clock.pass(SECOND - Duration::from_nanos(1));
    assert!(locks.is_held("x") && !is_free(&locks));
    clock.pass(Duration::from_nanos(1));
    assert!(!locks.is_held("x") && is_free(&locks));
    let error = locks.unlock("x").unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(
        error.to_string(),
        "lock \"x\": lost: its lease ran out, and another holder may have had it since; use Lease::renewed \
         or a longer lease"
    );
    assert!(locks.unlock("x").unwrap_err().is_not_held());
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
}

#[test]
fn renewed_lease_lasts_as_long_as_the_hold() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::renewed(SECOND)).unwrap());
    clock.pass(HOUR);
    assert!(locks.is_held("x") && !is_free(&locks));
    locks.unlock("x").unwrap();
    assert!(is_free(&locks));
}

#[test]
fn unlock_of_a_lost_hold_reports_it_and_spares_next_holder() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap(), "reentry");
    clock.pass(SECOND);
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap_err().is_lost());
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            assert!(locks.try_lock("x", NOW, Lease::fixed(HOUR)).unwrap());
            thread::park();
            assert!(locks.is_held("x"));
            locks.unlock("x").unwrap();
        });
        until(|| locks.registry.has_holder("x"));
        assert!(locks.unlock("x").unwrap_err().is_lost());
        assert!(locks.unlock("x").unwrap_err().is_lost());
        let error = locks.unlock("x").unwrap_err();
        assert!(error.is_not_held() && !error.is_lost());
        assert!(!is_free(&locks));
        next.thread().unpark();
    });
    assert!(is_free(&locks));
}

#[test]
fn waiter_gets_the_lock_when_the_holders_lease_ends() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.try_lock("x", HOUR, Lease::default()).unwrap());
        until(|| clock.next_due() == Some(clock.now().after(SECOND)));
        clock.pass(SECOND);
        assert!(waiting.join().unwrap());
    });
    assert!(locks.unlock("x").unwrap_err().is_lost());
}

#[test]
fn wait_ends_at_its_deadline() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.try_lock("x", SECOND, Lease::default()).unwrap());
        until(|| clock.next_due() == Some(clock.now().after(SECOND)));
        clock.pass(SECOND);
        assert!(!waiting.join().unwrap());
    });
    locks.unlock("x").unwrap();
    assert!(is_free(&locks), "its place in the queue is free again");
}

#[test]
fn threads_get_the_lock_in_order_of_arrival() {
    let (locks, _clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap());
    let served = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..8 {
            let (locks, served) = (&locks, &served);
            scope.spawn(move || {
                assert!(locks.try_lock("x", Duration::MAX, Lease::default()).unwrap());
                served.lock().unwrap().push((number, locks.fencing_token("x").unwrap()));
                locks.unlock("x").unwrap();
            });
            until(|| locks.registry.waiting("x") == number + 1);
        }
        locks.unlock("x").unwrap();
    });
    let served = served.into_inner().unwrap();
    assert_eq!(served.iter().map(|one| one.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert!(served.is_sorted_by(|one, next| one.1 < next.1), "{served:?}");
}

#[test]
fn first_waiter_that_gives_up_lets_the_next_one_in() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(2 * SECOND)).unwrap());
    thread::scope(|scope| {
        let first = scope.spawn(|| locks.try_lock("x", SECOND, Lease::default()).unwrap());
        until(|| locks.registry.waiting("x") == 1);
        let second = scope.spawn(|| locks.try_lock("x", HOUR, Lease::default()).unwrap());
        until(|| locks.registry.waiting("x") == 2);
        clock.pass(SECOND);
        assert!(!first.join().unwrap());
        clock.pass(SECOND);
        assert!(second.join().unwrap());
    });
}

#[test]
fn unused_lock_leaves_no_entry() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    assert!(!is_free(&locks));
    locks.unlock("x").unwrap();
    assert!(locks.registry.is_empty());
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    clock.pass(SECOND);
    assert!(locks.unlock("x").unwrap_err().is_lost());
    assert!(locks.registry.is_empty());
}

/// The thread-locals of a thread end in the reverse order of their first use.
#[cfg(target_os = "linux")]
#[test]
fn ending_thread_releases_its_holds_and_takes_no_other() {
    struct AtTheEnd(LocalLocks, mpsc::Sender<[Result<bool>; 3]>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let AtTheEnd(locks, sender) = self;
            let taken = locks.try_lock("y", NOW, Lease::default());
            let left = locks.unlock("x").map(|()| true);
            sender.send([taken, left, Ok(locks.is_held("x"))]).unwrap();
        }
    }

    thread_local! {
        static AT_THE_END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }

    let locks = LocalLocks::new();
    let (sender, hears) = mpsc::channel();
    let at_the_end = AtTheEnd(locks.clone(), sender);
    let others = locks.clone();
    let thread = thread::spawn(move || {
        AT_THE_END.set(Some(at_the_end));
        assert!(others.try_lock("x", NOW, Lease::default()).unwrap());
        assert!(others.try_lock("x", NOW, Lease::default()).unwrap());
    });
    let [taken, left, is_held] = hears.recv().unwrap();
    assert!(taken.unwrap_err().is_refused());
    assert!(left.unwrap_err().is_not_held() && !is_held.unwrap());
    thread.join().unwrap();
    assert!(is_free(&locks) && locks.registry.is_empty());
}

#[test]
fn inspection_shows_the_holder_and_each_waiter_in_order() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(HOUR)).unwrap());
    clock.pass(SECOND);
    thread::scope(|scope| {
        for waiting in 1..=2 {
            scope.spawn(|| assert!(!locks.try_lock("x", SECOND * 10, Lease::default()).unwrap()));
            until(|| locks.registry.waiting("x") == waiting);
            clock.pass(SECOND);
        }
        let seen = locks.inspect("x").unwrap();
        assert_eq!(seen.holders()[0].token(), locks.fencing_token("x"));
        assert_eq!(seen.holders()[0].since(), Some(SECOND * 3));
        assert_eq!(seen.holders()[0].ttl(), Some(HOUR - SECOND * 3));
        let waiters: Vec<_> = seen.waiters().iter().map(|it| (it.place(), it.since())).collect();
        assert_eq!(waiters, [(1, Some(SECOND * 2)), (2, Some(SECOND))]);
        clock.pass(SECOND * 20);
    });
    // Its lease is over, and nobody has taken the lock since.
    clock.pass(HOUR);
    assert_eq!(locks.inspect("x").unwrap().to_string(), "free\nnobody waits");
}

#[test]
fn closed_locks_are_held_until_the_grace_is_over() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap());
    assert!(locks.try_lock("fixed", NOW, Lease::fixed(SECOND)).unwrap());
    let closing = locks.clone();
    let close = thread::spawn(move || closing.close(HOUR, NOW));
    until(|| locks.is_closed());
    let error = elsewhere(|| locks.try_lock("y", NOW, Lease::default()).unwrap_err());
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(error.to_string(), "lock \"y\": the locks were closed; make new ones");
    clock.pass(HOUR - SECOND);
    assert!(locks.is_held("x") && locks.try_lock("x", NOW, Lease::default()).unwrap());
    assert!(!close.is_finished());
    clock.pass(SECOND);
    let report = close.join().unwrap();
    assert_eq!((report.finished(), report.taken().len()), (0, 1), "{report}");
    assert_eq!(report.lost()[0].name(), b"fixed");
    assert!(!locks.is_held("x"));
    for key in ["x", "fixed"] {
        assert!(locks.unlock(key).unwrap_err().is_lost());
    }
    assert_eq!(locks.close(NOW, NOW).taken(), report.taken());
}

/// No time passes, so each of them has to be told.
#[test]
fn waits_and_the_grace_end_at_once() {
    let (locks, _clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::default()).unwrap());
    thread::scope(|scope| {
        let waits = [(); 3]
            .map(|()| scope.spawn(|| locks.try_lock("x", HOUR, Lease::default()).unwrap_err()));
        until(|| locks.registry.waiting("x") == 3);
        let close = scope.spawn(|| locks.close(HOUR, NOW));
        for wait in waits {
            assert!(wait.join().unwrap().is_cancelled());
        }
        locks.unlock("x").unwrap();
        let report = close.join().unwrap();
        assert_eq!((report.cancelled(), report.finished()), (3, 1), "{report}");
    });
    assert!(locks.registry.is_empty());
}

/// As over Redis.
#[test]
fn inner_call_has_what_it_asks_for() {
    let (locks, clock) = standing_still();
    let lock = |lease| assert!(locks.try_lock("x", NOW, lease).unwrap());
    lock(Lease::fixed(SECOND));
    lock(Lease::fixed(SECOND * 10));
    locks.unlock("x").unwrap();
    clock.pass(SECOND * 9);
    assert!(locks.is_held("x") && !is_free(&locks), "it keeps the later end");
    // It is renewed until its unlock, and not beyond the lease that was renewed.
    lock(Lease::renewed(SECOND * 5));
    lock(Lease::fixed(SECOND));
    locks.unlock("x").unwrap();
    clock.pass(HOUR);
    assert!(locks.is_held("x") && !is_free(&locks));
    locks.unlock("x").unwrap();
    clock.pass(SECOND * 4);
    assert!(locks.is_held("x"));
    // The earliest limit counts, until its unlock.
    lock(Lease::renewed(HOUR).at_most(SECOND * 100));
    lock(Lease::renewed(HOUR).at_most(SECOND * 10));
    clock.pass(SECOND * 9);
    locks.unlock("x").unwrap();
    clock.pass(SECOND * 80);
    assert!(locks.is_held("x") && !is_free(&locks));
    clock.pass(SECOND * 11);
    assert!(!locks.is_held("x") && is_free(&locks));
    assert!(locks.unlock("x").unwrap_err().is_lost());
    assert!(locks.unlock("x").unwrap_err().is_lost());
    assert!(locks.unlock("x").unwrap_err().is_not_held());
}

/// The next thread waits for the end that the inner call has moved.
#[test]
fn waiter_gets_the_lock_at_the_later_end() {
    let (locks, clock) = standing_still();
    assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND)).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.try_lock("x", HOUR, Lease::default()).unwrap());
        until(|| clock.next_due() == Some(clock.now().after(SECOND)));
        assert!(locks.try_lock("x", NOW, Lease::fixed(SECOND * 10)).unwrap());
        until(|| clock.next_due() == Some(clock.now().after(SECOND * 10)));
        clock.pass(SECOND * 10);
        assert!(waiting.join().unwrap());
    });
    assert!(locks.unlock("x").unwrap_err().is_lost());
}

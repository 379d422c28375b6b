//! Threads of one process at one name while Redis has trouble: each gets its own verdict, within
//! its own bounds.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::waiting;
use crate::common::{HASTE, SLACK, SOON, behind_proxy, hasty, ms, open, renewed, until};
use leasehold::LockClient;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy};

/// A client that rides out an outage for ten seconds, one hasty exchange after the other.
fn patient(proxy: &Proxy) -> LockClient {
    let builder = LockClient::builder(proxy.url()).command_timeout(HASTE);
    builder.connect_timeout(HASTE).max_wait(HASTE).give_up_after(HASTE * 10).build().unwrap()
}

/// `None` always means a holder. Here nobody has it, and Redis is silent.
#[test]
fn timed_wait_behind_a_thread_in_an_outage_is_an_error() {
    let (_server, proxy) = behind_proxy();
    let lock = patient(&proxy).mutex("x").unwrap();
    drop(lock.lock().unwrap());
    let silence = proxy.add(Fault::request("", Action::Drop).sticky());
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().map(drop));
        assert!(silence.wait_fired(SOON));
        let outcome = lock.try_lock_for(HASTE * 2);
        silence.remove();
        let _ = first.join().unwrap();
        assert!(outcome.is_err(), "nobody has it, and it says {outcome:?}");
    });
}

/// One attempt is bounded by the client's time-outs, also while other threads ride out an outage.
#[test]
fn try_lock_behind_a_thread_in_an_outage_is_bounded() {
    let (_server, proxy) = behind_proxy();
    let lock = patient(&proxy).mutex("x").unwrap();
    drop(lock.lock().unwrap());
    let silence = proxy.add(Fault::request("", Action::Drop).sticky());
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().map(drop));
        assert!(silence.wait_fired(SOON));
        let begin = Instant::now();
        let outcome = lock.try_lock();
        let took = begin.spent();
        silence.remove();
        let _ = first.join().unwrap();
        // Its own exchange, and what is left of the one under way.
        assert!(took < HASTE * 2 + SLACK * 2, "{took:?}, and then {outcome:?}");
        assert!(outcome.is_err(), "{outcome:?}");
    });
}

/// That another process had it before the outage is no answer to a question of today.
#[test]
fn try_lock_in_an_outage_errs_despite_an_earlier_holder() {
    let (server, proxy) = behind_proxy();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = patient(&proxy).mutex("x").unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || waiting(&server, "x") == 1);
        proxy.refuse();
        proxy.cut();
        thread::sleep(ms(500));
        let outcome = lock.try_lock();
        proxy.heal();
        drop(guard);
        let _ = first.join().unwrap();
        assert!(outcome.is_err(), "Redis cannot be reached, and it says {outcome:?}");
    });
}

/// Nor is one of a second ago, where Redis has gone since.
#[test]
fn timed_wait_that_ends_in_an_outage_is_an_error() {
    const WAIT: Duration = ms(1_700);
    let (server, proxy) = behind_proxy();
    let _guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = patient(&proxy).mutex("x").unwrap();
    loop {
        let (outcome, cut) = thread::scope(|scope| {
            let begin = Instant::now();
            let waiter = scope.spawn(|| lock.try_lock_for(WAIT).map(|guard| guard.is_some()));
            // It has asked again after a second.
            thread::sleep(ms(1_150));
            proxy.refuse();
            proxy.cut();
            let cut = begin.elapsed();
            (waiter.join().unwrap(), cut)
        });
        proxy.heal();
        // Where the machine stalled, it may have been told before.
        if cut < WAIT - ms(100) {
            let error = outcome.unwrap_err();
            assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
            break;
        }
    }
}

/// Each may take its time, which is over for the last of them before their turn comes.
#[test]
fn threads_that_fail_in_turn_get_errors_and_never_none() {
    const CONNECT: Duration = ms(150);
    let (_server, proxy) = behind_proxy();
    let builder = LockClient::builder(proxy.url()).connect_timeout(CONNECT).max_wait(CONNECT);
    let lock = builder.build().unwrap().mutex("x").unwrap();
    proxy.black_hole();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| lock.try_lock().map(drop))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert!(outcome.is_err(), "nobody has it, and it says {outcome:?}");
    }
}

/// Ten seconds, not ten seconds for each thread before.
#[test]
fn threads_that_wait_together_give_up_together() {
    const THREADS: u64 = 6;
    let (_server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let lock = client.mutex("x").unwrap();
    drop(lock.lock().unwrap());
    proxy.refuse();
    proxy.cut();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let error = lock.lock().unwrap_err();
                assert!(error.is_unreachable(), "{error:?}");
            });
        }
    });
    // Each rides out two exchanges, and one more.
    let took = begin.spent();
    assert!(took < HASTE * 3 + SLACK * 2, "{took:?} for {THREADS} threads");
}

#[test]
fn wait_ends_at_give_up_after_in_an_outage() {
    let (_server, proxy) = behind_proxy();
    let client = hasty(&proxy.url());
    let lock = client.mutex("x").unwrap();
    for silent in [false, true] {
        drop(lock.lock().unwrap());
        if silent {
            proxy.black_hole();
        } else {
            proxy.refuse();
            proxy.cut();
        }
        let begin = Instant::now();
        let error = lock.lock().unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains("lock \"x\""), "{error}");
        let (lasted, took) = (begin.elapsed(), begin.spent());
        // The last of its exchanges may begin just before the end.
        assert!(lasted >= HASTE * 2 - ms(100) && took < HASTE * 4 + SLACK, "{lasted:?}");
        proxy.heal();
        drop(lock.try_lock_for(SOON).unwrap().expect("free"));
    }
}

#[test]
fn wait_can_be_cancelled_during_an_outage() {
    let (_server, proxy) = behind_proxy();
    let lock = patient(&proxy).mutex("x").unwrap();
    proxy.refuse();
    thread::scope(|scope| {
        let waiters = [(); 2].map(|()| scope.spawn(|| lock.lock().unwrap_err()));
        thread::sleep(ms(200));
        let begin = Instant::now();
        until("all are called off", || {
            lock.cancel_waits();
            waiters.iter().all(thread::ScopedJoinHandle::is_finished)
        });
        assert!(begin.spent() < ms(300) + SLACK, "{:?}", begin.spent());
        for waiter in waiters {
            assert!(waiter.join().unwrap().is_cancelled());
        }
    });
}

/// When a hold is lost, the next thread has its turn without a word from the one that lost it.
#[test]
fn lost_hold_wakes_the_waiting_threads() {
    let (server, _proxy) = behind_proxy();
    let lock = open(&server).mutex_with("x", renewed(2_400)).unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| lock.try_lock_for(SOON).unwrap().expect("free").fencing_token());
        until("it waits", || guard.waiters() == 1);
        crate::common::ask::<()>(&server, &["DEL", "x"]);
        assert!(next.join().unwrap() > guard.fencing_token());
    });
    assert!(guard.release().unwrap_err().is_lost());
    drop(lock.try_lock_for(SOON).unwrap().expect("free"));
}

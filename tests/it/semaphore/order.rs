//! Who gets permits, and who waits.

use std::thread;
use std::time::Instant;

use leasehold::{LockOptions, Permit};

use super::{SECOND, in_line, take};
use crate::common::queue::listens;
use crate::common::{SOON, exists, ms, open, server, until};

#[test]
fn request_for_all_is_not_overtaken_by_single_ones() {
    let server = server();
    let [holder, large, small] = [(); 3].map(|()| open(&server).semaphore("gpu", 4).unwrap());
    let mut held = take(&holder, 4);
    thread::scope(|scope| {
        let all = scope.spawn(|| large.acquire_many(4).unwrap());
        in_line(&holder, 1);
        let one = scope.spawn(|| small.acquire().map(|permit| permit.fencing_token()).unwrap());
        in_line(&holder, 2);
        for free in 1..4 {
            held.pop().unwrap().release().unwrap();
            assert_eq!(
                holder.available().unwrap(),
                free,
                "they are kept for the first in the line"
            );
            assert!(holder.try_acquire().unwrap().is_none());
        }
        held.pop().unwrap().release().unwrap();
        let all = all.join().unwrap();
        assert_eq!(all.slots(), [0, 1, 2, 3]);
        in_line(&holder, 1);
        let token = all.fencing_token();
        all.release().unwrap();
        assert!(one.join().unwrap() > token);
    });
}

/// The acquirer of the process asks for all, and the others stand behind it.
#[test]
fn threads_of_one_process_do_not_overtake_either() {
    let server = server();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 4).unwrap();
    let mut held = take(&gpus, 4);
    thread::scope(|scope| {
        let all = scope.spawn(|| gpus.acquire_many(4).unwrap());
        in_line(&gpus, 1);
        held.pop().unwrap().release().unwrap();
        assert!(gpus.try_acquire().unwrap().is_none(), "one is free, and kept for the first");
        let one = scope.spawn(|| gpus.acquire().map(|permit| permit.fencing_token()).unwrap());
        until("it waits", || held[0].waiters() == 2);
        held.drain(..).for_each(|permit| permit.release().unwrap());
        let all = all.join().unwrap();
        let token = all.fencing_token();
        all.release().unwrap();
        assert!(one.join().unwrap() > token);
    });
}

/// Its reply says nothing about a request for fewer.
#[test]
fn failed_single_attempt_for_many_answers_none_for_fewer() {
    let server = server();
    let gpus = open(&server).semaphore("gpu", 4).unwrap();
    let _held = take(&gpus, 2);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(gpus.try_acquire_many(3).unwrap().is_none());
                }
            });
        }
        for _ in 0..200 {
            assert!(gpus.try_acquire().unwrap().is_some(), "two are free");
        }
    });
}

#[test]
fn timed_waits_end_and_leave_nothing_in_the_line() {
    let server = server();
    let (here, there) = (open(&server), open(&server));
    listens(&server, &there);
    let held = here.semaphore("gpu", 2).unwrap().acquire_many(2).unwrap();
    let gpus = there.semaphore("gpu", 2).unwrap();
    let begin = Instant::now();
    for outcome in [
        gpus.try_acquire_for(ms(60)),
        gpus.try_acquire_until(Instant::now() + ms(60)),
        gpus.try_acquire_many_for(2, ms(60)),
    ] {
        match outcome {
            Ok(permit) => assert!(permit.is_none()),
            // So short a wait may end on a machine that stood still before a request was answered, which it says.
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    }
    assert!(begin.elapsed() >= ms(180));
    assert!(gpus.try_acquire_until(begin).unwrap().is_none(), "one attempt");
    let blocker = gpus.last_blocker().unwrap();
    assert_eq!(blocker.pid(), Some(std::process::id()));
    until("it has left", || !exists(&server, "{gpu}:line"));
    held.release().unwrap();
    assert_eq!(gpus.try_acquire_for(SOON).unwrap().unwrap().slot(), 0);
    assert_eq!(gpus.try_acquire_many_for(2, SOON).unwrap().unwrap().slots(), [0, 1]);
}

#[test]
fn waits_are_cancelled_and_holds_are_not() {
    let server = server();
    let gpus = open(&server).semaphore("gpu", 1).unwrap();
    let held = gpus.acquire().unwrap();
    thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| gpus.acquire().map(drop)));
        until("they wait", || held.waiters() == 3);
        assert_eq!(gpus.cancel_waits(), 3);
        for wait in waits {
            assert!(wait.join().unwrap().unwrap_err().is_cancelled());
        }
    });
    assert!(held.is_valid());
    held.check().unwrap();
    held.release().unwrap();
    assert_eq!(gpus.available().unwrap(), 1);
}

/// One finishes in its grace, one does not, and the waits end.
#[test]
fn closed_client_lets_holders_finish_and_takes_the_rest() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let options = LockOptions::new().local_handoffs(1_000);
    let gpus = client.semaphore_with("gpu", 3, options).unwrap();
    let theirs = other.semaphore("gpu", 3).unwrap();
    let foreign = theirs.acquire().unwrap();
    let (brief, long) = (gpus.acquire().unwrap(), gpus.acquire().unwrap());
    let report = thread::scope(|scope| {
        let waits = [(); 2].map(|()| scope.spawn(|| gpus.acquire().map(drop)));
        until("they wait", || brief.waiters() == 2);
        let closes = scope.spawn(|| client.close(SECOND, SECOND * 5));
        for wait in waits {
            assert!(wait.join().unwrap().unwrap_err().is_cancelled());
        }
        brief.check().unwrap();
        brief.release().unwrap();
        closes.join().unwrap()
    });
    assert_eq!((report.cancelled(), report.finished(), report.taken().len()), (2, 1, 1));
    assert_eq!(report.not_released().count(), 0);
    assert!(long.release().unwrap_err().is_lost());
    assert!(gpus.try_acquire().unwrap_err().is_cancelled());
    assert_eq!(theirs.available().unwrap(), 2, "nobody else's permit is touched");
    foreign.check().unwrap();
}

/// A thread that is passed permits at the end of its time has them or not, and none gets lost.
#[test]
fn timed_out_waiter_never_swallows_a_permit() {
    let server = server();
    let client = open(&server);
    listens(&server, &client);
    let options = LockOptions::new().local_handoffs(1_000_000);
    let gpus = client.semaphore_with("gpu", 1, options).unwrap();
    let (mut some, mut none) = (0, 0);
    for round in 0..1_500 {
        if round >= 60 && some > 0 && none > 0 {
            break;
        }
        let held: Permit = gpus.acquire().unwrap();
        thread::scope(|scope| {
            // On a busy machine the server may be silent for longer than that. Then it is not known, and undone.
            let hurried = scope.spawn(|| match gpus.try_acquire_for(ms(10)) {
                Ok(permit) => permit.is_some(),
                Err(error) if error.is_transient() => false,
                Err(error) => panic!("{error:?}"),
            });
            until("it waits", || held.waiters() >= 1 || hurried.is_finished());
            // Close to its end, and well before.
            thread::sleep(ms(10) - ms([1, 4][usize::from(round % 4 == 3)]));
            held.release().unwrap();
            *if hurried.join().unwrap() { &mut some } else { &mut none } += 1;
        });
        assert!(gpus.try_acquire_for(SOON).unwrap().is_some(), "round {round}: nobody has it");
        assert_eq!(gpus.available().unwrap(), 1, "round {round}");
    }
    assert!(some > 0 && none > 0, "{some} got it, {none} did not");
}

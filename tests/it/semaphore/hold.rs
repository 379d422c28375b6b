//! What a permit is while it is held, and how it is lost.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use leasehold::{Guard, LockClient, Loss, LossCause, Permit};
use leasehold_support::Server;

use super::take;
use crate::common::{SOON, ask, exists, fixed, ms, open, patient, pttl, renewed, server, until};

/// What a permit's own callback is told.
fn losses_of(permit: &Permit) -> mpsc::Receiver<Loss> {
    let (sender, losses) = mpsc::channel();
    permit.on_loss(move |loss| drop(sender.send(loss.clone())));
    losses
}

#[test]
fn permits_are_renewed_each_for_itself() {
    let server = server();
    let client = open(&server);
    let renews = client.semaphore_with("gpu", 2, renewed(6_000)).unwrap().acquire().unwrap();
    let ends = client.semaphore_with("gpu", 2, fixed(1_000)).unwrap().acquire().unwrap();
    until("the fixed lease is over", || !ends.is_valid());
    assert_eq!(ends.loss().map(|loss| loss.cause()), Some(LossCause::Expired));
    let (mut last, mut renewals) = (renews.remaining(), 0);
    until("it is renewed for longer than its lease", || {
        assert!(renews.is_valid(), "{:?}", renews.loss());
        let before = std::mem::replace(&mut last, renews.remaining());
        renewals += u32::from(last > before);
        renewals == 3
    });
    renews.check().unwrap();
    let gpus = client.semaphore("gpu", 2).unwrap();
    assert_eq!(gpus.try_acquire().unwrap().unwrap().slot(), 1);
    assert!(ends.release().unwrap_err().is_lost());
    renews.release().unwrap();
}

#[test]
fn deleted_key_loses_all_permits_and_tells_each() {
    type End = fn(&Server);
    let ends: [End; 2] =
        [|server| ask(server, &["DEL", "gpu"]), |server| ask(server, &["FLUSHALL"])];
    let server = server();
    let (sender, losses) = mpsc::sync_channel(16);
    let on_loss = move |loss: &Loss| drop(sender.try_send(loss.clone()));
    let client = patient(LockClient::builder(server.url())).on_loss(on_loss).build().unwrap();
    let gpus = client.semaphore_with("gpu", 2, renewed(6_000)).unwrap();
    for end in ends {
        let permits = take(&gpus, 2);
        let own: Vec<_> = permits.iter().map(losses_of).collect();
        end(&server);
        for (own, permit) in own.into_iter().zip(permits) {
            let loss = own.recv_timeout(SOON).unwrap();
            assert_eq!(
                (loss.cause(), loss.fencing_token()),
                (LossCause::Deleted, permit.fencing_token())
            );
            assert!(!permit.is_valid() && permit.release().unwrap_err().is_lost());
            losses.recv_timeout(SOON).unwrap();
        }
        assert!(gpus.acquire().unwrap().is_valid());
    }
}

#[test]
fn permit_lasts_for_as_long_as_it_was_extended() {
    let server = server();
    let gpus = open(&server).semaphore_with("gpu", 2, fixed(1_500)).unwrap();
    let (extended, other) = (gpus.acquire().unwrap(), gpus.acquire().unwrap());
    extended.extend(ms(60_000)).unwrap();
    assert!(extended.remaining() > ms(50_000) && pttl(&server, "gpu") > 50_000);
    extended.extend(ms(10)).unwrap();
    assert!(extended.remaining() > ms(50_000), "an extension never shortens");
    until("the other one is over", || !other.is_valid());
    assert!(other.extend(ms(60_000)).unwrap_err().is_lost());
    extended.check().unwrap();
    extended.confirm().unwrap();
    until("the other one is over in Redis", || gpus.holders().unwrap().len() == 1);
    assert_eq!(gpus.holders().unwrap()[0].slots(), [0]);
}

#[test]
fn kept_permit_outlasts_its_hold_and_no_other() {
    let server = server();
    let (here, there) = (open(&server), open(&server));
    let gpus = here.semaphore("gpu", 2).unwrap();
    let begin = Instant::now();
    let (kept, other) = (gpus.acquire().unwrap(), gpus.acquire().unwrap());
    kept.keep_for(ms(2_000)).unwrap();
    drop(kept);
    drop(other);
    let gpus = there.semaphore("gpu", 2).unwrap();
    assert_eq!(gpus.acquire().unwrap().slot(), 1);
    let both = gpus.acquire_many(2).unwrap();
    assert!(begin.elapsed() >= ms(2_000));
    both.release().unwrap();
}

#[test]
fn permit_changes_threads_and_is_watched_from_others() {
    let server = server();
    let gpus = open(&server).semaphore("gpu", 4).unwrap();
    let two = gpus.acquire_many(2).unwrap();
    let (watch, token) = (two.lease_watch(), two.fencing_token());
    let Ok(owned) = two.into_owned() else { panic!("it belongs to no thread") };
    let other = gpus.acquire().unwrap().into_owned().ok().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Both of one thread, and each is its own.
            let (guard, other) = (owned.into_guard(), other.into_guard());
            assert_eq!((guard.fencing_token(), guard.hold_count()), (token, 1));
            other.release().unwrap();
            guard.check().unwrap();
            assert!(watch.is_valid());
            guard.release().unwrap();
            assert!(!watch.is_valid());
        });
    });
    assert_eq!(gpus.available().unwrap(), 4);
}

#[test]
fn dropped_permit_outlives_its_client_and_is_given_back() {
    let server = server();
    let permit = open(&server).semaphore("gpu", 1).unwrap().acquire().unwrap();
    permit.check().unwrap();
    drop(permit);
    assert_eq!(open(&server).semaphore("gpu", 1).unwrap().available().unwrap(), 1);
}

/// A larger request waits: after the release nobody else is granted, and the sum is right.
#[test]
fn permits_are_given_back_while_memory_is_full() {
    let server = server();
    let (here, there) = (open(&server), open(&server));
    let (gpus, theirs) = (here.semaphore("gpu", 2).unwrap(), there.semaphore("gpu", 2).unwrap());
    let held = take(&gpus, 2);
    thread::scope(|scope| {
        let waits = scope.spawn(|| theirs.acquire_many(2).unwrap());
        super::in_line(&gpus, 1);
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
        let other = open(&server).semaphore("other", 2).unwrap();
        let error = other.try_acquire().unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("OOM"), "{error}");
        for permit in held {
            permit.extend(ms(60_000)).unwrap();
            permit.release().unwrap();
        }
        assert_eq!(waits.join().unwrap().slots(), [0, 1], "a waiter is granted all the same");
        assert_eq!(gpus.available().unwrap(), 2);
        gpus.resize(3).unwrap();
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
        assert!(!exists(&server, "other"));
    });
    assert_eq!(theirs.limit().unwrap(), 3);
}

#[test]
fn semaphore_in_use_is_listed() {
    let server = server();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 4).unwrap();
    let _two = gpus.acquire_many(2).unwrap();
    let listed = || client.locks("*").unwrap().map(Result::unwrap).collect::<Vec<_>>();
    until("it is announced", || !listed().is_empty());
    let listed = listed();
    let [lock] = &listed[..] else { panic!("{}", listed.len()) };
    assert_eq!((lock.kind(), lock.name()), ("semaphore", b"gpu".as_slice()));
    let inspection = lock.inspection();
    let permits = inspection.permits().unwrap();
    assert_eq!((permits.limit(), permits.used()), (4, 2));
    assert_eq!(permits.to_string(), "2 of 4 permits are held");
    assert_eq!(inspection.holders()[0].slots(), [0, 1]);
}

#[test]
fn thread_may_own_several_permits_of_one_semaphore() {
    let server = Server::start().unwrap();
    let gpus = open(&server).semaphore("gpu", 2).unwrap();
    let guards: Vec<Guard> =
        (0..2).map(|_| gpus.acquire().unwrap().into_owned().unwrap().into_guard()).collect();
    assert!(guards.iter().all(|guard| guard.hold_count() == 1));
    for (left, guard) in guards.into_iter().enumerate() {
        assert_eq!(gpus.available().unwrap(), u32::try_from(left).unwrap());
        guard.release().unwrap();
    }
    assert_eq!(gpus.available().unwrap(), 2);
}

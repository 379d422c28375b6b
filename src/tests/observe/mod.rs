//! What observers are told, over the server in memory.

mod end;
mod feature;
mod recorder;
mod reenter;

use std::time::Duration;

use super::double::{patient, until};
use crate::base::error::{ErrorKind, Result};
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::spawn;
use crate::client::{DistributedLock, LockClient};
use crate::kind::{Guard, Part, UpgradableReadGuard, WriteGuard};
use crate::observe::How;
use crate::testing::Server;
use recorder::Event;
pub(super) use recorder::Recorder;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(20);

fn stage() -> (Server, Recorder, LockClient) {
    let (server, recorder) = (Server::standing_still(), Recorder::default());
    let client = recorder.client(&server);
    (server, recorder, client)
}

/// Where time passes: a lease is passed on only once the server's clock has reached the next token.
fn stage_in_time() -> (Server, Recorder, LockClient) {
    let (server, recorder) = (Server::new(), Recorder::default());
    let client = server.connect(patient().observer(recorder.clone())).unwrap();
    (server, recorder, client)
}

/// A thread that does something, and sends what comes of it.
fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = unbounded();
    spawn("aside", move || _ = sender.send(work())).unwrap();
    receiver
}

fn hows(events: &[Event]) -> Vec<How> {
    let how = |event: &Event| match event {
        Event::Acquired { how, .. } => Some(*how),
        _ => None,
    };
    events.iter().filter_map(how).collect()
}

/// One call and one hold: a wait, a lock, a release.
fn is_plain(events: &[Event], kind: &str, how: How) -> bool {
    matches!(events, [
        Event::Waiting { call, kind: of },
        Event::Acquired { call: got, hold, how: came, blocker: None, .. },
        Event::Released { hold: ended, error: None, .. },
    ] if call == got && call == hold && hold == ended && *of == kind && *came == how)
}

#[test]
fn free_lock_of_each_kind_is_told_of_three_times() {
    let (_server, recorder, client) = stage();
    let rw = client.rw_lock("r").unwrap();
    type Take<'a> = &'a dyn Fn() -> Result<()>;
    let cases: [(&str, Take<'_>); 6] = [
        ("mutex", &|| client.mutex("m")?.lock()?.release()),
        ("reentrant lock", &|| client.reentrant("e")?.lock()?.release()),
        ("semaphore", &|| client.semaphore("s", 2)?.acquire()?.release()),
        ("read-write lock", &|| rw.read()?.release()),
        ("read-write lock", &|| rw.upgradable_read()?.release()),
        ("read-write lock", &|| rw.write()?.release()),
    ];
    for (kind, take) in cases {
        take().unwrap();
        let events = recorder.take();
        assert!(is_plain(&events, kind, How::Free), "{kind}: {events:#?}");
    }
}

#[test]
fn queued_call_names_the_holder_that_it_waited_for() {
    let (server, recorder, client) = stage();
    let other = server.client();
    let guard = other.mutex("a").unwrap().lock().unwrap();
    let lock = client.mutex("a").unwrap();
    let waiter = aside(move || lock.lock().and_then(Guard::release));
    until(|| server.is_queued_for("a"));
    let token = guard.fencing_token();
    guard.release().unwrap();
    waiter.recv().unwrap().unwrap();
    assert_eq!(recorder.last(), Some((How::Queued, Some(Some(token)))));
    recorder.settle();
}

#[test]
fn busy_call_names_the_holder_in_its_way() {
    let (server, recorder, client) = stage();
    for holder in [&client, &server.client()] {
        let guard = holder.mutex("a").unwrap().lock().unwrap();
        let lock = client.mutex("a").unwrap();
        assert!(aside(move || lock.try_lock().unwrap().is_none()).recv().unwrap());
        let last = recorder.take().pop();
        let Some(Event::NotAcquired { error: None, blocker, .. }) = last else {
            panic!("{last:?}")
        };
        assert_eq!(blocker, Some(Some(guard.fencing_token())));
        drop(guard);
    }
}

#[test]
fn local_hand_off_names_the_thread_that_had_the_lock() {
    let (_server, recorder, client) = stage_in_time();
    let lock = client.mutex("a").unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    let next = lock.clone();
    let waiter = aside(move || next.lock().and_then(Guard::release));
    until(|| guard.waiters() == 1);
    guard.release().unwrap();
    waiter.recv().unwrap().unwrap();
    assert_eq!(recorder.last(), Some((How::LocalHandOff, Some(Some(token)))));
    recorder.settle();
}

#[test]
fn permit_that_is_passed_on_ends_one_hold_and_begins_one() {
    let (server, recorder, client) = stage_in_time();
    let gpus = client.semaphore("s", 1).unwrap();
    let permit = gpus.acquire().unwrap();
    let waiter = aside(move || gpus.acquire().and_then(|permit| permit.release()));
    // It stands in the queue of Redis: one that is only about to ask would find a free permit.
    until(|| server.keys().contains(&b"{s}:line".to_vec()));
    permit.release().unwrap();
    waiter.recv().unwrap().unwrap();
    let (how, blocker) = recorder.last().unwrap();
    assert!(matches!(how, How::LocalHandOff | How::Queued), "{how:?}");
    assert!(blocker.is_some());
    recorder.settle();
}

#[test]
fn lease_that_lingers_begins_another_hold() {
    let (_server, recorder, client) = stage_in_time();
    let options = LockOptions::new().linger(SECOND);
    let lock = client.mutex_with("a", options).unwrap();
    // The client listens from the first lock on, and lets none linger before.
    until(|| {
        lock.lock().unwrap().release().unwrap();
        recorder.last().unwrap().0 == How::Linger
    });
    recorder.settle();
}

#[test]
fn readers_of_one_process_share_their_entry() {
    let (_server, recorder, client) = stage();
    let lock = client.rw_lock("a").unwrap();
    let first = lock.read().unwrap();
    let second = lock.clone();
    aside(move || second.read().unwrap().release()).recv().unwrap().unwrap();
    assert_eq!(recorder.last(), Some((How::Shared, None)));
    first.release().unwrap();
    recorder.settle();
}

#[test]
fn reentry_has_the_number_of_its_hold_and_no_end() {
    let (_server, recorder, client) = stage();
    for _ in 0..2 {
        let lock = client.reentrant("a").unwrap();
        let outer = lock.lock().unwrap();
        let inner = lock.try_lock().unwrap().unwrap();
        inner.release().unwrap();
        outer.release().unwrap();
        let events = recorder.take();
        let [_, Event::Acquired { hold, .. }, Event::Acquired { hold: entered, how, .. }, end] =
            &events[..]
        else {
            panic!("{events:#?}")
        };
        assert!(hold == entered && *how == How::Reentry);
        assert!(matches!(end, Event::Released { hold: ended, .. } if ended == hold));
    }
}

#[test]
fn upgrade_ends_its_call_and_goes_on_with_the_hold() {
    let (server, recorder, client) = stage_in_time();
    let reader = server.client().rw_lock("a").unwrap().read().unwrap().into_owned().unwrap();
    let lock = client.rw_lock("a").unwrap();
    let upgraded = aside(move || {
        let guard = lock.upgradable_read().unwrap();
        let Ok(Err(guard)) = UpgradableReadGuard::try_upgrade_for(guard, Duration::from_nanos(1))
        else {
            panic!("a reader is in its way")
        };
        let guard = UpgradableReadGuard::upgrade(guard).unwrap();
        let token = guard.fencing_token();
        WriteGuard::downgrade(guard).unwrap().release().unwrap();
        token
    });
    let waits = |event: &Event| matches!(event, Event::Waiting { .. });
    until(|| recorder.all().iter().filter(|event| waits(event)).count() == 3);
    reader.release().unwrap();
    let token = upgraded.recv().unwrap();
    let events = recorder.take();
    assert_eq!(hows(&events), [How::Free, How::Upgrade]);
    let hold = |event: &Event| match event {
        Event::Acquired { hold, .. } | Event::Released { hold, .. } => Some(*hold),
        _ => None,
    };
    let holds: Vec<u64> = events.iter().filter_map(hold).collect();
    assert!(holds.len() == 3 && holds.iter().all(|it| *it == holds[0]), "{events:#?}");
    let is_token = |event: &Event| match event {
        Event::Acquired { how: How::Upgrade, token: own, .. } => *own == token,
        Event::Released { token: last, .. } => *last == token,
        _ => false,
    };
    assert_eq!(events.iter().filter(|event| is_token(event)).count(), 2);
    let failed = events.iter().find_map(|event| match event {
        Event::NotAcquired { error, blocker, .. } => Some((*error, blocker.is_some())),
        _ => None,
    });
    assert_eq!(failed, Some((None, true)));
}

#[test]
fn lost_hold_ends_once_and_its_release_tells_nothing() {
    let (server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    assert!(server.delete("a"));
    assert!(guard.check().unwrap_err().is_lost());
    recorder.settle();
    assert!(guard.release().unwrap_err().is_lost());
    let ends = |event: &Event| matches!(event, Event::Lost { .. } | Event::Released { .. });
    let ends: Vec<Event> = recorder.take().into_iter().filter(ends).collect();
    assert!(matches!(ends[..], [Event::Lost { cause: LossCause::Deleted, .. }]), "{ends:?}");
}

#[test]
fn loss_that_the_worker_finds_is_told() {
    let (server, recorder, client) = stage();
    let options = LockOptions::new().lease(Lease::fixed(SECOND));
    let guard = client.mutex_with("a", options).unwrap().lock().unwrap();
    server.advance(SECOND * 2);
    recorder.settle();
    let lost = |event: &Event| matches!(event, Event::Lost { cause: LossCause::Expired, .. });
    assert!(recorder.all().iter().any(lost) && !guard.is_valid());
}

#[test]
fn loss_in_a_release_is_told_as_a_loss() {
    let (server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    server.steal("a", SECOND);
    assert!(guard.release().unwrap_err().is_lost());
    recorder.settle();
    let lost = |event: &Event| matches!(event, Event::Lost { cause: LossCause::Taken, .. });
    assert!(recorder.all().iter().any(lost));
}

#[test]
fn forced_release_is_a_loss_of_the_holder() {
    let (server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    assert!(server.client().mutex("a").unwrap().force_release().unwrap());
    server.advance(SECOND * 11);
    recorder.settle();
    assert!(guard.loss().is_some());
}

#[test]
fn failed_call_carries_the_kind_of_its_error() {
    let (server, recorder, client) = stage();
    server.link(&client).cut();
    assert!(client.mutex("a").unwrap().try_lock().is_err());
    let events = recorder.all();
    let failed = |event: &Event| {
        matches!(event, Event::NotAcquired { error: Some(ErrorKind::Unreachable), .. })
    };
    assert!(events.iter().any(failed), "{events:#?}");
    assert!(events.contains(&Event::Exchange(Err(ErrorKind::Unreachable))), "{events:#?}");
    recorder.settle();
}

#[test]
fn release_without_a_reply_ends_the_hold_with_an_error() {
    let (server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    server.link(&client).cut();
    assert!(guard.release().is_err());
    let last = recorder.take().pop();
    let expected = Some(ErrorKind::Unreachable);
    assert!(matches!(last, Some(Event::Released { error, .. }) if error == expected), "{last:?}");
}

#[test]
fn lock_all_tells_of_each_of_its_locks() {
    let (server, recorder, client) = stage();
    let parts = || {
        let gpus = client.semaphore("b", 1).unwrap();
        let rw = client.rw_lock("c").unwrap();
        [Part::from(&client.mutex("a").unwrap()), gpus.permits(1), rw.for_write()]
    };
    client.lock_all(parts()).unwrap().release().unwrap();
    recorder.settle();
    assert_eq!(hows(&recorder.take()), [How::Free; 3]);

    // One of them is held elsewhere: the first is had, and given back.
    let guard = server.client().rw_lock("c").unwrap().read().unwrap();
    assert!(client.try_lock_all(parts()).unwrap().is_none());
    recorder.settle();
    let events = recorder.take();
    let busy = |event: &&Event| matches!(event, Event::NotAcquired { error: None, .. });
    assert_eq!(events.iter().filter(busy).count(), 1 + 2 - hows(&events).len(), "{events:#?}");
    drop(guard);

    // Redis is away: the error comes with one of them.
    server.link(&client).cut();
    assert!(client.try_lock_all(parts()).is_err());
    recorder.settle();
    let failed = |event: &&Event| matches!(event, Event::NotAcquired { error: Some(_), .. });
    assert_eq!(recorder.take().iter().filter(failed).count(), 1);
}

#[test]
fn lock_all_that_waits_for_one_tells_of_all_at_the_end() {
    let (server, recorder, client) = stage();
    let guard = server.client().mutex("b").unwrap().lock().unwrap();
    let token = guard.fencing_token();
    let both = client.clone();
    let waiter = aside(move || {
        let locks = ["b", "a"].map(|name| both.mutex(name).unwrap());
        both.lock_all(&locks).unwrap().release()
    });
    until(|| server.is_queued_for("b"));
    guard.release().unwrap();
    waiter.recv().unwrap().unwrap();
    recorder.settle();
    let events = recorder.take();
    assert_eq!(hows(&events), [How::Free, How::Queued]);
    let named = |event: &Event| matches!(event, Event::Acquired { blocker: Some(Some(it)), .. } if *it == token);
    assert_eq!(events.iter().filter(|event| named(event)).count(), 1, "{events:#?}");
}

#[test]
fn closed_client_ends_its_waits_and_its_holds() {
    let (server, recorder, client) = stage();
    let held = client.mutex("mine").unwrap().lock().unwrap();
    let other = server.client().mutex("a").unwrap().lock().unwrap();
    let lock = client.mutex("a").unwrap();
    let waiter = aside(move || lock.lock().map(drop));
    until(|| server.is_queued_for("a"));
    let _ = client.close(Duration::ZERO, SOON);
    assert!(waiter.recv().unwrap().unwrap_err().is_cancelled());
    assert!(client.mutex("b").unwrap().try_lock().is_err());
    recorder.settle();
    let events = recorder.take();
    let cancelled = |event: &&Event| {
        matches!(event, Event::NotAcquired { error: Some(ErrorKind::Cancelled), .. })
    };
    assert_eq!(events.iter().filter(cancelled).count(), 2, "{events:#?}");
    let lost = |event: &Event| matches!(event, Event::Lost { cause: LossCause::ShutDown, .. });
    assert!(events.iter().any(lost), "{events:#?}");
    drop((held, other));
}

#[test]
fn hold_goes_on_while_it_moves_between_threads() {
    let (_server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    guard.extend(SECOND * 40).unwrap();
    guard.confirm().unwrap();
    let owned = guard.into_owned().unwrap();
    aside(move || owned.into_guard().release()).recv().unwrap().unwrap();
    let events = recorder.take();
    assert!(is_plain(&events, "mutex", How::Free), "{events:#?}");
}

#[test]
fn kept_lock_ends_its_hold_with_the_guard() {
    let (server, recorder, client) = stage();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    guard.keep_for(SECOND * 60).unwrap();
    guard.release().unwrap();
    let events = recorder.take();
    assert!(is_plain(&events, "mutex", How::Free), "{events:#?}");
    assert!(server.keys().contains(&b"a".to_vec()));
}

#[test]
fn end_of_a_thread_ends_its_holds() {
    let (_server, recorder, client) = stage();
    let by_key = client.clone();
    let taken = aside(move || by_key.try_lock("a", Duration::ZERO, Lease::default()).unwrap());
    assert!(taken.recv().unwrap());
    recorder.settle();
}

#[test]
fn lock_with_too_few_replicas_was_never_had() {
    let (_server, recorder, client) = stage_in_time();
    let options = LockOptions::new().min_replicas(1, Duration::from_millis(1));
    assert!(client.mutex_with("a", options).unwrap().lock().is_err());
    let events = recorder.take();
    let [Event::Waiting { .. }, Event::NotAcquired { error: Some(ErrorKind::NotReplicated), .. }] =
        events[..]
    else {
        panic!("{events:#?}")
    };
}

#[test]
fn renewals_of_a_client_are_told_together() {
    let (server, recorder, client) = stage();
    let guards = ["a", "b", "c"].map(|name| client.mutex(name).unwrap().lock().unwrap());
    server.advance(SECOND * 11);
    let renewed =
        |event: &Event| if let Event::Renewed(count) = event { Some(*count) } else { None };
    until(|| recorder.all().iter().filter_map(renewed).sum::<u32>() == 3);
    drop(guards);
}

#[test]
fn several_observers_are_all_told() {
    let server = Server::standing_still();
    let (one, other) = (Recorder::default(), Recorder::default());
    let settings =
        LockClient::builder("redis://memory").observer(one.clone()).observer(other.clone());
    let client = server.connect(settings).unwrap();
    client.mutex("a").unwrap().lock().unwrap().release().unwrap();
    assert_eq!(one.all(), other.all());
    assert_eq!(one.take().len(), 3);
}

/// Whatever guards do in whatever order, each call and each hold ends once.
#[test]
fn random_uses_of_all_guards_balance() {
    let (server, recorder, client) = stage_in_time();
    let other = server.client();
    let worker = |seed: u64| {
        let (server, client, other) = (server.clone(), client.clone(), other.clone());
        aside(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..200).for_each(|_| use_once(&server, &client, &other, &mut random));
        })
    };
    let workers: Vec<_> = (0..4).map(worker).collect();
    workers.into_iter().for_each(|worker| worker.recv().unwrap());
    // On a machine that runs one thread after the other, no two of them read at a time.
    let lock = client.rw_lock("r").unwrap();
    let held = lock.read().unwrap();
    aside(move || drop(lock.read())).recv().unwrap();
    drop(held);
    recorder.settle();
    let events = recorder.all();
    for how in [How::Free, How::Queued, How::LocalHandOff, How::Shared, How::Reentry, How::Upgrade]
    {
        assert!(hows(&events).contains(&how), "{how:?} never came");
    }
}

fn use_once(server: &Server, client: &LockClient, other: &LockClient, random: &mut fastrand::Rng) {
    let briefly = Duration::from_millis(5);
    match random.u32(..12) {
        0 => drop(client.mutex("m").unwrap().lock()),
        1 => drop(other.mutex("m").unwrap().try_lock_for(briefly)),
        2 => drop(client.mutex("m").unwrap().try_lock()),
        3 => {
            let lock = client.reentrant("e").unwrap();
            let outer = lock.try_lock_for(briefly);
            drop((lock.try_lock(), outer));
        }
        4 => drop(client.semaphore("s", 2).unwrap().acquire()),
        5 => drop(client.rw_lock("r").unwrap().read()),
        6 => drop(client.rw_lock("r").unwrap().try_write()),
        7 => {
            if let Ok(Some(guard)) = client.rw_lock("r").unwrap().try_upgradable_read() {
                let _ = UpgradableReadGuard::try_upgrade_for(guard, briefly);
            }
        }
        8 => {
            let guard = client.mutex("m").unwrap().try_lock_for(briefly);
            if let Ok(Some(owned)) = guard.map(|it| it.map(|it| it.into_owned().unwrap())) {
                let _ = aside(move || drop(owned.into_guard())).recv();
            }
        }
        9 => {
            let locks = ["m", "n"].map(|name| client.mutex(name).unwrap());
            drop(client.try_lock_all_for(&locks, briefly));
        }
        10 => {
            if let Ok(Some(guard)) = client.mutex("n").unwrap().try_lock() {
                let _ = guard.keep_for(Duration::from_millis(1));
                server.delete("n");
                let _ = guard.check();
            }
        }
        _ => {
            client.mutex("m").unwrap().cancel_waits();
        }
    }
}

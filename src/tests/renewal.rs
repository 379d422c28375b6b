//! Renewals whose answers do not come, above all those of a lease that was handed over and is short.

use std::time::Duration;

use super::double::{listen, taker, until};
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::client::LockClient;
use crate::kind::Guard;
use crate::testing::{Link, Server};

const SECOND: Duration = Duration::from_secs(1);
/// The answer comes after any exchange has been given up.
const NEVER: Duration = Duration::from_secs(60);

/// A server, the process that released the lock, and the one to which it was handed over.
struct Handed {
    server: Server,
    here: LockClient,
    link: Link,
    guard: Guard,
}

fn hand_over() -> Handed {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    // A waiter whose client begins to listen asks once more, and would get a whole lease.
    listen(&there);
    let waiter = taker(&there, true);
    until(|| server.is_queued_for("a"));
    server.advance(Duration::ZERO);
    guard.release().unwrap();
    let guard = waiter.recv().unwrap().unwrap().unwrap().into_guard();
    assert!(guard.remaining() < SECOND * 3, "it is whole already");
    Handed { link: server.link(&there), server, here, guard }
}

#[test]
fn handed_over_lease_survives_one_lost_reply() {
    let Handed { server, link, guard, .. } = hand_over();
    link.delay_answers(1, NEVER);
    server.advance(SECOND * 40);
    assert_eq!(link.faults(), 1);
    assert!(guard.is_valid(), "{:?}", guard.loss());
}

/// Half of what is left, again and again, and never more often than every 10 ms.
#[test]
fn silent_renewal_of_a_handed_over_lease_is_tried_again() {
    let Handed { server, link, guard, .. } = hand_over();
    link.silence();
    server.advance(SECOND * 3);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    assert!((5..=10).contains(&link.faults()), "{} tries", link.faults());
}

#[test]
fn renewal_with_300_ms_left_is_tried_three_times() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::renewed(SECOND / 2));
    let guard = client.mutex_with("a", options).unwrap().lock().unwrap();
    let link = server.link(&client);
    link.silence();
    server.advance(SECOND / 2);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    assert!((3..=10).contains(&link.faults()), "{} tries", link.faults());
}

/// Where every connection is refused at once, nothing but the pause keeps the worker from a busy loop.
#[test]
fn refused_renewals_are_tried_with_pauses() {
    let Handed { server, link, guard, .. } = hand_over();
    let before = link.faults();
    link.cut();
    server.advance(SECOND * 3);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    let tries = link.faults() - before;
    assert!((3..=150).contains(&tries), "{tries} tries");
}

/// Redis carried them out, and has the lock for a whole lease; its holder does not know.
#[test]
fn lost_lease_with_unanswered_renewals_is_released() {
    for dropped in [false, true] {
        let Handed { server, here, link, guard } = hand_over();
        link.delay_answers(100, NEVER);
        server.advance(SECOND * 3);
        assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
        link.restore();
        let rival = here.mutex("a").unwrap();
        assert!(rival.is_locked().unwrap(), "the renewals were not carried out");
        if dropped {
            drop(guard);
        } else {
            assert!(guard.release().unwrap_err().is_lost());
        }
        until(|| !rival.is_locked().unwrap());
    }
}

/// Both are due at once, and only the answer to the short one is lost.
#[test]
fn short_lease_does_not_cut_the_timeout_of_others() {
    let server = Server::standing_still();
    let client = server.client();
    let long = client.mutex("long").unwrap().lock().unwrap();
    // Its renewal is due after 10 s.
    server.advance(SECOND * 99 / 10);
    let options = LockOptions::new().lease(Lease::renewed(SECOND * 3 / 5));
    let short = client.mutex_with("short", options).unwrap().lock().unwrap();
    let link = server.link(&client);
    link.delay_answers(1, NEVER);
    server.suspend(SECOND / 4);
    server.advance(SECOND / 4);
    assert_eq!(link.faults(), 1);
    assert!(long.remaining() > SECOND * 29, "not renewed: {:?} left", long.remaining());
    server.advance(SECOND);
    assert!(short.is_valid() && long.is_valid());
}

/// A thread that has its slot locked stands still. A renewal locks no slot.
#[test]
fn slot_that_stays_locked_for_two_seconds_costs_no_lease() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_millis(900)));
    let hold = |name| client.mutex_with(name, options).unwrap().lock().unwrap();
    let guards = ["x", "y"].map(hold);
    let slots = client.engine().table().all();
    let slot = slots.iter().find(|slot| slot.target().name().as_bytes() == b"x").unwrap();
    slot.while_locked(|| {
        for passed in 1..=20 {
            server.advance(Duration::from_millis(100));
            assert_eq!(guards.each_ref().map(Guard::is_valid), [true; 2], "after {passed}00 ms");
        }
    });
    for guard in guards {
        guard.release().unwrap();
    }
}

/// A claim lasts for three seconds, and the holder does not depend on it for long.
#[test]
fn handed_over_lease_is_whole_soon_and_outlives_a_stall() {
    let Handed { server, link, guard, .. } = hand_over();
    server.advance(SECOND / 4);
    assert!(guard.remaining() > SECOND * 20, "{:?}", guard.remaining());
    link.silence();
    server.advance(SECOND * 5);
    assert!(guard.is_valid());
    link.restore();
    server.advance(SECOND * 6);
    assert!(guard.remaining() > SECOND * 20, "{:?}", guard.remaining());
    guard.release().unwrap();
}

/// Its holds would follow those of the next owner, with lesser tokens.
#[test]
fn process_that_relocks_notices_a_deletion_within_a_heartbeat() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let options = LockOptions::new().linger(SECOND / 2);
    let lock = here.mutex_with("a", options).unwrap();
    lock.lock().unwrap().release().unwrap();
    until(|| here.engine().listener.is_live());
    let relock = || match lock.try_lock().unwrap() {
        Some(guard) => guard.release().is_ok(),
        None => false,
    };
    // Renewals keep it fresh, and no thread asks for it.
    for _ in 0..50 {
        server.advance(SECOND / 10);
        assert!(relock());
    }
    assert_eq!(server.keys().iter().filter(|key| *key == b"a").count(), 1);
    assert!(server.delete("a"));
    let next = there.mutex("a").unwrap().try_lock().unwrap().expect("free");
    let mut late = 0;
    while relock() {
        server.advance(SECOND / 10);
        late += 1;
    }
    assert!(late <= 10, "it goes on for {late}00 ms");
    assert!(next.is_valid());
}

/// Takes the lock `a` of each kind, and hands on how to make its lease longer.
fn each_kind(server: &Server, test: impl Fn(&LockClient, &str, &dyn Fn(Duration))) {
    let client = &server.client();
    let guard = client.mutex("mutex").unwrap().lock().unwrap();
    test(client, "mutex", &|span| guard.extend(span).unwrap());
    let guard = client.reentrant("reentrant").unwrap().lock().unwrap();
    test(client, "reentrant", &|span| guard.extend(span).unwrap());
    let leadership = client.election("election").unwrap().campaign().unwrap();
    test(client, "election", &|span| leadership.extend(span).unwrap());
    let permit = client.semaphore("semaphore", 2).unwrap().acquire().unwrap();
    test(client, "semaphore", &|span| permit.extend(span).unwrap());
    let guard = client.rw_lock("rw").unwrap().read().unwrap();
    test(client, "rw", &|span| guard.extend(span).unwrap());
}

/// As `PERSIST` does, or a restore.
fn take_away_all_ends(server: &Server) {
    for key in server.keys() {
        server.inner().call(&[b"PERSIST", &key]).unwrap();
    }
}

/// The time to live of each key of a lock, in ms; below zero where it has none.
fn ends(server: &Server) -> Vec<(String, i64)> {
    let left = |key: &[u8]| match server.inner().call(&[b"PTTL", key]).unwrap() {
        crate::wire::Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    let shown = |key: Vec<u8>| (String::from_utf8_lossy(&key).into_owned(), left(&key));
    let of_a_lock = |key: &Vec<u8>| key != b"leasehold:index";
    server.keys().into_iter().filter(of_a_lock).map(shown).collect()
}

#[test]
fn renewal_gives_an_end_to_keys_that_lost_theirs() {
    let server = Server::standing_still();
    each_kind(&server, |client, name, extend| {
        for by_worker in [true, false] {
            take_away_all_ends(&server);
            if by_worker {
                server.advance(SECOND * 11);
            } else {
                extend(SECOND * 30);
            }
            let ends = ends(&server);
            assert!(ends.len() > 1, "{ends:?}");
            let is_right = |left: i64| (15_000..=31_000).contains(&left);
            assert!(ends.iter().all(|(_, left)| is_right(*left)), "{name}, {by_worker}: {ends:?}");
        }
        // No end is earlier than what the holder believes to have.
        extend(SECOND * 300);
        server.inner().call(&[b"PERSIST", name.as_bytes()]).unwrap();
        server.advance(SECOND * 11);
        let left = ends(&server).iter().find(|(key, _)| key == name).map(|(_, left)| *left);
        assert!(left.is_some_and(|left| (285_000..=301_000).contains(&left)), "{name}: {left:?}");
        // Of a holder that died nothing is left in the end.
        let link = server.link(client);
        link.cut();
        server.advance(SECOND * 400);
        assert_eq!(ends(&server), [], "{name}");
        link.restore();
    });
}

/// The set of a semaphore lives as long as the latest of its leases (rule 26).
#[test]
fn set_that_lost_its_end_lives_as_long_as_its_latest_lease() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let long = LockOptions::new().lease(Lease::fixed(SECOND * 100));
    let _long = client.semaphore_with("x", 2, long).unwrap().acquire().unwrap();
    let short = other.semaphore("x", 2).unwrap().acquire().unwrap();
    take_away_all_ends(&server);
    short.check().unwrap();
    let ends = ends(&server);
    assert!(ends.iter().all(|(_, left)| (99_000..=101_000).contains(left)), "{ends:?}");
    short.release().unwrap();
}

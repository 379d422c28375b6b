//! The reentrant lock: the layout of Redisson's plain lock, and contention with it.

use std::collections::BTreeMap;
use std::thread;

use crate::common::{
    SOON, ask, behind_proxy, exists, fixed, ms, names, open, open_at, pttl, renewed, server, until,
};
use leasehold::{LockOptions, Release};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault, Server};

/// Redisson's own script for `tryLock`.
const REDISSON_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) or \
    (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); \
    return nil; end; return redis.call('pttl', KEYS[1]);";
const SERVICE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";

fn redisson_lock(server: &Server, key: &str) -> Option<i64> {
    ask(server, &["EVAL", REDISSON_LOCK, "1", key, "30000", SERVICE])
}

fn hash(server: &Server, key: &str) -> BTreeMap<String, String> {
    ask(server, &["HGETALL", key])
}

/// The only entry.
fn entry(server: &Server, key: &str) -> (String, String) {
    let hash = hash(server, key);
    assert_eq!(hash.len(), 1, "{hash:?}");
    hash.into_iter().next().expect("one entry")
}

#[test]
fn key_layout_matches_redisson() {
    let server = server();
    let lock = open(&server).reentrant_with("x", fixed(20_000)).unwrap();
    let guard = lock.lock().unwrap();
    let (owner, count) = entry(&server, "x");
    assert_eq!(count, "1");
    let (client, thread) = owner.split_once(':').expect("uuid:thread");
    let lengths: Vec<_> = client.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{owner}");
    assert!(client.chars().all(|letter| letter == '-' || letter.is_ascii_hexdigit()));
    assert!(thread.parse::<u64>().is_ok() && !thread.starts_with('0'), "{owner}");
    let left = pttl(&server, "x");
    assert!(left <= 20_000 && left > 19_000, "{left}");
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn redis_shows_the_hold_count_and_reentry_does_not_wait() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let outer = lock.lock().unwrap();
    let (owner, _) = entry(&server, "x");
    let shown = |count: &str| {
        until("the count is shown", || entry(&server, "x") == (owner.clone(), count.to_owned()));
    };
    let middle = lock.lock().unwrap();
    let inner = lock.try_lock().unwrap().expect("ours");
    assert_eq!((lock.hold_count(), inner.hold_count()), (3, 3));
    shown("3");
    inner.release().unwrap();
    shown("2");
    drop(middle);
    shown("1");
    assert!(lock.is_held_by_current_thread());
    outer.release().unwrap();
    assert!(!exists(&server, "x"));
    assert_eq!(lock.hold_count(), 0);
}

/// While Redis is silent, reentry goes on.
#[test]
fn reentry_needs_no_server() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let outer = lock.lock().unwrap();
    server.pause();
    // A request would have no answer, and end in an error.
    for _ in 0..1_000 {
        drop(lock.lock().unwrap());
    }
    server.resume();
    outer.release().unwrap();
}

/// A thread that comes back in must not lengthen a fixed lease by having its count shown.
#[test]
fn showing_a_count_lengthens_no_lease() {
    let server = server();
    let lock = open(&server).reentrant_with("x", fixed(5_000)).unwrap();
    let _outer = lock.lock().unwrap();
    let _inner = lock.lock().unwrap();
    until("the count is shown", || entry(&server, "x").1 == "2");
    thread::sleep(ms(100));
    let left = pttl(&server, "x");
    assert!(left > 0 && left < 4_950, "{left}");
}

/// A late write to an expired lock would make one that never ends.
#[test]
fn showing_a_count_never_makes_a_key() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let outer = lock.lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    server.reset_stats();
    let inner = lock.lock().unwrap();
    until("the count was to be shown", || server.command_calls(&["eval", "evalsha"]) > 0);
    assert!(!exists(&server, "x"));
    // And so the loss was found.
    until("it is lost", || !outer.is_valid());
    assert!(inner.release().unwrap_err().is_lost());
    assert!(outer.release().unwrap_err().is_lost());
    assert!(!exists(&server, "x"));
}

/// Rule 22: the outermost release deletes if it is mine, whatever the count says.
#[test]
fn last_release_deletes_whatever_the_redis_count() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let guard = lock.lock().unwrap();
    let (owner, _) = entry(&server, "x");
    ask::<()>(&server, &["HSET", "x", &owner, "7"]);
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

/// Regression, redis-py#1031: a release deleted another's lock.
#[test]
fn release_does_not_touch_another_owners_hash() {
    let server = server();
    let lock = open(&server).reentrant_with("x", fixed(20_000)).unwrap();
    let guard = lock.lock().unwrap();
    ask::<()>(&server, &["DEL", "x"]);
    assert_eq!(redisson_lock(&server, "x"), None);
    assert!(guard.release().unwrap_err().is_lost());
    assert_eq!(hash(&server, "x").get(SERVICE).map(String::as_str), Some("1"));
}

#[test]
fn the_last_release_publishes_one_zero_on_redissons_channel() {
    let server = server();
    let client = open(&server);
    for (name, channel) in [
        ("orders", "redisson_lock__channel:{orders}"),
        ("{shop}:orders", "redisson_lock__channel:{shop}:orders"),
    ] {
        let mut connection = server.connection();
        connection.set_read_timeout(Some(SOON)).unwrap();
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe(channel).unwrap();
        let lock = client.reentrant(name).unwrap();
        let outer = lock.lock().unwrap();
        let inner = lock.lock().unwrap();
        inner.release().unwrap();
        outer.release().unwrap();
        let message = subscriber.get_message().unwrap();
        assert_eq!(message.get_payload_bytes(), b"0");
        assert_eq!(message.get_channel_name(), channel);
        // Nothing for the inner release, nor twice.
        subscriber.set_read_timeout(Some(ms(150))).unwrap();
        assert!(subscriber.get_message().is_err());
        // A forced release wakes the waiters too.
        let _guard = lock.lock().unwrap();
        assert!(lock.force_release().unwrap());
        subscriber.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(subscriber.get_message().unwrap().get_payload_bytes(), b"0");
    }
}

#[test]
fn redisson_excludes_ours_and_ours_excludes_redisson() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    assert_eq!(redisson_lock(&server, "x"), None);
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().expect("a holder");
    assert_eq!(holder.owner(), SERVICE.as_bytes());
    // Its own reentry goes on.
    assert_eq!(redisson_lock(&server, "x"), None);
    assert_eq!(hash(&server, "x").get(SERVICE).map(String::as_str), Some("2"));
    ask::<()>(&server, &["DEL", "x"]);
    let guard = lock.try_lock().unwrap().expect("free");
    let left = redisson_lock(&server, "x").expect("ours for so long");
    assert!(left > 20_000 && left <= 30_000, "{left}");
    guard.release().unwrap();
    assert_eq!(redisson_lock(&server, "x"), None);
}

#[test]
fn waiter_gets_the_lock_after_redisson_releases() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    assert_eq!(redisson_lock(&server, "x"), None);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
        let listening = ["PUBSUB", "NUMSUB", "redisson_lock__channel:{x}"];
        until("it listens", || ask::<(String, u64)>(&server, &listening).1 == 1);
        assert!(!waiter.is_finished());
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("DEL").arg("x").ignore();
        pipe.cmd("PUBLISH").arg("redisson_lock__channel:{x}").arg("0").ignore();
        pipe.query::<()>(&mut server.connection()).unwrap();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn forced_release_takes_the_lock_from_redisson() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    assert_eq!(redisson_lock(&server, "x"), None);
    assert!(lock.force_release().unwrap());
    assert!(!lock.force_release().unwrap());
    assert!(lock.try_lock().unwrap().is_some());
}

/// Regression, redisson#7367 and #4822: a script that was sent again counted 2.
#[test]
fn a_repeated_request_counts_once() {
    let (server, proxy) = behind_proxy();
    let lock = open_at(proxy.url()).reentrant("again").unwrap();
    let fault = proxy.add(Fault::request("again", Action::LoseReply).at(Operation::Acquire));
    let guard = lock.lock().unwrap();
    assert_eq!(fault.fired(), 1);
    assert_eq!(entry(&server, "again").1, "1");
    assert_eq!(lock.hold_count(), 1);
    guard.release().unwrap();
    assert!(!exists(&server, "again"));
    let doubled = proxy.add(Fault::request("again", Action::Twice).at(Operation::Acquire));
    let guard = lock.lock().unwrap();
    assert_eq!(doubled.fired(), 1);
    assert_eq!(entry(&server, "again").1, "1");
    guard.release().unwrap();
    assert!(!exists(&server, "again"));
}

#[test]
fn mutex_and_reentrant_lock_on_one_key_are_an_error() {
    let server = server();
    let client = open(&server);
    let guard = client.reentrant("x").unwrap().lock().unwrap();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_wrong_type(), "{error}");
    guard.check().unwrap();
    let _guard = client.mutex("y").unwrap().lock().unwrap();
    let error = client.reentrant("y").unwrap().try_lock_for(SOON).unwrap_err();
    assert!(error.is_wrong_type() && error.to_string().contains("\"y\""), "{error}");
}

#[test]
fn renewal_keeps_the_hold_count() {
    let server = server();
    let lock = open(&server).reentrant_with("x", renewed(6_000)).unwrap();
    let outer = lock.lock().unwrap();
    let _inner = lock.lock().unwrap();
    let (mut last, mut renewals) = (outer.remaining(), 0);
    until("it is renewed for longer than its lease", || {
        assert!(exists(&server, "x") && outer.is_valid());
        let before = std::mem::replace(&mut last, outer.remaining());
        renewals += u32::from(last > before);
        renewals == 3
    });
    assert_eq!(entry(&server, "x").1, "2");
}

#[test]
fn reentrant_lock_rejects_release_by_watch() {
    let server = server();
    let client = open(&server);
    let options = LockOptions::new().release(Release::watch());
    let error = client.reentrant_with("x", options).unwrap_err();
    names(&error, ["release", "Release::watch()", "Release::lua()"]);
}

/// Redis shows two holds when the next thread of the process has the lease already, with one.
#[test]
fn the_next_thread_of_the_process_shows_its_own_count() {
    let server = server();
    let lock = open(&server).reentrant_with("x", renewed(60_000)).unwrap();
    let passed_on = (0..200).any(|_| {
        let outer = lock.lock().unwrap();
        let inner = lock.lock().unwrap();
        let (send, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let lock = lock.clone();
            scope.spawn(move || {
                let _guard = lock.lock().unwrap();
                send.send(()).unwrap();
                let _ = ended.recv();
            });
            // On a slow machine that takes too long for the lease to be passed on.
            until("two are shown", || entry(&server, "x").1 == "2");
            let before = entry(&server, "x");
            drop(inner);
            drop(outer);
            receiver.recv_timeout(SOON).unwrap();
            let owner = entry(&server, "x").0;
            let passed_on = owner == before.0 && before.1 == "2";
            if passed_on {
                until("its count is shown", || entry(&server, "x") == (owner.clone(), "1".into()));
            }
            drop(end);
            passed_on
        })
    });
    assert!(passed_on);
}

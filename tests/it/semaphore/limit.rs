//! What is asked for, declared and in force.

use std::thread;

use leasehold::{LockClient, LockOptions, Result, Wait};
use leasehold_support::Server;

use super::{in_line, take};
use crate::common::queue::listens;
use crate::common::{SOON, ask, ms, names, open, renewed, server, until};

#[test]
fn impossible_numbers_are_rejected_before_any_request() {
    // Nobody listens there.
    let client = LockClient::builder("redis://127.0.0.1:1").build().unwrap();
    for permits in [0, 1 << 31, u32::MAX] {
        let error = client.semaphore("gpu", permits).unwrap_err();
        names(&error, ["permits", &permits.to_string(), "1 to 2147483647"]);
    }
    let gpus = client.semaphore("gpu", 4).unwrap();
    for count in [0, 5, u32::MAX] {
        for error in [
            gpus.acquire_many(count).unwrap_err(),
            gpus.try_acquire_many(count).unwrap_err(),
            gpus.try_acquire_many_for(count, ms(10)).unwrap_err(),
        ] {
            names(&error, ["permits", &count.to_string(), "1 to 4"]);
        }
    }
    let many = client.semaphore("gpu", 5_000).unwrap();
    names(&many.acquire_many(1_001).unwrap_err(), ["permits", "1001", "1 to 1000"]);
    names(&gpus.resize(1 << 31).unwrap_err(), ["limit", "2147483648", "at most"]);
    let watched = LockOptions::new().wait(Wait::spin()).release(leasehold::Release::watch());
    assert!(client.semaphore_with("gpu", 4, watched).unwrap_err().is_config());
    let notified = LockOptions::new().wait(Wait::notify());
    assert!(client.semaphore_with("gpu", 4, notified).unwrap_err().is_config());
}

#[test]
fn thousand_permits_are_taken_and_given_back_at_once() {
    let server = server();
    let many = open(&server).semaphore("many", 2_000).unwrap();
    let first = many.acquire_many(1_000).unwrap();
    let second = many.acquire_many(1_000).unwrap();
    assert_eq!(second.slots(), (1_000..2_000).collect::<Vec<_>>());
    assert_eq!(many.available().unwrap(), 0);
    first.release().unwrap();
    assert_eq!(many.try_acquire().unwrap().unwrap().slot(), 0);
    second.release().unwrap();
    assert_eq!(many.available().unwrap(), 2_000);
}

#[test]
fn key_of_another_kind_is_an_error_and_not_touched() {
    let server = server();
    let client = open(&server);
    let (gpus, mutex) = (client.semaphore("x", 4).unwrap(), client.mutex("x").unwrap());
    let reentrant = client.reentrant("x").unwrap();
    let guard = mutex.lock().unwrap();
    assert!(gpus.acquire().unwrap_err().is_wrong_type());
    assert!(gpus.try_acquire().unwrap_err().is_wrong_type());
    assert!(gpus.inspect().unwrap_err().is_wrong_type());
    assert!(gpus.resize(3).unwrap_err().is_wrong_type());
    guard.check().unwrap();
    guard.release().unwrap();
    let permit = gpus.acquire().unwrap();
    assert!(mutex.lock().unwrap_err().is_wrong_type());
    assert!(reentrant.try_lock().unwrap_err().is_wrong_type());
    permit.check().unwrap();
    permit.release().unwrap();
    assert_eq!(ask::<usize>(&server, &["ZCARD", "{x}:line"]), 0);
}

/// Whatever a key holds: its members and scores, and whether it has an end.
fn content(server: &Server, key: &str) -> (Vec<String>, bool) {
    let members = ask(server, &["ZRANGE", key, "0", "-1", "WITHSCORES"]);
    (members, ask::<i64>(server, &["PTTL", key]) == -1)
}

/// All calls of a semaphore are refused with this text, and change nothing.
#[track_caller]
fn refuses_permits(server: &Server, client: &LockClient, name: &str, text: &str) {
    let before = content(server, name);
    let gpus = client.semaphore(name, 4).unwrap();
    let errors = [
        gpus.try_acquire().err(),
        gpus.acquire().err(),
        gpus.try_acquire_for(SOON).err(),
        gpus.resize(3).err(),
        gpus.available().err(),
        gpus.limit().err(),
        gpus.holders().err(),
        gpus.inspect().err(),
    ];
    for (call, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("call {call} of {name}"));
        assert!(error.is_wrong_type() && error.to_string().contains(text), "{call}: {error}");
    }
    assert_eq!(content(server, name), before);
}

/// The same of a read-write lock.
#[track_caller]
fn refuses_access(server: &Server, client: &LockClient, name: &str, text: &str) {
    let before = content(server, name);
    let lock = client.rw_lock(name).unwrap();
    let errors = [
        lock.try_read().err(),
        lock.read().err(),
        lock.write().err(),
        lock.upgradable_read().err(),
        lock.is_locked().err(),
        lock.holders().err(),
        lock.inspect().err(),
    ];
    for (call, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("call {call} of {name}"));
        assert!(error.is_wrong_type() && error.to_string().contains(text), "{call}: {error}");
    }
    assert_eq!(content(server, name), before);
}

#[test]
fn set_of_a_user_is_an_error_and_not_touched() {
    let server = server();
    let client = open(&server);
    let jobs: Vec<String> = (0..202)
        .flat_map(|job| [(1_700_000_000_000_u64 + job).to_string(), format!("job:{job}")])
        .collect();
    let add = |key: &str, more: &[&str]| {
        let words = ["ZADD", key].into_iter().chain(jobs.iter().map(String::as_str));
        ask::<()>(&server, &words.chain(more.iter().copied()).collect::<Vec<_>>());
    };
    add("jobs", &[]);
    add("declared", &["4", "declared"]);
    // All that a lock has, and what it has not.
    add("marks", &["4", "declared", "4", "limit", "0", "used", "7", "alice"]);
    let (unmarked, endless) =
        ("a sorted set without the marks of a lock", "a sorted set without a time to live");
    let mut sets = vec![("jobs", unmarked), ("declared", unmarked), ("marks", unmarked)];
    // Nothing but what a lock has.
    let alike = [
        ("stock", ["4", "4", "0"], endless),
        ("sold", ["4", "4", "1"], unmarked),
        ("bytes", ["4294967296", "4294967296", "0"], endless),
        ("sent", ["4294967296", "4294967296", "4294967296"], unmarked),
    ];
    for (name, [declared, limit, used], what) in alike {
        let words = ["ZADD", name, declared, "declared", limit, "limit", used, "used"];
        ask::<()>(&server, &words);
        sets.push((name, what));
    }
    for (name, what) in sets {
        refuses_permits(&server, &client, name, what);
        refuses_access(&server, &client, name, what);
        let error = client.locks_named(name).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(client.locks("*").unwrap().with_scan().filter_map(Result::ok).count(), 0);
}

#[test]
fn semaphore_and_read_write_lock_are_told_apart() {
    let server = server();
    let client = open(&server);
    let (gpus, lock) = (client.semaphore("gpu", 4).unwrap(), client.rw_lock("board").unwrap());
    let permit = gpus.acquire().unwrap();
    refuses_access(&server, &client, "gpu", "is a semaphore");
    let writer = lock.write().unwrap();
    refuses_permits(&server, &client, "board", "is a read-write lock");
    // Nobody is evicted by a handle of the other kind.
    let holder = lock.holders().unwrap().remove(0);
    let error = client.semaphore("board", 4).unwrap().force_release(&holder).unwrap_err();
    assert!(error.is_wrong_type(), "{error}");
    let kind =
        |name| client.locks_named(name).unwrap().iter().map(|it| it.kind()).collect::<Vec<_>>();
    assert_eq!((kind("gpu"), kind("board")), (vec!["semaphore"], vec!["read-write lock"]));
    let mut found: Vec<_> = client.locks("*").unwrap().with_scan().map(Result::unwrap).collect();
    found.sort_by_key(|it| it.name().to_vec());
    let found: Vec<_> = found.iter().map(|it| (it.name(), it.kind())).collect();
    assert_eq!(found, [(&b"board"[..], "read-write lock"), (b"gpu", "semaphore")]);
    writer.check().unwrap();
    writer.release().unwrap();
    permit.check().unwrap();
    permit.release().unwrap();
}

/// All but one of the new limit's permits are held, so that nothing fits until enough came back.
#[test]
fn smaller_limit_is_in_force_once_enough_came_back() {
    let server = server();
    let [here, there] = [(); 2].map(|()| open(&server).semaphore("gpu", 4).unwrap());
    let mut held = take(&here, 4);
    here.resize(2).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| there.acquire().unwrap());
        in_line(&here, 1);
        for left in [3, 2] {
            held.remove(0).release().unwrap();
            assert_eq!((here.available().unwrap(), here.holders().unwrap().len()), (0, left));
        }
        assert!(held.iter().map(leasehold::Permit::slot).eq([2, 3]), "they live on");
        held.remove(0).release().unwrap();
        assert_eq!(waits.join().unwrap().slot(), 0);
    });
    // The declared limit is what other clients go on saying.
    assert_eq!((there.limit().unwrap(), there.available().unwrap()), (2, 1));
    here.resize(0).unwrap();
    assert!(there.acquire().unwrap_err().is_config());
    here.resize(3).unwrap();
    assert_eq!(there.acquire().unwrap().slot(), 0);
}

/// The only one that waits is a thread of the process that holds: its own place in the line would hide that more
/// is held than the limit.
#[test]
fn permits_over_the_limit_are_not_passed_on() {
    let server = server();
    let client = open(&server);
    listens(&server, &client);
    // No renewal tells of the limit meanwhile.
    let options = renewed(300_000).local_handoffs(1_000_000);
    let gpus = client.semaphore_with("gpu", 2, options).unwrap();
    let mut held = take(&gpus, 2);
    thread::scope(|scope| {
        let waits = scope.spawn(|| gpus.acquire().unwrap());
        in_line(&gpus, 1);
        gpus.resize(1).unwrap();
        // The thread, and the one that stands for more held than the limit. This counts for all permits of the process,
        // so that it shows the first message: to the permit whose lease ends first.
        until("a holder is told", || held[0].waiters() == 2);
        held.remove(0).release().unwrap();
        assert_eq!(gpus.holders().unwrap().len(), 1, "it was passed on");
        in_line(&gpus, 1);
        held.pop().unwrap().release().unwrap();
        assert_eq!(waits.join().unwrap().slot(), 0);
    });
}

#[test]
fn larger_limit_grants_all_who_fit() {
    let server = server();
    let holder = open(&server).semaphore("gpu", 1).unwrap();
    let _held = holder.acquire().unwrap();
    thread::scope(|scope| {
        let waits: Vec<_> = (1..=3)
            .map(|place| {
                let gpus = open(&server).semaphore("gpu", 1).unwrap();
                let waits = scope.spawn(move || gpus.acquire().unwrap());
                in_line(&holder, place);
                waits
            })
            .collect();
        holder.resize(4).unwrap();
        let permits: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
        assert_eq!(permits.iter().map(leasehold::Permit::slot).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn limit_is_forgotten_one_lease_after_the_last_use() {
    let server = server();
    let client = open(&server);
    client.semaphore("gpu", 4).unwrap().acquire().unwrap().release().unwrap();
    let other = client.semaphore("gpu", 5).unwrap();
    assert!(other.try_acquire().unwrap_err().is_config());
    ask::<()>(&server, &["PEXPIRE", "gpu", "1"]);
    until("it is forgotten", || other.try_acquire().is_ok_and(|permit| permit.is_some()));
}

/// An operator who takes a holder out by hand leaves its weight in the sum. The next heartbeat of the waiter counts again.
#[test]
fn waiter_is_granted_what_an_operator_has_taken_from_a_holder() {
    let server = server();
    let [here, there] = [(); 2].map(|()| open(&server).semaphore("gpu", 2).unwrap());
    let held = here.acquire_many(2).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| there.acquire().unwrap());
        in_line(&here, 1);
        let holder: Vec<String> = ask(&server, &["ZRANGE", "gpu", "-1", "-1"]);
        assert_eq!(ask::<u32>(&server, &["ZREM", "gpu", &holder[0]]), 1);
        assert_eq!(here.available().unwrap(), 0);
        assert_eq!(waits.join().unwrap().slot(), 0);
    });
    assert!(held.check().unwrap_err().is_lost());
    assert_eq!(here.available().unwrap(), 2);
}

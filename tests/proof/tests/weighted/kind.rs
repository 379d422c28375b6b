//! What is no lock of the kind that is asked for: an error, and left as it is (rule 43).

use ::redis::Value;

use crate::lab::{Lab, TTL, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, Become, KEYS, LOCK, Mode, Reply, Request, command};
use crate::script::{self, Name};

/// The commands that run each script of a kind.
fn commands(lab: &mut Lab, is_rw: bool) -> Vec<(Name, Vec<Vec<u8>>)> {
    let deadline = lab.now() + 60_000_000;
    let attempt = if is_rw { writer(0) } else { permits(0, 1) };
    lab.limit = if is_rw { ALL } else { 2 };
    let mut all = Vec::new();
    for mode in [Mode::Try, Mode::Join, Mode::Beat] {
        all.push((Name::Acquire, lab.acquire_request(attempt, mode)));
    }
    let (ttl, dies_after, line) = (TTL, 1, TTL);
    for to in [Become::Reader, Become::Writer, Become::StillWriter] {
        all.push((Name::Change, Request::Change { attempt, number: 1, to, ttl, dies_after, line }));
    }
    all.push((Name::Release, Request::Release { attempt, ttl, last_token: 0 }));
    all.push((Name::Renew, Request::Renew { attempt, ttl }));
    all.push((Name::Touch, Request::Touch { attempt }));
    all.push((Name::Force, Request::Force { attempt, deadline, ttl }));
    let mut all: Vec<_> =
        all.into_iter().map(|(name, request)| (name, request.words(&lab.scripts))).collect();
    let text = attempt.text();
    let more: [(Name, &[&str]); 4] = [
        (Name::Resize, &["3", &deadline.to_string(), "1000", "2", "1000"]),
        (Name::Inspect, &["10"]),
        (Name::Look, &[]),
        (Name::Transaction, &[&text, "2", "GET", "y"]),
    ];
    for (name, arguments) in more {
        let script = lab.scripts.text(name, is_rw);
        all.push((name, command(script, arguments.iter().copied())));
    }
    for (name, _) in script::ALL {
        assert!(all.iter().any(|(other, _)| *other == name), "{name:?} is missing");
    }
    all
}

fn kept(lab: &mut Lab) -> Vec<Value> {
    let others = KEYS[1..].iter().map(|key| lab.ask(&["EXISTS", key])).collect::<Vec<_>>();
    let set = lab.ask(&["ZRANGE", LOCK, "0", "-1", "WITHSCORES"]);
    let ends = lab.ask(&["PTTL", LOCK]);
    // Time passes on a real server.
    let ends = Value::Boolean(ends == Value::Int(-1));
    others.into_iter().chain([set, ends]).collect()
}

/// No script of this kind changes anything, and each says what the key is.
#[track_caller]
fn is_refused(lab: &mut Lab, is_rw: bool, what: &str) {
    let before = kept(lab);
    for (name, words) in commands(lab, is_rw) {
        let error = lab.command(&words).expect_err("refused");
        let says = error.contains("WRONGTYPE") && error.contains(what);
        assert!(says, "{name:?} says {error:?}, and not WRONGTYPE with {what:?}");
        assert_eq!(kept(lab), before, "{name:?} has changed what is {what}");
    }
}

const NOW: &str = "1700000000123";

/// Members with their scores: the marks of a lock.
macro_rules! marks {
    ($limit:literal, $used:literal $($more:tt)*) => {
        &[$limit, "declared", $limit, "limit", $used, "used" $($more)*]
    };
}

const UNMARKED: &str = "not a lock: a sorted set without the marks of a lock";
const ENDLESS: &str = "not a lock: a sorted set without a time to live";

/// Neither kind changes them, with a time to live or without, and says that they are this.
#[track_caller]
fn are_data(sets: &[&[&str]], may_end: &[bool], what: &str) {
    on_both(2, |lab| {
        for set in sets {
            for &ends in may_end {
                lab.ask(&[&["ZADD", LOCK], *set].concat());
                if ends {
                    lab.ask(&["PEXPIRE", LOCK, "600000"]);
                }
                for is_rw in [false, true] {
                    is_refused(lab, is_rw, what);
                }
                lab.ask(&["DEL", LOCK]);
            }
        }
    });
}

#[test]
pub(crate) fn set_of_a_user_is_an_error_and_not_touched() {
    are_data(
        &[
            // Times in ms, which lie in the band of leases.
            &[NOW, "job:1", "1700000000124", "job:2"],
            &["1", "declared"],
            &["0", "declared", "0", "limit", "0", "used"],
            // More than any semaphore has.
            &["2147483648", "declared", "2147483648", "limit", "0", "used"],
            &["4294967296", "declared", "4294967296", "limit"],
            &["0.5", "declared", "4", "limit", "1", "used"],
            &["4.5", "declared", "4", "limit", "0", "used"],
            &["4", "declared", "4.5", "limit", "0", "used"],
            &["4", "declared", "4", "limit", "0.5", "used"],
            &["4", "declared", NOW, "limit", "1", "used"],
            &["-4", "declared", "4", "limit", "1", "used"],
            &["4294967296", "declared", "4294967296", "limit", "0.5", "used"],
            &["4294967296", "declared", "4294967296", "limit", "-1", "used"],
            &["4294967296", "declared", "4294967296", "limit", "4294967297", "used"],
        ],
        &[false, true],
        UNMARKED,
    );
}

/// A free lock has nothing but its marks, and what users put among the leases.
#[test]
pub(crate) fn set_with_marks_and_more_is_data() {
    are_data(
        &[
            marks!("4", "0", "7", "alice"),
            marks!("4", "0", "4294967296", "alice"),
            marks!("4", "0", "8589934599", "ttl", "8589934600", "alice"),
            marks!("4", "0", "7", "alice", "8589934599", "ttl"),
            marks!("4", "0", "8589934591", "ttl"),
            marks!("4", "0", "12884901888", "ttl"),
            marks!("4", "0", "8589934599.5", "ttl"),
            marks!("4294967296", "0", "8589934599", "ttl"),
            marks!("4294967296", "0", "7", "alice"),
            marks!("4294967296", "0", "4294967296", "alice"),
            marks!("4294967296", "0", "4294967300", "alice"),
        ],
        &[true],
        UNMARKED,
    );
}

/// A lock whose sum is above zero has holders.
#[test]
pub(crate) fn set_with_a_sum_and_no_holder_is_data() {
    are_data(
        &[
            marks!("4", "1"),
            marks!("4", "1", "7", "alice", NOW, "bob"),
            marks!("4", "1", "4294967296", "alice", NOW, "bob"),
            marks!("4", "1", NOW, "bob"),
            marks!("4294967296", "1"),
            marks!("4294967296", "4294967296"),
            marks!("4294967296", "1", "7", "alice"),
            marks!("4294967296", "1", NOW, "bob"),
            marks!("4294967296", "4294967296", NOW, "bob"),
        ],
        &[false, true],
        UNMARKED,
    );
}

/// The marks of a free lock: each script of ours gives it an end.
#[test]
pub(crate) fn free_lock_without_an_end_is_data() {
    are_data(&[marks!("4", "0"), marks!("4294967296", "0")], &[false], ENDLESS);
}

/// No script of the lock's kind says that it is none, and the other kind's scripts say which it is.
#[track_caller]
fn is_known(lab: &mut Lab, is_rw: bool) {
    let kind = ["the key is a semaphore", "the key is a read-write lock"][usize::from(is_rw)];
    is_refused(lab, !is_rw, kind);
    for name in [Name::Look, Name::Inspect] {
        let arguments: &[&str] = if name == Name::Look { &[] } else { &["10"] };
        let words = command(lab.scripts.text(name, is_rw), arguments.iter().copied());
        lab.command(&words).expect("it is a lock");
    }
    lab.limit = if is_rw { ALL } else { 2 };
    let attempt = if is_rw { writer(7) } else { permits(7, 1) };
    let request = lab.acquire_request(attempt, Mode::Beat);
    let words = request.words(&lab.scripts);
    lab.command(&words).expect("it is a lock");
}

/// With its time to live, and where a user has taken that away while it is held.
#[track_caller]
fn is_known_while_held(lab: &mut Lab, is_rw: bool) {
    is_known(lab, is_rw);
    lab.ask(&["PERSIST", LOCK]);
    is_known(lab, is_rw);
    lab.ask(&["PEXPIRE", LOCK, "600000"]);
}

#[test]
pub(crate) fn semaphore_is_known_in_all_its_states() {
    on_both(2, |lab| {
        lab.resize(1);
        is_known(lab, false); // nobody has used it
        lab.resize(2);
        lab.take(permits(0, 2));
        is_known_while_held(lab, false);
        lab.wait(permits(1, 1));
        is_known_while_held(lab, false);
        lab.resize(0);
        is_known_while_held(lab, false); // more is held than there is
        lab.release(permits(0, 2));
        is_known(lab, false);
        lab.resize(2);
        lab.take(permits(2, 1));
        lab.take(permits(3, 1));
        lab.release(permits(2, 1));
        is_known_while_held(lab, false); // the lowest slot is free
        lab.end(permits(3, 1));
        let words = command(lab.scripts.text(Name::Look, false), [].into_iter());
        lab.command(&words).expect("it is a lock"); // a lease has ended
        is_known(lab, false); // and was taken out
        lab.ask(&["ZADD", LOCK, NOW, "job:1"]);
        is_known(lab, false); // a user's, among the leases
    });
}

/// The band of leases begins there.
#[test]
pub(crate) fn lowest_lease_of_a_user_makes_a_free_lock_no_data() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.release(permits(0, 1));
        lab.ask(&["ZADD", LOCK, "1099511627776", "job:1"]);
        is_known(lab, false);
        lab.ask(&["ZADD", LOCK, "1099511627775", "job:1"]);
        is_refused(lab, false, UNMARKED);
    });
}

#[test]
pub(crate) fn read_write_lock_is_known_in_all_its_states() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        is_known_while_held(lab, true);
        lab.take(upgradable(1));
        is_known_while_held(lab, true);
        lab.change(upgradable(1), 1, Become::Writer);
        is_known_while_held(lab, true); // it waits for the reader
        lab.release(reader(0));
        is_known_while_held(lab, true); // it is the writer
        lab.change(upgradable(1), 2, Become::Reader);
        is_known_while_held(lab, true);
        lab.end(upgradable(1));
        let words = command(lab.scripts.text(Name::Look, true), [].into_iter());
        lab.command(&words).expect("it is a lock"); // a lease has ended
        is_known(lab, true);
        is_known(lab, true); // and was taken out: the marks are left
        lab.take(writer(2));
        is_known_while_held(lab, true);
        lab.ask(&["ZADD", LOCK, NOW, "job:1"]);
        let words = command(lab.scripts.text(Name::Look, true), [].into_iter());
        lab.command(&words).expect("it is a lock"); // a user's, among the leases
    });
}

#[test]
pub(crate) fn each_kind_is_told_from_the_other() {
    on_both(2, |lab| {
        lab.take(permits(1, 1));
        is_refused(lab, true, "the key is a semaphore");
        lab.limit = 2;
        lab.release(permits(1, 1));
        // Its limit is kept.
        is_refused(lab, true, "the key is a semaphore");
        lab.ask(&["DEL", LOCK]);
        for attempt in [reader(1), upgradable(1), writer(1)] {
            lab.limit = ALL;
            lab.take(attempt);
            is_refused(lab, false, "the key is a read-write lock");
            lab.limit = ALL;
            lab.release(attempt);
        }
        lab.limit = 2;
        lab.take(permits(1, 1));
    });
}

#[test]
pub(crate) fn key_of_another_type_is_an_error() {
    on_both(2, |lab| {
        let keys: [&[&str]; 3] =
            [&["SET", LOCK, "y"], &["HSET", LOCK, "y", "1"], &["RPUSH", LOCK, "y"]];
        for words in keys {
            lab.ask(words);
            for is_rw in [false, true] {
                for (name, words) in commands(lab, is_rw) {
                    let error = lab.command(&words).expect_err("refused");
                    assert!(
                        error.contains("WRONGTYPE"),
                        "{name:?} says {error:?}, and not WRONGTYPE"
                    );
                }
            }
            lab.ask(&["DEL", LOCK]);
        }
    });
}

/// What a user puts into a lock's own set has a time in the band of leases, and no lock has written it.
#[test]
pub(crate) fn members_of_a_user_are_not_taken_out() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.ask(&["ZADD", LOCK, NOW, "job:1"]);
        lab.end(permits(0, 1));
        let request = lab.acquire_request(permits(1, 2), Mode::Join);
        let words = request.words(&lab.scripts);
        let reply = Reply::read(&request, lab.command(&words));
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
        let score = lab.ask(&["ZSCORE", LOCK, "job:1"]);
        let score: f64 = ::redis::from_redis_value(score).expect("it is there");
        assert_eq!(score.to_string(), NOW);
    });
}

/// They may stand in its line when the last lock of the name is gone.
#[test]
pub(crate) fn waiters_of_the_other_kind_are_not_listed() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.ask(&["DEL", LOCK]);
        let mut waiters = |is_rw: bool| {
            let script = lab.scripts.text(Name::Inspect, is_rw);
            let words = command(script, ["10"].into_iter());
            match lab.command(&words) {
                Ok(Value::Array(parts)) => (parts[2].clone(), parts[3].clone()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(waiters(true), (Value::Int(0), Value::Array(Vec::new())));
        assert_eq!(waiters(false).0, Value::Int(1));
        let late = Attempt { number: 2, ..permits(1, 1) };
        lab.take(permits(1, 1));
        lab.take(late);
    });
}

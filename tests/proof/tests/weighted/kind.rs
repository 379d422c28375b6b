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
        (Name::Resize, &["3", &deadline.to_string(), "1000", "2", "resize"]),
        (Name::Inspect, &["10", "inspect"]),
        (Name::Look, &["look"]),
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
        assert!(error.contains("WRONGTYPE") && error.contains(what), "{name:?}: {error}");
        assert_eq!(kept(lab), before, "{name:?} has changed it");
    }
}

const NOW: &str = "1700000000123";

#[test]
pub(crate) fn set_of_a_user_is_an_error_and_not_touched() {
    let marks = ["4", "declared", "4", "limit", "1", "used"];
    let sets: [&[&str]; 7] = [
        // Times in ms, which lie in the band of leases.
        &[NOW, "job:1", "1700000000124", "job:2"],
        &["1", "declared"],
        &["4294967296", "declared", "4294967296", "limit"],
        &["0.5", "declared", "4", "limit", "1", "used"],
        &["4", "declared", NOW, "limit", "1", "used"],
        &["-4", "declared", "4", "limit", "1", "used"],
        // All the marks, and more.
        &[marks[0], marks[1], marks[2], marks[3], marks[4], marks[5], "7", "alice", NOW, "bob"],
    ];
    on_both(2, |lab| {
        for set in sets {
            lab.ask(&[&["ZADD", LOCK], set].concat());
            for is_rw in [false, true] {
                is_refused(lab, is_rw, "not a lock: a sorted set");
            }
            lab.ask(&["DEL", LOCK]);
        }
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
                    assert!(error.contains("WRONGTYPE"), "{name:?}: {error}");
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
            let words = command(script, ["10", "inspect"].into_iter());
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

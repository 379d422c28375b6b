//! A server refuses a command in the middle of a script, as it does where a user may not run it: nothing is left of the
//! attempt (rule 56).

use ::redis::Value;

use crate::lab::{Lab, TTL, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, Become, KEYS, LINE, LOCK, Mode, Request, SIGNS};

/// All that these scripts run.
const COMMANDS: [&str; 13] = [
    "TIME", "EXISTS", "PTTL", "PEXPIRE", "SET", "GET", "ZADD", "ZREM", "ZRANGE", "ZSCORE",
    "ZMSCORE", "ZCARD", "ZCOUNT",
];

/// Members and scores of the lock, members and places of the line, members of the signs.
fn kept(lab: &mut Lab) -> [Vec<String>; 3] {
    let mut list = |words: &[&str]| -> Vec<String> {
        ::redis::from_redis_value(lab.ask(words)).expect("members")
    };
    [
        list(&["ZRANGE", LOCK, "0", "-1", "WITHSCORES"]),
        list(&["ZRANGE", LINE, "0", "-1", "WITHSCORES"]),
        list(&["ZRANGE", SIGNS, "0", "-1"]),
    ]
}

struct Case {
    name: &'static str,
    limit: u64,
    begin: fn(&mut Lab),
    ask: fn(&mut Lab) -> Request,
    /// How many of the commands it cannot do without, at least.
    refused: usize,
}

fn join(lab: &mut Lab, attempt: Attempt) -> Request {
    lab.acquire_request(attempt, Mode::Join)
}

fn upgrade(attempt: Attempt) -> Request {
    let (ttl, dies_after, line) = (TTL, 200_000_000, 300_000);
    Request::Change { attempt, number: 1, to: Become::Writer, ttl, dies_after, line }
}

/// Each is refused, and all is as it was.
const CASES: &[Case] = &[
    Case {
        name: "first permit",
        limit: 2,
        begin: |_| {},
        ask: |lab| join(lab, permits(0, 1)),
        refused: 6,
    },
    Case {
        name: "try of a permit",
        limit: 2,
        begin: |_| {},
        ask: |lab| lab.acquire_request(permits(0, 1), Mode::Try),
        refused: 6,
    },
    Case {
        name: "permit after others",
        limit: 2,
        begin: |lab| {
            lab.take(permits(0, 1));
            lab.release(permits(0, 1));
        },
        ask: |lab| join(lab, permits(1, 1)),
        refused: 6,
    },
    Case {
        name: "fence ahead of the clock",
        limit: 2,
        begin: |lab| {
            lab.ask(&["SET", "{x}:fence", "4000000000000000", "PX", "100000"]);
        },
        ask: |lab| join(lab, permits(1, 1)),
        refused: 6,
    },
    Case {
        name: "permit beside another",
        limit: 2,
        begin: |lab| _ = lab.take(permits(0, 1)),
        ask: |lab| join(lab, permits(1, 1)),
        refused: 8,
    },
    Case {
        name: "first in the line",
        limit: 2,
        begin: |lab| _ = lab.take(permits(0, 2)),
        ask: |lab| join(lab, permits(1, 1)),
        refused: 8,
    },
    Case {
        name: "second in the line",
        limit: 2,
        begin: |lab| {
            lab.take(permits(0, 2));
            lab.wait(permits(1, 2));
        },
        ask: |lab| join(lab, permits(2, 1)),
        refused: 7,
    },
    Case {
        name: "first reader",
        limit: ALL,
        begin: |_| {},
        ask: |lab| join(lab, reader(0)),
        refused: 6,
    },
    Case {
        name: "first upgradable reader",
        limit: ALL,
        begin: |_| {},
        ask: |lab| join(lab, upgradable(0)),
        refused: 6,
    },
    Case { name: "writer", limit: ALL, begin: |_| {}, ask: |lab| join(lab, writer(0)), refused: 6 },
    Case {
        name: "second reader",
        limit: ALL,
        begin: |lab| _ = lab.take(reader(0)),
        ask: |lab| join(lab, reader(1)),
        refused: 7,
    },
    Case {
        name: "writer behind a reader",
        limit: ALL,
        begin: |lab| _ = lab.take(reader(0)),
        ask: |lab| join(lab, writer(1)),
        refused: 8,
    },
    Case {
        name: "upgrade at once",
        limit: ALL,
        begin: |lab| _ = lab.take(upgradable(0)),
        ask: |_| upgrade(upgradable(0)),
        refused: 8,
    },
    Case {
        name: "upgrade that waits",
        limit: ALL,
        begin: |lab| {
            lab.take(upgradable(0));
            lab.take(reader(1));
        },
        ask: |_| upgrade(upgradable(0)),
        refused: 8,
    },
];

/// In each case without each command, `judge` gets what was kept before.
fn without_each(lab: &mut Lab, case: &Case, judge: impl Fn(&mut Lab, &str, [Vec<String>; 3])) {
    let mut refused = 0;
    for command in COMMANDS {
        lab.ask(&[&["DEL"], &KEYS[..]].concat());
        lab.messages();
        lab.limit = case.limit;
        (case.begin)(lab);
        let before = kept(lab);
        let request = (case.ask)(lab);
        let words = request.words(&lab.scripts.without(command));
        if lab.command(&words).is_ok() {
            continue;
        }
        refused += 1;
        judge(lab, command, before);
        for key in [LOCK, LINE, SIGNS] {
            assert_ne!(lab.ask(&["PTTL", key]), Value::Int(-1), "{}, {command}: {key}", case.name);
        }
    }
    assert!(refused >= case.refused, "{}: {refused} were refused", case.name);
}

#[test]
pub(crate) fn refused_attempt_leaves_nothing() {
    on_both(2, |lab| {
        for case in CASES {
            without_each(lab, case, |lab, command, before| {
                assert_eq!(kept(lab), before, "{} without {command}", case.name);
            });
        }
    });
}

/// A release and a heartbeat serve others, who are granted as a whole or keep their places.
#[test]
pub(crate) fn refused_script_takes_no_place_from_others() {
    let cases = [
        Case {
            name: "release",
            limit: 2,
            begin: |lab| {
                lab.take(permits(0, 2));
                lab.wait(permits(1, 1));
                lab.wait(permits(2, 1));
            },
            ask: |_| Request::Release { attempt: permits(0, 2), ttl: TTL, last_token: 0 },
            refused: 6,
        },
        Case {
            name: "heartbeat",
            limit: 2,
            begin: |lab| {
                lab.take(permits(0, 2));
                lab.wait(permits(1, 1));
                lab.wait(permits(2, 1));
                lab.end(permits(0, 2));
            },
            ask: |lab| lab.acquire_request(permits(1, 1), Mode::Beat),
            refused: 6,
        },
    ];
    on_both(2, |lab| {
        for case in &cases {
            without_each(lab, case, |lab, command, _| {
                let (content, granted) = (lab.content(), lab.granted());
                for attempt in [permits(1, 1), permits(2, 1)] {
                    let waits = content.line.iter().any(|waiter| waiter.attempt == attempt);
                    let holds = content.holder(attempt).is_some();
                    let knows = granted.contains(&(attempt.client, attempt.number));
                    // The one that asks gets an error, and no message.
                    let asks = case.name == "heartbeat" && attempt == permits(1, 1);
                    let fits = if asks { !holds } else { waits != holds && holds == knows };
                    assert!(fits, "{} without {command}: {attempt:?} of {content:?}", case.name);
                }
            });
        }
    });
}

/// It takes nothing. Where the limit was set before the refusal, the lock ends like any other.
#[test]
pub(crate) fn refused_resize_leaves_no_lock_without_an_end() {
    let case = Case {
        name: "new limit of a new semaphore",
        limit: 2,
        begin: |_| {},
        ask: |lab| {
            let deadline = lab.now() + 60_000_000;
            Request::Resize { limit: 3, declared: 2, deadline, ttl: TTL, keep: TTL }
        },
        refused: 4,
    };
    on_both(2, |lab| without_each(lab, &case, |_, _, _| {}));
}

//! A transaction under any kind of lock applies all its commands, or none and returns an error that says why.

use crate::common::{ask, open, patient, renewed, until};
use leasehold::{Error, LockClient, LockOptions, Part, Release, Result, Wait};
use leasehold_support::Server;
use redis::{Pipeline, Value};

type Words<'a> = &'a [&'a str];

type Transact = dyn Fn(&[Words<'_>]) -> Result<Vec<Value>>;

/// A lock of some kind that is held.
struct Held {
    kind: &'static str,
    /// Whether a script runs its transactions.
    is_by_script: bool,
    transact: Box<Transact>,
}

fn add(commands: &[Words<'_>], pipe: &mut Pipeline) {
    commands.iter().for_each(|words| _ = pipe.cmd(words[0]).arg(&words[1..]));
}

/// One lock of each kind, in each way to hold it.
fn all(client: &LockClient) -> Vec<Held> {
    macro_rules! held {
        ($($is_by_script:literal $kind:literal: $guard:expr),+ $(,)?) => {
            vec![$({
                let guard = $guard;
                Held {
                    kind: $kind,
                    is_by_script: $is_by_script,
                    transact: Box::new(move |commands| guard.transaction(|pipe| add(commands, pipe))),
                }
            }),+]
        };
    }
    // Nothing of them is renewed in the test, whatever the server refuses.
    let long = renewed(600_000);
    let mutex = |name: &str| client.mutex_with(name, long).unwrap();
    let gpus = |name: &str| client.semaphore_with(name, 3, long).unwrap();
    let shared = |name: &str| client.rw_lock_with(name, long).unwrap();
    held! {
        false "mutex": mutex("lock:a").lock().unwrap(),
        false "owned mutex": mutex("lock:b").lock_owned().unwrap(),
        false "reentrant": client.reentrant_with("lock:c", long).unwrap().lock().unwrap(),
        false "election": client.election_with("lock:d", long).unwrap().campaign().unwrap(),
        false "several": client.lock_all(&[mutex("lock:e"), mutex("lock:f")]).unwrap(),
        true "permit": gpus("lock:g").acquire().unwrap(),
        true "permits": gpus("lock:h").acquire_many(2).unwrap(),
        true "several of one part": client.lock_all([gpus("lock:i").permits(1)]).unwrap(),
        true "reader": shared("lock:j").read().unwrap(),
        true "upgradable reader": shared("lock:k").upgradable_read().unwrap(),
        true "writer": shared("lock:l").write().unwrap(),
    }
}

/// What the server refuses, and what it says of it.
struct Refusal {
    /// What makes it refuse, and what ends that.
    begin: fn(&Server),
    end: fn(&Server),
    refused: &'static [Words<'static>],
    is_it: fn(&Error) -> bool,
    says: &'static str,
}

const NOT_PROVOKED: fn(&Server) = |_| ();

fn config(server: &Server, name: &str, value: &str) {
    ask::<()>(server, &["CONFIG", "SET", name, value]);
}

fn allow(server: &Server, rules: &[&str]) {
    ask::<()>(server, &[&["ACL", "SETUSER", "someone"], rules].concat());
}

const ALL: &[&str] = &["on", ">secret", "~*", "&*", "+@all"];

const REFUSALS: &[Refusal] = &[
    Refusal {
        begin: |server| config(server, "maxmemory", "1"),
        end: |server| config(server, "maxmemory", "0"),
        refused: &[&["SET", "new", "1"], &["INCR", "b"]],
        is_it: Error::is_refused,
        says: "OOM",
    },
    Refusal {
        begin: |server| allow(server, &["-set", "-get"]),
        end: |server| allow(server, &["+@all"]),
        refused: &[&["SET", "new", "1"], &["GET", "b"]],
        is_it: Error::is_denied,
        says: "denies this user",
    },
    Refusal {
        begin: |server| allow(server, &["resetkeys", "~a", "~b", "~lock:*", "~{lock:*", "%R~seen"]),
        end: |server| allow(server, &["~*"]),
        refused: &[
            &["SET", "new", "1"],
            &["GET", "new"],
            &["SET", "seen", "1"],
            &["COPY", "b", "new"],
        ],
        is_it: Error::is_denied,
        says: "denies this user",
    },
    Refusal {
        begin: |server| allow(server, &["resetchannels", "&leasehold:*"]),
        end: |server| allow(server, &["&*"]),
        refused: &[&["PUBLISH", "closed", "1"]],
        is_it: Error::is_denied,
        says: "denies this user",
    },
    Refusal {
        begin: |server| config(server, "min-replicas-to-write", "1"),
        end: |server| config(server, "min-replicas-to-write", "0"),
        refused: &[&["SET", "new", "1"], &["DEL", "b"]],
        is_it: Error::is_unreachable,
        says: "NOREPLICAS",
    },
    Refusal {
        begin: |server| {
            config(server, "save", "3600 1");
            let disk = server.directory().join("disk");
            std::fs::create_dir(&disk).unwrap();
            config(server, "dir", disk.to_str().unwrap());
            std::fs::remove_dir(&disk).unwrap();
            ask::<String>(server, &["BGSAVE"]);
            let info = || ask::<String>(server, &["INFO", "persistence"]);
            until("the disk is full", || info().contains("rdb_last_bgsave_status:err"));
        },
        end: |server| config(server, "stop-writes-on-bgsave-error", "no"),
        refused: &[&["SET", "new", "1"], &["DEL", "b"]],
        is_it: Error::is_unreachable,
        says: "MISCONF",
    },
    Refusal {
        begin: NOT_PROVOKED,
        end: NOT_PROVOKED,
        refused: &[
            &["NOSUCH", "new"],
            &["NOSUCH"],
            &["SET", "new"],
            &["GET"],
            &["GET", "a", "b"],
            &["CONFIG"],
            &["PUBLISH", "channel"],
            &["TIME", "x"],
            &["OBJECT", "NOSUCH", "b"],
            &["OBJECT", "ENCODING"],
        ],
        is_it: Error::is_refused,
        says: "",
    },
    // The last one: clients leave a server that they found to be a replica.
    Refusal {
        begin: |server| ask::<()>(server, &["REPLICAOF", "127.0.0.1", "1"]),
        end: |server| ask::<()>(server, &["REPLICAOF", "NO", "ONE"]),
        refused: &[&["SET", "new", "1"], &["DEL", "b"]],
        is_it: Error::is_unreachable,
        says: "READONLY",
    },
];

/// What only a script refuses.
const UNFIT: &[Words<'static>] = &[
    &["EVAL", "return 1", "0"],
    &["eval_ro", "return 1", "1", "a"],
    &["CONFIG", "GET", "maxmemory"],
    &["acl", "whoami"],
    &["SCRIPT", "FLUSH"],
    &["XREAD", "COUNT", "1", "BLOCK", "1", "STREAMS", "stream", "$"],
    &["XREADGROUP", "GROUP", "block", "me", "block", "1", "STREAMS", "stream", ">"],
];

/// What a transaction that is refused must leave as it is.
fn data(server: &Server) -> Vec<Value> {
    ["GET a", "PTTL a", "GET b", "PTTL b", "EXISTS new", "GET seen"]
        .map(|command| ask(server, &command.split(' ').collect::<Vec<_>>()))
        .into()
}

fn someone(server: &Server) -> String {
    format!("{}?user=someone&pass=secret", server.unix_url())
}

fn prepared() -> (Server, Vec<Held>) {
    let server = Server::builder().arg("--enable-protected-configs").arg("yes").start().unwrap();
    allow(&server, ALL);
    ask::<()>(&server, &["MSET", "a", "1", "b", "2", "seen", "3"]);
    ask::<()>(&server, &["XADD", "stream", "1-1", "field", "value"]);
    let client = patient(LockClient::builder(someone(&server))).announce(false).build().unwrap();
    let held = all(&client);
    (server, held)
}

/// Two commands that write, and a third one at each place among them.
fn around<'a>(third: Words<'a>) -> impl Iterator<Item = Vec<Words<'a>>> {
    (0..3).map(move |place| {
        let mut commands: Vec<Words<'a>> = vec![&["DEL", "a"], &["PEXPIRE", "b", "600000"]];
        commands.insert(place, third);
        commands
    })
}

#[track_caller]
fn is_refused_whole(server: &Server, held: &Held, commands: &[Words<'_>]) -> Error {
    let before = data(server);
    let outcome = (held.transact)(commands);
    assert_eq!(data(server), before, "{} {commands:?}: {outcome:?}", held.kind);
    match outcome {
        Err(error) => error,
        Ok(replies) => panic!("{} {commands:?}: {replies:?}", held.kind),
    }
}

#[test]
fn refused_command_of_any_kind_and_place_keeps_the_others_from_applying() {
    let (server, held) = prepared();
    for refusal in REFUSALS {
        (refusal.begin)(&server);
        for held in &held {
            for refused in refusal.refused {
                for commands in around(refused) {
                    let error = is_refused_whole(&server, held, &commands);
                    let text = format!("{} {commands:?}: {error}", held.kind);
                    assert!((refusal.is_it)(&error) && !error.is_unknown_outcome(), "{text}");
                    assert!(error.to_string().contains(refusal.says), "{text}");
                }
            }
        }
        (refusal.end)(&server);
    }
    // Nothing of this was for another reason, and the holds are whole.
    for held in &held {
        for third in [&["SET", "new", "1"][..], &["INCR", "b"], &["PUBLISH", "closed", "1"]] {
            for commands in around(third) {
                ask::<()>(&server, &["MSET", "a", "1", "b", "2"]);
                let replies = (held.transact)(&commands).unwrap();
                assert!(!replies.iter().any(|it| matches!(it, Value::ServerError(_))));
                let left: (bool, i64) =
                    (ask(&server, &["EXISTS", "a"]), ask(&server, &["PTTL", "b"]));
                assert!(!left.0 && left.1 > 0, "{} {commands:?}: {left:?}", held.kind);
            }
        }
    }
}

/// Without it nothing would guard the commands behind it, nor a release by `WATCH`.
#[test]
fn nothing_is_applied_where_multi_is_refused() {
    let (server, held) = prepared();
    let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    let watching = patient(LockClient::builder(someone(&server))).build().unwrap();
    let guard = watching.mutex_with("lock:watched", options).unwrap().lock().unwrap();
    allow(&server, &["-multi"]);
    for held in held.iter().filter(|held| !held.is_by_script) {
        let error = is_refused_whole(&server, held, &[&["SET", "a", "9"], &["DEL", "b"]]);
        assert!(error.is_denied(), "{}: {error}", held.kind);
    }
    assert!(guard.release().unwrap_err().is_denied());
    assert!(ask::<bool>(&server, &["EXISTS", "lock:watched"]));
    allow(&server, &["+multi"]);
}

#[test]
fn key_of_another_type_is_a_loss() {
    let server = crate::common::server();
    let client = open(&server);
    let writer = client.rw_lock("w").unwrap().write().unwrap();
    let permit = client.semaphore("p", 2).unwrap().acquire().unwrap();
    let mutex = client.mutex("m").unwrap().lock().unwrap();
    for name in ["w", "p"] {
        ask::<()>(&server, &["DEL", name]);
        ask::<()>(&server, &["SET", name, "another's"]);
    }
    ask::<()>(&server, &["DEL", "m"]);
    ask::<()>(&server, &["HSET", "m", "another's", "1"]);
    let lost = |outcome: Result<Vec<Value>>| outcome.unwrap_err().is_lost();
    assert!(lost(writer.transaction(|pipe| _ = pipe.set("a", 1))) && !writer.is_valid());
    assert!(lost(permit.transaction(|pipe| _ = pipe.set("a", 1))) && !permit.is_valid());
    assert!(lost(mutex.transaction(|pipe| _ = pipe.set("a", 1))) && !mutex.is_valid());
    assert!(!ask::<bool>(&server, &["EXISTS", "a"]));
}

#[test]
fn command_that_no_script_may_call_is_refused_by_name() {
    let (server, held) = prepared();
    for held in held.iter().filter(|held| held.is_by_script) {
        for unfit in UNFIT {
            for commands in around(unfit) {
                let error = is_refused_whole(&server, held, &commands);
                let text = error.to_string();
                assert!(
                    error.is_refused() && text.contains(&format!("\"{}\"", unfit[0])),
                    "{text}"
                );
            }
        }
        // Without its option it waits for nothing, and the names of a group and a consumer are no options.
        for fit in [
            &["XREAD", "COUNT", "1", "STREAMS", "stream", "block"][..],
            &["XREADGROUP", "GROUP", "block", "BLOCK", "STREAMS", "stream", ">"],
        ] {
            let replies = (held.transact)(&[fit]).unwrap();
            let text = format!("{replies:?}");
            assert!(!text.contains("BLOCK") && replies.len() == 1, "{text}");
        }
    }
}

/// Memory is full, and what frees some is not refused.
#[test]
fn what_needs_no_memory_is_applied_by_a_script_when_memory_is_full() {
    let (server, held) = prepared();
    config(&server, "maxmemory", "1");
    for held in held.iter().filter(|held| held.is_by_script) {
        config(&server, "maxmemory", "0");
        ask::<()>(&server, &["MSET", "a", "1", "b", "2"]);
        config(&server, "maxmemory", "1");
        let replies = (held.transact)(&[&["DEL", "a"], &["PEXPIRE", "b", "9"], &["GET", "a"]]);
        assert_eq!(replies.unwrap(), [Value::Int(1), Value::Int(1), Value::Nil], "{}", held.kind);
    }
}

/// An error of a command that ran is a value in its place, as within `MULTI` and `EXEC`.
#[test]
fn command_that_fails_by_itself_keeps_no_other_from_applying() {
    let (server, held) = prepared();
    for held in &held {
        for failing in
            [&["LPUSH", "seen", "x"][..], &["INCR", "word"], &["SET", "new", "1", "NOSUCH"]]
        {
            for (place, commands) in around(failing).enumerate() {
                ask::<()>(&server, &["MSET", "a", "1", "b", "2", "word", "x"]);
                let replies = (held.transact)(&commands).unwrap();
                for (at, reply) in replies.iter().enumerate() {
                    let is_error = matches!(reply, Value::ServerError(_));
                    assert_eq!(is_error, at == place, "{} {commands:?}: {replies:?}", held.kind);
                }
                assert!(!ask::<bool>(&server, &["EXISTS", "a"]), "{}", held.kind);
            }
        }
    }
}

/// One of several parts that a script would have to look at.
#[test]
fn mixed_parts_are_refused_before_anything_is_sent() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let (gpus, model) = (client.semaphore("gpu", 3).unwrap(), client.mutex("model").unwrap());
    let guard = client.lock_all([Part::from(&model), gpus.permits(2)]).unwrap();
    let error = guard.transaction(|pipe| add(&[&["SET", "new", "1"]], pipe)).unwrap_err();
    assert!(error.is_config() && !ask::<bool>(&server, &["EXISTS", "new"]), "{error}");
}

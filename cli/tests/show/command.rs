//! `ls`, `show`, `wait`, `ask` and `release`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::{Begun, LockClient, Period, Wait};
use leasehold_support::fault::Action;
use leasehold_support::{Cluster, Fault, Monitor, Proxy, Server};
use serde_json::{Value, json};

use crate::common::{SOON, ask, finish, long, open, program, run, server, until};

/// An owner of Redisson.
const SERVICE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";

fn names(ran: &Value) -> Vec<String> {
    let lock = |lock: &Value| {
        format!("{} {}", lock["kind"].as_str().unwrap(), lock["name"].as_str().unwrap())
    };
    ran["locks"].as_array().unwrap().iter().map(lock).collect()
}

/// Waits until the index lists so many locks.
fn announced(server: &Server, count: usize) {
    until("all are announced", || ask::<usize>(server, &["ZCARD", "leasehold:index"]) == count);
}

#[test]
fn ls_lists_locks_of_all_kinds_and_programs() {
    let server = server();
    let client = open(&server);
    let _mutex = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let _reentrant = client.reentrant_with("b", long()).unwrap().lock().unwrap();
    let _permit = client.semaphore_with("c", 3, long()).unwrap().acquire().unwrap();
    let _reader = client.rw_lock_with("d", long()).unwrap().read().unwrap();
    ask::<()>(&server, &["SET", "e", "someone", "NX", "PX", "60000"]);
    ask::<()>(&server, &["HSET", "f", SERVICE, "1"]);
    announced(&server, 4);

    let ours = ["mutex a", "reentrant b", "semaphore c", "read-write d"];
    assert_eq!(names(&run(&server, ["ls", "--json"]).ends(0).json()), ours);
    let all = run(&server, ["--json", "ls", "--scan"]).ends(0).json();
    assert_eq!(names(&all), [&ours[..], &["mutex e", "reentrant f"]].concat());
    assert_eq!(names(&run(&server, ["ls", "--json", "--kind", "rw"]).json()), ["read-write d"]);
    assert_eq!(names(&run(&server, ["ls", "b*", "--json"]).json()), ["reentrant b"]);

    let text = run(&server, ["ls", "--scan"]).ends(0).stdout;
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["NAME", "KIND", "HOLDER"]);
    assert_eq!(lines[1][..2], ["a", "mutex"]);
    assert!(lines[1][2].starts_with(&format!("{}@", std::process::id())), "{text}");
    assert_eq!(lines[5][..4], ["e", "plain", "someone", "?"]);
    assert_eq!(lines[6][..3], ["f", "reentrant", SERVICE]);
    assert_eq!(lines[6][4], "never");
}

#[test]
fn json_of_a_lock_has_all_fields() {
    let server = server();
    let client = LockClient::builder(server.url()).label("billing").build().unwrap();
    let guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let mut shown = run(&server, ["show", "a", "--json"]).ends(0).json();
    let holder = &mut shown["locks"][0]["holders"][0];
    let mut take = |field: &str| holder.as_object_mut().unwrap().insert(field.into(), 0.into());
    assert!(take("held_ms").unwrap().as_u64().unwrap() < 60_000);
    assert!(take("ttl_ms").unwrap().as_u64().unwrap() <= 60_000);
    assert!(take("owner").unwrap().as_str().unwrap().starts_with('1'));
    assert!(take("host").unwrap().is_string());
    let expected = json!({
        "version": 1,
        "locks": [{
            "name": "a",
            "name_hex": "61",
            "kind": "mutex",
            "holders": [{
                "owner": 0,
                "host": 0,
                "pid": std::process::id(),
                "label": "billing",
                "token": guard.fencing_token().get(),
                "held_ms": 0,
                "ttl_ms": 0,
                "overdue_ms": null,
                "access": null,
                "slots": [],
            }],
            "waiters": [],
            "waiting": 0,
            "blocker": null,
            "permits": null,
            "word": null,
        }],
        "job": null,
    });
    assert_eq!(shown, expected);
    // The order of the fields, too.
    assert_eq!(shown.to_string(), expected.to_string());
}

#[test]
fn election_is_listed_and_shown_with_its_word_and_taken() {
    let server = server();
    let client = open(&server);
    let leadership = client.election_with("a", long()).unwrap().campaign().unwrap();
    leadership.proclaim("10.0.0.7:80\u{1b}").unwrap();
    let _mutex = client.mutex_with("b", long()).unwrap().lock().unwrap();
    announced(&server, 2);
    for arguments in [&["ls", "--json"][..], &["ls", "--json", "--scan"]] {
        assert_eq!(names(&run(&server, arguments).ends(0).json()), ["election a", "mutex b"]);
    }
    let listed = run(&server, ["ls", "--json", "--kind", "election"]).ends(0).json();
    assert_eq!(names(&listed), ["election a"]);
    let shown = run(&server, ["show", "a", "--json"]).ends(0).json();
    let lock = &shown["locks"][0];
    assert_eq!(lock["word"], json!("10.0.0.7:80\\x1b"));
    assert_eq!(lock["holders"][0]["token"], json!(leadership.term().get()));
    let text = run(&server, ["show", "a"]).ends(0).stdout;
    assert!(text.starts_with("election \"a\"\nheld by "), "{text}");
    assert!(text.contains("\nsays \"10.0.0.7:80\\x1b\"\n"), "{text}");
    let table = run(&server, ["ls"]).ends(0).stdout;
    assert!(table.contains(" \"10.0.0.7:80\\x1b\" "), "{table}");
    let top = run(&server, ["top", "--once"]).ends(0).stdout;
    assert!(top.contains("election") && top.contains("10.0.0.7:80"), "{top}");
    let refused = run(&server, ["ask", "a"]).ends(64);
    assert!(refused.stderr.contains("this is an election"), "{}", refused.stderr);
    run(&server, ["release", "--force", "a"]).ends(0);
    assert!(client.election("a").unwrap().leader().unwrap().is_none());
}

#[test]
fn show_finds_the_kind_by_the_key() {
    let server = server();
    let client = open(&server);
    let _reentrant = client.reentrant_with("b", long()).unwrap().lock().unwrap();
    let _permit = client.semaphore_with("c", 3, long()).unwrap().acquire_many(2).unwrap();
    let _writer = client.rw_lock_with("d", long()).unwrap().write().unwrap();
    ask::<()>(&server, &["SET", "e", "someone", "PX", "60000"]);
    ask::<()>(&server, &["HSET", "f", SERVICE, "1"]);
    for (name, begin) in [
        ("b", "reentrant \"b\"\nheld by "),
        ("c", "semaphore \"c\"\n2 of 3 permits are held\nheld by "),
        ("d", "read-write \"d\"\nheld by "),
        ("e", "mutex \"e\"\nheld by someone; "),
        ("f", &format!("reentrant \"f\"\nheld by {SERVICE}; its lease has no end")),
        ("g", "\"g\": free\n"),
    ] {
        let text = run(&server, ["show", name]).ends(0).stdout;
        assert!(text.starts_with(begin), "{text}");
    }
    let permits = run(&server, ["show", "c", "--json"]).json();
    assert_eq!(permits["locks"][0]["permits"], json!({ "limit": 3, "used": 2 }));
    assert_eq!(permits["locks"][0]["holders"][0]["slots"], json!([0, 1]));
    let holder = |name: &str| {
        let shown = run(&server, ["show", name, "--json"]).json();
        shown["locks"][0]["holders"][0].clone()
    };
    // As the guide says.
    for (name, is_known) in [("b", true), ("c", false), ("d", true), ("e", false), ("f", false)] {
        let holder = holder(name);
        let known = ["token", "held_ms"].map(|field| holder[field].is_u64());
        assert_eq!(known, [is_known; 2], "{name}");
    }
    let other = open(&server);
    let _reader = other.rw_lock_with("h", long()).unwrap().read().unwrap();
    assert_eq!(holder("h")["token"], Value::Null);
    let nothing = json!({ "version": 1, "locks": [], "job": null });
    assert_eq!(run(&server, ["show", "g", "--json"]).json(), nothing);
    // Other data is no lock.
    ask::<()>(&server, &["RPUSH", "list", "x"]);
    run(&server, ["show", "list"]).ends(70);
}

#[test]
fn show_tells_how_a_job_ran_and_forget_makes_it_due() {
    let server = server();
    let client = LockClient::builder(server.url()).label("billing").build().unwrap();
    // No period ends within the test.
    let period = Period::every(Duration::from_secs(86_400 * 3_660));
    let job = client.once("nightly", period).unwrap().retry_after(Duration::from_secs(600));
    let shown = || {
        let text = run(&server, ["show", "nightly"]).ends(0).stdout;
        let lines: Vec<String> =
            text.lines().skip_while(|it| !it.starts_with("job ")).map(str::to_owned).collect();
        assert_eq!((lines.len(), lines[0].as_str()), (2, "job \"nightly\""), "{text}");
        lines[1].clone()
    };
    let seen = || run(&server, ["show", "nightly", "--json"]).ends(0).json()["job"].clone();
    run(&server, ["forget", "nightly"]).ends(1);
    let Begun::Run(begun) = job.begin().unwrap() else { panic!("it is due") };
    let token = begun.guard().fencing_token().get();
    assert!(shown().starts_with("runs on "), "{}", shown());
    begun.fail("the disk is full; \x1b[2J").unwrap();
    let text = shown();
    assert!(text.starts_with("failed ") && text.contains(" UTC) on "), "{text}");
    assert!(
        text.contains(r": the disk is full; \u{1b}[2J; no success on record; 1 try, due in 9m"),
        "{text}"
    );
    let mut json = seen();
    let time = |json: &mut Value, field: &str| {
        let time = json.as_object_mut().unwrap().insert(field.into(), 0.into()).unwrap();
        let text = time.as_str().unwrap().to_owned();
        assert!(text.len() == 24 && text.ends_with('Z') && &text[10..11] == "T", "{text}");
        text
    };
    let [_began, ended, due] = ["began", "ended", "due"].map(|field| time(&mut json, field));
    assert!(due > ended);
    let expected = json!({
        "state": "failed",
        "reason": r"the disk is full; \u{1b}[2J",
        "began": 0,
        "ended": 0,
        "period": json["period"],
        "host": json["host"],
        "pid": std::process::id(),
        "label": "billing",
        "token": token,
        "tries": 1,
        "succeeded": null,
        "due": 0,
    });
    assert_eq!((&json, json.to_string()), (&expected, expected.to_string()));

    let forgotten = run(&server, ["--json", "forget", "nightly"]).ends(0).json();
    assert_eq!(forgotten, json!({ "version": 1, "forgotten": true }));
    assert_eq!(seen(), Value::Null);
    let Begun::Run(begun) = job.begin().unwrap() else { panic!("it is due") };
    begun.succeed().unwrap();
    let text = shown();
    assert!(
        text.starts_with("ran ") && text.contains(", took ") && text.contains("; due in "),
        "{text}"
    );
    assert_eq!(seen()["state"], "succeeded");
    assert!(run(&server, ["forget", "nightly"]).ends(0).stdout.starts_with("forgotten"));
    // What is no record is no job, and the lock is shown all the same.
    ask::<()>(&server, &["SET", "{nightly}:record", "mine"]);
    let ran = run(&server, ["show", "nightly"]).ends(0);
    assert!(ran.stdout.contains("free") && ran.stderr.contains("{nightly}:record"), "{ran:?}");
}

#[test]
fn names_of_any_bytes_are_shown_and_told_apart() {
    let server = server();
    let client = open(&server);
    let raw: [&[u8]; 3] = [b"a\xff", b"a\\xff", b"a\x1b[2J"];
    let _held = raw.map(|name| client.mutex_with(name, long()).unwrap().lock().unwrap());
    announced(&server, 3);
    let json = run(&server, ["ls", "--json"]).ends(0).json();
    assert_eq!(names(&json), [r"mutex a\x1b[2J", r"mutex a\\xff", r"mutex a\xff"]);
    let hex: Vec<_> = (0..3).map(|at| json["locks"][at]["name_hex"].as_str().unwrap()).collect();
    assert_eq!(hex, ["611b5b324a", "615c786666", "61ff"]);
    let text = run(&server, [OsStr::new("show"), OsStr::from_bytes(b"a\xff")]).ends(0).stdout;
    assert!(text.starts_with("mutex \"a\\xff\"\nheld by "), "{text}");
    assert!(!run(&server, ["ls"]).stdout.contains('\x1b'));
}

#[test]
fn wait_ends_when_the_lock_is_free_or_the_time_is_over() {
    let server = server();
    let client = open(&server);
    run(&server, ["wait", "a"]).ends(0);
    let guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    run(&server, ["wait", "-n", "a"]).ends(1);
    run(&server, ["wait", "-w", "0.05", "-E", "9", "a"]).ends(9);
    let json = run(&server, ["wait", "-n", "a", "--json"]).ends(1).json();
    assert_eq!((&json["free"], names(&json)), (&json!(false), vec!["mutex a".to_owned()]));
    let before = server.commands().calls("evalsha");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&server, ["wait", "a", "--json"]).ends(0).json());
        until("it has looked", || server.commands().calls("evalsha") > before);
        guard.release().unwrap();
        assert_eq!(waiting.join().unwrap(), json!({ "version": 1, "free": true, "locks": [] }));
    });
}

/// Such a holder may come back, and keeps nobody out.
#[test]
fn wait_ends_when_a_lease_is_over_although_its_key_is_there() {
    let server = server();
    let owner = "2q:0f:1:30000:27000:7:host:label";
    ask::<()>(&server, &["SET", "a", owner, "PX", "57000"]);
    run(&server, ["wait", "-n", "a"]).ends(1);
    ask::<()>(&server, &["PEXPIRE", "a", "26000"]);
    run(&server, ["wait", "-n", "a"]).ends(0);
}

/// As in `leasehold ls | head -1`, with pipefail.
#[test]
fn reader_that_has_seen_enough_is_no_failure() {
    let server = server();
    for arguments in [&["ls"][..], &["ls", "--json"], &["show", "a"], &["top", "--once"]] {
        let mut command = program();
        command.env("REDIS_URL", server.url()).args(arguments).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
}

#[test]
fn wait_rides_out_a_restart() {
    let server = server();
    let client = LockClient::builder(server.url()).announce(false).build().unwrap();
    let guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let looks = Monitor::start(&server);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&server, ["wait", "a"]));
        until("it has looked", || !looks.lines("\"a\" \"{a}:fence\"").is_empty());
        server.restart();
        // Its memory is empty.
        waiting.join().unwrap().ends(0);
    });
    drop(guard);
}

#[test]
fn ask_reaches_a_process_that_listens() {
    let server = server();
    let (sender, asked) = mpsc::channel();
    let client = LockClient::builder(server.url())
        .on_release_request(move |name| _ = sender.send(name.to_vec()))
        .build()
        .unwrap();
    let _guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    until("it listens", || run(&server, ["ask", "a"]).status == 0);
    assert_eq!(asked.recv_timeout(SOON).unwrap(), b"a");
    assert_eq!(run(&server, ["ask", "a", "--json"]).ends(0).json()["received"], true);
    let nobody = run(&server, ["ask", "b"]).ends(1);
    assert_eq!(nobody.stdout, "nobody received the request\n");
    let _permit = client.semaphore_with("c", 1, long()).unwrap().acquire().unwrap();
    let refused = run(&server, ["ask", "c"]).ends(64);
    assert!(refused.stderr.contains("this is a semaphore"), "{refused:?}");
}

#[test]
fn release_takes_a_lock_only_by_force() {
    let server = server();
    let client = open(&server);
    let guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    run(&server, ["release", "a"]).ends(64);
    assert!(guard.is_valid());
    let taken = run(&server, ["release", "--force", "a"]).ends(0).stdout;
    let lines: Vec<&str> = taken.lines().collect();
    let begin = format!("taken from process {} on ", std::process::id());
    assert!(lines.len() == 2 && lines[0].starts_with(&begin), "{taken}");
    let rest = "its work may go on until it notices, for 59.";
    assert!(lines[1].starts_with(rest), "{taken}");
    let until = lines[1].split_once("s at most (until about ").expect("a time").1;
    let (time, end) = until.split_once(" UTC); ").expect("a time");
    assert_eq!((time.len(), end), (8, "leasehold run ends its job as soon as it hears of this"));
    assert!(guard.release().unwrap_err().is_lost());
    let nobody = run(&server, ["release", "--force", "a", "--json"]).ends(1).json();
    assert_eq!(nobody, json!({ "version": 1, "evicted": [], "holders": [] }));
    // Of another program.
    ask::<()>(&server, &["HSET", "c", SERVICE, "1"]);
    let json = run(&server, ["release", "--force", "c", "--json"]).ends(0).json();
    assert_eq!(json["evicted"], json!([SERVICE]));
    assert_eq!(ask::<usize>(&server, &["EXISTS", "c"]), 0);
}

/// It has a time to live, as other programs write a lock, and a cache writes an entry.
#[test]
fn release_of_another_programs_string_wants_a_yes() {
    let server = server();
    let set = || ask::<()>(&server, &["SET", "b", "someone\u{1b}[2J", "PX", "600000"]);
    set();
    let refused = run(&server, ["release", "--force", "b"]).ends(64);
    assert!(refused.stderr.contains(r#"holds "someone\x1b[2J""#), "{refused:?}");
    assert!(refused.stderr.contains("--yes") && refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(ask::<usize>(&server, &["EXISTS", "b"]), 1);
    let json = run(&server, ["release", "--force", "b", "--yes", "--json"]).ends(0).json();
    assert_eq!(json["evicted"], json!([r"someone\x1b[2J"]));
    assert_eq!(ask::<usize>(&server, &["EXISTS", "b"]), 0);
    // The user says what it is.
    set();
    run(&server, ["release", "--force", "b", "--kind", "mutex"]).ends(0);
    assert_eq!(ask::<usize>(&server, &["EXISTS", "b"]), 0);
}

/// Another has the mutex before the command takes it.
#[test]
fn release_takes_a_mutex_from_no_other_than_the_named_owner() {
    let server = server();
    let set = |owner: &str| ask::<()>(&server, &["SET", "b", owner, "PX", "600000"]);
    set("first");
    let proxy = Proxy::start(&server).unwrap();
    let seen = proxy.add(Fault::reply("first", Action::Hold));
    let mut command = program();
    command.env("REDIS_URL", proxy.url());
    command.args(["release", "--force", "b", "--kind", "mutex", "--owner", "first", "--json"]);
    let ran = thread::scope(|scope| {
        let running = scope.spawn(|| finish(&mut command, ""));
        assert!(seen.wait_fired(SOON));
        set("second");
        seen.release();
        running.join().unwrap()
    });
    let nobody = json!({ "version": 1, "evicted": [], "holders": [] });
    assert_eq!(ran.ends(1).json(), nobody);
    assert_eq!(ask::<String>(&server, &["GET", "b"]), "second");
}

#[test]
fn string_without_an_end_is_a_lock_only_by_its_kind() {
    let server = server();
    ask::<()>(&server, &["SET", "profile:42", "Ada\n"]);
    for arguments in [
        &["show", "profile:42"][..],
        &["wait", "-n", "profile:42"],
        &["ask", "profile:42"],
        &["release", "--force", "profile:42"],
        &["release", "--force", "--yes", "profile:42"],
        &["release", "--force", "--all", "profile:42"],
    ] {
        let refused = run(&server, arguments).ends(70);
        assert!(refused.stderr.contains(r#"may be data, "Ada\x0a""#), "{refused:?}");
        assert!(
            refused.stderr.contains("--kind mutex") && refused.stdout.is_empty(),
            "{refused:?}"
        );
    }
    let refused = run(&server, ["show", "--json", "profile:42"]).ends(70);
    let error = &refused.json()["error"];
    assert_eq!((&error["status"], refused.stdout.lines().count()), (&json!(70), 1));
    assert_eq!(refused.stderr, format!("leasehold: {}\n", error["text"].as_str().unwrap()));
    assert_eq!(names(&run(&server, ["ls", "--scan", "--json"]).json()), [""; 0]);
    assert_eq!(ask::<String>(&server, &["GET", "profile:42"]), "Ada\n");
    let by_kind = ["profile:42", "--kind", "mutex"];
    let text = run(&server, [&["show"], &by_kind[..]].concat()).ends(0).stdout;
    assert!(text.contains("its lease has no end"), "{text}");
    run(&server, [&["wait", "-n"], &by_kind[..]].concat()).ends(1);
    run(&server, [&["release", "--force"], &by_kind[..]].concat()).ends(0);
    assert_eq!(ask::<usize>(&server, &["EXISTS", "profile:42"]), 0);
    run(&server, [&["release", "--force"], &by_kind[..]].concat()).ends(1);
}

#[test]
fn hash_of_data_is_refused_whatever_is_said() {
    let server = server();
    ask::<()>(&server, &["HSET", "profile:42", "email", "a@b.example", "age", "42"]);
    for ttl in [false, true] {
        if ttl {
            ask::<()>(&server, &["PEXPIRE", "profile:42", "600000"]);
        }
        for more in
            [&[][..], &["--yes"], &["--all"], &["--kind", "reentrant"], &["--kind", "mutex"]]
        {
            let refused =
                run(&server, [&["release", "--force", "profile:42"], more].concat()).ends(70);
            assert!(refused.stderr.contains("is not a lock: a hash"), "{refused:?}");
        }
        run(&server, ["show", "profile:42"]).ends(70);
        assert_eq!(names(&run(&server, ["ls", "--scan", "--json"]).json()), [""; 0]);
        assert_eq!(ask::<usize>(&server, &["HLEN", "profile:42"]), 2);
    }
}

/// Redisson's read-write lock.
#[test]
fn release_takes_one_of_several_readers() {
    let server = server();
    let other = "285475da-9152-4c83-822a-67ee2f116a79:53";
    ask::<()>(&server, &["HSET", "x", "mode", "read", SERVICE, "1", other, "1"]);
    run(&server, ["release", "--force", "x"]).ends(64);
    let json = run(&server, ["release", "--force", "x", "--owner", other, "--json"]).ends(0).json();
    assert_eq!(json["evicted"], json!([other]));
    let left: Vec<String> = ask(&server, &["HKEYS", "x"]);
    assert_eq!(left, ["mode", SERVICE]);
    ask::<()>(&server, &["HSET", "x", other, "1"]);
    run(&server, ["release", "--force", "x", "--all"]).ends(0);
    assert_eq!(ask::<usize>(&server, &["EXISTS", "x"]), 0);
}

#[test]
fn release_of_a_shared_lock_wants_a_holder_or_all() {
    let server = server();
    let client = open(&server);
    let limiter = client.semaphore_with("a", 3, long().wait(Wait::queue())).unwrap();
    let permits = [(); 3].map(|()| limiter.acquire().unwrap());
    run(&server, ["release", "--force", "a"]).ends(64);
    let shown = run(&server, ["show", "a", "--json"]).json();
    let owner = shown["locks"][0]["holders"][1]["owner"].as_str().unwrap().to_owned();
    let json =
        run(&server, ["release", "--force", "a", "--owner", &owner, "--json"]).ends(0).json();
    assert_eq!(json["evicted"], json!([owner]));
    assert_eq!(limiter.available().unwrap(), 1);
    run(&server, ["release", "--force", "a", "--all"]).ends(0);
    assert_eq!(limiter.available().unwrap(), 3);
    drop(permits);
}

#[test]
fn locks_of_a_cluster_are_listed_and_shown() {
    let cluster = Cluster::start(3, 0).expect("a cluster");
    let client =
        LockClient::builder(&cluster.urls()[0]).cluster(&cluster.urls()[1..]).build().unwrap();
    let held: Vec<_> = (0..6)
        .map(|number| client.mutex_with(format!("n{number}"), long()).unwrap().lock().unwrap())
        .collect();
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments).args(["--cluster", "--url", &cluster.urls()[0]]);
        finish(&mut command, "").ends(0)
    };
    until("all are announced", || names(&run(&["ls", "--json"]).json()).len() == held.len());
    assert_eq!(names(&run(&["ls", "--scan", "--json"]).json()).len(), held.len());
    assert_eq!(names(&run(&["show", "n3", "--json"]).json()), ["mutex n3"]);
}

//! What `ls` leaves out: locks that this user may not look at, and locks that were not held for long.

use leasehold_support::Server;
use serde_json::{Value, json};

use crate::common::{Ran, ask, finish, long, open, program, run, server, until};

fn names(ran: &Ran) -> Vec<String> {
    let locks = ran.json()["locks"].as_array().expect("locks").clone();
    locks.iter().map(|lock| lock["name"].as_str().expect("a name").to_owned()).collect()
}

/// Waits until the index lists so many locks.
fn announced(server: &Server, count: usize) {
    until("all are announced", || ask::<usize>(server, &["ZCARD", "leasehold:index"]) == count);
}

/// The index has the locks of everybody.
#[test]
fn user_of_some_names_gets_the_locks_of_those() {
    let server = server();
    let client = open(&server);
    let _mine = client.mutex_with("mine:a", long()).unwrap().lock().unwrap();
    let _theirs = client.mutex_with("theirs:a", long()).unwrap().lock().unwrap();
    announced(&server, 2);
    let rule = "ACL SETUSER some reset resetchannels on >secret ~mine:* ~{mine:* ~leasehold:index +@all -scan";
    ask::<()>(&server, &rule.split(' ').collect::<Vec<_>>());
    let url = format!("{}?user=some&pass=secret", server.unix_url());
    let run = |arguments: &[&str]| {
        let mut command = program();
        finish(command.args(arguments).args(["--url", &url]), "")
    };

    for subcommand in [&["ls"][..], &["top", "--once"]] {
        let all = run(subcommand).ends(0);
        assert!(all.stdout.contains("mine:a") && !all.stdout.contains("theirs:a"), "{all:?}");
        let note = "leasehold: 1 lock is not shown: lock \"theirs:a\": ";
        assert!(all.stderr.starts_with(note), "{all:?}");
    }
    let all = run(&["ls", "--json"]).ends(0);
    assert_eq!((names(&all), &all.json()["denied"]), (vec!["mine:a".to_owned()], &json!(1)));
    let mine = run(&["ls", "mine:*", "--json"]).ends(0);
    assert_eq!((mine.json()["denied"].clone(), &*mine.stderr), (json!(0), ""));

    // Where it may look at none, it does not say that there are none. Nor does it, where it cannot tell.
    run(&["ls", "theirs:*"]).ends(77);
    run(&["ls", "--held", "1h"]).ends(77);
    // Another right than that to a lock.
    run(&["ls", "mine:*", "--scan"]).ends(77);
}

#[test]
fn locks_held_for_long_are_an_alarm() {
    let server = server();
    let client = open(&server);
    let mutex = client.mutex_with("a", long()).unwrap().lock().unwrap();
    // Since when is not known of a reader.
    let _reader = client.rw_lock_with("b", long()).unwrap().read().unwrap();
    announced(&server, 2);

    let none = run(&server, ["ls", "--held", "1h"]).ends(0);
    assert_eq!((&*none.stdout, &*none.stderr), ("", ""));
    assert_eq!(run(&server, ["ls", "--held", "1h", "--json"]).ends(0).json()["locks"], json!([]));

    let some = run(&server, ["ls", "--held", "1ms"]).ends(1).stdout;
    assert_eq!(some.lines().count(), 2, "{some}");
    assert_eq!(names(&run(&server, ["ls", "--held", "1ms", "--json"]).ends(1)), ["a"]);
    drop(mutex);
    until("it is released", || client.mutex("a").unwrap().inspect().unwrap().holders().is_empty());
    run(&server, ["ls", "--held", "1ms"]).ends(0);
    // What is not reached is not "none".
    server.kill();
    let down = run(&server, ["ls", "--held", "1ms", "--json", "--timeout", "1s"]).ends(69);
    assert_eq!(down.json()["locks"], Value::Null);
}

#[test]
fn holders_to_choose_from_are_named() {
    let server = server();
    let client = open(&server);
    let lock = client.rw_lock_with("a", long()).unwrap();
    let other = open(&server);
    let other = other.rw_lock_with("a", long()).unwrap();
    let _readers = (lock.read().unwrap(), other.read().unwrap());
    let refused = run(&server, ["release", "--force", "a"]).ends(64);
    let shown = run(&server, ["show", "a", "--json"]).json();
    let holders = shown["locks"][0]["holders"].as_array().unwrap().clone();
    assert_eq!(holders.len(), 2, "{shown}");
    for holder in &holders {
        let owner = holder["owner"].as_str().unwrap();
        assert!(refused.stderr.contains(&format!("\n  {owner} (")), "{owner}: {refused:?}");
    }
    let owner = holders[0]["owner"].as_str().unwrap();
    run(&server, ["release", "--force", "a", "--owner", owner]).ends(0);
}

//! The users of the guide: each may do what it is for, and no more than it has to.

use leasehold_support::Server;

use crate::common::{Ran, ask, finish, long, open, program, server, until};

const GUIDE: &str = include_str!("../../../docs/command.md");

/// The rule of the guide for this user.
fn rule(name: &str) -> Vec<String> {
    let begin = format!("\nACL SETUSER {name} ");
    let (_, rest) = GUIDE.split_once(&begin).expect(name);
    let rule = rest.split("\n\n").next().and_then(|rule| rule.split("\n```").next());
    rule.expect("an end").split_whitespace().map(str::to_owned).collect()
}

/// Makes the user.
fn make(server: &Server, name: &str, rule: &[String]) {
    let words = ["ACL", "SETUSER", name].into_iter().chain(rule.iter().map(String::as_str));
    ask::<()>(server, &words.collect::<Vec<_>>());
}

/// Runs the program as this user.
fn run(server: &Server, name: &str, arguments: &[&str]) -> Ran {
    let url = format!("{}?user={name}&pass=secret", server.unix_url());
    let mut command = program();
    command.env("LEASEHOLD_URL", url);
    finish(command.args(arguments), "")
}

#[test]
fn user_of_jobs_runs_them_and_looks_after_them() {
    let server = server();
    make(&server, "jobs", &rule("jobs"));
    let run = |arguments: &[&str]| run(&server, "jobs", arguments);
    let job = ["--once-per", "24h", "jobs:nightly", "--", "true"];
    for arguments in [&["run", "jobs:a", "--", "true"][..], &[&["run"][..], &job].concat()] {
        let ran = run(arguments).ends(0);
        assert_eq!(ran.stderr, "", "{arguments:?}");
    }
    assert!(run(&["show", "jobs:nightly"]).ends(0).stdout.contains("job \"jobs:nightly\"\nran "));
    run(&["forget", "jobs:nightly"]).ends(0);
    run(&["wait", "-n", "jobs:nightly"]).ends(0);
    run(&["ask", "jobs:nightly"]).ends(1);
    let doctor = ["doctor", "--json", "--name", "jobs:nightly", "--kind", "once"];
    let ran = run(&doctor).ends(0);
    assert_eq!(ran.json()["status"], "unknown", "{ran:?}");

    let client = open(&server);
    let _guard = client.mutex_with("jobs:a", long()).unwrap().lock().unwrap();
    until("it is listed", || run(&["ls", "jobs:*"]).ends(0).stdout.contains("jobs:a"));
    run(&["release", "--force", "jobs:a"]).ends(0);

    // No word of the rule is there in vain: without it one of these would not be as it is.
    let is_needed = |word: &str| {
        let rest: Vec<String> = rule("jobs").into_iter().filter(|other| other != word).collect();
        make(&server, "jobs", &rest);
        let ran = run(&doctor);
        ran.status != 0
    };
    let words = rule("jobs");
    let rights = words.iter().filter(|word| word.starts_with(['+', '~', '&']));
    for word in rights {
        assert!(is_needed(word), "{word}");
    }
}

#[test]
fn user_that_looks_sees_all_and_changes_nothing() {
    let server = server();
    make(&server, "look", &rule("look"));
    let client = open(&server);
    let _mutex = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let _reentrant = client.reentrant_with("b", long()).unwrap().lock().unwrap();
    let _permit = client.semaphore_with("c", 3, long()).unwrap().acquire().unwrap();
    let _reader = client.rw_lock_with("d", long()).unwrap().read().unwrap();
    let run = |arguments: &[&str]| run(&server, "look", arguments);
    until("all are listed", || {
        let ran = run(&["ls"]).ends(0);
        ran.stderr.is_empty() && ran.stdout.lines().count() == 5
    });
    for arguments in [
        &["ls", "--scan"][..],
        &["top", "--once"],
        &["show", "a"],
        &["show", "b"],
        &["show", "c"],
        &["show", "d"],
        &["show", "none"],
    ] {
        assert_eq!(run(arguments).ends(0).stderr, "", "{arguments:?}");
    }
    run(&["wait", "-n", "a"]).ends(1);
    for arguments in [
        &["run", "e", "--", "true"][..],
        &["release", "--force", "a"],
        &["release", "--force", "c"],
        &["forget", "e"],
    ] {
        let ran = run(arguments).ends(77);
        // Which right is missing, most servers do not say.
        assert!(ran.stderr.contains("; leasehold doctor shows what is missing"), "{ran:?}");
    }
}

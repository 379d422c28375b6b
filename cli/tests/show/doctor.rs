//! `doctor` before servers that lack one thing each.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use leasehold::redis;
use leasehold_support::{Cluster, Group, Server, WallClock};
use leasehold_tls_test::{Authority, Terminator};
use serde_json::Value;

use crate::common::{Ran, ask, finish, open, program, run, server, until};

const GUIDE: &str = include_str!("../../../docs/operations.md");

/// The findings of a run: check, level, and the whole of each.
fn findings(ran: &Ran) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let all = ran.json()["findings"].as_array().expect("findings").clone();
    all.into_iter().map(|one| (text(&one["check"]), text(&one["level"]), one)).collect()
}

/// The finding of this check; the first one in a cluster.
#[track_caller]
fn finding(ran: &Ran, check: &str, level: &str) -> Value {
    let all = findings(ran);
    let found = all.iter().find(|(name, ..)| name == check).unwrap_or_else(|| panic!("{ran:?}"));
    assert_eq!(found.1, level, "{ran:?}");
    found.2.clone()
}

#[track_caller]
fn says(finding: &Value, field: &str, words: &str) {
    let text = finding[field].as_str().unwrap_or_default();
    assert!(text.contains(words), "{finding:#}");
}

/// The checks that are neither fine nor unknown.
fn bad(ran: &Ran) -> Vec<String> {
    let is_bad = |(_, level, _): &(String, String, Value)| level == "warning" || level == "fault";
    findings(ran).into_iter().filter(is_bad).map(|(check, ..)| check).collect()
}

/// Runs it as text, for people, and as JSON. `LEASEHOLD_DOCTOR_TEXT` names a file that gets the text.
fn doctor(title: &str, url: &str, arguments: &[&str]) -> Ran {
    let run = |json: &[&str]| {
        let mut command = program();
        finish(command.arg("doctor").args(["--url", url]).args(arguments).args(json), "")
    };
    let text = run(&[]);
    if let Some(path) = std::env::var_os("LEASEHOLD_DOCTOR_TEXT") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        write!(file, "== {title}: exit status {}\n{}{}\n", text.status, text.stdout, text.stderr)
            .unwrap();
    }
    let json = run(&["--json"]);
    assert_eq!(json.status, text.status);
    for (check, level, _) in findings(&json) {
        let is_shown = |line: &str| line.starts_with(&format!("{level:8} {check} "));
        assert!(text.stdout.lines().any(is_shown), "{check}: {text:?}");
    }
    json
}

/// A server on which nothing is wrong.
fn sound() -> Server {
    let arguments =
        ["--appendonly", "yes", "--maxmemory", "1gb", "--maxmemory-policy", "noeviction"];
    arguments
        .iter()
        .fold(Server::builder().tcp(), |builder, word| builder.arg(word))
        .start()
        .unwrap()
}

/// Gives a user these rules and no others. Returns the URL for it.
fn user(server: &Server, name: &str, rule: &[String]) -> String {
    let begin = ["ACL", "SETUSER", name, "reset", "resetchannels", "on", ">secret"];
    let words: Vec<&str> = begin.into_iter().chain(rule.iter().map(String::as_str)).collect();
    ask::<()>(server, &words);
    format!("{}?user={name}&pass=secret", server.unix_url())
}

/// What the guide says that a kind needs, and what announcements need.
fn guide(title: &str) -> Vec<String> {
    let begin = "ACL SETUSER locks reset resetchannels on >secret ";
    let (_, rest) = GUIDE.split_once(&format!("\n# {title}\n{begin}")).expect(title);
    let rule =
        rest.split("\n\n").next().and_then(|rule| rule.split("\n```").next()).expect("an end");
    let announce = ["~leasehold:index", "+zadd", "+zremrangebyscore"].map(str::to_owned);
    rule.split_whitespace().map(str::to_owned).chain(announce).collect()
}

/// What the guide says that a job needs besides its lock.
fn guide_of_jobs() -> Vec<String> {
    let row = GUIDE.lines().find_map(|line| line.strip_prefix("| `client.once` | `"));
    let rule = row.and_then(|row| row.split('`').next()).expect("a rule");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// A user may have all that locks need, and not what `run --once-per` needs.
#[test]
fn permissions_of_jobs_are_asked_for() {
    let server = sound();
    let url = user(&server, "locks", &guide("Mutex"));
    let doctor = |title, kinds: &[&str]| {
        let words = [&["--name", "shop:doctor"], kinds].concat();
        doctor(title, &url, &words)
    };
    assert_eq!(missing(&doctor("a user of locks", &[])), [""; 0]);
    let ran = doctor("a user of locks runs jobs", &["--kind", "once"]).ends(2);
    let mut rule = guide_of_jobs();
    rule.sort();
    assert_eq!(missing(&ran), rule);
}

#[test]
fn healthy_server_is_fine() {
    let ran = doctor("a healthy server", &sound().tcp_url(), &[]).ends(0);
    assert_eq!(bad(&ran), [""; 0]);
    assert_eq!(ran.json()["status"], "ok");
    for check in [
        "topology",
        "version",
        "round trip",
        "clock",
        "Lua",
        "permissions",
        "messages",
        "memory",
        "persistence",
        "replicas",
        "lock",
    ] {
        finding(&ran, check, "ok");
    }
}

#[test]
fn eviction_is_a_warning() {
    let server = sound();
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let ran = doctor("eviction is on", &server.tcp_url(), &[]).ends(1);
    assert_eq!(bad(&ran), ["memory"]);
    let memory = finding(&ran, "memory", "warning");
    says(&memory, "seen", "allkeys-lru");
    says(&memory, "mend", "CONFIG SET maxmemory-policy noeviction");
    // Without a limit nothing is evicted.
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(bad(&run(&server, ["doctor", "--json"])), [""; 0]);
}

#[test]
fn full_server_is_a_fault() {
    let server = sound();
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "100kb"]);
    let ran = doctor("memory is full", &server.tcp_url(), &[]).ends(2);
    assert_eq!(bad(&ran), ["memory", "lock"]);
}

#[test]
fn missing_persistence_is_a_warning() {
    let server = server();
    let ran = doctor("no persistence", &server.unix_url(), &[]).ends(1);
    assert_eq!(bad(&ran), ["persistence"]);
    let persistence = finding(&ran, "persistence", "warning");
    says(&persistence, "seen", "none");
    says(&persistence, "consequence", "a restart loses all locks");
    // Who runs it knows, and wants to hear of other warnings.
    let ran = run(&server, ["doctor", "--json", "--accept", "persistence"]).ends(0);
    finding(&ran, "persistence", "accepted");
    run(&server, ["doctor", "--json", "--accept", "memory"]).ends(1);
    // A slip is not taken for a check without warnings.
    let slip = run(&server, ["doctor", "--json", "--accept", "persistance"]).ends(64);
    assert!(slip.stderr.contains("persistence"), "{slip:?}");
    ask::<()>(&server, &["CONFIG", "SET", "save", "60 1"]);
    let ran = run(&server, ["doctor", "--json"]).ends(1);
    says(&finding(&ran, "persistence", "warning"), "seen", "snapshots alone");
}

#[test]
fn denied_messages_name_the_rules() {
    let server = sound();
    let rule = ["~*", "+@all", "-publish", "-subscribe", "-pubsub", "&*"].map(str::to_owned);
    let url = user(&server, "locks", &rule);
    let ran = doctor("publish/subscribe is denied", &url, &[]).ends(2);
    assert_eq!(bad(&ran), ["messages", "grants"]);
    says(&finding(&ran, "messages", "fault"), "mend", "ACL SETUSER locks +subscribe");
    says(&finding(&ran, "grants", "warning"), "mend", "ACL SETUSER locks +publish +pubsub|numsub");
    let rule = ["~*", "+@all", "resetchannels"].map(str::to_owned);
    let ran = doctor("the channels are denied", &user(&server, "locks", &rule), &[]).ends(2);
    says(&finding(&ran, "messages", "fault"), "mend", "ACL SETUSER locks &leasehold:*");
}

#[test]
fn denied_scripts_are_a_fault() {
    let server = sound();
    let rule = ["~*", "&*", "+@all", "-eval", "-evalsha"].map(str::to_owned);
    let ran = doctor("EVAL is denied", &user(&server, "locks", &rule), &[]).ends(2);
    assert_eq!(bad(&ran), ["Lua", "lock"]);
    says(&finding(&ran, "Lua", "fault"), "mend", "ACL SETUSER locks +eval +evalsha");
}

/// Even where the server does not say who the user is.
#[test]
fn rule_to_add_names_the_user_of_the_url() {
    let server = sound();
    let rule = ["~*", "&*", "+@all", "-time"].map(str::to_owned);
    let ran = doctor("TIME is denied", &user(&server, "locks", &rule), &[]).ends(2);
    says(&finding(&ran, "permissions", "fault"), "mend", "ACL SETUSER locks +time");
}

/// The rule of the guide is enough, and for each word that is left out the doctor names just that word.
#[test]
fn exact_rule_is_named_for_each_word_of_the_guide() {
    let server = sound();
    for (title, kind) in [
        ("Mutex", "mutex"),
        ("Semaphore", "semaphore"),
        ("RwLock", "read-write"),
        ("Election", "election"),
        ("ReentrantLock", "reentrant"),
        ("Mutex", "once"),
    ] {
        let mut rule = guide(title);
        if kind == "once" {
            rule.extend(guide_of_jobs());
        }
        let run = |rule: &[String]| {
            let mut command = program();
            let url = user(&server, "locks", rule);
            let words =
                ["doctor", "--url", &url, "--name", "shop:doctor", "--kind", kind, "--json"];
            finish(command.args(words), "")
        };
        let whole = run(&rule);
        assert_eq!(missing(&whole), [""; 0], "{title}");
        for word in &rule {
            let rest: Vec<String> = rule.iter().filter(|other| *other != word).cloned().collect();
            let ran = run(&rest);
            // All of a reentrant lock's own channel is named by the pattern for its names.
            assert_eq!(missing(&ran), [word.as_str()], "{title} without {word}: {ran:?}");
        }
    }
}

/// The rules that it says are missing.
fn missing(ran: &Ran) -> Vec<String> {
    let mend = |(_, level, whole): (String, String, Value)| {
        let mend = whole["mend"].as_str()?;
        let rules = mend.strip_prefix("ACL SETUSER ")?.split_once(' ')?.1;
        let rules = rules.split_once(" (").map_or(rules, |(rules, _)| rules).to_owned();
        (level != "ok").then_some(rules)
    };
    let mut all: Vec<String> = findings(ran)
        .into_iter()
        .filter_map(mend)
        .flat_map(|rules| rules.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn what_may_not_be_asked_is_not_known() {
    let server = sound();
    let url = user(&server, "locks", &guide("Mutex"));
    let ran =
        doctor("a user with no more than locks need", &url, &["--name", "shop:doctor"]).ends(0);
    assert_eq!(ran.json()["status"], "unknown");
    for check in ["topology", "memory", "persistence", "replicas"] {
        let unknown = finding(&ran, check, "unknown");
        says(&unknown, "seen", "not known, because this user lacks +info");
    }
    // A script knows the version.
    says(&finding(&ran, "version", "ok"), "seen", "Redis ");
    finding(&ran, "lock", "ok");
}

#[test]
fn older_version_is_a_fault() {
    let server = sound();
    let version: String = ask(&server, &["INFO", "server"]);
    let line = |field: &str| {
        let line = version.lines().find(|line| line.starts_with(field));
        line.map(|line| line.trim_end().to_owned())
    };
    let current = line("redis_version:").unwrap();
    let mut older = "redis_version:6.2.14".to_owned();
    older.truncate(current.len());
    let mut swaps = vec![(current, older)];
    if let Some(valkey) = line("valkey_version:") {
        swaps.push((valkey.clone(), valkey.replace("valkey_", "walkey_")));
    }
    let relay = relay(&server, swaps);
    let ran = doctor("an older version", &relay, &[]).ends(2);
    assert_eq!(bad(&ran), ["version"]);
    let version = finding(&ran, "version", "fault");
    says(&version, "seen", "Redis 6.2");
    says(&version, "consequence", "PEXPIRE … GT");
}

/// The URL of a relay before the server that changes these texts, each for one of the same length, in replies.
fn relay(server: &Server, swaps: Vec<(String, String)>) -> String {
    assert!(swaps.iter().all(|(from, to)| from.len() == to.len()), "{swaps:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = server.socket().to_owned();
    // It ends with the process of the tests.
    thread::spawn(move || {
        for client in listener.incoming().filter_map(Result::ok) {
            let Ok(upstream) = UnixStream::connect(&socket) else { return };
            let swaps = swaps.clone();
            let (mut to, mut from) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || _ = std::io::copy(&mut from, &mut to));
            thread::spawn(move || change(upstream, client, &swaps));
        }
    });
    format!("redis://{address}")
}

fn change(mut from: UnixStream, mut to: TcpStream, swaps: &[(String, String)]) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // A reply is one write of the server's, and one read here.
        let mut text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        for (old, new) in swaps {
            text = text.replace(old, new);
        }
        if to.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// The default of a server that makes snapshots: one that fails stops all writes.
#[test]
fn failed_snapshot_is_a_fault() {
    let server = Server::builder().arg("--enable-protected-configs").arg("yes").start().unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "save", "3600 1"]);
    let ran = run(&server, ["doctor", "--json"]);
    says(&finding(&ran, "writes", "ok"), "seen", "stop when a snapshot fails");
    let disk = server.directory().join("disk");
    std::fs::create_dir(&disk).unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "dir", disk.to_str().unwrap()]);
    std::fs::remove_dir(&disk).unwrap();
    ask::<String>(&server, &["BGSAVE"]);
    until("the snapshot fails", || {
        ask::<String>(&server, &["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    });
    let ran = run(&server, ["doctor", "--json"]);
    says(&finding(&ran, "writes", "fault"), "seen", "the last snapshot failed");
    finding(&ran, "lock", "fault");
}

#[test]
fn replica_is_a_fault_and_its_master_is_named() {
    let (master, replica) = Server::start_with_replica().unwrap();
    let ran = doctor("a replica", &replica.tcp_url(), &[]).ends(2);
    let replicas = finding(&ran, "replicas", "fault");
    says(&replicas, "mend", &format!("redis://127.0.0.1:{}", master.addr().port()));
    finding(&ran, "lock", "fault");
    let ran = doctor("a master with a replica", &master.tcp_url(), &[]).ends(1);
    says(&finding(&ran, "replicas", "warning"), "seen", "1, and min-replicas-to-write is 0");
    ask::<()>(&master, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let ran = run(&master, ["doctor", "--json"]);
    finding(&ran, "replicas", "ok");
}

/// The address of the master that has this name; the others redirect a client.
fn master_of(cluster: &Cluster, name: &str) -> String {
    let has = |master: &&Server| {
        let reply: redis::RedisResult<bool> =
            redis::cmd("EXISTS").arg(name).query(&mut master.connection());
        reply.is_ok()
    };
    cluster.masters().iter().find(has).expect("a master").addr().to_string()
}

/// The one that has the usual name, or another: the rest is examined.
#[test]
fn master_of_a_cluster_that_is_down_is_a_fault() {
    let cluster = Cluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let cluster = cluster.expect("a cluster");
    let home = cluster.home("leasehold-doctor");
    let urls = cluster.urls();
    cluster.masters()[home].kill();
    let up = (home + 1) % 3;
    let ran = doctor("a cluster, one of whose masters is down", &urls[up], &["--cluster"]).ends(2);
    let down = finding(&ran, "connection", "fault");
    assert_eq!(down["server"], cluster.masters()[home].addr().to_string(), "{ran:?}");
    says(&down, "consequence", "no lock whose name is on this master");
    let versions = findings(&ran).into_iter().filter(|(check, ..)| check == "version");
    assert_eq!(versions.count(), 2, "{ran:?}");
}

#[test]
fn each_master_of_a_cluster_is_examined() {
    let cluster = Cluster::start(3, 0).expect("a cluster");
    let url = &cluster.urls()[0];
    ask::<()>(
        &cluster.masters()[1],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "1gb"],
    );
    let ran = doctor("a cluster, one of whose masters evicts", url, &["--cluster"]).ends(1);
    says(&finding(&ran, "topology", "ok"), "seen", "a cluster");
    let mut versions: Vec<Value> = findings(&ran)
        .into_iter()
        .filter(|(check, ..)| check == "version")
        .map(|(.., one)| one["server"].clone())
        .collect();
    versions.sort_by_key(Value::to_string);
    let mut masters: Vec<String> =
        cluster.masters().iter().map(|it| it.addr().to_string()).collect();
    masters.sort();
    assert_eq!(versions, masters);
    let evicting: Vec<_> = findings(&ran)
        .into_iter()
        .filter(|(check, level, _)| check == "memory" && level == "warning")
        .collect();
    assert_eq!(evicting.len(), 1, "{ran:?}");
    assert_eq!(evicting[0].2["server"], cluster.masters()[1].addr().to_string());
    let words = ["--cluster", "--name", "{shop}:doctor"];
    let ran = doctor("a cluster, of which a hash tag names one master", url, &words);
    let topology = finding(&ran, "topology", "ok");
    says(&topology, "seen", "one master");
    says(&topology, "consequence", "hash tag");
    let examined: Vec<_> = findings(&ran).into_iter().filter(|(it, ..)| it == "lock").collect();
    assert_eq!(examined.len(), 1, "{ran:?}");
    assert_eq!(examined[0].2["server"], master_of(&cluster, "{shop}:doctor"), "{ran:?}");
    // Somebody may not know that it is one.
    let ran = doctor("a node of a cluster, without --cluster", url, &[]).ends(2);
    says(&finding(&ran, "topology", "fault"), "mend", "--cluster");
}

#[test]
fn master_that_sentinels_name_is_examined() {
    let group = Group::start(1, std::time::Duration::from_secs(30)).expect("a group");
    let urls = group.sentinel_urls();
    let arguments: Vec<&str> = urls.iter().flat_map(|url| ["--sentinel", url]).collect();
    let master = format!("redis://{}", Group::MASTER);
    let ran = doctor("behind sentinels", &master, &arguments).ends(1);
    says(&finding(&ran, "topology", "ok"), "seen", "the master that the sentinels name");
    says(&finding(&ran, "replicas", "warning"), "seen", "1, ");
}

#[test]
fn clock_ahead_is_a_warning_with_its_error() {
    let clock = match WallClock::new() {
        Ok(clock) => clock,
        Err(error) => return leasehold_support::skip(error),
    };
    clock.set(5_000_000).unwrap();
    let server =
        Server::builder().arg("--appendonly").arg("yes").envs(clock.variables()).start().unwrap();
    let ran = doctor("a clock 5 s ahead", &server.unix_url(), &[]).ends(1);
    assert_eq!(bad(&ran), ["clock"]);
    let clock = finding(&ran, "clock", "warning");
    let seen = clock["seen"].as_str().unwrap();
    let number = |before: &str| -> f64 {
        seen.split_once(before).unwrap().1.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(seen.contains("ahead of this machine's"), "{seen}");
    let (offset, error) = (number("clock is "), number("give or take "));
    // Rounded to a microsecond each.
    assert!((offset - 5.0).abs() <= error + 0.000_002, "{seen}");
}

/// Replicas are asked too, as they may have the lock next.
#[test]
fn clock_of_a_replica_is_compared_with_what_is_allowed() {
    let clock = match WallClock::new() {
        Ok(clock) => clock,
        Err(error) => return leasehold_support::skip(error),
    };
    let group = Group::start_each(1, std::time::Duration::from_secs(30), |number, server| {
        if number == 0 { server } else { server.envs(clock.variables()) }
    });
    let group = group.expect("a group");
    let (urls, master) = (group.sentinel_urls(), format!("redis://{}", Group::MASTER));
    let sentinels: Vec<&str> = urls.iter().flat_map(|url| ["--sentinel", url]).collect();
    let ran = doctor("clocks that agree", &master, &sentinels);
    says(&finding(&ran, "clocks", "ok"), "seen", "those of 2 servers differ by 0.");
    clock.set(800_000).unwrap();
    let ran = doctor("a replica whose clock is 0.8 s ahead", &master, &sentinels).ends(1);
    let clocks = finding(&ran, "clocks", "warning");
    says(&clocks, "seen", "max_clock_skew is 500ms");
    says(&clocks, "consequence", &format!("to {},", group.servers[1].addr()));
    let allowed = [&sentinels[..], &["--max-clock-skew", "1s"]].concat();
    let ran = doctor("the same, which is allowed", &master, &allowed);
    says(&finding(&ran, "clocks", "ok"), "seen", "max_clock_skew is 1.0s");
    // One that cannot be asked is told of.
    group.servers[1].pause();
    let short = [&sentinels[..], &["--timeout", "300ms"]].concat();
    let ran = doctor("a replica that hangs", &master, &short);
    let clocks = finding(&ran, "clocks", "unknown");
    assert_eq!(clocks["server"], group.servers[1].addr().to_string());
}

#[test]
fn server_over_tls_is_examined_as_any_other() {
    let server = sound();
    let authority = Authority::new("ours");
    let terminator =
        Terminator::start(server.socket(), &authority.sign("127.0.0.1"), None).unwrap();
    let ca = server.directory().join("ca");
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("rediss://{}", terminator.address());
    let ran = doctor("over TLS", &url, &["--ca", ca.to_str().unwrap()]).ends(0);
    assert_eq!(bad(&ran), [""; 0]);
}

/// Replicas are asked in the same way as the server.
#[test]
fn clocks_are_compared_over_tls() {
    let (server, replica) = (sound(), sound());
    let authority = Authority::new("ours");
    let terminator = |server: &Server| {
        Terminator::start(server.socket(), &authority.sign("127.0.0.1"), None).unwrap()
    };
    let (first, second) = (terminator(&server), terminator(&replica));
    let port = second.address().port();
    ask::<()>(&replica, &["CONFIG", "SET", "replica-announce-port", &port.to_string()]);
    let master = server.addr();
    ask::<()>(&replica, &["REPLICAOF", &master.ip().to_string(), &master.port().to_string()]);
    let announced = format!("port={port},state=online");
    until("the replica is there", || {
        ask::<String>(&server, &["INFO", "replication"]).contains(&announced)
    });
    let ca = server.directory().join("ca");
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("rediss://{}", first.address());
    let ran = doctor("clocks over TLS", &url, &["--ca", ca.to_str().unwrap()]);
    says(&finding(&ran, "clocks", "ok"), "seen", "those of 2 servers differ by 0.");
}

#[test]
fn server_that_cannot_be_reached_has_its_status() {
    let mut command = program();
    finish(command.args(["doctor", "--url", "redis://127.0.0.1:1"]), "").ends(69);
    let server = sound();
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "secret"]);
    run(&server, ["doctor"]).ends(77);
}

#[test]
fn nothing_is_left_behind() {
    let server = sound();
    run(&server, ["doctor"]).ends(0);
    // The fence lives for a lease, as after any lock.
    assert_eq!(server.keys(), [b"{leasehold-doctor}:fence".to_vec()]);
    let _held = open(&server).mutex("leasehold-doctor").unwrap().lock().unwrap();
    let ran = run(&server, ["doctor", "--json"]).ends(0);
    says(&finding(&ran, "lock", "ok"), "seen", "somebody else has the lock");
}

//! Data that lies where a lock is expected is told from a lock, and stays.

use leasehold::{Error, Holder, LockClient};
use leasehold_support::Server;

use crate::common::several::{direct, servers};
use crate::common::{SOON, ask, exists, fixed, open, pttl, server};

/// Owners of Redisson.
const ONE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
const OTHER: &str = "285475da-9152-4c83-822a-67ee2f116a79:53";
const WRITER: &str = "285475da-9152-4c83-822a-67ee2f116a79:52:write";

fn set_hash(server: &Server, name: &str, fields: &[&str]) {
    ask::<()>(server, &["DEL", name]);
    ask::<()>(server, &[&["HSET", name], fields].concat());
}

fn fields(server: &Server, name: &str) -> Vec<String> {
    let mut fields: Vec<String> = ask(server, &["HKEYS", name]);
    fields.sort();
    fields
}

/// A holder with this owner's value, as it was seen once.
fn seen(server: &Server, owner: &str) -> Holder {
    set_hash(server, "seen", &["mode", "read", owner, "1"]);
    let seen = open(server).reentrant("seen").unwrap().inspect().unwrap();
    ask::<()>(server, &["DEL", "seen"]);
    seen.holders()[0].clone()
}

fn scanned(client: &LockClient) -> Vec<String> {
    let locks = client.locks("*").unwrap().with_scan();
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    locks.map(|lock| lock.map(|lock| name(lock.name())).unwrap()).collect()
}

#[track_caller]
fn is_no_lock(error: &Error, what: &str) {
    assert!(error.is_wrong_type(), "{what}: {error:?}");
    assert!(error.to_string().contains("is not a lock: a hash"), "{what}: {error}");
}

#[test]
fn hash_of_data_is_neither_waited_for_nor_deleted() {
    let server = server();
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    let one = seen(&server, ONE);
    let hashes: [&[&str]; 12] = [
        &["email", "a@b.example"],
        &["email", "1"],
        &["name", "1", "email", "2"],
        &[ONE, "busy"],
        &[ONE, ""],
        &[ONE, "1.5"],
        &[ONE, "1", "email", "1"],
        &[ONE, "1", OTHER, "1"],
        &[WRITER, "1"],
        &["mode", "read"],
        &["mode", "dark", ONE, "1"],
        &["session:285475da-9152-4c83-822a-67ee2f116a79:52", "1"],
    ];
    for hash in hashes {
        set_hash(&server, "x", hash);
        let before = fields(&server, "x");
        for ttl in [false, true] {
            if ttl {
                ask::<()>(&server, &["PEXPIRE", "x", "600000"]);
            }
            is_no_lock(&lock.try_lock().unwrap_err(), "try_lock");
            is_no_lock(&lock.lock().unwrap_err(), "lock");
            is_no_lock(&lock.try_lock_for(SOON).unwrap_err(), "try_lock_for");
            is_no_lock(&lock.is_locked().unwrap_err(), "is_locked");
            is_no_lock(&lock.holder().unwrap_err(), "holder");
            is_no_lock(&lock.inspect().unwrap_err(), "inspect");
            is_no_lock(&lock.force_release().unwrap_err(), "force_release");
            is_no_lock(&lock.force_release_of(&one).unwrap_err(), "force_release_of");
            is_no_lock(&client.locks_named("x").unwrap_err(), "locks_named");
            assert_eq!(scanned(&client), [""; 0], "{hash:?}");
            assert_eq!(fields(&server, "x"), before);
        }
    }
}

/// It is not read, and so its other fields cannot tell it from a lock that many read.
#[test]
fn large_hash_without_an_end_is_data() {
    let server = server();
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    let numbers: Vec<String> = (0..1_500).map(|number| format!("field{number}")).collect();
    let mut hash = vec!["mode", "dark"];
    numbers.iter().for_each(|field| hash.extend([field.as_str(), "1"]));
    set_hash(&server, "x", &hash);
    is_no_lock(&lock.try_lock().unwrap_err(), "try_lock");
    is_no_lock(&lock.lock().unwrap_err(), "lock");
    is_no_lock(&lock.is_locked().unwrap_err(), "is_locked");
    is_no_lock(&lock.force_release().unwrap_err(), "force_release");
    is_no_lock(&client.locks_named("x").unwrap_err(), "locks_named");
    assert_eq!(scanned(&client), [""; 0]);
    assert_eq!(fields(&server, "x").len(), 1_501);
    // Redisson gives its locks an end.
    let readers: Vec<String> =
        (0..1_500).map(|thread| format!("{}{thread}", ONE.trim_end_matches("52"))).collect();
    let mut hash = vec!["mode", "read"];
    readers.iter().for_each(|reader| hash.extend([reader.as_str(), "1"]));
    set_hash(&server, "x", &hash);
    ask::<()>(&server, &["PEXPIRE", "x", "600000"]);
    assert!(lock.try_lock().unwrap().is_none() && lock.is_locked().unwrap());
    assert_eq!(scanned(&client), ["x"]);
}

#[test]
fn owners_of_redisson_are_known_in_all_their_forms() {
    let server = server();
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    let transaction = format!("{ONE}:0123456789abcdef0123456789abcdef");
    let (negative, large) =
        ("285475da-9152-4c83-822a-67ee2f116a79:-7", "285475DA-9152-4C83-822A-67EE2F116A79:1");
    for owner in [ONE, &transaction, negative, large] {
        set_hash(&server, "x", &[owner, "12"]);
        assert!(lock.try_lock().unwrap().is_none() && lock.is_locked().unwrap());
        assert_eq!(lock.holder().unwrap().unwrap().owner(), owner.as_bytes());
        assert_eq!(client.locks_named("x").unwrap()[0].kind(), "reentrant lock");
        assert_eq!(scanned(&client), ["x"]);
        assert!(lock.force_release().unwrap());
        assert!(!exists(&server, "x"));
    }
}

/// The caller has seen a lock, and the script finds data.
#[test]
fn what_has_become_data_meanwhile_is_left_alone() {
    let server = server();
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    set_hash(&server, "x", &[ONE, "1"]);
    let holder = lock.holder().unwrap().unwrap();
    ask::<()>(&server, &["HSET", "x", "email", "a@b.example"]);
    is_no_lock(&lock.force_release_of(&holder).unwrap_err(), "force_release_of");
    assert_eq!(fields(&server, "x").len(), 2);
    let lock = client.mutex("y").unwrap();
    ask::<()>(&server, &["SET", "y", "a value", "PX", "600000"]);
    let holder = lock.holder().unwrap().unwrap();
    ask::<()>(&server, &["PERSIST", "y"]);
    assert!(lock.force_release_of(&holder).unwrap_err().is_wrong_type());
    assert!(exists(&server, "y"));
}

#[test]
fn string_without_an_end_is_a_lock_only_if_the_caller_says_so() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    ask::<()>(&server, &["SET", "x", "a profile"]);
    let is_refused = |error: Error| {
        assert!(error.is_wrong_type(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("a string without a time to live"), "{text}");
        assert!(!text.contains("delete"), "{text}");
    };
    is_refused(lock.force_release().unwrap_err());
    is_refused(lock.force_release_of(&lock.holder().unwrap().unwrap()).unwrap_err());
    is_refused(client.locks_named("x").unwrap_err());
    assert_eq!(scanned(&client), [""; 0]);
    // A client of another library may hold it so.
    assert!(lock.try_lock().unwrap().is_none() && lock.is_locked().unwrap());
    let seen = client.mutex_named("x").unwrap().expect("in use");
    assert_eq!((seen.name(), seen.kind()), (&b"x"[..], "mutex"));
    assert_eq!(seen.inspection().holders()[0].owner(), b"a profile");
    assert!(lock.force_release_any().unwrap() && !exists(&server, "x"));
    assert!(!lock.force_release_any().unwrap());
    assert!(client.mutex_named("x").unwrap().is_none());
    // Of this library, whatever became of its time to live.
    let guard = client.mutex_with("x", fixed(600_000)).unwrap().lock().unwrap();
    ask::<()>(&server, &["PERSIST", "x"]);
    assert_eq!(client.locks_named("x").unwrap().len(), 1);
    assert!(lock.force_release().unwrap());
    assert!(guard.release().unwrap_err().is_lost());
}

#[test]
fn string_with_an_end_is_the_lock_of_another_program() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    ask::<()>(&server, &["SET", "x", "someone", "PX", "600000"]);
    assert_eq!(client.locks_named("x").unwrap()[0].kind(), "mutex");
    assert_eq!(scanned(&client), ["x"]);
    assert!(lock.force_release().unwrap() && !exists(&server, "x"));
    // A page of a cache, as long as no lock is.
    ask::<()>(&server, &["SET", "x", &"a".repeat(16_385), "PX", "600000"]);
    let error = lock.force_release().unwrap_err();
    assert!(error.is_wrong_type() && error.to_string().contains("16 KiB"), "{error}");
    assert_eq!(scanned(&client), [""; 0]);
    assert!(lock.force_release_any().unwrap() && !exists(&server, "x"));
}

/// A client that waits for it announces the name, and its users see for what it waits.
#[test]
fn string_that_is_waited_for_is_listed() {
    let server = server();
    let client = open(&server);
    ask::<()>(&server, &["SET", "x", "someone"]);
    ask::<()>(&server, &["ZADD", "leasehold:index", "99999999999", "mutex:x"]);
    let found: Vec<_> = client.locks("*").unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].inspection().holders()[0].owner(), b"someone");
}

/// How long Redisson's readers hold, beside the lock.
fn hold(server: &Server, owner: &str, number: usize, ttl: &str) {
    let key = format!("{{x}}:{owner}:rwlock_timeout:{number}");
    ask::<()>(server, &["SET", &key, "1", "PX", ttl]);
}

#[test]
fn one_reader_is_evicted_and_the_others_stay() {
    let server = server();
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    set_hash(&server, "x", &["mode", "read", ONE, "2", OTHER, "1"]);
    ask::<()>(&server, &["PEXPIRE", "x", "600000"]);
    hold(&server, ONE, 1, "300000");
    hold(&server, ONE, 2, "600000");
    hold(&server, OTHER, 1, "60000");
    let error = lock.force_release().unwrap_err();
    assert!(error.is_wrong_type() && error.to_string().contains("2 hold"), "{error}");
    assert_eq!(fields(&server, "x").len(), 3, "nobody was named");
    let one = seen(&server, ONE);
    let mut connection = server.connection();
    let mut heard = connection.as_pubsub();
    heard.subscribe("redisson_rwlock:{x}").unwrap();
    heard.set_read_timeout(Some(SOON)).unwrap();
    assert!(lock.force_release_of(&one).unwrap());
    assert!(!lock.force_release_of(&one).unwrap(), "it has gone");
    assert_eq!(fields(&server, "x"), [OTHER, "mode"]);
    let kept: Vec<String> = ask(&server, &["KEYS", "{x}:*"]);
    assert_eq!(kept, [format!("{{x}}:{OTHER}:rwlock_timeout:1")]);
    // It was as long as that of the one who is gone.
    assert!((1..=60_000).contains(&pttl(&server, "x")), "{}", pttl(&server, "x"));
    assert!(lock.force_release().unwrap(), "the only one need not be named");
    assert!(!exists(&server, "x"));
    assert_eq!(ask::<Vec<String>>(&server, &["KEYS", "*"]), [""; 0]);
    assert_eq!(heard.get_message().unwrap().get_payload::<String>().unwrap(), "0");
}

/// By hand, or by a version that keeps no such keys: then it is not known how long the others hold.
#[test]
fn lease_of_other_readers_stays_where_nothing_tells_of_it() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let one = seen(&server, ONE);
    for (holds, ttl) in [(None, "600000"), (Some("600000"), "900000")] {
        set_hash(&server, "x", &["mode", "read", ONE, "1", OTHER, "5000"]);
        ask::<()>(&server, &["PEXPIRE", "x", ttl]);
        if let Some(holds) = holds {
            hold(&server, OTHER, 1, holds);
        }
        let before = pttl(&server, "x");
        assert!(lock.force_release_of(&one).unwrap());
        assert_eq!(fields(&server, "x"), [OTHER, "mode"]);
        assert!(pttl(&server, "x") > before - 60_000);
    }
}

#[test]
fn evicted_writer_leaves_its_readers() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    set_hash(&server, "x", &["mode", "write", WRITER, "1", ONE, "1"]);
    ask::<()>(&server, &["PEXPIRE", "x", "600000"]);
    hold(&server, ONE, 1, "600000");
    let mut connection = server.connection();
    let mut heard = connection.as_pubsub();
    heard.subscribe("redisson_rwlock:{x}").unwrap();
    heard.set_read_timeout(Some(SOON)).unwrap();
    assert!(lock.force_release_of(&seen(&server, WRITER)).unwrap());
    assert_eq!(fields(&server, "x"), [ONE, "mode"]);
    assert_eq!(ask::<String>(&server, &["HGET", "x", "mode"]), "read");
    assert!(pttl(&server, "x") > 500_000);
    assert_eq!(heard.get_message().unwrap().get_payload::<String>().unwrap(), "1");
    // Alone, it leaves nothing.
    set_hash(&server, "x", &["mode", "write", WRITER, "3"]);
    assert!(lock.force_release().unwrap() && !exists(&server, "x"));
    // A reader of the writer's thread.
    set_hash(&server, "x", &["mode", "write", WRITER, "1", ONE, "1"]);
    assert!(lock.force_release_of(&seen(&server, ONE)).unwrap());
    assert_eq!(fields(&server, "x"), [WRITER, "mode"]);
    assert_eq!(ask::<String>(&server, &["HGET", "x", "mode"]), "write");
}

/// Most of the servers have something that may be data there.
#[test]
fn string_on_a_majority_is_refused() {
    let servers = servers(3);
    let client = crate::common::several::open(direct(&servers).node_timeout(SOON));
    let lock = client.mutex("x").unwrap();
    for server in &servers[..2] {
        ask::<()>(server, &["SET", "x", "a profile"]);
    }
    assert!(lock.force_release().unwrap_err().is_wrong_type());
    assert!(servers[..2].iter().all(|server| exists(server, "x")));
    assert!(lock.force_release_any().unwrap());
    assert!(servers.iter().all(|server| !exists(server, "x")));
}

//! Fencing tokens grow over all holds of a name, whatever became of the keys.

use std::thread;
use std::time::Duration;

use crate::common::kind::KINDS;
use crate::common::queue::{listens, waiting};
use crate::common::{SOON, ask, exists, fixed, ms, open, pttl, renewed, server, until, within};
use leasehold::{FencingToken, LockClient, Mutex};
use leasehold_support::Server;

/// Takes the lock and gives it back.
fn next(lock: &Mutex) -> FencingToken {
    lock.try_lock_for(SOON).unwrap().expect("free, or soon so").fencing_token()
}

/// The server's clock, in microseconds.
fn server_time(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = ask(server, &["TIME"]);
    seconds * 1_000_000 + micros
}

#[test]
fn tokens_grow_across_holds_and_clients() {
    let server = server();
    let clients = [open(&server), open(&server)];
    let mut last = next(&clients[0].mutex("x").unwrap());
    for round in 0..60 {
        // One in twelve is left to expire.
        let ttl = if round % 12 == 11 { 1_200 } else { 60_000 };
        let lock = clients[round % 2].mutex_with("x", fixed(ttl)).unwrap();
        let guard = lock.try_lock_for(SOON).unwrap().expect("free, or soon so");
        assert!(guard.fencing_token() > last, "{:?} after {last:?}", guard.fencing_token());
        last = guard.fencing_token();
        match round % 12 {
            // Let it expire.
            11 => within(SOON, "it is over", || !guard.is_valid() && !exists(&server, "x")),
            10 => {
                lock.force_release().unwrap();
                Duration::ZERO
            }
            9 => {
                ask::<()>(&server, &["DEL", "x"]);
                Duration::ZERO
            }
            _ => Duration::ZERO,
        };
    }
}

#[test]
fn tokens_grow_after_the_counter_is_gone_and_after_a_flush() {
    let server = server();
    let lock = open(&server).mutex_with("x", fixed(10_000)).unwrap();
    let mut last = next(&lock);
    for command in [["DEL", "{x}:fence"].as_slice(), &["FLUSHALL"], &["FLUSHDB"]] {
        ask::<()>(&server, command);
        assert!(server.keys().is_empty(), "{command:?}");
        let token = next(&lock);
        assert!(token > last, "{command:?}: {token:?} after {last:?}");
        last = token;
    }
}

#[test]
fn tokens_grow_after_a_restart_that_lost_everything() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let before = next(&lock);
    server.restart();
    assert!(server.keys().is_empty());
    assert!(next(&lock) > before);
}

/// A crash may cost the end of the append-only file: the lock, its counter, and all that was said
/// about them. Order must not rest on them.
#[test]
fn tokens_grow_after_a_restart_with_a_truncated_file() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let builder = arguments.iter().fold(Server::builder(), |builder, word| builder.arg(word));
    let server = builder.start().expect("a server");
    let lock = open(&server).mutex_with("x", fixed(60_000)).unwrap();
    let first = next(&lock);
    let file = || {
        let folder = std::fs::read_dir(server.directory().join("appendonlydir")).unwrap();
        let mut files = folder.map(|entry| entry.unwrap().path());
        files.find(|path| path.display().to_string().ends_with("incr.aof")).unwrap()
    };
    let kept = std::fs::metadata(file()).unwrap().len();
    // Held to the end, so that the lock itself is among what is lost, and passed on before.
    let passed = next(&lock);
    let last = lock.lock().unwrap();
    let lost = last.fencing_token();
    assert!(first < passed && passed < lost);
    server.kill();
    let log = std::fs::OpenOptions::new().write(true).open(file()).unwrap();
    let whole = log.metadata().unwrap().len();
    // In the middle of a command.
    assert!(whole > kept + 10, "nothing to cut off: {kept} of {whole}");
    log.set_len(kept + 10).unwrap();
    drop(log);
    server.restart();
    let stored: u64 = ask(&server, &["GET", "{x}:fence"]);
    assert!(!exists(&server, "x"), "the lock was lost with the rest");
    assert!(stored <= first.get(), "{stored} is not what was before the cut");
    assert!(last.check().unwrap_err().is_lost());
    let after = next(&open(&server).mutex("x").unwrap());
    assert!(after > lost, "{after:?} after {lost:?}");
}

/// The recipe of the guide, word for word.
#[test]
fn documented_script_refuses_a_late_token() {
    let guide = include_str!("../../docs/recipes.md");
    let (_, rest) = guide.split_once("const FENCED_WRITE: &str = \"").expect("the recipe");
    let (script, _) = rest.split_once("\";").expect("its end");
    let script = redis::Script::new(script);
    let server = server();
    let lock = open(&server).mutex_with("x", fixed(1_500)).unwrap();
    let write = |token: FencingToken, value: &str| -> bool {
        let mut call = script.key("stock:7");
        call.arg(token.get()).arg(value);
        call.invoke(&mut server.connection()).unwrap()
    };
    let late = lock.lock().unwrap();
    assert!(write(late.fencing_token(), "one"));
    until("the first is past its lease", || !late.is_valid());
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    assert!(write(guard.fencing_token(), "two") && write(guard.fencing_token(), "three"));
    assert!(!write(late.fencing_token(), "late"));
    assert_eq!(ask::<String>(&server, &["HGET", "stock:7", "value"]), "three");
}

#[test]
fn a_token_is_at_least_the_servers_time_in_microseconds() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let before = server_time(&server);
    let token = next(&lock).get();
    let after = server_time(&server);
    assert!((before..=after).contains(&token), "{before} {token} {after}");
    assert!(token < 1 << 53);
}

/// A server clock that was set back looks like a counter that is ahead. A large number must not
/// be written with an exponent (rule 20), and the counter must live until the clock has caught up
/// (rule 19).
#[test]
fn tokens_grow_while_the_counter_is_ahead_of_the_servers_clock() {
    const AHEAD: u64 = 3_600_000_000;
    let server = server();
    for of in KINDS {
        let kind = of.name;
        let client = open(&server);
        let hold = |client: &LockClient| of.open(client, kind).lock().unwrap();
        let fence = format!("{{{kind}}}:fence");
        let ahead = server_time(&server) + AHEAD;
        ask::<()>(&server, &["SET", &fence, &ahead.to_string(), "PX", "60000"]);
        let first = hold(&client).fencing_token().get();
        let second = hold(&client).fencing_token().get();
        assert_eq!((first, second), (ahead + 1, ahead + 2));
        let stored: String = ask(&server, &["GET", &fence]);
        assert_eq!(stored, second.to_string());
        let left = pttl(&server, &fence);
        assert!(left >= i64::try_from(AHEAD / 1000).unwrap(), "{left}");
    }
}

/// The counter has to be there when the next holder comes, however long this one had the lock:
/// all keys beside a lock live longer than any lease.
#[test]
fn the_counter_outlives_a_lock_that_is_renewed() {
    let server = server();
    let lock = open(&server).mutex_with("x", renewed(6_000)).unwrap();
    let guard = lock.lock().unwrap();
    let begin = std::time::Instant::now();
    // Longer than the lease that it was made with.
    until("the lease is over but for its renewals", || {
        assert!(exists(&server, "x") && guard.is_valid());
        assert!(exists(&server, "{x}:fence"), "gone {:?} after it was made", begin.elapsed());
        begin.elapsed() > ms(15_000)
    });
}

#[test]
fn the_counter_outlives_a_lease_that_is_extended() {
    let server = server();
    let lock = open(&server).mutex_with("x", fixed(20_000)).unwrap();
    let guard = lock.lock().unwrap();
    guard.extend(ms(600_000)).unwrap();
    let (counter, lease) = (pttl(&server, "{x}:fence"), pttl(&server, "x"));
    assert!(counter >= lease, "the counter ends in {counter} ms, the lease in {lease} ms");
}

/// The client that hands over, and the one that forces it, have a shorter lease than the next.
#[test]
fn the_counter_outlives_a_lease_longer_than_the_givers() {
    let server = server();
    let giver = open(&server).mutex_with("x", renewed(20_000)).unwrap();
    let next = open(&server);
    listens(&server, &next);
    // What it is given is whole, as the window of a claim is longer, so that it does not ask for more.
    let waiter = next.mutex_with("x", fixed(31_000)).unwrap();
    for forced in [false, true] {
        let guard = giver.lock().unwrap();
        let (counter, lease) = thread::scope(|scope| {
            let served = scope.spawn(|| {
                let _guard = waiter.lock().unwrap();
                (pttl(&server, "{x}:fence"), pttl(&server, "x"))
            });
            until("it waits", || waiting(&server, "x") == 1);
            if forced {
                assert!(giver.force_release().unwrap());
            } else {
                guard.release().unwrap();
            }
            served.join().unwrap()
        });
        assert!(counter >= lease, "{forced}: it ends in {counter} ms, the lease in {lease} ms");
    }
}

#[test]
fn token_is_a_number_for_the_resource() {
    let server = server();
    let token = next(&open(&server).mutex("x").unwrap());
    assert_eq!(u64::from(token), token.get());
    assert_eq!(token.to_string(), token.get().to_string());
    assert_eq!(format!("{token:?}"), format!("FencingToken({token})"));
    // Microseconds, not milliseconds.
    let year_2020 = Duration::from_secs(1_577_836_800).as_micros();
    assert!(u128::from(token.get()) > year_2020);
}

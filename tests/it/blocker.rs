//! What a thread that waits is told of the holder: in the log, and after a wait in vain.

use std::thread;
use std::time::Duration;

use crate::common::kind::KINDS;
use crate::common::log::texts;
use crate::common::queue::listens;
use crate::common::several::{direct, open as open_several, servers};
use crate::common::{SOON, ask, ms, open, patient, server, until};
use leasehold::{LockClient, LockOptions, Mutex, Wait};
use leasehold_support::Server;

fn labelled(server: &Server, label: &str) -> LockClient {
    patient(LockClient::builder(server.url())).label(label).build().unwrap()
}

/// In real time, and by all ways to wait.
#[test]
#[allow(clippy::print_stdout, reason = "the texts are there to be read")]
fn slow_wait_is_logged_whatever_it_waits_by() {
    let server = server();
    texts(&[]);
    for (number, kind) in KINDS.iter().enumerate() {
        let name = format!("slow by {}", kind.name);
        let holder = kind.open(&labelled(&server, "billing"), &name);
        let guard = holder.lock().unwrap();
        let client =
            patient(LockClient::builder(server.url())).slow_wait(Some(ms(50))).build().unwrap();
        let spins = LockOptions::new().wait(Wait::spin());
        for options in [LockOptions::new(), spins] {
            let lock = kind.with(&client, &name, options);
            let before = texts(&[&name]).len();
            assert!(lock.try_lock_for(ms(1_500)).unwrap().is_none());
            let seen = texts(&[&name]);
            assert_eq!(seen.len(), before + 1, "{seen:#?}");
            println!("{}", seen[before]);
            assert!(seen[before].contains(&format!("token {}", guard.fencing_token())));
            let names_it = seen[before].contains("held by billing, process ");
            assert_eq!(names_it, number == 0, "a reentrant lock has no room for that: {seen:#?}");
        }
        guard.release().unwrap();
    }
}

/// Goes without the lock at once and later, and says what is told of it then.
fn in_vain(lock: &Mutex, then: impl Fn(&str, Option<leasehold::Holder>)) {
    for wait in [Duration::ZERO, ms(60), ms(1_200)] {
        // A machine that stands still may leave no time for a reply.
        until("it is refused", || matches!(lock.try_lock_for(wait), Ok(None)));
        then(&format!("{wait:?}"), lock.last_blocker());
    }
}

#[test]
fn refused_call_tells_who_was_in_the_way_in_another_process() {
    let server = server();
    let guard = labelled(&server, "billing").mutex("x").unwrap().lock().unwrap();
    for wait in [Wait::queue(), Wait::spin()] {
        let client = open(&server);
        let lock = client.mutex_with("x", LockOptions::new().wait(wait)).unwrap();
        assert_eq!(lock.last_blocker(), None, "nothing was asked");
        in_vain(&lock, |call, blocker| {
            let blocker = blocker.unwrap_or_else(|| panic!("{wait:?}, {call}"));
            assert_eq!(
                (blocker.label(), blocker.pid()),
                (Some("billing"), Some(std::process::id()))
            );
            assert_eq!(blocker.token(), Some(guard.fencing_token()));
            assert!(blocker.since().unwrap() < SOON && blocker.ttl().unwrap() <= ms(30_000));
        });
        // It is what this thread was told, and of this lock.
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| lock.last_blocker());
            assert_eq!(elsewhere.join().unwrap(), None);
        });
        assert_eq!(client.mutex("y").unwrap().last_blocker(), None);
        assert!(lock.clone().last_blocker().is_some());
    }
    guard.release().unwrap();
    let lock = open(&server).mutex("x").unwrap();
    ask::<()>(&server, &["SET", "x", "stranger", "PX", "60000"]);
    assert!(lock.try_lock().unwrap().is_none());
    let blocker = lock.last_blocker().unwrap();
    assert_eq!((blocker.owner(), blocker.token(), blocker.since()), (&b"stranger"[..], None, None));
    ask::<()>(&server, &["SET", "x", &"y".repeat(10_000), "PX", "60000"]);
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(lock.last_blocker().unwrap().owner().len(), 512);
    ask::<()>(&server, &["DEL", "x"]);
    lock.lock().unwrap().release().unwrap();
    assert_eq!(lock.last_blocker(), None, "it got the lock since");
}

#[test]
fn refused_call_tells_of_a_thread_of_this_process() {
    let server = server();
    let client = labelled(&server, "us");
    for kind in KINDS {
        let lock = kind.open(&client, "x");
        let guard = lock.lock().unwrap();
        let token = guard.fencing_token();
        thread::scope(|scope| {
            scope.spawn(|| {
                for wait in [Duration::ZERO, ms(40)] {
                    // A machine that stands still may leave no time to ask.
                    until("it is refused", || matches!(lock.try_lock_for(wait), Ok(None)));
                    let blocker = lock.last_blocker().expect("it is known");
                    assert_eq!((blocker.label(), blocker.token()), (Some("us"), Some(token)));
                }
            });
        });
        guard.release().unwrap();
    }
}

#[test]
fn refused_call_for_a_reentrant_lock_tells_of_its_owner() {
    let server = server();
    let lock = open(&server).reentrant("x").unwrap();
    let guard = open(&server).reentrant("x").unwrap().lock().unwrap();
    until("it is refused", || matches!(lock.try_lock_for(ms(50)), Ok(None)));
    let blocker = lock.last_blocker().unwrap();
    assert_eq!((blocker.token(), blocker.pid()), (Some(guard.fencing_token()), None));
    guard.release().unwrap();
    let service = "285475da-9152-4c83-822a-67ee2f116a79:52";
    for fields in [&["HSET", "x", service, "1"][..], &["HSET", "x", "mode", "read"]] {
        ask::<()>(&server, fields);
        assert!(lock.try_lock().unwrap().is_none());
        let blocker = lock.last_blocker().unwrap();
        assert_eq!((blocker.owner(), blocker.token()), (service.as_bytes(), None));
    }
}

#[test]
fn refused_call_over_several_servers_tells_who_has_most_of_them() {
    let servers = servers(3);
    let holder = open_several(direct(&servers).label("billing").node_timeout(SOON));
    let guard = holder.mutex("x").unwrap().lock().unwrap();
    let lock = open_several(direct(&servers).node_timeout(SOON)).mutex("x").unwrap();
    in_vain(&lock, |call, blocker| {
        let blocker = blocker.unwrap_or_else(|| panic!("{call}"));
        assert_eq!(
            (blocker.label(), blocker.token()),
            (Some("billing"), Some(guard.fencing_token()))
        );
    });
}

/// How many bytes of replies a piece of work takes, as the server counts them: so many times, or the digits of
/// the count itself would show.
fn received(server: &Server, work: impl Fn()) -> u64 {
    const TIMES: u64 = 100;
    let sent = || {
        let info: String = ask(server, &["INFO", "stats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let empty = {
        let before = sent();
        sent() - before
    };
    let before = sent();
    (0..TIMES).for_each(|_| work());
    (sent() - before - empty) / TIMES
}

/// The owner and the last token are all that a refusal has more; a lock that is free costs what it did.
#[test]
#[allow(clippy::print_stdout, reason = "the figures are there to be read")]
fn holder_comes_with_the_refusal_and_a_free_lock_costs_no_more() {
    let server = server();
    // What is held for some seconds is announced, by a script too.
    let quiet = || patient(LockClient::builder(server.url())).announce(false).build().unwrap();
    let client = quiet();
    listens(&server, &client);
    let (lock, other) = (client.mutex("x").unwrap(), quiet().mutex("x").unwrap());
    lock.lock().unwrap().release().unwrap();
    server.reset_stats();
    let pair = received(&server, || lock.lock().unwrap().release().unwrap());
    let ran = server.commands();
    println!("an uncontended pair: {pair} bytes of replies, {ran:?}");
    // The token, and 1.
    assert_eq!(pair, ":1795627722131071\r\n:1\r\n".len() as u64);
    let inner = ["set", "exists", "time", "get", "del"].map(|name| server.command_calls(&[name]));
    assert_eq!(inner, [200, 200, 100, 100, 100], "{ran:?}");
    let guard = lock.lock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    let owner = other.holder().unwrap().unwrap().owner().len();
    server.reset_stats();
    let refused = received(&server, || assert!(other.try_lock().unwrap().is_none()));
    let before = "*5\r\n:0\r\n:29999\r\n:1795627722131071\r\n:0\r\n:1\r\n".len();
    println!("a refusal: {refused} bytes; before about {before}; the owner has {owner}");
    let most = before + owner + "$100\r\n\r\n:1795627722131071\r\n".len() + 4;
    assert!(refused as usize <= most, "{refused} > {most}");
    assert_eq!(server.command_calls(&["eval", "evalsha"]), 100, "one an attempt");
    guard.release().unwrap();
}

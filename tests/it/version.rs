//! A lock that two versions of this library share: the later one writes values and messages of which this one
//! knows only the beginning.

use std::thread;

use crate::common::queue::{listens, wait_for, waiting};
use crate::common::{SOON, ask, fixed, open, server, until};
use leasehold_support::Server;
use redis::Commands as _;

/// What a later version may write: the beginning stays, the rest is new.
const LATER: &str = "3q:5f0c:2a:3000:new:4711:web-3:billing";
const CHANNEL: &str = "leasehold:5f0c";

/// The server's time in microseconds.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = ask(server, &["TIME"]);
    seconds * 1_000_000 + micros
}

#[test]
fn waiter_of_a_later_version_is_handed_the_lock_and_evicted() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let (lock, behind) = (client.mutex("x").unwrap(), other.mutex("x").unwrap());
    let guard = lock.lock().unwrap();
    let mut connection = server.connection();
    connection.set_read_timeout(Some(SOON)).unwrap();
    let mut channel = connection.as_pubsub();
    channel.subscribe(CHANNEL).unwrap();
    let mut heard = || channel.get_message().unwrap().get_payload::<String>().unwrap();
    let now = now(&server);
    ask::<()>(&server, &["ZADD", "{x}:queue", &now.to_string(), LATER]);
    ask::<()>(&server, &["ZADD", "{x}:beats", &(now + 60_000_000).to_string(), LATER]);
    for key in ["{x}:queue", "{x}:beats"] {
        ask::<()>(&server, &["PEXPIRE", key, "60000"]);
    }
    let seen = lock.inspect().unwrap();
    assert_eq!((seen.waiters()[0].owner(), seen.waiters()[0].pid()), (LATER.as_bytes(), None));

    thread::scope(|scope| {
        let next = wait_for(scope, &behind);
        until("it queues behind", || waiting(&server, "x") == 2);
        guard.release().unwrap();
        let grant = heard();
        assert!(grant.starts_with("g 2a ") && grant.ends_with(" 3000 1 x"), "{grant}");
        assert_eq!(ask::<String>(&server, &["GET", "x"]), LATER);
        assert!(lock.try_lock().unwrap().is_none());
        assert!(lock.force_release().unwrap());
        // Before that it hears that somebody waits.
        until("it is told", || heard() == "x 2a x");
        next.join().unwrap();
    });
}

#[test]
fn messages_of_a_later_version_are_ignored() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    listens(&server, &client);
    let channels: Vec<String> = ask(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]);
    let [channel] = channels.as_slice() else { panic!("{channels:?}") };
    // A panic would close the connection.
    let listener = || {
        let list: String = ask(&server, &["CLIENT", "LIST", "TYPE", "PUBSUB"]);
        list.split(' ').next().expect("a number").to_owned()
    };
    let before = listener();
    let guard = other.mutex("x").unwrap().lock().unwrap();
    let long = "9".repeat(10_000);
    thread::scope(|scope| {
        let waits = wait_for(scope, &client.mutex("x").unwrap());
        until("it waits", || waiting(&server, "x") == 1);
        for message in [
            "",
            " ",
            "z",
            "z 1 x",
            "G 1 2 3 4 5 x",
            "2g 1 2 3 4 5 x",
            "g",
            "g x",
            "g 1 2 3 4 x",
            "g 1 -2 3 4 5 x",
            &long,
            "\u{0}\u{ffff}",
            "s 1 2 3 4 5 a,b x",
            "g 1 99999999999999999999 3 4 5 x",
        ] {
            assert_eq!(ask::<u32>(&server, &["PUBLISH", channel, message]), 1);
        }
        guard.release().unwrap();
        waits.join().unwrap();
    });
    assert_eq!(listener(), before);
}

/// Makes all that a holder of a weighted lock wrote that of a later version.
fn made_later(server: &Server, key: &str) -> String {
    let members: Vec<(String, String)> =
        server.connection().zrange_withscores(key, 0, -1).expect("members");
    let mut holder = None;
    for (member, score) in members.iter().filter(|(member, _)| member.contains("1q:")) {
        let later = member.replacen("1q:", "3q:", 1);
        ask::<()>(server, &["ZADD", key, score, &later]);
        ask::<()>(server, &["ZREM", key, member]);
        if later.starts_with("3q:") {
            holder = Some(later);
        }
    }
    holder.expect("a holder")
}

#[test]
fn permits_and_access_of_a_later_version_count() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let permit = client.semaphore_with("s", 3, fixed(60_000)).unwrap().acquire_many(2).unwrap();
    let holder = made_later(&server, "s");
    let semaphore = other.semaphore("s", 3).unwrap();
    let seen = semaphore.inspect().unwrap();
    let [shown] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!((shown.owner(), shown.pid()), (holder.as_bytes(), None));
    assert_eq!(shown.slots(), [0, 1]);
    assert!(semaphore.try_acquire_many(2).unwrap().is_none());
    semaphore.try_acquire().unwrap().expect("the third").release().unwrap();
    // It is not this client's own any more.
    assert!(permit.release().is_err());
    assert!(semaphore.try_acquire_many(2).unwrap().is_none());
    // Its permits come back with its lease, as those of a process that died.
    ask::<()>(&server, &["ZADD", "s", &(now(&server) - 1).to_string(), &holder]);
    semaphore.try_acquire_many(3).unwrap().expect("all").release().unwrap();

    let writer = client.rw_lock_with("w", fixed(60_000)).unwrap().write().unwrap();
    let holder = made_later(&server, "w");
    let lock = other.rw_lock("w").unwrap();
    assert!(lock.try_read().unwrap().is_none());
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders()[0].access(), Some(leasehold::Access::Write));
    assert!(writer.release().is_err());
    ask::<()>(&server, &["ZADD", "w", &(now(&server) - 1).to_string(), &holder]);
    until("its lease is over", || lock.try_write().unwrap().is_some());
}

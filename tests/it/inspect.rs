//! Who holds a lock, since when, and who waits: of this library and of others.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::{wait_for, waiting};
use crate::common::several::{direct, open as open_several, servers};
use crate::common::{SOON, ask, exists, ms, open, server, until};
use leasehold::{Access, Inspection, LockClient, UpgradableReadGuard, WriteGuard};
use leasehold_support::Server;

/// An owner of Redisson.
const SERVICE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";

fn labelled(server: &Server, label: &str) -> LockClient {
    LockClient::builder(server.url()).label(label).build().unwrap()
}

/// Shows it, and checks that a terminal could.
#[allow(clippy::print_stdout, reason = "the texts are there to be read")]
fn shown(what: &str, seen: &Inspection) -> String {
    let text = seen.to_string();
    println!("{what}:\n{text}\n");
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    text
}

#[test]
fn mutex_shows_its_holder_and_three_waiters_in_order() {
    let server = server();
    let lock = labelled(&server, "billing").mutex("orders:42").unwrap();
    let before = Instant::now();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiters = [1, 2, 3].map(|number| {
            let client = labelled(&server, &format!("shipping {number}"));
            let waiter = wait_for(scope, &client.mutex("orders:42").unwrap());
            until("it queues", || waiting(&server, "orders:42") == number);
            waiter
        });
        let seen = open(&server).mutex("orders:42").unwrap().inspect().unwrap();
        let past = before.elapsed();
        let text = shown("a mutex with three waiters", &seen);
        let [holder] = seen.holders() else { panic!("{seen:?}") };
        assert_eq!(holder.label(), Some("billing"));
        assert_eq!(holder.pid(), Some(std::process::id()));
        assert_eq!(holder.token(), Some(guard.fencing_token()));
        assert!(holder.since().unwrap() <= past, "{:?}, {past:?}", holder.since());
        let ttl = holder.ttl().unwrap();
        assert!(ttl <= ms(30_000) && ttl > ms(15_000), "{ttl:?}");
        assert_eq!(seen.waiting(), Some(3));
        let waiter_at = |index: usize| {
            let waiter = &seen.waiters()[index];
            (waiter.place(), waiter.label().unwrap().to_owned())
        };
        for number in 1..=3 {
            assert_eq!(waiter_at(number - 1), (number, format!("shipping {number}")));
        }
        let since: Vec<Duration> = seen.waiters().iter().map(|it| it.since().unwrap()).collect();
        assert!(since.is_sorted_by(|one, other| one >= other), "{since:?}");
        assert!(since[0] <= holder.since().unwrap(), "{since:?}");
        assert!(text.starts_with("held by billing, process ") && text.contains("\n3 wait:\n  1. "));
        guard.release().unwrap();
        waiters.into_iter().for_each(|waiter| _ = waiter.join().unwrap());
    });
    let seen = lock.inspect().unwrap();
    assert_eq!(shown("nobody", &seen), "free\nnobody waits");
}

#[test]
fn inspection_is_one_round_trip_and_writes_nothing() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    lock.inspect().unwrap();
    server.reset_stats();
    lock.inspect().unwrap();
    let ran = server.commands();
    assert_eq!(ran.client_commands(&["ping", "publish"]), 1, "{ran:?}");
    // Out of memory it works as well.
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(lock.inspect().unwrap().holders().len(), 1);
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    guard.release().unwrap();
}

#[test]
fn handed_over_lock_shows_its_new_holder_and_its_token() {
    let server = server();
    let (first, second) = (labelled(&server, "first"), labelled(&server, "second"));
    let lock = second.mutex("x").unwrap();
    let guard = first.mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let handed = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let seen = lock.inspect().unwrap();
            assert_eq!(seen.holders()[0].label(), Some("second"));
            assert_eq!(seen.holders()[0].token(), Some(guard.fencing_token()));
            assert!(seen.holders()[0].since().unwrap() < SOON);
        });
        until("it queues", || waiting(&server, "x") == 1);
        guard.release().unwrap();
        handed.join().unwrap();
    });
}

/// The fence is left over from a holder before it.
#[test]
fn plain_key_shows_its_value_and_its_ttl_alone() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    ask::<()>(&server, &["SET", "x", "worker-7\r\n\x1b[31m", "NX", "PX", "60000"]);
    assert!(exists(&server, "{x}:fence"));
    let seen = lock.inspect().unwrap();
    let text = shown("a plain SET NX PX key", &seen);
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!(holder.owner(), b"worker-7\r\n\x1b[31m");
    assert_eq!((holder.host(), holder.pid(), holder.label()), (None, None, None));
    assert_eq!((holder.token(), holder.since()), (None, None), "made up");
    assert!(holder.ttl().unwrap() <= ms(60_000) && holder.ttl().unwrap() > ms(30_000));
    assert!(text.starts_with(r"held by worker-7\r\n\x1b[31m; its lease ends in "), "{text}");
    ask::<()>(&server, &["PERSIST", "x"]);
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders()[0].ttl(), None);
    assert!(shown("the same without an end", &seen).contains("its lease has no end"));
    // A value that is long is not shown whole.
    ask::<()>(&server, &["SET", "x", &"y".repeat(10_000)]);
    assert!(lock.inspect().unwrap().to_string().len() < 300);
    assert_eq!(lock.inspect().unwrap().holders()[0].owner().len(), 10_000);
}

/// What a later version may write, and what nobody would.
#[test]
fn value_of_another_version_or_shape_is_a_foreign_holder() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let (odd, huge) = ("1q:c:1:9:99999999999:h:l", "1q:c:1:99999999999999999999:1:h:l");
    // As a later version might write them, and one with a tail that has none.
    let (next, later) = ("3q:5f0c:2a:3000:4711:web-3:billing", "9-:5f0c:2a:3000:4711:web-3:");
    let bare = "2q:5f0c:2a:3000:4711:web-3:billing";
    for value in [next, later, bare, "1q:::::", "1q", "", odd, huge] {
        ask::<()>(&server, &["SET", "x", value, "PX", "60000"]);
        ask::<()>(&server, &["SET", "{x}:fence", "1795627722131071", "PX", "60000"]);
        let seen = lock.inspect().unwrap();
        let [holder] = seen.holders() else { panic!("{value}: {seen:?}") };
        assert_eq!(holder.owner(), value.as_bytes());
        assert_eq!((holder.pid(), holder.token(), holder.since()), (None, None, None), "{value}");
        assert!(lock.try_lock().unwrap().is_none(), "{value}");
    }
    // A fence that is none says nothing of a holder of ours.
    ask::<()>(&server, &["DEL", "x"]);
    let guard = lock.lock().unwrap();
    for fence in ["nonsense", "-5", "1e300", "nan"] {
        ask::<()>(&server, &["SET", "{x}:fence", fence, "PX", "60000"]);
        let seen = lock.inspect().unwrap();
        assert_eq!((seen.holders()[0].token(), seen.holders()[0].since()), (None, None), "{fence}");
    }
    ask::<()>(&server, &["DEL", "{x}:fence", "{x}:queue"]);
    ask::<()>(&server, &["RPUSH", "{x}:fence", "a"]);
    ask::<()>(&server, &["RPUSH", "{x}:queue", "a"]);
    let seen = lock.inspect().unwrap();
    assert_eq!((seen.holders()[0].token(), seen.waiting()), (None, Some(0)));
    drop(guard);
}

/// Rule 21: the clock of the server was set back since, and the token is ahead of it.
#[test]
fn token_ahead_of_the_clock_tells_no_time() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let ahead = ((seconds + 3_600) * 1_000_000).to_string();
    ask::<()>(&server, &["SET", "{x}:fence", &ahead, "PX", "60000"]);
    ask::<()>(&server, &["ZADD", "{x}:queue", &ahead, "1q:c:1:3000:7:host:waiter"]);
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders()[0].token().unwrap().get().to_string(), ahead);
    assert_eq!((seen.holders()[0].since(), seen.waiters()[0].since()), (None, None));
    ask::<()>(&server, &["DEL", "{x}:queue"]);
    drop(guard);
}

#[test]
fn waiter_that_is_passed_over_has_no_place() {
    let server = server();
    let lock = open(&server).mutex("x").unwrap();
    let _guard = lock.lock().unwrap();
    let queue = "{x}:queue";
    for (place, attempt) in [("-5", "1q:c:1:3000:7:h:dead"), ("6", "1q:c:2:3000:8:h:living")] {
        ask::<()>(&server, &["ZADD", queue, place, attempt]);
    }
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.waiting(), Some(1));
    assert_eq!((seen.waiters()[0].label(), seen.waiters()[0].place()), (Some("living"), 1));
    // Of many the first are listed, and all are counted.
    let mut pipe = redis::pipe();
    for number in 0..1_500 {
        pipe.zadd(queue, format!("1q:c:{number:x}:3000:8:h:many"), 100 + number).ignore();
    }
    pipe.query::<()>(&mut server.connection()).unwrap();
    let seen = lock.inspect().unwrap();
    assert_eq!((seen.waiting(), seen.waiters().len()), (Some(1_501), 1_000));
    assert!(seen.to_string().ends_with("\n  …"));
    ask::<()>(&server, &["DEL", queue]);
}

#[test]
fn redissons_plain_and_fair_lock_are_read_as_far_as_they_tell() {
    let server = server();
    let lock = labelled(&server, "worker").reentrant("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    ask::<()>(&server, &["HSET", "x", SERVICE, "2"]);
    ask::<()>(&server, &["PEXPIRE", "x", "30000"]);
    assert!(exists(&server, "{x}:fence"), "the fence of a hold of ours is left over");
    let seen = lock.inspect().unwrap();
    shown("Redisson's plain lock", &seen);
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!(holder.owner(), SERVICE.as_bytes());
    assert_eq!((holder.token(), holder.since(), holder.pid()), (None, None, None), "made up");
    assert!(holder.ttl().is_some() && seen.waiting().is_none() && seen.waiters().is_empty());

    let waiters =
        ["e9a3d5b2-3c0c-4f4e-9a43-1d2f3b4c5d6e:31", "e9a3d5b2-3c0c-4f4e-9a43-1d2f3b4c5d6e:32"];
    for waiter in waiters {
        ask::<()>(&server, &["RPUSH", "redisson_lock_queue:{x}", waiter]);
        ask::<()>(&server, &["ZADD", "redisson_lock_timeout:{x}", "1795627722131", waiter]);
    }
    let seen = lock.inspect().unwrap();
    shown("Redisson's fair lock", &seen);
    let places: Vec<_> =
        seen.waiters().iter().map(|it| (it.place(), it.owner(), it.since())).collect();
    assert_eq!(places, [(1, waiters[0].as_bytes(), None), (2, waiters[1].as_bytes(), None)]);
    assert_eq!(seen.waiting(), None, "others may listen");

    ask::<()>(&server, &["DEL", "x", "redisson_lock_queue:{x}"]);
    for reader in waiters {
        ask::<()>(&server, &["HSET", "x", "mode", "read", reader, "1"]);
    }
    let seen = lock.inspect().unwrap();
    shown("Redisson's read-write lock with two readers", &seen);
    assert_eq!(seen.holders().len(), 2);
}

#[test]
fn reentrant_lock_shows_its_token_and_where_its_own_holds_are() {
    let server = server();
    let client = labelled(&server, "here");
    let lock = client.reentrant("x").unwrap();
    let guard = lock.lock().unwrap();
    let seen = lock.inspect().unwrap();
    shown("a reentrant lock of this client", &seen);
    assert_eq!(seen.holders()[0].label(), Some("here"));
    assert_eq!(seen.holders()[0].token(), Some(guard.fencing_token()));
    assert!(seen.holders()[0].since().unwrap() < SOON);
    let elsewhere = open(&server).reentrant("x").unwrap();
    let seen = elsewhere.inspect().unwrap();
    shown("the same, asked by another client", &seen);
    assert_eq!((seen.holders()[0].label(), seen.holders()[0].pid()), (None, None));
    assert_eq!(seen.holders()[0].token(), Some(guard.fencing_token()));
    assert_eq!(elsewhere.holder().unwrap().unwrap().token(), Some(guard.fencing_token()));
}

/// Nobody is granted after a writer: so its token is the last one, and those of readers are not known.
#[test]
fn read_write_lock_shows_the_access_of_each_holder_and_the_writers_token() {
    let server = server();
    let lock_of = |label: &str| labelled(&server, label).rw_lock("x").unwrap();
    let (reads, upgrades) = (lock_of("reads"), lock_of("upgrades"));
    let seen = |what: &str| {
        let seen = open(&server).rw_lock("x").unwrap().inspect().unwrap();
        shown(what, &seen);
        let mut holders: Vec<_> = seen
            .holders()
            .iter()
            .map(|it| (it.label().unwrap().to_owned(), it.access().unwrap(), it.token()))
            .collect();
        holders.sort();
        let waiters: Vec<_> =
            seen.waiters().iter().map(|it| (it.place(), it.label().unwrap().to_owned())).collect();
        (holders, waiters)
    };
    let (reader, guard) = (reads.read().unwrap(), upgrades.upgradable_read().unwrap());
    let both = vec![
        ("reads".to_owned(), Access::Read, None),
        ("upgrades".to_owned(), Access::UpgradableRead, None),
    ];
    assert_eq!(seen("a reader and an upgradable one"), (both.clone(), Vec::new()));
    thread::scope(|scope| {
        let writes = scope.spawn(|| drop(lock_of("writes").write().unwrap()));
        until("it stands in the line", || reads.inspect().unwrap().waiting() == Some(1));
        let waiter = vec![(1, "writes".to_owned())];
        assert_eq!(seen("the same, and a writer waits"), (both, waiter.clone()));
        reader.release().unwrap();
        let guard = UpgradableReadGuard::upgrade(guard).unwrap();
        let writer = ("upgrades".to_owned(), Access::Write, Some(guard.fencing_token()));
        assert_eq!(seen("an upgraded reader"), (vec![writer], waiter));
        guard.release().unwrap();
        writes.join().unwrap();
    });
    let guard = reads.write().unwrap();
    let writer = ("reads".to_owned(), Access::Write, Some(guard.fencing_token()));
    assert_eq!(seen("a writer"), (vec![writer], Vec::new()));
    let guard = WriteGuard::downgrade(guard).unwrap();
    let reader = ("reads".to_owned(), Access::Read, None);
    assert_eq!(seen("a writer that reads now"), (vec![reader], Vec::new()));
    guard.release().unwrap();
}

#[test]
fn key_of_another_type_is_refused() {
    let server = server();
    let client = open(&server);
    let _guard = client.reentrant("x").unwrap().lock().unwrap();
    assert!(client.mutex("x").unwrap().inspect().unwrap_err().is_wrong_type());
    ask::<()>(&server, &["SET", "y", "plain"]);
    assert!(client.reentrant("y").unwrap().inspect().unwrap_err().is_wrong_type());
}

#[test]
fn each_server_of_several_says_who_has_its_vote() {
    let servers = servers(3);
    let client = open_several(direct(&servers).label("billing").node_timeout(SOON));
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    until("all have it", || servers.iter().all(|server| exists(server, "x")));
    let seen = lock.inspect().unwrap();
    let text = shown("a lock on three servers", &seen);
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!((holder.label(), holder.token()), (Some("billing"), Some(guard.fencing_token())));
    assert_eq!((seen.servers().len(), seen.waiting()), (3, None));
    for server in seen.servers() {
        assert_eq!(server.holders()[0].token(), holder.token());
        assert!(server.failure().is_none() && text.contains(server.address()));
    }
    // A vote for another, and a server without any.
    ask::<()>(&servers[0], &["SET", "x", "stranger", "PX", "60000"]);
    ask::<()>(&servers[1], &["DEL", "x"]);
    let seen = lock.inspect().unwrap();
    shown("the same, without a majority", &seen);
    assert!(seen.holders().is_empty() && lock.holder().unwrap().is_none());
    let votes: Vec<_> = seen.servers().iter().map(|it| it.holders().len()).collect();
    assert_eq!(votes, [1, 0, 1]);
    // What is known is shown, also where it does not suffice to say who has it.
    servers[0].kill();
    servers[1].kill();
    let hasty = direct(&servers).node_timeout(ms(500)).build().unwrap();
    let lock = hasty.mutex("x").unwrap();
    let seen = lock.inspect().unwrap();
    let text = shown("the same, with two servers gone", &seen);
    assert!(text.starts_with("no holder is known"), "{text}");
    assert_eq!(seen.servers().iter().filter(|it| it.failure().is_some()).count(), 2);
    assert!(lock.holder().unwrap_err().is_unreachable());
    servers[2].kill();
    assert!(lock.inspect().unwrap_err().is_unreachable());
    drop(guard);
}

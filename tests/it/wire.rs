//! Connections: how they are made, what is said when they cannot be, and what a fault of one costs.

use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kind::KINDS;
use crate::common::{
    HASTE, SLACK, SOON, ask, behind_proxy, exists, fixed, hasty, ms, open, open_at, patient,
    server, until, warm, within,
};
use leasehold::{Error, Guard, LockClient, LockClientBuilder, LockOptions, Release, Wait};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

fn tcp() -> Server {
    Server::builder().tcp().start().expect("a server")
}

/// Waits until a lease was renewed so often, and does something all the time.
#[track_caller]
fn until_renewed(guard: &Guard, times: u32, act: impl Fn()) {
    let (mut last, mut renewals) = (guard.remaining(), 0);
    until("it is renewed again and again", || {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        act();
        let before = std::mem::replace(&mut last, guard.remaining());
        renewals += u32::from(last > before);
        renewals >= times
    });
}

fn works(client: &LockClient) {
    client.mutex("works").unwrap().lock().unwrap().release().unwrap();
    client.reentrant("works too").unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn tcp_and_unix_sockets_lead_to_the_same_locks() {
    let server = tcp();
    let (one, two) = (LockClient::open(server.tcp_url()), LockClient::open(server.unix_url()));
    let (one, two) = (one.unwrap(), two.unwrap());
    let _guard = one.mutex("x").unwrap().lock().unwrap();
    assert!(two.mutex("x").unwrap().try_lock().unwrap().is_none());
    assert!(format!("{one:?}").contains(&server.addr().to_string()));
    works(&two);
    let valkey = open_at(format!("valkey://{}", server.addr()));
    works(&valkey);
}

#[test]
fn the_database_of_the_url_is_used() {
    let server = tcp();
    for url in [format!("{}/3", server.tcp_url()), format!("{}?db=3", server.unix_url())] {
        let _guard = open_at(url).mutex("x").unwrap().lock().unwrap();
        assert!(!exists(&server, "x"));
        let mut raw = server.connection();
        redis::cmd("SELECT").arg(3).query::<()>(&mut raw).unwrap();
        assert!(redis::cmd("EXISTS").arg("x").query::<bool>(&mut raw).unwrap());
    }
}

#[test]
fn a_database_that_does_not_exist_is_an_error_at_open() {
    let server = tcp();
    let begin = Instant::now();
    let error = LockClient::open(format!("{}/99", server.tcp_url())).unwrap_err();
    assert!(!error.is_unknown_outcome() && !error.is_timeout(), "{error:?}");
    assert!(begin.spent() < ms(1_000), "{:?}", begin.spent());
}

#[test]
fn resp3_works_as_well() {
    let server = tcp();
    let client = open_at(format!("{}?protocol=resp3", server.tcp_url()));
    works(&client);
    let lock = client.reentrant("x").unwrap();
    let _guard = lock.lock().unwrap();
    assert!(lock.holder().unwrap().is_some());
    let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    client.mutex_with("y", options).unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn password_and_user_are_sent_and_checked() {
    let server = tcp();
    let address = server.addr();
    ask::<()>(&server, &["ACL", "SETUSER", "worker", "on", ">p@ss:w/rd", "~*", "&*", "+@all"]);
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "se#cret"]);
    works(&open_at(format!("redis://:se%23cret@{address}")));
    works(&open_at(format!("redis://worker:p%40ss%3Aw%2Frd@{address}")));
    let unix = format!("{}?user=worker&pass=p%40ss%3Aw%2Frd", server.unix_url());
    works(&open_at(unix));
    for url in [
        format!("redis://:wrong@{address}"),
        format!("redis://worker:wrong@{address}"),
        format!("redis://{address}"),
        format!("{}?pass=wrong", server.unix_url()),
    ] {
        let begin = Instant::now();
        let error = LockClient::open(&url).unwrap_err();
        assert!(error.is_denied(), "{url}: {error:?}");
        assert!(!error.to_string().contains("wrong"), "{error}");
        // Not tried again until some time-out.
        assert!(begin.spent() < ms(700), "{:?}", begin.spent());
        // A lazy client says it at its first lock, and does not ride it out like an outage.
        let begin = Instant::now();
        let error = LockClient::builder(&url).build().unwrap().mutex("x").unwrap().lock();
        assert!(error.unwrap_err().is_denied());
        assert!(begin.spent() < ms(700), "{:?}", begin.spent());
    }
}

/// What the user may not do is said at once, and says which command or key.
#[test]
fn missing_permission_fails_at_once() {
    let server = tcp();
    let user = |name: &str, rules: &[&str]| {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">word", "resetkeys", "&*"];
        words.extend(rules);
        ask::<()>(&server, &words);
        format!("redis://{name}:word@{}", server.addr())
    };
    for url in [
        user("scriptless", &["~*", "+@all", "-eval", "-evalsha"]),
        user("keyless", &["~other", "+@all"]),
        user("readonly", &["%R~*", "+@all"]),
    ] {
        let client = LockClient::builder(&url).build().unwrap();
        let begin = Instant::now();
        for error in [
            client.mutex("x").unwrap().lock().unwrap_err(),
            client.mutex("x").unwrap().try_lock().unwrap_err(),
            client.reentrant("y").unwrap().try_lock_for(SOON).unwrap_err(),
        ] {
            assert!(error.is_denied(), "{url}: {error:?}");
        }
        assert!(begin.spent() < ms(1_500), "{:?}", begin.spent());
        assert!(server.keys().is_empty());
    }
    // A user without PUBLISH can release all the same.
    let url = user("unheard", &["~*", "+@all", "-publish"]);
    let client = open_at(url);
    client.reentrant("x").unwrap().lock().unwrap().release().unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn forgotten_scripts_are_sent_again() {
    let server = server();
    let client = open(&server);
    for kind in KINDS {
        let flush = || ask::<()>(&server, &["SCRIPT", "FLUSH"]);
        flush();
        let guard = kind.open(&client, kind.name).lock().unwrap();
        flush();
        guard.check().unwrap();
        guard.extend(ms(60_000)).unwrap();
        flush();
        guard.release().unwrap();
        assert!(!exists(&server, kind.name));
        flush();
        assert!(!client.mutex("free").unwrap().force_release().unwrap());
    }
    // Renewals too, which travel together.
    let lock = |name: &str| {
        client.mutex_with(name, crate::common::renewed(6_000)).unwrap().lock().unwrap()
    };
    let guards = [lock("a"), lock("b"), lock("c")];
    until_renewed(&guards[0], 3, || ask::<()>(&server, &["SCRIPT", "FLUSH"]));
    for guard in guards {
        assert!(guard.is_valid());
        guard.release().unwrap();
    }
}

#[test]
fn full_server_is_named_in_the_error() {
    let server = Server::builder().tcp().arg("--maxclients").arg("4").start().expect("a server");
    let mut crowd: Vec<_> = (0..4).map(|_| server.connection()).collect();
    // The connection by which its start was seen may not have ended yet, and then one is refused.
    for connection in &mut crowd {
        until("the server takes it", || {
            let taken = redis::cmd("PING").exec(connection).is_ok();
            if !taken {
                *connection = server.connection();
            }
            taken
        });
    }
    for url in [server.tcp_url(), server.unix_url()] {
        let begin = Instant::now();
        let error = LockClient::open(url).unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains("maxclients"), "{error}");
        assert!(begin.spent() < ms(2_000) + SLACK);
    }
    // A password does not make it a denial, nor does a database.
    let url = server.tcp_url().replace("redis://", "redis://:secret@");
    for url in [url.clone(), format!("{}/1", server.tcp_url()), format!("{url}/1")] {
        let error = LockClient::open(url).unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("maxclients"), "{error:?}");
    }
    // It may be over soon, so a wait rides it out.
    let client = LockClient::builder(server.tcp_url()).build().unwrap();
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        thread::sleep(ms(300));
        assert!(!waiter.is_finished());
        drop(crowd);
        waiter.join().unwrap().unwrap();
    });
    assert!(LockClient::open(url).unwrap_err().is_denied());
}

/// It repeats what it was told, and that is told to nobody.
#[test]
fn server_without_hello_reveals_no_password() {
    let renamed = ["--rename-command", "HELLO", ""];
    let server = renamed.iter().fold(Server::builder().tcp(), |builder, word| builder.arg(word));
    let server = server.start().expect("a server");
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "s3cret"]);
    let url = server.tcp_url().replace("redis://", "redis://:s3cret@");
    let [one, other] = [(); 2].map(|()| open_at(&url));
    let guard = one.reentrant("x").unwrap().lock().unwrap();
    let error = other.reentrant("x").unwrap().try_lock_for(SOON).unwrap_err();
    // Valkey 9 tells nobody what it does not know before it knows who asks.
    let names_reason = ["HELLO", "NOAUTH"].iter().any(|word| error.to_string().contains(word));
    assert!(error.is_denied() && names_reason, "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    guard.release().unwrap();
}

/// What a server says to the choice of a database is told as what it is.
#[test]
fn denied_select_is_explained() {
    let server = tcp();
    let url = format!("{}/1", server.tcp_url());
    open_at(&url).mutex("x").unwrap().lock().unwrap().release().unwrap();
    let error = LockClient::open(format!("{url}000000")).unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("out of range"), "{error:?}");
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "secret"]);
    assert!(LockClient::open(&url).unwrap_err().is_denied());
    let url = url.replace("redis://", "redis://:secret@");
    open_at(&url).mutex("x").unwrap().lock().unwrap().release().unwrap();
    let error = LockClient::open(url.replace("secret", "s3cret")).unwrap_err();
    assert!(error.is_denied() && !error.to_string().contains("s3cret"), "{error:?}");
}

#[test]
fn lazy_client_built_during_an_outage_works_after_it() {
    let server = tcp();
    server.kill();
    let begin = Instant::now();
    let client = LockClient::builder(server.tcp_url()).build().unwrap();
    assert!(begin.spent() < ms(300));
    assert!(client.mutex("x").unwrap().try_lock().unwrap_err().is_unreachable());
    server.restart();
    let lock = client.mutex("x").unwrap();
    drop(lock.try_lock_for(SOON).unwrap().expect("free"));
}

#[test]
fn a_wait_rides_out_a_short_outage() {
    let server = tcp();
    server.kill();
    let client = LockClient::builder(server.tcp_url()).build().unwrap();
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        thread::sleep(ms(400));
        server.restart();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn open_reports_why_it_cannot_connect() {
    let server = tcp();
    let urls = [server.tcp_url(), server.unix_url()];
    server.kill();
    for url in urls {
        let begin = Instant::now();
        let error = LockClient::open(&url).unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(std::error::Error::source(&error).is_some());
        let text = error.to_string();
        assert!(text.contains("refused") || text.contains("no socket"), "{text}");
        assert!(begin.spent() < ms(700), "{:?}", begin.spent());
    }
    let error = LockClient::open("redis://no-such-host.invalid").unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
}

/// A script of somebody else holds up the server.
#[test]
fn a_busy_server_is_unreachable_and_is_waited_for() {
    let server = server();
    warm(&server);
    ask::<()>(&server, &["CONFIG", "SET", "lua-time-limit", "20"]);
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let mut stuck = server.connection();
        stuck.set_read_timeout(Some(SOON)).unwrap();
        scope.spawn(move || {
            let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut stuck);
        });
        until("the server is busy", || {
            let answer =
                redis::cmd("GET").arg("x").query::<Option<String>>(&mut server.connection());
            answer.is_err()
        });
        let error = lock.try_lock().unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("BUSY"), "{error:?}");
        let waiter = scope.spawn(|| lock.lock().map(|guard| guard.is_valid()));
        thread::sleep(ms(300));
        assert!(!waiter.is_finished());
        ask::<()>(&server, &["SCRIPT", "KILL"]);
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn a_loading_server_is_unreachable_and_is_waited_for() {
    let server = server();
    warm(&server);
    for setting in [["key-load-delay", "2000"], ["loading-process-events-interval-bytes", "1024"]] {
        ask::<()>(&server, &["CONFIG", "SET", setting[0], setting[1]]);
    }
    ask::<()>(&server, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let mut reload = server.connection();
        reload.set_read_timeout(Some(SOON)).unwrap();
        scope.spawn(move || redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut reload).unwrap());
        until("the server is loading", || {
            let answer =
                redis::cmd("GET").arg("x").query::<Option<String>>(&mut server.connection());
            answer.is_err_and(|error| error.code() == Some("LOADING"))
        });
        let error = lock.try_lock().unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("loading"), "{error:?}");
        drop(lock.lock().unwrap());
    });
}

#[test]
fn a_read_only_replica_is_an_error_and_not_busy() {
    let server = server();
    warm(&server);
    let client = hasty(&server.url());
    ask::<()>(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let begin = Instant::now();
    for error in [
        client.mutex("x").unwrap().try_lock().unwrap_err(),
        client.mutex("x").unwrap().lock().unwrap_err(),
        client.reentrant("y").unwrap().try_lock_for(HASTE).unwrap_err(),
    ] {
        assert!(error.is_unreachable(), "{error:?}");
    }
    assert!(begin.spent() < HASTE * 5 + SLACK, "{:?}", begin.spent());
    ask::<()>(&server, &["REPLICAOF", "NO", "ONE"]);
    works(&client);
}

/// `SET NX` on a key of another type answers nil, which looks like a holder.
#[test]
fn a_key_of_another_type_is_an_error_and_never_busy() {
    let server = server();
    let client = open(&server);
    for (name, words) in [
        ("list", ["LPUSH", "list", "a"].as_slice()),
        ("set", &["SADD", "set", "a"]),
        ("zset", &["ZADD", "zset", "1", "a"]),
        ("hash", &["HSET", "hash", "a", "1"]),
        ("stream", &["XADD", "stream", "*", "a", "1"]),
        ("string", &["SET", "string", "a"]),
    ] {
        ask::<redis::Value>(&server, words);
        let wrong = |error: Error| {
            assert!(error.is_wrong_type(), "{name}: {error:?}");
            assert!(error.to_string().contains(name), "{error}");
        };
        if name != "string" {
            let lock = client.mutex(name).unwrap();
            wrong(lock.lock().unwrap_err());
            wrong(lock.try_lock().unwrap_err());
            wrong(lock.try_lock_for(SOON).unwrap_err());
            wrong(lock.holder().unwrap_err());
            wrong(lock.is_locked().unwrap_err());
        }
        // The hash too: its field is no owner.
        let lock = client.reentrant(name).unwrap();
        wrong(lock.lock().unwrap_err());
        wrong(lock.try_lock().unwrap_err());
        wrong(lock.holder().unwrap_err());
        wrong(lock.is_locked().unwrap_err());
        assert!(exists(&server, name));
    }
}

/// Redis is full: nothing is taken, but what is held is renewed and given back.
#[test]
fn full_memory_refuses_a_lock_but_no_renewal_or_release() {
    let server = server();
    warm(&server);
    let client = open(&server);
    let full = |full: bool| {
        let most = if full { "1" } else { "0" };
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", most]);
    };
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    for of in KINDS {
        let kind = of.name;
        let lock = || of.with(&client, kind, crate::common::renewed(6_000)).lock();
        let guard = lock().unwrap();
        full(true);
        until_renewed(&guard, 2, || ());
        guard.extend(ms(60_000)).unwrap();
        guard.check().unwrap();
        guard.release().unwrap();
        assert!(!exists(&server, kind), "{kind}");
        let begin = Instant::now();
        let error = lock().unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("OOM"), "{kind}: {error:?}");
        assert!(begin.spent() < ms(1_000));
        assert!(!exists(&server, kind), "a half-taken lock is left");
        full(false);
        lock().unwrap().release().unwrap();
    }
}

/// Redis 7.0 refuses every command that a transaction would have to remember while it is full.
#[test]
fn out_of_memory_refuses_no_release_by_watch() {
    let server = server();
    let client = open(&server);
    let options = fixed(20_000).wait(Wait::spin()).release(Release::watch());
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

/// A connection that died unnoticed is found out by the first call that uses it.
#[test]
fn first_lock_works_after_all_connections_were_killed() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    works(&client);
    let accepted = proxy.accepted();
    let kill = || ask::<u64>(&server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(kill() > 0);
    let lock = client.mutex_with("x", fixed(20_000)).unwrap();
    let guard = lock.try_lock().unwrap().expect("free");
    assert!(proxy.accepted() > accepted, "it was killed");
    kill();
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
    kill();
    drop(lock.lock().unwrap());
    kill();
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

/// A call, and how it is made.
type CallOfAll = (&'static str, Box<dyn FnOnce() -> Result<(), Error>>);

/// Each call of a client, with a client of its own.
fn all_calls(server: &Server) -> Vec<CallOfAll> {
    // Over TCP: a write to a socket on this machine whose other end is closed fails at once.
    let client = || open_at(server.tcp_url());
    let options = fixed(60_000);
    let call = |name, call: Box<dyn FnOnce() -> Result<(), Error>>| (name, call);
    let set = |pipe: &mut redis::Pipeline| _ = pipe.cmd("SET").arg("applied").arg(1);

    let held = |name: &str| client().mutex_with(name, options).unwrap().lock().unwrap();
    let mutex = |name: &str| {
        let lock = client().mutex_with(name, options).unwrap();
        lock.is_locked().unwrap();
        lock
    };
    let guards = ["a", "b", "c", "d", "e"].map(held);
    let [checked, extended, released, dropped, applying] = guards;
    let [locked, holder, inspected, forced, asked, taken] =
        ["f", "g", "h", "i", "j", "k"].map(mutex);
    let semaphore = client().semaphore_with("l", 2, options).unwrap();
    let [permit, kept] = [(); 2].map(|()| semaphore.acquire().unwrap());
    let other = client().semaphore_with("l", 2, options).unwrap();
    other.available().unwrap();
    let (resized, limited) = (other.clone(), other);
    let shared = client().rw_lock_with("m", options).unwrap();
    let written = shared.write().unwrap();
    let upgradable = client().rw_lock_with("n", options).unwrap().upgradable_read().unwrap();
    let [listing, naming, asking, several] = [(); 4].map(|()| client());
    several.lock_all([&several.mutex("o").unwrap()]).unwrap().release().unwrap();
    assert!(listing.locks("*").unwrap().all(|lock| lock.is_ok()));
    naming.locks_named("a").unwrap();
    asking.query("a", redis::cmd("PING").arg("x")).unwrap();
    let job = client().once_with("p", leasehold::Period::every(SOON), options).unwrap();
    job.last_run().unwrap();
    let forgotten = client().once_with("q", leasehold::Period::every(SOON), options).unwrap();
    forgotten.last_run().unwrap();

    vec![
        call("check", Box::new(move || checked.check())),
        call("extend", Box::new(move || extended.extend(ms(60_000)))),
        call("release", Box::new(move || released.release())),
        call("transaction", Box::new(move || applying.transaction(set).map(drop))),
        call("transaction of a permit", Box::new(move || permit.transaction(set).map(drop))),
        call("is_locked", Box::new(move || locked.is_locked().map(drop))),
        call("holder", Box::new(move || holder.holder().map(drop))),
        call("inspect", Box::new(move || inspected.inspect().map(drop))),
        call("force_release", Box::new(move || forced.force_release().map(drop))),
        call("request_release", Box::new(move || asked.request_release().map(drop))),
        call("try_lock", Box::new(move || taken.try_lock().map(drop))),
        call("resize", Box::new(move || resized.resize(3))),
        call("limit", Box::new(move || limited.limit().map(drop))),
        call("downgrade", Box::new(move || leasehold::WriteGuard::downgrade(written).map(drop))),
        call(
            "upgrade",
            Box::new(move || leasehold::UpgradableReadGuard::upgrade(upgradable).map(drop)),
        ),
        call("locks", Box::new(move || listing.locks("*")?.try_for_each(|lock| lock.map(drop)))),
        call("locks_named", Box::new(move || naming.locks_named("a").map(drop))),
        call("query", Box::new(move || asking.query("a", redis::cmd("PING").arg("x")).map(drop))),
        call(
            "lock_all",
            Box::new(move || {
                let locks = ["o", "r"].map(|name| several.mutex(name).unwrap());
                several.lock_all(&locks)?.release()
            }),
        ),
        call("last_run", Box::new(move || job.last_run().map(drop))),
        call("forget", Box::new(move || forgotten.forget().map(drop))),
        call(
            "drop",
            Box::new(move || {
                drop((dropped, kept));
                Ok(())
            }),
        ),
    ]
}

/// As behind a balancer that ends idle connections: nothing was sent on one that died while it was idle, so no call is
/// in doubt, and none fails.
#[test]
fn every_call_works_after_all_connections_were_killed() {
    let server = tcp();
    warm(&server);
    let calls = all_calls(&server);
    ask::<()>(&server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("they are gone", || {
        ask::<String>(&server, &["CLIENT", "LIST", "TYPE", "normal"]).lines().count() == 1
    });
    // After a second a connection counts as idle, and is looked at.
    thread::sleep(ms(1_050));
    let failed: Vec<String> = calls
        .into_iter()
        .filter_map(|(name, call)| Some(format!("{name}: {}", call().err()?)))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    until("the guards are gone", || !exists(&server, "d"));
}

/// Only `WATCH` or `MULTI` was sent, so the transaction itself is not in doubt, and is made on another connection.
#[test]
fn transaction_is_repeated_where_its_watch_had_no_reply() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let guard = client.mutex_with("x", fixed(20_000)).unwrap().lock().unwrap();
    for (applied, before) in (1..).zip(["WATCH", "MULTI"]) {
        let cut = proxy.add(Fault::request(before, Action::LoseReply));
        guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("applied")).unwrap();
        assert_eq!((cut.fired(), ask::<u64>(&server, &["GET", "applied"])), (1, applied));
    }
    // It may have been applied.
    let cut = proxy.add(Fault::request("EXEC", Action::LoseReply));
    let error = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("applied")).unwrap_err();
    assert!(error.is_unknown_outcome() && cut.fired() == 1, "{error:?}");
}

#[test]
fn first_lock_works_after_a_restart() {
    let server = tcp();
    let client = open_at(server.tcp_url());
    // Several idle connections, all of which are dead then.
    thread::scope(|scope| {
        for number in 0..6 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || lock.lock().unwrap().release().unwrap());
        }
    });
    server.restart();
    for number in 0..6 {
        let lock = client.mutex(format!("y{number}")).unwrap();
        lock.try_lock().unwrap().expect("free").release().unwrap();
    }
}

#[test]
fn test_on_borrow_finds_a_dead_connection_before_it_is_used() {
    let server = server();
    let client = patient(LockClient::builder(server.url())).test_on_borrow(true).build().unwrap();
    works(&client);
    let lock = client.mutex("x").unwrap();
    let guard = lock.lock().unwrap();
    ask::<u64>(&server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(lock.is_locked().unwrap());
    guard.release().unwrap();
}

/// One test shows that the server is silent; the other connections are not tested one after the other.
#[test]
fn silent_server_is_not_tested_at_every_borrow() {
    const IDLE: usize = 8;
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let builder = LockClient::builder(proxy.url()).test_on_borrow(true).min_idle(8);
    let client = builder.command_timeout(HASTE).connect_timeout(HASTE).build().unwrap();
    works(&client);
    until("they are there", || proxy.connections() >= IDLE);
    thread::sleep(ms(100));
    proxy.black_hole();
    let begin = Instant::now();
    assert!(client.mutex("x").unwrap().try_lock().is_err());
    assert!(begin.spent() < HASTE * 4 + SLACK, "{:?}", begin.spent());
}

/// Once each, and by nobody who did not ask for it.
#[test]
fn connections_are_tested_when_they_are_borrowed() {
    let server = server();
    for (tests, pings) in [(true, 2), (false, 0)] {
        let client =
            patient(LockClient::builder(server.url())).test_on_borrow(tests).build().unwrap();
        works(&client);
        let before = server.command_calls(&["ping"]);
        client.mutex("x").unwrap().lock().unwrap().release().unwrap();
        assert_eq!(server.command_calls(&["ping"]) - before, pings);
    }
}

/// r2d2 looks for them every 30 s.
#[test]
fn idle_connections_and_old_ones_are_closed() {
    let server = server();
    let stage = |set: fn(LockClientBuilder) -> LockClientBuilder| {
        let proxy = Proxy::start(&server).unwrap();
        let client = set(patient(LockClient::builder(proxy.url()))).build().unwrap();
        works(&client);
        assert!(proxy.connections() > 0);
        (proxy, client)
    };
    let (idle, _idle_client) = stage(|builder| builder.idle_timeout(Some(ms(1_000))));
    let (aged, client) = stage(|builder| builder.max_lifetime(Some(ms(1_000))));
    let (kept, _kept_client) = stage(|builder| builder);
    // A client may have been given a second one, where the first was slow to come, and it may be on its way.
    thread::sleep(ms(100));
    let (made, had, open) = (aged.accepted(), idle.accepted(), kept.connections());
    within(SOON * 6, "idle ones are closed, and the one in use is another", || {
        works(&client);
        thread::sleep(ms(100));
        idle.connections() == 0 && aged.accepted() > made
    });
    thread::sleep(ms(100));
    assert_eq!(kept.connections(), open);
    assert_eq!(idle.accepted(), had, "none is made where nobody needs one");
}

/// A thing that is no Redis at all.
#[test]
fn a_server_of_another_protocol_is_an_error_and_no_panic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            thread::sleep(Duration::from_millis(50));
        }
    });
    let begin = Instant::now();
    assert!(LockClient::open(&url).is_err());
    assert!(hasty(&url).mutex("x").unwrap().try_lock().is_err());
    assert!(begin.spent() < HASTE * 4 + SLACK, "{:?}", begin.spent());
}

/// An address that leads to another server by now, while the old one lives on as its replica: whoever
/// stays connected there is refused for ever.
#[test]
fn demoted_master_behind_an_address_is_left_for_the_new() {
    let server = || {
        let builder = Server::builder().tcp().arg("--repl-diskless-sync-delay").arg("0");
        builder.start().expect("a server")
    };
    let (old, new) = (server(), server());
    let follow = |of: &Server, who: &Server| {
        ask::<()>(who, &["REPLICAOF", "127.0.0.1", &of.addr().port().to_string()]);
    };
    follow(&old, &new);
    let proxy = Proxy::start(&old).unwrap();
    let client = open_at(proxy.url());
    let options = crate::common::renewed(9_000);
    let guard = client.mutex_with("held", options).unwrap().lock().unwrap();
    // Several idle connections, and the worker's own.
    thread::scope(|scope| {
        for number in 0..6 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || lock.lock().unwrap().release().unwrap());
        }
    });
    thread::sleep(ms(1_500));
    until("it has reached the replica", || exists(&new, "held"));
    ask::<()>(&new, &["REPLICAOF", "NO", "ONE"]);
    follow(&new, &old);
    proxy.lead_to(&new);
    // Before anybody else finds it out, the worker does.
    until_renewed(&guard, 2, || ());
    for number in 0..8 {
        let lock = client.mutex(format!("y{number}")).unwrap();
        lock.lock().unwrap().release().unwrap();
    }
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(!exists(&new, "held"));
}

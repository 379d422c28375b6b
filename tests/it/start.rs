//! A new client where one thing is wrong: no start fails that could go round it, and the error says what is
//! wrong.

use crate::common::{SOON, ask, exists, ms, until, within};
use leasehold::{Error, LockClient, LockClientBuilder};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault, Group, Proxy, Server};

/// No sentinel takes a server for dead within a test.
const NEVER: std::time::Duration = ms(600_000);

/// Bounds that a busy machine does not meet.
fn patient(builder: LockClientBuilder) -> LockClientBuilder {
    builder.connect_timeout(SOON).command_timeout(SOON)
}

/// A client that looks for the master at these addresses.
fn of(sentinels: &[String]) -> LockClientBuilder {
    patient(LockClient::builder("redis://mymaster").sentinels(sentinels))
}

#[test]
fn one_silent_sentinel_of_three_keeps_no_client_from_starting() {
    let group = Group::start(0, NEVER).unwrap();
    let silent = Proxy::to_addr(group.sentinels[0].addr()).unwrap();
    silent.black_hole();
    for place in 0..3 {
        let mut urls = group.sentinel_urls();
        urls[0] = silent.url();
        urls.rotate_right(place);
        of(&urls).connect_now(true).build().expect("a client that connects at once");
        let lazy = of(&urls).build().unwrap();
        let guard = lazy.mutex("x").unwrap().try_lock().expect("the first call of a lazy client");
        guard.expect("free").release().unwrap();
    }
    assert!(silent.accepted() > 0);
}

#[test]
fn silent_sentinels_are_named_and_not_the_master() {
    let group = Group::start(0, NEVER).unwrap();
    let silent = Proxy::to_addr(group.sentinels[0].addr()).unwrap();
    silent.black_hole();
    let builder = LockClient::builder("redis://mymaster").sentinels([silent.url()]);
    let error = builder.connect_timeout(ms(300)).connect_now(true).build().unwrap_err();
    let text = error.to_string();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(text.contains(&silent.addr().to_string()) && text.contains("sentinel"), "{text}");
    assert!(text.contains("mymaster"), "{text}");
    assert!(!text.contains(&group.servers[0].addr().to_string()), "{text}");
}

/// The sentinels have an old password of the master, and so it is down for each of them, though it works.
#[test]
fn master_that_is_down_for_sentinels_with_an_old_password_is_used() {
    let group = Group::start(0, ms(300)).unwrap();
    let master = &group.servers[0];
    let everywhere = |words: &[&str]| group.sentinels.iter().for_each(|it| ask::<()>(it, words));
    // So many agree never.
    everywhere(&["SENTINEL", "SET", "mymaster", "quorum", "9"]);
    let mut connection = master.connection();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "secret"]).exec(&mut connection).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut connection).unwrap();
    let flags = |sentinel: &Server| {
        let all: Vec<String> = ask(sentinel, &["SENTINEL", "MASTER", "mymaster"]);
        all.into_iter().skip_while(|field| field != "flags").nth(1).expect("flags")
    };
    // A sentinel that a busy machine held up decides nothing for half a minute.
    within(SOON * 6, "it is down for each of them", || {
        group.sentinels.iter().all(|it| flags(it).contains("s_down"))
    });
    let builder = || {
        let builder = LockClient::builder("redis://:secret@mymaster");
        patient(builder.sentinels(group.sentinel_urls())).connect_now(true)
    };
    let client = builder().build().expect("a client of a master that works");
    client.mutex("x").unwrap().try_lock().unwrap().expect("free").release().unwrap();

    // Once they agree, the client does not go there, and says what helps.
    everywhere(&["SENTINEL", "SET", "mymaster", "quorum", "2"]);
    within(SOON * 6, "they agree", || {
        group.sentinels.iter().all(|it| flags(it).contains("o_down"))
    });
    let error = builder().give_up_after(ms(100)).build().unwrap_err();
    let text = error.to_string();
    assert!(error.is_unreachable() && error.is_transient(), "{error:?}");
    for part in ["o_down", "auth-pass", "mymaster", &master.addr().to_string()] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    // Their mend is the end of it.
    everywhere(&["SENTINEL", "SET", "mymaster", "auth-pass", "secret"]);
    within(SOON * 6, "it is up again", || builder().build().is_ok());
}

/// Replies as Redis 6.2 does, which knows no `PEXPIRE … GT`.
fn as_redis_6(proxy: &Proxy) {
    const HELLO: &str = "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.2.14\r\n\
        $5\r\nproto\r\n:2\r\n";
    const ARITY: &str =
        "-ERR Error running script: Wrong number of args calling Redis command From Lua script\r\n";
    proxy.add(Fault::request("HELLO", Action::Garbage(HELLO.into())).sticky());
    old_scripts(proxy);
    proxy.add(Fault::request("", Action::Garbage(ARITY.into())).at(Operation::Renew).sticky());
}

/// The reply of such a server to the script that looks for it.
fn old_scripts(proxy: &Proxy) {
    proxy.add(Fault::request("REDIS_VERSION_NUM", Action::Garbage(":0\r\n".into())).sticky());
}

fn refused_as_too_old(error: &Error, address: &str, version: Option<&str>) {
    let text = error.to_string();
    assert!(error.is_refused() && !error.is_transient(), "{error:?}");
    assert!(text.contains("needs Redis 7.0 or later, or Valkey"), "{text}");
    assert!(text.contains(address), "{text}");
    assert!(version.is_none_or(|version| text.contains(version)), "{text}");
}

/// Their locks were granted, and lost after one lease: only renewals need what the server lacks.
#[test]
fn server_that_is_too_old_is_refused_at_the_first_connection() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    as_redis_6(&proxy);
    let address = proxy.addr().to_string();
    let open = patient(LockClient::builder(proxy.url())).connect_now(true).build();
    refused_as_too_old(&open.unwrap_err(), &address, Some("6.2.14"));
    let lazy = patient(LockClient::builder(proxy.url())).build().unwrap();
    for error in [
        lazy.mutex("m").unwrap().try_lock().err(),
        lazy.mutex("m").unwrap().lock().err(),
        lazy.reentrant("r").unwrap().try_lock().err(),
        lazy.semaphore("s", 2).unwrap().try_acquire().err(),
        lazy.rw_lock("w").unwrap().try_read().err(),
    ] {
        refused_as_too_old(&error.expect("refused"), &address, Some("6.2.14"));
    }
    assert!(server.keys().is_empty() && !exists(&server, "m"));
}

/// A proxy that knows no `HELLO` hides the version: the server shows by a script what it can.
#[test]
fn hidden_version_is_found_out_once_and_by_what_the_server_can() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    let unknown = "-ERR unknown command 'HELLO'\r\n";
    proxy.add(Fault::request("HELLO", Action::Garbage(unknown.into())).sticky());
    let client = patient(LockClient::builder(proxy.url()).min_idle(3)).build().unwrap();
    client.mutex("x").unwrap().try_lock().unwrap().expect("free").release().unwrap();
    until("all are connected", || proxy.connections() >= 4);
    drop(client);

    let older = Proxy::start(&server).unwrap();
    older.add(Fault::request("HELLO", Action::Garbage(unknown.into())).sticky());
    old_scripts(&older);
    let error = patient(LockClient::builder(older.url())).build().unwrap();
    let error = error.semaphore("x", 2).unwrap().try_acquire().unwrap_err();
    refused_as_too_old(&error, &older.addr().to_string(), None);
}

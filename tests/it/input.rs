//! Bad input is refused before any I/O, with an error that names the setting, its value, and what
//! is allowed. No server exists for these tests but where one is named.

use std::time::{Duration, Instant};

use crate::common::log::warnings;
use crate::common::process::in_own_process;
use crate::common::{SOON, ask, fixed, ms, names, open, patient, server};
use leasehold::{DistributedLock, Lease, LockClient, LockClientBuilder, LockOptions, QuorumClient};
use leasehold_support::lag::{self, Spent as _};
use leasehold_support::{Child, Server};

/// Where no server is: any I/O would end in an error of another kind.
const NOWHERE: &str = "unix:///does/not/exist/s";

fn nowhere() -> LockClient {
    LockClient::builder(NOWHERE).build().expect("a client connects when it must")
}

#[test]
fn empty_and_too_long_names_are_rejected() {
    let client = nowhere();
    names(&client.mutex("").unwrap_err(), ["name", "empty", "at least one byte"]);
    names(&client.reentrant("").unwrap_err(), ["name", "empty", "at least one byte"]);
    let long = vec![b'n'; 65_537];
    names(&client.mutex(&long).unwrap_err(), ["name", "65537 bytes", "at most 65536"]);
    names(&client.reentrant(&long).unwrap_err(), ["name", "65537 bytes", "at most 65536"]);
    assert!(client.mutex(&long[1..]).is_ok());
    let prefixed = LockClient::builder(NOWHERE).name_prefix("ab").build().unwrap();
    names(&prefixed.mutex(&long[1..]).unwrap_err(), ["name", "65538 bytes", "name_prefix"]);
    // A prefix alone is no name.
    assert!(prefixed.mutex("").unwrap_err().is_config());
}

#[test]
fn name_equal_to_a_side_key_is_rejected_before_any_io() {
    let client = nowhere();
    let prefixed = LockClient::builder(NOWHERE).name_prefix("{x").build().unwrap();
    let quorum = QuorumClient::builder([NOWHERE]).build().unwrap();
    for (name, of, ending) in [
        ("{x}:fence", "the lock \"x\"", "\":fence\""),
        ("{x}:queue", "the lock \"x\"", "\":queue\""),
        ("{a}:tbeats", "the lock \"{a}\"", "\":tbeats\""),
        ("p{a}b:tnever", "the lock \"p{a}b\"", "\":tnever\""),
        ("{x}:signs", "the lock \"x\"", "\":signs\""),
        ("leasehold:index", "no single lock", "\"leasehold:\""),
        ("redisson_lock__channel:{x}", "no single lock", "\"redisson_lock__channel:\""),
    ] {
        for error in [
            client.mutex(name).unwrap_err(),
            client.reentrant(name).unwrap_err(),
            quorum.mutex(name).unwrap_err(),
            client.try_lock(name, SOON, Lease::default()).unwrap_err(),
        ] {
            names(&error, ["name", of, ending]);
            assert!(error.to_string().contains("reserved"), "{error}");
        }
    }
    // What counts is the whole name.
    names(&prefixed.mutex("}:fence").unwrap_err(), ["name", "\"x\"", "name_prefix included"]);
    assert!(prefixed.mutex(":fence").is_ok() && client.mutex("x}:fence").is_ok());
}

/// The token of the one was written over the owner of the other, who still had a valid guard.
#[test]
fn lock_and_release_change_no_other_lock() {
    let server = server();
    let client = open(&server);
    for name in ["{x}:fence", "{x}:queue", "{x}", "x:fence"] {
        match client.mutex(name) {
            Err(error) => assert!(error.is_config(), "{error}"),
            Ok(lock) => {
                let guard = lock.lock().unwrap();
                client.mutex("x").unwrap().lock().unwrap().release().unwrap();
                guard.check().unwrap();
            }
        }
    }
}

#[test]
fn any_bytes_are_a_name() {
    let server = server();
    let client = open(&server);
    let names: [&[u8]; 12] = [
        b"\0",
        b"a\r\nDEL b\r\n",
        b"\xff\xfe\x00",
        "schl\u{fc}ssel \u{1f512}".as_bytes(),
        b"{a}",
        b"{a}{b}",
        b"}{",
        b"{}",
        b"{",
        b"x{y}z",
        b"%s %d $1 KEYS[1] ' \"",
        &[b'n'; 65_536],
    ];
    for name in names {
        let lock = client.mutex(name).unwrap();
        assert_eq!(lock.name(), name);
        let guard = lock.lock().unwrap();
        assert!(server.keys().iter().any(|key| key == name), "{}", name.escape_ascii());
        assert!(open(&server).mutex(name).unwrap().try_lock().unwrap().is_none());
        guard.check().unwrap();
        guard.release().unwrap();
        assert!(!server.keys().iter().any(|key| key == name), "{}", name.escape_ascii());
        let reentrant = client.reentrant(name).unwrap();
        drop(reentrant.lock().unwrap());
        assert!(!reentrant.is_locked().unwrap());
    }
    // Nothing of a name was taken for a command.
    assert_eq!(ask::<Option<String>>(&server, &["GET", "b"]), None);
}

#[test]
fn odd_name_is_escaped_in_messages() {
    let server = server();
    let client = open(&server);
    ask::<()>(&server, &["LPUSH", "a\r\nb\u{1b}[31m", "value"]);
    let error = client.mutex("a\r\nb\u{1b}[31m").unwrap().try_lock().unwrap_err();
    assert!(error.is_wrong_type());
    assert!(!error.to_string().contains(['\r', '\n', '\u{1b}']), "{error:?}");
}

/// Thirty days, in milliseconds.
const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;

#[test]
fn a_lease_is_from_a_millisecond_to_thirty_days() {
    let client = nowhere();
    for (ttl, shown) in [
        (Duration::ZERO, "0s"),
        (Duration::from_nanos(1), "1ns"),
        (Duration::from_micros(999), "999µs"),
        (ms(MONTH + 1), "30d is too long"),
        (Duration::MAX, "Duration::MAX"),
    ] {
        for lease in [Lease::fixed(ttl), Lease::renewed(ttl)] {
            let options = LockOptions::new().lease(lease);
            let allowed = ["lease", shown, "1ms to 30 days"];
            names(&client.mutex_with("x", options).unwrap_err(), allowed);
            names(&client.reentrant_with("x", options).unwrap_err(), allowed);
        }
        let options = LockOptions::new().max_hold(ttl);
        let error = client.mutex_with("x", options).unwrap_err();
        names(&error, ["max_hold", shown, "1ms to 30 days"]);
    }
    for ttl in [1, MONTH] {
        assert!(client.mutex_with("x", fixed(ttl).max_hold(ms(ttl))).is_ok());
    }
    let linger = |linger| client.mutex_with("x", LockOptions::new().linger(linger));
    names(&linger(ms(MONTH + 1)).unwrap_err(), ["linger", "30d is too long", "at most 30 days"]);
    assert!(linger(ms(MONTH)).is_ok() && linger(Duration::ZERO).is_ok());
    let skew = |skew| LockClient::builder("redis://localhost").max_clock_skew(skew).build();
    let allowed = ["max_clock_skew", "30d is too long", "at most 30 days"];
    names(&skew(ms(MONTH + 1)).unwrap_err(), allowed);
    assert!(skew(ms(MONTH)).is_ok() && skew(Duration::ZERO).is_ok());
    let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    let quorum = QuorumClient::builder(servers).max_clock_skew(ms(MONTH + 1));
    names(&quorum.build().unwrap_err(), allowed);
}

/// Regression, rslock: `validity - 500` underflowed, and the key was stranded.
#[test]
fn too_short_lease_is_no_guard_and_leaves_no_key() {
    let server = server();
    let client = open(&server);
    for ttl in [1, 2] {
        let error = client.mutex_with("x", fixed(ttl)).unwrap().try_lock().unwrap_err();
        assert!(error.is_timeout() && error.to_string().contains("longer lease"), "{error}");
        crate::common::until("the key is gone", || !crate::common::exists(&server, "x"));
    }
}

#[test]
fn urls_are_given_as_any_kind_of_text() {
    let builder = || LockClient::builder("redis://a");
    let (borrowed, owned) = (vec!["redis://b", "redis://c"], vec!["redis://b".to_owned()]);
    for given in [
        builder().sentinels(&borrowed),
        builder().sentinels(&borrowed[..]),
        builder().sentinels(borrowed.iter().map(|url| std::borrow::Cow::from(*url))),
        builder().sentinels(&owned),
        builder().cluster(&borrowed),
        builder().cluster(&borrowed[..]),
        builder().cluster(borrowed.clone()),
        builder().cluster(&owned),
        builder().cluster(owned.clone()),
        builder().cluster([""; 0]),
    ] {
        given.build().unwrap();
    }
}

/// The warning of a lease shorter than ten command time-outs, once for each client.
#[test]
fn lease_below_ten_command_timeouts_warns() {
    in_own_process!();
    let warned = |name| warnings(&[name, "shorter than ten times"]);
    assert_eq!(warned("short-lease"), 0);
    let client = LockClient::builder(NOWHERE).command_timeout(ms(200)).build().unwrap();
    client.mutex_with("long-lease", fixed(2_000)).unwrap();
    for _ in 0..3 {
        client.mutex_with("short-lease", fixed(1_999)).unwrap();
        assert!(client.try_lock("short-lease", Duration::ZERO, Lease::fixed(ms(1_999))).is_err());
    }
    assert_eq!((warned("short-lease"), warned("long-lease")), (1, 0));
}

#[test]
fn zero_sizes_and_timeouts_are_rejected() {
    type Set = fn(LockClientBuilder) -> LockClientBuilder;
    let zero = Duration::ZERO;
    assert!(zero.is_zero());
    let cases: [(Set, [&str; 3]); 16] = [
        (|b| b.max_size(0), ["max_size", "0", "at least 1"]),
        (|b| b.max_size(65_537), ["max_size", "65537", "at most 65536"]),
        (|b| b.max_size(u32::MAX), ["max_size", "4294967295", "at most 65536"]),
        (|b| b.max_size(2).min_idle(3), ["min_idle", "3", "at most max_size, which is 2"]),
        (|b| b.max_size(2).max_idle(3), ["max_idle", "3", "0 to 2"]),
        (|b| b.min_idle(2).max_idle(1), ["max_idle", "1", "2 to 10"]),
        (|b| b.max_wait(Duration::ZERO), ["max_wait", "0s", "1ms to"]),
        (|b| b.idle_timeout(Some(Duration::ZERO)), ["idle_timeout", "0s", "1ms to"]),
        (|b| b.max_lifetime(Some(Duration::ZERO)), ["max_lifetime", "0s", "1ms to"]),
        (|b| b.connect_timeout(Duration::ZERO), ["connect_timeout", "0s", "1ms to"]),
        (|b| b.command_timeout(Duration::ZERO), ["command_timeout", "0s", "1ms to"]),
        (|b| b.give_up_after(Duration::ZERO), ["give_up_after", "0s", "1ms to"]),
        (|b| b.max_wait(Duration::MAX), ["max_wait", "Duration::MAX", "365 days"]),
        (|b| b.connect_timeout(Duration::MAX), ["connect_timeout", "Duration::MAX", "365 days"]),
        (|b| b.command_timeout(Duration::MAX), ["command_timeout", "Duration::MAX", "365 days"]),
        (|b| b.give_up_after(Duration::MAX), ["give_up_after", "Duration::MAX", "365 days"]),
    ];
    for (set, parts) in cases {
        for connect in [false, true] {
            let builder = set(LockClient::builder(NOWHERE)).connect_now(connect);
            names(&builder.build().unwrap_err(), parts);
        }
    }
    let builder = QuorumClient::builder([NOWHERE]).max_size(u32::MAX);
    names(&builder.build().unwrap_err(), ["max_size", "4294967295", "at most 65536"]);
    assert!(LockClient::builder(NOWHERE).max_size(65_536).build().is_ok());
}

#[test]
fn longest_allowed_timeouts_do_not_overflow() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let server = server();
    let client = LockClient::builder(server.url())
        .max_wait(YEAR)
        .connect_timeout(YEAR)
        .command_timeout(YEAR)
        .give_up_after(YEAR)
        .idle_timeout(Some(YEAR))
        .max_lifetime(Some(YEAR))
        .connect_now(true)
        .build()
        .unwrap();
    let lock = client.mutex_with("x", fixed(30 * 24 * 60 * 60 * 1000)).unwrap();
    lock.try_lock_for(YEAR * 1_000).unwrap().expect("free").release().unwrap();
    lock.try_lock_for(Duration::MAX).unwrap().expect("free").release().unwrap();
}

#[test]
fn bad_url_error_names_part_value_and_allowed_ones() {
    lag::watch();
    for (url, parts) in [
        ("", ["url", "empty", "redis://"]),
        ("localhost:6379", ["url scheme", "missing", "redis://"]),
        ("http://localhost", ["url scheme", "http", "redis://"]),
        ("redis://localhost:99999", ["url port", "99999", "1 to 65535"]),
        ("redis://localhost:0", ["url port", "0", "1 to 65535"]),
        ("redis://", ["url host", "empty", "host[:port]"]),
        ("redis://:6379", ["url host", "empty", "host[:port]"]),
        ("redis://user:word@:6379", ["url host", "empty", "host[:port]"]),
        ("redis://localhost/-1", ["url database", "-1", "a number from 0"]),
        ("redis://localhost/one", ["url database", "one", "a number from 0"]),
        ("redis://localhost/99999999999", ["url database", "99999999999", "a number from 0"]),
        ("unix://relative/path", ["url path", "relative", "unix:///path"]),
        ("unix:///socket?db=-1", ["url database", "-1", "a number from 0"]),
        #[cfg(not(feature = "tls"))]
        ("rediss://localhost", ["url scheme", "rediss", "feature `tls`"]),
        #[cfg(not(feature = "tls"))]
        ("valkeys://localhost", ["url scheme", "valkeys", "feature `tls`"]),
    ] {
        let begin = Instant::now();
        names(&LockClient::open(url).expect_err(url), parts);
        names(&LockClient::builder(url).build().expect_err(url), parts);
        assert!(begin.spent() < ms(500), "{url}");
    }
}

#[test]
fn nonsense_urls_are_errors_and_no_panics() {
    for url in [
        "://",
        "redis:",
        "redis:/",
        "redis:///",
        "redis://[",
        "redis://[::1",
        "redis://]:1",
        "redis://@",
        "redis://@@@",
        "redis://:@",
        "redis://h:1:2",
        "redis://h%zz",
        "redis://h/0/1",
        "redis://h?protocol=bogus",
        "unix://",
        "unix:///?",
        "unix:///s?db=x",
        "\0",
        "redis://\0",
        "redis:// ",
        "redis://h/ ",
        "redis://h:٣",
        "redis://h:+1",
    ] {
        if let Err(error) = LockClient::builder(url).build() {
            assert!(error.is_config(), "{url}: {error:?}");
        }
    }
}

/// Neither in an error's text nor in its debug form nor in its sources, nor by what has the URL.
#[test]
fn a_password_is_never_shown() {
    let listening = server();
    ask::<()>(&listening, &["CONFIG", "SET", "requirepass", "other"]);
    let path = listening.socket().display();
    let urls = [
        "redis://user:s3cret@localhost:99999".to_owned(),
        "redis://:s3/cret@localhost".to_owned(),
        "redis://:s3?cret@localhost".to_owned(),
        "redis://:s3#cret@localhost".to_owned(),
        "redis://:s3@cret@127.0.0.1:1".to_owned(),
        "redis://:s3:cret@127.0.0.1:1".to_owned(),
        "redis://:s3cret@".to_owned(),
        "redis://default:s3cret".to_owned(),
        "redis://default:s3cret/0".to_owned(),
        "redis://:s3cret@[".to_owned(),
        "redis://:s3cret@127.0.0.1/s".to_owned(),
        "redis//:s3cret@localhost".to_owned(),
        ":s3cret@localhost".to_owned(),
        "unix:///does/not/exist?pass=s3cret".to_owned(),
        "unix:///does/not/exist?pass=s3cret&db=x".to_owned(),
        "unix://relative?pass=s3cret".to_owned(),
        "rediss://:s3cret@localhost".to_owned(),
        "http://:s3cret@localhost".to_owned(),
        format!("unix://{path}?pass=s3cret"),
        format!("unix://{path}?user=me&pass=s3cret"),
    ];
    for url in &urls {
        let builder = LockClient::builder(url).connect_timeout(ms(300)).connect_now(true);
        let mut shown = format!("{builder:?}");
        match builder.build() {
            Ok(client) => shown += &format!("{client:?} {:?}", client.mutex("x").unwrap()),
            Err(error) => {
                shown += &format!(" {error} {error:?} {error:#?}");
                let mut source = std::error::Error::source(&error);
                while let Some(inner) = source {
                    shown += &format!(" {inner} {inner:?}");
                    source = inner.source();
                }
            }
        }
        for part in ["s3", "cret"] {
            assert!(!shown.contains(part), "{url}: {shown}");
        }
        if let Ok(client) = LockClient::builder(url).build() {
            let lock = client.mutex("x").unwrap();
            let shown = format!("{client:?} {lock:?}");
            assert!(!shown.contains("s3") && !shown.contains("cret"), "{url}: {shown}");
        }
    }
}

/// The part that a person has to escape is named, and how.
#[test]
fn unescaped_characters_of_a_password_are_explained() {
    for url in ["redis://:a/b@host", "redis://:a?b@host", "redis://u:a#b@host:1"] {
        names(&LockClient::open(url).unwrap_err(), ["password", "unescaped", "%2F"]);
    }
}

/// The last `@` ends the password, and the first `:` begins it.
#[test]
fn password_with_an_at_sign_and_a_colon_needs_no_escape() {
    let server = Server::builder().tcp().start().unwrap();
    ask::<()>(&server, &["ACL", "SETUSER", "worker", "on", ">s3@:cret", "~*", "&*", "+@all"]);
    let url = format!("redis://worker:s3@:cret@{}", server.addr());
    let client = patient(LockClient::builder(url)).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    assert!(!format!("{client:?}").contains("cret"));
}

#[test]
fn settings_and_handles_do_no_io() {
    lag::watch();
    let client = LockClient::builder(NOWHERE)
        .name_prefix([0, 255])
        .label("a\r\nb\0".repeat(100))
        .min_idle(0)
        .on_loss(|_| {})
        .build()
        .unwrap();
    let begin = Instant::now();
    for number in 0..1_000_u32 {
        let lock = client.mutex(number.to_be_bytes()).unwrap();
        assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    }
    assert!(begin.spent() < ms(2_000));
}

/// A client needs a thread for each server that it connects to; in a cluster it is started within a
/// call, which may be that of a guard's drop.
#[test]
fn failed_thread_start_is_an_error_and_no_panic() {
    // No machine has the memory for such a stack.
    const STACK: (&str, &str) = ("RUST_MIN_STACK", "1152921504606846976");
    if std::env::var(STACK.0).as_deref() != Ok(STACK.1) {
        let name = "input::failed_thread_start_is_an_error_and_no_panic";
        let child = Child::role("threadless").test(name).env(STACK.0, STACK.1).start();
        let mut child = child.unwrap();
        let status = child.wait();
        let output = child.output();
        assert!(status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| {}).is_err());
    let refused = |error: leasehold::Error| {
        assert!(
            error.is_unreachable() && error.to_string().contains("limit on threads"),
            "{error}"
        );
    };
    refused(LockClient::open(NOWHERE).unwrap_err());
    refused(QuorumClient::builder([NOWHERE]).build().unwrap_err());
    let cluster = LockClient::builder("redis://127.0.0.1:1").cluster([""; 0]).build().unwrap();
    refused(cluster.mutex("x").unwrap().try_lock().unwrap_err());
}

/// What is sent on a pooled connection must leave it as it was: in another database the next lock
/// would be given away twice.
#[test]
fn a_transaction_does_not_change_its_connection() {
    let server = server();
    let client = LockClient::builder(server.url()).max_size(1).build().unwrap();
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let rows: [&[&str]; 18] = [
        &["SELECT", "1"],
        &["select", "1"],
        &["Auth", "default", "word"],
        &["HELLO", "3"],
        &["RESET"],
        &["CLIENT", "REPLY", "OFF"],
        &["QUIT"],
        &["MONITOR"],
        &["SYNC"],
        &["PSYNC", "?", "-1"],
        &["SUBSCRIBE", "channel"],
        &["PSUBSCRIBE", "channel"],
        &["SSUBSCRIBE", "channel"],
        &["MULTI"],
        &["EXEC"],
        &["discard"],
        &["WATCH", "y"],
        &["UNWATCH"],
    ];
    server.reset_stats();
    for row in rows {
        let error = guard
            .transaction(|pipe| {
                pipe.cmd("SET").arg("y").arg(1).cmd(row[0]).arg(&row[1..]);
            })
            .unwrap_err();
        names(&error, ["transaction", row[0], "commands on data"]);
        assert!(error.to_string().contains("lock \"x\""), "{error}");
    }
    let error = guard.transaction(|pipe| _ = pipe.add_command(redis::Cmd::new())).unwrap_err();
    names(&error, ["transaction", "\"\"", "commands on data"]);
    assert_eq!(server.command_calls(&["watch", "multi", "set"]), 0);
    // Words of a command's are its own affair.
    let done = guard.transaction(|pipe| _ = pipe.cmd("SET").arg("y").arg("SELECT")).unwrap();
    assert_eq!(done.len(), 1);
    let other = open(&server).mutex("z").unwrap().lock().unwrap();
    assert!(client.mutex("z").unwrap().try_lock().unwrap().is_none(), "{other:?}");
}

/// What has no host may be a password, and what switches verification off is not overlooked.
#[test]
fn a_port_that_is_no_number_and_a_fragment_are_refused() {
    for (url, parts) in [
        ("redis://localhost:6379x", ["url port", "not a number", "1 to 65535"]),
        ("redis://default:hunter2", ["url port", "not a number", "1 to 65535"]),
        ("redis://localhost:-1", ["url port", "not a number", "1 to 65535"]),
        #[cfg(feature = "tls")]
        (
            "rediss://localhost/#insecure",
            ["url fragment", "#insecure", "certificate checks cannot be turned off"],
        ),
        #[cfg(feature = "tls")]
        (
            "valkeys://localhost:1#insecure",
            ["url fragment", "#insecure", "certificate checks cannot be turned off"],
        ),
    ] {
        let error = LockClient::open(url).unwrap_err();
        names(&error, parts);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

//! Bad input: refused before any I/O, with an error that names the setting, its value, and what is
//! allowed; and odd input that is none.

use std::thread;
use std::time::Duration;

use leasehold::{Error, LockClient, LockClientBuilder, QuorumClient};

use crate::common::log::warnings;
use crate::common::{ask, exists, fixed, ms, names, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial};

kinds! {
    empty_name "empty-name@input" "E";
    long_name "long-name@input" "E";
    odd_names "odd-names@input" "S";
    names_in_braces "braces@input" "S";
    zero_lease "lease-0@input" "E";
    lease_below_a_millisecond "lease-below-1ms@input" "E";
    lease_above_the_most "lease-above-30d@input" "E";
    lease_without_end "lease-max@input" "E";
    short_lease "lease-short@input" "E";
    zero_wait "wait-0@input" "E";
    wait_without_end "wait-max@input" "L";
    zero_pool_size "pool-size-0@input" "E";
    zero_pool_timeout "pool-timeout-0@input" "E";
    zero_read_timeout "read-timeout-0@input" "E";
    zero_connect_timeout "connect-timeout-0@input" "E";
    empty_url "url-empty@input" "E";
    url_of_another_scheme "url-scheme@input" "E";
    url_of_no_port "url-port@input" "E";
    url_without_a_host "url-host@input" "E";
    url_of_no_database "url-database@input" "E";
    url_with_a_bare_password "url-password@input" "E";
    url_with_tls "url-rediss@input" "E";
    quorum_without_servers "quorum-0@input" "E";
    quorum_with_a_duplicate "quorum-duplicate@input" "E";
    quorum_of_an_even_number "quorum-even@input" "E";
}

/// So many errors were to come, and these came; each names what it must. Nobody connected for them.
#[track_caller]
fn refused(trial: &Trial, errors: &[Error], parts: [&str; 3]) {
    errors.iter().for_each(|error| names(error, parts));
    assert_eq!(trial.proxy.accepted(), 0, "there was I/O");
    let count = errors.len() as u64;
    trial.witnessed(count, count, "the error's text");
}

/// A client that has not connected yet.
fn lazy(trial: &Trial) -> LockClient {
    trial.builder().connect_now(false).build().unwrap()
}

#[track_caller]
fn name_is_refused(trial: &Trial, name: &[u8], parts: [&str; 3]) {
    let client = lazy(trial);
    let errors = [client.mutex(name).map(drop), client.reentrant(name).map(drop)];
    refused(trial, &errors.map(Result::unwrap_err), parts);
}

fn empty_name(trial: &Trial) {
    name_is_refused(trial, b"", ["name", "empty", "at least one byte"]);
}

fn long_name(trial: &Trial) {
    name_is_refused(trial, &[b'n'; 65_537], ["name", "65537 bytes", "at most 65536"]);
}

/// They are names like all others.
fn are_names(trial: &Trial, all: &[&[u8]]) {
    let (client, rival) = (trial.client(), LockClient::open(trial.server.url()).unwrap());
    for name in all {
        let guard = client.mutex_with(name, renewed(LEASE)).unwrap().lock().unwrap();
        let there = trial.server.keys().iter().any(|key| key == name);
        trial.witnessed(1, there.into(), "SCAN");
        assert!(rival.mutex(name).unwrap().try_lock().unwrap().is_none());
        guard.release().unwrap();
        assert!(!trial.server.keys().iter().any(|key| key == name));
    }
}

fn odd_names(trial: &Trial) {
    let long = [b'n'; 65_536];
    are_names(trial, &[b"\0", b"a\r\nDEL b\r\n", b"\xff\xfe", "schl\u{fc}ssel".as_bytes(), &long]);
}

fn names_in_braces(trial: &Trial) {
    are_names(trial, &[b"{a}", b"{a}{b}", b"}{", b"{}", b"{", b"x{y}z"]);
}

#[track_caller]
fn lease_is_refused(trial: &Trial, ttl: Duration, shown: &str) {
    let client = lazy(trial);
    let all = [leasehold::Lease::fixed(ttl), leasehold::Lease::renewed(ttl)].map(|lease| {
        let options = leasehold::LockOptions::new().lease(lease);
        client.mutex_with(KEY, options).map(drop).unwrap_err()
    });
    refused(trial, &all, ["lease", shown, "1ms to 30 days"]);
}

fn zero_lease(trial: &Trial) {
    lease_is_refused(trial, Duration::ZERO, "0s");
}

fn lease_below_a_millisecond(trial: &Trial) {
    lease_is_refused(trial, Duration::from_micros(999), "999µs");
}

fn lease_above_the_most(trial: &Trial) {
    lease_is_refused(trial, ms(30 * 24 * 60 * 60 * 1_000 + 1), "30d is too long");
}

fn lease_without_end(trial: &Trial) {
    lease_is_refused(trial, Duration::MAX, "Duration::MAX");
}

/// One that is shorter than ten command time-outs is allowed, and warned of.
fn short_lease(trial: &Trial) {
    // A trial that is void is repeated, and the log is the process's.
    let before = warnings(&["lock \"short\""]);
    let client = lazy(trial);
    client.mutex_with("short", fixed(2_999)).unwrap();
    client.mutex_with("long", fixed(3_000)).unwrap();
    let warned = warnings(&["lock \"short\""]) - before;
    trial.witnessed(1, warned as u64, "the log");
    assert_eq!(warnings(&["lock \"long\""]), 0);
}

/// It is one attempt.
fn zero_wait(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    let before = trial.server.commands();
    assert!(trial.timed(COMMAND, || lock.try_lock_for(Duration::ZERO)).unwrap().is_none());
    let sent = trial.server.commands().since(&before).client_commands(&[]);
    trial.witnessed(1, u64::from(sent == 1), "INFO commandstats");
    assert_eq!(trial.waiting(), 0);
    held.release().unwrap();
}

/// There is no deadline then, and no overflow.
fn wait_without_end(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(Duration::MAX).unwrap().expect("granted");
            trial.granted(&guard);
            guard.release().unwrap();
        });
        until("it waits", || trial.waiting() == 1);
        trial.witnessed(1, trial.waiting(), "ZCARD");
        held.release().unwrap();
        waiter.join().unwrap();
    });
    assert!(!exists(&trial.server, KEY));
}

#[track_caller]
fn setting_is_refused(
    trial: &Trial,
    set: fn(LockClientBuilder) -> LockClientBuilder,
    parts: [&str; 3],
) {
    let errors = [true, false].map(|now| set(trial.builder().connect_now(now)).build());
    refused(trial, &errors.map(|client| client.map(drop).unwrap_err()), parts);
}

fn zero_pool_size(trial: &Trial) {
    setting_is_refused(trial, |builder| builder.max_size(0), ["max_size", "0", "at least 1"]);
}

fn zero_pool_timeout(trial: &Trial) {
    let set = |builder: LockClientBuilder| builder.max_wait(Duration::ZERO);
    setting_is_refused(trial, set, ["max_wait", "0s", "1ms to"]);
}

fn zero_read_timeout(trial: &Trial) {
    let set = |builder: LockClientBuilder| builder.command_timeout(Duration::ZERO);
    setting_is_refused(trial, set, ["command_timeout", "0s", "1ms to"]);
}

fn zero_connect_timeout(trial: &Trial) {
    let set = |builder: LockClientBuilder| builder.connect_timeout(Duration::ZERO);
    setting_is_refused(trial, set, ["connect_timeout", "0s", "1ms to"]);
}

#[track_caller]
fn url_is_refused(trial: &Trial, url: &str, parts: [&str; 3]) {
    let errors = [LockClient::open(url), LockClient::builder(url).build()];
    refused(trial, &errors.map(|client| client.map(drop).unwrap_err()), parts);
}

fn empty_url(trial: &Trial) {
    url_is_refused(trial, "", ["url", "empty", "redis://"]);
}

fn url_of_another_scheme(trial: &Trial) {
    url_is_refused(
        trial,
        &trial.proxy.url().replace("redis:", "http:"),
        ["url scheme", "http", "redis://"],
    );
}

fn url_of_no_port(trial: &Trial) {
    url_is_refused(trial, "redis://127.0.0.1:99999", ["url port", "99999", "1 to 65535"]);
}

fn url_without_a_host(trial: &Trial) {
    url_is_refused(trial, "redis://:6379", ["url host", "empty", "host[:port]"]);
}

fn url_of_no_database(trial: &Trial) {
    let url = format!("{}/-1", trial.proxy.url());
    url_is_refused(trial, &url, ["url database", "-1", "a number from 0"]);
}

/// What has to be escaped is told; the password is not.
fn url_with_a_bare_password(trial: &Trial) {
    let address = trial.proxy.addr();
    for sign in ["/", "?", "#"] {
        let url = format!("redis://:s3{sign}cret@{address}");
        url_is_refused(trial, &url, ["password", "unescaped", "%2F"]);
        let shown = format!("{:?}", LockClient::open(&url).unwrap_err());
        assert!(!shown.contains("s3") && !shown.contains("cret"), "{shown}");
    }
    // An `@` or a `:` is taken for a part of it.
    ask::<()>(&trial.server, &["ACL", "SETUSER", "worker", "on", ">s3@:cret", "~*", "&*", "+@all"]);
    let client = LockClient::open(format!("redis://worker:s3@:cret@{address}")).unwrap();
    let guard = client.mutex_with(KEY, renewed(LEASE)).unwrap().lock().unwrap();
    assert!(!format!("{client:?}").contains("cret"));
    trial.granted(&guard);
}

/// Without the feature it says so; with it, a server that has no TLS is an error in time.
fn url_with_tls(trial: &Trial) {
    let url = trial.proxy.url().replace("redis:", "rediss:");
    let builder = LockClient::builder(&url).command_timeout(COMMAND).connect_timeout(COMMAND);
    let error = builder.connect_now(true).build().map(drop).unwrap_err();
    if !error.is_config() {
        assert!(error.is_unreachable() || error.is_refused(), "{error:?}");
        trial.witnessed(1, trial.proxy.accepted().min(1), "the proxy");
    } else {
        refused(trial, &[error], ["url", "rediss://", "feature `tls`"]);
    }
}

fn quorum_without_servers(trial: &Trial) {
    let url = trial.proxy.url();
    let errors = [
        QuorumClient::builder([&url]).quorum(0).build().map(drop).unwrap_err(),
        QuorumClient::builder([&url, "redis://b", "redis://c"])
            .quorum(0)
            .build()
            .map(drop)
            .unwrap_err(),
    ];
    refused(trial, &errors, ["quorum", "0", "a majority"]);
    let none: [&str; 0] = [];
    let error = QuorumClient::builder(none).build().map(drop).unwrap_err();
    refused(trial, &[error], ["urls", "empty", "at least one"]);
}

fn quorum_with_a_duplicate(trial: &Trial) {
    let url = trial.proxy.url();
    let builder = QuorumClient::builder([url.as_str(), "redis://other", &url]);
    let address = trial.proxy.addr().to_string();
    refused(trial, &[builder.build().map(drop).unwrap_err()], ["urls", &address, "once"]);
}

/// It bears no more losses than with one server less: allowed, and warned of.
fn quorum_of_an_even_number(trial: &Trial) {
    let url = trial.proxy.url();
    let build = |others: &[&str]| {
        QuorumClient::builder([&[url.as_str()], others].concat()).build().unwrap();
    };
    let before = warnings(&["servers survive the loss of"]);
    build(&["redis://a", "redis://b"]);
    assert_eq!(warnings(&["servers survive the loss of"]), before);
    build(&["redis://a", "redis://b", "redis://c"]);
    let warned = warnings(&["servers survive the loss of"]) - before;
    trial.witnessed(1, warned as u64, "the log");
    assert_eq!(trial.proxy.accepted(), 0);
}

//! What the tests of this folder share.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each program uses its own part of this"
)]

pub(crate) mod detour;
pub(crate) mod kind;
pub(crate) mod log;
pub(crate) mod process;
pub(crate) mod queue;
pub(crate) mod several;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Error, Guard, Lease, LockClient, LockClientBuilder, LockOptions};
use leasehold_support::lag;
use leasehold_support::{Proxy, Server};
pub(crate) use leasehold_support::{heavy, until, within};
use redis::FromRedisValue;

use kind::KINDS;

/// The longest that a test waits for what must come: an upper bound, and no setting of a client.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The time-outs of clients in tests that are not about time-outs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a noisy machine may add to a bound, besides the time that it does not run at all.
pub(crate) const SLACK: Duration = ms(500);

pub(crate) const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

pub(crate) fn server() -> Server {
    lag::watch();
    Server::start().expect("a server")
}

/// A client for tests that are not about time-outs: a machine that stands still for a while fails no call.
pub(crate) fn open(server: &Server) -> LockClient {
    open_at(server.url())
}

/// The same at another address, such as that of a proxy.
pub(crate) fn open_at(url: impl AsRef<str>) -> LockClient {
    patient(LockClient::builder(url)).build().expect("a client")
}

/// A client with the time-outs that users have by default, for tests about them.
pub(crate) fn open_default(server: &Server) -> LockClient {
    LockClient::open(server.url()).expect("a client")
}

/// Time-outs that no pause of the machine reaches.
pub(crate) fn patient(builder: LockClientBuilder) -> LockClientBuilder {
    builder.command_timeout(PATIENCE).connect_timeout(PATIENCE).max_wait(PATIENCE)
}

/// A server that knows all scripts, and a proxy before it.
pub(crate) fn behind_proxy() -> (Server, Proxy) {
    let server = server();
    warm(&server);
    let proxy = Proxy::start(&server).expect("a proxy");
    (server, proxy)
}

/// How long a hasty client waits for an answer, a connection, or a free one: longer than a machine
/// stands still, as it does now and then, in the midst of what is to go well.
pub(crate) const HASTE: Duration = ms(1_000);

/// A client that does not wait long for anything.
pub(crate) fn hasty(url: &str) -> LockClient {
    let builder = LockClient::builder(url).command_timeout(HASTE).connect_timeout(HASTE);
    builder.max_wait(HASTE).give_up_after(HASTE * 2).build().expect("a client")
}

/// Makes all scripts known to the server, so that each call is one command.
pub(crate) fn warm(server: &Server) {
    let client = open(server);
    for kind in KINDS {
        let guard = kind.open(&client, "warm").lock().expect("a guard");
        guard.extend(ms(40_000)).expect("an answer");
        guard.release().expect("an answer");
    }
    ask::<()>(server, &["FLUSHALL"]);
    server.reset_stats();
}

pub(crate) fn renewed(ttl: u64) -> LockOptions {
    LockOptions::new().lease(Lease::renewed(ms(ttl)))
}

pub(crate) fn fixed(ttl: u64) -> LockOptions {
    LockOptions::new().lease(Lease::fixed(ms(ttl)))
}

/// Sets a flag at last, also where the test fails before: the threads that look at it must end.
pub(crate) struct AtLast<'a>(pub(crate) &'a AtomicBool);

impl Drop for AtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Waits until each of these holds was renewed, and finds none lost meanwhile.
#[track_caller]
pub(crate) fn all_renewed<'a>(guards: impl IntoIterator<Item = &'a Guard>) {
    let end = |guard: &Guard| Instant::now() + guard.remaining();
    let ends: Vec<_> = guards.into_iter().map(|guard| (guard, end(guard))).collect();
    until("all are renewed", || {
        ends.iter().for_each(|(guard, _)| assert_eq!(guard.loss(), None));
        // What remains is told in whole milliseconds.
        ends.iter().all(|(guard, before)| end(guard) > *before + ms(100))
    });
}

/// Sends a bare command on a connection of its own.
#[track_caller]
pub(crate) fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    match command.query(&mut server.connection()) {
        Ok(answer) => answer,
        Err(error) => panic!("{words:?}: {error}"),
    }
}

pub(crate) fn pttl(server: &Server, key: &str) -> i64 {
    ask(server, &["PTTL", key])
}

pub(crate) fn exists(server: &Server, key: &str) -> bool {
    ask(server, &["EXISTS", key])
}

/// Every key of the server has a time to live.
#[track_caller]
pub(crate) fn no_key_is_immortal(server: &Server) {
    let mut connection = server.connection();
    for key in server.keys() {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("a number");
        // -2: it ended since the look.
        assert_ne!(left, -1, "{} never ends", key.escape_ascii());
    }
}

/// An error about a setting names the setting, its value, and what is allowed.
#[track_caller]
pub(crate) fn names(error: &Error, parts: [&str; 3]) {
    assert!(error.is_config(), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

/// The memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a file");
    let pages = pages.split(' ').nth(1).expect("a second number");
    pages.parse::<usize>().expect("a number") * 4096
}

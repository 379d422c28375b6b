//! A server whose clock is set while a client has locks there.

use std::time::{Duration, SystemTime};

use leasehold::LockClient;
use leasehold_support::{Server, WallClock};

use crate::common::{ask, fixed, log, open, renewed, until};

/// A server whose clock can be set, and a client that knows it.
fn stage() -> (WallClock, Server, LockClient) {
    let clock = WallClock::new().expect("a clock");
    let server = Server::builder().envs(clock.variables()).start().expect("a server");
    let client = open(&server);
    (clock, server, client)
}

/// Sets the clock, and waits until the server goes by it: it dates some commands by the time at which it last looked, and
/// may tell that time, too.
#[allow(clippy::disallowed_methods, reason = "what the server's is compared with")]
fn set(clock: &WallClock, server: &Server, millis: i64) {
    clock.set(millis * 1_000).expect("a clock");
    let now = || {
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        i64::try_from(now.as_millis()).expect("a time") + millis
    };
    until("the server goes by its clock", || {
        let before = now();
        ask::<()>(server, &["SET", "probe", "", "PX", "60000"]);
        let end: i64 = ask(server, &["PEXPIRETIME", "probe"]);
        let (seconds, micros): (i64, i64) = ask(server, &["TIME"]);
        let seen = before..=now();
        [end - 60_000, seconds * 1_000 + micros / 1_000].iter().all(|time| seen.contains(time))
    });
}

/// An uncontended lock and its release: two replies of the server.
fn turn(client: &LockClient) {
    client.mutex("turn").expect("a lock").lock().expect("a guard").release().expect("an answer");
}

/// The connections but for that of this question.
fn connections(server: &Server) -> Vec<String> {
    let list: String = ask(server, &["CLIENT", "LIST"]);
    let others = list.lines().filter(|line| !line.contains("cmd=client|list"));
    others.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The fixed lease is asked about by nobody, and would look valid for an hour.
#[test]
fn lease_that_a_step_has_ended_is_found_by_another_reply() {
    let (clock, server, client) = stage();
    let fixed = client.mutex_with("fixed", fixed(3_600_000)).expect("a lock").lock().expect("it");
    turn(&client);
    set(&clock, &server, 7_200_000);
    turn(&client);
    until("the loss is known", || !fixed.is_valid());
}

/// Nothing but the renewals of one lease tells the time.
#[test]
fn renewal_tells_the_time() {
    let (clock, server, client) = stage();
    let fixed = client.mutex_with("fixed", fixed(3_600_000)).expect("a lock").lock().expect("it");
    let renewed = client.mutex_with("renewed", renewed(3_000)).expect("a lock");
    let renewed = renewed.lock().expect("it");
    // The connection for that is there then: a new one asks for the time.
    let mut last = renewed.remaining();
    until("it is renewed", || {
        std::mem::replace(&mut last, renewed.remaining()) < renewed.remaining()
    });
    set(&clock, &server, 7_200_000);
    until("the loss is known", || !fixed.is_valid());
}

#[test]
fn step_costs_neither_a_lock_nor_a_connection() {
    log::warnings(&[]);
    for step in [300, -300, 5_000, -5_000, -600_000] {
        let (clock, server, client) = stage();
        let guard = client.mutex_with("held", renewed(60_000)).expect("a lock").lock().expect("it");
        turn(&client);
        let before = connections(&server);
        assert!(!before.is_empty());
        let address = server.socket().display().to_string();
        set(&clock, &server, step);
        turn(&client);
        turn(&client);
        guard.check().expect("it is held");
        let told = || log::warnings(&["the clock of", &address]);
        until("it is told", || told() == 1);
        let after = connections(&server);
        assert!(before.iter().all(|id| after.contains(id)), "{step}: {before:?}, {after:?}");
        turn(&client);
        assert_eq!(told(), 1, "{step}");
    }
}

/// A waiter asks, whatever the message says, and gets a whole lease and no claim.
#[test]
fn grant_by_message_is_not_believed_after_a_step() {
    for step in [-300, 300] {
        let (clock, server, client) = stage();
        let holder = open(&server);
        let guard = holder.mutex("x").expect("a lock").lock().expect("a guard");
        let waits = client.mutex_with("x", renewed(600_000)).expect("a lock");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = waits.lock().expect("a guard");
                let remaining = guard.remaining();
                guard.release().expect("an answer");
                remaining
            });
            let queued = || ask::<u64>(&server, &["ZCARD", "{x}:queue"]) == 1;
            until("it waits", queued);
            turn(&client);
            set(&clock, &server, step);
            // The reply to its next beat, which comes at once, tells the new time.
            let beats =
                || ask::<Vec<String>>(&server, &["ZRANGE", "{x}:beats", "0", "-1", "WITHSCORES"]);
            let before = beats();
            turn(&client);
            until("it has asked", || beats() != before);
            guard.release().expect("an answer");
            let remaining = waiter.join().expect("it ends");
            assert!(remaining > Duration::from_secs(60), "{step}: {remaining:?}");
        });
    }
}

//! Wall clocks that jump: a server's, those of several, a holder's.

use std::thread;
use std::time::Instant;

use leasehold::{LockClient, LossCause, Mutex, QuorumClient};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Child, Proxy, Server, WallClock};

use crate::common::{SLACK, SOON, ask, exists, ms, pttl, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial};

kinds! {
    server_ahead_at_hold "server-clock-ahead@hold" "S,L";
    server_back_at_hold "server-clock-back@hold" "S,L";
    server_jumps_at_wait "server-clock-jumps@wait" "S,L";
    clocks_apart_at_acquire "few-clocks-apart@acquire" "S";
    own_jumps_at_hold "holder-clock-jumps@hold" "S";
}

const MINUTE: i64 = 60_000_000;

/// A server whose clock can be set.
struct Clocked {
    clock: WallClock,
    server: Server,
}

impl Clocked {
    fn start() -> Clocked {
        let clock = WallClock::new().expect("a clock");
        let server = Server::builder().envs(clock.variables()).start().expect("a server");
        Clocked { clock, server }
    }

    /// Makes it jump, and shows that it did, by the server's own word.
    fn jump(&self, trial: &Trial, ahead: i64) {
        let was = self.ahead();
        self.clock.set(ahead).expect("a jump");
        // Some look at the clock once in a millisecond only.
        until("it jumps", || (self.ahead() - ahead).abs() < 5_000_000);
        let jumped = (self.ahead() - was).abs() > MINUTE / 2;
        trial.witnessed(1, u64::from(jumped), "TIME");
    }

    /// By how much it is ahead of the system's clock.
    fn ahead(&self) -> i64 {
        #[allow(clippy::disallowed_methods, reason = "what the server's is compared with")]
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let (seconds, micros): (i64, i64) = ask(&self.server, &["TIME"]);
        seconds * 1_000_000 + micros - i64::try_from(now.as_micros()).expect("long before the end")
    }

    fn lock(&self) -> Mutex {
        let client = LockClient::builder(self.server.url()).command_timeout(COMMAND).build();
        client.unwrap().mutex_with(KEY, renewed(LEASE)).unwrap()
    }
}

/// The lease ends early there: another client gets the lock at once, with a higher token. The
/// holder is informed within a renewal.
fn server_ahead_at_hold(trial: &Trial) {
    let clocked = Clocked::start();
    let (lock, rival) = (clocked.lock(), clocked.lock());
    rival.lock().unwrap().release().unwrap();
    let guard = lock.lock().unwrap();
    trial.minted(&guard);
    clocked.jump(trial, MINUTE);
    let next = rival.try_lock_for(SOON).unwrap().expect("it has ended there");
    trial.minted(&next);
    let begin = Instant::now();
    until("the holder is told", || !guard.is_valid());
    assert!(begin.spent() < ms(LEASE / 3) + COMMAND + SLACK, "{:?}", begin.spent());
    let cause = guard.loss().expect("a loss").cause();
    assert!(matches!(cause, LossCause::Taken | LossCause::Deleted), "{cause:?}");
    assert!(guard.release().unwrap_err().is_lost());
    next.check().unwrap();
    next.release().unwrap();
    trial.minted(&trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("free"));
}

/// The holder keeps its lease: it is renewed and released. Tokens go on growing.
fn server_back_at_hold(trial: &Trial) {
    let clocked = Clocked::start();
    let (lock, rival) = (clocked.lock(), clocked.lock());
    let guard = lock.lock().unwrap();
    trial.minted(&guard);
    clocked.jump(trial, -60 * MINUTE);
    assert!(pttl(&clocked.server, KEY) > 3_500_000, "the lease did not become longer there");
    let begin = Instant::now();
    while begin.elapsed() < ms(LEASE + 500) {
        assert!(guard.is_valid() && guard.remaining() <= ms(LEASE), "{:?}", guard.loss());
        assert!(!matches!(rival.try_lock(), Ok(Some(_))));
        thread::sleep(ms(20));
    }
    trial.timed(COMMAND, || guard.release()).unwrap();
    assert!(!exists(&clocked.server, KEY));
    let next = rival.try_lock_for(SOON).unwrap().expect("free");
    trial.minted(&next);
    next.release().unwrap();
    trial.minted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// A client waits while the clock jumps, both ways: it gets the lock at the release.
fn server_jumps_at_wait(trial: &Trial) {
    let clocked = Clocked::start();
    // Its lease is long enough for the jump.
    let client = LockClient::builder(clocked.server.url()).command_timeout(COMMAND).build();
    let holder = client.unwrap().mutex_with(KEY, renewed(600_000)).unwrap();
    for ahead in [2 * MINUTE, -2 * MINUTE] {
        let lock = clocked.lock();
        let held = holder.lock().unwrap();
        trial.minted(&held);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
                let granted = Instant::now();
                trial.minted(&guard);
                guard.release().unwrap();
                granted
            });
            let waits = || ask::<u32>(&clocked.server, &["ZCARD", "{k}:queue"]) == 1;
            until("it waits", waits);
            clocked.jump(trial, ahead);
            thread::sleep(ms(200));
            assert!(held.is_valid(), "{:?}", held.loss());
            let begin = Instant::now();
            held.release().unwrap();
            let took = waiter.join().unwrap().spent_since(begin);
            // A heartbeat at most, and the time to notice the changed clock.
            assert!(took < ms(2_600) + SLACK, "{took:?}");
        });
        until("it is given back", || !exists(&clocked.server, KEY));
    }
}

/// The clocks of three servers are hours apart, and another of them is cut off each time: tokens
/// grow.
fn clocks_apart_at_acquire(trial: &Trial) {
    let nodes = [Clocked::start(), Clocked::start(), Clocked::start()];
    nodes[0].jump(trial, 60 * MINUTE);
    nodes[2].jump(trial, -60 * MINUTE);
    let proxies = nodes.each_ref().map(|node| Proxy::start(&node.server).expect("a proxy"));
    let builder = QuorumClient::builder(proxies.each_ref().map(Proxy::url)).keeps_data(true);
    let client = builder.node_timeout(COMMAND).max_lease(ms(LEASE)).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    for round in 0..6 {
        let cut = &proxies[round % 3];
        cut.refuse();
        cut.cut();
        let guard = lock.try_lock_for(SOON).unwrap().expect("two of three");
        trial.minted(&guard);
        guard.check().unwrap();
        guard.release().unwrap();
        cut.heal();
    }
    until("it is given back", || nodes.iter().all(|node| !exists(&node.server, KEY)));
}

/// The holder's own wall clock is used for nothing.
fn own_jumps_at_hold(trial: &Trial) {
    let clock = WallClock::new().expect("a clock");
    let mut holder = Child::role("clocked").test("roles").env("URL", trial.server.url());
    for (name, value) in clock.variables() {
        holder = holder.env(name, value);
    }
    let mut holder = holder.start().expect("a child");
    let mut last: i64 = holder.expect_line("held", SOON).parse().unwrap();
    for ahead in [60 * MINUTE, -60 * MINUTE] {
        clock.set(ahead).unwrap();
        holder.say("look");
        let now: i64 = holder.expect_line("valid", SOON).parse().unwrap();
        trial.witnessed(1, u64::from((now - last).abs() > 1_000), "its own word");
        last = now;
        assert!(exists(&trial.server, KEY));
        assert!(trial.rival().try_lock().unwrap().is_none());
    }
    holder.say("end");
    holder.expect_line("well", SOON);
    trial.granted(&trial.rival().try_lock_for(SOON).unwrap().expect("free"));
}

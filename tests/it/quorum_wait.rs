//! Waiting for a lock on several servers: who is told of a release, and what that costs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::several::{direct, open, proxies, servers, through};
use crate::common::{SLACK, SOON, ask, exists, fixed, ms, until};
use leasehold::{LockOptions, Mutex, QuorumClient, Wait};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Proxy, Server};

fn wait_by(client: &QuorumClient, wait: Wait) -> Mutex {
    client.mutex_with("x", LockOptions::new().wait(wait)).expect("a lock")
}

/// How many connections to a server listen to a lock.
fn listeners(server: &Server, key: &str) -> u64 {
    let channel = format!("leasehold:released:{key}");
    let (_, count): (String, u64) = ask(server, &["PUBSUB", "NUMSUB", &channel]);
    count
}

/// Releases the lock while a thread waits for it; answers when that was called and when the thread
/// had it.
fn hand_over(from: &Mutex, to: &Mutex, ready: impl Fn()) -> Duration {
    let guard = from.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = to.try_lock_for(SOON).unwrap().expect("my turn");
            let at = Instant::now();
            guard.release().unwrap();
            at
        });
        ready();
        let begin = Instant::now();
        guard.release().unwrap();
        waiter.join().unwrap().spent_since(begin)
    })
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort();
    spans[spans.len() / 2]
}

#[test]
fn waiter_learns_of_a_release_long_before_its_heartbeat() {
    const ROUNDS: usize = 15;
    let servers = servers(5);
    let clients = [open(direct(&servers)), open(direct(&servers))];
    let mut medians = Vec::new();
    for wait in [Wait::notify(), Wait::spin()] {
        let [from, to] = [&clients[0], &clients[1]].map(|client| wait_by(client, wait));
        let spans = (0..ROUNDS).map(|round| {
            // So long that one who asks again and again has come to its longest pauses.
            hand_over(&from, &to, || thread::sleep(ms(300 + 13 * round as u64)))
        });
        medians.push(median(spans.collect()));
    }
    let [notify, spin] = [medians[0], medians[1]];
    writeln!(std::io::stderr(), "release to grant: notify {notify:?}, spin {spin:?}").unwrap();
    // A waiter that is not told asks again after a second.
    assert!(notify < ms(500), "notify {notify:?}, spin {spin:?}");
}

#[test]
fn waiter_costs_about_a_command_a_second_per_server() {
    let servers = servers(5);
    let clients = [open(direct(&servers)), open(direct(&servers))];
    let (mut costs, mut late) = (Vec::new(), 0);
    for wait in [Wait::notify(), Wait::spin()] {
        let [from, to] = [&clients[0], &clients[1]].map(|client| wait_by(client, wait));
        hand_over(&from, &to, || thread::sleep(ms(100)));
        servers.iter().for_each(Server::reset_stats);
        // The waiter waits for two seconds.
        let begin = Instant::now();
        hand_over(&from, &to, || thread::sleep(ms(2_000)));
        late = late.max(2 * begin.elapsed().as_secs().saturating_sub(2));
        let sent = |server: &Server| server.commands().client_commands(&["info", "config"]);
        costs.push(servers.iter().map(sent).max().unwrap());
    }
    writeln!(std::io::stderr(), "commands to one server for two holds: {costs:?}").unwrap();
    // Two holds of two commands each; to listen, one to say so and one to do it, and one attempt
    // more; one attempt for each second; and a few if it is unlucky, or the machine slow.
    assert!(costs[0] <= 18 + late, "notify {costs:?}");
    assert!(costs[0] < costs[1], "{costs:?}");
}

/// The messages of a minority suffice, whichever it is.
#[test]
fn dead_or_silent_server_does_not_stop_messages() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let clients = [open(through(&proxies)), open(through(&proxies))];
    let [from, to] = [&clients[0], &clients[1]].map(|client| wait_by(client, Wait::notify()));
    let listened = || servers.iter().filter(|server| listeners(server, "x") >= 1).count();
    hand_over(&from, &to, || until("a majority is listened to", || listened() >= 3));
    for (dead, silent) in [(0, 1), (3, 4), (2, 0)] {
        proxies[dead].refuse();
        proxies[dead].cut();
        proxies[silent].black_hole();
        // Both clients learn who is silent.
        hand_over(&from, &to, || thread::sleep(ms(300)));
        let spans = (0..5).map(|_| hand_over(&from, &to, || thread::sleep(ms(400))));
        let took = median(spans.collect());
        // A waiter that is not told asks again after a second.
        assert!(took < ms(500), "{dead} dead, {silent} silent: {took:?}");
        proxies.iter().for_each(Proxy::heal);
        // Both clients are connected to all again, as callers and as listeners.
        for lock in [&from, &to] {
            until("all have it", || {
                let guard = lock.try_lock_for(SOON).unwrap().expect("free");
                let all = servers.iter().all(|server| exists(server, "x"));
                guard.release().unwrap();
                all
            });
        }
        until("all are listened to again", || {
            hand_over(&from, &to, || thread::sleep(ms(50)));
            servers.iter().all(|server| listeners(server, "x") >= 1)
        });
    }
}

#[test]
fn a_message_that_is_lost_costs_a_heartbeat_and_not_a_lease() {
    let servers = servers(3);
    let clients = [open(direct(&servers)), open(direct(&servers))];
    let [from, to] = [&clients[0], &clients[1]].map(|client| wait_by(client, Wait::notify()));
    let took = hand_over(&from, &to, || {
        until("it listens", || servers.iter().all(|server| listeners(server, "x") == 1));
        thread::sleep(ms(50));
        for server in &servers {
            ask::<()>(server, &["ACL", "SETUSER", "default", "-publish"]);
        }
    });
    for server in &servers {
        // The release was not refused for want of that.
        assert!(!exists(server, "x"));
        ask::<()>(server, &["ACL", "SETUSER", "default", "+publish"]);
    }
    assert!(took < ms(1_100) + SLACK * 2, "{took:?}");
}

/// A server acknowledges each channel that is left.
#[test]
fn many_ended_waits_unsubscribe_and_listening_goes_on() {
    const NAMES: usize = 150;
    let servers = servers(3);
    let client = open(direct(&servers).max_size(64));
    let heard = |server: &Server| {
        ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:released:*"]).len()
    };
    let ears = || -> Vec<Option<String>> {
        let list = |server| ask::<String>(server, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        let id = |list: String| list.split(' ').next().map(str::to_owned);
        servers.iter().map(|server| id(list(server))).collect()
    };
    let names: Vec<String> = (0..NAMES).map(|number| format!("x{number}")).collect();
    for (server, name) in
        servers.iter().flat_map(|server| names.iter().map(move |name| (server, name)))
    {
        ask::<()>(server, &["SET", name, "1-:other", "PX", "600000"]);
    }
    let options = LockOptions::new().wait(Wait::notify());
    let locks: Vec<Mutex> =
        names.iter().map(|name| client.mutex_with(name, options).unwrap()).collect();
    let before = thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(move || _ = lock.try_lock_for(SOON * 10));
        }
        until("all are listened to", || servers.iter().all(|server| heard(server) == NAMES));
        let before = ears();
        assert_eq!(locks.iter().map(Mutex::cancel_waits).sum::<usize>(), NAMES);
        before
    });
    until("none is", || servers.iter().all(|server| heard(server) == 0));
    thread::sleep(ms(500));
    assert_eq!(ears(), before);
}

/// It is bounded by what is left of the lease of who has a majority.
#[test]
fn dead_holders_lock_is_taken_when_its_lease_ends() {
    let servers = servers(5);
    let client = open(direct(&servers));
    let begin = Instant::now();
    for server in &servers {
        ask::<()>(server, &["SET", "x", "1-:dead", "PX", "700"]);
    }
    let guard = wait_by(&client, Wait::notify()).lock().unwrap();
    let (lasted, took) = (begin.elapsed(), begin.spent());
    assert!(lasted >= ms(600) && took < ms(700) + SLACK, "{lasted:?}");
    guard.release().unwrap();
}

/// Nobody has a majority, and nobody will tell of a release.
#[test]
fn split_votes_are_retried_sooner_than_a_holder() {
    let servers = servers(5);
    let client = open(direct(&servers));
    for (number, owner) in [(0, "1-:a"), (1, "1-:a"), (2, "1-:b")] {
        ask::<()>(&servers[number], &["SET", "x", owner, "PX", "30000"]);
    }
    let lock = wait_by(&client, Wait::notify());
    assert!(lock.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("free");
            let at = Instant::now();
            guard.release().unwrap();
            at
        });
        thread::sleep(ms(300));
        let begin = Instant::now();
        // Without a word.
        ask::<()>(&servers[2], &["DEL", "x"]);
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < ms(128) + SLACK, "{took:?}");
    });
}

/// What is taken back is not told, or those that contend would wake each other for as long as
/// somebody else has the lock on the other servers.
#[test]
fn waiters_do_not_wake_each_other() {
    let servers = servers(5);
    let clients = [open(direct(&servers)), open(direct(&servers)), open(direct(&servers))];
    let locks = [&clients[0], &clients[1], &clients[2]].map(|it| wait_by(it, Wait::notify()));
    let guard = locks[0].lock().unwrap();
    // Who waits takes them, each time, and gives them back.
    for server in &servers[3..] {
        ask::<()>(server, &["DEL", "x"]);
    }
    thread::scope(|scope| {
        let waiters = [&locks[1], &locks[2]];
        let waiting = waiters.map(|lock| {
            scope.spawn(|| lock.try_lock_for(SOON).unwrap().expect("my turn").release().unwrap())
        });
        until("both listen", || listeners(&servers[0], "x") == 2);
        thread::sleep(ms(200));
        servers[4].reset_stats();
        let begin = Instant::now();
        thread::sleep(ms(2_000));
        let attempts = servers[4].command_calls(&["evalsha"]);
        // Each asks once a second, and takes back what it got.
        let most = 6 + 4 * begin.elapsed().as_secs();
        assert!((2..=most).contains(&attempts), "{attempts}");
        guard.release().unwrap();
        waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// Any number of them, in whatever way they wait: each has its share of the holds in time.
#[test]
fn contenders_do_not_starve_each_other() {
    const HOLDS: u64 = 30;
    for (contenders, wait) in
        [(2, Wait::notify()), (5, Wait::notify()), (2, Wait::spin()), (5, Wait::spin())]
    {
        let servers = servers(5);
        let (busy, highest) = (AtomicBool::new(false), AtomicU64::new(0));
        let longest = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..contenders {
                scope.spawn(|| {
                    let lock = wait_by(&open(direct(&servers)), wait);
                    for _ in 0..HOLDS {
                        let begin = Instant::now();
                        let guard = lock.try_lock_for(SOON * 3).unwrap().expect("my turn");
                        let took = begin.spent().as_millis() as u64;
                        longest.fetch_max(took, Ordering::SeqCst);
                        assert!(!busy.swap(true, Ordering::SeqCst), "two holders");
                        let token = guard.fencing_token().get();
                        assert!(highest.swap(token, Ordering::SeqCst) < token);
                        busy.store(false, Ordering::SeqCst);
                        guard.release().unwrap();
                    }
                });
            }
        });
        assert!(longest.load(Ordering::SeqCst) < 10_000, "{contenders} {wait:?}: {longest:?} ms");
        until("nothing is left", || servers.iter().all(|server| !exists(server, "x")));
    }
}

#[test]
fn denied_subscription_fails_a_wait_but_not_spinning() {
    let servers = servers(3);
    for server in &servers {
        ask::<()>(server, &["ACL", "SETUSER", "default", "-subscribe"]);
    }
    let client = open(direct(&servers));
    let other = open(direct(&servers));
    let guard = wait_by(&other, Wait::spin()).lock().unwrap();
    let error = wait_by(&client, Wait::notify()).try_lock_for(SOON).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("Wait::spin()"), "{error:?}");
    let spun = wait_by(&client, Wait::spin()).try_lock_for(ms(50));
    assert!(!spun.is_err_and(|error| error.is_denied()));
    guard.release().unwrap();
    // One that may not is no hindrance.
    for server in &servers[1..] {
        ask::<()>(server, &["ACL", "SETUSER", "default", "+subscribe"]);
    }
    let [from, to] = [&client, &other].map(|client| wait_by(client, Wait::notify()));
    until("it is told", || hand_over(&from, &to, || thread::sleep(ms(300))) < ms(250));
}

/// The threads that listen, and their connections, are gone with the client.
#[test]
fn ended_client_leaves_no_subscription() {
    let servers = servers(3);
    let count = |server: &Server| {
        let clients: String = ask(server, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        clients.lines().count()
    };
    let holder = open(direct(&servers));
    let client = open(direct(&servers));
    let guard = wait_by(&holder, Wait::notify()).lock().unwrap();
    thread::scope(|scope| {
        let lock = client.mutex("x").unwrap();
        let waiter = scope.spawn(move || matches!(lock.try_lock_for(ms(3_000)), Ok(Some(_))));
        until("it listens everywhere", || {
            servers.iter().all(|server| count(server) == 1 && listeners(server, "x") == 1)
        });
        assert!(!waiter.join().unwrap());
    });
    until("nobody waits there any more", || {
        servers.iter().all(|server| listeners(server, "x") == 0)
    });
    drop(client);
    until("nobody listens", || servers.iter().all(|server| count(server) == 0));
    guard.release().unwrap();
    // A lease of another length has nothing to do with it.
    let lock = holder.mutex_with("x", fixed(2_000)).unwrap();
    lock.lock().unwrap().release().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(holder.shutdown(ms(1_000)).is_ok()));
    assert_eq!(receiver.recv_timeout(SOON), Ok(true));
}

//! `ReentrantLock` waits on Redisson's channel: wake-ups both ways.

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::wait_for;
use crate::common::{
    SLACK, SOON, ask, behind_proxy, exists, fixed, ms, no_key_is_immortal, open, open_at, renewed,
    server, until, warm,
};
use leasehold::{LockOptions, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

/// Rule 8: every waiter asks again at least this often.
const HEARTBEAT: Duration = ms(1_000);
/// What came with a message, and was not found by the next heartbeat.
const AT_ONCE: Duration = ms(700);

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// How many listen on a channel.
fn listening(server: &Server, channel: &str) -> u64 {
    let answer: (String, u64) = ask(server, &["PUBSUB", "NUMSUB", channel]);
    answer.1
}

/// How often somebody asked for a lock since the last reset.
fn asked(server: &Server) -> u64 {
    server.command_calls(&["eval", "evalsha"])
}

/// Waits until a waiter listens, and has asked once more since: only a message or its heartbeat makes it ask again. The
/// server has counted from before its first request.
#[track_caller]
fn until_it_waits(server: &Server, channel: &str) {
    until("it listens", || listening(server, channel) == 1);
    until("it has asked once more", || asked(server) >= 2);
}

/// A lock that Redisson holds, somewhere.
fn redisson_holds(server: &Server, name: &str, ttl: u64) {
    let owner = "d2b0c9b4-0000-4000-8000-000000000000:1";
    ask::<()>(server, &["HSET", name, owner, "1"]);
    ask::<()>(server, &["PEXPIRE", name, &ttl.to_string()]);
}

/// Redisson deletes the hash and publishes "0".
#[test]
fn a_release_by_redisson_wakes_our_waiter() {
    let server = server();
    warm(&server);
    let client = open(&server);
    for name in ["x", "a b", "{tag}y"] {
        let channel = if name.contains('{') {
            format!("redisson_lock__channel:{name}")
        } else {
            channel(name)
        };
        redisson_holds(&server, name, 60_000);
        let lock = client.reentrant(name).unwrap();
        server.reset_stats();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            until_it_waits(&server, &channel);
            let begin = Instant::now();
            ask::<()>(&server, &["DEL", name]);
            let heard: u64 = ask(&server, &["PUBLISH", &channel, "0"]);
            assert_eq!(heard, 1);
            let took = waiter.join().unwrap().0.spent_since(begin);
            assert!(took < AT_ONCE, "{name}: {took:?}");
        });
        until("it is given back", || !exists(&server, name));
    }
}

#[test]
fn our_release_wakes_subscribers_of_redissons_channel() {
    let server = server();
    let mut ear = server.connection();
    redis::cmd("SUBSCRIBE").arg(channel("x")).exec(&mut ear).unwrap();
    let lock = open(&server).reentrant("x").unwrap();
    let mut payload = |what: &str| {
        let parts = match ear.recv_response().expect(what) {
            redis::Value::Array(parts) | redis::Value::Push { data: parts, .. } => parts,
            other => panic!("{other:?}"),
        };
        match parts.last() {
            Some(redis::Value::BulkString(payload)) => payload.clone(),
            other => panic!("{other:?}"),
        }
    };
    let outer = lock.lock().unwrap();
    drop(lock.lock().unwrap());
    outer.release().unwrap();
    // The outermost alone, and nothing but this: another payload breaks Redisson's decoder.
    assert_eq!(payload("a release"), b"0");
    let _guard = lock.lock().unwrap();
    assert!(open(&server).reentrant("x").unwrap().force_release().unwrap());
    assert_eq!(payload("a forced release"), b"0");
    ask::<()>(&server, &["PUBLISH", &channel("x"), "the end"]);
    assert_eq!(payload("the end"), b"the end", "something more was published");
}

#[test]
fn our_reentrant_waiters_wake_each_other() {
    const PROCESSES: usize = 4;
    let server = server();
    warm(&server);
    let guard = open(&server).reentrant("x").unwrap().lock().unwrap();
    server.reset_stats();
    let served = Shared::new(vec![guard.fencing_token()]);
    let inside = AtomicU32::new(1);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            let lock = open(&server).reentrant("x").unwrap();
            let (served, inside) = (&served, &inside);
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                served.lock().unwrap().push(guard.fencing_token());
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
        until("all listen", || listening(&server, &channel("x")) == PROCESSES as u64);
        until("all have asked once more", || asked(&server) >= 2 * PROCESSES as u64);
        inside.fetch_sub(1, Ordering::SeqCst);
        let begin = Instant::now();
        guard.release().unwrap();
        until("all were served", || served.lock().unwrap().len() == PROCESSES + 1);
        assert!(begin.spent() < AT_ONCE * 2, "{:?}", begin.spent());
    });
    assert!(served.into_inner().unwrap().is_sorted_by(|a, b| a < b));
    until("nothing is left", || !exists(&server, "x"));
}

/// Regression, redisson#5761: a message was missed, and the waiter slept a full lease.
#[test]
fn a_missed_message_costs_a_heartbeat_and_not_a_lease() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.reentrant("x").unwrap();
    for how in ["dropped", "not sent", "expired"] {
        let fault = proxy.add(Fault::reply("message\r\n", Action::Drop).sticky());
        redisson_holds(&server, "x", if how == "expired" { 1_500 } else { 60_000 });
        server.reset_stats();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            // From then on only the clock helps. What ends by itself may have ended already.
            let listens = || listening(&server, &channel("x")) == 1 && asked(&server) >= 2;
            until("it waits", || listens() || (how == "expired" && waiter.is_finished()));
            let begin = Instant::now();
            let bound = match how {
                "expired" => ms(1_500) + SLACK,
                _ => {
                    ask::<()>(&server, &["DEL", "x"]);
                    HEARTBEAT + SLACK
                }
            };
            if how == "dropped" {
                ask::<u64>(&server, &["PUBLISH", &channel("x"), "0"]);
                assert!(fault.wait_fired(SOON));
            }
            let took = waiter.join().unwrap().0.spent_since(begin);
            assert!(took < bound, "{how}: {took:?}");
        });
        fault.remove();
        until("it is given back", || !exists(&server, "x"));
    }
}

/// It may have been released after the first attempt, and before anybody listened.
#[test]
fn release_before_the_waiter_subscribes_is_not_missed() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.reentrant("x").unwrap();
    // The connection is there already: one that is new would make everybody ask again.
    redisson_holds(&server, "y", 60_000);
    until("it is connected", || {
        assert!(!matches!(client.reentrant("y").unwrap().try_lock_for(ms(300)), Ok(Some(_))));
        !ask::<String>(&server, &["CLIENT", "LIST", "TYPE", "pubsub"]).is_empty()
    });
    redisson_holds(&server, "x", 60_000);
    let hold = Fault::request("redisson_lock__channel:{x}", Action::Hold).at(Operation::Subscribe);
    let hold = proxy.add(hold);
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        assert!(hold.wait_fired(SOON));
        ask::<()>(&server, &["DEL", "x"]);
        let heard: u64 = ask(&server, &["PUBLISH", &channel("x"), "0"]);
        assert_eq!(heard, 0, "it was to come too late");
        let begin = Instant::now();
        hold.release();
        let took = waiter.join().unwrap().0.spent_since(begin);
        assert!(took < AT_ONCE, "{took:?}");
    });
}

/// It looks by itself, a little later.
#[test]
fn listener_unaware_of_a_channel_ends_no_wait() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    for (name, action) in [("a", Action::Cut), ("b", Action::LoseReply)] {
        redisson_holds(&server, name, 60_000);
        let fault = proxy.add(Fault::request("PUBLISH", action).at(Operation::Other));
        let lock = client.reentrant(name).unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            assert!(fault.wait_fired(SOON));
            until("it listens", || listening(&server, &channel(name)) == 1);
            ask::<()>(&server, &["DEL", name]);
            ask::<u64>(&server, &["PUBLISH", &channel(name), "0"]);
            waiter.join().unwrap();
        });
    }
}

/// One thread of a process contends, however many wait; the others are woken by it.
#[test]
fn only_one_thread_of_a_process_contends() {
    const THREADS: usize = 10;
    let server = server();
    warm(&server);
    let client = open(&server);
    let lock = client.reentrant("x").unwrap();
    redisson_holds(&server, "x", 60_000);
    server.reset_stats();
    let served = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let guard = lock.lock().unwrap();
                served.fetch_add(1, Ordering::SeqCst);
                guard.release().unwrap();
            });
        }
        until_it_waits(&server, &channel("x"));
        server.reset_stats();
        let begin = Instant::now();
        for _ in 0..5 {
            let before = asked(&server);
            ask::<u64>(&server, &["PUBLISH", &channel("x"), "0"]);
            until("somebody asks", || asked(&server) > before);
            // So long the others would have to ask too, if they did.
            thread::sleep(ms(50));
        }
        let attempts = asked(&server);
        // One for each message, and the heartbeats.
        let most = 7 + begin.elapsed().as_secs();
        assert!(attempts <= most, "{attempts} attempts for 5 messages");
        assert_eq!(served.load(Ordering::SeqCst), 0);
        ask::<()>(&server, &["DEL", "x"]);
        let begin = Instant::now();
        ask::<u64>(&server, &["PUBLISH", &channel("x"), "0"]);
        until("all were served", || served.load(Ordering::SeqCst) == THREADS as u32);
        assert!(begin.spent() < ms(1_500) + SLACK, "{:?}", begin.spent());
    });
    no_key_is_immortal(&server);
}

/// Idle waiters: one heartbeat a second, and nothing else.
#[test]
fn an_idle_waiter_asks_about_once_a_second() {
    let server = server();
    warm(&server);
    redisson_holds(&server, "x", 60_000);
    server.reset_stats();
    let lock = open(&server).reentrant("x").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until_it_waits(&server, &channel("x"));
        server.reset_stats();
        let begin = Instant::now();
        until("it has asked three times", || asked(&server) >= 3);
        let (asked, most) = (asked(&server), 2 + begin.elapsed().as_secs());
        assert!(asked <= most, "{asked} times in {:?}", begin.elapsed());
        assert_eq!(lock.cancel_waits(), 1);
        assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
    });
}

/// Regression, redisson#6025: wake-ups that came too late let the waiter spin.
#[test]
fn late_wake_ups_do_not_make_a_waiter_spin() {
    const LATE: u64 = 200;
    let server = server();
    warm(&server);
    let client = open(&server);
    let guard = open(&server).reentrant_with("x", renewed(60_000)).unwrap().lock().unwrap();
    // How many ran since the last look.
    let scripts = || {
        let sent = server.command_calls(&["eval", "evalsha"]);
        server.reset_stats();
        sent
    };
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.reentrant("x").unwrap().lock().map(drop));
        until("it listens", || listening(&server, &channel("x")) == 1);
        // To open a client, to lock, and to begin to wait are questions too.
        scripts();
        let begin = Instant::now();
        for _ in 0..LATE {
            assert_eq!(ask::<u64>(&server, &["PUBLISH", &channel("x"), "0"]), 1);
        }
        let mut woken = 0;
        until("the last is answered", || {
            thread::sleep(ms(500));
            let asked = scripts();
            woken += asked;
            asked <= 2
        });
        // One for each at most, two now that it listens, and one for each heartbeat.
        let most = LATE + 2 + begin.elapsed().as_secs();
        assert!(woken <= most, "{woken} questions for {LATE} messages");
        guard.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// A channel is listened to only as long as somebody waits there.
#[test]
fn unneeded_channel_is_unsubscribed() {
    let server = server();
    let (client, other) = (open(&server), open(&server));
    let lock = client.reentrant("x").unwrap();
    // Waited for, had, and given back.
    let guard = other.reentrant("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until("it listens", || listening(&server, &channel("x")) == 1);
        guard.release().unwrap();
        waiter.join().unwrap();
    });
    until("it is left", || listening(&server, &channel("x")) == 0);
    // Given up, and then released.
    let guard = other.reentrant("x").unwrap().lock().unwrap();
    assert!(!matches!(lock.try_lock_for(ms(200)), Ok(Some(_))));
    guard.release().unwrap();
    until("it is left", || listening(&server, &channel("x")) == 0);
    // It is listened to again when it is needed again.
    let guard = other.reentrant("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until("it listens", || listening(&server, &channel("x")) == 1);
        let begin = Instant::now();
        guard.release().unwrap();
        assert!(waiter.join().unwrap().0.spent_since(begin) < AT_ONCE);
    });
}

/// Given up, and the holder died: no message ever comes. Each name would stay for ever.
#[test]
fn unneeded_channels_are_unsubscribed_without_a_message() {
    const NAMES: usize = 50;
    let server = server();
    let client = open(&server);
    for number in 0..NAMES {
        let name = format!("x{number}");
        redisson_holds(&server, &name, 60_000);
        assert!(!matches!(client.reentrant(&name).unwrap().try_lock_for(ms(20)), Ok(Some(_))));
        ask::<()>(&server, &["DEL", &name]);
    }
    let left = || ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "redisson*"]).len();
    until("they are left", || left() == 0);
}

/// The subscriber's connection is cut while threads wait for several names.
#[test]
fn all_channels_are_subscribed_again_after_a_cut() {
    let server = server();
    warm(&server);
    let client = open(&server);
    let names = ["x", "y", "z"];
    names.iter().for_each(|name| redisson_holds(&server, name, 60_000));
    thread::scope(|scope| {
        let waiters = names.map(|name| wait_for(scope, &client.reentrant(name).unwrap()));
        let all = || names.iter().all(|name| listening(&server, &channel(name)) == 1);
        until("all listen", all);
        until("all have asked once more", || asked(&server) >= 6);
        server.reset_stats();
        let killed: u64 = ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
        until("all listen again, and have asked", || all() && asked(&server) >= 3);
        let begin = Instant::now();
        for name in names {
            ask::<()>(&server, &["DEL", name]);
            ask::<u64>(&server, &["PUBLISH", &channel(name), "0"]);
        }
        for waiter in waiters {
            let took = waiter.join().unwrap().0.spent_since(begin);
            assert!(took < AT_ONCE, "{took:?}");
        }
    });
}

/// Both kinds of one name, and both ways to wait, on one client.
#[test]
fn spinning_wait_subscribes_to_nothing() {
    let server = server();
    let client = open(&server);
    let spin = client.reentrant_with("x", LockOptions::new().wait(Wait::spin())).unwrap();
    redisson_holds(&server, "x", 60_000);
    server.reset_stats();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &spin);
        until("it asks again and again", || asked(&server) > 3);
        let all: Vec<String> = ask(&server, &["PUBSUB", "CHANNELS"]);
        assert!(all.is_empty(), "{all:?}");
        let begin = Instant::now();
        ask::<()>(&server, &["DEL", "x"]);
        assert!(waiter.join().unwrap().0.spent_since(begin) < ms(128) + SLACK);
    });
    let fixed = client.reentrant_with("x", fixed(5_000)).unwrap();
    let renewed = client.reentrant_with("x", renewed(5_000)).unwrap();
    let guard = fixed.lock().unwrap();
    thread::scope(|scope| {
        let waiters = [wait_for(scope, &renewed), wait_for(scope, &spin), wait_for(scope, &fixed)];
        until("they wait", || guard.waiters() == 3);
        guard.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    until("it is given back", || !exists(&server, "x"));
}

/// After a reconnect the channels of names are heard a little later than the client's own, by which
/// all waiters were woken.
#[test]
fn release_before_a_resubscription_is_not_missed() {
    let server = server();
    warm(&server);
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    let lock = client.reentrant("x").unwrap();
    redisson_holds(&server, "x", 60_000);
    server.reset_stats();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until_it_waits(&server, &channel("x"));
        server.reset_stats();
        let again = Fault::request("redisson_lock__channel:{x}", Action::Hold);
        let again = proxy.add(again.at(Operation::Subscribe));
        proxy.cut();
        assert!(again.wait_fired(SOON));
        until("the waiter that the client's channel woke has asked in vain", || {
            asked(&server) >= 1
        });
        ask::<()>(&server, &["DEL", "x"]);
        let heard: u64 = ask(&server, &["PUBLISH", &channel("x"), "0"]);
        assert_eq!(heard, 0, "it was to come too late");
        let begin = Instant::now();
        again.release();
        let took = waiter.join().unwrap().0.spent_since(begin);
        assert!(took < HEARTBEAT / 2, "{took:?}");
    });
}

//! A lease that its process keeps for a while after the last unlock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as Shared};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::process::in_own_process;
use crate::common::queue::{all_have_left, waiting};
use crate::common::{
    SOON, all_renewed, ask, behind_proxy, exists, fixed, heavy, ms, open, open_at, patient, pttl,
    renewed, server, until, warm, within,
};
use leasehold::{Guard, LockClient, LockOptions, Wait};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Child, Fault, Server};

/// A linger that no test waits for.
const LONG: Duration = ms(600_000);
/// A wait that ends before the holder lets go.
const WAIT: Duration = ms(3_000);

fn lingering(linger: Duration) -> LockOptions {
    renewed(3_000_000).linger(linger)
}

fn listeners(server: &Server) -> usize {
    ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:*"]).len()
}

/// Locks and unlocks until the lease lingers: a client that does not listen yet cannot be told that
/// somebody waits, and so does not linger.
#[track_caller]
fn linger(server: &Server, lock: &leasehold::Mutex) -> u64 {
    let name = String::from_utf8(lock.name().to_vec()).unwrap();
    let mut token = 0;
    until("it lingers", || {
        let guard = lock.lock().unwrap();
        token = guard.fencing_token().get();
        drop(guard);
        exists(server, &name)
    });
    token
}

#[cfg(feature = "testing")]
#[test]
fn relock_of_a_lingering_lease_sends_nothing() {
    let server = leasehold::testing::Server::standing_still();
    let client = server.client();
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    let lingers = || server.keys().contains(&b"x".to_vec());
    let mut last = 0;
    until("it lingers", || {
        last = lock.lock().unwrap().fencing_token().get();
        server.advance(Duration::ZERO);
        lingers()
    });
    // Tokens do not run ahead of the server's clock.
    server.advance(ms(500));
    let link = server.link(&client);
    link.silence();
    for _ in 0..2_000 {
        let guard = lock.lock().unwrap();
        assert!(guard.is_valid() && guard.fencing_token().get() > last);
        last = guard.fencing_token().get();
        assert_eq!(guard.waiters(), 0);
        drop(guard);
        assert!(lock.try_lock().unwrap().is_some());
    }
    // From another thread too.
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock().unwrap())).join().unwrap();
    });
    link.restore();
    lock.lock().unwrap().check().unwrap();
    // Nobody holds it, and nobody else gets it by force of the key alone.
    assert!(lingers() && !lock.is_held_by_current_thread());
}

/// Rule 19: no token runs ahead of the server's clock, and yet a loop that is as fast as that clock asks
/// it nothing.
#[test]
fn relocks_in_a_tight_loop_send_next_to_nothing() {
    let _turn = heavy();
    let server = server();
    warm(&server);
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(30_000).linger(ms(12_000))).unwrap();
    linger(&server, &lock);
    server.reset_stats();
    let begin = Instant::now();
    // A renewal lengthens the lock and its fence.
    let renewals = || server.command_calls(&["pexpire"]) / 2;
    let mut holds = 0;
    within(ms(60_000), "the worker renews it", || {
        (0..100_000).for_each(|_| lock.lock().unwrap().release().unwrap());
        holds += 100_000;
        renewals() >= 2
    });
    let last = lock.lock().unwrap().fencing_token().get();
    // About one renewal a second, and where the worker was late with it a release and a request.
    let scripts = server.command_calls(&["eval", "evalsha"]);
    let most = 2 + 3 * begin.elapsed().as_secs();
    assert!(scripts <= most, "{scripts} scripts for {holds} holds in {:?}", begin.elapsed());
    let (seconds, micros): (u64, u64) = ask(&server, &["TIME"]);
    assert!(last <= seconds * 1_000_000 + micros);
}

/// Rule 18: a waiter in the queue ends it at once.
#[test]
fn waiter_of_another_process_ends_a_linger_at_once() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    let other = open(&server).mutex("x").unwrap();
    for round in 0..5 {
        let token = linger(&server, &lock);
        let guard = other.try_lock_for(SOON).unwrap();
        let guard = guard.unwrap_or_else(|| panic!("round {round}: it lingers on"));
        assert!(guard.fencing_token().get() > token);
        guard.check().unwrap();
    }
    // One that tries only once is told who has it.
    linger(&server, &lock);
    assert!(other.try_lock().unwrap().is_none());
}

#[test]
fn linger_ends_by_itself() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(ms(1_300))).unwrap();
    for _ in 0..2 {
        linger(&server, &lock);
        let begin = Instant::now();
        // Each hold begins it anew.
        thread::sleep(ms(300));
        drop(lock.lock().unwrap());
        until("it is given back", || !exists(&server, "x"));
        let lasted = begin.elapsed();
        assert!(lasted >= ms(1_450), "{lasted:?}");
    }
    drop(open(&server).mutex("x").unwrap().try_lock().unwrap().expect("free"));
}

/// A foreign waiter, who cannot say that it waits, has it when the linger is over.
#[test]
fn spinning_waiter_waits_for_the_end_of_a_linger() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(ms(1_500))).unwrap();
    // Begun before, so that a machine that stands still makes it no shorter.
    let mut begin = Instant::now();
    until("it lingers", || {
        let guard = lock.lock().unwrap();
        begin = Instant::now();
        drop(guard);
        exists(&server, "x")
    });
    let spin = LockOptions::new().wait(Wait::spin());
    let guard = open(&server).mutex_with("x", spin).unwrap().lock().unwrap();
    let lasted = begin.elapsed();
    guard.check().unwrap();
    assert!(lasted > ms(1_450), "{lasted:?}");
}

/// Rule 18: "wanted" is sticky. A lease that somebody waits for does not linger.
#[test]
fn lease_with_a_waiter_does_not_linger() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    let other = open(&server).mutex("x").unwrap();
    for gone in [false, true] {
        linger(&server, &lock);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let begin = Instant::now();
                let outcome = other.try_lock_for(if gone { WAIT } else { SOON });
                let served = match outcome {
                    Ok(guard) => guard.is_some(),
                    // Where the machine stalls, its last request brings no answer, or is not sent.
                    Err(error) if gone && (error.is_unknown_outcome() || error.is_timeout()) => {
                        false
                    }
                    Err(error) => panic!("{error:?}"),
                };
                (served, begin.elapsed())
            });
            until("it waits", || waiting(&server, "x") == 1);
            until("the holder knows", || guard.is_contended());
            assert_eq!(guard.waiters(), 1);
            if gone {
                let (served, lasted) = waiter.join().unwrap();
                assert!(!served);
                all_have_left(&server, "x", lasted - WAIT);
                // Whoever it was: it is given back once, and the next hold starts afresh.
                guard.release().unwrap();
                assert!(!exists(&server, "x"));
            } else {
                guard.release().unwrap();
                assert!(waiter.join().unwrap().0, "it lingers");
            }
        });
    }
}

#[test]
fn lease_does_not_linger_without_a_live_listener() {
    let server = server();
    let url = server.url();
    // Everything is allowed, but to listen.
    let rules = ["ACL", "SETUSER", "deaf", "on", "nopass", "~*", "resetchannels", "+@all"];
    ask::<()>(&server, &rules);
    let deaf = format!("{}?user=deaf&pass=x", server.unix_url());
    let client = open_at(deaf);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    for _ in 0..20 {
        drop(lock.lock().unwrap());
        assert!(!exists(&server, "x"), "it lingers, and nobody can end it");
    }
    // And with a connection that goes down in between: what could not be heard is taken for granted.
    let client = open_at(url);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    let guard = lock.lock().unwrap();
    let killed: u64 = ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed, 1);
    until("it listens again", || listeners(&server) == 1);
    thread::sleep(ms(50));
    drop(guard);
    assert!(!exists(&server, "x"), "somebody may have come meanwhile");
    // The same for one that lingers at that moment: who waits is heard at the latest by its beats.
    linger(&server, &lock);
    ask::<u64>(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    drop(open(&server).mutex("x").unwrap().try_lock_for(SOON).unwrap().expect("it is heard"));
}

/// It lasts at most for half of what remains, so that nobody is given a dead lease.
#[test]
fn lease_does_not_linger_up_to_its_expiry() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(2_400).linger(LONG)).unwrap();
    linger(&server, &lock);
    let begin = Instant::now();
    while begin.elapsed() < ms(4_500) {
        let guard = lock.lock().unwrap();
        // In this order, as it may be renewed in between.
        let (asked, remaining, left) = (Instant::now(), guard.remaining(), pttl(&server, "x"));
        let least = remaining.saturating_sub(asked.elapsed() + ms(60));
        assert!(left > 0 && least <= ms(left.unsigned_abs()), "{remaining:?} of {left} ms");
        drop(guard);
        thread::sleep(ms(23));
    }
    until("it is given back", || !exists(&server, "x"));
}

/// Rule 9: who never renews needs a whole lease, and keeps none for others like it.
#[test]
fn fixed_hold_neither_takes_a_linger_nor_lingers() {
    let server = server();
    let client = open(&server);
    let options = renewed(60_000).linger(LONG);
    let lock = client.mutex_with("x", options).unwrap();
    let never = client.mutex_with("x", options.max_renewals(0)).unwrap();
    for _ in 0..2 {
        let token = linger(&server, &lock);
        thread::sleep(ms(1_500));
        let begin = Instant::now();
        let guard = never.lock().unwrap();
        let end = Instant::now() + guard.remaining();
        // What lingers ends earlier by what has passed of it.
        assert!(end > begin + ms(59_000), "only {:?} are left", guard.remaining());
        assert!(guard.fencing_token().get() > token);
        guard.release().unwrap();
        assert!(!exists(&server, "x"));
    }
}

/// The server lost the lock meanwhile. Who locks again finds out within its validity.
#[test]
fn lease_lost_while_lingering_is_found_lost_in_time() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", renewed(3_000).linger(LONG)).unwrap();
    let rival = open(&server).mutex_with("x", fixed(60_000)).unwrap();
    for _ in 0..10 {
        let token = linger(&server, &lock);
        ask::<()>(&server, &["DEL", "x"]);
        let other = rival.try_lock().unwrap().unwrap();
        let Some(guard) = lock.try_lock().unwrap() else {
            // A renewal was due just then, and has told.
            other.release().unwrap();
            continue;
        };
        assert!(guard.fencing_token().get() > token);
        until("it is found lost", || !guard.is_valid());
        assert!(guard.release().unwrap_err().is_lost());
        other.check().unwrap();
        // And it asks now.
        assert!(lock.try_lock().unwrap().is_none());
        other.check().unwrap();
        return;
    }
    panic!("a renewal always came in between");
}

/// What lingers is given back also when everything else of its client is gone.
#[test]
fn dropped_client_leaves_no_key() {
    let server = server();
    let before = clients(&server);
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    drop((client, lock));
    assert!(!exists(&server, "x"));
    // Its threads and connections end too.
    until("its connections are closed", || clients(&server) <= before);
}

fn clients(server: &Server) -> usize {
    ask::<String>(server, &["CLIENT", "LIST"]).lines().count()
}

/// "Nobody" must not be told "somebody" because of what the process itself keeps.
#[test]
fn other_options_in_the_process_do_not_see_a_linger_as_held() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    for options in [fixed(5_000), renewed(5_000), renewed(30_000).wait(Wait::spin())] {
        let other = client.mutex_with("x", options).unwrap();
        for round in 0..20 {
            let token = linger(&server, &lock);
            let guard = other.try_lock().unwrap();
            let guard = guard.unwrap_or_else(|| panic!("{options:?}, {round}: nobody has it"));
            assert!(guard.fencing_token().get() > token);
            guard.check().unwrap();
        }
    }
}

#[test]
fn waiters_are_counted_here_and_elsewhere() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    let guard = lock.lock().unwrap();
    assert!(!guard.is_contended() && guard.waiters() == 0);
    thread::scope(|scope| {
        for number in 1..=2 {
            scope.spawn(|| drop(lock.lock().unwrap()));
            until("a thread here", || guard.waiters() == number);
        }
        for number in 1..=2 {
            let other = open(&server).mutex("x").unwrap();
            scope.spawn(move || drop(other.lock().unwrap()));
            until("a process elsewhere", || waiting(&server, "x") == number);
        }
        // The second of them is told by the first one's beats.
        until("all of them", || guard.waiters() == 4);
        assert!(guard.is_contended());
        drop(guard);
    });
}

/// The holder is asked from another process, and decides by itself.
#[test]
fn release_request_reaches_the_holders_process() {
    let server = server();
    let mut holder =
        Child::role("holder").test("linger::roles").env("URL", server.url()).start().unwrap();
    holder.expect_line("has", SOON);
    let client = open(&server);
    let lock = client.mutex("a b").unwrap();
    assert!(!client.mutex("nobody's").unwrap().request_release().unwrap());
    until("it hears", || lock.request_release().unwrap());
    assert_eq!(holder.expect_line("asked for ", SOON), "a b");
    // It still has it, until it wants to let go.
    assert!(lock.try_lock().unwrap().is_none());
    holder.say("let go");
    drop(lock.try_lock_for(SOON).unwrap().expect("let go"));
    assert!(!lock.request_release().unwrap(), "nobody has it");
}

#[test]
fn release_requests_reach_only_holders_despite_panics() {
    let server = server();
    let asked = Arc::new(Shared::new(Vec::new()));
    let (seen, panics) = (Arc::clone(&asked), Arc::new(AtomicU32::new(1)));
    let client = patient(LockClient::builder(server.url()))
        .on_release_request(move |name| {
            seen.lock().unwrap().push(name.to_vec());
            let first = panics.swap(0, Ordering::SeqCst) == 1;
            if first {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        })
        .build()
        .unwrap();
    let _x = client.mutex("x").unwrap().lock().unwrap();
    let _y = client.mutex("y").unwrap().lock().unwrap();
    let other = open(&server);
    let (for_x, for_y) = (other.mutex("x").unwrap(), other.mutex("y").unwrap());
    until("it hears", || for_x.request_release().unwrap());
    until("it is told", || !asked.lock().unwrap().is_empty());
    asked.lock().unwrap().clear();
    for _ in 0..3 {
        assert!(for_y.request_release().unwrap());
    }
    until("it is told", || asked.lock().unwrap().len() == 3);
    assert!(asked.lock().unwrap().iter().all(|name| name == b"y"));
    // A foreign holder hears nothing.
    ask::<()>(&server, &["SET", "z", "foreign", "PX", "60000"]);
    assert!(!other.mutex("z").unwrap().request_release().unwrap());
}

#[test]
fn lingering_lease_is_released_on_request() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    assert!(open(&server).mutex("x").unwrap().request_release().unwrap());
    until("it is given back", || !exists(&server, "x"));
    // A hold is not.
    linger(&server, &lock);
    let guard = lock.lock().unwrap();
    assert!(open(&server).mutex("x").unwrap().request_release().unwrap());
    thread::sleep(ms(100));
    guard.check().unwrap();
}

/// A hold that is taken again and again leaves nothing behind each time.
#[cfg(target_os = "linux")]
#[test]
fn locking_again_and_again_takes_no_memory() {
    let _turn = heavy();
    in_own_process!();
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    let again = |times: usize| (0..times).for_each(|_| drop(lock.lock().unwrap()));
    again(20_000);
    let before = crate::common::resident();
    again(300_000);
    let grown = crate::common::resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{} KiB after 300,000 holds", grown >> 10);
}

/// Nor while the worker, which would clear up after it, waits for Redis.
#[cfg(target_os = "linux")]
#[test]
fn locking_again_while_redis_is_silent_takes_no_memory() {
    in_own_process!();
    let server = server();
    warm(&server);
    let client = LockClient::builder(server.url()).command_timeout(ms(20_000)).build().unwrap();
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    let again = |times: usize| (0..times).for_each(|_| drop(lock.lock().unwrap()));
    again(20_000);
    let before = crate::common::resident();
    linger(&server, &client.mutex_with("y", lingering(ms(200))).unwrap());
    let guard = lock.lock().unwrap();
    guard.extend(LONG).unwrap();
    let confirmed = Instant::now();
    drop(guard);
    server.pause();
    // By now the worker gives that one back, and has no answer.
    thread::sleep(ms(300));
    // For as long as the lease is taken again without asking, which is a second.
    let mut holds = 0;
    while confirmed.elapsed() < ms(900)
        && let Ok(guard) = lock.lock()
    {
        drop(guard);
        holds += 1;
    }
    let grown = crate::common::resident().saturating_sub(before);
    server.resume();
    assert!(grown < 5 << 19, "{} KiB after {holds} holds", grown >> 10);
}

/// What is thrown away then is over: leases that are held come to the worker, however often they
/// went round.
#[test]
fn leases_taken_while_the_worker_is_busy_are_renewed() {
    let _turn = heavy();
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let lock = client.mutex_with("x", lingering(LONG)).unwrap();
    linger(&server, &lock);
    let end = proxy.add(Fault::request("short", Action::Hold).at(Operation::Release));
    linger(&server, &client.mutex_with("short", lingering(ms(500))).unwrap());
    assert!(end.wait_fired(SOON));
    let guards: Vec<Guard> = (0..64)
        .map(|number| {
            let lock = client.mutex_with(format!("held{number}"), renewed(12_000)).unwrap();
            lock.lock().unwrap()
        })
        .collect();
    // They take a part of the leases' time, also in a build that is not optimised.
    (0..20_000).for_each(|_| drop(lock.lock().unwrap()));
    end.release();
    (0..2).for_each(|_| all_renewed(&guards));
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
}

/// Leases that were live when they came to the worker, and end long before they are due there.
#[cfg(target_os = "linux")]
#[test]
fn leases_that_end_before_their_time_take_no_memory() {
    let _turn = heavy();
    in_own_process!();
    const AT_A_TIME: usize = 1_100;
    let server = server();
    let client = open(&server);
    let locks: Vec<_> = (0..AT_A_TIME)
        .map(|number| client.mutex_with(format!("x{number}"), fixed(3_600_000)).unwrap())
        .collect();
    let again = |times: usize| {
        for _ in 0..times {
            let guards: Vec<Guard> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
            // The worker takes them in.
            thread::sleep(ms(5));
            drop(guards);
        }
    };
    again(5);
    let before = crate::common::resident();
    again(40);
    let grown = crate::common::resident().saturating_sub(before);
    assert!(grown < 6 << 20, "{} KiB after {} holds", grown >> 10, 40 * AT_A_TIME);
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    let Some(role) = role() else { return };
    assert_eq!(role, "holder");
    let client = patient(LockClient::builder(std::env::var("URL").unwrap()))
        .on_release_request(|name| tell(&format!("asked for {}", name.escape_ascii())))
        .build()
        .unwrap();
    let guard = client.mutex("a b").unwrap().lock().unwrap();
    tell("has");
    hear();
    guard.release().unwrap();
    hear();
}

/// What lingers cannot be passed on to a fixed lease: it is given back first, and that takes no longer
/// than the caller waits.
#[test]
fn wait_that_ends_a_linger_ends_in_time_in_silence() {
    let server = server();
    warm(&server);
    let client = LockClient::builder(server.url()).command_timeout(SOON).build().unwrap();
    linger(&server, &client.mutex_with("x", lingering(LONG)).unwrap());
    let lock = client.mutex_with("x", fixed(5_000)).unwrap();
    server.pause();
    let begin = Instant::now();
    let outcome = lock.try_lock_for(ms(100)).map(|guard| guard.is_some());
    let took = begin.spent();
    server.resume();
    assert!(outcome.is_err(), "{outcome:?}");
    assert!(took < SOON / 2, "{took:?}");
}

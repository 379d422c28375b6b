//! The pool: bounded in number and in time, whatever the server does.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::waiting;
use crate::common::{
    AtLast, SLACK, SOON, ask, behind_proxy, ms, open, open_at, patient, server, until,
};
use leasehold::{LockClient, LockOptions};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy};

#[test]
fn open_of_a_black_hole_ends_in_time() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    proxy.black_hole();
    let begin = Instant::now();
    let builder = LockClient::builder(proxy.url()).connect_now(true);
    let builder = builder.connect_timeout(ms(300)).command_timeout(ms(300));
    let error = builder.build().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(begin.spent() < ms(600) + SLACK, "{:?}", begin.spent());
    // With a password, a database and RESP3 there is more to say and to wait for.
    let url = format!("redis://user:word@{}/3?protocol=resp3", proxy.addr());
    let begin = Instant::now();
    let builder = LockClient::builder(url).connect_now(true);
    let error = builder.connect_timeout(ms(300)).command_timeout(ms(300)).build().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(begin.spent() < ms(600) + SLACK, "{:?}", begin.spent());
}

/// A client whose server is silent must not keep the others from theirs.
#[test]
fn silent_servers_client_does_not_delay_other_clients() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    proxy.black_hole();
    const TIMEOUT: Duration = ms(5_000);
    let builder = patient(LockClient::builder(proxy.url())).command_timeout(TIMEOUT);
    let silent = builder.connect_timeout(TIMEOUT).max_wait(TIMEOUT).build().unwrap();
    thread::scope(|scope| {
        for number in 0..8 {
            let lock = silent.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || lock.try_lock().map(drop));
        }
        until("they try", || proxy.accepted() > 0);
        let begin = Instant::now();
        let outcome = patient(LockClient::builder(server.url())).connect_now(true).build();
        let took = begin.spent();
        proxy.heal();
        assert!(outcome.is_ok(), "after {took:?}: {:?}", outcome.err());
        assert!(took < TIMEOUT / 2, "{took:?}");
    });
}

/// A connection on which `WAIT` waits is in use by leave: the server is not silent.
#[test]
fn an_exhausted_pool_is_an_error_of_its_own_within_max_wait() {
    let server = server();
    let builder = LockClient::builder(server.url()).max_size(1).max_wait(ms(200));
    let client = builder.command_timeout(SOON).build().unwrap();
    // To connect may take longer than that.
    until("it is connected", || client.mutex("x").unwrap().is_locked().is_ok());
    let replicas = LockOptions::new().min_replicas(1, ms(6_000));
    thread::scope(|scope| {
        let lock = client.mutex_with("slow", replicas).unwrap();
        let other = scope.spawn(move || lock.try_lock().map(drop));
        until("its connection waits", || {
            ask::<String>(&server, &["INFO", "clients"]).contains("blocked_clients:1")
        });
        let begin = Instant::now();
        let error = client.mutex("x").unwrap().try_lock().unwrap_err();
        let (lasted, took) = (begin.elapsed(), begin.spent());
        assert!(error.is_pool_exhausted() && error.to_string().contains("max_size"), "{error:?}");
        assert!(lasted >= ms(190) && took < ms(200) + SLACK, "{lasted:?}");
        assert!(other.join().unwrap().unwrap_err().is_not_replicated());
    });
    drop(client.mutex("x").unwrap().lock().unwrap());
}

/// Who waits for a connection that is being made does not have one more made every few
/// milliseconds.
#[test]
fn one_thread_makes_one_connection_however_long_that_takes() {
    let (_server, proxy) = behind_proxy();
    proxy.delay(ms(60));
    let client = open_at(proxy.url());
    assert!(!client.mutex("x").unwrap().is_locked().unwrap());
    // Others would be made one after the other.
    proxy.heal();
    std::thread::sleep(ms(300));
    assert_eq!(proxy.accepted(), 1);
}

/// Threads that wait for a lock hold no connection.
#[test]
fn waiting_threads_share_a_pool_of_one() {
    let server = server();
    let holder = open(&server);
    let guards: Vec<_> =
        (0..16).map(|n| holder.mutex(format!("x{n}")).unwrap().lock().unwrap()).collect();
    let client = patient(LockClient::builder(server.url())).max_size(1).build().unwrap();
    thread::scope(|scope| {
        for number in 0..16 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || lock.lock().unwrap().release().unwrap());
        }
        until("all of them wait", || (0..16).all(|n| waiting(&server, &format!("x{n}")) == 1));
        drop(guards);
    });
}

#[test]
fn the_pool_is_bounded_in_size_and_in_idle_connections() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let builder = patient(LockClient::builder(proxy.url())).max_size(4).max_idle(1);
    let client = builder.build().unwrap();
    proxy.delay(ms(20));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = AtLast(&over);
        for number in 0..12 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    lock.lock().unwrap().release().unwrap();
                }
            });
        }
        let mut most = 0;
        until("four are made", || proxy.accepted() >= 4);
        for _ in 0..50 {
            most = most.max(proxy.connections());
            thread::sleep(ms(2));
        }
        // Four, one that is just being closed, and the worker's.
        assert!(most <= 6, "{most}");
    });
    proxy.heal();
    // Of two that come back at the same moment one may be too many until the next comes back.
    until("the surplus is closed", || {
        drop(client.mutex("y").unwrap().lock().unwrap());
        proxy.connections() <= 2
    });
}

#[test]
fn min_idle_connections_are_there_before_they_are_needed() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let _client = patient(LockClient::builder(proxy.url())).min_idle(3).build().unwrap();
    until("they are there", || proxy.connections() == 3);
}

/// r2d2 goes on trying to make what was ordered, although who ordered it has given up.
#[test]
fn longer_waits_do_not_cause_more_connection_attempts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    // It hangs up at once.
    thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let within = |span| {
        let before = accepted.load(Ordering::SeqCst);
        thread::sleep(span);
        accepted.load(Ordering::SeqCst) - before
    };
    let client = LockClient::builder(url).give_up_after(ms(5_000)).build().unwrap();
    let lock = client.mutex("x").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock().unwrap_err());
        thread::sleep(ms(2_500));
        let waited = within(ms(2_000));
        assert!(waited > 0 && waited <= 40, "{waited} in two seconds");
        assert!(waiting.join().unwrap().is_unreachable());
    });
    thread::sleep(ms(500));
    let later = within(ms(2_000));
    assert!(later <= 24, "{later} in two seconds");
    // Many who come at once are no different.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| lock.try_lock().unwrap_err());
        }
    });
    let later = within(ms(2_000));
    assert!(later <= 24, "{later} in two seconds");
}

/// Who is not taken along because no connection can be made is told of that.
#[test]
fn outage_is_not_reported_as_an_exhausted_pool() {
    let (_server, proxy) = behind_proxy();
    let builder = LockClient::builder(proxy.url()).connect_timeout(ms(400));
    let client = builder.command_timeout(ms(500)).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    proxy.black_hole();
    proxy.cut();
    let mutex = client.mutex("x").unwrap();
    until("it is known", || mutex.try_lock().is_err_and(|error| error.is_unreachable()));
    thread::scope(|scope| {
        for number in 0..32 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || {
                for _ in 0..3 {
                    let error = lock.try_lock().unwrap_err();
                    assert!(error.is_unreachable(), "{error:?}");
                }
            });
        }
    });
    proxy.heal();
}

/// Connections that work serve everybody, also while the server has no room for more of them.
#[test]
fn call_waits_for_a_busy_connection_if_none_can_be_made() {
    let (_server, proxy) = behind_proxy();
    let builder = patient(LockClient::builder(proxy.url()));
    let client = builder.connect_now(true).build().unwrap();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    proxy.refuse();
    proxy.delay(ms(20));
    thread::scope(|scope| {
        for number in 0..3 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || {
                for _ in 0..5 {
                    lock.try_lock().unwrap().expect("its own").release().unwrap();
                }
            });
        }
    });
    // All others were refused.
    assert_eq!(proxy.connections(), 1);
    proxy.heal();
}

/// Who gets one that came free meanwhile has not had one less made.
#[test]
fn one_connection_at_a_time_is_made_under_contention() {
    let (_server, proxy) = behind_proxy();
    let builder = patient(LockClient::builder(proxy.url()));
    let client = builder.connect_now(true).build().unwrap();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    let before = proxy.accepted();
    let hello = Fault::request("TIME", Action::Delay(ms(400))).at(Operation::Hello).sticky();
    let slow = proxy.add(hello);
    let begin = Instant::now();
    thread::scope(|scope| {
        for number in 0..3 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || {
                while begin.elapsed() < ms(300) {
                    lock.try_lock().unwrap().expect("its own").release().unwrap();
                }
            });
        }
    });
    assert!(slow.wait_fired(SOON));
    thread::sleep(ms(1_600));
    let made = proxy.accepted() - before;
    assert!((1..=2).contains(&made), "{made} more were made");
}

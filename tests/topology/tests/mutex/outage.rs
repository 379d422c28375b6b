//! Servers that hang, or are dead: those of the test alone, and in a process of its own.

use std::time::{Duration, Instant};

use leasehold::{Error, LossCause};
use leasehold_support::Child;
use leasehold_support::child::tell;
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed, until};
use leasehold_topology_test::{Builder, Client, Server, Topology};

const TIMEOUT: Duration = ms(1_000);
const OUTAGE: Duration = ms(2_000);

/// What servers that hang or are dead are told as: never as somebody who has the lock.
#[track_caller]
fn is_an_outage(error: &Error) {
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
}

pub(crate) fn outage_is_reported_in_time_and_ends<T: Topology>(scene: &Scene<'_, T>) {
    apart(scene);
}

pub(crate) fn wait_outlasts_a_short_outage<T: Topology>(scene: &Scene<'_, T>) {
    apart(scene);
}

/// Runs the test in a child.
fn apart<T: Topology>(scene: &Scene<'_, T>) {
    let child = Child::role(std::any::type_name::<T>()).test("roles").env("OUTAGE", scene.test());
    child.start().expect("a child").expect_line("passed", SOON * 6);
}

/// What the child does.
pub(crate) fn play<T: Topology>(test: &str) {
    let topology = T::start();
    match test {
        "outage_is_reported_in_time_and_ends" => be_out_of_reach(&topology),
        "wait_outlasts_a_short_outage" => be_out_of_reach_for_a_while(&topology),
        _ => panic!("unknown test {test}"),
    }
    tell("passed");
}

/// All hang, go on, and die.
fn be_out_of_reach<T: Topology>(topology: &T) {
    let builder = T::builder(&topology.address()).timeout(TIMEOUT).give_up_after(OUTAGE);
    let client = builder.build().unwrap();
    let lock = client.mutex(b"x").unwrap();
    lock.lock().unwrap().release().unwrap();
    let guard = client.mutex_with(b"held", renewed(4_000)).unwrap().lock().unwrap();
    topology.servers().into_iter().for_each(Server::pause);
    let begin = Instant::now();
    is_an_outage(&lock.try_lock().unwrap_err());
    is_an_outage(&lock.try_lock_for(ms(100)).unwrap_err());
    is_an_outage(&lock.lock().unwrap_err());
    is_an_outage(&lock.is_locked().unwrap_err());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    // What is held is lost when its lease is over, and not before.
    until("it is lost", || guard.loss().is_some());
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    topology.servers().into_iter().for_each(Server::resume);
    until("it is over", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    drop(guard);
    topology.servers().into_iter().for_each(Server::kill);
    let begin = Instant::now();
    // What was cut in the middle is not known; what cannot be connected to was not asked.
    let _ = lock.try_lock();
    for error in [lock.try_lock().unwrap_err(), lock.lock().unwrap_err()] {
        assert!(error.is_unreachable(), "{error:?}");
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let error = T::builder(&topology.address()).timeout(TIMEOUT).connect_now(true).build();
    assert!(error.unwrap_err().is_unreachable());
}

/// A wait for a lock goes on through an outage that is short.
fn be_out_of_reach_for_a_while<T: Topology>(topology: &T) {
    let builder = || T::builder(&topology.address()).timeout(TIMEOUT).give_up_after(SOON * 4);
    let (client, other) = (builder().build().unwrap(), builder().build().unwrap());
    let guard = client.mutex(b"x").unwrap().lock().unwrap();
    std::thread::scope(|scope| {
        let waiter =
            scope.spawn(|| other.mutex(b"x").unwrap().lock().map(|guard| guard.fencing_token()));
        std::thread::sleep(ms(200));
        topology.servers().into_iter().for_each(Server::pause);
        std::thread::sleep(TIMEOUT * 3);
        assert!(!waiter.is_finished());
        topology.servers().into_iter().for_each(Server::resume);
        until("it is still held", || guard.check().is_ok());
        let token = guard.fencing_token();
        // Whether its answer came or not.
        if let Err(error) = guard.release() {
            is_an_outage(&error);
        }
        assert!(waiter.join().unwrap().unwrap() > token);
    });
}

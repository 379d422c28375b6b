//! What a holder is told of those who wait, and those who wait of a holder that never ends.

use std::thread;

use crate::common::kind::Lock;
use crate::common::log::warnings;
use crate::common::queue::{wait_for, waiting};
use crate::common::{ask, ms, open, server, until};
use leasehold::LockClient;
use leasehold_support::Server;

/// Nothing has made the holder's client listen before.
#[test]
fn holder_that_never_waited_learns_of_waiters_elsewhere() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiters = [1, 2].map(|number| {
            let waiter = wait_for(scope, &open(&server).mutex("x").unwrap());
            until("it queues", || waiting(&server, "x") == number);
            waiter
        });
        // They were told of to nobody.
        until("the holder hears of both", || guard.waiters() == 2);
        assert!(guard.is_contended());
        guard.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// Warnings of a holder without an end, for a lock of this name.
fn warned_of(name: &str) -> usize {
    warnings(&[&format!("lock {name:?}: its key has no time to live"), "force_release"])
}

/// Deletes a key at last, also where the test fails before: the threads that wait for it must end.
struct Gone<'a>(&'a Server, &'a str);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        ask::<()>(self.0, &["DEL", self.1]);
    }
}

/// Two threads wait for a key without an end, and a third one waits for another again and again.
fn warns_once(
    server: &Server,
    client: &LockClient,
    name: &str,
    lock: &(impl Lock + Clone + 'static),
    set: &[&str],
) {
    let before = warned_of(name);
    ask::<()>(server, set);
    thread::scope(|scope| {
        let gone = Gone(server, name);
        let first = wait_for(scope, lock);
        until("the user is warned", || warned_of(name) > before);
        let second = wait_for(scope, lock);
        // Another handle of the same client, and a wait that ends.
        for _ in 0..3 {
            let lock = client.mutex("another").unwrap();
            let warned = warned_of("another") > 0;
            // A machine that stands still may leave no time for a reply.
            until("it is refused, and warned of", || {
                let outcome = lock.try_lock_for(ms(30));
                assert!(!matches!(outcome, Ok(Some(_))), "somebody has it for ever");
                matches!(outcome, Ok(None)) && (warned || warned_of("another") > 0)
            });
        }
        assert_eq!(warned_of(name), before + 1);
        drop(gone);
        for waiter in [first, second] {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn wait_for_a_key_without_expiry_warns_once() {
    let server = server();
    let client = open(&server);
    ask::<()>(&server, &["SET", "another", "somebody's"]);
    let mutex = client.mutex("of a string").unwrap();
    let reentrant = client.reentrant("of a hash").unwrap();
    for _ in 0..2 {
        let set = ["SET", "of a string", "somebody's"];
        warns_once(&server, &client, "of a string", &mutex, &set);
        let set = ["HSET", "of a hash", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"];
        warns_once(&server, &client, "of a hash", &reentrant, &set);
    }
    // Waited for six times, through as many handles, and it has stayed as it was.
    assert_eq!(warned_of("another"), 1);
    assert!(client.mutex("another").unwrap().force_release_any().unwrap());
    assert!(client.mutex("another").unwrap().try_lock().unwrap().is_some());
}

/// A single attempt is no wait, and a holder whose lease ends is none without an end.
#[test]
fn only_an_endless_wait_is_warned_of() {
    let server = server();
    let client = open(&server);
    assert_eq!(warned_of("quiet"), 0);
    let lock = client.mutex("quiet").unwrap();
    ask::<()>(&server, &["SET", "quiet", "somebody's"]);
    assert!(lock.try_lock().unwrap().is_none());
    ask::<()>(&server, &["SET", "quiet", "somebody's", "PX", "60000"]);
    until("it is refused", || matches!(lock.try_lock_for(ms(50)), Ok(None)));
    assert_eq!(warned_of("quiet"), 0);
}

//! What is handed over, and what tells of it.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::lag::Spent as _;

use crate::common::queue::{listens, wait_for};
use crate::common::{fixed, ms, open, pttl, renewed, server, until};
use crate::queue::{AT_ONCE, until_waiting};

/// A lease far longer than the window of a claim, which is about as long as a command may take here.
const WHOLE: u64 = 300_000;
/// That window: two heartbeats, the command time-out, and what two clocks may differ by.
const WINDOW: i64 = 36_000;
/// So long after a hand-over the next owner makes its claim whole.
const CLAIM_RENEWED_AFTER: Duration = ms(200);

/// Rule 9: a fixed lease is whole before the guard is returned, and its tokens outlive it.
#[test]
fn a_fixed_lease_that_was_handed_over_is_whole() {
    let server = server();
    for short in [renewed(60_000), fixed(60_000)] {
        let guard = open(&server).mutex_with("x", short).unwrap().lock().unwrap();
        let lock = open(&server).mutex_with("x", fixed(WHOLE)).unwrap();
        thread::scope(|scope| {
            let server = &server;
            let waiter = scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let seen = (guard.remaining(), pttl(server, "x"), pttl(server, "{x}:fence"));
                guard.release().unwrap();
                seen
            });
            until_waiting(server, "x", 1);
            guard.release().unwrap();
            let (remaining, left, fence) = waiter.join().unwrap();
            let least = i64::try_from(WHOLE).unwrap() * 9 / 10;
            assert!(left > least && remaining > ms(WHOLE * 9 / 10), "{left} ms, {remaining:?}");
            // The last token is kept for as long as the lease that it was made for.
            assert!(
                fence >= left - 1_000,
                "the token is kept for {fence} ms, the lock for {left} ms"
            );
        });
    }
}

/// Rules 7 and 9: the window written is the next owner's, and its first renewal makes it whole.
#[test]
fn first_renewal_makes_the_next_owners_claim_whole() {
    let server = server();
    for (ttl, most) in [(WHOLE, WINDOW), (30_000, 30_000)] {
        let guard = open(&server).mutex_with("x", fixed(60_000)).unwrap().lock().unwrap();
        let client = open(&server);
        // One that has just begun to listen asks once more, which makes the claim whole at once.
        listens(&server, &client);
        let lock = client.mutex_with("x", renewed(ttl)).unwrap();
        thread::scope(|scope| {
            let (server, (tell, released)) = (&server, mpsc::channel());
            let waiter = scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let (looked, remaining) = (Instant::now(), guard.remaining());
                let left = pttl(server, "x");
                let took = looked.elapsed();
                let begin: Instant = released.recv().unwrap();
                // A machine that stood still meanwhile has let the first renewal come before the look.
                let late = begin.elapsed() > CLAIM_RENEWED_AFTER;
                assert!(left > 0 && (left <= most || late), "{left} ms of {most}");
                let told = ms(left.unsigned_abs() + 1) + took;
                assert!(remaining <= told, "{remaining:?}, more than Redis says: {told:?}");
                let whole = i64::try_from(ttl).unwrap() * 3 / 4;
                until("it is renewed", || pttl(server, "x") > whole);
                until("the holder knows", || guard.remaining() > ms(whole.unsigned_abs() - 200));
                guard.check().unwrap();
            });
            until_waiting(server, "x", 1);
            tell.send(Instant::now()).unwrap();
            guard.release().unwrap();
            waiter.join().unwrap();
        });
    }
}

/// `max_renewals` counts renewals; that a hand-over begins with a claim is not the user's doing.
#[test]
fn handed_over_lease_without_renewals_is_whole() {
    let server = server();
    let guard = open(&server).mutex("x").unwrap().lock().unwrap();
    let lock = open(&server).mutex_with("x", renewed(WHOLE).max_renewals(0)).unwrap();
    thread::scope(|scope| {
        let server = &server;
        let waiter = scope.spawn(move || {
            let guard = lock.lock().unwrap();
            until("it is whole", || guard.remaining() > ms(WHOLE / 2));
            guard.check().unwrap();
        });
        until_waiting(server, "x", 1);
        guard.release().unwrap();
        waiter.join().unwrap();
    });
}

/// A grant names its lock, and the waiter checks it.
#[test]
fn any_name_can_be_granted_by_message() {
    let server = server();
    let (holder, heir) = (open(&server), open(&server));
    listens(&server, &heir);
    let names: [&[u8]; 7] = [
        b"a b  c ",
        b"\x00\xff\r\n",
        b"{tag}x",
        b"g 1 2 3 4 5 x",
        b"{",
        b"}",
        "\u{1f512}".as_bytes(),
    ];
    for name in names {
        let guard = holder.mutex(name).unwrap().lock().unwrap();
        let lock = heir.mutex(name).unwrap();
        thread::scope(|scope| {
            let waiter = wait_for(scope, &lock);
            until("it waits", || server.keys().iter().any(|key| key.ends_with(b"queue")));
            let begin = Instant::now();
            guard.release().unwrap();
            let (served, _) = waiter.join().unwrap();
            let took = served.spent_since(begin);
            assert!(took < AT_ONCE, "{}: {took:?}", name.escape_ascii());
        });
        assert!(server.keys().iter().all(|key| key != name), "{}", name.escape_ascii());
    }
}

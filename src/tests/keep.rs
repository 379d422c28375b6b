//! Leases that last: kept beyond their hold, or made whole at once.

use std::time::Duration;

use super::double::{listen, until};
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::{Receiver, RecvTimeoutError, unbounded};
use crate::client::{DistributedLock, LockClient};
use crate::kind::Guard;
use crate::testing::Server;

const SOON: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const KEPT: Duration = Duration::from_secs(5);
/// Nothing of a test with a standing clock takes that long, unless it hangs.
const BRIEFLY: Duration = Duration::from_millis(100);

/// The lease of a hold for which [`KEPT`] is too long, and one for which it is not.
const LEASES: [Lease; 2] = [Lease::renewed(Duration::from_secs(3)), Lease::fixed(SOON)];

fn has(server: &Server, key: &str) -> bool {
    server.keys().iter().any(|found| found == key.as_bytes())
}

fn hold(client: &LockClient, lease: Lease) -> Guard {
    client.mutex_with("x", LockOptions::new().lease(lease)).unwrap().lock().unwrap()
}

/// A thread that takes the lock and returns it.
fn taker(client: &LockClient) -> Receiver<u64> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex("x").unwrap();
    let body = move || {
        let guard = lock.lock().unwrap();
        let _ = sender.send(guard.fencing_token().get());
    };
    sync::spawn("taker", body).unwrap();
    receiver
}

#[test]
fn kept_lock_is_nobodys_until_its_time_is_over() {
    for lease in LEASES {
        let server = Server::standing_still();
        let (here, there) = (server.client(), server.client());
        let guard = hold(&here, lease);
        let token = guard.fencing_token().get();
        server.advance(SECOND);
        guard.keep_for(KEPT).unwrap();
        // Of several times the longest counts.
        guard.keep_for(SECOND * 2).unwrap();
        let near = taker(&here);
        let far = taker(&there);
        until(|| guard.waiters() >= 1 && has(&server, "{x}:queue"));
        guard.release().unwrap();
        // It is counted from the grant.
        server.advance(KEPT - SECOND - BRIEFLY);
        for client in [&here, &there] {
            let lock = client.mutex("x").unwrap();
            assert!(lock.try_lock().unwrap().is_none() && !lock.is_held_by_current_thread());
            assert_eq!(lock.holder().unwrap().unwrap().pid(), Some(std::process::id()));
        }
        assert_eq!(far.recv_timeout(BRIEFLY), Err(RecvTimeoutError::Timeout));
        assert_eq!(near.recv_timeout(BRIEFLY), Err(RecvTimeoutError::Timeout));
        // Its release wakes them: no time has to pass for that.
        server.advance(BRIEFLY);
        let tokens = [&near, &far].map(|taken| taken.recv().unwrap());
        assert!(tokens.iter().all(|&next| next > token), "{lease:?}: {token} {tokens:?}");
        until(|| !has(&server, "x"));
    }
}

/// As if the process had ended: nobody but Redis knows of it any more.
#[test]
fn kept_lock_outlasts_its_process_and_ends_with_its_lease() {
    for (lease, end) in [(LEASES[0], KEPT), (LEASES[1], SOON)] {
        let server = Server::standing_still();
        let (here, there) = (server.client(), server.client());
        let guard = hold(&here, lease);
        guard.keep_for(KEPT).unwrap();
        server.link(&here).cut();
        drop(guard);
        server.advance(KEPT - BRIEFLY);
        let lock = there.mutex("x").unwrap();
        assert!(lock.try_lock().unwrap().is_none(), "{lease:?}");
        // It is a little longer, for a clock of the server that is fast.
        server.advance(end - KEPT + BRIEFLY * 3);
        assert!(lock.try_lock().unwrap().is_some(), "{lease:?}");
    }
}

#[test]
fn kept_lock_is_not_renewed_after_its_release() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&client, Lease::renewed(SECOND));
    guard.keep_for(KEPT).unwrap();
    drop(guard);
    let link = server.link(&client);
    // A renewal would be a request.
    link.lose_requests(1);
    server.advance(KEPT - BRIEFLY);
    assert_eq!(link.faults(), 0);
    assert!(has(&server, "x"));
}

#[test]
fn hold_that_lasts_longer_is_released_as_ever() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&client, Lease::default());
    guard.keep_for(KEPT).unwrap();
    guard.keep_for(SECOND).unwrap();
    server.advance(KEPT);
    guard.release().unwrap();
    assert!(!has(&server, "x"));

    // A time that is over already costs nothing.
    let guard = hold(&client, Lease::default());
    server.advance(KEPT);
    server.link(&client).cut();
    guard.keep_for(KEPT).unwrap();
    server.link(&client).restore();
    guard.release().unwrap();
    assert!(!has(&server, "x"));
}

/// A local hand-off or a linger would give it to a thread of this process.
#[test]
fn kept_lock_is_neither_passed_on_nor_lingers() {
    for kept in [false, true] {
        let server = Server::standing_still();
        let client = server.client();
        let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
        lock.lock().unwrap().release().unwrap();
        let engine = client.engine();
        until(|| engine.listener.is_live());
        // It lingers only where others have been heard of from the start.
        server.advance(Duration::ZERO);
        let guard = lock.lock().unwrap();
        let link = server.link(&client);
        if kept {
            guard.keep_for(KEPT).unwrap();
        }
        guard.release().unwrap();
        assert!(has(&server, "x"));
        // What lingers is taken again without a request, once there can be a token for that.
        server.advance(SECOND / 10);
        link.delay_requests(1, Duration::ZERO);
        assert_eq!(lock.try_lock().unwrap().is_none(), kept);
        assert_eq!(link.faults(), u64::from(kept));
        server.advance(SOON * 4);

        let owned = lock.lock().unwrap().into_owned().unwrap();
        if kept {
            owned.keep_for(KEPT).unwrap();
        }
        let next = taker(&client);
        let slot = engine.table().all().pop().unwrap();
        until(|| slot.waiters() == 1);
        server.advance(SECOND / 2);
        owned.release().unwrap();
        if kept {
            assert_eq!(next.recv_timeout(BRIEFLY), Err(RecvTimeoutError::Timeout));
            server.advance(KEPT);
        }
        next.recv().unwrap();
    }
}

#[test]
fn forced_release_ends_a_kept_lock() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = hold(&here, Lease::default());
    guard.keep_for(KEPT).unwrap();
    drop(guard);
    let next = taker(&here);
    until(|| has(&server, "{x}:queue"));
    assert!(there.mutex("x").unwrap().force_release().unwrap());
    let token = next.recv().unwrap();
    until(|| !has(&server, "x"));
    // The next hold is not ended by what was kept before.
    let guard = hold(&there, Lease::default());
    assert!(guard.fencing_token().get() > token);
    server.advance(KEPT);
    guard.check().unwrap();
}

#[test]
fn closed_client_neither_waits_for_a_kept_lock_nor_ends_it() {
    for held in [false, true] {
        let server = Server::standing_still();
        let (here, there) = (server.client(), server.client());
        let guard = hold(&here, Lease::default());
        guard.keep_for(KEPT).unwrap();
        let guard = if held {
            Some(guard)
        } else {
            drop(guard);
            None
        };
        let report = here.close(Duration::ZERO, SECOND * 3600);
        assert_eq!(report.taken().len(), usize::from(held), "{report}");
        let cause = guard.as_ref().map(|guard| guard.loss().unwrap().cause());
        assert_eq!(cause, held.then_some(LossCause::ShutDown));
        report.into_result().unwrap();
        drop(guard);
        server.advance(KEPT - BRIEFLY);
        let lock = there.mutex("x").unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        server.advance(BRIEFLY);
        assert!(lock.try_lock().unwrap().is_some(), "held: {held}");
    }
}

#[test]
fn max_hold_ends_the_hold_and_not_the_time() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().max_hold(SECOND);
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    guard.keep_for(KEPT).unwrap();
    server.advance(SECOND);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::MaxHold);
    drop(guard);
    server.advance(KEPT - SECOND - BRIEFLY);
    assert!(has(&server, "x"));
    server.advance(BRIEFLY);
    assert!(!has(&server, "x"));
}

/// An outage in which the process forgets nothing.
#[test]
fn kept_lock_is_released_after_an_outage_at_its_end() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&client, Lease::default());
    guard.keep_for(KEPT).unwrap();
    drop(guard);
    let link = server.link(&client);
    link.cut();
    server.advance(KEPT);
    assert!(has(&server, "x"));
    // By now it is owed.
    let error = client.shutdown(Duration::ZERO).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("\"x\""), "{error}");
    link.restore();
    server.advance(SECOND);
    assert!(!has(&server, "x"));
}

#[test]
fn keep_that_failed_leaves_an_ordinary_hold() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&client, Lease::renewed(SECOND * 3));
    let link = server.link(&client);
    link.cut();
    assert!(guard.keep_for(KEPT).unwrap_err().is_unreachable());
    link.restore();
    for (least, shown) in [(Duration::ZERO, "0s"), (SECOND * 86_400 * 31, "31d")] {
        let text = guard.keep_for(least).unwrap_err().to_string();
        let parts = ["invalid keep_for", shown, "1ms to 30 days"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    guard.release().unwrap();
    assert!(!has(&server, "x"));

    let guard = hold(&client, Lease::default());
    server.delete("x");
    assert!(guard.check().is_err());
    assert!(guard.keep_for(KEPT).unwrap_err().is_lost());
}

/// The reply comes when the hold is over. Redis has the longer lease all the same, and the guard releases it.
#[test]
fn keep_that_came_too_late_keeps_nothing() {
    let server = Server::standing_still();
    let client = server.client();
    let owned = hold(&client, Lease::fixed(SECOND / 2)).into_owned().unwrap();
    let link = server.link(&client);
    link.delay_answers(1, SECOND / 2 + BRIEFLY);
    let (sender, receiver) = unbounded();
    let body = move || {
        let kept = owned.keep_for(SECOND * 3600);
        let _ = sender.send((owned, kept));
    };
    sync::spawn("keeper", body).unwrap();
    until(|| link.faults() == 1);
    server.advance(SECOND);
    let (owned, kept) = receiver.recv().unwrap();
    let error = kept.unwrap_err();
    assert!(error.is_lost() && has(&server, "x"), "{error}");
    drop(owned);
    client.shutdown(SOON).unwrap();
    assert!(!has(&server, "x"));
}

/// Hands the lock from a holder to this client by the queue.
fn claim(server: &Server, client: &LockClient, options: LockOptions) -> crate::OwnedLease {
    let other = server.client();
    let guard = other.mutex("x").unwrap().lock().unwrap();
    let lock = client.mutex_with("x", options).unwrap();
    listen(client);
    let (sender, receiver) = unbounded();
    let body = move || _ = sender.send(lock.lock().unwrap().into_owned().unwrap());
    sync::spawn("taker", body).unwrap();
    until(|| has(server, "{x}:queue"));
    guard.release().unwrap();
    receiver.recv().unwrap()
}

#[test]
fn confirmed_claim_is_whole_at_once() {
    let whole = SECOND * 30 - Duration::from_millis(302);
    let server = Server::standing_still();
    let client = server.client();
    let owned = claim(&server, &client, LockOptions::new());
    assert!(owned.remaining() <= SECOND * 4, "{:?}", owned.remaining());
    owned.confirm().unwrap();
    assert_eq!(owned.remaining(), whole);
    // From here on it is whole, and needs no command.
    let link = server.link(&client);
    link.cut();
    owned.confirm().unwrap();
    server.advance(whole - BRIEFLY);
    assert!(owned.is_valid());
    let guard = owned.into_guard();
    guard.confirm().unwrap();
    server.advance(BRIEFLY);
    assert!(guard.confirm().unwrap_err().is_lost());
}

#[test]
fn claim_that_cannot_be_confirmed_stays_a_claim() {
    let server = Server::standing_still();
    let client = server.client();
    let owned = claim(&server, &client, LockOptions::new());
    let before = owned.remaining();
    let link = server.link(&client);
    link.cut();
    assert!(owned.confirm().unwrap_err().is_unreachable());
    assert_eq!(owned.remaining(), before);
    link.restore();
    owned.confirm().unwrap();
    assert!(owned.remaining() > before * 2);
}

/// It was never a claim, or its first renewal has been.
#[test]
fn whole_lease_is_confirmed_without_a_command() {
    let server = Server::standing_still();
    let client = server.client();
    let renewed = claim(&server, &client, LockOptions::new());
    server.advance(SECOND * 2);
    let others = [Lease::default(), Lease::fixed(SOON)].map(|lease| {
        let options = LockOptions::new().lease(lease);
        client.mutex_with(format!("{lease:?}"), options).unwrap().lock().unwrap()
    });
    server.link(&client).cut();
    renewed.confirm().unwrap();
    others.iter().for_each(|guard| guard.confirm().unwrap());
}

/// The confirmation is the first renewal: it counts, and the next one is due a third of the lease later.
#[test]
fn confirmation_takes_the_place_of_the_first_renewal() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().max_renewals(1);
    let owned = claim(&server, &client, options);
    owned.confirm().unwrap();
    let link = server.link(&client);
    link.lose_requests(1);
    server.advance(SECOND * 30 - Duration::from_millis(302));
    assert_eq!(link.faults(), 0);
    assert_eq!(owned.loss().unwrap().cause(), LossCause::RenewalsUsedUp);
}

/// More than one lease, so that it is renewed until then and not beyond.
#[test]
fn limit_of_a_lease_ends_a_hold_by_key() {
    let server = Server::standing_still();
    let client = server.client();
    let locks: &dyn DistributedLock = &client;
    let lease = Lease::renewed(SECOND * 3).at_most(SOON);
    assert!(locks.try_lock("x", Duration::ZERO, lease).unwrap());
    server.advance(SOON - BRIEFLY);
    assert!(locks.is_held("x"));
    server.advance(BRIEFLY);
    assert!(!locks.is_held("x"));
    let error = locks.unlock("x").unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("max_hold"), "{error}");
}

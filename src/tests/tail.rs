//! Leases with a tail: others may take the lock when the lease is over, and its holder may come back as long as nobody has.

use std::time::Duration;

use super::double::{listen, until};
use crate::base::error::Error;
use crate::base::loss::{Loss, LossCause};
use crate::base::option::{Lease, LockOptions, Release, Wait};
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::{self, Arc, spawn};
use crate::client::{DistributedLock, LockClient};
use crate::kind::{Begun, Guard, Mutex, OwnedLease, Period};
use crate::observe::{ConfirmedAgain, Observer, Unconfirmed};
use crate::testing::{Link, Server};
use crate::wire::Value;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);
const TAIL: Duration = Duration::from_secs(27);

fn tailed() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(LEASE).recoverable_for(TAIL))
}

/// A server, a process that holds the lock, and its link.
struct Held {
    server: Server,
    here: LockClient,
    lock: Mutex,
    link: Link,
    guard: Guard,
}

impl Held {
    fn new() -> Held {
        Held::with(tailed())
    }

    fn with(options: LockOptions) -> Held {
        let server = Server::standing_still();
        let here = server.client();
        let lock = here.mutex_with("a", options).unwrap();
        let guard = lock.lock().unwrap();
        Held { link: server.link(&here), server, here, lock, guard }
    }

    /// The same, and Redis could not be reached for so long.
    fn after_outage(span: Duration) -> Held {
        let held = Held::new();
        held.link.cut();
        held.server.advance(span);
        held
    }

    fn key_ttl(&self) -> Duration {
        match self.server.inner().call(&[b"PTTL", b"a"]).unwrap() {
            Value::Int(millis) => Duration::from_millis(millis.unsigned_abs()),
            other => panic!("{other:?}"),
        }
    }

    /// Nobody has it and nobody is told of a loss, and it is not valid.
    #[track_caller]
    fn assert_silent(&self) {
        let Held { guard, .. } = self;
        assert!(!guard.is_valid() && guard.loss().is_none(), "{:?}", guard.loss());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(self.lock.hold_count(), 0, "its thread is not protected");
    }
}

/// A thread of this client that stands in the queue for a lock with these options.
fn waiter(
    server: &Server,
    client: &LockClient,
    options: LockOptions,
) -> Receiver<Result<OwnedLease, Error>> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex_with("a", options).unwrap();
    listen(client);
    let body = move || {
        let owned = lock.lock().map(|guard| guard.into_owned().unwrap());
        let _ = sender.send(owned);
    };
    spawn("waiter", body).unwrap();
    until(|| server.is_queued_for("a"));
    server.advance(Duration::ZERO);
    receiver
}

#[test]
fn hold_comes_back_with_its_token_when_redis_does() {
    for cuts in [true, false] {
        for seconds in [1, 2, 5, 20, 27] {
            let held = Held::new();
            let token = held.guard.fencing_token();
            if cuts {
                held.link.cut();
            } else {
                held.link.silence();
            }
            held.server.advance(SECOND * seconds);
            if seconds > 3 {
                held.assert_silent();
            } else {
                assert!(held.guard.is_valid(), "its lease is not over");
            }
            held.link.restore();
            held.server.advance(SECOND * 2);
            assert!(held.guard.is_valid() && held.guard.loss().is_none(), "{seconds} s, {cuts}");
            assert_eq!(held.guard.fencing_token(), token);
            // And it goes on.
            held.server.advance(SECOND * 60);
            assert!(held.guard.is_valid() && held.key_ttl() > TAIL);
            held.guard.release().unwrap();
            assert!(!held.lock.is_locked().unwrap());
        }
    }
}

#[test]
fn hold_is_lost_when_its_tail_is_over() {
    for cuts in [true, false] {
        let held = Held::new();
        if cuts {
            held.link.cut();
        } else {
            held.link.silence();
        }
        held.server.advance(SECOND * 29);
        held.assert_silent();
        held.server.advance(SECOND * 2);
        assert_eq!(held.guard.loss().unwrap().cause(), LossCause::Unreachable);
        held.link.restore();
        held.server.advance(SECOND * 2);
        assert!(!held.guard.is_valid() && held.guard.release().unwrap_err().is_lost());
    }
}

/// A pause of the process is such a silence (rule 52).
#[test]
fn hold_comes_back_after_a_pause_of_its_process() {
    for (seconds, comes_back) in [(5, true), (20, true), (31, false)] {
        let held = Held::new();
        let token = held.guard.fencing_token();
        held.server.suspend(SECOND * seconds);
        held.server.advance(SECOND / 10);
        assert_eq!(held.guard.is_valid(), comes_back, "{seconds} s: {:?}", held.guard.loss());
        match held.guard.loss() {
            None => assert_eq!(held.guard.fencing_token(), token),
            Some(loss) => assert_eq!(loss.cause(), LossCause::Expired),
        }
    }
}

/// The worker has just come to the lease, when a call of a thread makes it valid again.
#[test]
fn hold_that_a_call_brings_back_is_renewed() {
    let held = Held::after_outage(SECOND * 5);
    let lease = &held.guard.hold().lease;
    lease.note_due(lease.lost_at());
    held.link.restore();
    held.guard.check().unwrap();
    assert!(lease.due() <= lease.renew_at(), "{:?} for {:?}", lease.due(), lease.renew_at());
}

/// Rules 47 and 48: a waiter asks when the lease is over, and not when the key ends.
#[test]
fn waiter_has_the_lock_of_a_silent_holder_when_its_lease_is_over() {
    for options in [tailed(), LockOptions::new()] {
        let held = Held::new();
        let token = held.guard.fencing_token();
        let there = held.server.client();
        let waiter = waiter(&held.server, &there, options);
        // Renewed for the last time.
        held.server.advance(SECOND);
        held.link.cut();
        held.server.advance(held.key_ttl() - TAIL - SECOND / 100);
        assert!(waiter.try_recv().is_err(), "the lease is not over yet");
        held.assert_silent();
        held.server.advance(SECOND / 50);
        let next = waiter.recv().unwrap().unwrap();
        assert!(next.fencing_token() > token);

        held.server.advance(SECOND * 5);
        held.assert_silent();
        held.link.restore();
        held.server.advance(SECOND);
        let loss = held.guard.loss().expect("another has it");
        assert_eq!(loss.cause(), LossCause::Taken);
        assert!(loss.to_string().contains("nothing was heard of this one for 8"), "{loss}");
        assert!(next.is_valid(), "it was not disturbed");
        let error = held.guard.release().unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("was paused"), "{error}");
    }
}

#[test]
fn single_attempt_takes_the_lock_of_a_silent_holder() {
    let held = Held::after_outage(LEASE - SECOND / 100);
    let there = held.server.client();
    let rival = there.mutex("a").unwrap();
    assert!(rival.try_lock().unwrap().is_none(), "its lease is not over");
    held.server.advance(SECOND / 50);
    let taken = rival.try_lock().unwrap().expect("to others the holder is nobody");
    assert!(taken.fencing_token() > held.guard.fencing_token());
    held.link.restore();
    let error = held.guard.check().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(held.guard.loss().unwrap().cause(), LossCause::Taken);
    assert!(taken.is_valid());
    taken.release().unwrap();
}

/// How a holder learns that its lock is lost.
type Ask = fn(Held) -> Loss;

const ASKS: [(&str, Ask); 4] = [
    ("renewal", |held| {
        held.server.advance(SECOND * 11);
        held.guard.loss().expect("it is lost")
    }),
    ("extend", |held| {
        assert!(held.guard.extend(SECOND).unwrap_err().is_lost());
        held.guard.loss().expect("it is lost")
    }),
    ("release", |held| {
        let watch = held.guard.lease_watch();
        assert!(held.guard.release().unwrap_err().is_lost());
        watch.loss().expect("it is lost")
    }),
    // In its tail a lease is renewed for it, and else only its key is looked at.
    ("check", |held| {
        assert!(held.guard.check().unwrap_err().is_lost());
        held.guard.loss().expect("it is lost")
    }),
];

/// A hold for each way in which its lock may be released, in its tail.
fn in_the_tail() -> [Held; 2] {
    [tailed(), tailed().wait(Wait::spin()).release(Release::watch())].map(|options| {
        let held = Held::with(options);
        held.link.cut();
        held.server.advance(SECOND * 5);
        held
    })
}

/// The one that took it has released it again: nothing is left that the silent holder could come back to.
#[test]
fn hold_is_lost_after_anothers_hold_also_if_that_is_over() {
    for (name, ask) in ASKS {
        for held in in_the_tail() {
            let there = held.server.client();
            let rival = there.mutex("a").unwrap();
            rival.try_lock().unwrap().expect("it is free to others").release().unwrap();
            held.link.restore();
            let loss = ask(held);
            assert_eq!(loss.cause(), LossCause::Taken, "{name}: {loss}");
            assert!(loss.to_string().contains("nothing was heard of this one for"), "{loss}");
            assert!(!rival.is_locked().unwrap());
        }
    }
}

/// Its key outlives it by the tail, so it has not ended by itself.
#[test]
fn tail_that_was_deleted_is_told_as_that() {
    let deletes: [fn(&Server); 2] = [Server::flush, |server| assert!(server.delete("a"))];
    for delete in deletes {
        for (name, ask) in ASKS {
            for held in in_the_tail() {
                delete(&held.server);
                held.link.restore();
                let loss = ask(held);
                assert_eq!(loss.cause(), LossCause::Deleted, "{name}: {loss}");
            }
        }
    }
}

/// A lease without a tail has no end that could hide it either.
#[test]
fn deleted_lock_is_lost_to_the_one_that_has_had_it_since() {
    for (name, ask) in &ASKS[..3] {
        for has_rival in [true, false] {
            let held = Held::with(LockOptions::new());
            assert!(held.server.delete("a"));
            if has_rival {
                held.server.client().mutex("a").unwrap().lock().unwrap().release().unwrap();
            }
            let loss = ask(held);
            let cause = if has_rival { LossCause::Taken } else { LossCause::Deleted };
            assert_eq!(loss.cause(), cause, "{name}: {loss}");
        }
    }
}

/// Rule 50: what its holder asks for in the tail is for the owner, and brings the hold back.
#[test]
fn calls_of_a_silent_holder_ask_redis() {
    type Call = fn(&Held) -> Result<(), Error>;
    let calls: [(&str, Call); 6] = [
        ("check", |held| held.guard.check()),
        ("extend", |held| held.guard.extend(SECOND)),
        ("confirm", |held| held.guard.confirm()),
        ("keep_for", |held| held.guard.keep_for(SECOND)),
        ("transaction", |held| {
            held.guard.transaction(|pipe| _ = pipe.cmd("SET").arg("b").arg(1)).map(drop)
        }),
        ("reentry", |held| held.lock.lock().and_then(Guard::release)),
    ];
    for (name, call) in calls {
        let held = Held::after_outage(SECOND * 5);
        let error = call(&held).unwrap_err();
        assert!(error.is_unreachable() || error.is_unknown_outcome(), "{name}: {error}");
        held.assert_silent();
        held.link.restore();
        call(&held).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(held.guard.is_valid(), "{name}");
        held.server.advance(SECOND * 30);
        assert!(held.guard.is_valid(), "{name}: {:?}", held.guard.loss());
    }
}

#[test]
fn silent_hold_is_released_like_any_other() {
    let held = Held::after_outage(SECOND * 5);
    held.link.restore();
    held.guard.release().unwrap();
    assert!(!held.lock.is_locked().unwrap());

    let held = Held::after_outage(SECOND * 5);
    let there = held.server.client();
    let taken = there.mutex("a").unwrap().try_lock().unwrap().expect("it is free to others");
    held.link.restore();
    assert!(held.guard.release().unwrap_err().is_lost());
    taken.check().unwrap();
}

/// Rule 51: a lease that is over goes to no other thread without Redis having been asked.
#[test]
fn silent_lease_is_not_passed_on() {
    let held = Held::with(tailed().linger(SECOND));
    listen(&held.here);
    let token = held.guard.fencing_token();
    let (sender, receiver) = unbounded();
    let lock = held.lock.clone();
    let body = move || _ = sender.send(lock.lock().map(|guard| guard.fencing_token()));
    spawn("next", body).unwrap();
    until(|| held.guard.waiters() == 1);
    held.link.cut();
    held.server.advance(SECOND * 5);
    held.link.restore();
    held.guard.release().unwrap();
    let next = receiver.recv().unwrap().unwrap();
    assert!(next.get() > token.get() + 1, "it has the token after {token}, which no server minted");
}

/// Rule 50: it was stuck until after the lease, as in a server that stood still. Those who wait could not ask meanwhile, and
/// come first.
#[test]
fn renewal_that_was_stuck_is_left_behind_those_who_wait() {
    let held = Held::new();
    let there = held.server.client();
    let waiter = waiter(&held.server, &there, LockOptions::new());
    let far = held.server.link(&there);
    far.silence();
    held.link.delay_requests(1_000, SECOND * 5);
    held.server.advance(SECOND * 13 / 2);
    held.assert_silent();
    assert!(waiter.try_recv().is_err(), "it could not ask");
    far.restore();
    held.server.advance(SECOND * 3);
    let next = waiter.recv().unwrap().unwrap();
    assert!(next.fencing_token() > held.guard.fencing_token());
    held.link.restore();
    held.server.advance(SECOND);
    assert_eq!(held.guard.loss().unwrap().cause(), LossCause::Taken);
}

/// Those who stand in the line may be dead, and must not cost it its lock.
#[test]
fn silent_holder_yields_to_a_dead_waiter_for_a_while() {
    let held = Held::new();
    let there = held.server.client();
    let _waiter = waiter(&held.server, &there, LockOptions::new());
    held.server.link(&there).cut();
    held.link.cut();
    held.server.advance(SECOND * 5);
    held.link.restore();
    held.server.advance(SECOND);
    held.assert_silent();
    held.server.advance(SECOND * 7 / 2);
    assert!(held.guard.is_valid(), "{:?}", held.guard.loss());
}

/// A request of the attempt may run after the lease, and make it the owner again after another's hold (rule 30).
#[test]
fn unsettled_hold_does_not_come_back() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    let brief = Lease::renewed(SECOND * 3 / 10).recoverable_for(TAIL);
    let lock = client.mutex_with("a", LockOptions::new().lease(brief)).unwrap();
    lock.lock().unwrap().release().unwrap();
    link.lose_answers(1);
    let guard = lock.lock().unwrap();
    assert_eq!(link.faults(), 1);
    link.cut();
    server.advance(SECOND / 2);
    assert!(guard.loss().is_some(), "its first request may still run");
}

#[test]
fn limits_of_a_hold_end_it_also_in_its_tail() {
    let held = Held::with(tailed().max_hold(SECOND * 10));
    held.link.cut();
    held.server.advance(SECOND * 9);
    held.assert_silent();
    held.server.advance(SECOND * 2);
    assert_eq!(held.guard.loss().unwrap().cause(), LossCause::MaxHold);

    let held = Held::with(tailed().max_renewals(1));
    held.server.advance(SECOND * 5);
    assert_eq!(held.guard.loss().unwrap().cause(), LossCause::RenewalsUsedUp);
    assert!(!held.lock.is_locked().unwrap(), "it is free to others");
    drop(held.guard);
    until(|| held.server.keys().iter().all(|key| key != b"a"));
}

/// The window that a hand-over writes is a lease, and the key lives for the tail besides (rule 49).
#[test]
fn handed_over_key_has_its_tail() {
    let held = Held::new();
    let there = held.server.client();
    let waiter = waiter(&held.server, &there, tailed());
    let Held { server, guard, .. } = held;
    guard.release().unwrap();
    let next = waiter.recv().unwrap().unwrap();
    assert!(next.remaining() > SECOND * 2 && next.remaining() <= LEASE, "{:?}", next.remaining());
    let Value::Int(left) = server.inner().call(&[b"PTTL", b"a"]).unwrap() else { panic!() };
    assert_eq!(Duration::from_millis(left.unsigned_abs()), LEASE + TAIL);
}

#[test]
fn silent_holder_is_shown_as_such() {
    let held = Held::after_outage(SECOND * 8);
    let there = held.server.client();
    let there = there.mutex("a").unwrap();
    let holder = there.holder().unwrap().expect("Redis keeps the lock for it");
    assert_eq!((holder.overdue(), holder.ttl()), (Some(SECOND * 5), Some(Duration::ZERO)));
    assert_eq!(holder.token(), Some(held.guard.fencing_token()));
    assert_eq!(holder.pid(), Some(std::process::id()));
    held.link.restore();
    held.guard.check().unwrap();
    let holder = there.holder().unwrap().unwrap();
    assert_eq!((holder.overdue(), holder.ttl()), (None, Some(LEASE)));
}

#[test]
fn lock_of_several_holders_refuses_a_tail() {
    let server = Server::new();
    let client = server.client();
    for error in [
        client.reentrant_with("a", tailed()).unwrap_err(),
        client.semaphore_with("a", 2, tailed()).unwrap_err(),
        client.rw_lock_with("a", tailed()).unwrap_err(),
    ] {
        assert!(error.is_config() && error.to_string().contains("recoverable_for"), "{error}");
    }
}

/// The leader is not heard of, and nobody leads until it is, or another does.
#[test]
fn leadership_comes_back_or_goes_to_a_candidate() {
    for has_rival in [false, true] {
        let server = Server::standing_still();
        let (here, there) = (server.client(), server.client());
        let link = server.link(&here);
        let election = here.election_with("a", tailed()).unwrap();
        let leadership = election.campaign().unwrap();
        leadership.proclaim("here").unwrap();
        let term = leadership.term();
        let other = there.election_with("a", tailed()).unwrap();
        link.cut();
        server.advance(SECOND * 5);
        assert!(!leadership.is_valid() && leadership.loss().is_none());
        assert_eq!(other.leader().unwrap(), None, "nobody leads");
        let rival = has_rival.then(|| other.try_campaign().unwrap().expect("nobody leads"));
        link.restore();
        server.advance(SECOND);
        let leader = other.leader().unwrap().expect("somebody leads");
        match rival {
            None => {
                assert!(leadership.is_valid());
                assert_eq!((leader.term(), leader.value()), (Some(term), Some(&b"here"[..])));
            }
            Some(rival) => {
                assert!(rival.term() > term && rival.is_valid());
                assert_eq!((leader.term(), leader.value()), (Some(rival.term()), None));
                assert_eq!(leadership.loss().unwrap().cause(), LossCause::Taken);
            }
        }
    }
}

/// A thread of this client that waits in the queue, and releases the lock as soon as it has it.
fn brief_waiter(server: &Server, client: &LockClient) -> Receiver<Result<(), Error>> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex("a").unwrap();
    listen(client);
    spawn("waiter", move || _ = sender.send(lock.lock().and_then(Guard::release))).unwrap();
    until(|| server.is_queued_for("a"));
    server.advance(Duration::ZERO);
    receiver
}

/// The renewal left the lock to those who wait, and one of them has had it: the server has refused nothing, and Redis was
/// there.
#[test]
fn hold_that_was_left_to_a_waiter_is_lost_to_it_also_if_that_has_released_it() {
    let held = Held::new();
    let there = held.server.client();
    let waiter = brief_waiter(&held.server, &there);
    // It can ask only after the renewal, as if the network had lost its requests.
    let far = held.server.link(&there);
    far.silence();
    held.server.suspend(SECOND * 5);
    held.server.advance(SECOND / 2);
    held.assert_silent();
    held.link.cut();
    far.restore();
    held.server.run_until(|| !waiter.is_empty());
    waiter.recv().unwrap().unwrap();
    held.link.restore();
    held.server.advance(SECOND * 2);
    let loss = held.guard.loss().unwrap();
    assert_eq!(loss.cause(), LossCause::Taken, "{loss}");
    assert!(loss.to_string().contains("nothing was heard of this one for"), "{loss}");
}

/// That the server's clock is ahead makes a lease end early there. Its owner has the key still, but the next that asks gets it.
#[test]
fn check_makes_a_lease_as_long_as_its_holder_believes() {
    let held = Held::new();
    let there = held.server.client();
    let rival = there.mutex("a").unwrap();
    held.server.set_clock(5_000_000);
    assert!(held.key_ttl() < TAIL && held.guard.is_valid(), "it is over there, and not here");
    held.guard.check().unwrap();
    assert!(rival.try_lock().unwrap().is_none(), "it was said to be held, and still is");
    assert!(held.guard.is_valid());
}

/// What a run is recorded by may come back, too.
#[test]
fn run_of_a_job_rides_out_an_outage_that_is_longer_than_its_lease() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    let period = Period::every(SECOND * 3_600);
    let (sender, receiver) = unbounded();
    let job = client.once_with("job", period, tailed()).unwrap();
    let (began, begun) = unbounded();
    let (go, goes) = unbounded::<()>();
    let body = move || {
        let Begun::Run(run) = job.begin().unwrap() else { panic!("it is due") };
        began.send(()).unwrap();
        goes.recv().unwrap();
        _ = sender.send(run.succeed());
    };
    spawn("job", body).unwrap();
    begun.recv().unwrap();
    link.cut();
    server.advance(SECOND * 5);
    go.send(()).unwrap();
    until(|| server.has_sleeper());
    server.advance(SECOND * 3);
    assert!(receiver.try_recv().is_err(), "it may come back");
    link.restore();
    server.run_until(|| !receiver.is_empty());
    receiver.recv().unwrap().unwrap();
}

/// A job must not run itself, also while its lock may come back.
#[test]
fn job_that_is_not_confirmed_does_not_run_itself() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    let job = client.once_with("job", Period::every(SECOND * 3_600), tailed()).unwrap();
    let Begun::Run(run) = job.begin().unwrap() else { panic!("it is due") };
    link.cut();
    server.advance(SECOND * 5);
    link.restore();
    assert!(!run.guard().is_valid());
    let error = job.begin().unwrap_err();
    assert!(error.is_config(), "{error}");
    run.succeed().unwrap();
}

/// Each silence is told of once, and its end as well, with the token of the hold that was not confirmed.
#[test]
fn silences_are_told_with_the_token_of_their_hold() {
    #[derive(Default)]
    struct Told(sync::Mutex<Vec<(bool, u64)>>);
    impl Observer for Told {
        fn unconfirmed(&self, event: &Unconfirmed<'_>) {
            self.0.lock().push((false, event.token.get()));
        }
        fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
            self.0.lock().push((true, event.token.get()));
        }
    }
    let server = Server::standing_still();
    let told = Arc::new(Told::default());
    let client =
        server.connect(LockClient::builder("redis://any").observer(Arc::clone(&told))).unwrap();
    let link = server.link(&client);
    let lock = client.mutex_with("a", tailed().linger(SECOND)).unwrap();
    listen(&client);
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token().get();
    link.delay_requests(1_000, SECOND * 30);
    server.advance(SECOND * 5);
    until(|| told.0.lock().len() == 1);
    link.restore();
    guard.check().unwrap();
    guard.release().unwrap();
    let next = lock.lock().unwrap();
    assert_eq!(next.fencing_token().get(), token + 1, "it has the same lease");
    server.advance(SECOND * 2);
    until(|| told.0.lock().len() > 1);
    assert_eq!(*told.0.lock(), [(false, token), (true, token)]);
}

/// By key, too, the thread has its lock again once Redis has confirmed it.
#[test]
fn lock_by_key_has_the_tail_of_its_lease() {
    let lease = Lease::renewed(LEASE).recoverable_for(TAIL);
    for is_taken in [false, true] {
        let server = Server::standing_still();
        let clients = [server.client(), server.client()];
        let [here, there] = clients.each_ref().map(|client| client as &dyn DistributedLock);
        let link = server.link(&clients[0]);
        assert!(here.try_lock("a", Duration::ZERO, lease).unwrap());
        link.cut();
        server.advance(SECOND * 2);
        assert!(here.is_held("a"));
        assert!(!there.try_lock("a", Duration::ZERO, lease).unwrap());
        server.advance(SECOND * 3);
        assert!(!here.is_held("a"), "its thread is not protected");
        if is_taken {
            assert!(there.try_lock("a", Duration::ZERO, lease).unwrap());
        }
        link.restore();
        server.advance(SECOND * 2);
        assert_eq!((here.is_held("a"), there.is_held("a")), (!is_taken, is_taken));
        assert_eq!(here.unlock("a").is_ok(), !is_taken);
        if is_taken {
            there.unlock("a").unwrap();
        }
        assert!(!clients[1].mutex("a").unwrap().is_locked().unwrap());
    }
}

/// It stands in the line still, as nobody has looked. One that lived when the lease was last renewed comes first, although its
/// sign of life has ended since: it could not ask.
#[test]
fn hold_comes_back_at_once_beside_a_dead_waiter() {
    for lives in [false, true] {
        let held = Held::new();
        let server = held.server.inner();
        let dies = server.micros() + if lives { 4_000_000 } else { 1 };
        let waiter: &[u8] = b"1q:0:0:3000:";
        server.call(&[b"ZADD", b"{a}:queue", b"5", waiter]).unwrap();
        server.call(&[b"ZADD", b"{a}:beats", dies.to_string().as_bytes(), waiter]).unwrap();
        // It is renewed once more.
        held.server.advance(SECOND * 2);
        held.link.cut();
        held.server.advance(SECOND * 5);
        held.assert_silent();
        held.link.restore();
        held.server.advance(SECOND * 2);
        assert_eq!(held.guard.is_valid(), !lives);
        assert!(held.guard.loss().is_none());
    }
}

//! What the documentation of the test double says, scenario by scenario.

use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::{Receiver, TryRecvError, unbounded};
use crate::base::sync::spawn;
use crate::client::{LockClient, LockClientBuilder};
use crate::kind::OwnedLease;
use crate::testing::{Link, Server};
use crate::wire::{Pipeline, Value};

const SECOND: Duration = Duration::from_secs(1);

/// A thread that waits for the lock, or tries to take it, and sends what it got.
pub(super) fn taker(
    client: &LockClient,
    waits: bool,
) -> Receiver<Result<Option<OwnedLease>, Error>> {
    taker_with(client, waits, LockOptions::new())
}

fn taker_with(
    client: &LockClient,
    waits: bool,
    options: LockOptions,
) -> Receiver<Result<Option<OwnedLease>, Error>> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex_with("a", options).unwrap();
    let body = move || {
        let taken = if waits { lock.lock().map(Some) } else { lock.try_lock() };
        let owned = taken.map(|guard| guard.map(|guard| guard.into_owned().unwrap()));
        // A test that does not look any more does not want it either.
        let _ = sender.send(owned);
    };
    spawn("taker", body).unwrap();
    receiver
}

/// A thread that stands in the queue, for no longer than this, and sends whether it got the lock.
fn waiter(server: &Server, client: &LockClient, wait: Duration) -> Receiver<Result<bool, Error>> {
    waiter_with(server, client, wait, LockOptions::new())
}

fn waiter_with(
    server: &Server,
    client: &LockClient,
    wait: Duration,
    options: LockOptions,
) -> Receiver<Result<bool, Error>> {
    let (sender, receiver) = unbounded();
    let lock = client.mutex_with("a", options).unwrap();
    listen(client);
    let body = move || {
        let taken = lock.try_lock_for(wait);
        let _ = sender.send(taken.map(|guard| guard.is_some()));
    };
    spawn("waiter", body).unwrap();
    until(|| server.is_queued_for("a"));
    server.advance(Duration::ZERO);
    receiver
}

/// The settings of a client whose time-outs no pause of the machine reaches, for a server whose clock runs.
pub(super) fn patient() -> LockClientBuilder {
    let long = SECOND * 600;
    let builder = LockClient::builder("redis://memory");
    builder.command_timeout(long).connect_timeout(long).max_wait(long)
}

/// Has a client listen. When it begins to, its waiters ask once more, and one that does so after a hand-over gets a whole
/// lease and no claim.
pub(super) fn listen(client: &LockClient) {
    client.engine().listener.start();
    until(|| client.engine().listener.is_live());
}

/// Runs what must not wait, on a thread of its own: one that waits all the same is no test that hangs.
#[track_caller]
pub(super) fn at_once<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = unbounded();
    spawn("at once", move || _ = sender.send(body())).unwrap();
    let mut outcome = Err(TryRecvError::Empty);
    until(|| {
        outcome = receiver.try_recv();
        !matches!(outcome, Err(TryRecvError::Empty))
    });
    outcome.expect("it has panicked")
}

/// Waits for what must come.
#[track_caller]
pub(super) fn until(condition: impl FnMut() -> bool) {
    leasehold_support::until("what must come", condition);
}

#[test]
fn leases_are_renewed_when_time_is_put_forward() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let waiter = taker(&there, true);
    until(|| server.is_queued_for("a"));
    server.advance(SECOND * 300);
    assert_eq!(server.elapsed(), SECOND * 300);
    assert!(guard.is_valid() && guard.loss().is_none());
    assert!(waiter.try_recv().is_err(), "it is held");
    let token = guard.fencing_token();
    guard.release().unwrap();
    let next = waiter.recv().unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token);
    // The window of a claim is short, and the worker makes it a lease.
    server.advance(SECOND * 40);
    assert!(next.into_guard().is_valid());
}

#[test]
fn time_runs_until_something_is_so() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let guard = client.mutex("a").unwrap().lock().unwrap();
    assert_eq!(server.run_until(|| true), Duration::ZERO);
    let waited = waiter(&server, &other, SECOND * 20);
    assert!(server.run_until(|| !waited.is_empty()) >= SECOND * 20);
    assert!(!waited.recv().unwrap().unwrap());
    // Its renewals went on.
    assert!(guard.is_valid());
    server.link(&client).cut();
    // The rest of its lease, and a hop.
    assert!(server.run_until(|| guard.loss().is_some()) <= SECOND * 31);
}

#[test]
#[should_panic(expected = "it is not so after 3600s")]
fn time_does_not_run_for_ever() {
    Server::standing_still().run_until(|| false);
}

#[test]
fn handed_over_fixed_lease_is_whole_from_the_start() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let waiter = taker_with(&there, true, LockOptions::new().lease(Lease::fixed(SECOND * 5)));
    until(|| server.is_queued_for("a"));
    guard.release().unwrap();
    let next = waiter.recv().unwrap().unwrap().unwrap().into_guard();
    assert_eq!(next.remaining(), Duration::from_millis(5_000 - 52));
}

#[test]
fn a_lost_wake_up_costs_a_heartbeat() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let waiter = taker(&there, true);
    until(|| server.is_queued_for("a"));
    server.advance(Duration::ZERO);
    let link = server.link(&there);
    link.lose_messages(1);
    guard.release().unwrap();
    assert_eq!(link.faults(), 1);
    server.advance(Duration::ZERO);
    assert!(waiter.try_recv().is_err(), "it was not told");
    server.advance(SECOND);
    assert!(waiter.recv().unwrap().unwrap().is_some());
}

#[test]
fn waiter_at_a_replica_takes_a_lock_that_is_free() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    server.link(&there).listen_at_replica();
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let waiter = taker(&there, true);
    until(|| server.is_queued_for("a"));
    guard.release().unwrap();
    assert!(waiter.recv().unwrap().unwrap().is_some());
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn waiter_at_a_replica_is_skipped_and_keeps_its_place() {
    let server = Server::standing_still();
    let [here, there, other] = [(); 3].map(|()| server.client());
    server.link(&there).listen_at_replica();
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let aside = taker(&there, true);
    until(|| server.waiters("a") == 1);
    let next = taker(&other, true);
    until(|| server.waiters("a") == 2);
    guard.release().unwrap();
    let next = next.recv().unwrap().unwrap().unwrap();
    let token = next.fencing_token();
    server.advance(Duration::ZERO);
    assert!(next.is_valid() && aside.try_recv().is_err(), "two hold it");
    next.into_guard().release().unwrap();
    let aside = aside.recv().unwrap().unwrap().unwrap();
    assert!(aside.fencing_token() > token);
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn late_request_takes_nothing() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    client.mutex("a").unwrap().lock().unwrap().release().unwrap();
    link.delay_requests(1, SECOND * 3);
    let taker = taker(&client, false);
    until(|| link.faults() == 1);
    server.advance(SECOND);
    let error = taker.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    server.advance(SECOND * 3);
    assert!(!client.mutex("a").unwrap().is_locked().unwrap(), "a ghost has it");
}

/// Redis told of a holder, and nothing that was sent after it failed.
#[test]
fn wait_whose_last_request_was_never_sent_returns_none() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let link = server.link(&there);
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let receiver = waiter(&server, &there, SECOND * 5 / 2);
    link.keep_requests(1);
    // Past its next heartbeat, and its end: what it was told is old by then.
    server.suspend(SECOND * 5);
    assert!(!receiver.recv().unwrap().unwrap());
    assert_eq!(link.faults(), 1);
    assert!(guard.is_valid());
}

/// Redis being silent is not a holder.
#[test]
fn slow_final_reply_is_an_unknown_outcome() {
    // The heartbeat after a second has 600 ms for its answer.
    silent_until_the_end_of(SECOND * 8 / 5, Duration::ZERO);
}

/// What it was told is too old by then.
#[test]
fn silent_final_request_after_a_suspend_is_unknown() {
    silent_until_the_end_of(SECOND * 5 / 2, SECOND * 5);
}

fn silent_until_the_end_of(wait: Duration, suspended: Duration) {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let link = server.link(&there);
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let receiver = waiter(&server, &there, wait);
    link.silence();
    server.suspend(suspended);
    server.advance(SECOND * 2);
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(link.faults() > 0);
    assert!(guard.is_valid());
}

/// Nobody else had it any more.
#[test]
fn unconfirmed_grant_at_the_end_of_a_wait_is_unknown() {
    granted_at_the_end_of_the_wait(|link| link.delay_answers(1, SECOND), 1);
}

/// That request was not carried out, but the grant was.
#[test]
fn grant_with_a_late_confirmation_request_is_unknown() {
    granted_at_the_end_of_the_wait(|link| make_late(link, SECOND / 8), 2);
}

fn granted_at_the_end_of_the_wait(fault: impl FnOnce(&Link), faults: u64) {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let link = server.link(&there);
    let guard = here.mutex("a").unwrap().lock().unwrap();
    // A fixed lease is not whole when it was handed over, so it is asked for.
    let options = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let receiver = waiter_with(&server, &there, SECOND * 21 / 20, options);
    server.advance(SECOND * 19 / 20);
    fault(&link);
    guard.release().unwrap();
    until(|| link.faults() == 1);
    server.advance(SECOND);
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert_eq!(link.faults(), faults);
}

/// The message that told of it came meanwhile.
#[test]
fn grant_received_while_the_last_request_fails_is_taken() {
    let taken = granted_during_the_last_request(LockOptions::new(), SECOND * 5 / 8);
    assert!(taken.unwrap());
}

/// There is no time to ask for the whole lease.
#[test]
fn partial_grant_during_a_failed_last_request_is_unknown() {
    let fixed = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let error = granted_during_the_last_request(fixed, SECOND * 5 / 8).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
}

/// What was told of the holder before would have stood.
#[test]
fn partial_grant_during_a_brief_last_request_is_unknown() {
    let fixed = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let error = granted_during_the_last_request(fixed, SECOND * 7 / 40).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
}

/// Its hold began with the grant.
#[test]
fn grant_past_max_hold_in_a_failed_request_is_unknown() {
    let brief = LockOptions::new().max_hold(SECOND / 4);
    let error = granted_during_the_last_request(brief, SECOND * 5 / 8).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
}

/// Nobody would give it back.
#[test]
fn grant_received_after_max_hold_is_released() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).delay_answers(1, SECOND / 2);
    let receiver = taker_with(&client, false, LockOptions::new().max_hold(SECOND / 4));
    until(|| server.link(&client).faults() == 1);
    server.advance(SECOND / 2);
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("max_hold of 250ms"), "{error}");
    until(|| !client.mutex("a").unwrap().is_locked().unwrap());
}

fn granted_during_the_last_request(
    options: LockOptions,
    may_take: Duration,
) -> Result<bool, Error> {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let link = server.link(&there);
    let guard = here.mutex("a").unwrap().lock().unwrap();
    // The last request is the heartbeat after a second.
    let receiver = waiter_with(&server, &there, SECOND * 39 / 40 + may_take, options);
    make_late(&link, may_take);
    server.advance(SECOND * 11 / 10);
    guard.release().unwrap();
    server.advance(SECOND);
    assert_eq!(link.faults(), 2);
    receiver.recv().unwrap()
}

/// It was the end of the wait that made them late.
#[test]
fn late_last_request_of_a_wait_returns_none() {
    late_at_the_end_of(SECOND * 5 / 2);
}

/// What it was told is a heartbeat old by then, as it asks no more often.
#[test]
fn late_last_heartbeat_of_a_wait_returns_none() {
    late_at_the_end_of(SECOND * 2);
}

fn late_at_the_end_of(wait: Duration) {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let link = server.link(&there);
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let receiver = waiter(&server, &there, wait);
    server.advance(wait - SECOND * 3 / 10);
    make_late(&link, SECOND / 40);
    server.advance(SECOND);
    assert!(!receiver.recv().unwrap().unwrap());
    assert_eq!(link.faults(), 2);
    assert!(guard.is_valid());
}

/// The next request, which may take so long, reaches Redis too late, and is answered in time. Once it
/// was late it is sent again.
fn make_late(link: &Link, may_take: Duration) {
    link.delay_requests(1, may_take - SECOND / 200);
    link.delay_requests(1, SECOND / 250);
}

#[test]
fn late_reply_shortens_the_validity() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).delay_answers(1, SECOND / 2);
    let taker = taker(&client, false);
    until(|| server.link(&client).faults() == 1);
    server.advance(SECOND / 2);
    let guard = taker.recv().unwrap().unwrap().unwrap().into_guard();
    assert_eq!(guard.remaining(), Duration::from_millis(29_500 - 302));
}

#[test]
fn loss_cause_says_what_happened_to_the_key() {
    type Do = fn(&Server);
    let delete: Do = |server| assert!(server.delete("a"));
    let cases: [(Do, LossCause); 4] = [
        (delete, LossCause::Deleted),
        (|server| server.steal("a", SECOND * 60), LossCause::Taken),
        (|server| server.flush(), LossCause::Deleted),
        (|server| server.restart(), LossCause::Deleted),
    ];
    for (what, cause) in cases {
        let server = Server::standing_still();
        let (sender, losses) = unbounded();
        let settings = LockClient::builder("redis://any").on_loss(move |loss| {
            let _ = sender.send(loss.cause());
        });
        let client = server.connect(settings).unwrap();
        let guard = client.mutex("a").unwrap().lock().unwrap();
        what(&server);
        server.advance(SECOND * 10);
        assert!(!guard.is_valid(), "{cause:?}: within one renewal tick");
        assert_eq!(guard.loss().unwrap().cause(), cause);
        assert_eq!(losses.recv().unwrap(), cause);
    }
}

#[test]
fn cut_off_client_loses_its_lock_and_another_gets_it() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    server.link(&here).cut();
    server.advance(SECOND * 18);
    assert!(guard.is_valid(), "the last renewal was not long ago");
    server.advance(SECOND * 13);
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    assert!(here.mutex("b").unwrap().try_lock().unwrap_err().is_unreachable());
    let other = there.mutex("a").unwrap().try_lock().unwrap().unwrap();
    server.link(&here).restore();
    assert!(guard.release().unwrap_err().is_lost());
    server.advance(SECOND * 60);
    assert!(other.is_valid());
}

/// Redis is out of reach, and may have given the lock away to whom it did not tell.
#[test]
fn wait_ended_by_an_outage_is_unreachable_and_unknown() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).silence();
    let taker = taker(&client, true);
    server.run_until(|| !taker.is_empty());
    let error = taker.recv().unwrap().unwrap_err();
    assert!(error.is_unreachable() && error.is_unknown_outcome(), "{error:?}");
}

#[test]
fn silent_link_makes_callers_wait_for_their_timeout() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).silence();
    let taker = taker(&client, false);
    until(|| server.link(&client).faults() == 1);
    server.advance(SECOND * 999 / 1000);
    assert!(taker.try_recv().is_err(), "its time is not over");
    server.advance(SECOND / 1000);
    assert!(taker.recv().unwrap().unwrap_err().is_unknown_outcome());
}

#[test]
fn leases_are_over_after_the_machine_slept() {
    let server = Server::standing_still();
    let client = server.client();
    let fixed = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let renewed = client.mutex("a").unwrap().lock().unwrap();
    let fixed = client.mutex_with("b", fixed).unwrap().lock().unwrap();
    server.suspend(SECOND * 31);
    for guard in [renewed, fixed] {
        assert!(!guard.is_valid());
        assert_eq!(guard.loss().unwrap().cause(), LossCause::Expired);
    }
}

#[test]
fn time_goes_by_itself_unless_it_stands_still() {
    let server = Server::new();
    let (here, there) = (server.connect(patient()).unwrap(), server.client());
    let _guard = here.mutex("a").unwrap().lock().unwrap();
    let begin = Instant::now();
    // An error says that this process was held up for as long.
    let outcome = there.mutex("a").unwrap().try_lock_for(SECOND / 20);
    assert!(!matches!(outcome, Ok(Some(_))) && begin.elapsed() >= SECOND / 20, "{outcome:?}");
}

#[test]
fn transaction_applies_while_held_and_not_after_a_loss() {
    let server = Server::standing_still();
    let guard = server.client().mutex("a").unwrap().lock().unwrap();
    let replies = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("x")).unwrap();
    assert_eq!(replies, [Value::Int(1)]);
    let error = guard.transaction(|pipe| _ = pipe.cmd("GEOADD").arg("x")).unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("'GEOADD'"), "{error}");
    assert!(guard.is_valid());
    server.steal("a", SECOND * 60);
    let error = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("x")).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(server.inner().call(&[b"GET", b"x"]).unwrap(), Value::BulkString(b"1".to_vec()));
}

#[test]
fn permits_transaction_takes_commands_of_one_word_that_need_no_more() {
    let server = Server::standing_still();
    let permit = server.client().semaphore("a", 2).unwrap().acquire().unwrap();
    let replies = permit.transaction(|pipe| _ = pipe.cmd("INCR").arg("x").cmd("time")).unwrap();
    assert!(matches!(&replies[..], [Value::Int(1), Value::Array(_)]), "{replies:?}");
    for odd in ["GET", "GEOADD"] {
        let error = permit.transaction(|pipe| _ = pipe.cmd("INCR").arg("x").cmd(odd)).unwrap_err();
        assert!(error.is_refused(), "{error}");
    }
    // Those before them were not applied.
    assert_eq!(server.inner().call(&[b"GET", b"x"]).unwrap(), Value::BulkString(b"1".to_vec()));
}

/// A transaction of these commands.
type Transact = Box<dyn Fn(&[&[&str]]) -> Result<Vec<Value>, Error>>;

/// Locks of several kinds that are held.
fn transacting(client: &LockClient) -> Vec<(&'static str, Transact)> {
    fn add<'a>(commands: &'a [&[&str]]) -> impl FnOnce(&mut Pipeline) + 'a {
        move |pipe| commands.iter().for_each(|words| _ = pipe.cmd(words[0]).arg(&words[1..]))
    }
    let guard = client.mutex("mutex").unwrap().lock().unwrap();
    let permit = client.semaphore("gpu", 2).unwrap().acquire().unwrap();
    let reader = client.rw_lock("read").unwrap().read().unwrap();
    let writer = client.rw_lock("write").unwrap().write().unwrap();
    vec![
        ("mutex", Box::new(move |commands| guard.transaction(add(commands)))),
        ("permit", Box::new(move |commands| permit.transaction(add(commands)))),
        ("reader", Box::new(move |commands| reader.transaction(add(commands)))),
        ("writer", Box::new(move |commands| writer.transaction(add(commands)))),
    ]
}

/// Rule 42.
#[test]
fn transaction_with_a_refused_command_applies_nothing() {
    let server = Server::standing_still();
    let kinds = transacting(&server.client());
    let ask = |words: &[&[u8]]| server.inner().call(words).unwrap();
    for (is_full, refused) in [
        (true, &["SET", "y", "1"][..]),
        (true, &["INCR", "y"]),
        (false, &["GEOADD", "y"]),
        (false, &["GET"]),
        (false, &["PUBLISH", "channel"]),
        (false, &["TIME", "x"]),
    ] {
        for (kind, transact) in &kinds {
            for place in 0..3 {
                ask(&[b"SET", b"x", b"1"]);
                server.set_out_of_memory(is_full);
                let mut commands = vec![&["DEL", "x"][..], &["PEXPIRE", "x", "5000"]];
                commands.insert(place, refused);
                let error = transact(&commands).unwrap_err();
                assert!(error.is_refused(), "{kind} {commands:?}: {error}");
                assert!(*kind == "mutex" || error.to_string().contains(refused[0]), "{error}");
                assert_eq!(ask(&[b"PTTL", b"x"]), Value::Int(-1), "{kind} {commands:?}");
                assert_eq!(ask(&[b"EXISTS", b"y"]), Value::Int(0), "{kind} {commands:?}");
                server.set_out_of_memory(false);
            }
        }
    }
    // Without memory that is only allowed which needs none. Redis 7.0 queues no command of a mutex then.
    server.set_out_of_memory(true);
    for (kind, transact) in &kinds[1..] {
        let replies = transact(&[&["DEL", "x"], &["GET", "x"]]).unwrap();
        assert_eq!(replies[1], Value::Nil, "{kind}");
        let error = transact(&[&["DEL", "gone"], &["eval", "return 1", "0"]]).unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("by a script"), "{error}");
    }
}

#[test]
fn full_memory_allows_renewal_release_and_hand_over() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("a").unwrap().lock().unwrap();
    let other = taker(&there, true);
    until(|| server.is_queued_for("a"));
    server.set_out_of_memory(true);
    let error = there.mutex("b").unwrap().try_lock().unwrap_err();
    assert!(error.is_refused(), "{error}");
    // Beats are refused, and so the waiter counts as dead by then; it is asked, and says that it lives.
    server.advance(SECOND * 20);
    assert!(guard.is_valid());
    guard.release().unwrap();
    let owned = other.recv().unwrap().unwrap().expect("it waits");
    owned.release().unwrap();
    server.set_out_of_memory(false);
    drop(there.mutex("b").unwrap().lock().unwrap());
}

#[test]
#[should_panic(expected = "a client of this server")]
fn link_of_another_servers_client_panics() {
    let _ = Server::new().link(&Server::new().client());
}

#[test]
fn steal_accepts_an_endless_lease() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    server.steal("a", Duration::MAX);
    assert!(guard.check().unwrap_err().is_lost());
    server.advance(SECOND * 3600);
    assert!(server.client().mutex("a").unwrap().try_lock().unwrap().is_none());
}

/// Without a bound on all of them together a thread would wait for twenty time-outs.
#[test]
fn guards_dropped_while_the_server_is_silent_wait_for_one_timeout() {
    const GUARDS: usize = 20;
    let server = Server::standing_still();
    let client = server.client();
    let (sender, receiver) = unbounded();
    let theirs = client.clone();
    let (go, goes) = unbounded::<()>();
    let body = move || {
        let take = |number| theirs.mutex(format!("x{number}")).unwrap().lock().unwrap();
        let guards: Vec<_> = (0..GUARDS).map(take).collect();
        let _ = sender.send(());
        let _ = goes.recv();
        drop(guards);
        let _ = sender.send(());
    };
    spawn("dropper", body).unwrap();
    receiver.recv().unwrap();
    let link = server.link(&client);
    link.silence();
    go.send(()).unwrap();
    until(|| link.faults() == 1);
    // One time-out, and no more.
    server.advance(SECOND);
    receiver.recv().expect("the others do not wait");
    link.restore();
    // The worker releases them. A reply, here that to the next call, ends the silence.
    until(|| {
        server.advance(SECOND / 10);
        server.keys().iter().all(|key| !key.starts_with(b"x"))
    });
    let guard = client.mutex("x0").unwrap().lock().unwrap();
    drop(guard);
    assert!(!server.keys().contains(&b"x0".to_vec()), "the drop released it");
}

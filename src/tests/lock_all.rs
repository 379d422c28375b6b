//! Several locks at once, over the server in memory.

use std::time::Duration;

use super::double::until;
use crate::base::error::{Error, Result};
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::{Receiver, TryRecvError, unbounded};
use crate::base::sync::{Arc, AtomicU32, Ordering, spawn};
use crate::client::LockClient;
use crate::kind::{MultiGuard, Mutex, Part, PartGuard};
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

fn locks(client: &LockClient, names: &[&str]) -> Vec<Mutex> {
    names.iter().map(|name| client.mutex(name).unwrap()).collect()
}

fn has(server: &Server, key: &str) -> bool {
    server.keys().iter().any(|found| found == key.as_bytes())
}

fn names(guard: &MultiGuard) -> Vec<String> {
    guard.guards().iter().map(|part| String::from_utf8_lossy(part.name()).into_owned()).collect()
}

/// What a thread that takes locks does with them, and what it tells.
type Taken<T> = Receiver<Result<T>>;

/// A thread that waits for these locks, and sends what `then` makes of them.
fn taker<T: Send + 'static>(
    client: &LockClient,
    names: &[&str],
    then: impl FnOnce(MultiGuard) -> Result<T> + Send + 'static,
) -> Taken<T> {
    taker_of(client, locks(client, names), then)
}

fn taker_of<T: Send + 'static>(
    client: &LockClient,
    locks: Vec<Mutex>,
    then: impl FnOnce(MultiGuard) -> Result<T> + Send + 'static,
) -> Taken<T> {
    let (sender, receiver) = unbounded();
    let client = client.clone();
    let body = move || {
        let _ = sender.send(client.lock_all(&locks).and_then(then));
    };
    spawn("taker", body).unwrap();
    receiver
}

/// A server, and a client that knows its time.
fn stage() -> (Server, LockClient) {
    let server = Server::standing_still();
    let client = server.client();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    (server, client)
}

#[test]
fn free_locks_take_one_exchange_there_and_one_back() {
    let (server, client) = stage();
    let link = server.link(&client);
    for count in [2, 5, 40] {
        let locks: Vec<_> =
            (0..count).map(|number| client.mutex(format!("x{number:02}")).unwrap()).collect();
        let before = link.exchanges();
        let guard = client.lock_all(locks.iter().rev()).unwrap();
        assert_eq!(link.exchanges() - before, 1, "{count}");
        assert!(guard.is_valid() && guard.remaining() > SECOND * 29 && guard.loss().is_none());
        assert!(names(&guard).is_sorted() && guard.guards().len() == count);
        guard.release().unwrap();
        assert_eq!(link.exchanges() - before, 2, "{count}");
        assert!(!has(&server, "x00"));
        drop(client.try_lock_all(&locks).unwrap().unwrap());
        assert_eq!(link.exchanges() - before, 4, "{count}");
    }
}

#[test]
fn wait_for_one_lock_holds_only_what_comes_before() {
    let (server, client) = stage();
    let other = server.client();
    let held = other.mutex("b").unwrap().lock().unwrap();
    let taken = taker(&client, &["c", "a", "b"], |guard| guard.release());
    until(|| server.is_queued_for("b"));
    assert!(has(&server, "a") && !has(&server, "c"));
    // Nobody stands in the queue of a later lock either.
    let later = other.mutex("c").unwrap().try_lock().unwrap().unwrap();
    assert_eq!(server.waiters("c"), 0);
    held.release().unwrap();
    until(|| server.is_queued_for("c"));
    assert!(has(&server, "a") && has(&server, "b"));
    later.release().unwrap();
    taken.recv().unwrap().unwrap();
    assert!(!has(&server, "a") && !has(&server, "b") && !has(&server, "c"));
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn one_attempt_takes_all_or_none_and_tells_the_blocker() {
    let (server, client) = stage();
    let other = server.client();
    let held = other.mutex("b").unwrap().lock().unwrap();
    let all = locks(&client, &["a", "b", "c"]);
    assert!(client.try_lock_all(&all).unwrap().is_none());
    assert!(!has(&server, "a") && !has(&server, "c"));
    assert_eq!(all[1].last_blocker().unwrap().token(), Some(held.fencing_token()));
    assert!(all[0].last_blocker().is_none());
    assert!(client.try_lock_all_for(&all, Duration::ZERO).unwrap().is_none());
    drop(held);
    let guard = client.try_lock_all(&all).unwrap().unwrap();
    assert_eq!(names(&guard), ["a", "b", "c"]);
    assert!(all[1].last_blocker().is_none());
}

#[test]
fn one_deadline_is_for_all_locks() {
    let (server, client) = stage();
    let other = server.client();
    let [first, second] = ["a", "b"].map(|name| other.mutex(name).unwrap().lock().unwrap());
    let (sender, receiver) = unbounded();
    let (waiting, all) = (client.clone(), locks(&client, &["a", "b"]));
    let body = move || {
        let taken = waiting.try_lock_all_for(&all, SECOND * 10);
        let _ = sender.send(taken.map(|guard| guard.is_some()));
    };
    spawn("waiter", body).unwrap();
    until(|| server.is_queued_for("a"));
    server.advance(SECOND * 6);
    first.release().unwrap();
    until(|| server.is_queued_for("b"));
    server.advance(SECOND * 3);
    assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Empty);
    server.advance(SECOND * 2);
    assert!(!receiver.recv().unwrap().unwrap());
    until(|| !has(&server, "a"));
    second.release().unwrap();
}

#[test]
fn locks_that_cannot_be_taken_together_are_refused_before_io() {
    let (server, client) = stage();
    let link = server.link(&client);
    let before = link.exchanges();
    let all = locks(&client, &["b", "a", "b"]);
    let error = client.try_lock_all(&all).unwrap_err();
    assert!(error.is_config(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "lock \"b\": invalid parts: a lock that is named twice, expected each lock once"
    );
    let error = client.lock_all(Vec::<Part>::new()).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("there are none"), "{error:?}");
    let foreign = server.client().mutex("z").unwrap();
    let error = client.try_lock_all([&all[0], &foreign]).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("\"z\""), "{error:?}");
    assert_eq!(link.exchanges(), before);
}

#[test]
fn lock_that_the_thread_holds_is_entered_once_more() {
    let (server, client) = stage();
    let all = locks(&client, &["a", "b"]);
    let outer = all[1].lock().unwrap();
    let guard = client.lock_all(&all).unwrap();
    assert_eq!((outer.hold_count(), all[0].hold_count()), (2, 1));
    let token = guard.get("b").unwrap().fencing_token();
    assert_eq!(token, outer.fencing_token());
    guard.release().unwrap();
    assert!(outer.is_valid() && outer.hold_count() == 1 && !has(&server, "a"));
    // What it has entered is left again, too.
    let other = server.client().mutex("a").unwrap().lock().unwrap();
    assert!(client.try_lock_all(&all).unwrap().is_none());
    assert_eq!(outer.hold_count(), 1);
    drop(other);
    // A lost hold is not taken anew.
    server.delete("b");
    outer.check().unwrap_err();
    let error = client.lock_all(&all).unwrap_err();
    assert!(error.is_lost() && !has(&server, "a"), "{error:?}");
}

#[test]
fn loss_of_one_is_the_loss_of_all_and_reported_once() {
    let (server, client) = stage();
    let guard = client.lock_all(&locks(&client, &["a", "b", "c"])).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&calls);
    guard.on_loss(move |_| _ = count.fetch_add(1, Ordering::SeqCst));
    let watches = guard.lease_watches();
    server.delete("b");
    server.delete("c");
    let error = guard.check().unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("\"b\""), "{error:?}");
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(guard.loss().unwrap().name(), b"b");
    assert!(watches[0].is_valid() && !watches[1].is_valid());
    server.advance(SECOND * 15);
    until(|| calls.load(Ordering::SeqCst) > 0 && !watches[2].is_valid());
    let error = guard.release().unwrap_err();
    assert!(error.is_lost() && error.to_string().matches("lost:").count() == 2, "{error:?}");
    assert!(!has(&server, "a"));
    server.advance(SECOND);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn error_names_its_lock_and_what_was_given_back() {
    let (server, client) = stage();
    server.inner().call(&[b"HSET", b"c", b"x", b"1"]).unwrap();
    let all = locks(&client, &["a", "b", "c", "d"]);
    let is_refused = |error: Error| {
        assert!(error.is_wrong_type(), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("lock \"c\": "), "{text}");
        text
    };
    let text = is_refused(client.lock_all(&all).unwrap_err());
    assert!(text.ends_with("; given back: \"a\", \"b\""), "{text}");
    assert!(!has(&server, "a") && !has(&server, "b") && !has(&server, "d"));
    // No wait for an earlier lock comes before that.
    let held = server.client().mutex("a").unwrap().lock().unwrap();
    let text = is_refused(client.lock_all(&all).unwrap_err());
    assert!(!text.contains("given back"), "{text}");
    assert_eq!((server.elapsed(), server.waiters("a")), (Duration::ZERO, 0));
    drop(held);
}

#[test]
fn roll_back_that_does_not_get_through_is_reported() {
    let (server, client) = stage();
    let other = server.client();
    let held = other.mutex("b").unwrap().lock().unwrap();
    let (all, link) = (locks(&client, &["a", "b"]), server.link(&client));
    let taken = taker_of(&client, all.clone(), |guard| guard.release());
    until(|| server.is_queued_for("b"));
    server.advance(Duration::ZERO);
    link.cut();
    assert_eq!(all[1].cancel_waits(), 1);
    let error = taken.recv().unwrap().unwrap_err();
    assert!(error.is_cancelled(), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("lock \"b\": the wait was cancelled"), "{text}");
    assert!(text.contains("not given back yet: lock \"a\": "), "{text}");
    assert!(text.contains("goes on in the background"), "{text}");
    assert!(has(&server, "a"));
    link.restore();
    server.advance(SECOND * 2);
    until(|| !has(&server, "a"));
    held.release().unwrap();
}

#[test]
fn lock_lost_while_another_is_waited_for_ends_the_call() {
    let (server, client) = stage();
    let held = server.client().mutex("b").unwrap().lock().unwrap();
    let short = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let all = vec![client.mutex_with("a", short).unwrap(), client.mutex("b").unwrap()];
    let taken = taker_of(&client, all, |guard| guard.release());
    until(|| server.is_queued_for("b"));
    server.advance(SECOND * 6);
    held.release().unwrap();
    let error = taken.recv().unwrap().unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("lock \"a\": lost") && text.ends_with("given back: \"b\""), "{text}");
    assert!(!has(&server, "b"));
}

#[test]
fn lock_held_in_this_process_is_waited_for_in_its_slot() {
    let (server, client) = stage();
    let all = locks(&client, &["a", "b", "c"]);
    let held = all[1].lock().unwrap().into_owned().unwrap();
    let link = server.link(&client);
    let before = link.exchanges();
    // It is known here that somebody has it.
    assert!(client.try_lock_all(&all).unwrap().is_none());
    assert_eq!(link.exchanges(), before);
    assert_eq!(all[1].last_blocker().unwrap().token(), Some(held.fencing_token()));

    let taken = taker(&client, &["c", "b", "a"], |guard| {
        let tokens = guard.fencing_tokens().map(|(_, token)| token).collect::<Vec<_>>();
        guard.release().map(|()| tokens)
    });
    until(|| held.waiters() == 1);
    assert!(has(&server, "a") && !has(&server, "c"));
    let token = held.fencing_token();
    held.release().unwrap();
    let tokens = taken.recv().unwrap().unwrap();
    assert!(tokens.len() == 3 && tokens[1] > token, "{tokens:?} after {token}");
}

#[test]
fn lingering_locks_take_no_exchange() {
    let (server, client) = stage();
    let options = LockOptions::new().linger(SECOND * 5);
    let all: Vec<_> =
        ["a", "b"].iter().map(|name| client.mutex_with(name, options).unwrap()).collect();
    let link = server.link(&client);
    // A hold that begins without Redis takes a token of its own, which the server's clock has to reach.
    let relock = || {
        server.advance(Duration::from_millis(1));
        client.lock_all(&all).unwrap().release().unwrap();
    };
    until(|| {
        // Once the client listens.
        relock();
        let before = link.exchanges();
        relock();
        link.exchanges() == before
    });
    server.advance(Duration::from_millis(1));
    assert!(has(&server, "a") && has(&server, "b"));
    // One of them may have to be asked for.
    let mixed = [&all[0], &all[1], &client.mutex("c").unwrap()].map(Part::from);
    let before = link.exchanges();
    let guard = client.lock_all(mixed).unwrap();
    assert_eq!((link.exchanges() - before, names(&guard).len()), (1, 3));
}

#[test]
fn lost_reply_is_asked_for_again_under_the_same_values() {
    let (server, client) = stage();
    let (all, link) = (locks(&client, &["a", "b", "c"]), server.link(&client));
    for (count, exchanges) in [(0, 1), (1, 2)] {
        link.lose_answers(count);
        let before = link.exchanges();
        // Under other values they would find themselves in the way.
        let guard = client.try_lock_all(&all).unwrap().expect("nobody else has them");
        assert_eq!(link.exchanges() - before, exchanges);
        guard.release().unwrap();
        server.advance(SECOND * 3);
        until(|| !all.iter().any(|lock| lock.is_locked().unwrap()));
    }
    assert_eq!(link.faults(), 1);
    // A lost reply to the release leaves open what ended the locks, and makes no loss of it.
    let guard = client.lock_all(&all).unwrap();
    link.lose_answers(1);
    let error = guard.release().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(!has(&server, "a") && !has(&server, "b") && !has(&server, "c"));
}

#[test]
fn requests_that_are_lost_for_good_leave_nothing_behind() {
    let (server, client) = stage();
    let (all, link) = (locks(&client, &["a", "b", "c"]), server.link(&client));
    link.lose_answers(2);
    let error = client.try_lock_all(&all).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(error.to_string().starts_with("lock \"a\": "), "{error}");
    server.advance(SECOND * 3);
    until(|| !has(&server, "a") && !has(&server, "b") && !has(&server, "c"));
}

#[test]
fn closed_client_cancels_the_call_and_gives_back() {
    let (server, client) = stage();
    let held = server.client().mutex("b").unwrap().lock().unwrap();
    let taken = taker(&client, &["a", "b", "c"], |guard| guard.release());
    until(|| server.is_queued_for("b"));
    let report = client.close(SECOND, SECOND);
    assert_eq!(report.cancelled(), 1, "{report}");
    let error = taken.recv().unwrap().unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("was closed"), "{error:?}");
    assert!(!has(&server, "a") && !has(&server, "c"));
    assert!(client.try_lock_all(&locks(&client, &["a", "c"])).unwrap_err().is_cancelled());
    held.release().unwrap();
}

#[test]
fn locks_of_several_kinds_are_taken_together() {
    let (server, client) = stage();
    let (mutex, reentrant) = (client.mutex("b").unwrap(), client.reentrant("a").unwrap());
    let guard = client.lock_all([Part::from(&mutex), Part::from(&reentrant)]).unwrap();
    assert_eq!(names(&guard), ["a", "b"]);
    for part in guard.into_guards() {
        let PartGuard::Lock(guard) = part else { panic!("{part:?}") };
        assert!(guard.into_owned().unwrap().release().is_ok());
    }
    assert!(!has(&server, "a") && !has(&server, "b"));
    // The same name as two kinds is one key, and Redis says which it is.
    let both = [Part::from(&mutex), Part::from(&client.reentrant("b").unwrap())];
    let error = client.lock_all(both).unwrap_err();
    assert!(error.is_wrong_type() && !has(&server, "b"), "{error:?}");
}

#[test]
fn transaction_applies_only_while_all_are_held() {
    let (server, client) = stage();
    let guard = client.lock_all(&locks(&client, &["a", "b"])).unwrap();
    let add = || guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("count"));
    assert_eq!(add().unwrap().len(), 1);
    server.steal("b", SECOND);
    let error = add().unwrap_err();
    assert!(error.is_lost() && error.to_string().starts_with("lock \"b\""), "{error:?}");
    let count = server.inner().call(&[b"GET", b"count"]).unwrap();
    assert_eq!(count, crate::wire::Value::BulkString(b"1".to_vec()));
    assert!(guard.release().unwrap_err().is_lost());
}

#[test]
fn leases_of_all_are_extended_confirmed_and_kept() {
    let (server, client) = stage();
    let options = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let all: Vec<_> =
        ["a", "b"].iter().map(|name| client.mutex_with(name, options).unwrap()).collect();
    let guard = client.lock_all(&all).unwrap();
    assert!(guard.remaining() < SECOND * 5);
    guard.extend(SECOND * 9).unwrap();
    assert!(guard.remaining() > SECOND * 8);
    guard.confirm().unwrap();
    guard.keep_for(SECOND * 3).unwrap();
    guard.release().unwrap();
    server.advance(SECOND * 2);
    assert!(has(&server, "a") && has(&server, "b"));
    server.advance(SECOND * 2);
    until(|| !has(&server, "a") && !has(&server, "b"));
}

#[test]
fn permits_are_parts_too() {
    let (server, client) = stage();
    let (gpus, model) = (client.semaphore("gpu", 3).unwrap(), client.mutex("model").unwrap());
    let other = server.client().semaphore("gpu", 3).unwrap();
    let link = server.link(&client);
    let before = link.exchanges();
    let guard = client.lock_all([Part::from(&model), gpus.permits(2)]).unwrap();
    assert_eq!((link.exchanges() - before, names(&guard)), (1, vec!["gpu".into(), "model".into()]));
    let Some(PartGuard::Permit(permit)) = guard.get("gpu") else { panic!("{guard:?}") };
    assert_eq!(permit.slots(), [0, 1]);
    let error = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("x")).unwrap_err();
    assert!(error.is_config() && error.to_string().starts_with("lock \"gpu\": "), "{error:?}");
    assert!(other.try_acquire_many(2).unwrap().is_none());
    // A thread that has permits asks for others.
    assert!(client.try_lock_all([gpus.permits(2)]).unwrap().is_none());
    let one = client.try_lock_all([gpus.permits(1)]).unwrap().unwrap();
    assert_eq!(link.exchanges() - before, 3);
    drop((guard, one));
    assert_eq!(other.try_acquire_many(3).unwrap().unwrap().slots(), [0, 1, 2]);
    for (parts, text) in [
        ([gpus.permits(1), gpus.permits(2)], "named twice"),
        ([Part::from(&model), gpus.permits(4)], "invalid permits: 4"),
    ] {
        let error = client.lock_all(parts).unwrap_err();
        assert!(error.is_config() && error.to_string().contains(text), "{error:?}");
    }
    assert!(!has(&server, "model"));
}

/// Both are refused in the same pipeline. An attempt in the queue of the later one could be granted it while its
/// thread waits for the earlier one.
#[test]
fn no_queue_is_joined_behind_a_lock_that_is_not_free() {
    let (server, client) = stage();
    let other = server.client();
    // The client listens, so that it could join at once.
    let held = other.mutex("b").unwrap().lock().unwrap();
    let first = taker(&client, &["b"], |guard| guard.release());
    until(|| server.is_queued_for("b"));
    held.release().unwrap();
    first.recv().unwrap().unwrap();

    let [held, later] = ["b", "c"].map(|name| other.mutex(name).unwrap().lock().unwrap());
    let taken = taker(&client, &["a", "b", "c"], |guard| guard.release());
    until(|| server.is_queued_for("b"));
    later.release().unwrap();
    let again = other.mutex("c").unwrap().try_lock().unwrap();
    assert!(again.is_some(), "it was granted to a thread that waits for another lock");
    drop(again);
    held.release().unwrap();
    taken.recv().unwrap().unwrap();
}

/// The pipeline is under way, and its reply will say that an earlier lock is not free.
#[test]
fn cancelled_wait_for_a_later_lock_ends_the_call() {
    // The later one is free, or another has it, too.
    for held_names in [&["b"][..], &["b", "c"]] {
        let (server, client) = stage();
        let other = server.client();
        let held: Vec<_> = locks(&other, held_names).iter().map(|it| it.lock().unwrap()).collect();
        let (all, link) = (locks(&client, &["a", "b", "c"]), server.link(&client));
        link.delay_answers(1, SECOND / 2);
        let taken = taker_of(&client, all.clone(), |guard| guard.release());
        until(|| link.faults() == 1);
        until(|| all[2].cancel_waits() == 1);
        server.advance(SECOND / 2);
        let error = taken.recv().unwrap().unwrap_err();
        assert!(error.is_cancelled(), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("lock \"c\": ") && text.ends_with("given back: \"a\""), "{text}");
        assert!(!has(&server, "a"));
        assert_eq!(has(&server, "c"), held_names.contains(&"c"));
        drop(held);
    }
}

#[test]
fn readers_and_writers_are_parts_too() {
    let (server, client) = stage();
    let (prices, stock) = (client.rw_lock("prices").unwrap(), client.rw_lock("stock").unwrap());
    let link = server.link(&client);
    let before = link.exchanges();
    let guard = client.lock_all([stock.for_write(), prices.for_read()]).unwrap();
    assert_eq!((link.exchanges() - before, names(&guard).len()), (1, 2));
    assert!(matches!(guard.guards(), [PartGuard::Read(_), PartGuard::Write(_)]));
    let other = server.client();
    let theirs = [other.rw_lock("prices").unwrap(), other.rw_lock("stock").unwrap()];
    // Readers stand side by side, and nobody beside a writer.
    assert!(other.try_lock_all([theirs[0].for_read()]).unwrap().is_some());
    let both = [theirs[0].for_read(), theirs[1].for_read()];
    assert!(other.try_lock_all(both).unwrap().is_none());
    // What would wait for itself is an error at once, and the same lock twice in whatever way.
    let error = client.lock_all([prices.for_write()]).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("wait for itself"), "{error:?}");
    let error = client.lock_all([prices.for_read(), prices.for_write()]).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("named twice"), "{error:?}");
    let inner = client.lock_all([prices.for_read(), stock.for_read()]).unwrap();
    guard.release().unwrap();
    assert!(other.try_lock_all([theirs[1].for_write()]).unwrap().is_none());
    inner.release().unwrap();
    let writes = theirs.iter().map(|lock| lock.for_write());
    assert!(other.try_lock_all(writes).unwrap().is_some());
}

#[test]
fn more_than_ten_thousand_locks_are_refused() {
    let (_server, client) = stage();
    let locks: Vec<Mutex> =
        (0..10_001).map(|number| client.mutex(format!("x{number}")).unwrap()).collect();
    let error = client.lock_all(&locks).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("10001"), "{error}");
}

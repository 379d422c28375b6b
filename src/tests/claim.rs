//! Those of many locks that are free, over the server in memory.

use std::time::Duration;

use super::double::{listen, until};
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::unbounded;
use crate::base::sync::{Arc, AtomicU32, Mutex as Shared, Ordering, spawn};
use crate::client::LockClient;
use crate::kind::{Mutex, OwnedLease, Part};
use crate::observe::{Acquired, NotAcquired, Observer, Waiting};
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A server, and a client that knows its time.
fn stage() -> (Server, LockClient) {
    let server = Server::standing_still();
    let client = server.client();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    (server, client)
}

fn locks(client: &LockClient, count: usize) -> Vec<Mutex> {
    (0..count).map(|number| client.mutex(format!("x{number:03}")).unwrap()).collect()
}

fn names(claimed: &[OwnedLease]) -> Vec<String> {
    claimed.iter().map(|lease| String::from_utf8_lossy(lease.name()).into_owned()).collect()
}

/// The names of these numbers.
fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("x{number:03}")).collect()
}

/// The keys of locks that are held.
fn held(server: &Server) -> Vec<String> {
    let keys = server.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
    keys.filter(|key| !key.contains(':')).collect()
}

#[test]
fn free_locks_take_one_exchange_there_and_one_back() {
    let (server, client) = stage();
    let link = server.link(&client);
    for count in [1, 2, 10, 128, 300] {
        let locks = locks(&client, 400);
        let before = link.exchanges();
        let claimed = client.claim(&locks, count).unwrap();
        assert_eq!(link.exchanges() - before, 1, "{count}");
        assert_eq!(names(&claimed), numbered(0..count));
        assert!(claimed.iter().all(|lease| lease.is_valid() && lease.remaining() > SECOND * 29));
        assert_eq!(held(&server).len(), count);
        client.release_all(claimed).unwrap();
        assert_eq!(link.exchanges() - before, 2, "{count}");
        assert!(held(&server).is_empty());
    }
}

#[test]
fn taken_locks_are_passed_over_in_pipelines_that_grow() {
    let (server, client) = stage();
    let other = server.client();
    let theirs = other.claim(locks(&other, 400).iter().step_by(2), 100).unwrap();
    assert_eq!(names(&theirs)[..3], numbered([0, 2, 4]));
    let ours = locks(&client, 400);
    let link = server.link(&client);
    let before = link.exchanges();
    let claimed = client.claim(&ours, 10).unwrap();
    // Of the first ten five are free, so of the next ten five are likely to be.
    assert_eq!(link.exchanges() - before, 2);
    assert_eq!(names(&claimed), numbered((1..20).step_by(2)));
    assert_eq!(held(&server).len(), theirs.len() + 10);
    assert_eq!(ours[0].last_blocker().unwrap().token(), Some(theirs[0].fencing_token()));
    assert!(ours[1].last_blocker().is_none());
    // Those of this client cost nothing.
    let before = link.exchanges();
    assert!(client.claim(ours[1..20].iter().step_by(2), 10).unwrap().is_empty());
    assert_eq!(link.exchanges(), before);
    // And what the others let go is claimed next.
    other.release_all(theirs).unwrap();
    assert_eq!(names(&client.claim(&ours, 3).unwrap()), numbered([0, 2, 4]));
}

#[test]
fn locks_beyond_what_was_asked_for_are_given_back_at_once() {
    let (server, client) = stage();
    let other = server.client();
    let _theirs = other.claim(&locks(&other, 10), 10).unwrap();
    let link = server.link(&client);
    let before = link.exchanges();
    // None of the first ten is free, and all of the next twenty.
    let claimed = client.claim(&locks(&client, 50), 10).unwrap();
    assert_eq!(link.exchanges() - before, 3, "two pipelines of tries, one of releases");
    assert_eq!(names(&claimed), numbered(10..20));
    assert_eq!(held(&server).len(), 10 + 10);
    assert_eq!(other.claim(&locks(&other, 30)[20..], 10).unwrap().len(), 10);
}

#[test]
fn few_or_none_are_no_error() {
    let (server, client) = stage();
    let other = server.client();
    let all = locks(&client, 30);
    assert!(client.claim(&all, 0).unwrap().is_empty());
    assert!(client.claim(Vec::<Part>::new(), 10).unwrap().is_empty());
    let claimed = client.claim(&all, 1_000).unwrap();
    assert_eq!(names(&claimed), numbered(0..30));
    assert!(other.claim(&locks(&other, 30), 10).unwrap().is_empty());
    drop(claimed);
    assert!(held(&server).is_empty());
    client.release_all([]).unwrap();
}

#[test]
fn order_of_the_call_is_the_order_of_the_claim() {
    let (_server, client) = stage();
    let all = locks(&client, 10);
    let _third = all[7].lock_owned().unwrap();
    let claimed = client.claim(all.iter().rev(), 4).unwrap();
    assert_eq!(names(&claimed), numbered([9, 8, 6, 5]));
    let tokens: Vec<_> = claimed.iter().map(OwnedLease::fencing_token).collect();
    assert!(tokens.iter().all(|token| token.get() > 0));
}

#[test]
fn claim_never_enters_a_hold_of_its_thread() {
    let (server, client) = stage();
    let all = locks(&client, 4);
    let guard = all[0].lock().unwrap();
    let claimed = client.claim(&all, 2).unwrap();
    assert_eq!((names(&claimed), guard.hold_count()), (numbered([1, 2]), 1));
    assert_eq!(all[0].last_blocker().unwrap().token(), Some(guard.fencing_token()));
    // Nor is what it claimed entered.
    assert!(all[1].try_lock().unwrap().is_none() && !all[1].is_held_by_current_thread());
    // One that is given twice is claimed once.
    let twice = client.claim([&all[3], &all[3]], 2).unwrap();
    assert_eq!(names(&twice), numbered([3]));
    drop((twice, claimed, guard));
    assert!(held(&server).is_empty());
}

/// Not for another process, nor for a thread that waits or asks here.
#[test]
fn claim_never_waits() {
    let (server, client) = stage();
    let other = server.client();
    listen(&client);
    let all = locks(&client, 3);
    let theirs = other.mutex("x001").unwrap().lock().unwrap();
    let (sender, receiver) = unbounded();
    let waiting = all[1].clone();
    spawn("waiter", move || _ = sender.send(waiting.lock().map(drop))).unwrap();
    until(|| server.is_queued_for("x001"));
    server.advance(SECOND / 2);
    let link = server.link(&client);
    let before = link.exchanges();
    let claimed = client.claim(&all, 3).unwrap();
    // It does not even make the thread ask that waits.
    assert_eq!((link.exchanges() - before, names(&claimed)), (1, numbered([0, 2])));
    assert_eq!(server.waiters("x001"), 1);
    theirs.release().unwrap();
    receiver.recv().unwrap().unwrap();
    assert_eq!(server.elapsed(), SECOND / 2);
}

#[test]
fn leases_are_holds_of_their_own() {
    let (server, client) = stage();
    let all = locks(&client, 3);
    let claimed = client.claim(&all, 3).unwrap();
    // Renewed, lost and released one by one, from any thread.
    server.advance(SECOND * 60);
    assert!(claimed.iter().all(OwnedLease::is_valid));
    server.delete("x001");
    server.advance(SECOND * 11);
    let valid: Vec<_> = claimed.iter().map(OwnedLease::is_valid).collect();
    assert_eq!(valid, [true, false, true]);
    let (sender, receiver) = unbounded();
    let releasing = client.clone();
    spawn("releaser", move || _ = sender.send(releasing.release_all(claimed))).unwrap();
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("x001"), "{error}");
    assert!(held(&server).is_empty());
}

#[test]
fn leases_of_several_clients_are_released_together() {
    let (server, client) = stage();
    let other = server.client();
    let mut leases = client.claim(&locks(&client, 3), 3).unwrap();
    leases
        .extend(other.claim(&[other.mutex("y0").unwrap(), other.mutex("y1").unwrap()], 2).unwrap());
    leases.swap(0, 4);
    let links = [server.link(&client), server.link(&other)];
    let before = links.each_ref().map(|link| link.exchanges());
    client.release_all(leases).unwrap();
    for (link, before) in links.iter().zip(before) {
        assert_eq!(link.exchanges() - before, 1);
    }
    assert!(held(&server).is_empty());
}

#[test]
fn wrong_type_gives_everything_back() {
    let (server, client) = stage();
    server.inner().call(&[b"HSET", b"x025", b"field", b"value"]).unwrap();
    let mut all = locks(&client, 40);
    let _ours = all.drain(5..10).map(|lock| lock.lock_owned().unwrap()).collect::<Vec<_>>();
    let error = client.claim(&all, 30).unwrap_err();
    assert!(error.is_wrong_type() && error.to_string().contains("lock \"x025\""), "{error}");
    assert_eq!(held(&server).len(), 5 + 1);
    let kept = client.claim(&all[..20], 20).unwrap();
    assert_eq!(kept.len(), 20);
}

#[test]
fn error_of_a_later_pipeline_names_what_was_given_back() {
    let (server, client) = stage();
    server.inner().call(&[b"HSET", b"x015", b"field", b"value"]).unwrap();
    let all = locks(&client, 40);
    let other = server.client();
    let theirs = other.claim(&locks(&other, 5), 5).unwrap();
    let error = client.claim(&all, 10).unwrap_err();
    let text = error.to_string();
    assert!(error.is_wrong_type() && text.contains("given back: \"x005\", \"x006\""), "{text}");
    drop(theirs);
    assert_eq!(held(&server), ["x015"]);
    // An error before I/O, in the midst of the list.
    let stranger = other.mutex("z").unwrap();
    let error = client.claim(all[..10].iter().chain([&stranger]), 11).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("lock \"z\""), "{error}");
    assert_eq!(held(&server), ["x015"]);
}

#[test]
fn reply_that_is_lost_is_asked_for_again() {
    let (server, client) = stage();
    let link = server.link(&client);
    let all = locks(&client, 10);
    link.lose_answers(1);
    let claimed = client.claim(&all, 5).unwrap();
    assert_eq!((names(&claimed), link.faults()), (numbered(0..5), 1));
    claimed.iter().for_each(|lease| lease.check().unwrap());
    link.lose_requests(1);
    client.release_all(claimed).unwrap();
    assert!(held(&server).is_empty());
}

/// The server goes away in the midst: the outcome of what was asked is not known.
#[test]
fn nothing_is_kept_after_an_unknown_outcome() {
    let (server, client) = stage();
    let (other, link) = (server.client(), server.link(&client));
    let theirs = other.claim(&locks(&other, 5), 5).unwrap();
    let all = locks(&client, 40);
    let (sender, receiver) = unbounded();
    let parts: Vec<Mutex> = all.clone();
    let claiming = client.clone();
    // The second pipeline is served, and no reply to it arrives.
    spawn("worker", move || {
        let (claimer, silence) = (claiming, link);
        let parts = parts.iter().enumerate().map(|(index, lock)| {
            if index == 10 {
                silence.lose_answers(100);
            }
            Part::from(lock)
        });
        _ = sender.send(claimer.claim(parts, 10));
    })
    .unwrap();
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    drop(theirs);
    // What is left is removed in the background, and needs no other call.
    server.link(&client).restore();
    server.advance(SECOND * 10);
    assert!(held(&server).is_empty(), "{:?}", held(&server));
    drop(client.claim(&all, 40).unwrap());
}

#[test]
fn silence_takes_one_time_out_and_keeps_nothing() {
    let (server, client) = stage();
    let link = server.link(&client);
    let all = locks(&client, 20);
    let (sender, receiver) = unbounded();
    link.silence();
    let claiming = client.clone();
    spawn("worker", move || _ = sender.send(claiming.claim(&all, 10))).unwrap();
    until(|| server.has_sleeper());
    server.advance(SECOND * 5);
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    link.restore();
    server.advance(SECOND * 40);
    assert!(held(&server).is_empty(), "{:?}", held(&server));
}

#[test]
fn closed_client_claims_nothing() {
    let (server, client) = stage();
    let all = locks(&client, 5);
    let claimed = client.claim(&all[..2], 2).unwrap();
    client.shutdown(SECOND).unwrap();
    assert!(client.claim(&all, 5).unwrap_err().is_cancelled());
    assert!(claimed.iter().all(|lease| !lease.is_valid()));
    assert!(held(&server).is_empty());
}

#[test]
fn lingering_lease_is_claimed_without_a_command() {
    let (server, client) = stage();
    listen(&client);
    let options = LockOptions::new().linger(SECOND * 20);
    let all: Vec<_> =
        ["a", "b"].iter().map(|name| client.mutex_with(name, options).unwrap()).collect();
    drop(client.claim(&all, 2).unwrap());
    assert_eq!(held(&server).len(), 2, "they linger");
    // No token runs ahead of the server's clock.
    server.advance(SECOND / 10);
    let link = server.link(&client);
    let before = link.exchanges();
    let claimed = client.claim(&all, 2).unwrap();
    assert_eq!((link.exchanges(), claimed.len()), (before, 2));
    // Claimed, and given back because there are enough.
    drop(claimed);
    assert_eq!(client.claim(&all, 1).unwrap().len(), 1);
}

#[test]
fn other_kinds_are_claimed_too() {
    let (server, client) = stage();
    let other = server.client();
    let gpus = client.semaphore("gpu", 2).unwrap();
    let (rw, reentrant) = (client.rw_lock("rw").unwrap(), client.reentrant("re").unwrap());
    let reader = other.rw_lock("rw").unwrap().read_owned().unwrap();
    let parts = || [gpus.permits(2), rw.for_read(), Part::from(&reentrant)];
    let claimed = client.claim(parts(), 3).unwrap();
    assert_eq!(names(&claimed), ["gpu", "rw", "re"]);
    assert!(gpus.try_acquire().unwrap().is_none());
    assert_eq!(names(&client.claim(parts(), 3).unwrap()), ["rw"], "readers share it");
    assert!(client.claim([rw.for_write()], 1).unwrap().is_empty());
    drop(reader);
    client.release_all(claimed).unwrap();
    assert!(client.claim([gpus.permits(3)], 1).unwrap_err().is_config());
}

#[test]
fn fixed_leases_are_claimed_whole() {
    let (server, client) = stage();
    let options = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let all: Vec<_> =
        (0..3).map(|n| client.mutex_with(format!("f{n}"), options).unwrap()).collect();
    let claimed = client.claim(&all, 3).unwrap();
    server.advance(SECOND * 4);
    assert!(claimed.iter().all(OwnedLease::is_valid));
    server.advance(SECOND * 2);
    assert!(!claimed.iter().any(OwnedLease::is_valid));
}

/// Counts the calls that began and that ended in each way.
#[derive(Default)]
struct Counts {
    waiting: AtomicU32,
    acquired: AtomicU32,
    not_acquired: AtomicU32,
    errors: AtomicU32,
    names: Shared<Vec<String>>,
}

struct Counter(Arc<Counts>);

impl Observer for Counter {
    fn waiting(&self, _: &Waiting<'_>) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
    }

    fn acquired(&self, event: &Acquired<'_>) {
        self.0.acquired.fetch_add(1, Ordering::SeqCst);
        self.0.names.lock().push(event.name.escape_ascii().to_string());
    }

    fn not_acquired(&self, event: &NotAcquired<'_>) {
        self.0.not_acquired.fetch_add(1, Ordering::SeqCst);
        self.0.errors.fetch_add(u32::from(event.error.is_some()), Ordering::SeqCst);
    }
}

#[test]
fn observers_learn_what_became_of_each_lock() {
    let server = Server::standing_still();
    let counts = Arc::new(Counts::default());
    let builder = LockClient::builder("redis://unused").observer(Counter(Arc::clone(&counts)));
    let client = server.connect(builder).unwrap();
    let other = server.client();
    let _theirs = other.claim(&locks(&other, 1), 1).unwrap();
    let all = locks(&client, 10);
    let claimed = client.claim(&all, 4).unwrap();
    let count = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
    // Four are tried, of which one is taken, and then two, of which one is given back.
    assert_eq!(count(&counts.waiting), 6);
    assert_eq!((count(&counts.acquired), count(&counts.not_acquired)), (4, 2));
    assert_eq!(*counts.names.lock(), numbered(1..5));
    assert_eq!(count(&counts.errors), 0);
    server.inner().call(&[b"HSET", b"x009", b"field", b"value"]).unwrap();
    assert!(client.claim(&all[8..], 2).unwrap_err().is_wrong_type());
    assert_eq!((count(&counts.errors), count(&counts.acquired)), (1, 4));
    drop(claimed);
}

/// Twenty workers of four processes, who all begin with the same of 1,000 locks, take ten each. Returns the round trips.
fn round_trips(take: impl Fn(&LockClient, &[Mutex]) -> Vec<OwnedLease>) -> u64 {
    let server = Server::standing_still();
    let clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    let mut taken = Vec::new();
    for worker in 0..20 {
        let client = &clients[worker % 4];
        taken.extend(take(client, &locks(client, 1_000)));
    }
    let mut all = names(&taken);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200, "each once");
    clients.iter().map(|client| server.link(client).exchanges()).sum()
}

#[test]
fn claims_take_far_fewer_round_trips_than_tries() {
    let claims = round_trips(|client, all| client.claim(all, 10).unwrap());
    let tries = round_trips(|_, all| {
        all.iter().filter_map(|lock| lock.try_lock_owned().unwrap()).take(10).collect()
    });
    let shown = format!("for 200 locks: {claims} round trips by claim, {tries} by try_lock");
    std::io::Write::write_all(&mut std::io::stderr(), format!("{shown}\n").as_bytes()).unwrap();
    assert!(claims * 10 < tries, "{shown}");
}

//! What stands on the agenda, and what a turn takes from it.

use std::time::Duration;

use super::agenda::{Agenda, REQUESTS, RETURNS};
use super::duty::Duty;
use super::{GiveBack, Worker};
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::{self, Arc, AtomicU64, OnceLock, Ordering, Weak};
use crate::base::time::{Clock, Moment};
use crate::client::LockClient;
use crate::engine::Callbacks;
use crate::engine::callback::News;
use crate::protocol::Target;
use crate::protocol::memory::client::Memory;
use crate::protocol::memory::server::Server as Inner;
use crate::protocol::mutex::MutexKind;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// How many slots are on a client's agenda.
fn looks(client: &LockClient) -> usize {
    client.engine().worker().len().0
}

fn lingering() -> LockOptions {
    LockOptions::new().linger(SECOND * 10)
}

/// Waits until a lease of this client may linger, which it may once others could be heard.
fn listen(server: &Server, client: &LockClient) {
    client.mutex_with("listens", lingering()).unwrap().lock().unwrap().release().unwrap();
    while !client.engine().hub().is_live() {
        sync::sleep(SECOND / 1000);
    }
    server.advance(Duration::ZERO);
}

fn duty(number: u64) -> Arc<GiveBack> {
    let name = Name::new(b"", b"x").unwrap();
    Arc::new(GiveBack {
        target: Target::new(&MutexKind, name),
        owner: Arc::from(number.to_le_bytes()),
        settled: Moment::PAST,
        ttl: SECOND,
        last_token: None,
    })
}

#[test]
fn released_leases_leave_nothing_on_the_agenda() {
    let server = Server::standing_still();
    let client = server.client();
    let options = LockOptions::new().lease(Lease::fixed(HOUR));
    let locks: Vec<_> =
        (0..50).map(|number| client.mutex_with(format!("x{number}"), options).unwrap()).collect();
    for _ in 0..3 {
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        assert_eq!(looks(&client), 50);
        drop(guards);
        assert_eq!(looks(&client), 0);
    }
}

#[test]
fn a_lease_taken_again_has_one_entry_on_the_agenda() {
    let server = Server::new();
    let client = server.client();
    listen(&server, &client);
    let lock = client.mutex_with("x", lingering()).unwrap();
    let before = looks(&client);
    for _ in 0..100 {
        lock.lock().unwrap().release().unwrap();
        assert_eq!(looks(&client), before + 1, "it did not linger, or left an entry each time");
    }
    // From another thread too.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(|_| drop(lock.lock().unwrap())));
        }
    });
    assert_eq!(looks(&client), before + 1);
}

#[test]
fn a_lease_taken_again_is_renewed() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&server, &client);
    let lock = client.mutex_with("x", lingering()).unwrap();
    let token = lock.lock().unwrap().fencing_token().get();
    // By now the server's clock has come up to the next token.
    server.advance(SECOND);
    let guard = lock.lock().unwrap();
    assert_eq!(guard.fencing_token().get(), token + 1, "it did not linger");
    server.advance(SECOND * 60);
    assert!(guard.is_valid(), "{:?}", guard.loss());
}

#[test]
fn a_linger_ends_on_time_however_often_it_began() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&server, &client);
    let before = looks(&client);
    let options = LockOptions::new().linger(SECOND * 2);
    let lock = client.mutex_with("x", options).unwrap();
    for _ in 0..5 {
        lock.lock().unwrap().release().unwrap();
        server.advance(SECOND);
    }
    server.advance(SECOND * 9 / 10);
    assert!(server.keys().contains(&b"x".to_vec()), "it ended with an earlier linger");
    server.advance(SECOND / 10);
    assert!(!server.keys().contains(&b"x".to_vec()));
    assert_eq!(looks(&client), before);
}

#[test]
fn a_turn_takes_all_slots_but_only_some_returns() {
    let server = Server::standing_still();
    let client = server.client();
    let locks: Vec<_> =
        (0..500).map(|number| client.mutex(format!("x{number}")).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let agenda = Agenda::new();
    let now = client.engine().now();
    (0..2_000).for_each(|number| _ = agenda.give_back(now.before(SECOND), duty(number)));
    for slot in client.engine().table().all() {
        agenda.look_at(&slot, now);
        agenda.look_at(&slot, now.after(SECOND));
    }
    assert_eq!(agenda.len(), (500, 2_000, 0));
    let mut hand = Vec::new();
    agenda.take(now, usize::MAX, &mut hand);
    let looks = hand.iter().filter(|duty| matches!(duty, Duty::Look(_))).count();
    assert_eq!((looks, hand.len()), (500, 500 + RETURNS));
    hand.clear();
    agenda.take(now, 1, &mut hand);
    assert_eq!(hand.len(), 1);
    drop(guards);
}

#[test]
fn a_value_is_owed_once_and_until_it_is_done() {
    let agenda = Agenda::new();
    let clock = Busy::new();
    let (first, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
    agenda.give_back(later, duty(1));
    agenda.give_back(first, duty(1));
    assert_eq!(agenda.len().1, 1);
    let mut hand = Vec::new();
    agenda.take(first, usize::MAX, &mut hand);
    assert_eq!((hand.len(), agenda.len().1), (1, 0));
    // While that is under way, it is to be given back once more.
    agenda.give_back(later, duty(1));
    agenda.is_given_back(&duty(1));
    assert_eq!(agenda.wait_given_back(&clock, Moment::PAST).len(), 1);
    agenda.take(later, usize::MAX, &mut hand);
    agenda.is_given_back(&duty(1));
    assert!(agenda.wait_given_back(&clock, Moment::PAST).is_empty());
}

#[test]
fn requests_of_others_do_not_pile_up() {
    let agenda = Agenda::new();
    for _ in 0..REQUESTS * 2 {
        agenda.announce(Moment::PAST, News::Requested(b"x".to_vec()));
    }
    assert_eq!(agenda.len().2, REQUESTS);
}

/// A clock that others are as fast as: whenever the worker looks at it, something new is due.
#[derive(Debug)]
struct Busy {
    looks: AtomicU64,
    agenda: OnceLock<Weak<Agenda>>,
}

impl Busy {
    fn new() -> Busy {
        Busy { looks: AtomicU64::new(0), agenda: OnceLock::new() }
    }
}

impl Clock for Busy {
    fn now(&self) -> Moment {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(looks < 1_000, "the turn does not end");
        let now = Moment::from_nanos(looks);
        if let Some(agenda) = self.agenda.get().and_then(Weak::upgrade) {
            agenda.announce(now, News::Requested(b"x".to_vec()));
        }
        now
    }

    fn doze(&self, _: Moment, _: &mut dyn FnMut(Duration)) {}
}

#[test]
fn a_turn_ends_whatever_falls_due_meanwhile() {
    let clock = Arc::new(Busy::new());
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Inner::new(as_clock()), Arc::new(Identity::new("")));
    let worker = Worker::new(Arc::new(memory), as_clock(), SECOND, Callbacks::default());
    let mut runner = worker.runner.lock().take().unwrap();
    worker.started.store(true, Ordering::Release);
    // What is due one day keeps it from sleeping without end.
    worker.agenda.announce(Moment::FAR.before(HOUR), News::Requested(b"x".to_vec()));
    _ = clock.agenda.get_or_init(|| Arc::downgrade(&worker.agenda));
    for turn in 1..=10 {
        assert!(runner.turn(), "{turn}");
    }
}

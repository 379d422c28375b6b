//! Holds that their thread may not take again, over the server in memory.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::double::{at_once, patient, until};
use crate::base::error::Result;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::unbounded;
use crate::base::sync::{Arc, AtomicU32, Mutex, Ordering, spawn};
use crate::base::token::FencingToken;
use crate::client::{DistributedLock, LocalLocks, LockClient};
use crate::kind::Part;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

type Held = Box<dyn Any>;

/// One way to hold a lock so that no other thread can hold it in the same way.
struct Way {
    name: &'static str,
    wait: Box<dyn Fn() -> Result<Held> + Send + Sync>,
    once: Box<dyn Fn() -> Result<Option<Held>> + Send + Sync>,
    span: Box<dyn Fn(Duration) -> Result<Option<Held>> + Send + Sync>,
    last_blocker: Box<dyn Fn() -> Option<FencingToken> + Send + Sync>,
}

macro_rules! way {
    ($name:literal, $lock:expr, $wait:ident, $once:ident, $span:ident) => {{
        let lock = $lock.unwrap();
        let [one, two, three, four] = std::array::from_fn(|_| lock.clone());
        Way {
            name: $name,
            wait: Box::new(move || Ok(Box::new(one.$wait()?) as Held)),
            once: Box::new(move || Ok(two.$once()?.map(|guard| Box::new(guard) as Held))),
            span: Box::new(move |wait| Ok(three.$span(wait)?.map(|guard| Box::new(guard) as Held))),
            last_blocker: Box::new(move || four.last_blocker()?.token()),
        }
    }};
}

/// All of them.
fn ways(client: &LockClient, options: LockOptions) -> [Way; 4] {
    let rw = |name| client.rw_lock_with(name, options);
    [
        way!("mutex", client.mutex_with("mutex", options), lock, try_lock, try_lock_for),
        way!(
            "reentrant",
            client.reentrant_with("reentrant", options),
            lock,
            try_lock,
            try_lock_for
        ),
        way!("writer", rw("writer"), write, try_write, try_write_for),
        way!(
            "upgradable",
            rw("upgradable"),
            upgradable_read,
            try_upgradable_read,
            try_upgradable_read_for
        ),
    ]
}

fn once_per_thread() -> LockOptions {
    LockOptions::new().reentrant(false)
}

#[test]
fn hold_is_entered_through_no_handle() {
    at_once(enter_through_every_handle);
}

fn enter_through_every_handle() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    let usual = LockOptions::new();
    // The second of each pair calls while its thread has the lock by the first.
    let pairs = [
        (once_per_thread(), once_per_thread()),
        (once_per_thread(), usual),
        (usual, once_per_thread()),
    ];
    for (outer, inner) in pairs {
        for (outer, inner) in ways(&client, outer).into_iter().zip(ways(&client, inner)) {
            let name = outer.name;
            let held = (outer.wait)().unwrap();
            let before = link.exchanges();
            assert!((inner.once)().unwrap().is_none(), "{name}");
            assert!((inner.last_blocker)().is_some(), "{name}");
            assert!((inner.span)(SECOND * 60).unwrap().is_none(), "{name}");
            assert!((inner.last_blocker)().is_some(), "{name}");
            let error = (inner.wait)().map(drop).unwrap_err();
            assert!(error.is_config(), "{error:?}");
            assert!(error.to_string().contains("would wait for itself"), "{error}");
            assert_eq!(link.exchanges(), before, "{name}");
            drop(held);
            drop((inner.wait)().unwrap());
            drop((inner.span)(SECOND).unwrap().unwrap());
        }
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn blocker_is_the_hold_of_the_thread() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.mutex_with("a", once_per_thread()).unwrap();
    let guard = lock.lock().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    let blocker = lock.last_blocker().unwrap();
    assert_eq!(blocker.token(), Some(guard.fencing_token()));
    assert_eq!(blocker.pid(), Some(std::process::id()));
    assert_eq!(guard.hold_count(), 1);
    guard.release().unwrap();
    assert!(lock.last_blocker().is_some(), "the next call forgets it");
    drop(lock.try_lock().unwrap().unwrap());
    assert!(lock.last_blocker().is_none());
}

#[test]
fn usual_holds_are_entered_as_before() {
    let server = Server::standing_still();
    let client = server.client();
    let yes = LockOptions::new().reentrant(true);
    assert_eq!(yes, LockOptions::new());
    let lock = client.mutex_with("a", once_per_thread().reentrant(true)).unwrap();
    let outer = lock.lock().unwrap();
    let inner = lock.try_lock().unwrap().unwrap();
    assert_eq!((outer.hold_count(), inner.fencing_token()), (2, outer.fencing_token()));
}

#[test]
fn readers_read_once_more() {
    at_once(read_in_every_hold);
}

fn read_in_every_hold() {
    let server = Server::standing_still();
    let client = server.client();
    let lock = client.rw_lock_with("a", once_per_thread()).unwrap();
    let usual = client.rw_lock("a").unwrap();
    let outer = lock.read().unwrap();
    drop((lock.read().unwrap(), usual.try_read().unwrap().unwrap()));
    // It would wait for itself in any case.
    assert!(lock.write().map(drop).unwrap_err().is_config());
    assert!(lock.try_write().unwrap().is_none());
    assert!(lock.try_upgradable_read_for(SECOND * 60).unwrap().is_none());
    outer.release().unwrap();
    // A writer and an upgradable reader are alone in their thread, also before readers.
    let writer = lock.write().unwrap();
    assert!(lock.try_read().unwrap().is_none() && usual.try_read_for(SECOND).unwrap().is_none());
    assert!(usual.read().map(drop).unwrap_err().is_config());
    let reader = crate::kind::WriteGuard::downgrade(writer).unwrap();
    drop(usual.try_read().unwrap().expect("it is a reader by now"));
    reader.release().unwrap();
    let upgradable = lock.upgradable_read().unwrap();
    assert!(usual.try_read().unwrap().is_none());
    let writer = crate::kind::UpgradableReadGuard::upgrade(upgradable).unwrap();
    assert!(usual.try_write().unwrap().is_none());
    writer.release().unwrap();
    // A usual writer may be read by a call that would be no reader otherwise.
    let writer = usual.write().unwrap();
    drop(lock.read().unwrap());
    writer.release().unwrap();
    assert_eq!(server.elapsed(), Duration::ZERO);
}

#[test]
fn several_locks_are_none_while_the_thread_has_one() {
    at_once(lock_all_around_a_hold);
}

fn lock_all_around_a_hold() {
    let server = Server::standing_still();
    let client = server.client();
    let link = server.link(&client);
    let once = ["a", "b"].map(|name| client.mutex_with(name, once_per_thread()).unwrap());
    let usual = ["a", "b"].map(|name| client.mutex(name).unwrap());
    let guard = once[1].lock().unwrap();
    let before = link.exchanges();
    for parts in [&once, &usual] {
        assert!(client.try_lock_all(parts).unwrap().is_none());
        assert!(client.try_lock_all_for(parts, SECOND * 60).unwrap().is_none());
        let error = client.lock_all(parts).unwrap_err();
        assert!(error.is_config() && error.to_string().contains("lock \"b\""), "{error}");
    }
    assert_eq!((link.exchanges(), guard.hold_count()), (before, 1));
    guard.release().unwrap();
    let all = client.lock_all(&once).unwrap();
    assert!(
        usual[0].try_lock().unwrap().is_none() && client.try_lock_all(&usual).unwrap().is_none()
    );
    all.release().unwrap();
    // What was entered before the refusal is left again.
    let outer = usual[0].lock().unwrap();
    let inner = once[1].lock().unwrap();
    assert!(client.try_lock_all(&usual).unwrap().is_none());
    assert_eq!(outer.hold_count(), 1);
    inner.release().unwrap();
    drop(client.try_lock_all([Part::from(&usual[0]), Part::from(&usual[1])]).unwrap().unwrap());
    assert_eq!(outer.hold_count(), 1);
}

#[test]
fn lease_that_is_passed_on_has_the_options_of_the_next_thread() {
    let server = Server::standing_still();
    let client = server.client();
    let usual = client.mutex("a").unwrap();
    let guard = usual.lock().unwrap();
    let (sender, receiver) = unbounded();
    let next = client.mutex_with("a", once_per_thread()).unwrap();
    let (other, link) = (usual.clone(), server.link(&client));
    spawn("next", move || {
        let _guard = next.lock().unwrap();
        let is_out = other.try_lock().map(|guard| guard.is_none());
        _ = sender.send((is_out, link.exchanges()));
    })
    .unwrap();
    until(|| guard.waiters() == 1);
    // There is a token for the next hold, so that the lease is passed on.
    server.advance(SECOND / 100);
    let before = server.link(&client).exchanges();
    guard.release().unwrap();
    let (is_out, exchanges) = receiver.recv().unwrap();
    assert!(is_out.unwrap());
    assert_eq!(exchanges, before, "it was not passed on");
}

#[test]
fn owned_lease_keeps_its_option_in_the_next_thread() {
    let server = Server::standing_still();
    let client = server.client();
    let lease = client.mutex_with("a", once_per_thread()).unwrap().lock_owned().unwrap();
    let guard = lease.into_guard();
    assert!(client.mutex("a").unwrap().try_lock().unwrap().is_none());
    drop(guard);
}

#[test]
fn lost_hold_is_reported_and_not_entered() {
    let server = Server::standing_still();
    let client = server.client();
    let options = once_per_thread().lease(Lease::fixed(SECOND));
    let lock = client.mutex_with("a", options).unwrap();
    let guard = lock.lock().unwrap();
    server.advance(SECOND * 2);
    assert!(lock.try_lock().map(drop).unwrap_err().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
    drop(lock.try_lock().unwrap().unwrap());
}

#[test]
fn locks_by_key_follow_the_client() {
    at_once(lock_by_key_twice);
}

fn lock_by_key_twice() {
    let server = Server::standing_still();
    let builder = LockClient::builder("redis://unused").reentrant_by_key(false);
    let client = server.connect(builder).unwrap();
    let locks: [&dyn DistributedLock; 2] = [&client, &LocalLocks::new().reentrant_by_key(false)];
    for locks in locks {
        let once = |wait| locks.try_lock("a", wait, Lease::default());
        assert!(once(Duration::ZERO).unwrap());
        assert!(!once(SECOND * 60).unwrap() && locks.is_held("a"));
        let within = |wait| locks.with_lock("a", wait, Lease::default(), || ());
        let error = within(SECOND * 60).unwrap_err();
        assert!(
            error.is_config() && error.to_string().contains("lock \"a\": invalid reentry"),
            "{error}"
        );
        assert!(once(Duration::MAX).unwrap_err().is_config());
        locks.unlock("a").unwrap();
        assert!(locks.unlock("a").unwrap_err().is_not_held());
        within(SECOND).unwrap();
        assert!(once(Duration::ZERO).unwrap());
        locks.unlock("a").unwrap();
    }
    assert_eq!(server.elapsed(), Duration::ZERO);
    // A lock by key is entered through no handle either.
    assert!(client.try_lock("a", Duration::ZERO, Lease::default()).unwrap());
    assert!(client.mutex("a").unwrap().try_lock().unwrap().is_none());
    client.unlock("a").unwrap();
    // Unless the client says so, it stays as it is.
    let usual = server.client();
    for count in [2, 1] {
        assert!(usual.try_lock("a", Duration::ZERO, Lease::default()).unwrap(), "{count}");
    }
    usual.unlock("a").unwrap();
    assert!(usual.is_held("a"));
    usual.unlock("a").unwrap();
}

/// How many are inside, and how many were at most.
#[derive(Default)]
struct Inside(AtomicU32, AtomicU32);

impl Inside {
    fn enter(&self) {
        let inside = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(inside, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.1.load(Ordering::SeqCst)
    }
}

/// A pool whose threads run other jobs of it while a job waits for its own parts: what a pool that steals work does.
struct Pool {
    jobs: Mutex<VecDeque<u32>>,
    way: Way,
    inside: Inside,
    done: AtomicU32,
}

impl Pool {
    /// Runs one section. In its midst the thread comes to another job.
    fn section(&self, depth: u32) -> bool {
        let Ok(Some(held)) = (self.way.once)() else { return false };
        self.inside.enter();
        if depth < 3 {
            self.steal(depth + 1);
        }
        self.inside.leave();
        drop(held);
        true
    }

    /// Runs a job, and puts it back if its section cannot be entered now.
    fn steal(&self, depth: u32) {
        let job = self.jobs.lock().pop_front();
        if let Some(job) = job {
            match self.section(depth) {
                true => _ = self.done.fetch_add(1, Ordering::SeqCst),
                false => self.jobs.lock().push_back(job),
            }
        }
    }
}

/// Sections of a pool that steals work: how many were inside at most, of each kind.
fn most_of_a_pool(options: LockOptions) -> Vec<(&'static str, u32)> {
    const JOBS: u32 = 200;
    let server = Server::new();
    let client = server.connect(patient()).unwrap();
    let most_inside = |way: Way| {
        let name = way.name;
        let jobs = Mutex::new((0..JOBS).collect());
        let pool = Arc::new(Pool { jobs, way, inside: Inside::default(), done: AtomicU32::new(0) });
        let (sender, receiver) = unbounded();
        for _ in 0..4 {
            let (pool, sender) = (Arc::clone(&pool), sender.clone());
            let body = move || {
                while pool.done.load(Ordering::SeqCst) < JOBS {
                    pool.steal(0);
                }
                _ = sender.send(());
            };
            spawn("pool", body).unwrap();
        }
        for _ in 0..4 {
            receiver.recv().unwrap();
        }
        (name, pool.inside.most())
    };
    ways(&client, options).into_iter().map(most_inside).collect()
}

#[test]
fn pool_that_steals_work_never_has_two_inside() {
    for (name, most) in most_of_a_pool(once_per_thread()) {
        assert_eq!(most, 1, "{name}");
    }
    // And the pool does bring it about. A thread is one upgradable reader at most in any case.
    for (name, most) in most_of_a_pool(LockOptions::new()) {
        assert!(most > 1 || name == "upgradable", "{name}");
    }
}

/// Gives way to the other tasks of its thread once.
struct GiveWay(bool);

impl Future for GiveWay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match std::mem::replace(&mut self.0, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// Runs tasks on this thread until all are done: what a local set does.
fn run_all(mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
    }
}

/// Ten tasks of one thread that await in their sections: how many were inside at most.
fn most_of_a_local_set(take: impl Fn() -> Result<Option<Held>> + Clone + 'static) -> u32 {
    let inside = Arc::new(Inside::default());
    let task = || {
        let (take, inside) = (take.clone(), Arc::clone(&inside));
        Box::pin(async move {
            let held = loop {
                match take().unwrap() {
                    Some(held) => break held,
                    None => GiveWay(false).await,
                }
            };
            inside.enter();
            for _ in 0..3 {
                GiveWay(false).await;
            }
            inside.leave();
            drop(held);
        }) as Pin<Box<dyn Future<Output = ()>>>
    };
    run_all((0..10).map(|_| task()).collect());
    inside.most()
}

#[test]
fn tasks_of_one_thread_never_have_two_inside() {
    let server = Server::standing_still();
    let client = server.client();
    for way in ways(&client, once_per_thread()) {
        let name = way.name;
        let way = Arc::new(way);
        assert_eq!(most_of_a_local_set(move || (way.once)()), 1, "{name}");
    }
    // A thread is one upgradable reader at most in any case.
    for way in ways(&client, LockOptions::new()).into_iter().take(3) {
        let name = way.name;
        let way = Arc::new(way);
        assert_eq!(most_of_a_local_set(move || (way.once)()), 10, "{name}: nothing is shown");
    }
    let boxed = |lease: Option<crate::kind::OwnedLease>| lease.map(|lease| Box::new(lease) as Held);
    let (mutex, reentrant) = (client.mutex("a").unwrap(), client.reentrant("b").unwrap());
    let rw = client.rw_lock("c").unwrap();
    assert_eq!(most_of_a_local_set(move || mutex.try_lock_owned().map(boxed)), 1);
    assert_eq!(most_of_a_local_set(move || reentrant.try_lock_owned().map(boxed)), 1);
    assert_eq!(most_of_a_local_set(move || rw.try_write_owned().map(boxed)), 1);
}

//! The operations that are counted.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use leasehold::{
    Guard, Lease, LockClient, LockClientBuilder, LockOptions, MultiGuard, Mutex, Period, ReadGuard,
    RunOutcome,
};
use leasehold_support::child::tell;
use nix::unistd::getppid;

use crate::role::serve;

/// A lease whose renewals are less than a second apart: a connection that was idle for a second is looked at.
const LEASE: Duration = Duration::from_secs(2);
/// No machine is as busy as that.
const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks whether a message has come.
const PAUSE: Duration = Duration::from_millis(1);

/// What is counted, again and again.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) end: End,
    pub(crate) play: fn(&str),
}

/// When an operation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// When its thread has done it, and the process is calm.
    Calm,
    /// When so many scripts have run, too.
    Scripts(u64),
    /// When this time is over, too. What was counted is what falls to this time.
    Passed(Duration),
}

const fn operation(name: &'static str, play: fn(&str)) -> Operation {
    Operation { name, end: End::Calm, play }
}

const fn spans(name: &'static str, end: End, play: fn(&str)) -> Operation {
    Operation { name, end, play }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    // First those that take time.
    spans("renewal of one lease", End::Scripts(1), |url| renewal(url, 1)),
    spans("renewal of 100 leases in one turn", End::Scripts(100), |url| renewal(url, 100)),
    spans("idle client, for a second", End::Passed(SECOND), |url| {
        let client = client(url);
        let lock = client.mutex("a").expect("a name");
        drop(lock.lock().expect("it is free"));
        serve(|| (), || ());
    }),
    spans("idle client that listens, for a second", End::Passed(SECOND), |url| {
        let client = open(url, |builder| builder.on_release_request(|_| ()));
        let lock = client.mutex("a").expect("a name");
        drop(lock.lock().expect("it is free"));
        serve(|| (), || ());
    }),
    operation(PLAIN, |url| lock_and(url, || ())),
    operation("mutex: re-entry and drop", |url| {
        let client = client(url);
        let lock = client.mutex("a").expect("a name");
        let _guard = lock.lock().expect("it is free");
        serve(|| (), || drop(lock.lock().expect("it is this thread's")));
    }),
    operation("reentrant lock: lock and drop", |url| {
        let client = client(url);
        let lock = client.reentrant("a").expect("a name");
        serve(|| (), || drop(lock.lock().expect("it is free")));
    }),
    operation("read-write lock: read and drop, alone", |url| {
        let client = client(url);
        let lock = client.rw_lock("a").expect("a name");
        serve(|| (), || drop(lock.read().expect("nobody writes")));
    }),
    operation("read-write lock: read and drop, beside a reader of the client", |url| {
        let client = client(url);
        let lock = client.rw_lock("a").expect("a name");
        let same = lock.clone();
        let other = Helper::<Option<ReadGuard>>::new();
        other.order(move |guard| *guard = Some(same.read().expect("nobody writes")));
        other.join();
        serve(|| (), || drop(lock.read().expect("nobody writes")));
    }),
    operation("read-write lock: write and drop", |url| {
        let client = client(url);
        let lock = client.rw_lock("a").expect("a name");
        serve(|| (), || drop(lock.write().expect("nobody reads")));
    }),
    operation("semaphore: permit and drop", |url| {
        let client = client(url);
        let semaphore = client.semaphore("a", 4).expect("a name");
        serve(|| (), || drop(semaphore.acquire().expect("all are free")));
    }),
    operation("mutex: passed on to a waiting thread of the client", |url| {
        let client = client(url);
        pass(&client, &client, false);
    }),
    operation("mutex: handed over to a waiting client", |url| {
        pass(&client(url), &client(url), false)
    }),
    operation("mutex: handed over to a waiting client of which the holder knows", |url| {
        pass(&client(url), &client(url), true)
    }),
    operation("claim of 10, and their release", |url| {
        let client = client(url);
        let locks = locks(&client, 10);
        let claim = || {
            let leases = client.claim(&locks, 10).expect("they are free");
            assert_eq!(leases.len(), 10);
            client.release_all(leases).expect("they are held");
        };
        serve(|| (), claim);
    }),
    operation("lock_all of 3, and drop", |url| {
        let client = client(url);
        let locks = locks(&client, 3);
        serve(|| (), || drop(client.lock_all(&locks).expect("they are free")));
    }),
    operation("once: nothing to do", |url| {
        let client = client(url);
        // Longer than any test, and it ends at no midnight that is near.
        let job = client.once("a", Period::every(Duration::from_secs(86_400 * 365)));
        let job = job.expect("a name");
        let _ = job.run(|_guard| ()).expect("it runs once");
        let again = || {
            let outcome = job.run(|_guard| ()).expect("the server replies");
            assert!(matches!(outcome, RunOutcome::Skipped { .. }));
        };
        serve(|| (), again);
    }),
];

/// What [`OPERATIONS`] has as `mutex: lock and drop`.
pub(crate) const PLAIN: &str = "mutex: lock and drop";

/// The same with one more of what a column counts.
pub(crate) static PLANTED: [(usize, Operation); 4] = [
    (
        0,
        operation("planted: one more command", |url| {
            let opened = redis::Client::open(url).and_then(|client| client.get_connection());
            let mut connection = opened.expect("a connection");
            lock_and(url, || redis::cmd("PING").exec(&mut connection).expect("a reply"));
        }),
    ),
    (2, operation("planted: one more system call", |url| lock_and(url, || _ = getppid()))),
    (
        3,
        operation("planted: one more wake-up", |url| {
            let other = Helper::<()>::new();
            lock_and(url, || other.order(|()| ()));
        }),
    ),
    (
        4,
        operation("planted: one more allocation", |url| {
            lock_and(url, || drop(black_box(Box::new(0))))
        }),
    ),
];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(PLANTED.iter().map(|(_, operation)| operation))
}

fn lock_and(url: &str, mut more: impl FnMut()) {
    let client = client(url);
    let lock = client.mutex("a").expect("a name");
    let operation = || {
        drop(lock.lock().expect("it is free"));
        more();
    };
    serve(|| (), operation);
}

fn client(url: &str) -> LockClient {
    open(url, |builder| builder)
}

fn open(url: &str, set: impl FnOnce(LockClientBuilder) -> LockClientBuilder) -> LockClient {
    let builder = LockClient::builder(url).connect_now(true).command_timeout(PATIENCE);
    set(builder).build().expect("the server takes clients")
}

fn locks(client: &LockClient, count: usize) -> Vec<Mutex> {
    (0..count).map(|number| client.mutex(number.to_string()).expect("a name")).collect()
}

/// Leases of one moment, which the worker renews together.
fn renewal(url: &str, count: usize) {
    // The worker would come to them for their announcement, too.
    let client = open(url, |builder| builder.announce(false));
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let lock = |number: usize| client.mutex_with(number.to_string(), options).expect("a name");
    let locks: Vec<Mutex> = (0..count).map(lock).collect();
    let mut guard = None::<MultiGuard>;
    let prepare = || {
        // A machine that stood still has lost them, or gets them when they are over.
        while !guard.as_ref().is_some_and(MultiGuard::is_valid) {
            drop(guard.take());
            guard = client.lock_all(&locks).inspect_err(|error| tell(&error.to_string())).ok();
        }
    };
    serve(prepare, || ());
}

/// A thread of one client waits, and one of another releases, which may know of the former. Counted with it is that the
/// former then waits for its next order, by one system call.
fn pass(from: &LockClient, to: &LockClient, is_known: bool) {
    let [lock, same] = [from, to].map(|client| client.mutex("a").expect("a name"));
    let waiter = Helper::<Option<Guard>>::new();
    let held = RefCell::new(None);
    let prepare = || {
        waiter.order(|guard| drop(guard.take()));
        waiter.join();
        let holder = lock.lock().expect("nobody waits");
        // From the first question on its client listens for those who wait.
        let knows = is_known.then(|| holder.is_contended());
        let same = same.clone();
        waiter.order(move |guard| *guard = Some(same.lock().expect("it is released")));
        while knows.is_some() && !holder.is_contended() {
            thread::sleep(PAUSE);
        }
        *held.borrow_mut() = Some(holder);
    };
    serve(prepare, || drop(held.borrow_mut().take()));
}

type Order<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread that does what it is told, in order. It has something of its own.
struct Helper<S> {
    orders: Sender<Order<S>>,
    dones: Receiver<()>,
    /// How many orders may not be done yet.
    open: Cell<usize>,
}

impl<S: Default + 'static> Helper<S> {
    fn new() -> Helper<S> {
        let (orders, received) = mpsc::channel::<Order<S>>();
        let (done, dones) = mpsc::channel();
        thread::spawn(move || {
            let mut state = S::default();
            for order in received {
                order(&mut state);
                done.send(()).expect("the operation lives");
            }
        });
        Helper { orders, dones, open: Cell::new(0) }
    }

    fn order(&self, order: impl FnOnce(&mut S) + Send + 'static) {
        self.orders.send(Box::new(order)).expect("the helper lives");
        self.open.set(self.open.get() + 1);
    }

    /// Waits until all orders are done.
    fn join(&self) {
        while self.open.get() > 0 {
            self.dones.recv_timeout(PATIENCE).expect("the helper does it");
            self.open.set(self.open.get() - 1);
        }
    }
}

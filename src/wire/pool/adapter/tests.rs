use std::thread;
use std::time::Instant;

use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Proxy, Server};

use super::*;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::time::{BootClock, Clock};
use crate::wire::connection::Session as _;
use crate::wire::endpoint;
use crate::wire::locator::FixedServer;
use crate::wire::manager::Timeouts;
use crate::wire::pool::Pool;

const LATE: Duration = Duration::from_millis(50);
/// No machine pauses for so long.
const LONG: Duration = Duration::from_secs(600);

/// The thread that makes connections is held up before each comes to the pool.
#[derive(Debug, Default)]
struct HeldUp(Arc<AtomicU64>);

impl r2d2::CustomizeConnection<Connection, RedisError> for HeldUp {
    fn on_acquire(&self, _: &mut Connection) -> Result<(), RedisError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        thread::sleep(LATE);
        Ok(())
    }
}

/// A clock that panics at one of its calls by other threads than the test's, counted from one.
#[derive(Debug)]
struct Panicking {
    test: thread::ThreadId,
    left: AtomicU64,
}

impl Clock for Panicking {
    fn now(&self) -> Moment {
        let other = thread::current().id() != self.test;
        assert!(!other || self.left.fetch_sub(1, Ordering::SeqCst) != 1, "a planted panic");
        BootClock.now()
    }
}

fn pool_of_one(server: &Server, clock: &Arc<dyn Clock>) -> Pool {
    let manager = Arc::new(Manager::new(
        Arc::new(FixedServer::new(endpoint::parse(&server.unix_url()).unwrap())),
        Arc::clone(clock),
        Timeouts::both(LONG),
    ));
    let settings = PoolSettings::default().of_one();
    Pool::new(&manager, &settings, connector(Threads::of_a_new_client()).unwrap())
}

#[test]
fn panic_in_connecting_is_an_error() {
    let server = Server::start().unwrap();
    // The first call asks whether to connect; connecting begins with the second.
    let clock = Panicking { test: thread::current().id(), left: AtomicU64::new(2) };
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let pool = pool_of_one(&server, &clock);
    let deadline = clock.now().after(LONG);
    let failure = pool.get(deadline).unwrap_err();
    assert!(failure.to_string().contains("panic"), "{failure}");
    drop(pool.get(deadline).unwrap());
}

/// It has waited for nothing, so that no server is to blame.
#[test]
fn caller_that_comes_after_its_deadline_reports_no_outage() {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let info = endpoint::parse("unix:///nowhere/redis.sock").unwrap();
    let source = Arc::new(FixedServer::new(info));
    let manager = Arc::new(Manager::new(source, Arc::clone(&clock), Timeouts::both(LONG)));
    let connector = connector(Threads::of_a_new_client()).unwrap();
    let pool = Pool::new(&manager, &PoolSettings::default().of_one(), connector);
    let failure = pool.get(clock.now()).unwrap_err();
    assert!(failure.is_held_up(), "{failure}");
    let text = crate::base::error::Error::from(failure).to_string();
    assert!(text.contains("held up"), "{text}");
}

/// Counts how often it is read.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Clock for Counting {
    fn now(&self) -> Moment {
        self.0.fetch_add(1, Ordering::SeqCst);
        BootClock.now()
    }
}

/// Several orders of a pool whose password is refused rest on the thread, one after the other, each for
/// as long as it may.
#[test]
fn order_is_not_delayed_by_those_of_a_refused_pool() {
    let server = Server::builder().tcp().start().unwrap();
    let mut command = redis::cmd("ACL");
    command.arg(&["SETUSER", "locks", "reset", "on", ">right", "~*", "&*", "+@all"]);
    command.exec(&mut server.connection()).unwrap();
    let connector = connector(Threads::of_a_new_client()).unwrap();
    let pool = |user: &str, clock: Arc<dyn Clock>, min_idle| {
        let info = endpoint::parse(&format!("redis://{user}@{}", server.addr())).unwrap();
        let timeouts = Timeouts::both(LONG);
        let source = Arc::new(FixedServer::new(info));
        let manager = Manager::new(source, clock, timeouts);
        let settings = PoolSettings { min_idle, ..PoolSettings::default() };
        Pool::new(&Arc::new(manager), &settings, connector.clone())
    };
    let counting = Arc::new(Counting::default());
    let refused = pool("locks:wrong", counting.clone(), 3);
    let is_refused = || refused.manager.attempts().counts().failed > 0;
    leasehold_support::until("it is refused", is_refused);
    let healthy = pool("locks:right", Arc::new(BootClock), 0);
    let (begin, reads) = (Instant::now(), counting.0.load(Ordering::SeqCst));
    drop(healthy.get(BootClock.now().after(LONG)).unwrap());
    let (took, spent) = (begin.elapsed(), begin.spent());
    assert!(spent < MAX_WAIT / 2, "{spent:?}");
    // The orders that are woken too early send no password, and each comes again after r2d2's pause.
    assert_eq!(server.error_count("WRONGPASS"), 1);
    let rounds = 2 + took.as_millis() / (RECONNECT_TIMEOUT / 2).as_millis();
    let reads = counting.0.load(Ordering::SeqCst) - reads;
    assert!(u128::from(reads) <= rounds * 3 * 2, "{reads} looks in {took:?}");
}

/// A caller that lost a connection waits for the attempt under way, which broke together with it.
#[test]
fn attempt_that_broke_with_other_connections_is_made_again() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    let held = proxy.add(Fault::request("TIME", Action::Hold));
    let manager = Arc::new(Manager::new(
        Arc::new(FixedServer::new(endpoint::parse(&proxy.url()).unwrap())),
        Arc::new(BootClock),
        Timeouts::both(LONG),
    ));
    let connector = connector(Threads::of_a_new_client()).unwrap();
    let pool = Pool::new(&manager, &PoolSettings::default().of_one(), connector);
    thread::scope(|scope| {
        let caller = scope.spawn(|| pool.get(BootClock.now().after(LONG)).map(drop));
        assert!(held.wait_fired(LONG));
        manager.outdate_all();
        proxy.cut();
        caller.join().unwrap().unwrap();
    });
    assert_eq!(manager.attempts().counts().failed, 0);
}

/// Who waited for one meanwhile has ordered none that r2d2 had no room for, so that there is
/// another at once when that one breaks.
#[test]
fn late_connection_does_not_prevent_another() {
    let server = Server::start().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let manager = Arc::new(Manager::new(
        Arc::new(FixedServer::new(endpoint::parse(&server.unix_url()).unwrap())),
        Arc::clone(&clock),
        Timeouts::both(LONG),
    ));
    let held_up = HeldUp::default();
    let made = Arc::clone(&held_up.0);
    let settings = PoolSettings::default().of_one();
    let connector = connector(Threads::of_a_new_client()).unwrap();
    let raw = RawPool::with(&manager, &settings, connector.clone(), Box::new(held_up));
    let mut pool = Pool::new(&manager, &settings, connector);
    pool.raw = raw;
    for count in 1..=3 {
        let begin = clock.now();
        pool.get(begin.after(LONG)).unwrap().poison();
        let took = clock.now().since(begin);
        assert!(took >= LATE, "{took:?}");
        assert_eq!(made.load(Ordering::SeqCst), count);
    }
}

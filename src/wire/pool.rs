//! The pool of connections, bounded in number and in time.

use std::io;
use std::panic::catch_unwind;
use std::time::Duration;

use redis::RedisError;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use crate::base::error::{Error, Result};
use crate::base::option::check_bounds;
use crate::base::sync::{Arc, Mutex};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::wire::connection::{Connection, Counter};
use crate::wire::failure::{Failure, Hindrance, Shortage};
use crate::wire::fault::{NO_THREAD, connecting};
use crate::wire::manager::{Attempts, Maker, Manager};
use crate::wire::retry::Bell;
pub(crate) use crate::wire::retry::Connector;

/// How often to look whether a connection was made.
const LOOK: Duration = Duration::from_millis(20);
/// The same where one may come to the pool at any moment.
const MOMENT: Duration = Duration::from_millis(1);
/// r2d2 tries again to connect after pauses of half of this.
const RECONNECT: Duration = Duration::from_millis(200);

/// A pool has room for all its connections from the start: for `u32::MAX` of them there is no memory.
const LARGEST: u32 = 65_536;

/// How many connections there are, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) max_size: u32,
    pub(crate) min_idle: u32,
    pub(crate) max_idle: Option<u32>,
    pub(crate) max_wait: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) test_on_borrow: bool,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            max_size: 10,
            min_idle: 0,
            max_idle: None,
            max_wait: Duration::from_secs(1),
            idle_timeout: Some(Duration::from_secs(600)),
            max_lifetime: Some(Duration::from_secs(1800)),
            test_on_borrow: false,
        }
    }
}

impl PoolSettings {
    /// The same for the one connection of a worker, which is made when first needed. Nobody else waits
    /// for it, and renewals find out themselves whether it lives.
    pub(crate) fn of_one(&self) -> PoolSettings {
        PoolSettings {
            max_size: 1,
            min_idle: 0,
            max_idle: None,
            max_wait: Duration::MAX,
            test_on_borrow: false,
            ..self.clone()
        }
    }

    /// Checks what r2d2 would not survive, and what makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        if self.max_size == 0 {
            return Err(Error::config("max_size", "0", "at least 1"));
        }
        if self.max_size > LARGEST {
            let allowed = format_args!("at most {LARGEST}");
            return Err(Error::config("max_size", self.max_size, allowed));
        }
        if self.min_idle > self.max_size {
            return Err(Error::config(
                "min_idle",
                self.min_idle,
                format_args!("at most max_size, which is {}", self.max_size),
            ));
        }
        if let Some(max_idle) = self.max_idle
            && !(self.min_idle..=self.max_size).contains(&max_idle)
        {
            return Err(Error::config(
                "max_idle",
                max_idle,
                format_args!("from min_idle to max_size, {} to {}", self.min_idle, self.max_size),
            ));
        }
        let spans = [
            ("max_wait", Some(self.max_wait)),
            ("idle_timeout", self.idle_timeout),
            ("max_lifetime", self.max_lifetime),
        ];
        for (field, span) in spans {
            if let Some(span) = span {
                check_timeout(field, span)?;
            }
        }
        Ok(())
    }
}

/// A time-out of zero would mean "none" to a socket and a panic to r2d2; one too long overflows.
pub(crate) fn check_timeout(field: &str, span: Duration) -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    check_bounds(field, span, LONGEST, "1ms to 365 days")
}

/// A new thread that makes connections. There is one for each client and server: were it shared, a server that does not answer
/// would keep it from all others.
pub(crate) fn connector(threads: Threads) -> Result<Connector, Failure> {
    let name = threads.name(Role::Connector);
    let connector = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern(&name);
    let connector = connector.on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled);
    // It panics where no thread can be started, which a guard's drop must not.
    catch_unwind(|| Connector::new(connector.build()))
        .map_err(|_| Failure::NotSent(Hindrance::Connect(io::Error::other(NO_THREAD).into())))
}

/// r2d2's pool of our connections.
pub(crate) struct Pool {
    inner: r2d2::Pool<Maker>,
    bell: Arc<Bell>,
    manager: Arc<Manager>,
    counter: Arc<Counter>,
    clock: Arc<dyn Clock>,
    max_wait: Duration,
    max_idle: Option<u32>,
    /// When a connection was last ordered, and what had become of others by then.
    ordered: Mutex<Option<(Attempts, Moment)>>,
}

/// A connection borrowed from the pool; dropping it gives it back, or closes it if it is spoilt.
pub(crate) type Borrowed = r2d2::PooledConnection<Maker>;

impl Pool {
    /// Makes a pool, which connects when a connection is first needed.
    pub(crate) fn new(
        manager: &Arc<Manager>,
        clock: Arc<dyn Clock>,
        settings: &PoolSettings,
        connector: Connector,
    ) -> Pool {
        Pool::with(manager, clock, settings, connector, Box::new(r2d2::NopConnectionCustomizer))
    }

    fn with(
        manager: &Arc<Manager>,
        clock: Arc<dyn Clock>,
        settings: &PoolSettings,
        connector: Connector,
        customizer: Box<dyn r2d2::CustomizeConnection<Connection, RedisError>>,
    ) -> Pool {
        let counter = Arc::new(Counter);
        let inner = r2d2::Pool::builder()
            .max_size(settings.max_size)
            .min_idle(Some(settings.min_idle))
            .idle_timeout(settings.idle_timeout)
            .max_lifetime(settings.max_lifetime)
            .test_on_check_out(settings.test_on_borrow)
            .connection_timeout(RECONNECT)
            .thread_pool(connector.thread)
            .error_handler(Box::new(Quiet))
            .connection_customizer(customizer)
            .build_unchecked(Maker {
                manager: Arc::clone(manager),
                counter: Arc::clone(&counter),
                bell: Arc::clone(&connector.bell),
            });
        Pool {
            inner,
            bell: connector.bell,
            manager: Arc::clone(manager),
            counter,
            clock,
            max_wait: settings.max_wait,
            max_idle: settings.max_idle,
            ordered: Mutex::new(None),
        }
    }

    /// Borrows a connection if one is there; if not, has one more made, without waiting for it.
    pub(crate) fn ready_or_order(&self) -> Option<Borrowed> {
        while let Some(connection) = self.inner.try_get() {
            if self.manager.is_usable(&connection) {
                return Some(connection);
            }
        }
        self.order().filter(|connection| self.manager.is_usable(connection))
    }

    /// A caller wants a connection, and there is none for it: if the last could not be made, it is tried
    /// again now.
    pub(crate) fn ask(&self) {
        if self.manager.ask() {
            self.bell.ring();
        }
    }

    /// Whether there is no connection at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.state().connections == 0
    }

    /// Whether all connections that there may be are there.
    fn is_full(&self) -> bool {
        self.inner.state().connections >= self.inner.max_size()
    }

    /// Whether there is one more than these, which is about to come to the pool. r2d2 counts it only
    /// then, and tells only those that wait for r2d2.
    fn is_one_coming(&self, connections: u32) -> bool {
        Arc::weak_count(&self.counter) > connections as usize && !mutated!("ordered-into-the-void")
    }

    /// Until when a caller that came at `start` waits for a connection, as things stand: for one that is being
    /// made, as long as that may take; for one that others have, as long as the user said. The time in which
    /// connections were made does not count towards that.
    pub(crate) fn limit(&self, start: Moment) -> Moment {
        let attempts = self.manager.attempts();
        if self.is_full() || attempts.is_failing && !self.is_empty() {
            start.max(attempts.made_at).after(self.max_wait)
        } else {
            start.after(self.manager.longest_attempt())
        }
    }

    /// Borrows a connection. Waits until `deadline`, and no longer than [`limit`](Self::limit) says.
    pub(crate) fn get(&self, deadline: Moment) -> Result<Borrowed, Failure> {
        self.get_since(self.clock.now(), deadline)
    }

    /// The same for a caller that has waited since then.
    fn get_since(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        if let Some(connection) = self.inner.try_get()
            && !self.manager.is_outdated(&connection)
        {
            return Ok(connection);
        }
        self.get_slowly(start, deadline)
    }

    #[cold]
    fn get_slowly(&self, start: Moment, deadline: Moment) -> Result<Borrowed, Failure> {
        let before = self.manager.attempts();
        self.ask();
        let mut seen = before;
        loop {
            let limit = deadline.min(self.limit(start));
            let left = limit.since(self.clock.now());
            if left.is_zero() {
                return Err(Failure::NotSent(self.hindrance(self.clock.now().since(start))));
            }
            let found = if self.is_full() {
                // It has no room to order another.
                self.inner.get_timeout(left.min(LOOK)).ok()
            } else {
                self.order().or_else(|| {
                    let connections = self.inner.state().connections;
                    let soon = connections > 0 || self.is_one_coming(connections);
                    let look = if soon { MOMENT } else { LOOK };
                    self.manager.wait_for_attempt(seen, left.min(look));
                    self.inner.try_get()
                })
            };
            if let Some(connection) = found
                && self.manager.is_usable(&connection)
            {
                return Ok(connection);
            }
            let now = self.manager.attempts();
            // r2d2 goes on trying. But where there is no other to come free, that is not waited for.
            if now.failed != before.failed
                && self.is_empty()
                && let Some(error) = self.manager.trouble()
            {
                return Err(Failure::NotSent(Hindrance::Connect(error)));
            }
            seen = now;
        }
    }

    /// Whether one more connection may be ordered. r2d2 repeats an order that failed until it succeeds,
    /// whoever has given up meanwhile, so the many who ask while none can be made leave one order. And
    /// one thread makes them all: a second order before the first is done brings nothing sooner.
    ///
    /// Nor is one ordered while another is about to come: for that r2d2 may have no room, and says
    /// nothing, so that an order would be waited for that there is not.
    fn may_order(&self) -> bool {
        // In this order: what was made by then and is not counted here is about to come.
        let connections = self.inner.state().connections;
        let (attempts, now) = (self.manager.attempts(), self.clock.now());
        let is_full = connections >= self.inner.max_size();
        if attempts.is_failing || is_full || self.is_one_coming(connections) {
            return false;
        }
        let mut ordered = self.ordered.lock();
        let span = self.manager.longest_attempt();
        if ordered.is_some_and(|(before, at)| before == attempts && now.since(at) < span) {
            return false;
        }
        *ordered = Some((attempts, now));
        true
    }

    /// Has one more connection made, if that may be, without waiting for it. Returns one that was there.
    ///
    /// The thread that connects may rest with an order of another pool, whose last attempt failed, while
    /// this pool's order is behind it in the queue. So each look of a caller that waits rings. One ring for
    /// each order would not do: the next order in the queue may rest too, and a ring before a rest begins
    /// does not end it. An order that is woken too early makes no attempt, and comes again after a pause of
    /// r2d2's.
    fn order(&self) -> Option<Borrowed> {
        if self.may_order() {
            let found = self.inner.get_timeout(Duration::ZERO).ok();
            if found.is_some() {
                // So none was ordered.
                *self.ordered.lock() = None;
                return found;
            }
        }
        if !mutated!("order-waits-behind-a-refused-one") {
            self.bell.ring();
        }
        None
    }

    /// Why no connection came free in this time.
    pub(crate) fn hindrance(&self, waited: Duration) -> Hindrance {
        if !self.is_full() {
            // One is being made, and takes longer than the caller has.
            let connecting = || connecting(&self.manager.address(), waited);
            return Hindrance::Connect(self.manager.trouble().unwrap_or_else(connecting));
        }
        let pool = Some((self.inner.max_size(), self.manager.address()));
        let shortage = Shortage { waited, pool };
        // Of a silent server all connections are in use, and no larger pool would help. Replies that came
        // when the wait had just begun say nothing of the rest of it.
        if self.manager.silence() > waited / 2 && !mutated!("silent-server-as-a-small-pool") {
            Hindrance::Silent(shortage)
        } else {
            Hindrance::Exhausted(shortage)
        }
    }

    /// Runs one exchange on a borrowed connection, and spoils that where the exchange did.
    pub(crate) fn exchange<T>(
        &self,
        deadline: Moment,
        exchange: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.exchange_since(self.clock.now(), deadline, exchange)
    }

    /// The same for a caller that has waited for a connection since then.
    pub(crate) fn exchange_since<T>(
        &self,
        start: Moment,
        deadline: Moment,
        exchange: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut connection = self.get_since(start, deadline)?;
        let outcome = exchange(&mut connection);
        if outcome.as_ref().is_err_and(Failure::is_disconnect) {
            self.manager.outdate(&connection);
        }
        self.spoil_surplus(&mut connection);
        outcome
    }

    fn spoil_surplus(&self, connection: &mut Connection) {
        if self.max_idle.is_some_and(|max_idle| self.inner.state().idle_connections >= max_idle) {
            connection.poison();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("state", &self.inner.state()).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The thread may wait with r2d2's half of the pool in its hands, and the connections in it.
        self.bell.ring();
    }
}

/// Failures to connect reach the caller as errors, and each is logged where it happens.
#[derive(Debug)]
struct Quiet;

impl r2d2::HandleError<RedisError> for Quiet {
    fn handle_error(&self, _: RedisError) {}
}

#[cfg(test)]
mod tests {
    use std::thread;

    use leasehold_support::Server;

    use super::*;
    use crate::base::sync::{AtomicU64, Ordering};
    use crate::base::time::BootClock;
    use crate::wire::endpoint;
    use crate::wire::manager::{LONGEST_WAIT, Source, Timeouts};

    const LATE: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

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
            Source::Fixed(endpoint::parse(&server.unix_url()).unwrap()),
            Arc::clone(clock),
            Arc::default(),
            Timeouts::both(LONG),
        ));
        let settings = PoolSettings::default().of_one();
        Pool::new(
            &manager,
            Arc::clone(clock),
            &settings,
            connector(Threads::of_a_new_client()).unwrap(),
        )
    }

    #[test]
    fn panic_in_connecting_is_an_error() {
        let server = Server::start().unwrap();
        // The first call asks whether to connect; connecting begins with the second.
        let clock = Panicking { test: thread::current().id(), left: AtomicU64::new(2) };
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let pool = pool_of_one(&server, &clock);
        let begin = clock.now();
        let failure = pool.get(begin.after(LONG)).unwrap_err();
        assert!(failure.to_string().contains("panic"), "{failure}");
        drop(pool.get(begin.after(LONG)).unwrap());
        assert!(clock.now().since(begin) < LONG / 2);
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
    fn order_does_not_wait_behind_those_of_a_refused_pool() {
        let server = Server::builder().tcp().start().unwrap();
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "locks", "reset", "on", ">right", "~*", "&*", "+@all"]);
        command.exec(&mut server.connection()).unwrap();
        let connector = connector(Threads::of_a_new_client()).unwrap();
        let pool = |user: &str, clock: Arc<dyn Clock>, min_idle| {
            let info = endpoint::parse(&format!("redis://{user}@{}", server.addr())).unwrap();
            let timeouts = Timeouts::both(LONG);
            let source = Source::Fixed(info);
            let manager = Manager::new(source, Arc::clone(&clock), Arc::default(), timeouts);
            let settings = PoolSettings { min_idle, ..PoolSettings::default() };
            Pool::new(&Arc::new(manager), clock, &settings, connector.clone())
        };
        let counting = Arc::new(Counting::default());
        let refused = pool("locks:wrong", counting.clone(), 3);
        let begin = BootClock.now();
        while refused.manager.attempts().failed == 0 {
            assert!(BootClock.now().since(begin) < LONG, "it is not refused");
            thread::sleep(MOMENT);
        }
        let healthy = pool("locks:right", Arc::new(BootClock), 0);
        let (begin, reads) = (BootClock.now(), counting.0.load(Ordering::SeqCst));
        drop(healthy.get(begin.after(LONG)).unwrap());
        let took = BootClock.now().since(begin);
        assert!(took < LONGEST_WAIT / 2, "{took:?}");
        // The orders that are woken too early send no password, and each comes again after r2d2's pause.
        assert_eq!(server.error_count("WRONGPASS"), 1);
        let rounds = 2 + took.as_millis() / (RECONNECT / 2).as_millis();
        let reads = counting.0.load(Ordering::SeqCst) - reads;
        assert!(u128::from(reads) <= rounds * 3 * 2, "{reads} looks in {took:?}");
    }

    /// Who waited for one meanwhile has ordered none that r2d2 had no room for, so that there is
    /// another at once when that one breaks.
    #[test]
    fn a_connection_that_is_late_to_the_pool_keeps_no_other_from_being_made() {
        let server = Server::start().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let manager = Arc::new(Manager::new(
            Source::Fixed(endpoint::parse(&server.unix_url()).unwrap()),
            Arc::clone(&clock),
            Arc::default(),
            Timeouts::both(LONG),
        ));
        let held_up = HeldUp::default();
        let made = Arc::clone(&held_up.0);
        let settings = PoolSettings::default().of_one();
        let connector = connector(Threads::of_a_new_client()).unwrap();
        let pool =
            Pool::with(&manager, Arc::clone(&clock), &settings, connector, Box::new(held_up));
        for count in 1..=3 {
            let begin = clock.now();
            pool.get(begin.after(LONG)).unwrap().poison();
            let took = clock.now().since(begin);
            assert!((LATE..LONG / 4).contains(&took), "{took:?}");
            assert_eq!(made.load(Ordering::SeqCst), count);
        }
    }
}

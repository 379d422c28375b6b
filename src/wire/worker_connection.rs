//! The connection of the worker to one server.
//!
//! r2d2 closes an old connection, and opens another when one is needed. If none can be opened at that
//! moment, the worker has none, although the old one worked. So the worker's connection is replaced in
//! the opposite order:
//!
//! | the connection is | there are leases to renew | then |
//! | --- | --- | --- |
//! | missing | yes | one is opened in the background, before the renewal is due |
//! | older than `max_lifetime`, or idle for `idle_timeout` | yes | a successor is ordered, and the old one stays until the successor is open |
//! | the same | no | it is closed |
//!
//! There are two pools of one connection each: one for the connection, and one for its successor.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Moment;
use crate::wire::connect_attempts::ConnectCounts;
use crate::wire::connection::Session as _;
use crate::wire::failure::NotSentReason;
use crate::wire::manager::Manager;
use crate::wire::pool::{Borrowed, ConnectThread, Pool, PoolSettings};

/// How often to check whether the connection is old; r2d2 checks those of callers as often.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long the connection is kept after the moment at which the worker may need it: the worker may be
/// late, and says only then how long it needs the connection from there on.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The worker's connection, if there is one, and its successor while both exist.
pub(crate) struct WorkerConnection {
    /// The worker does not connect itself: the look-up of a name may take longer than a lease whose loss
    /// the worker must report in time.
    pools: [Pool; 2],
    manager: Arc<Manager>,
    idle_timeout: Option<Duration>,
    max_lifetime: Option<Duration>,
    /// Until when the worker needs a connection, in nanoseconds.
    needed_until: AtomicU64,
}

impl WorkerConnection {
    pub(crate) fn new(
        manager: &Arc<Manager>,
        settings: &PoolSettings,
        connector: &ConnectThread,
    ) -> Arc<WorkerConnection> {
        let PoolSettings { idle_timeout, max_lifetime, .. } = *settings;
        let pool = || Pool::new(manager, &settings.of_one(), connector.clone());
        let this = Arc::new(WorkerConnection {
            pools: [pool(), pool()],
            manager: Arc::clone(manager),
            idle_timeout,
            max_lifetime,
            needed_until: AtomicU64::new(0),
        });
        if idle_timeout.is_some() || max_lifetime.is_some() {
            let weak = Arc::downgrade(&this);
            connector.repeat(LOOK_EVERY, move || {
                weak.upgrade().map(|this| this.replace_if_old()).is_some()
            });
        }
        this
    }

    pub(super) fn now(&self) -> Moment {
        self.manager.now()
    }

    /// The attempts to connect so far, for callers too.
    pub(super) fn counts(&self) -> ConnectCounts {
        self.manager.attempts().counts()
    }

    /// Why no connection can be made at the moment, if the last attempt failed.
    pub(super) fn last_error(&self) -> Option<RedisError> {
        self.manager.attempts().last_error()
    }

    /// Whether there is no connection.
    pub(super) fn is_empty(&self) -> bool {
        self.pools.iter().all(Pool::is_empty)
    }

    /// As [`Pool::ask`].
    pub(super) fn ask(&self) {
        self.pools[0].ask();
    }

    /// As [`Pool::limit`].
    pub(super) fn limit(&self, start: Moment) -> Moment {
        self.pools[0].limit(start)
    }

    /// As [`Pool::shortage`].
    pub(super) fn shortage(&self, waited: Duration) -> NotSentReason {
        self.pools[0].shortage(waited)
    }

    /// Borrows the connection. If there is a successor, closes the old one.
    fn ready(&self) -> Option<Borrowed> {
        match self.pools.each_ref().map(Pool::lend) {
            [Some(one), Some(other)] => {
                let is_newer = one.times().0 > other.times().0;
                let (newer, mut older) = if is_newer { (one, other) } else { (other, one) };
                older.poison();
                Some(newer)
            }
            [one, other] => one.or(other),
        }
    }

    /// Borrows the connection. Orders one if there is none, without waiting for it.
    pub(super) fn ready_or_request(&self) -> Option<Borrowed> {
        self.ready().or_else(|| self.order(&self.pools[0]))
    }

    /// Orders a connection. Returns it if it is there already.
    fn order(&self, pool: &Pool) -> Option<Borrowed> {
        // Not `ask`: each turn of the worker would send a password that the server has refused, although the
        // worker can do without. `ask` is for callers that have no other connection.
        if self.manager.attempts().ask_seldom(self.manager.now()) {
            pool.wake();
        }
        pool.request()
    }

    /// Keeps the connection until this moment. Returns whether there is one.
    pub(crate) fn keep(&self, until: Moment) -> bool {
        // Relaxed: a hint, and no other memory is published through it.
        self.needed_until.store(until.after(KEPT_FOR).as_nanos(), Ordering::Relaxed);
        self.ready().is_some()
    }

    /// Orders the connection if there is none, without waiting for it.
    pub(crate) fn connect(&self) {
        drop(self.ready_or_request());
    }

    /// Orders a successor if the connection is old, or closes it if nobody needs it.
    fn replace_if_old(&self) {
        let now = self.manager.now();
        // If the worker is using it just now, the next check finds it.
        let Some(mut connection) = self.ready() else { return };
        let (made, replied) = connection.times();
        let is_over =
            |limit: Option<Duration>, since| limit.is_some_and(|it| now.since(since) >= it);
        if !is_over(self.max_lifetime, made) && !is_over(self.idle_timeout, replied) {
            return;
        }
        if now.as_nanos() >= self.needed_until.load(Ordering::Relaxed) {
            connection.poison();
            return;
        }
        // The old connection is borrowed here, so the empty pool is that of the successor.
        if let Some(pool) = self.pools.iter().find(|pool| pool.is_empty()) {
            drop(self.order(pool));
        }
    }
}

impl fmt::Debug for WorkerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerConnection").field("pools", &self.pools).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::{Proxy, Server};

    use super::*;
    use crate::base::testing::manual_clock::ManualClock;
    use crate::base::thread::Threads;
    use crate::base::time::Clock;
    use crate::wire::endpoint;
    use crate::wire::locator::FixedServer;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::connector;

    const HOUR: Duration = Duration::from_secs(3_600);

    struct Stage {
        server: Server,
        proxy: Proxy,
        clock: Arc<ManualClock>,
        worker: Arc<WorkerConnection>,
    }

    impl Stage {
        /// The worker is connected, and its connection is old.
        fn new(settings: PoolSettings) -> Stage {
            let server = Server::start().unwrap();
            let proxy = Proxy::start(&server).unwrap();
            let clock = Arc::new(ManualClock::new(false));
            let source = FixedServer::new(endpoint::parse(&proxy.url()).unwrap());
            let shared = Arc::<ManualClock>::clone(&clock) as Arc<dyn Clock>;
            let manager = Manager::new(Arc::new(source), shared, Timeouts::both(HOUR));
            let connector = connector(Threads::of_a_new_client()).unwrap();
            let worker = WorkerConnection::new(&Arc::new(manager), &settings, &connector);
            let stage = Stage { server, proxy, clock, worker };
            stage.until(|stage| stage.worker.ready_or_request().is_some());
            stage.pass();
            stage
        }

        fn pass(&self) {
            self.clock.put_forward(self.clock.now().after(HOUR));
        }

        fn until(&self, condition: impl Fn(&Stage) -> bool) {
            leasehold_support::until("the worker's connection", || condition(self));
        }

        fn made_at(&self) -> Option<Moment> {
            self.worker.ready().map(|connection| connection.times().0)
        }
    }

    fn limits() -> [PoolSettings; 2] {
        let none = PoolSettings { idle_timeout: None, max_lifetime: None, ..Default::default() };
        let limit = Some(Duration::from_secs(1));
        [
            PoolSettings { max_lifetime: limit, ..none.clone() },
            PoolSettings { idle_timeout: limit, ..none },
        ]
    }

    #[test]
    fn old_connection_stays_until_its_successor_is_there() {
        for settings in limits() {
            let stage = Stage::new(settings);
            let old = stage.made_at();
            assert!(stage.worker.keep(Moment::FAR));
            stage.proxy.refuse();
            for _ in 0..3 {
                let failed = stage.worker.counts().failed;
                stage.worker.replace_if_old();
                assert_eq!(stage.made_at(), old, "closed before there was another");
                stage.pass();
                // The order is repeated meanwhile.
                stage.worker.ask();
                stage.until(|stage| stage.worker.counts().failed > failed);
                assert_eq!(stage.made_at(), old, "closed before there was another");
            }
            stage.proxy.heal();
            stage.pass();
            stage.worker.ask();
            stage.until(|stage| stage.made_at().is_some_and(|made| Some(made) > old));
            // The old one is closed with that.
            stage.until(|stage| stage.proxy.connections() == 1);
            assert_eq!(stage.proxy.accepted(), 2);
        }
    }

    /// A time-out of the server or of a balancer: the renewal would fail, and warn, each time.
    #[test]
    fn connection_that_died_while_it_was_idle_is_not_used() {
        // Without a limit, or it is closed as an old one meanwhile.
        let none = PoolSettings { idle_timeout: None, max_lifetime: None, ..Default::default() };
        let stage = Stage::new(none);
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .exec(&mut stage.server.connection())
            .unwrap();
        stage.until(|stage| stage.made_at().is_none());
        stage.until(|stage| stage.worker.ready_or_request().is_some());
    }

    #[test]
    fn old_connection_that_nobody_needs_is_closed() {
        for settings in limits() {
            let stage = Stage::new(settings);
            stage.worker.keep(stage.clock.now().before(HOUR));
            stage.worker.replace_if_old();
            stage.until(|stage| stage.proxy.connections() == 0);
            assert!(stage.worker.is_empty());
            assert_eq!(stage.proxy.accepted(), 1);
        }
    }
}

//! Everything that r2d2 and its thread pool make necessary. No other file uses them.
//!
//! | r2d2 | therefore |
//! | --- | --- |
//! | starts three threads for each pool | all pools of a server share one, the [`ConnectThread`] |
//! | repeats a failed order until it succeeds, ten times a second, even if nobody needs the connection any longer | the thread waits in `connect` until the next attempt may begin, and a channel wakes it |
//! | orders a connection only while a caller waits in it, and does not report the outcome | an order is a wait of no time; callers wait for the end of the next [attempt](ConnectAttempts) |
//! | counts a connection only once it is in the pool | each connection has a reference to its pool while it lives |
//! | never makes another connection if the thread panics | [`guarded`] catches panics |
//! | panics if it cannot start its thread | that becomes an error |
//!
//! No order is given twice. Many callers that ask while no connection can be made leave one order.
//! And because one thread makes all connections, a second order before the end of the first would
//! bring nothing sooner.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::time::Duration;

use redis::RedisError;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::setting::PoolSettings;
use crate::base::logging::Hurry;
use crate::base::panic::catch_panic;
use crate::base::sync::channel::{self, Receiver, Sender};
use crate::base::sync::contended::Mutex;
use crate::base::sync::{Arc, thread_local};
use crate::base::thread::{Role, Threads};
use crate::base::time::Moment;
use crate::wire::connect_attempts::{ConnectAttempts, ConnectCounts};
use crate::wire::connection::Connection;
use crate::wire::error_context::{NO_THREAD, is_closed};
use crate::wire::failure::{self, Failure};
use crate::wire::manager::Manager;

/// How often to look for a connection.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same if one may get into the pool at any moment.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long the worker waits at a time for a connection of callers, before it looks for its own again.
const LENT_WAIT: Duration = Duration::from_millis(5);
/// r2d2 repeats a failed order after half of this.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// The longest wait of the connecting thread: it also closes idle connections for r2d2.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The thread that makes the connections of all pools to one server.
#[derive(Clone)]
pub(crate) struct ConnectThread {
    thread: Arc<ScheduledThreadPool>,
    /// Wakes the thread while it waits for its next attempt. All pools share the thread, so any of
    /// them may need to wake it.
    wake_sender: Sender<()>,
    wake_receiver: Arc<Receiver<()>>,
}

/// Starts a thread that makes connections. Each client has one for each server.
pub(crate) fn connector(threads: Threads) -> Result<ConnectThread, Failure> {
    // Not one for all servers: connecting blocks, so a silent server of a quorum or a cluster would
    // keep the client from all the others.
    let name = threads.name(Role::Connector);
    let thread = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern(&name);
    let thread = thread.on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled);
    // `build` panics if no thread can be started. A guard's drop may be the first to need this
    // thread, and a panic during unwinding aborts the process.
    let thread = catch_panic("the start of a thread", || thread.build());
    // Room for one: two wake-ups before the thread looks are the same as one.
    let (wake_sender, wake_receiver) = channel::bounded(1);
    thread
        .map(|thread| ConnectThread {
            thread: Arc::new(thread),
            wake_sender,
            wake_receiver: Arc::new(wake_receiver),
        })
        .ok_or_else(|| Failure::connect(io::Error::other(NO_THREAD).into()))
}

impl ConnectThread {
    /// Has the thread do this again and again until it returns `false`, each time after a pause.
    pub(crate) fn repeat(&self, pause: Duration, mut job: impl FnMut() -> bool + Send + 'static) {
        self.thread.execute_with_dynamic_delay(pause, move || {
            let _hurry = Hurry::begin();
            // A panic would end the thread's job, and the next one is not to blame for it.
            catch_panic("the care for the worker's connections", &mut job)
                .unwrap_or(true)
                .then_some(pause)
        });
    }
}

/// A connection borrowed from the pool. Dropping it returns it, or closes it if it may not be used
/// again.
pub(crate) type Borrowed = r2d2::PooledConnection<PoolManager>;

/// r2d2's pool of our connections.
pub(super) struct RawPool {
    inner: r2d2::Pool<PoolManager>,
    wake_sender: Sender<()>,
    manager: Arc<Manager>,
    /// Each connection of the pool has a weak reference to it, so its count is the number of live
    /// connections.
    alive: Arc<()>,
    /// When a connection was last ordered, and the attempts up to then.
    requested: Mutex<Option<(ConnectCounts, Moment)>>,
}

impl RawPool {
    pub(super) fn new(
        manager: &Arc<Manager>,
        settings: &PoolSettings,
        connector: ConnectThread,
    ) -> RawPool {
        RawPool::with(manager, settings, connector, Box::new(r2d2::NopConnectionCustomizer))
    }

    fn with(
        manager: &Arc<Manager>,
        settings: &PoolSettings,
        ConnectThread { thread, wake_sender, wake_receiver }: ConnectThread,
        customizer: Box<dyn r2d2::CustomizeConnection<Connection, RedisError>>,
    ) -> RawPool {
        let (manager, alive) = (Arc::clone(manager), Arc::new(()));
        let maker =
            PoolManager { manager: Arc::clone(&manager), alive: Arc::clone(&alive), wake_receiver };
        let inner = r2d2::Pool::builder()
            .max_size(settings.max_size)
            // Always set: without it r2d2 opens `max_size` connections at once.
            .min_idle(Some(settings.min_idle))
            .idle_timeout(settings.idle_timeout)
            .max_lifetime(settings.max_lifetime)
            .test_on_check_out(settings.test_on_borrow)
            // r2d2 uses this as a caller's wait, too, but all waits here have a time of their own.
            .connection_timeout(RECONNECT_TIMEOUT)
            .thread_pool(thread)
            // The default logs each failed attempt as an error. `connect` below logs it at debug
            // level, since callers get the error.
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .connection_customizer(customizer)
            // `build` would wait for connections, and fail while Redis is down.
            .build_unchecked(maker);
        RawPool { inner, wake_sender, manager, alive, requested: Mutex::new(None) }
    }

    /// Whether there is no connection at all.
    pub(super) fn is_empty(&self) -> bool {
        self.inner.state().connections == 0
    }

    /// Whether there are as many connections as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.inner.state().connections >= self.max_size()
    }

    pub(super) fn max_size(&self) -> u32 {
        self.inner.max_size()
    }

    /// How many connections are idle.
    pub(super) fn idle(&self) -> u32 {
        self.inner.state().idle_connections
    }

    /// A connection that is there.
    pub(super) fn try_get(&self) -> Option<Borrowed> {
        self.inner.try_get()
    }

    /// Makes the thread look again whether it may make an attempt.
    pub(super) fn wake(&self) {
        // If it is full, the thread is about to wake already.
        let _ = self.wake_sender.try_send(());
    }

    /// Waits for a short while: for a used connection if no more may be made, otherwise for the end
    /// of an attempt that is not among those `seen`.
    pub(super) fn wait(&self, seen: ConnectCounts, most: Duration) -> Option<Borrowed> {
        if self.is_full() {
            return self.inner.get_timeout(most.min(POLL_INTERVAL)).ok();
        }
        // Not a wait in r2d2: that returns nothing when an attempt fails, and a caller of a dead
        // server would wait its whole time. The price is the polling: a connection that another
        // caller returns wakes only those that wait in r2d2.
        self.request_connection().or_else(|| {
            let connections = self.inner.state().connections;
            let soon = connections > 0 || self.is_connection_pending(connections);
            self.attempts()
                .wait(seen, most.min(if soon { SHORT_POLL_INTERVAL } else { POLL_INTERVAL }));
            self.inner.try_get()
        })
    }

    /// Waits for a short while for a connection that another thread returns, or for the end of an
    /// attempt that is not among those `seen`. Orders none.
    pub(super) fn wait_returned(&self, seen: ConnectCounts, most: Duration) -> Option<Borrowed> {
        // The wait is in r2d2, where callers wait too: a thread that polls a busy pool would always come too late.
        // It is only for a full pool, because r2d2 orders a connection for a caller that waits.
        if self.is_full() {
            return self.inner.get_timeout(most.min(LENT_WAIT)).ok();
        }
        self.attempts().wait(seen, most.min(SHORT_POLL_INTERVAL));
        self.inner.try_get()
    }

    /// Orders one more connection, if there may be one, without waiting for it. Returns an idle one
    /// if there is one.
    ///
    /// The thread may be waiting with the order of another pool, whose last attempt failed, while
    /// this pool's order is next in the queue. So each waiting caller wakes the thread whenever it
    /// looks. One wake-up for each order would not do: the next order in the queue may wait too,
    /// and a wake-up before a wait begins does not end it. An order that is woken too early makes
    /// no attempt, and r2d2 repeats it after a pause.
    pub(super) fn request_connection(&self) -> Option<Borrowed> {
        if self.may_request() {
            // Not `try_get`, which never orders.
            let found = self.inner.get_timeout(Duration::ZERO).ok();
            if found.is_some() {
                // There was an idle one, so r2d2 has ordered none, and the next caller may order.
                *self.requested.lock() = None;
                return found;
            }
        }
        self.wake();
        None
    }

    /// Whether one more connection may be ordered. While another is about to get into the pool,
    /// r2d2 may have no room for the order and drops it silently: the caller would wait for an
    /// attempt that never begins.
    fn may_request(&self) -> bool {
        // r2d2's count first. A connection that gets into the pool between the two readings then
        // looks as if it were still pending, and the caller looks again. In the other order it
        // could be in neither number, and an order would be noted that r2d2 drops.
        let connections = self.inner.state().connections;
        let (attempts, now) = (self.attempts().counts(), self.manager.now());
        let is_full = connections >= self.max_size();
        if attempts.is_failing || is_full || self.is_connection_pending(connections) {
            return false;
        }

        let mut requested = self.requested.lock();
        let span = self.manager.longest_attempt();
        // One order until its attempt has ended, or has had its time: a lost order must not block
        // all later ones.
        if requested.is_some_and(|(before, at)| before == attempts && now.since(at) < span) {
            return false;
        }
        *requested = Some((attempts, now));
        true
    }

    /// Whether there are more live connections than these in r2d2's count. Such a one is about to
    /// get into the pool. Only then r2d2 counts it, and wakes only those that wait in r2d2.
    fn is_connection_pending(&self, connections: u32) -> bool {
        Arc::weak_count(&self.alive) > connections as usize
    }

    fn attempts(&self) -> &ConnectAttempts {
        self.manager.attempts()
    }
}

impl fmt::Debug for RawPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawPool").field("state", &self.inner.state()).finish_non_exhaustive()
    }
}

impl Drop for RawPool {
    fn drop(&mut self) {
        // The thread may be waiting inside an order of this pool, and keeps the pool and its
        // connections alive until the wait ends.
        self.wake();
    }
}

/// Makes connections for r2d2, on the connecting thread.
#[derive(Debug)]
pub(crate) struct PoolManager {
    manager: Arc<Manager>,
    alive: Arc<()>,
    wake_receiver: Arc<Receiver<()>>,
}

impl PoolManager {
    /// Begins an attempt if one may be made now. Else returns an error, after which r2d2 tries
    /// again.
    fn begin(&self) -> Result<(), RedisError> {
        let (manager, attempts) = (&*self.manager, self.manager.attempts());
        // Drops a wake-up of the past, which would end the wait below at once. None is lost by it:
        // a caller notes its request before it wakes the thread, so `begin` sees a request whose
        // wake-up is dropped here.
        let _ = self.wake_receiver.try_recv();
        let Err(left) = attempts.begin(manager.now()) else { return Ok(()) };
        let _ = self.wake_receiver.recv_timeout(left.min(MAX_WAIT));
        // The wake-up may have been meant for another pool, whose order is behind this one, or for
        // the end of a pool. So this order looks once more, and makes way.
        attempts.begin(manager.now()).map_err(|_| {
            attempts
                .last_error()
                .unwrap_or_else(|| io::Error::from(io::ErrorKind::WouldBlock).into())
        })
    }
}

impl r2d2::ManageConnection for PoolManager {
    type Connection = Connection;
    type Error = RedisError;

    fn connect(&self) -> Result<Connection, RedisError> {
        let _hurry = Hurry::begin();
        self.begin()?;
        let open = || guarded(|| self.manager.open());
        let before = self.manager.incidents();
        let mut outcome = open();
        // Another connection broke during this attempt, likely for the same reason. The caller that lost that one waits for
        // this attempt, and has not tried again yet.
        if outcome.as_ref().is_err_and(is_closed) && self.manager.incidents() != before {
            outcome = open();
        }
        if let Ok(connection) = &mut outcome {
            // Before `end` wakes the callers. They count live connections, and one that is in no
            // count would make them order another.
            connection.counted = Arc::downgrade(&self.alive);
        }
        self.manager.attempts().end(self.manager.now(), outcome.as_ref().err());
        outcome.inspect_err(|error| {
            log!(debug, "no connection to Redis: {}", failure::shown(error));
        })
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        if IS_UNTESTED.with(Cell::get) {
            return Ok(());
        }
        // r2d2 tests one idle connection after the other, each for a whole time-out. Once one was
        // silent, the others are known to be dead without a test.
        if connection.is_outdated() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        guarded(|| self.manager.test(connection))
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        !self.manager.may_lend(connection)
    }
}

thread_local! {
    static IS_UNTESTED: Cell<bool> = const { Cell::new(false) };
}

/// Borrows a connection without the test that r2d2 makes at each borrow, if the user has asked for it.
///
/// For the worker: a test of a dead connection takes a whole command time-out, and a lease may be lost
/// meanwhile without a report. The worker notices a dead connection when it uses it.
pub(super) fn untested<T>(borrow: impl FnOnce() -> T) -> T {
    IS_UNTESTED.with(|it| it.set(true));
    let borrowed = borrow();
    IS_UNTESTED.with(|it| it.set(false));
    borrowed
}

/// Turns a panic into an error.
fn guarded<T>(body: impl FnOnce() -> Result<T, RedisError>) -> Result<T, RedisError> {
    // After a panic r2d2 would count the order as pending for good, and a pool of one would never
    // have another connection.
    catch_panic("a connection attempt", body)
        .unwrap_or_else(|| Err(io::Error::other("a panic occurred while connecting").into()))
}

#[cfg(test)]
mod tests;

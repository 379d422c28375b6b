//! All that is as it is because of r2d2 and its thread pool, the only file that names them.
//!
//! | r2d2 | so |
//! | --- | --- |
//! | starts three threads for each pool | all pools to a server share one, the [`ConnectThread`] |
//! | repeats an order that failed until it succeeds, ten times a second, even if nobody needs the connection any longer | the thread rests in `connect` until an attempt may be made, and a bell wakes it |
//! | orders a connection only while a caller waits in it, and then says nothing of the outcome | an order is a wait of no time; callers wait for the next [attempt](ConnectAttempts) |
//! | counts a connection only when it is in the pool, after it was made | each connection points to its pool while it lives |
//! | makes no other if the thread panics | what may panic is [`guarded`] |
//! | panics if it cannot start its thread | that is an error |
//!
//! An order is never given twice: the many callers that ask while none can be made leave one order, and as one
//! thread makes all connections, a second order before the first is done brings nothing sooner.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::RedisError;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::setting::PoolSettings;
use crate::base::panic::catch_panic;
use crate::base::sync::channel::{self, Receiver, Sender};
use crate::base::sync::{Arc, Mutex};
use crate::base::thread::{Role, Threads};
use crate::base::time::Moment;
use crate::wire::connect_attempts::{ConnectAttempts, ConnectCounts};
use crate::wire::connection::Connection;
use crate::wire::error_context::NO_THREAD;
use crate::wire::failure::{self, Failure};
use crate::wire::manager::Manager;

/// How often to look whether a connection was made.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same where one may come to the pool at any moment.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// r2d2 tries again to connect after pauses of half of this.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// The thread that connects waits for no longer than this at a time: r2d2 closes idle connections on it.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The thread that makes the connections of all pools to one server.
#[derive(Clone)]
pub(crate) struct ConnectThread {
    thread: Arc<ScheduledThreadPool>,
    /// Wakes the thread while it waits for its next attempt. The pools share the thread, so each of them that
    /// needs it must be able to wake it.
    wake_sender: Sender<()>,
    wake_receiver: Arc<Receiver<()>>,
}

/// A new thread that makes connections. There is one for each client and server: were it shared, a server that
/// does not reply would keep it from all others.
pub(crate) fn connector(threads: Threads) -> Result<ConnectThread, Failure> {
    let name = threads.name(Role::Connector);
    let thread = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern(&name);
    let thread = thread.on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled);
    // It panics where no thread can be started, which a guard's drop must not.
    let thread = catch_panic("the start of a thread", || thread.build());
    let (wake_sender, wake_receiver) = channel::bounded(1);
    thread
        .map(|thread| ConnectThread {
            thread: Arc::new(thread),
            wake_sender,
            wake_receiver: Arc::new(wake_receiver),
        })
        .ok_or_else(|| Failure::connect(io::Error::other(NO_THREAD).into()))
}

/// A connection borrowed from the pool; dropping it gives it back, or closes it if it is spoilt.
pub(crate) type Borrowed = r2d2::PooledConnection<PoolManager>;

/// r2d2's pool of our connections.
pub(super) struct RawPool {
    inner: r2d2::Pool<PoolManager>,
    wake_sender: Sender<()>,
    manager: Arc<Manager>,
    /// Each connection of the pool points to it, so that it tells how many of them live.
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
            .min_idle(Some(settings.min_idle))
            .idle_timeout(settings.idle_timeout)
            .max_lifetime(settings.max_lifetime)
            .test_on_check_out(settings.test_on_borrow)
            .connection_timeout(RECONNECT_TIMEOUT)
            .thread_pool(thread)
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .connection_customizer(customizer)
            .build_unchecked(maker);
        RawPool { inner, wake_sender, manager, alive, requested: Mutex::new(None) }
    }

    /// Whether there is no connection at all.
    pub(super) fn is_empty(&self) -> bool {
        self.inner.state().connections == 0
    }

    /// Whether all connections that there may be are there.
    pub(super) fn is_full(&self) -> bool {
        self.inner.state().connections >= self.max_size()
    }

    pub(super) fn max_size(&self) -> u32 {
        self.inner.max_size()
    }

    /// How many connections nobody uses.
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

    /// Waits for a short while: for a connection to come free if no more may be made, and otherwise for the
    /// end of another attempt than those that were `seen`.
    pub(super) fn wait(&self, seen: ConnectCounts, most: Duration) -> Option<Borrowed> {
        if self.is_full() {
            return self.inner.get_timeout(most.min(POLL_INTERVAL)).ok();
        }
        self.request_connection().or_else(|| {
            let connections = self.inner.state().connections;
            let soon = connections > 0 || self.is_connection_pending(connections);
            self.attempts()
                .wait(seen, most.min(if soon { SHORT_POLL_INTERVAL } else { POLL_INTERVAL }));
            self.inner.try_get()
        })
    }

    /// Has one more connection made, if that may be, without waiting for it. Returns one that was there.
    ///
    /// The thread may rest with an order of another pool, whose last attempt failed, while this pool's order
    /// is behind it in the queue. So each look of a caller that waits rings. One ring for each order would not
    /// do: the next order in the queue may rest too, and a ring before a rest begins does not end it. An order
    /// that is woken too early makes no attempt, and comes again after a pause of r2d2's.
    pub(super) fn request_connection(&self) -> Option<Borrowed> {
        if self.may_request() {
            let found = self.inner.get_timeout(Duration::ZERO).ok();
            if found.is_some() {
                // So none was ordered.
                *self.requested.lock() = None;
                return found;
            }
        }
        self.wake();
        None
    }

    /// Whether one more connection may be ordered. While another is about to come, r2d2 may have no room for
    /// it, and says nothing: the caller would wait for an attempt that never begins.
    fn may_request(&self) -> bool {
        // In this order: what was made by then and is not counted here is about to come.
        let connections = self.inner.state().connections;
        let (attempts, now) = (self.attempts().counts(), self.manager.now());
        let is_full = connections >= self.max_size();
        if attempts.is_failing || is_full || self.is_connection_pending(connections) {
            return false;
        }
        let mut requested = self.requested.lock();
        let span = self.manager.longest_attempt();
        if requested.is_some_and(|(before, at)| before == attempts && now.since(at) < span) {
            return false;
        }
        *requested = Some((attempts, now));
        true
    }

    /// Whether there is one more than these, which is about to come to the pool. r2d2 counts it only
    /// then, and tells only those that wait for r2d2.
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
        // The thread may wait with r2d2's half of the pool in its hands, and the connections in it.
        self.wake();
    }
}

/// Makes connections for r2d2, on the thread that connects.
#[derive(Debug)]
pub(crate) struct PoolManager {
    manager: Arc<Manager>,
    alive: Arc<()>,
    wake_receiver: Arc<Receiver<()>>,
}

impl PoolManager {
    /// Begins an attempt when one may be made. Returns why there is none yet; r2d2 then tries again.
    fn begin(&self) -> Result<(), RedisError> {
        let (manager, attempts) = (&*self.manager, self.manager.attempts());
        let _ = self.wake_receiver.try_recv();
        let Err(left) = attempts.begin(manager.now()) else { return Ok(()) };
        let _ = self.wake_receiver.recv_timeout(left.min(MAX_WAIT));
        // It may have been another pool that needs the thread, or a pool that is no longer needed.
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
        self.begin()?;
        let mut outcome = guarded(|| self.manager.open());
        if let Ok(connection) = &mut outcome {
            // Before a caller hears of it, which looks for it among those that live.
            connection.counted = Arc::downgrade(&self.alive);
        }
        self.manager.attempts().end(self.manager.now(), outcome.as_ref().err());
        outcome.inspect_err(|error| {
            log!(debug, "no connection to Redis: {}", failure::shown(error));
        })
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        // r2d2 tests one after the other; a server that is silent must not be waited for at each.
        if connection.is_outdated() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        guarded(|| self.manager.test(connection))
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        !connection.is_usable()
    }
}

/// Runs what may panic, as a user's logger may. After a panic r2d2 would count a connection for ever that
/// there is not, and a pool of one would never have another.
fn guarded<T>(body: impl FnOnce() -> Result<T, RedisError>) -> Result<T, RedisError> {
    catch_panic("a connection attempt", body)
        .unwrap_or_else(|| Err(io::Error::other("a panic occurred while connecting").into()))
}

#[cfg(test)]
mod tests;

//! The server, its time, and what an operator can do to it.

use std::fmt;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::sync::{self, Arc, Mutex, Weak};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::{BootClock, Clock, Moment};
use crate::client::{LockClient, LockClientBuilder};
use crate::engine::context::Context;
use crate::testing::Link;
use crate::topology::memory::link::FaultyLink;
use crate::topology::memory::server::MemoryServer;
use crate::wire::Value;

/// How often it is looked whether all threads have done what is due.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// It is so when it was found so this often, one look after the other.
const IDLE_POLLS: u32 = 3;
/// A thread that was woken and does not come back to wait has so many looks for what it does: more
/// time where the machine is busy. Where the system tells which threads run, those are waited for besides.
const MAX_POLLS: u32 = 200;
/// Something hangs if it is not so within this time; the test finds out by what follows.
const MOST: Duration = Duration::from_secs(10);

/// How far time passes at a time while nothing is due, and at most, for [`Server::run_until`].
const HOP: Duration = Duration::from_secs(1);
const LONGEST_RUN: Duration = Duration::from_secs(3_600);

/// In milliseconds: long enough for `Duration::MAX`.
const MAX_THEFT: u64 = 1 << 53;

/// A server in memory, and the time that it and its clients live in.
///
/// Clones are the same server.
///
/// ```
/// use leasehold::testing::Server;
/// use std::time::Duration;
///
/// # fn main() -> leasehold::Result<()> {
/// let server = Server::new();
/// let (here, there) = (server.client(), server.client());
///
/// let guard = here.mutex("orders:42")?.lock()?;
/// assert!(there.mutex("orders:42")?.try_lock()?.is_none());
///
/// // The machine sleeps for longer than the lease. Another client gets the lock, and we know it.
/// server.suspend(Duration::from_secs(31));
/// let other = there.mutex("orders:42")?.try_lock()?.expect("it is free");
/// assert!(!guard.is_valid());
/// assert!(other.fencing_token() > guard.fencing_token());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    inner: Arc<MemoryServer>,
    clock: Arc<ManualClock>,
    clients: Arc<Mutex<Vec<Client>>>,
}

struct Client {
    engine: Weak<Context>,
    link: Arc<FaultyLink>,
}

impl Server {
    /// Makes a server whose time passes by itself, and can also be [advanced](Server::advance).
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let lock = server.client().mutex("orders:42")?;
    /// assert_eq!(lock.with(|guard| guard.hold_count())?, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[allow(clippy::new_without_default, reason = "there are two ways to make one")]
    pub fn new() -> Server {
        Server::with(ManualClock::new(true))
    }

    /// Makes a server whose time passes only by [`advance`](Server::advance) and
    /// [`suspend`](Server::suspend). A call that waits for time to pass, even for a time-out, waits until
    /// another thread calls one of them.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::standing_still();
    /// let guard = server.client().mutex("orders:42")?.lock()?;
    /// // The lease of 30 s, less 1 % and 2 ms.
    /// assert_eq!(guard.remaining(), Duration::from_millis(30_000 - 302));
    /// # Ok(())
    /// # }
    /// ```
    pub fn standing_still() -> Server {
        Server::with(ManualClock::new(false))
    }

    fn with(clock: ManualClock) -> Server {
        let clock = Arc::new(clock);
        let inner = MemoryServer::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Server { inner, clock, clients: Arc::default() }
    }

    /// Makes a client with default settings. Each client is like a process of its own.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let (here, there) = (server.client(), server.client());
    /// let guard = here.mutex("orders:42")?.lock()?;
    /// assert!(there.mutex("orders:42")?.is_locked()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> LockClient {
        // The default settings are allowed.
        self.connect(LockClient::builder("redis://memory")).expect("default settings")
    }

    /// Makes a client with these settings. It connects to this server, whatever its URL says.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a setting that is not allowed.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use leasehold::testing::Server;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.connect(LockClient::builder("redis://any").label("billing"))?;
    /// let lock = client.mutex("orders:42")?;
    /// let guard = lock.lock()?;
    /// assert_eq!(lock.holder()?.unwrap().label(), Some("billing"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(&self, settings: LockClientBuilder) -> Result<LockClient> {
        let (client, link) = settings.build_over(&self.inner)?;
        let mut clients = self.clients.lock();
        clients.retain(|client| client.engine.strong_count() > 0);
        clients.push(Client { engine: Arc::downgrade(&client.engine().context), link });
        Ok(client)
    }

    /// The link between a client of this server and the server.
    ///
    /// # Panics
    ///
    /// If `client` is not a client of this server.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// server.link(&client).cut();
    /// assert!(client.mutex("orders:42")?.try_lock().unwrap_err().is_unreachable());
    /// # Ok(())
    /// # }
    /// ```
    pub fn link(&self, client: &LockClient) -> Link {
        let clients = self.clients.lock();
        let found = clients
            .iter()
            .find(|known| {
                std::ptr::eq(known.engine.as_ptr(), Arc::as_ptr(&client.engine().context))
            })
            .expect("a client of this server");
        Link::new(Arc::clone(&found.link), Arc::clone(&self.inner))
    }

    /// Lets time pass. Everything that is due happens at its time: leases are renewed, waiters ask again, time-outs
    /// end.
    ///
    /// The call returns shortly after all that is done. What threads of the test do between two calls of the
    /// library takes none of this time.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// // It is renewed every ten seconds.
    /// server.advance(Duration::from_secs(3600));
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn advance(&self, span: Duration) {
        let target = self.clock.now().after(span);
        while self.step(target) {}
    }

    /// Lets time pass until something is so, and returns how much passed. It is looked after each thing that was due, and
    /// once a second while nothing is.
    ///
    /// So a test need not know how long something takes: it runs until a thread has ended, or a loss was told of.
    ///
    /// # Panics
    ///
    /// If it is not so after an hour.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::standing_still();
    /// let (client, other) = (server.client(), server.client());
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// let lock = other.mutex("orders:42")?;
    /// let waiter = std::thread::spawn(move || lock.try_lock_for(Duration::from_secs(20)).map(|it| it.is_some()));
    /// let passed = server.run_until(|| waiter.is_finished());
    /// assert!(passed >= Duration::from_secs(20) && guard.is_valid());
    /// assert!(!waiter.join().unwrap()?);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn run_until(&self, mut is_so: impl FnMut() -> bool) -> Duration {
        let begin = self.clock.now();
        let end = begin.after(LONGEST_RUN);
        loop {
            // What is due now is done first.
            self.settle(self.waiting());
            let now = self.clock.now();
            if is_so() {
                return now.since(begin);
            }
            assert!(now < end, "it is not so after {LONGEST_RUN:?} of the server's time");
            self.step(now.after(HOP).min(end));
        }
    }

    /// Does what is due, and lets time pass to what is due next, or to this moment. Returns false if that had come before.
    fn step(&self, target: Moment) -> bool {
        let waiting = self.waiting();
        let rested = self.settle(waiting);
        let now = self.clock.now();
        if now >= target {
            return false;
        }
        // Workers look at the clock again and again, and are not seen there in between.
        let workers = self.workers_due();
        if workers.is_none() && rested {
            sync::sleep(POLL_INTERVAL);
            return true;
        }
        let due = workers.into_iter().flatten().chain(self.clock.next_due());
        let due = due.chain(self.inner.next_arrival()).filter(|&due| due > now);
        let next = due.min().map_or(target, |at| at.min(target));
        self.clock.put_forward(next);
        self.settle(waiting);
        true
    }

    /// Lets time pass at once, while nothing runs: like a machine that sleeps, or a process that is stopped.
    /// Everything that is due afterwards is done before this returns.
    ///
    /// ```
    /// # use leasehold::LossCause;
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// server.suspend(Duration::from_secs(31));
    /// assert_eq!(guard.loss().unwrap().cause(), LossCause::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn suspend(&self, span: Duration) {
        let waiting = self.waiting();
        self.clock.put_forward(self.clock.now().after(span));
        self.settle(waiting);
    }

    /// About how many threads of callers wait for their time: workers lie down and get up meanwhile.
    fn waiting(&self) -> usize {
        let mut workers = self.workers_waiting();
        loop {
            let all = self.clock.waiting().0;
            let before = std::mem::replace(&mut workers, self.workers_waiting());
            if before == workers {
                return all.saturating_sub(workers);
            }
        }
    }

    fn workers_waiting(&self) -> usize {
        // Ours may be the last references: they are dropped after the lock is free.
        let engines: Vec<_> =
            self.clients.lock().iter().filter_map(|client| client.engine.upgrade()).collect();
        engines.iter().filter(|engine| engine.worker.is_waiting_for_time()).count()
    }

    /// For when all workers wait; `None` while one is awake that waits for no answer.
    fn workers_due(&self) -> Option<Vec<Moment>> {
        let now = self.clock.now();
        let due =
            |client: &Client| match (client.engine.upgrade(), client.link.waited_for_until(now)) {
                (Some(engine), None) => engine.worker.next_due(),
                (_, until) => Some(until.unwrap_or(Moment::FAR)),
            };
        self.clients.lock().iter().map(due).collect()
    }

    /// Waits until all that is due is done, where so many threads of callers had waited. Whether it
    /// was in time.
    fn settle(&self, waiting: usize) -> bool {
        let begin = BootClock.now();
        let hangs = || BootClock.now().since(begin) > MOST;
        let (mut found, mut looks, mut since) = (0, 0, 0);
        // A thread that was woken may not know it yet.
        let rests = |found, since| found >= IDLE_POLLS && self.clock.have_all_looked_since(since);
        while !rests(found, since) && !hangs() {
            found = if self.is_at_rest(waiting, looks >= MAX_POLLS) { found + 1 } else { 0 };
            if found <= 1 {
                since = self.clock.last_look();
            }
            looks += 1;
            sync::sleep(POLL_INTERVAL);
        }
        rests(found, since)
    }

    fn is_at_rest(&self, before: usize, lenient: bool) -> bool {
        let (_, due) = self.clock.waiting();
        let now = self.clock.now();
        let back = lenient || self.waiting() >= before;
        let rests = |client: &Client| {
            let engine = client.engine.upgrade();
            !client.link.has_due(now)
                && (client.link.waited_for_until(now).is_some()
                    || engine.is_none_or(|engine| engine.worker.is_at_rest()))
        };
        let rested = due == 0 && back && self.inner.is_at_rest();
        rested && self.clients.lock().iter().all(rests) && !self.clock.has_running_reader()
    }

    /// Deletes a key, like an operator: the holder of the lock loses it without being asked. Returns whether
    /// the key existed. The key is the lock's name, with the client's
    /// [prefix](crate::LockClientBuilder::name_prefix).
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// assert!(server.delete("orders:42"));
    /// assert!(guard.check().unwrap_err().is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> bool {
        self.inner.call(&[b"DEL", key.as_ref()]) == Ok(Value::Int(1))
    }

    /// Makes somebody else the owner of a mutex for the time `ttl`, like a mistake or another program.
    ///
    /// ```
    /// # use leasehold::LossCause;
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// server.steal("orders:42", Duration::from_secs(60));
    /// assert!(guard.check().unwrap_err().is_lost());
    /// assert_eq!(guard.loss().unwrap().cause(), LossCause::Taken);
    /// # Ok(())
    /// # }
    /// ```
    pub fn steal(&self, key: impl AsRef<[u8]>, ttl: Duration) {
        // Redis takes neither a time to live of zero nor one whose end is no number any more.
        let ttl = crate::base::time::millis(ttl).clamp(1, MAX_THEFT).to_string();
        let words: [&[u8]; 5] = [b"SET", key.as_ref(), b"somebody else", b"PX", ttl.as_bytes()];
        let _ = self.inner.call(&words);
    }

    /// Deletes everything (`FLUSHALL`).
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// server.flush();
    /// assert!(guard.release().unwrap_err().is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush(&self) {
        self.inner.flush();
    }

    /// Sets whether the server is out of memory. Then it refuses to take a lock, as Redis with `maxmemory` and the
    /// policy `noeviction` does; locks that are held are renewed and released all the same.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// server.set_out_of_memory(true);
    /// assert!(client.mutex("orders:43")?.try_lock().is_err());
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_out_of_memory(&self, is_full: bool) {
        self.inner.set_out_of_memory(is_full);
    }

    /// Restarts the server empty: it forgets everything, and all connections break.
    ///
    /// ```
    /// # use leasehold::LossCause;
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let guard = client.mutex("orders:42")?.lock()?;
    /// server.restart();
    /// assert!(server.keys().is_empty());
    /// // The client does not listen, so its next renewal notices.
    /// server.advance(Duration::from_secs(10));
    /// assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restart(&self) {
        self.inner.restart();
    }

    /// The keys that the server has now.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// server.client().mutex("orders:42")?.lock()?.release()?;
    /// // The last token stays for a while.
    /// assert_eq!(server.keys(), [b"{orders:42}:fence"]);
    /// server.advance(Duration::from_secs(31));
    /// assert!(server.keys().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.inner.keys()
    }

    /// Closes all connections of its clients, and forgets nothing.
    #[cfg(test)]
    pub(crate) fn break_connections(&self) {
        self.inner.break_connections();
    }

    /// Sets the server's clock forward, or back if `by` is below zero, by microseconds. Its clients do not notice that by
    /// themselves.
    #[cfg(test)]
    pub(crate) fn set_clock(&self, by: i64) {
        self.inner.set_clock(by);
    }

    /// What it is to a test of this crate.
    #[cfg(test)]
    pub(crate) fn inner(&self) -> &MemoryServer {
        &self.inner
    }

    /// Whether a thread waits for the moment that is so far ahead.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self, ahead: Duration) -> bool {
        self.clock.is_awaited(self.clock.now().after(ahead))
    }

    /// Whether a thread of a caller waits for time to pass.
    #[cfg(test)]
    pub(crate) fn has_sleeper(&self) -> bool {
        self.waiting() > 0
    }

    /// Whether somebody stands in the queue of a mutex, and waits there for what comes.
    #[cfg(test)]
    pub(crate) fn is_queued_for(&self, key: &str) -> bool {
        self.waiters(key) > 0 && self.waiting() > 0
    }

    /// How many stand in the queue of a mutex.
    #[cfg(test)]
    pub(crate) fn waiters(&self, key: &str) -> u64 {
        let queue = format!("{{{key}}}:queue").into_bytes();
        match self.inner.call(&[b"ZCARD", &queue]) {
            Ok(Value::Int(count)) => count.unsigned_abs(),
            _ => 0,
        }
    }

    /// The last token that the server gave for a lock; 0 if it remembers none.
    #[cfg(test)]
    pub(crate) fn last_token(&self, key: &str) -> u64 {
        let fence = format!("{{{key}}}:fence").into_bytes();
        match self.inner.call(&[b"GET", &fence]) {
            Ok(Value::BulkString(last)) => String::from_utf8_lossy(&last).parse().expect("a token"),
            _ => 0,
        }
    }

    /// How much time has passed since this server was made.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// let server = Server::standing_still();
    /// server.advance(Duration::from_secs(60));
    /// assert_eq!(server.elapsed(), Duration::from_secs(60));
    /// ```
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(ManualClock::START)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

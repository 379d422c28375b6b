//! Distributed locks on Redis or Valkey, for threads.
//!
//! Plain blocking Rust: a pool of connections, guards that release on drop, leases that renew
//! themselves, and a fencing token with every hold. No asynchronous runtime.
//!
//! 1. [The promise](#the-promise)
//! 2. [A first lock](#a-first-lock)
//! 3. [Leases and renewal](#leases-and-renewal)
//! 4. [When a lock is lost](#when-a-lock-is-lost)
//! 5. [Fencing tokens](#fencing-tokens)
//! 6. [Reentry and threads](#reentry-and-threads)
//! 7. [Waiting](#waiting)
//! 8. [Errors](#errors)
//! 9. [The pool and its time-outs](#the-pool-and-its-time-outs)
//! 10. [Code that locks by key](#code-that-locks-by-key)
//! 11. [What a lock costs](#what-a-lock-costs)
//! 12. [Several servers](#several-servers)
//! 13. [Tests of code that locks](#tests-of-code-that-locks)
//! 14. [Limits](#limits)
//! 15. [Features](#features)
//!
//! # The promise
//!
//! > A lock is held by at most one holder inside the holder's *validity window*, on one Redis
//! > that has not been rolled back. The window is measured on the holder's own monotonic clock,
//! > from before the request was sent. An outcome that is not known is reported as not known.
//! > Across fail-over, FLUSHALL, a forced release, a clock jump on the server, or a pause longer than
//! > the lease, only a fencing token checked at the resource protects you, and every hold carries one.
//!
//! The validity window is what [`Guard::remaining`] shows: the time to live, counted from before
//! the request was sent, less 1 % and 2 ms for clocks that drift apart. When it is over the guard
//! is not valid any more, whether Redis can be reached or not.
//!
//! # A first lock
//!
//! ```no_run
//! use leasehold::LockClient;
//!
//! # fn main() -> leasehold::Result<()> {
//! // Connects, and says clearly why not.
//! let client = LockClient::open("redis://127.0.0.1:6379")?;
//! let lock = client.mutex("orders:42")?;
//!
//! let guard = lock.lock()?;
//! // … nobody else is here …
//! guard.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! Make one [`LockClient`] per process and clone it: it has the pool, and the thread that renews.
//! Any bytes are a name. The name is the key in Redis, so choose a
//! [prefix](LockClientBuilder::name_prefix) that no other data has.
//!
//! A guard that is dropped releases the lock, also when a panic unwinds. [`Guard::release`] does
//! the same and tells how it went: if it says [`is_lost`](Error::is_lost), the work was not
//! protected to its end. The closure form checks that for you:
//!
//! ```no_run
//! # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
//! let total = lock.with(|_guard| {
//!     // … the work …
//!     42
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Mutex`] is the lock to use. [`ReentrantLock`] does the same on a key in the layout of
//! Redisson's plain lock, so that a Rust worker and a Java service can contend for it.
//!
//! # Leases and renewal
//!
//! Redis keeps a lock only for a time to live. The default is [`Lease::renewed`] with 30 s: the
//! client's worker renews it every 10 s, for as long as the guard lives. If the process dies,
//! others wait for what remains of the 30 s.
//!
//! ```
//! use leasehold::{Lease, LockClient, LockOptions, Result};
//! use std::time::Duration;
//!
//! fn rebuild_index(client: &LockClient) -> Result<()> {
//!     let options = LockOptions::new()
//!         // Others wait at most 15 s for a machine that died.
//!         .lease(Lease::renewed(Duration::from_secs(15)))
//!         // A thread that hangs loses the lock after an hour.
//!         .max_hold(Duration::from_secs(3600));
//!     client.mutex_with("search-index", options)?.with(|_guard| { /* the work */ })
//! }
//! ```
//!
//! A lock makes the machines of a fleet do such work one after the other, not only once. Work that
//! is done once a night needs a marker beside the lock: lock, look for the marker, do the work, and
//! write the marker with [`Guard::transaction`], which applies only while the lock is held. The
//! README has that recipe.
//!
//! A shorter lease frees the lock of a dead machine sooner, and leaves less time to ride out a
//! slow network. Keep it at ten [command time-outs](LockClientBuilder::command_timeout) or more;
//! a shorter one is warned of in the log.
//!
//! [`Lease::fixed`] is not renewed: it ends by itself, unless [`Guard::extend`] makes it longer.
//! It is for work whose length is known.
//!
//! A renewed lease that the [queue](Wait::queue) handed over is short at first: two seconds and a
//! [`command_timeout`](LockClientBuilder::command_timeout), unless the lease itself is shorter. So others
//! do not wait for long if it was handed to a process that had died. The first renewal, after a third
//! of that, makes it whole. A fixed lease is whole from the start.
//!
//! Renewal goes on for as long as a hold exists, not for as long as it makes progress.
//! [`max_hold`](LockOptions::max_hold) and [`max_renewals`](LockOptions::max_renewals) put an end
//! to it. So does the end of the thread, even if its guard was forgotten.
//!
//! # When a lock is lost
//!
//! A lock is lost when its lease ends before its release: the process was paused, Redis was away
//! for too long, somebody deleted the key, `max_hold` was reached. Then, in this order:
//!
//! 1. The guard is not [valid](Guard::is_valid) any more, and [`Guard::loss`] has the
//!    [cause](LossCause). Both are answered from memory.
//! 2. [`Guard::on_loss`] and the client's [`on_loss`](LockClientBuilder::on_loss) are called, on a
//!    thread of their own, and [`LockClient::losses`] has it for threads that wait. None of them can
//!    stop the thread that works; let them raise a flag, or end the process.
//! 3. [`Guard::release`], [`Guard::check`] and [`Guard::extend`] answer
//!    [`is_lost`](Error::is_lost). So does [`lock`](Mutex::lock) in a thread that still has the
//!    guard: it must not go on as if it had only nested deeper.
//!
//! The first happens at the end of validity at the latest, to the nanosecond and without any thread's
//! help. That the key was deleted or taken is seen by the next renewal, so within a third of the
//! lease. The second follows as soon as the worker sees it, which exchanges with a silent Redis delay by
//! four thirds of a [command time-out](LockClientBuilder::command_timeout) at most.
//!
//! The work should look before each step that cannot be undone, and go home when the lock is
//! lost:
//!
//! ```
//! use leasehold::Guard;
//!
//! fn work(guard: &Guard, steps: &[u32]) -> leasehold::Result<()> {
//!     for _step in steps {
//!         if let Some(loss) = guard.loss() {
//!             eprintln!("stopped: {loss}");
//!             // Answers the error for it.
//!             return guard.check();
//!         }
//!         // … one step, with guard.fencing_token() in each of its writes …
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Drop the guard, and lock again: that is a new hold with a new token. What the old one read may
//! have changed since.
//!
//! Looking is not enough. Between the look and the write the process may be paused for longer
//! than the lease, and no lock on any service can prevent that. What protects you then is the
//! next section.
//!
//! # Fencing tokens
//!
//! Every hold has a [token](FencingToken), a number that grows from hold to hold of a name. Send
//! it with every write, and let the resource refuse a token that is lower than one it has seen.
//!
//! In SQL, keep the highest token beside the data, in a `BIGINT NOT NULL DEFAULT 0`; for drivers that
//! take no `u64`, `token.get() as i64` is the same number:
//!
//! ```sql
//! -- First of all, when the lock was taken: from now on no earlier holder can write.
//! UPDATE accounts SET fence = :token WHERE id = :id AND fence <= :token;
//! -- Then read, and work out the new balance, and write it.
//! SELECT balance FROM accounts WHERE id = :id;
//! UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token;
//! ```
//!
//! An update that changed no row was refused: a later holder was here. Both compare with `<=`,
//! because one hold may claim and write several times with its one token. The first update closes
//! the time between your read and your write; without it an earlier holder could write in between.
//! It is not needed where you write without having read. MySQL counts changed rows unless the
//! connection asks for found rows. `examples/fencing.rs` in the repository runs this text against
//! SQLite, twice in one hold, and with a holder that is late.
//!
//! In Redis, check in the script that writes:
//!
//! ```no_run
//! use leasehold::{Guard, redis};
//!
//! const FENCED_WRITE: &str = "
//!     local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
//!     if tonumber(ARGV[1]) < seen then
//!       return 0
//!     end
//!     redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
//!     return 1";
//!
//! /// Answers false if a later holder was here.
//! fn store(guard: &Guard, redis: &mut redis::Connection, value: &str) -> redis::RedisResult<bool> {
//!     redis::Script::new(FENCED_WRITE)
//!         .key("stock:7")
//!         .arg(guard.fencing_token())
//!         .arg(value)
//!         .invoke(redis)
//! }
//! ```
//!
//! A resource that is rolled back together with the lock, such as this one in a fail-over,
//! forgets the tokens it has seen along with the writes.
//!
//! A token is the server's time in microseconds, or the last token plus one. The
//! last token is kept beside the lock for as long as the lease that it was made for, and at least
//! a second. So no key lives for ever; [limits](#limits) tells what that rests on.
//!
//! # Reentry and threads
//!
//! A hold belongs to a thread. The thread that has it takes it again without a command, through
//! any handle of the name, also with [`try_lock`](Mutex::try_lock). The last of its guards gives
//! it back.
//!
//! ```no_run
//! # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
//! let outer = lock.lock()?;
//! let inner = lock.lock()?;
//! assert_eq!(lock.hold_count(), 2);
//! drop(outer);
//! assert!(lock.is_held_by_current_thread());
//! drop(inner);
//! # Ok(())
//! # }
//! ```
//!
//! For the same reason a guard cannot be sent to another thread:
//!
//! ```compile_fail
//! # fn demo(guard: leasehold::Guard) {
//! std::thread::spawn(move || drop(guard));
//! # }
//! ```
//!
//! To hand the lock over, take it out of the thread with [`Guard::into_owned`]. The
//! [`OwnedLease`] can be sent; the thread that receives it makes it its own:
//!
//! ```no_run
//! # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
//! let owned = lock.lock()?.into_owned().expect("held once");
//! std::thread::spawn(move || {
//!     let guard = owned.into_guard();
//!     // … goes on with the work, and drops the guard …
//! });
//! # Ok(())
//! # }
//! ```
//!
//! Locks and clients are [`Send`] and [`Sync`] and cheap to clone. A guard keeps alive what it
//! needs. What a thread still holds when it ends is given back by the client's worker, while the
//! process lives; a process that ends at once leaves its locks to their leases.
//!
//! There is no poisoning: after a panic the next holder finds the lock free. If your data may be
//! half done then, say so in the data.
//!
//! # Waiting
//!
//! | call | waits for a holder | answers |
//! | --- | --- | --- |
//! | [`lock`](Mutex::lock) | without limit | a guard |
//! | [`try_lock_for`](Mutex::try_lock_for), [`try_lock_until`](Mutex::try_lock_until) | so long | a guard or `None` |
//! | [`try_lock`](Mutex::try_lock) | not at all: one attempt | a guard or `None` |
//!
//! Threads that use one client queue in the order in which they came, and only one of them talks to
//! Redis. On release a renewed lease may be passed on to the next thread of the process without a
//! command; [`local_handoffs`](LockOptions::local_handoffs) bounds how often while another process
//! waits. A waiting thread holds no connection of the pool.
//!
//! Among processes there are three ways to wait:
//!
//! | way | for | how | order |
//! | --- | --- | --- | --- |
//! | [`Wait::queue`] | [`Mutex`], its default | the release hands the lock to the first who waits and lives | as they came |
//! | [`Wait::notify`] | [`ReentrantLock`] and [several servers](#several-servers), their default | the release wakes all processes, which try again | none |
//! | [`Wait::spin`] | all | tries again after random pauses, which grow | none |
//!
//! The first two need publish/subscribe. If a message is lost they ask again by themselves.
//!
//! A process that locks again and again may keep the lease for a short time after its last unlock, with
//! [`linger`](LockOptions::linger). A waiter that queues ends that at once.
//!
//! Redis being down is not a holder. A wait rides out an outage of up to
//! [`give_up_after`](LockClientBuilder::give_up_after), and ends with an error after a longer
//! one.
//!
//! Another thread can call off all waits of the client for a lock, with
//! [`cancel_waits`](Mutex::cancel_waits). They end with [`is_cancelled`](Error::is_cancelled).
//!
//! Whoever needs several locks takes them in the same order everywhere, or waits with a limit: a
//! circle of waits is not detected.
//!
//! # Errors
//!
//! That somebody else has the lock is no error. Everything else is an [`Error`] with a predicate:
//!
//! ```
//! use leasehold::{Error, Mutex};
//! use std::time::Duration;
//!
//! fn answer(lock: &Mutex) -> Result<&'static str, Error> {
//!     match lock.try_lock_for(Duration::from_secs(2)) {
//!         Ok(Some(_guard)) => Ok("done"),
//!         Ok(None) => Ok("busy, try later"),
//!         Err(error) if error.is_unreachable() => Ok("Redis is down, try later"),
//!         // Perhaps the lock was taken. It is given back in the background, and its lease ends.
//!         Err(error) if error.is_unknown_outcome() => Ok("not known, try later"),
//!         Err(error) => Err(error),
//!     }
//! }
//! ```
//!
//! | predicate | what it means |
//! | --- | --- |
//! | [`is_timeout`](Error::is_timeout) | time ran out, in a call that cannot say `None`; in any call, if a grant came when its lease or `max_hold` was over |
//! | [`is_lost`](Error::is_lost) | held, and lost before its release |
//! | [`is_not_held`](Error::is_not_held) | not held by this thread; also true for a lost lock |
//! | [`is_unreachable`](Error::is_unreachable) | Redis could not be reached or could not serve; nothing was done, unless the outcome is unknown as well |
//! | [`is_unknown_outcome`](Error::is_unknown_outcome) | sent, and never answered: done or not; or a grant was heard of too late to make sure of it |
//! | [`is_pool_exhausted`](Error::is_pool_exhausted) | no connection came free |
//! | [`is_not_replicated`](Error::is_not_replicated) | too few replicas had it in time; it was given back |
//! | [`is_not_fsynced`](Error::is_not_fsynced) | too few disks had it in time; it was given back |
//! | [`is_config`](Error::is_config) | a setting, name or option is not allowed; found before any I/O, but for what only a server can tell |
//! | [`is_denied`](Error::is_denied) | the user, the password or a permission was refused |
//! | [`is_wrong_type`](Error::is_wrong_type) | the key is no lock of this kind |
//! | [`is_cancelled`](Error::is_cancelled) | the wait was called off |
//! | [`is_refused`](Error::is_refused) | any other error of the server, such as being out of memory; or a client used or made in a fork |
//!
//! An error names the lock, and keeps the error of the [`redis`] crate as its
//! [source](std::error::Error::source). The crate logs through [`log`](https://docs.rs/log): a
//! lost lock and a release that failed in a drop as warnings.
//!
//! # The pool and its time-outs
//!
//! ```
//! use leasehold::LockClient;
//! use std::time::Duration;
//!
//! # fn main() -> leasehold::Result<()> {
//! // No I/O yet: Redis may still be down.
//! let client = LockClient::builder("redis://locks:secret@localhost:6379/2")
//!     .max_size(16)
//!     .command_timeout(Duration::from_millis(500))
//!     .give_up_after(Duration::from_secs(30))
//!     .name_prefix("shop:")
//!     .label("billing")
//!     .on_loss(|loss| eprintln!("{loss}"))
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! | setting | default | bounds |
//! | --- | --- | --- |
//! | [`max_size`](LockClientBuilder::max_size) | 10 | connections for callers; renewals and wake-ups have their own |
//! | [`max_wait`](LockClientBuilder::max_wait) | 1 s | the wait for a free connection |
//! | [`connect_timeout`](LockClientBuilder::connect_timeout) | 1 s | connecting, for each address of the host |
//! | [`command_timeout`](LockClientBuilder::command_timeout) | 1 s | a command, from the search for a connection to its answer |
//! | [`give_up_after`](LockClientBuilder::give_up_after) | 10 s | an outage that a wait rides out |
//!
//! A connection is used for one exchange and given back. After an error that did not come from
//! the server it is closed, so that a late answer is never read as the answer to another command.
//! [`test_on_borrow`](LockClientBuilder::test_on_borrow) is off, and is seldom needed: an attempt
//! or a release that meets a dead connection is repeated on a new one.
//!
//! # Code that locks by key
//!
//! [`DistributedLock`] is for code that comes from Jedis or Spring, or that wants to swap the
//! implementation. It is object-safe, and [`LockClient`] implements it with [`Mutex`] keys.
//!
//! ```
//! use leasehold::{DistributedLock, Lease, Result};
//! use std::time::Duration;
//!
//! fn pay(locks: &dyn DistributedLock, order: &str) -> Result<()> {
//!     if locks.try_lock(order, Duration::from_secs(2), Lease::default())? {
//!         // … the work …
//!         locks.unlock(order)?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! There is no guard, so each [`try_lock`](DistributedLock::try_lock) that answered `true` needs
//! its [`unlock`](DistributedLock::unlock), by the same thread. There is no fencing token either:
//! where the resource checks one, use a [`Mutex`].
//!
//! # What a lock costs
//!
//! In commands that the client sends, when nothing fails:
//!
//! | work | [`Mutex`] | [`ReentrantLock`] |
//! | --- | --- | --- |
//! | lock and unlock, nobody else there | 2, in 2 round trips | 2, in 2 round trips |
//! | the same with [`Release::watch`] | 6, in 4 round trips | |
//! | lock and unlock within [`linger`](LockOptions::linger) | 0 | |
//! | lock and unlock after waiting in the queue | 2, and 1 about every second of the wait | |
//! | passed on inside the process | 0 | 0 |
//! | each reentry and its release | 0 | 0 for the caller; the worker shows each new count with a command shortly after |
//! | renewal | 1 every third of the lease | the same |
//! | an attempt that finds another holder | 1 | 1 |
//! | [`check`](Guard::check), [`extend`](Guard::extend), [`holder`](Mutex::holder), [`is_locked`](Mutex::is_locked), [`force_release`](Mutex::force_release) | 1 | 1 |
//! | [`is_valid`](Guard::is_valid), [`remaining`](Guard::remaining), [`loss`](Guard::loss), [`hold_count`](Mutex::hold_count), [`fencing_token`](Guard::fencing_token) | 0 | 0 |
//!
//! A new connection begins with one more, and so does a script that the server has not seen yet.
//! What is due for renewal at about the same time goes out as one pipeline.
//!
//! A client has a thread that renews, which starts with its first lock, and one that listens, which
//! starts with its first wait, or with the first lock that lingers or may be asked for; each has a
//! connection of its own. A third makes the pool's connections; with sentinels a fourth follows the
//! master. Over several servers one thread connects to each, and
//! from the first wait on one listens to each.
//!
//! # Several servers
//!
//! A [`QuorumClient`] locks on several independent servers, a majority of which decides (Redlock). Its
//! [`mutex`](QuorumClient::mutex) is the same [`Mutex`], with the same guards, renewal and loss.
//!
//! ```no_run
//! use leasehold::QuorumClient;
//!
//! # fn main() -> leasehold::Result<()> {
//! let client = QuorumClient::open(["redis://a:6379", "redis://b:6379", "redis://c:6379"])?;
//! let guard = client.mutex("orders:42")?.lock()?;
//! // … held on a majority of all three …
//! guard.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! It goes on while a minority is down or cut off. All servers are asked at once, so that a lock takes one
//! round trip. A server that restarted counts again only after the
//! [longest lease](QuorumClientBuilder::max_lease): it may have forgotten for whom it voted. So no lock is
//! granted in the first half minute of servers that were all just started, unless they are told to
//! [keep their data](QuorumClientBuilder::keeps_data).
//!
//! Waiting is by [`Wait::notify`] or [`Wait::spin`]. Each server tells of its part of a release, and a
//! waiter that hears any of them tries again after a short random pause; where the votes are split and
//! nobody has a majority, those that collided drift apart by random pauses that grow.
//!
//! Tokens grow from hold to hold whichever majority granted them: the client proposes one above the
//! clocks of all servers, a server accepts only what is above its last, and any two majorities share a
//! server. [`QuorumClient`] tells what breaks the guarantee, and what it has not.
//!
//! A Redis Cluster is several servers of another sort: each name is on one of them, on the master that
//! has its hash slot. A [`LockClient`] built with [`cluster`](LockClientBuilder::cluster) goes there,
//! and has all kinds of lock and all options.
//!
//! ```no_run
//! use leasehold::LockClient;
//!
//! # fn main() -> leasehold::Result<()> {
//! let client = LockClient::builder("redis://10.0.0.1:7000")
//!     .cluster(["redis://10.0.0.2:7000", "redis://10.0.0.3:7000"])
//!     .build()?;
//! client.mutex("orders:42")?.lock()?.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! What is promised of one server holds there for each name, also while its slot moves to another
//! master, which takes its keys along. Besides:
//!
//! - **When a master fails**, a replica takes its place, and has the locks that replication took to it;
//!   others are lost, and their holders are told by the next renewal. Between the failure and the
//!   promotion nothing is granted there; waits ride that out for
//!   [`give_up_after`](LockClientBuilder::give_up_after). Fencing tokens, or
//!   [`min_replicas`](LockOptions::min_replicas), are for what is lost.
//! - **While a slot is being moved** key by key, its locks are renewed and can be looked at, but neither
//!   granted nor given back: their scripts need all keys in one place. Callers wait for the end of it, a
//!   [`lock`](Mutex::lock) for as long as it rides out an outage, all else for a
//!   [`command_timeout`](LockClientBuilder::command_timeout), and then get
//!   [`is_unreachable`](Error::is_unreachable); a release is finished in the background. A move usually
//!   takes milliseconds. Lease and queue are moved with the rest, and so is the last token.
//! - **Nothing is sent twice** that must not be done twice: what a node refused goes to another, and what
//!   brought no answer is repeated only where Redis knows the repetition for the same attempt.
//! - **Names** must leave all keys of the lock in one slot: braces only as a hash tag, `{tag}`. A name
//!   such as `a}b` is [refused](Error::is_config). The keys in a [transaction](Guard::transaction) must
//!   be in the lock's slot: write them with its name, or its tag, in braces.
//! - **A waiter that died** is not told from one that does not listen to that master yet. It is handed
//!   the lock, which is free again after two seconds and a
//!   [`command_timeout`](LockClientBuilder::command_timeout), or its lease if that is shorter. For the
//!   same reason [`request_release`](Mutex::request_release) tells only that somebody may have heard.
//! - **Redisson** listens to sharded channels there. It is told of releases on them, and what it releases
//!   itself is noticed within a second.
//! - **There is a pool to each master** that is needed, each with a thread that connects. From the first
//!   wait on, one thread and one connection for each master listen, also as masters come and go: what is
//!   said at one may take the others 40 ms and more to pass on.
//!
//! # Tests of code that locks
//!
//! With the feature `testing`, the module `leasehold::testing` has a server in memory for real
//! clients. A test says what goes wrong there, and how time passes: to prove, say, that work stops
//! when its lock is lost.
//!
//! # Limits
//!
//! What breaks mutual exclusion, so that only a fencing token checked at the resource protects
//! you:
//!
//! - **Fail-over** to a replica that has not seen the last writes, with Sentinel and in a cluster.
//! - **A restart that loses writes**, `FLUSHALL`, a `DEL` of the key. What is lost depends on the
//!   server's persistence.
//! - **Eviction.** A lock has a time to live, so the `volatile-…` and `allkeys-…` policies may
//!   evict it. Run the server with `maxmemory-policy noeviction`.
//! - **A forced release.** The holder goes on until it notices: at once where its client listens, else at
//!   the next renewal.
//! - **A jump of the server's clock** forward, which ends the lease early there.
//! - **A pause longer than the lease**: a stopped process, a suspended machine.
//!
//! What breaks the order of tokens: while the last token is not there, because it expired or was
//! flushed or did not reach the new master, order rests on the server's clock. Two tokens minted
//! inside one microsecond around a `FLUSHALL` can be equal. If the server's clock was set back by
//! more than the time that has passed since, a token can repeat or be lower than an earlier one. It also
//! rests on the clock
//!
//! - where a process was killed whose threads had passed the lock on among themselves, or had taken it
//!   again within a linger: Redis hears of their tokens only at a release. None of them was above the
//!   server's clock of that time.
//! - where the clock is another one, after a fail-over or when a slot has moved to another node: it must
//!   not be behind the old one by more than the move took.
//!
//! Not even a token protects you where the image of a process is restored more than once, such as the
//! snapshot of a virtual machine. All copies are one client to Redis: they have the same locks, their next
//! attempts have the same values, and Redis grants the same lock with the same token to each of them. Make
//! the client after the image is taken.
//!
//! A client does not work in a fork of its process, and such a fork cannot make one of its own: it has
//! none of the threads. Both say so. Fork before the first client is made, or start a new program.
//!
//! The clock of the validity window counts through suspend on Linux and Android. Elsewhere it is
//! [`Instant`](std::time::Instant), which may stop in suspend: the guard of a machine that slept
//! may then still look valid.
//!
//! It needs Redis 7.0 or later, or Valkey. The README has the exact rule (`ACL SETUSER`) for a user of
//! the server, for each kind of lock and each way to wait.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it brings |
//! | --- | --- |
//! | `tls` | `rediss://` URLs, by rustls |
//! | `testing` | `leasehold::testing`: a server in memory, whose faults and time a test scripts |
//! | `crossbeam` | the channel beneath a [`LossReceiver`], for `crossbeam_channel::select!`; it follows that crate's version |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod base;
mod client;
mod engine;
mod lock;
mod protocol;
#[cfg(all(test, leasehold_shuttle))]
mod schedule;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod wire;

pub use base::error::{Error, Result};
pub use base::feed::{LossIter, LossReceiver};
pub use base::id::Holder;
pub use base::loss::{Loss, LossCause};
pub use base::option::{Lease, LockOptions, Release, Wait};
pub use base::token::FencingToken;
pub use client::{
    DistributedLock, LockClient, LockClientBuilder, QuorumClient, QuorumClientBuilder,
};
pub use lock::{Guard, Mutex, OwnedLease, ReentrantLock};
pub use redis;

/// The code of the README, compiled with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

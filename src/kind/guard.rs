//! The guard of a hold.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::loss::Loss;
use crate::base::token::FencingToken;
use crate::engine::holding::Holding;
use crate::engine::thread_hold::{ThreadHold, find};
use crate::wire::{Pipeline, Value};

/// One hold of a lock, which releases the lock when it is dropped.
///
/// It belongs to the thread that took the lock: it is not [`Send`]. [`into_owned`](Guard::into_owned) makes an
/// [`OwnedLease`](crate::OwnedLease) of it, which can be sent to another thread.
///
/// It keeps alive what it needs, so it may outlive its lock and its client. When a thread holds a lock several
/// times, dropping the last guard releases it.
///
/// A drop makes one attempt to release, bounded by the client's time-outs, and repeats it once if the pooled
/// connection was dead. If that fails, it logs a warning and leaves the release to the client's worker;
/// [`release`](Guard::release) returns an error instead.
///
/// A panic does not poison the lock: unwinding drops the guard.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// let guard = lock.lock()?;
/// println!("valid for {:?}, with token {}", guard.remaining(), guard.fencing_token());
/// // Released here.
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the lock is released immediately"]
pub struct Guard(pub(super) Option<Rc<ThreadHold>>);

impl Guard {
    pub(crate) fn new(hold: Rc<ThreadHold>) -> Guard {
        Guard(Some(hold))
    }

    fn hold(&self) -> &Rc<ThreadHold> {
        // Only methods that consume the guard take it.
        self.0.as_ref().expect("a guard has its hold until it is consumed")
    }

    pub(super) fn holding(&self) -> &Holding {
        self.hold().holding()
    }

    #[cfg(all(test, leasehold_shuttle))]
    pub(crate) fn lease(&self) -> &crate::base::sync::Arc<crate::engine::lease::HeldLease> {
        &self.holding().lease
    }

    /// The token of this hold, greater than that of every hold before it. No I/O.
    ///
    /// Send it along with every write to the resource, and let the resource refuse a lower one than
    /// it has seen. That protects it even from a holder that was paused past its lease.
    ///
    /// Its value has no meaning beyond that order. Redis keeps the last token for about one lease after the
    /// last hold; while it is gone, the order rests on the server's clock.
    /// [Limits](crate::guide::limits#what-breaks-the-order-of-tokens) has the details.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard, highest: &mut leasehold::FencingToken) {
    /// // What the resource does: it refuses a holder that is late.
    /// let token = guard.fencing_token();
    /// if token >= *highest {
    ///     *highest = token;
    ///     // … the write …
    /// }
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        self.holding().lease.terms.token
    }

    /// Whether the lease is still valid on this machine's clock. No I/O.
    ///
    /// The clock [counts through suspend](crate::guide::limits#suspend) on Linux and Android, and this turns
    /// false before the lease ends in Redis. If the key is deleted or taken earlier, this turns false when the
    /// client learns of it: at the next renewal at the latest, or at the end of a lease that is not renewed.
    /// True says nothing about the moment after, so check right before a write, and send the
    /// [token](Guard::fencing_token) along.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) {
    /// while guard.is_valid() {
    ///     // … one step, with guard.fencing_token() in each of its writes …
    /// #   break;
    /// }
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease is still valid; zero when it is over. No I/O.
    ///
    /// After a hand-over by the [queue](crate::Wait::queue) that is at first two seconds and a command
    /// time-out at most. The first renewal follows within a third of that and makes the lease whole.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(guard: &leasehold::Guard) -> leasehold::Result<()> {
    /// // The next step takes up to a second.
    /// if guard.remaining() < Duration::from_secs(1) {
    ///     guard.extend(Duration::from_secs(5))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.holding().remaining()
    }

    /// How many times this thread holds the lock. No I/O.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// let outer = lock.lock()?;
    /// let inner = lock.lock()?;
    /// assert_eq!(outer.hold_count(), 2);
    /// drop(inner);
    /// assert_eq!(outer.hold_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_count(&self) -> u32 {
        self.hold().count()
    }

    /// How many wait for this lock, as far as this process knows: its own threads, and other processes that
    /// queue ([`Wait::queue`](crate::Wait::queue)). No I/O.
    ///
    /// The client learns of other processes once it listens: from its first wait on, with
    /// [`linger`](crate::LockOptions::linger) or
    /// [`on_release_request`](crate::LockClientBuilder::on_release_request), or from the first call
    /// of this on, which starts a thread. It learns of earlier waiters within a second, so call
    /// this now and then, not once.
    ///
    /// **Not counted** are other processes that do not queue, because nobody announces them: those with
    /// [`Wait::spin`](crate::Wait::spin), those that wait for a [`ReentrantLock`](crate::ReentrantLock),
    /// Redisson's among them, and those that wait over several servers. For such locks only the threads of this
    /// process count.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) {
    /// if guard.waiters() > 10 {
    ///     println!("too much work is done under one lock");
    /// }
    /// # }
    /// ```
    pub fn waiters(&self) -> usize {
        let Holding { slot, lease } = self.holding();
        // Waiters announce themselves by a message, which a client that does not listen misses. The
        // first call may thus return too few; the waiters repeat themselves with their heartbeats.
        slot.context().listen_for_waiters(&lease.terms.options);
        slot.waiters()
    }

    /// Whether this process knows of anybody who waits for this lock: whether [`waiters`](Guard::waiters) is
    /// above zero. No I/O.
    ///
    /// ```
    /// # fn demo(guard: leasehold::Guard) -> leasehold::Result<()> {
    /// // Between two parts of the work others may go first.
    /// if guard.is_contended() {
    ///     guard.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_contended(&self) -> bool {
        self.waiters() > 0
    }

    /// Why the lock was lost, or `None` if it was not. No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) {
    /// match guard.loss() {
    ///     Some(loss) => eprintln!("stopped: {}", loss.cause()),
    ///     None => println!("nothing is known to have gone wrong"),
    /// }
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.holding().loss()
    }

    /// Calls `callback` once if the lock is lost before its release.
    ///
    /// The guard is invalid by then. The callback runs on a thread of its own, so it may take its time; a panic
    /// in it is logged. If the lock is lost already, the callback runs at once, on such a thread too.
    ///
    /// The callback belongs to the hold: all guards of this thread's hold share it, and it goes along with
    /// [`into_owned`](Guard::into_owned). A release drops it without calling it, even if the lease goes on
    /// inside the process under the next hold.
    ///
    /// A hold may have several callbacks. They run in the order in which they were added, before
    /// [`LockClientBuilder::on_loss`](crate::LockClientBuilder::on_loss). Losses that are found at the same
    /// moment are reported one after the other, so a callback that does not return holds up the others.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let raised = Arc::clone(&stop);
    /// guard.on_loss(move |_loss| raised.store(true, Ordering::Relaxed));
    /// while !stop.load(Ordering::Relaxed) {
    ///     // … the work …
    /// #   break;
    /// }
    /// # }
    /// ```
    pub fn on_loss(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        self.holding().on_loss(Box::new(callback));
    }

    /// Asks Redis whether the lock is still this hold's.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if it is not. An error of the connection if Redis cannot be asked,
    /// which says nothing about the lock.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) -> leasehold::Result<()> {
    /// guard.check()?;
    /// // A moment ago it was still ours.
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.holding().check()
    }

    /// Makes the lease last for at least `ttl` from now. It never makes the lease shorter.
    ///
    /// It is meant for [`Lease::fixed`](crate::Lease::fixed). `ttl` is allowed from 1 ms to 30 days. `max_hold`
    /// still ends the hold.
    ///
    /// # Errors
    ///
    /// - [`is_lost`](crate::Error::is_lost) if the lease is over, for however short a time;
    /// - [`is_config`](crate::Error::is_config) for a time to live that is not allowed;
    /// - an error of the connection if Redis cannot be asked. The holder may then rely on the lease for no longer
    ///   than before. A request that is stuck on its way may still make the lease longer in Redis, for as long
    ///   as the lock is this hold's.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(guard: &leasehold::Guard) -> leasehold::Result<()> {
    /// guard.extend(Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        self.holding().extend(ttl)
    }

    /// Runs commands that apply all together, and only if the lock is still this hold's. It is the check at
    /// the resource, if the resource is in the same Redis.
    ///
    /// The closure only says what to do; it reads nothing from Redis. The result has one value for each
    /// command. A command that fails by itself has an error value, and does not keep the others from applying.
    /// [`from_redis_value`](crate::redis::from_redis_value) converts a value.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for a command about the connection, its subscriptions, or
    ///   transactions, such as `SELECT`, `AUTH`, `CLIENT`, `SUBSCRIBE`, `MULTI` or `WATCH`, because the connection
    ///   serves others afterwards. Nothing was sent.
    /// - [`is_lost`](crate::Error::is_lost) if the lock is no longer held. Nothing was applied.
    /// - [`is_refused`](crate::Error::is_refused) if Redis did not accept a command. Nothing was applied.
    /// - [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if no reply came. The commands were applied, or
    ///   not, or may yet be, for as long as the lock is this hold's: a request that is stuck on its way has no
    ///   deadline.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard) -> leasehold::Result<()> {
    /// guard.transaction(|pipe| {
    ///     pipe.cmd("SET").arg("stock").arg(41).cmd("RPUSH").arg("sales").arg("one");
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self, build: impl FnOnce(&mut Pipeline)) -> Result<Vec<Value>> {
        // The user's closure runs before anything is sent, so that it neither prolongs the time on
        // a connection nor leaves one inside a transaction by a panic.
        let mut pipeline = Pipeline::new();
        build(&mut pipeline);
        self.holding().apply(&pipeline)
    }

    /// Releases this hold, and returns an error if that went wrong.
    ///
    /// If the thread holds the lock several times, only the last release goes to Redis.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the lock had been lost: what was done under it may have collided
    /// with another holder.
    ///
    /// All other errors mean that the hold was valid until now, and that the worker goes on trying to release
    /// it, which its lease bounds: [`is_unknown_outcome`](crate::Error::is_unknown_outcome) or
    /// [`is_unreachable`](crate::Error::is_unreachable) if Redis did not reply,
    /// [`is_pool_exhausted`](crate::Error::is_pool_exhausted) or [`is_timeout`](crate::Error::is_timeout) if it
    /// was not asked, [`is_denied`](crate::Error::is_denied) or [`is_refused`](crate::Error::is_refused) if it
    /// refused.
    ///
    /// ```
    /// # fn demo(guard: leasehold::Guard) {
    /// match guard.release() {
    ///     Err(error) if error.is_lost() => { /* check what was done */ }
    ///     Err(error) => eprintln!("{error}"),
    ///     Ok(()) => {}
    /// }
    /// # }
    /// ```
    pub fn release(mut self) -> Result<()> {
        // Also if the thread holds the lock further on. Its work under this hold may have collided
        // with another holder, and the caller of an inner release may be the only one that can undo
        // it.
        if let Some(hold) = self.leave()?
            && let Err(error) = hold.holding().check_valid()
        {
            return Err(error.of(hold.holding().name()));
        }
        Ok(())
    }

    /// Counts one hold less, and releases the lock with the last one. Returns the hold if the
    /// thread has others.
    fn leave(&mut self) -> Result<Option<Rc<ThreadHold>>> {
        // Taken first: whatever happens next, the drop that follows `release` finds nothing to
        // release again.
        let Some(hold) = self.0.take() else { return Ok(None) };
        if hold.count() == 0 {
            // Released by key, or left to the worker at the end of the thread. The lock may be
            // another's by now.
            return Err(hold.holding().not_live_error().of(hold.holding().name()));
        }
        // Not checked for validity if others remain: reading the clock would be most of the cost of
        // an inner drop, which returns nothing anyway. `release` does check.
        if hold.leave() { hold.holding().release().map(|()| None) } else { Ok(Some(hold)) }
    }

    /// Releases as a drop does, but returns a loss.
    pub(crate) fn finish(self) -> Result<()> {
        match self.release() {
            // The work was done under a valid hold, and its result must not be thrown away because
            // Redis did not confirm the release. After a loss it may be wrong, and the caller has
            // to know.
            Err(error) if !error.is_lost() => {
                log!(warn, "{error}; the worker goes on releasing it");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Leaves the hold to its thread, which releases it by key or at its end.
    pub(crate) fn keep(mut self) -> Result<()> {
        let Some(hold) = self.0.take() else { return Ok(()) };
        // A thread whose thread-local storage is gone has no table of holds. Kept there, the lock
        // would be renewed for as long as the process lives, and nobody could release it.
        if find(&hold.holding().slot).is_some() {
            return Ok(());
        }
        // By the worker and not by a drop, which logs its failures: many loggers use thread-local
        // storage, and panic at the end of a thread.
        if hold.leave() {
            hold.holding().release_in_background();
        }
        let text =
            "this thread is ending and cannot keep the lock; hold a guard instead of detaching it";
        Err(Error::refused(text).of(hold.holding().name()))
    }
}

// `Rc` and the user's callbacks would take these away. A panic cannot leave a hold half changed: it
// is either counted or not, and the lock in Redis is released by unwinding.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        match self.leave() {
            // A loss is worth a line even here: nobody else may report it. A guard whose hold was
            // released by key is not, as the program did that itself.
            Err(error) if !error.is_not_held() || error.is_lost() => log!(warn, "{error}"),
            _ => {}
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        if let Some(hold) = &self.0 {
            debug
                .field("lock", hold.holding().slot.target())
                .field("fencing_token", &hold.holding().lease.terms.token)
                .field("remaining", &self.remaining());
        }
        debug.finish()
    }
}

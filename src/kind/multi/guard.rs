//! The guard of several locks.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::error::Result;
use crate::base::loss::Loss;
use crate::base::sync::{Arc, Mutex};
use crate::base::token::FencingToken;
use crate::engine::holding::Holding;
use crate::engine::transaction::apply;
use crate::kind::LeaseWatch;
use crate::kind::multi::part::{PartGuard, combined, give_back};
use crate::wire::{Pipeline, Value};

/// The holds of several locks, which are released together when it is dropped.
///
/// [`LockClient::lock_all`](crate::LockClient::lock_all) makes it. It has all of its locks, or it is lost: a loss of one
/// is a loss of the whole. The locks are in the order of their names, whatever the order of the call.
///
/// Each lock has a lease and a token of its own. Like a [`Guard`](crate::Guard) it belongs to the thread that took the
/// locks. To send them to another thread, take it apart with [`into_guards`](MultiGuard::into_guards).
///
/// ```
/// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
/// let (from, to) = (client.mutex("account:1")?, client.mutex("account:2")?);
/// let guard = client.lock_all([&from, &to])?;
/// println!("both for {:?}", guard.remaining());
/// guard.release()
/// # }
/// ```
#[must_use = "if unused the locks are released at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub struct MultiGuard(Vec<PartGuard>);

impl MultiGuard {
    pub(super) fn new(guards: Vec<PartGuard>) -> MultiGuard {
        MultiGuard(guards)
    }

    fn holdings(&self) -> impl Iterator<Item = &Holding> {
        self.0.iter().map(PartGuard::holding)
    }

    /// The guards of all locks, in the order of the names.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// println!("{} locks", guard.guards().len());
    /// # }
    /// ```
    pub fn guards(&self) -> &[PartGuard] {
        &self.0
    }

    /// The guard of the lock with this name, the client's prefix included.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// let token = guard.get("account:1").map(|part| part.fencing_token());
    /// # }
    /// ```
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&PartGuard> {
        self.0.iter().find(|part| part.name() == name.as_ref())
    }

    /// Takes it apart. From then on each guard is released by itself.
    ///
    /// ```
    /// # fn demo(guard: leasehold::MultiGuard) {
    /// use leasehold::PartGuard;
    ///
    /// for part in guard.into_guards() {
    ///     if let PartGuard::Lock(guard) = part {
    ///         let owned = guard.into_owned().expect("held once");
    ///         std::thread::spawn(move || owned.release());
    ///     }
    /// }
    /// # }
    /// ```
    pub fn into_guards(mut self) -> Vec<PartGuard> {
        std::mem::take(&mut self.0)
    }

    /// The token of each lock, with its name, in the order of the names. No I/O.
    ///
    /// Each is greater than that of every hold of its lock before it. Send with a write the token of the lock that
    /// protects what is written.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// for (name, token) in guard.fencing_tokens() {
    ///     println!("{}: {token}", name.escape_ascii());
    /// }
    /// # }
    /// ```
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&[u8], FencingToken)> {
        self.0.iter().map(|part| (part.name(), part.fencing_token()))
    }

    /// Whether all leases are still valid on this machine's clock, as for [one lock](crate::Guard::is_valid). No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// while guard.is_valid() {
    ///     // … one step, with the token of each lock in its writes …
    /// #   break;
    /// }
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long all leases are still valid: the least of them. No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// println!("the next step may take {:?}", guard.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        let remaining = |part: &PartGuard| part.holding().remaining(part.access());
        self.guards().iter().map(remaining).min().unwrap_or_default()
    }

    /// Why the first lock was lost that was lost, in the order of the names, or `None` if none was. No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// if let Some(loss) = guard.loss() {
    ///     eprintln!("stopped: {loss}");
    /// }
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.holdings().find_map(Holding::loss)
    }

    /// Calls `callback` once, at the first loss of one of the locks, as for [one lock](crate::Guard::on_loss).
    ///
    /// It belongs to each of the holds. A lock that the thread holds further on keeps it.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// guard.on_loss(|loss| eprintln!("stop: {loss}"));
    /// # }
    /// ```
    pub fn on_loss(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        let callback = Arc::new(Mutex::new(Some(callback)));
        for holding in self.holdings() {
            let callback = Arc::clone(&callback);
            holding.on_loss(Box::new(move |loss| {
                // Not under the lock of the callback, which may take its time.
                let first = callback.lock().take();
                if let Some(callback) = first {
                    callback(loss);
                }
            }));
        }
    }

    /// A view of each hold for other threads, in the order of the names.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// let watches = guard.lease_watches();
    /// std::thread::spawn(move || while watches.iter().all(|it| it.is_valid()) { /* … help … */ });
    /// # }
    /// ```
    pub fn lease_watches(&self) -> Vec<LeaseWatch> {
        let watch = |part: &PartGuard| LeaseWatch::of(part.holding(), part.access());
        self.guards().iter().map(watch).collect()
    }

    /// How many wait for these locks, as far as this process knows, as for [one lock](crate::Guard::waiters). No I/O.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) {
    /// println!("{} wait", guard.waiters());
    /// # }
    /// ```
    pub fn waiters(&self) -> usize {
        self.holdings().map(Holding::waiters).sum()
    }

    /// Whether this process knows of anybody who waits for one of these locks. No I/O.
    ///
    /// ```
    /// # fn demo(guard: leasehold::MultiGuard) -> leasehold::Result<()> {
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

    /// Asks Redis whether all locks are still these holds', one after the other.
    ///
    /// # Errors
    ///
    /// The first of the errors that [one lock](crate::Guard::check) has.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) -> leasehold::Result<()> {
    /// guard.check()
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.holdings().try_for_each(Holding::check)
    }

    /// Makes every lease last for at least `ttl` from now, one after the other, as for
    /// [one lock](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The first of the errors that one lock has. The leases before it are longer then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(guard: &leasehold::MultiGuard) -> leasehold::Result<()> {
    /// guard.extend(Duration::from_secs(5))
    /// # }
    /// ```
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        self.holdings().try_for_each(|holding| holding.extend(ttl))
    }

    /// Makes short claims whole leases now, for work that cannot stop before its end, as for
    /// [one lock](crate::Guard::confirm).
    ///
    /// # Errors
    ///
    /// The first of the errors that one lock has.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) -> leasehold::Result<()> {
    /// guard.confirm()
    /// # }
    /// ```
    pub fn confirm(&self) -> Result<()> {
        self.holdings().try_for_each(Holding::confirm)
    }

    /// Keeps all locks for at least this long, even if their holds end earlier, as for
    /// [one lock](crate::Guard::keep_for).
    ///
    /// # Errors
    ///
    /// The first of the errors that one lock has. The locks before it are kept.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(guard: leasehold::MultiGuard) -> leasehold::Result<()> {
    /// guard.keep_for(Duration::from_secs(60))?;
    /// guard.release()
    /// # }
    /// ```
    pub fn keep_for(&self, least: Duration) -> Result<()> {
        self.holdings().try_for_each(|holding| holding.keep_for(least))
    }

    /// Runs commands that apply all together, and only if all locks are still these holds', as for
    /// [one lock](crate::Guard::transaction).
    ///
    /// # Errors
    ///
    /// Those that one lock has, and [`is_config`](crate::Error::is_config)
    ///
    /// - in a cluster if the names do not have the same hash tag: two nodes cannot look at their locks at one moment;
    /// - if one of several parts is of a semaphore or a read-write lock, whose key changes with what any holder does.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::MultiGuard) -> leasehold::Result<()> {
    /// guard.transaction(|pipe| {
    ///     pipe.cmd("DECRBY").arg("balance:1").arg(10).cmd("INCRBY").arg("balance:2").arg(10);
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self, build: impl FnOnce(&mut Pipeline)) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::new();
        build(&mut pipeline);
        apply(&self.holdings().collect::<Vec<_>>(), &pipeline)
    }

    /// Releases all locks in one exchange, and returns an error if that went wrong.
    ///
    /// # Errors
    ///
    /// Those that [one lock](crate::Guard::release) has; [`is_lost`](crate::Error::is_lost) if any of the locks had been
    /// lost. The text has the errors of the other locks, too. The locks without an error are released in any case.
    ///
    /// ```
    /// # fn demo(guard: leasehold::MultiGuard) {
    /// match guard.release() {
    ///     Err(error) if error.is_lost() => { /* check what was done */ }
    ///     Err(error) => eprintln!("{error}"),
    ///     Ok(()) => {}
    /// }
    /// # }
    /// ```
    pub fn release(mut self) -> Result<()> {
        combined(give_back(std::mem::take(&mut self.0)).into_iter().map(|(_, outcome)| outcome))
    }
}

// As for one guard: a panic leaves no hold half changed.
impl UnwindSafe for MultiGuard {}
impl RefUnwindSafe for MultiGuard {}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        for (_, outcome) in give_back(std::mem::take(&mut self.0)) {
            match outcome {
                // As for one guard.
                Err(error) if !error.is_not_held() || error.is_lost() => log!(warn, "{error}"),
                _ => {}
            }
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.0).finish()
    }
}

//! The holds of a thread, and their counts. A thread that ends releases its holds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::option::Lease;
use crate::base::sync::{Arc, thread_local};
use crate::base::time::Moment;
use crate::base::token::FencingToken;
use crate::client::local_locks::registry::{LocalGrant, Registry, lease_ends};

/// By the registry's address and the name. The address stays unique, because each hold keeps its
/// registry alive.
type ByName = HashMap<(*const Registry, Name), Hold>;

/// A thread's hold of one lock, and its count.
struct Hold {
    registry: Arc<Registry>,
    grant: LocalGrant,
    count: u32,
    /// When its lease ends without its limits and without the calls that have renewed it; [`Moment::FAR`] if it is
    /// renewed by itself.
    leased_until: Moment,
    limit: Moment,
    /// The calls inside it that ask for more.
    inner: Vec<InnerCall>,
    /// Whether its thread must not take it again.
    once_per_thread: bool,
}

/// What a call asks for beyond its hold, until its unlock.
struct InnerCall {
    /// The count with which it entered.
    entered: u32,
    /// The time to live of the lease that it has renewed, if it has.
    renewed_to: Option<Duration>,
    limit: Moment,
}

/// What a thread finds that asks for a lock.
pub(super) enum Entry {
    /// It holds the lock once more.
    Entered,
    /// It does not hold the lock.
    Outside,
    /// It is in its own way.
    Busy,
}

impl Hold {
    /// Returns an error if the lease has ended.
    fn check(&self, name: &Name) -> Result<()> {
        if self.registry.is_valid(self.grant) { Ok(()) } else { Err(self.lost(name)) }
    }

    fn lost(&self, name: &Name) -> Error {
        Error::lost(&self.registry.loss(name, self.grant))
    }

    /// Gives a call with this lease what it asks for.
    fn enter(&mut self, name: &Name, lease: Lease, entered: u32) -> Result<()> {
        let now = self.registry.now();
        let (until, limit) = lease_ends(lease, now);
        let renewed_to =
            (lease.is_renewed() && self.leased_until != Moment::FAR).then(|| lease.ttl());
        if renewed_to.is_some() || limit < self.limit {
            self.inner.push(InnerCall { entered, renewed_to, limit });
        }
        if !lease.is_renewed() {
            self.leased_until = self.leased_until.max(until);
        }
        self.apply(name)?;
        self.count = entered;
        Ok(())
    }

    /// Takes back what the last call asked for, which is over. The lease keeps its end.
    fn leave(&mut self, name: &Name) -> Result<()> {
        let count = self.count;
        if let Some(inner) = self.inner.pop_if(|inner| inner.entered >= count) {
            // As renewals would have left it.
            let until = inner.renewed_to.map(|ttl| self.registry.now().after(ttl));
            self.leased_until = self.leased_until.max(until.unwrap_or(Moment::PAST));
            self.apply(name)?;
        }
        Ok(())
    }

    /// Makes the hold end as it and the calls inside it ask for.
    fn apply(&mut self, name: &Name) -> Result<()> {
        let is_renewed = self.inner.iter().any(|inner| inner.renewed_to.is_some());
        let until = if is_renewed { Moment::FAR } else { self.leased_until };
        let limits = self.inner.iter().map(|inner| inner.limit);
        let until = limits.fold(until.min(self.limit), Moment::min);
        if until != self.grant.valid_until {
            let grant = self.registry.end_at(name, self.grant, until);
            self.grant = grant.ok_or_else(|| self.lost(name))?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Holds(RefCell<ByName>);

impl Drop for Holds {
    fn drop(&mut self) {
        for ((_, name), hold) in self.0.take() {
            hold.registry.release(&name, hold.grant);
        }
    }
}

thread_local! {
    static HOLDS: Holds = Holds::default();
}

/// Runs work on this thread's holds. `None` if the thread is ending and its holds have been
/// released.
fn with_holds<T>(work: impl FnOnce(&mut ByName) -> T) -> Option<T> {
    // `try_with`: destructors of other thread-local values may lock and unlock after this one is
    // gone, and `with` would panic there.
    HOLDS.try_with(|holds| work(&mut holds.0.borrow_mut())).ok()
}

fn key(registry: &Arc<Registry>, name: &Name) -> (*const Registry, Name) {
    (Arc::as_ptr(registry), name.clone())
}

/// Counts one more if this thread holds the lock and may take it again, by a call with this lease that may or not.
pub(super) fn enter(
    registry: &Arc<Registry>,
    name: &Name,
    lease: Lease,
    once_per_thread: bool,
) -> Result<Entry> {
    let entered = with_holds(|holds| {
        let Some(hold) = holds.get_mut(&key(registry, name)) else { return Ok(Entry::Outside) };
        // A lost hold is not entered again: the work inside would not be protected. It stays in the
        // table until its last unlock, which reports the loss once more.
        hold.check(name)?;
        if hold.once_per_thread || once_per_thread {
            return Ok(Entry::Busy);
        }
        let Some(count) = hold.count.checked_add(1) else {
            return Err(Error::config("hold count", u32::MAX, "a smaller one; unlock it").of(name));
        };
        hold.enter(name, lease, count)?;
        Ok(Entry::Entered)
    });
    entered.unwrap_or_else(|| {
        let text = "this thread is ending and cannot keep the lock; lock it before the thread ends";
        Err(Error::refused(text).of(name))
    })
}

/// Makes a grant the hold of this thread.
pub(super) fn adopt(
    registry: &Arc<Registry>,
    name: Name,
    grant: LocalGrant,
    lease: Lease,
    once_per_thread: bool,
) {
    let (leased_until, limit) = lease_ends(lease, grant.since);
    let hold = Hold {
        registry: Arc::clone(registry),
        grant,
        count: 1,
        leased_until,
        limit,
        inner: Vec::new(),
        once_per_thread,
    };
    // Cannot be `None`: `enter` has just used the table on this thread.
    with_holds(|holds| holds.insert(key(registry, &name), hold));
}

/// Counts one less, and releases the lock after the last.
pub(super) fn leave(registry: &Arc<Registry>, name: &Name) -> Result<()> {
    let key = key(registry, name);
    let left = with_holds(|holds| {
        let Some(hold) = holds.get_mut(&key) else { return Err(not_held(name)) };
        // Counted also if the hold is lost: each lock needs its own unlock, and each reports the
        // loss.
        let outcome = hold.check(name).and_then(|()| hold.leave(name));
        hold.count -= 1;
        if hold.count > 0 {
            return outcome.map(|()| None);
        }
        // Removed here and released below, outside the borrow of this thread's table.
        Ok(holds.remove(&key))
    });
    match left.unwrap_or_else(|| Err(not_held(name)))? {
        Some(hold) if !registry.release(name, hold.grant) => Err(hold.lost(name)),
        _ => Ok(()),
    }
}

fn not_held(name: &Name) -> Error {
    Error::not_held(
        "not held by this thread: it has not locked it, or has unlocked it already; unlock it in the thread \
         that locked it",
    )
    .of(name)
}

/// The token of this thread's hold, while it is valid.
pub(super) fn token(registry: &Arc<Registry>, name: &Name) -> Option<FencingToken> {
    with_holds(|holds| {
        let hold = holds.get(&key(registry, name))?;
        registry.is_valid(hold.grant).then_some(hold.grant.token)
    })?
}

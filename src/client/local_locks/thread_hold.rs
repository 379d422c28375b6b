//! The holds of a thread, and their counts. A thread that ends releases its holds.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::sync::{Arc, thread_local};
use crate::base::token::FencingToken;
use crate::client::local_locks::registry::{LocalGrant, Registry};

/// By the registry's address and the name. The address stays unique, because each hold keeps its
/// registry alive.
type ByName = HashMap<(*const Registry, Name), Hold>;

/// A thread's hold of one lock, and its count.
struct Hold {
    registry: Arc<Registry>,
    grant: LocalGrant,
    count: u32,
    /// Whether its thread must not take it again.
    once_per_thread: bool,
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

/// Counts one more if this thread holds the lock and may take it again, by a call that may or not.
pub(super) fn enter(registry: &Arc<Registry>, name: &Name, once_per_thread: bool) -> Result<Entry> {
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
        hold.count = count;
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
    once_per_thread: bool,
) {
    let hold = Hold { registry: Arc::clone(registry), grant, count: 1, once_per_thread };
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
        hold.count -= 1;
        if hold.count > 0 {
            return hold.check(name).map(|()| None);
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

//! Slots, waiting, leases and renewal, for every kind of lock alike.
//!
//! | module | what it has |
//! | --- | --- |
//! | `slot` | one name in one process: whose turn it is among the threads |
//! | `table` | the slots of a client, one per name and kind |
//! | `acquire` | how a thread whose turn it is gets the lease from Redis |
//! | `backoff` | how long it pauses between two attempts |
//! | `heartbeat` | how a waiter in the queue shows that it lives |
//! | `endless` | holders without an end, of which the user is warned |
//! | `lease` | the lease of one hold: valid until when, lost why |
//! | `replica` | how a lease is made to count only once replicas have it |
//! | `release` | how a lease is given back |
//! | `extend` | what a holder asks Redis about its lease |
//! | `shutdown` | how all of it ends before its time |
//! | `callback` | what the user wants to be told, and how |
//! | `hold` | the holds of a thread, and their counts |
//! | `hub` | the thread that listens for what wakes waiters |
//! | `worker` | the thread that renews, finds losses, and finishes what callers could not |
//!
//! One `lock()`, walked through. *The thread* looks for its own hold (`hold`): found, it counts one
//! more and is done. Else it enters the slot and waits for its turn; at its turn it is the *delegate*,
//! the only thread of the process that talks to Redis for this name. It attempts until granted.
//! *The lease* is born valid until shortly before Redis would give it away, and is watched by the
//! worker: renewed, or found lost. *The release* marks it releasing, asks Redis, and vacates the
//! slot, whereupon the next thread has its turn.
//!
//! Here and there a condition asks `mutated!`, with a name. That is a planted bug, by which the tests
//! show that they would catch a real one (`base::mutation`); it is compiled away in any other build.

pub(crate) mod acquire;
mod backoff;
pub(crate) mod callback;
pub(crate) mod context;
mod endless;
pub(crate) mod extend;
mod heartbeat;
pub(crate) mod holding;
pub(crate) mod hub;
pub(crate) mod lease;
pub(crate) mod release;
mod replica;
pub(crate) mod shutdown;
pub(crate) mod slot;
mod table;
pub(crate) mod thread_hold;
mod verdict;
mod wake;
mod worker;

use std::ops::Deref;

use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::Clock;
use crate::protocol::Protocol;
use crate::protocol::recipe::Kind;

pub(crate) use callback::Callbacks;
pub(crate) use context::Bounds;
use context::Context;
use slot::Slot;
use table::Table;

/// The locks of one client. Slots share its context, and go on when it is dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) context: Arc<Context>,
    table: Arc<Table<Slot>>,
}

impl Engine {
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
        callbacks: Callbacks,
    ) -> Arc<Engine> {
        let table = Arc::new(Table::new());
        let slots = Arc::clone(&table);
        let tell = move |message| wake::tell(&slots, message);
        let context = Arc::new(Context::new(protocol, clock, bounds, callbacks, tell));
        Arc::new(Engine { context, table })
    }

    /// The slot of a name, the same for all who ask while anybody has it.
    pub(crate) fn slot(&self, kind: &'static dyn Kind, name: Name) -> Arc<Slot> {
        self.table.get(kind.name(), name, |name| {
            let target = self.protocol.target(kind, name);
            Slot::new(Arc::clone(&self.context), Arc::clone(&self.table), target)
        })
    }

    pub(crate) fn table(&self) -> &Table<Slot> {
        &self.table
    }
}

impl Deref for Engine {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

//! Slots, waiting, leases and renewal, for every kind of lock alike.
//!
//! Each of these knows only what stands above it:
//!
//! | module | what it has |
//! | --- | --- |
//! | `callback` | what the user wants to be told, and how |
//! | `no_expiry_warnings` | holders without an end, of which the user is warned |
//! | `backoff` | how long a thread pauses between two attempts |
//! | `heartbeat` | how a waiter in the queue shows that it lives |
//! | `ownership` | what a reply means for a lease |
//! | `lease` | the lease of one hold: valid until when, lost why |
//! | `blocker` | who has a lock for which a thread waits |
//! | `worker` | the thread that renews, finds losses, and finishes what callers could not |
//! | `listener` | the threads that listen for what wakes waiters |
//! | `context` | what the slots of a client share, these two threads among it |
//! | `long_wait` | a wait that takes long, and the line in the log that explains it |
//! | `slot_table` | the slots of a client, one per name and kind |
//! | `slot` | one name in one process: whose turn it is among the threads |
//! | `dispatch` | what the messages that a client hears mean for its slots |
//! | `holding` | a lease and its slot, which do not know each other |
//! | `release` | how a holding is given back, or found lost |
//! | `extend` | what a holder asks Redis about its lease |
//! | `durability` | how a lease is made to count only once replicas have it |
//! | `acquire` | how a thread whose turn it is gets the lease from Redis |
//! | `refusal` | who was in the way when a thread went without a lock |
//! | `thread_hold` | which holdings a thread has, and how many times |
//! | `shutdown` | how all of it ends before its time |
//!
//! The engine stands on top, with the context and the table. The worker and the listener know a slot only as
//! `RenewableSlot` and as `ReleaseListener`, and do not keep it alive.
//!
//! One `lock()`, walked through. *The thread* looks for its own hold (`thread_hold`): found, it counts one
//! more and is done. Else it enters the slot, which tells it to wait or to acquire. The *acquirer* is the only
//! thread of the process that talks to Redis for this name, and attempts until granted. *The lease* is born valid
//! until shortly before Redis would give it away, and is watched by the worker: renewed, or found lost. *The
//! release* ends its validity, then asks the slot: the next thread has the lease, or it lingers, or Redis is asked
//! and the slot told, whereupon the next thread acquires. So a slot is locked once to enter, once when granted, and
//! at the two ends of a release. What a slot may be told, and what follows, is the table at the head of
//! `slot::state`.
//!
//! Locks are taken in this order: the listener's channels, a slot, and one of a waiter's turn, a lease's phase
//! and the task queue of the worker. The table's is taken alone. No slot is locked during I/O. What may be the last
//! reference to a slot or a lease is dropped under none of these locks: the end of a slot takes some of
//! them, and a lease has callbacks of the user, whose destructors may do anything.

pub(crate) mod acquire;
mod backoff;
mod blocker;
pub(crate) mod callback;
pub(crate) mod context;
mod dispatch;
mod durability;
pub(crate) mod extend;
mod heartbeat;
pub(crate) mod holding;
pub(crate) mod lease;
pub(crate) mod listener;
mod long_wait;
mod no_expiry_warnings;
mod ownership;
pub(crate) mod refusal;
pub(crate) mod release;
pub(crate) mod shutdown;
pub(crate) mod slot;
mod slot_table;
pub(crate) mod thread_hold;
mod worker;

use std::ops::Deref;

use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::Clock;
use crate::protocol::Protocol;
use crate::protocol::lock_kind::LockKind;

pub(crate) use callback::Callbacks;
pub(crate) use context::Bounds;
use context::Context;
use slot::Slot;
use slot_table::SlotTable;

/// The locks of one client. Its slots share the context, and go on without the engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) context: Arc<Context>,
    table: Arc<SlotTable<Slot>>,
}

impl Engine {
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
        callbacks: Callbacks,
    ) -> Arc<Engine> {
        let table = Arc::new(SlotTable::new());
        let slots = Arc::clone(&table);
        let on_wake = move |wake| dispatch::dispatch(&slots, wake);
        let context = Arc::new(Context::new(protocol, clock, bounds, callbacks, on_wake));
        Arc::new(Engine { context, table })
    }

    /// The slot of a name, the same for all who ask while anybody has it.
    pub(crate) fn slot(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Slot> {
        self.table.get(kind.name(), name, |name| {
            let target = self.protocol.target(kind, name);
            Slot::new(Arc::clone(&self.context), Arc::clone(&self.table), target)
        })
    }

    pub(crate) fn table(&self) -> &SlotTable<Slot> {
        &self.table
    }
}

impl Deref for Engine {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

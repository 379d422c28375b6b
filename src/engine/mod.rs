//! Slots, waiting, leases and renewal, for every kind of lock alike.
//!
//! # Glossary
//!
//! | term | meaning | type |
//! | --- | --- | --- |
//! | attempt | One try of this process to get a lock: one owner's value, from its first request to its end. | `slot::Attempt` |
//! | owner's value | What an attempt writes into Redis to own the lock, or to queue for it. | `protocol::LockKind::owner` |
//! | slot | One name and kind of lock in one process. | `slot::Slot` |
//! | acquirer | The one thread of a slot that asks Redis for the lock. | `slot::acquirer::Acquirer`, `acquire::AcquireLoop` |
//! | waiter | A thread that waits at a slot to be admitted. | `slot::waiter::Waiter` |
//! | admission | What a slot tells a thread: acquire, take an attempt over, hold, or go without. | `slot::Admission` |
//! | wait limit | How long a caller waits: for one attempt, or until a moment. | `slot::WaitLimit` |
//! | lease | What Redis granted to an attempt, and until when. | `lease::HeldLease` |
//! | holding | A lease together with its slot, as a guard has it. | `holding::Holding` |
//! | validity | The time in which a holder may rely on its lease; it ends before Redis ends the lease. | `lease::validity` |
//! | settled | The moment from which no unanswered request of an attempt can run in Redis any more. | `Attempt::settled` |
//! | hand-over | The release script makes the next attempt in the queue the owner. | `protocol` |
//! | claim window | The lease that a hand-over writes for an owner that has not shown itself yet. | `Context::claim_window` |
//! | heartbeat | The request by which an attempt in the queue shows that its process lives. | `protocol::AcquireMode::Heartbeat` |
//! | linger | After an unlock the process keeps the lease for a while, and the next thread takes it without Redis. | `slot::holder::HoldState` |
//! | yield | After a release that others heard, a process asks again only after a pause. | `slot::fairness::Fairness` |
//! | ownership | What Redis says about an owner's claim: owned, gone, or taken by another. | `protocol::Ownership` |
//! | pending release | An owner's value that the worker takes out of Redis in the background. | `worker::PendingRelease` |
//! | loss | The end of a lease before its release. | `Loss` |
//! | worker, listener | The two threads of a client: one renews leases, one receives messages. | `worker::Worker`, `listener::WakeListener` |
//!
//! # Modules
//!
//! Each of these knows only what stands above it:
//!
//! | module | what it has |
//! | --- | --- |
//! | `callback` | what the user wants to be told, and how |
//! | `no_expiry_warnings` | holders whose lease has no end, of which the user is warned |
//! | `backoff` | how long a thread pauses between two attempts |
//! | `heartbeat` | the times of the heartbeat |
//! | `ownership` | what a reply means for a lease |
//! | `lease` | the lease of one hold: its validity, its renewals, its loss |
//! | `worker` | the thread that renews, finds losses, and releases in the background |
//! | `listener` | the threads that receive the messages that wake waiters |
//! | `context` | what the slots of a client share |
//! | `slot_table` | the slots of a client, one for each name and kind |
//! | `slot` | one name in one process: which thread acquires, holds or waits |
//! | `dispatch` | which slots a message is for |
//! | `holding` | a lease and its slot, which do not know each other |
//! | `release` | the release of a holding, and its loss |
//! | `extend` | what a holder asks Redis about its lease |
//! | `durability` | how a lease counts only once replicas or disks have it |
//! | `acquire` | how the acquirer gets the lease from Redis |
//! | `thread_hold` | which holdings a thread has, and how many times |
//! | `shutdown` | the end of all of it |
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
pub(crate) mod callback;
pub(crate) mod context;
mod dispatch;
mod durability;
pub(crate) mod extend;
mod heartbeat;
pub(crate) mod holding;
pub(crate) mod lease;
pub(crate) mod listener;
mod no_expiry_warnings;
mod ownership;
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

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
//! | admission | What a slot tells a thread: acquire, take an attempt over, hold, or give up. | `slot::Admission` |
//! | share | How much of a lock a call asks for: all of it, some permits, or to read or to write. | `base::share::Share` |
//! | entry | What a slot has of an owner's value that has the lock. Threads may share one to read. | `slot::entry::Entry` |
//! | lease | Until when Redis lets an owner's value live. All holds of its entry have the same. | `lease::Lease` |
//! | hold | A lock as one thread has it, or an owned guard. | `hold::Hold` |
//! | holding | A hold together with its slot, as a guard has it. | `holding::Holding` |
//! | validity | The time in which a holder may rely on its lease; it ends before Redis ends the lease. | `lease::validity` |
//! | settled | After this moment no unanswered request of an attempt can still run in Redis. | `Attempt::settled` |
//! | hand-over | The release script makes the next attempt in the queue the owner. | `protocol` |
//! | heartbeat | The request by which an attempt in the queue shows that its process lives. | `protocol::AcquireMode::Heartbeat` |
//! | linger | After an unlock the process keeps the lease for a while, and the next thread takes it without Redis. | `slot::entry::EntryPhase` |
//! | door | The entry by which threads of a process come in to read without a command, and until when. | `slot::door::Door` |
//! | change | A request, with a number, by which a hold of a read-write lock becomes more or less. | `lease::change::Changes` |
//! | upgrader | A thread that holds a read-write lock and waits to become its writer. | `slot::acquirer::Upgrader` |
//! | ownership | What Redis says about an owner's claim: owned, gone, or taken by another. | `protocol::Ownership` |
//! | worker, listener | The two threads of a client: one renews leases, one receives messages. | `worker::Worker`, `listener::WakeListener` |
//!
//! # Modules
//!
//! Each module uses only those above it:
//!
//! | module | what it has |
//! | --- | --- |
//! | `few` | a list that usually has one element at most |
//! | `callback` | the user's callbacks, and the thread that calls them |
//! | `no_expiry_warnings` | warnings about locks whose key has no time to live |
//! | `backoff` | how long a thread pauses between two requests |
//! | `heartbeat` | the times of the heartbeat |
//! | `ownership` | what a reply means for a lease |
//! | `lease` | the lease of one owner's value: its validity, its renewals, its end |
//! | `hold` | one thread's hold: its token, its limit, its loss |
//! | `blocker` | who has a lock for which a thread waits |
//! | `worker` | the thread that renews, finds losses, and releases in the background |
//! | `listener` | the threads that receive the messages for waiters |
//! | `closing` | how far a client has come with its end |
//! | `signal` | where the observers of a lock wait |
//! | `context` | what the slots of a client share |
//! | `long_wait` | a wait: what observers are told of it, and its line in the log if it takes long |
//! | `slot_table` | the slots of a client, one for each name and kind |
//! | `slot` | one name in one process: which thread acquires, holds or waits |
//! | `dispatch` | which slots a message, or a fault of a clock, is for |
//! | `holding` | a hold together with its slot |
//! | `release` | the release of a holding, and its loss |
//! | `extend` | extend and check: the requests of a holder |
//! | `transaction` | commands that apply only while a holder has its locks |
//! | `change` | the downgrade of a read-write lock |
//! | `proclaim` | the word of a leader |
//! | `durability` | waiting until replicas or disks have a new lease |
//! | `blocked_call` | who was in the way when a thread went without a lock |
//! | `acquire` | how the acquirer gets the lease from Redis |
//! | `upgrade` | how an upgradable reader becomes the writer |
//! | `inner_call` | what a call asks for by which a thread takes a lock once more |
//! | `thread_hold` | which holdings a thread has, and how many times |
//! | `shutdown` | the end of all of it |
//!
//! The engine is on top: it has the context and the table. The worker renews leases without their slots. It and the
//! listener see a slot through the traits `WatchedSlot` and `ReleaseListener`, and hold weak references to it.
//!
//! # One `lock()`, step by step
//!
//! 1. The thread looks for its own hold (`thread_hold`). If it has one, it counts one more and is done.
//! 2. Otherwise it enters the slot, which makes it wait or acquire. The acquirer is the only thread of
//!    the process that asks Redis for this name, and it asks until Redis grants the lock.
//! 3. The lease is valid until shortly before it ends in Redis. The worker renews it, or finds it lost.
//! 4. The release ends the validity first. Then the slot decides: the next thread gets the lease, or the
//!    lease lingers, or the thread sends the release to Redis. After that the next thread acquires.
//!
//! So the slot is locked once to enter, once when the lock is granted, and at both ends of a release. The
//! table at the head of `slot::state` has all events and their effects.
//!
//! # Lock order
//!
//! First the state of the listener, then the lock of `closing`, then a slot, then one of: a waiter's admission, a hold's phase and under it
//! its lease, the task queue of the worker. The worker waits for the lock of a slot only briefly. The lock of the slot table is never held together with another. No slot is
//! locked during I/O.
//!
//! A strong reference to a slot or a hold that may be the last is never dropped under one of these
//! locks: the destructor of a slot takes some of them, and a hold owns callbacks of the user, whose
//! destructors may do anything.

pub(crate) mod acquire;
mod backoff;
pub(crate) mod blocked_call;
mod blocker;
pub(crate) mod callback;
mod change;
pub(crate) mod closing;
pub(crate) mod context;
mod dispatch;
pub(crate) mod durability;
pub(crate) mod extend;
pub(crate) mod few;
pub(crate) mod heartbeat;
pub(crate) mod hold;
pub(crate) mod holding;
pub(crate) mod inner_call;
pub(crate) mod lease;
pub(crate) mod listener;
mod long_wait;
mod no_expiry_warnings;
pub(crate) mod owner_value;
mod ownership;
mod proclaim;
pub(crate) mod release;
pub(crate) mod shutdown;
pub(crate) mod signal;
pub(crate) mod slot;
mod slot_table;
pub(crate) mod thread_hold;
pub(crate) mod transaction;
mod upgrade;
mod worker;

use std::ops::Deref;

use crate::base::logging;
use crate::base::name::Name;
use crate::base::sync::{Arc, Ordering};
use crate::base::thread::Role;
use crate::base::time::{Clock, Moment};
use crate::observe::observers::begin_client_work;
use crate::protocol::Protocol;
use crate::protocol::lock_kind::LockKind;
use crate::wire::server_clock::ServerClocks;

pub(crate) use callback::Callbacks;
pub(crate) use context::Bounds;
use context::Context;
use slot::Slot;
use slot_table::SlotTable;

/// The locks of one client. Its slots share the context, and outlive the engine.
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
        // The closure has the table and not the engine: the context owns the listener, which owns the
        // closure, so a reference to the engine would be a cycle. The table refers to its slots weakly.
        let on_wake = move |wake| dispatch::dispatch(&slots, wake);
        let context = Arc::new(Context::new(protocol, clock, bounds, callbacks, on_wake));
        Arc::new(Engine { context, table })
    }

    /// When the clock of a server was set: checks the leases that it times, and makes waiters ask again. When the
    /// connections to a server have ended: checks its leases.
    pub(crate) fn watch_servers(&self, clocks: &ServerClocks) {
        clocks.on_break(self.worker.on_break());
        self.watch_clocks(clocks);
    }

    fn watch_clocks(&self, clocks: &ServerClocks) {
        // Weak: the clocks belong to the protocol, which the context has.
        let (context, slots) = (Arc::downgrade(&self.context), Arc::clone(&self.table));
        clocks.on_fault(move |fault| {
            let Some(context) = context.upgrade() else { return };
            let (threads, slots) = (context.protocol.identity().threads(), Arc::clone(&slots));
            let tell = move || {
                begin_client_work();
                dispatch::on_clock_fault(&slots, &*context.protocol, &fault);
            };
            // Not on this thread: it may be the worker, which waits for no slot.
            if let Err(error) = threads.spawn(Role::Clock, tell) {
                log!(error, "no thread for a fault of a clock could be started: {error}");
            }
        });
    }

    /// The slot of a name. All callers get the same slot while anybody has a reference to it.
    pub(crate) fn slot(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Slot> {
        self.table.get(kind.name(), name, |name| {
            let target = self.protocol.target(kind, name);
            Slot::new(Arc::clone(&self.context), Arc::clone(&self.table), target)
        })
    }

    pub(crate) fn table(&self) -> &SlotTable<Slot> {
        &self.table
    }

    /// Releases what lingers, as no thread will take it again. The process may end now: then the leases would keep others
    /// waiting until they have ended, and nobody would hear that they wait.
    fn end_lingers(&self) {
        // First: a hold that ends later sees it under the lock of its slot.
        self.context.is_left.store(true, Ordering::SeqCst);
        let deadline = self.context.exchange_deadline();
        for linger in self.table.all().iter().flat_map(|slot| slot.end_lingers(Moment::FAR)) {
            // Dropped, it is left to the worker, so that a silent server is waited for once.
            if !self.context.is_silent() && self.context.now() < deadline {
                linger.release_now(deadline);
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end_lingers();
        // The process may end now, with lines that nobody has written.
        logging::flush();
    }
}

impl Deref for Engine {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

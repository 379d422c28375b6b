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
mod endless;
pub(crate) mod extend;
mod heartbeat;
pub(crate) mod hold;
mod hub;
pub(crate) mod lease;
pub(crate) mod release;
mod replica;
pub(crate) mod shutdown;
pub(crate) mod slot;
mod table;
mod worker;

use std::fmt;
use std::time::Duration;

use crate::base::feed::Feeds;
use crate::base::name::Name;
use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::base::time::{Clock, Moment};
use crate::protocol::Protocol;
use crate::protocol::recipe::Kind;
use crate::protocol::target::Target;

pub(crate) use callback::Callbacks;
use endless::Endless;
use heartbeat::HEARTBEAT;
use hub::Hub;
use slot::Slot;
use table::Table;
pub(crate) use worker::Worker;

/// The bounds that hold for all locks of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How long the reply to a request may take.
    pub(crate) reply: Duration,
    /// How long one exchange may take: the wait for a connection, and the reply.
    pub(crate) exchange: Duration,
    /// How long a wait rides out an outage.
    pub(crate) give_up_after: Duration,
}

/// The locks of one client.
pub(crate) struct Engine {
    protocol: Arc<dyn Protocol>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    table: Table,
    worker: Worker,
    hub: Hub,
    feeds: Feeds,
    endless: Endless,
    /// Whether the user wants to hear of requests to let go.
    curious: bool,
    shut_down: AtomicBool,
}

impl Engine {
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
        callbacks: Callbacks,
    ) -> Arc<Engine> {
        let curious = callbacks.on_release_request.is_some();
        let worker =
            Worker::new(Arc::clone(&protocol), Arc::clone(&clock), bounds.reply, callbacks);
        let table = Table::default();
        Arc::new(Engine {
            protocol,
            clock,
            bounds,
            table,
            worker,
            hub: Hub::new(),
            feeds: Feeds::new(),
            endless: Endless::default(),
            curious,
            shut_down: AtomicBool::new(false),
        })
    }

    /// The slot of a name, the same for all who ask while anybody has it.
    pub(crate) fn slot(self: &Arc<Engine>, kind: &'static dyn Kind, name: Name) -> Arc<Slot> {
        self.table.get(kind.name(), name, |name| {
            Slot::new(Arc::clone(self), self.protocol.target(kind, name))
        })
    }

    /// Forgets the slot of a name that nobody has any longer.
    fn forget(&self, target: &Target) {
        self.table.forget(target.name());
    }

    pub(crate) fn protocol(&self) -> &dyn Protocol {
        &*self.protocol
    }

    /// Whether nobody gets a lock any more.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::SeqCst)
    }

    pub(crate) fn protocol_handle(&self) -> Arc<dyn Protocol> {
        Arc::clone(&self.protocol)
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Who waits to be told of losses.
    pub(crate) fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// The locks whose holder has no end.
    pub(crate) fn endless(&self) -> &Endless {
        &self.endless
    }

    /// Begins to listen if a holder with these options needs to hear of others from the start.
    pub(crate) fn listen_for(self: &Arc<Engine>, options: &LockOptions) {
        if self.curious || !options.linger_option().is_zero() {
            self.listen_for_waiters(options);
        }
    }

    /// Begins to listen, if waiters of a lock with these options make themselves heard.
    pub(crate) fn listen_for_waiters(self: &Arc<Engine>, options: &LockOptions) {
        if options.wait_kind() == WaitKind::Queue && !self.hub.is_live() {
            self.hub.start(self);
        }
    }

    /// For how long a lock may be given to a waiter of ours that has not yet been heard of
    /// (rules 7, 8).
    pub(crate) fn claim_window(&self) -> Duration {
        HEARTBEAT * 2 + self.bounds.reply
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Waits by means of `wait`, until a moment at the longest.
    pub(crate) fn doze(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        self.clock.doze(until, wait);
    }

    /// The deadline of an exchange that begins now.
    pub(crate) fn exchange_deadline(&self) -> Moment {
        self.now().after(self.bounds.exchange)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

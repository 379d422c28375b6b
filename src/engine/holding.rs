//! A hold together with its slot.

use std::time::Duration;

use crate::base::name::Name;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::context::Context;
use crate::engine::hold::Hold;
use crate::engine::slot::{Slot, WaitLimit};
use crate::observe::{Acquired, How};

/// What a guard has while it holds a lock. The slot and the hold do not refer to each other: a slot has
/// one hold after another.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) slot: Arc<Slot>,
    pub(crate) hold: Arc<Hold>,
}

impl Holding {
    pub(super) fn new(slot: &Arc<Slot>, hold: Arc<Hold>) -> Holding {
        Holding { slot: Arc::clone(slot), hold }
    }

    pub(crate) fn name(&self) -> &Name {
        self.slot.target().name()
    }

    pub(super) fn context(&self) -> &Context {
        self.slot.context()
    }

    pub(super) fn now(&self) -> Moment {
        self.context().now()
    }

    /// How long its holder may still rely on it as on a hold with this access.
    pub(crate) fn remaining(&self, access: Option<Access>) -> Duration {
        // A view of the writer is not valid any more after a downgrade (rule 36).
        if self.hold.lease.access() < access {
            return Duration::ZERO;
        }
        self.hold.valid_until().since(self.now())
    }

    /// The limit of a wait that begins now.
    pub(crate) fn wait_limit(&self, wait: Duration) -> WaitLimit {
        WaitLimit::Until(self.now().after(wait))
    }

    /// Tells observers that its thread has taken it once more.
    pub(crate) fn reentered(&self, access: Option<Access>) {
        let Some(observers) = self.context().observers.active() else { return };
        // The hold may have been taken by an observer, or have been lost.
        let Some(hold) = self.hold.number() else { return };
        let event = Acquired {
            call: hold,
            hold,
            name: self.name().as_bytes(),
            kind: self.slot.target().kind().name(),
            access,
            waited: Duration::ZERO,
            how: How::Reentry,
            token: self.hold.token(),
            blocker: None,
        };
        observers.tell(|observer| observer.acquired(&event));
    }

    /// How many wait for it, as far as this process knows.
    pub(crate) fn waiters(&self) -> usize {
        // Waiters announce themselves by a message, which a client that does not listen misses. The
        // first call may thus return too few; the waiters repeat themselves with their heartbeats.
        let wait = self.hold.lease.value.options.wait;
        self.context().listen_for_waiters_of(self.slot.target(), wait);
        self.slot.waiters()
    }
}

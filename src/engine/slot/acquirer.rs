//! The acquirer of a slot: the one thread of the process that asks Redis for the lock. And the one that holds it
//! already, and asks to become the writer.

use crate::base::option::LockOptions;
use crate::base::share::Share;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::hold::Hold;
use crate::engine::slot::entry::Demand;
use crate::engine::slot::wait_limit::WaitLimit;
use crate::engine::slot::waiter::{EnterRequest, Waiter};
use crate::protocol::wake_message::GrantMessage;

/// The end of an acquirer's wait without a request.
#[derive(Debug)]
pub(crate) enum Received {
    Grant(ReceivedGrant),
    /// A thread of this process passed its lease on.
    Hold(Arc<Hold>),
}

/// A grant that a message reported.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedGrant {
    pub(crate) grant: GrantMessage,
    pub(crate) received: Moment,
}

/// What an acquirer asks for that stands in the queue of Redis, and how many stand before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) options: &'a LockOptions,
    pub(crate) ahead: u32,
}

/// The thread that asks Redis for the lock, or waits for a message.
#[derive(Debug)]
pub(super) struct Acquirer {
    pub(super) share: Share,
    /// Whether it makes more than one attempt.
    pub(super) waits: bool,
    pub(super) phase: AcquirerPhase,
    /// The messages about its attempt.
    pub(super) heard: Heard,
    /// The holder that the last reply names, if one does.
    pub(super) blocker: Option<Blocker>,
    /// What it asks for, while it stands in the queue of Redis for a lock that several may hold. Apart, so
    /// that a slot without a waiter is small.
    pub(super) queued: Option<Box<LockOptions>>,
    /// Whether it should ask again at once.
    pub(super) retry_now: bool,
    pub(super) cancelled: bool,
}

/// What an acquirer does.
#[derive(Debug)]
pub(super) enum AcquirerPhase {
    /// It has not asked yet: it leaves the lock to others first, or goes on with the attempt of another thread.
    Arriving,
    /// It waits for the first reply. Until then it has no place that others must not overtake.
    Asking { since: Moment },
    /// Redis has replied that the lock is held, and it waits. A lease may be passed on to it.
    Resting,
    /// It asks again, and Redis has not replied yet.
    AskingAgain { since: Moment },
    /// Another thread has passed its lease on to it.
    Given(Arc<Hold>),
    /// It has taken that lease, and does not wait any more.
    Taken,
    /// It is about to ask, or gives up. Nothing is passed on to it: nobody would have that lease.
    Ending,
}

/// The messages about an attempt whose grant is not known yet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The number of the attempt.
    pub(super) number: u64,
    /// A grant that the acquirer has not looked at yet.
    pub(super) grant: Option<ReceivedGrant>,
    /// Whether the lease of the grant is to be doubted from the start: the attempt was evicted, or the server's clock set.
    pub(super) is_doubted: bool,
    pub(super) demand: Demand,
}

impl Acquirer {
    pub(super) fn new(request: &EnterRequest, phase: AcquirerPhase) -> Acquirer {
        Acquirer {
            share: request.options.share,
            waits: request.wait_limit != WaitLimit::TryOnce,
            phase,
            heard: Heard { number: request.number, ..Heard::default() },
            blocker: None,
            queued: None,
            retry_now: false,
            cancelled: false,
        }
    }

    /// Another thread goes on with the same attempt, and its place in the queue. The last reply is as good as one to
    /// that thread if it `is_fresh`.
    pub(super) fn taken_over(self, is_fresh: bool) -> Acquirer {
        // What came in messages is about the attempt and stays. What is about the thread begins anew: `cancel_waits`
        // ended the wait of the thread before it, not this one.
        let phase = if is_fresh { AcquirerPhase::Resting } else { AcquirerPhase::Arriving };
        Acquirer { waits: true, phase, cancelled: false, ..self }
    }

    /// Another attempt of the same thread.
    pub(super) fn restart(&mut self, number: u64) {
        // A grant that was received is for the value before, which is being removed from Redis.
        self.heard = Heard { number, ..Heard::default() };
        self.queued = None;
    }

    /// It is about to ask.
    pub(super) fn ask(&mut self, now: Moment) {
        match self.phase {
            AcquirerPhase::Arriving => self.phase = AcquirerPhase::Asking { since: now },
            AcquirerPhase::Resting | AcquirerPhase::Ending => {
                self.phase = AcquirerPhase::AskingAgain { since: now };
            }
            // The first request without a reply counts: each repetition would otherwise begin the silence
            // anew, and an outage would never be seen by the threads that wait here.
            _ => {}
        }
    }

    /// Redis has replied that the lock is held.
    pub(super) fn rest(&mut self, blocker: Option<Blocker>) {
        self.blocker = blocker;
        // A lease that was passed on stays: it has no other owner.
        if !self.is_given() {
            self.phase = AcquirerPhase::Resting;
        }
    }

    /// Since when a request has had no reply.
    pub(super) fn asked_at(&self) -> Option<Moment> {
        match self.phase {
            AcquirerPhase::Asking { since } | AcquirerPhase::AskingAgain { since } => Some(since),
            _ => None,
        }
    }

    /// Whether it waits for the first reply.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.phase, AcquirerPhase::Asking { .. })
    }

    /// Whether Redis has replied that the lock is held.
    pub(super) fn has_reply(&self) -> bool {
        !matches!(self.phase, AcquirerPhase::Arriving | AcquirerPhase::Asking { .. })
    }

    /// What a lease that is passed on to it must have been asked for. `None` unless it waits in the queue, and
    /// no reply or message is about to bring it another.
    pub(super) fn inherits(&self) -> Option<&LockOptions> {
        let is_free = matches!(self.phase, AcquirerPhase::Resting)
            && self.heard.grant.is_none()
            && !self.cancelled;
        self.queued.as_deref().filter(|_| is_free)
    }

    /// Whether it has a lease that another thread passed on, and has not looked at it yet.
    pub(super) fn is_given(&self) -> bool {
        matches!(self.phase, AcquirerPhase::Given(_))
    }

    /// Whether another thread has passed its lease on to it, which it may have taken by now. It does not wait then, and its
    /// hold is one of those of the slot.
    pub(super) fn is_served(&self) -> bool {
        self.is_given() || matches!(self.phase, AcquirerPhase::Taken)
    }

    /// It rests no more. Takes the lease that was passed on to it.
    pub(super) fn end_rest(&mut self) -> Option<Arc<Hold>> {
        match std::mem::replace(&mut self.phase, AcquirerPhase::Ending) {
            AcquirerPhase::Given(hold) => {
                self.phase = AcquirerPhase::Taken;
                return Some(hold);
            }
            AcquirerPhase::Resting => {}
            // A request that had no reply stays one.
            other => self.phase = other,
        }
        None
    }

    /// Whether its thread waits: one that a lease was passed on to has what it waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits && !self.is_served()
    }

    /// Whether a reply that there is not enough left for it holds for this request too.
    pub(super) fn answers_for(&self, request: &EnterRequest) -> bool {
        // A single attempt for less may fit where this one does not. Not behind a waiter, which is not
        // overtaken.
        self.waits || self.share.weight() <= request.options.share.weight()
    }

    /// Whether there is no reason to end its pause.
    pub(super) fn is_quiet(&self) -> bool {
        !self.cancelled && !self.retry_now && self.heard.grant.is_none() && !self.is_given()
    }
}

/// A thread that waits behind the acquirer, and for which a request travels with the acquirer's.
#[derive(Debug)]
pub(super) struct Companion {
    pub(super) waiter: Arc<Waiter>,
    /// The messages about its attempt.
    pub(super) heard: Heard,
}

/// An upgrade: its thread holds the lock and waits to become the writer.
#[derive(Debug)]
pub(super) struct Upgrader {
    /// Tells it from an earlier one, whose hold was lost and whose thread has not noticed yet.
    pub(super) number: u64,
    pub(super) retry_now: bool,
    pub(super) cancelled: bool,
}
